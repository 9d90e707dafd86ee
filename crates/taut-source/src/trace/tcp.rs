//! A socket of TCP, from records to events.
//!
//! The tracepoints stand *before* the change that they tell of: `tcp_probe` before the acknowledgement is worked in,
//! `net_dev_queue` before the segment counts as sent. Each snapshot is brought to what it is just after, else half of
//! a wait for the receive window reads as "about to go".

use std::collections::VecDeque;

use taut_event::{AckSentBy, Call, Direction, FlowId, Release, Sink, Stamp, TaskId, Timer, What as Happened};
use taut_time::{Duration, Instant};

use super::last::Last;
use super::layout::{Known, Layout};
use super::record::{Record, Segment, What};
use super::repeats::{Remembered, Repeats};
use super::snapshot::{
    AFTER_FIN, CLOSED, PACING_NEEDED, Position, SYN_RECEIVED, SYN_SENT, Snapshot, ahead, later, state,
};
use super::told::{Early, Ends, Events, is_send};

/// Segments that are remembered as sent and not acknowledged; with more the count is the kernel's own.
const MOST_SENT: usize = 4096;
/// Threads in a call on one socket at once.
const MOST_CALLS: usize = 64;
const ESTABLISHED: u64 = 1;
/// `EAGAIN` as the kernel returns it.
pub(super) const EAGAIN: i32 = -11;
/// `MSG_PEEK`.
pub(super) const PEEK: u32 = 2;
/// What waits to be accepted for so long is not about to be: then the queue is looked at.
const LOOK_AFTER: Duration = Duration::from_millis(100);
const WRITE_END: Happened = Happened::Reached(Stamp::WriteEnd);

/// A socket in the kernel.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) ends: Ends,
    /// Its number among the flows; none for one that is only watched as the peer of another.
    pub(super) flow: Option<FlowId>,
    pub(super) out: Position,
    pub(super) inward: Position,
    /// End and number of packets of what is sent and not acknowledged.
    pub(super) sent: VecDeque<(u32, u32)>,
    /// When pacing lets the next segment go, as far as the snapshots lag behind.
    pub(super) wstamp: u64,
    /// End of the last small segment, likewise.
    pub(super) small: Option<u32>,
    pub(super) last: Last,
    /// The calls on it that are going on: one thread may wait to read while another one writes.
    pub(super) calls: Vec<CallBegun>,
    /// Up to where reads were told: two threads may wait in one at once.
    pub(super) read_to: Option<u32>,
    /// Up to where writes were told: two threads may write at once.
    pub(super) written_to: Option<u32>,
    /// The thread that read last, or is about to.
    pub(super) reader: Option<u32>,
    /// Whether something waits to be read.
    pub(super) has_unread: bool,
    /// Up to where it was seen to send.
    pub(super) seen_to: Option<u32>,
    /// Up to where segments were seen to come. None unless established: only then each is seen (`tcp_probe`).
    pub(super) heard_to: Option<u32>,
    pub(super) repeats: Repeats,
    /// Up to where it was told to have come.
    pub(super) came_to: u32,
    /// When it was opened from the other end, if nothing was seen of it since.
    pub(super) opened_at: Option<Instant>,
    pub(super) accept: Accept,
    /// It will be accepted, and by whom is told by the first call on it.
    pub(super) is_awaited: bool,
    /// What came until then.
    pub(super) early: Vec<Early>,
    /// What made this end send its last segment.
    pub(super) sent_by: AckSentBy,
    /// What made the peer send the last one that came.
    pub(super) came_by: AckSentBy,
    pub(super) gaps: u64,
    /// Nothing more comes; what has come may be read yet.
    pub(super) is_closed: bool,
    /// Something of what it sent was acknowledged beside the first segment.
    pub(super) is_answered: bool,
    /// Since the last look at who listens, something was sent again before that.
    pub(super) is_unanswered: bool,
}

/// Whether its program has a connection that the other end opened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Accept {
    /// Nothing was seen of that.
    NotSeen,
    /// It waits since then; from when on its queue is to be looked at.
    Waits {
        since: Instant,
        look: Instant,
    },
    Done,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CallBegun {
    pub(super) thread: u32,
    pub(super) is_send: bool,
    pub(super) write_seq: u32,
    pub(super) copied_seq: u32,
}

impl Socket {
    /// As it is met; `gaps` were there before.
    pub(super) fn new(layout: &Layout, record: &Record<'_>, ends: Ends, gaps: u64) -> Self {
        let number = |known| layout.word(record.copies, known);
        // What opened it may have brought data (TCP Fast Open).
        let is_opening = layout.get(record.copies, Known::State) == SYN_RECEIVED;
        Self {
            ends,
            flow: None,
            out: Position::new(number(Known::SndNxt)),
            inward: Position::new(number(Known::CopiedSeq)),
            sent: VecDeque::new(),
            wstamp: 0,
            small: None,
            last: Last::default(),
            calls: Vec::new(),
            read_to: None,
            written_to: None,
            reader: None,
            has_unread: false,
            seen_to: None,
            heard_to: None,
            repeats: Repeats::default(),
            came_to: number(if is_opening { Known::CopiedSeq } else { Known::RcvNxt }),
            opened_at: None,
            accept: Accept::NotSeen,
            is_awaited: false,
            early: Vec::new(),
            sent_by: AckSentBy::NotSeen,
            came_by: AckSentBy::NotSeen,
            gaps,
            is_closed: false,
            is_answered: false,
            is_unanswered: false,
        }
    }

    pub(super) fn take(
        &mut self,
        layout: &Layout,
        record: &Record<'_>,
        timer: Option<Timer>,
        gaps: u64,
        sink: &mut impl Sink,
    ) {
        let get = |known| layout.get(record.copies, known);
        let number = |known| layout.word(record.copies, known);
        let mut now = Snapshot {
            write_seq: number(Known::WriteSeq),
            snd_nxt: number(Known::SndNxt),
            snd_una: number(Known::SndUna),
            snd_wnd: number(Known::SndWnd),
            snd_sml: number(Known::SndSml),
            packets_out: number(Known::PacketsOut),
            rcv_nxt: number(Known::RcvNxt),
            copied_seq: number(Known::CopiedSeq),
            wstamp: get(Known::Wstamp).max(self.wstamp),
        };
        let is_call = record.what.is_of_program() || is_connect(layout, record, self.seen_to.is_none());
        // Anybody may be running when a segment comes.
        let who = is_call.then_some(TaskId(record.thread));
        let is_accepted = record.what == What::Opened && get(Known::State) == SYN_RECEIVED;
        // One path of several is accepted with the first one, which nothing tells of.
        self.is_awaited |= is_accepted && self.flow.is_none() && !record.is_path();
        let mut early = std::mem::take(&mut self.early);
        let mut events = Events::new(Instant::from_nanos(record.ns), who, self.flow, sink);
        events.early = self.is_awaited.then_some(&mut early);
        self.opening(layout, record, &now, &mut events);
        // More has left than was seen to leave: events of this socket were missed.
        let is_syn = record.what == What::Queue && record.segment.is_syn;
        let is_unseen = !is_syn && self.seen_to.is_some_and(|seen| ahead(now.snd_nxt, seen) > 0);
        // Or more has come than was seen to come. A call copies the state without the socket's lock: a segment may come
        // between the begin of its record and the copy, so only what holds the lock is asked.
        let is_established = get(Known::State) == ESTABLISHED;
        let is_asked = is_established && matches!(record.what, What::Queue | What::Receive);
        let is_unheard = is_asked && self.heard_to.is_some_and(|heard| ahead(now.rcv_nxt, heard) > 0);
        // Or more was sent again than was seen to be.
        let remembered = Remembered { out: number(Known::RetransOut), probe: number(Known::TlpHighSeq) };
        let is_repeat_unseen = self.repeats.is_unseen(record.what, remembered);
        if self.gaps != gaps || is_unseen || is_unheard || is_repeat_unseen {
            self.gap(gaps, &mut events);
        }
        // A loss probe that is new data is sent by a timer, too: one whose timer ran at the end of a call is not known
        // by that, and is taken for unseen.
        let is_of_timer = timer.is_some_and(|timer| timer != Timer::DelayedAck);
        let is_probe = is_of_timer && ahead(record.segment.end, now.snd_nxt) > 0;
        self.repeats.remember(record.what, is_probe, remembered);
        let is_sent_again =
            record.what == What::Queue && record.segment.payload > 0 && ahead(record.segment.end, now.snd_nxt) <= 0;
        if is_asked {
            let came = if record.what == What::Receive { record.segment.end } else { now.rcv_nxt };
            let before = self.heard_to.unwrap_or(now.rcv_nxt);
            self.heard_to = Some(later(before, later(now.rcv_nxt, came)));
        } else if !is_established {
            self.heard_to = None;
        }
        if get(Known::State) == SYN_RECEIVED {
            self.came(now.rcv_nxt, &mut events);
        }
        if record.what == What::Receive && self.calls.iter().any(|call| call.is_send) {
            let is_full = number(Known::WriteQueued) >= number(Known::SendBuffer);
            if let Some((state, ns)) = self.last.written(&now, is_full) {
                let at = std::mem::replace(&mut events.at, Instant::from_nanos(ns));
                events.tell(Direction::Forward, Happened::State(state), 0, 0);
                events.at = at;
            }
        }
        if record.what.is_of_program()
            && matches!(std::mem::replace(&mut self.accept, Accept::Done), Accept::Waits { .. })
        {
            events.tell(Direction::Backward, Happened::Accepted, 0, 0);
        }
        match record.what {
            What::Call => self.begin(record, &now, &mut events),
            What::Return => self.end(record, &now, &mut events),
            What::Queue => self.queue(layout, record, timer, &mut now, &mut events),
            What::Receive => {
                let scale = get(Known::SndWscale) as u32;
                // With what came out of order, and has its place by now.
                self.came(end_of_data(now.rcv_nxt, get(Known::State)), &mut events);
                self.receive(&record.segment, scale, get(Known::State), &mut now, &mut events);
            }
            What::Arrived => self.came(end_of_data(now.rcv_nxt, get(Known::State)), &mut events),
            // What came with the peer's FIN was worked in before.
            What::Close => self.came(now.rcv_nxt.wrapping_sub(1), &mut events),
            What::Repeat => {
                events.tell(Direction::Forward, Happened::Reached(Stamp::Repeated), 0, 0);
                self.is_unanswered = !self.is_answered;
            }
            What::Opened => {
                self.opened(&now);
                self.opened_at = is_accepted.then_some(events.at);
                if record.is_path() {
                    events.tell(Direction::Forward, Happened::IsPath, 0, 0);
                } else if is_accepted && matches!(self.accept, Accept::NotSeen) {
                    self.accept = Accept::Waits { since: events.at, look: events.at + LOOK_AFTER };
                    events.tell(Direction::Backward, Happened::Awaits, 0, 0);
                }
            }
            // What is not TCP has another follower.
            What::SocketCall
            | What::SocketReturn
            | What::SocketReady
            | What::PipeCall
            | What::PipeReturn
            | What::Ran
            | What::Polled
            | What::Named
            | What::Accepted
            | What::Started => {}
            What::Written => self.written(record, &now, &mut events),
            What::Taken => self.taken(record, &now, &mut events),
        }
        self.seen_to = Some(now.snd_nxt);
        if is_sent_again {
            // That it is a repeat is told by the next record. Where that one is missing, nobody knows what the time
            // since the record before was.
            self.early = early;
            return;
        }
        let mut state = state(layout, record, &now);
        if record.what == What::Close || get(Known::State) == CLOSED {
            // Whether the peer's FIN has a number among what came does not show any more.
            state.unread_bytes = ahead(self.came_to, now.copied_seq).max(0) as u32;
        }
        self.has_unread = state.unread_bytes > 0;
        self.last.told(&mut state, &now, record.ns);
        events.tell(Direction::Forward, Happened::State(state), 0, 0);
        self.early = early;
    }

    /// Records of it are missing: what is remembered may not be so any more.
    pub(super) fn gap(&mut self, gaps: u64, events: &mut Events<'_, impl Sink>) {
        self.gaps = gaps;
        self.sent.clear();
        self.calls.clear();
        self.small = None;
        self.repeats = Repeats::default();
        events.tell(Direction::Forward, Happened::Gap, 0, 0);
    }

    /// What came with the segment that opened it, of which `tcp_probe` does not tell: accept(2) may wait for that
    /// (`TCP_DEFER_ACCEPT`).
    fn opening(&mut self, layout: &Layout, record: &Record<'_>, now: &Snapshot, events: &mut Events<'_, impl Sink>) {
        let Some(opened) = self.opened_at.take() else { return };
        let end = end_of_data(now.rcv_nxt, layout.get(record.copies, Known::State));
        if ahead(end, self.came_to) > 0 {
            let at = std::mem::replace(&mut events.at, opened);
            self.came(end, events);
            events.tell(Direction::Forward, Happened::State(state(layout, record, now)), 0, 0);
            events.at = at;
        }
    }

    fn begin(&mut self, record: &Record<'_>, now: &Snapshot, events: &mut Events<'_, impl Sink>) {
        let is_send = is_send(record.number);
        let call = CallBegun { thread: record.thread, is_send, write_seq: now.write_seq, copied_seq: now.copied_seq };
        // A thread makes one call at a time: the end of an older one was not seen.
        self.take_call(record.thread);
        // Of more the one that began first may have ended in its call.
        if self.calls.len() >= MOST_CALLS {
            self.calls.remove(0);
        }
        self.calls.push(call);
        if is_send {
            let from = self.out.of(now.write_seq);
            events.tell(Direction::Forward, Happened::Reached(Stamp::WriteBegin), from, from);
        } else {
            self.reader = Some(record.thread);
            let begin = Call::Begin { number: record.number as u16 };
            events.tell(Direction::Backward, Happened::Call(begin), 0, 0);
        }
    }

    fn take_call(&mut self, thread: u32) -> Option<CallBegun> {
        let at = self.calls.iter().position(|call| call.thread == thread)?;
        Some(self.calls.remove(at))
    }

    fn end(&mut self, record: &Record<'_>, now: &Snapshot, events: &mut Events<'_, impl Sink>) {
        let begun = self.take_call(record.thread);
        let result = i32::try_from(record.result).unwrap_or(i32::MAX);
        let end = Happened::Call(Call::End { number: record.number as u16, result });
        if is_send(record.number) {
            // What was written during a call that failed is another thread's.
            let written = begun.filter(|_| result > 0).map(|call| self.has_written(record, call, now.write_seq));
            match written {
                Some((to, bytes @ 1..)) => {
                    let to = self.out.of(to);
                    events.tell(Direction::Forward, WRITE_END, to.saturating_sub(bytes.into()), to);
                }
                _ => events.tell(Direction::Forward, end, 0, 0),
            }
            return;
        }
        if let Some(call) = begun.filter(|_| result > 0) {
            self.has_read(record, call, now.copied_seq, events);
        }
        events.tell(Direction::Backward, end, 0, 0);
    }

    /// Where what a call has written ends, and how much it is: of what was written up to `to` meanwhile, maybe by other
    /// threads as well. Their bytes are told one after the other, as the calls come back, which need not be the order
    /// of the stream.
    fn has_written(&mut self, record: &Record<'_>, call: CallBegun, to: u32) -> (u32, u32) {
        let of_others = self.written_to.filter(|written| ahead(*written, call.write_seq) > 0);
        let from = of_others.filter(|written| ahead(to, *written) > 0).unwrap_or(call.write_seq);
        let all = ahead(to, from).max(0) as u32;
        // What one thread alone has written is all its own, also where that is more than it handed over (kTLS).
        let is_alone = of_others.is_none() && !self.calls.iter().any(|other| other.is_send);
        // Of sendmmsg(2) the result is no number of bytes.
        let counts_bytes = i64::from(record.number) != libc::SYS_sendmmsg;
        let bytes = if is_alone || !counts_bytes { all } else { all.min(record.result.unsigned_abs() as u32) };
        let end = from.wrapping_add(bytes);
        self.written_to = Some(end);
        (end, bytes)
    }

    /// What a call has read of what was read up to `to` meanwhile, maybe by another thread as well.
    fn has_read(&mut self, record: &Record<'_>, call: CallBegun, to: u32, events: &mut Events<'_, impl Sink>) {
        let is_since = |read: u32| ahead(read, call.copied_seq) > 0 && ahead(to, read) >= 0;
        let from = self.read_to.filter(|read| is_since(*read)).unwrap_or(call.copied_seq);
        let all = ahead(to, from).max(0) as u32;
        // The peer's FIN counts as read with the last bytes. Of recvmmsg(2) the result is no number of bytes.
        let counts_bytes = i64::from(record.number) != libc::SYS_recvmmsg;
        let bytes = if counts_bytes { all.min(record.result.unsigned_abs() as u32) } else { all };
        if bytes == 0 {
            return;
        }
        let end = from.wrapping_add(bytes);
        self.read_to = Some(end);
        // What came out of order is told when what was missing has come.
        let heard = self.heard_to.map_or(self.came_to, |heard| later(heard, self.came_to));
        if ahead(end, heard) > 0 {
            // Nobody has told that it came.
            self.came_to = end;
            events.tell(Direction::Forward, Happened::Gap, 0, 0);
        } else {
            self.came(end, events);
        }
        let to = self.inward.of(end);
        events.tell(Direction::Backward, Happened::Reached(Stamp::Read), to.saturating_sub(bytes.into()), to);
    }

    /// The first segment is acknowledged, and what the peer counts from is known only now.
    fn opened(&mut self, now: &Snapshot) {
        self.sent.retain(|(end, _)| ahead(*end, now.snd_una) > 0);
        self.inward = Position::new(now.copied_seq);
        self.came_to = now.rcv_nxt;
    }

    /// A write without a call of its own: it begins and ends at once.
    fn written(&mut self, record: &Record<'_>, now: &Snapshot, events: &mut Events<'_, impl Sink>) {
        let result = record.short_result();
        let to = self.out.of(now.write_seq);
        let from = to.saturating_sub(u64::try_from(result).unwrap_or(0));
        events.tell(Direction::Forward, Happened::Reached(Stamp::WriteBegin), from, from);
        let is_refused = result <= 0;
        let end = if is_refused { Happened::Call(Call::End { number: 0, result }) } else { WRITE_END };
        events.tell(Direction::Forward, end, from, to);
    }

    /// The same of a read. One that finds nothing stays until something comes.
    fn taken(&mut self, record: &Record<'_>, now: &Snapshot, events: &mut Events<'_, impl Sink>) {
        let result = record.short_result();
        if record.number & PEEK != 0 {
            return;
        }
        if result == EAGAIN {
            events.tell(Direction::Backward, Happened::Call(Call::Begin { number: 0 }), 0, 0);
            return;
        }
        if let Ok(read @ 1..) = u64::try_from(result) {
            let to = self.inward.of(now.copied_seq);
            events.tell(Direction::Backward, Happened::Reached(Stamp::Read), to.saturating_sub(read), to);
        }
        events.tell(Direction::Backward, Happened::Call(Call::End { number: 0, result }), 0, 0);
    }

    fn queue(
        &mut self,
        layout: &Layout,
        record: &Record<'_>,
        timer: Option<Timer>,
        now: &mut Snapshot,
        events: &mut Events<'_, impl Sink>,
    ) {
        let is_answer = record.receiving == record.socket;
        self.sent_by = match timer {
            Some(Timer::DelayedAck) => AckSentBy::DelayedAckTimer,
            _ if is_answer => AckSentBy::Arrival,
            _ => AckSentBy::Program,
        };
        let segment = &record.segment;
        let new = ahead(segment.end, now.snd_nxt);
        if new <= 0 {
            return;
        }
        let release = match timer {
            Some(timer) => Release::Timer(timer),
            None if is_answer => Release::Acknowledgement(self.came_by),
            None if self.calls.iter().any(|call| call.thread == record.thread) => Release::Call,
            None => Release::Unknown,
        };
        let mss = layout.word(record.copies, Known::MssCache).max(1);
        let packets = segment.payload.div_ceil(mss).max(1);
        let rate = layout.get(record.copies, Known::PacingRate);
        if layout.get(record.copies, Known::PacingStatus) == PACING_NEEDED && rate > 0 {
            // `tcp_update_skb_after_send`, net/ipv4/tcp_output.c.
            let takes = u128::from(segment.payload) * 1_000_000_000 / u128::from(rate);
            now.wstamp = now.wstamp.max(record.ns).saturating_add(u64::try_from(takes).unwrap_or(u64::MAX));
            self.wstamp = now.wstamp;
        }
        if segment.payload > 0 && !segment.payload.is_multiple_of(mss) {
            now.snd_sml = segment.end;
            self.small = Some(segment.end);
        }
        if self.sent.len() < MOST_SENT {
            self.sent.push_back((segment.end, packets));
        }
        let first = segment.seq.wrapping_add(u32::from(segment.is_syn));
        if segment.is_syn {
            // A call may bring it about that has data for it.
            let early = self.calls.iter_mut().filter(|call| call.write_seq == segment.seq);
            early.for_each(|call| call.write_seq = first);
        }
        let from = self.out.of(if segment.is_syn { first } else { now.snd_nxt });
        now.snd_nxt = segment.end;
        now.packets_out = now.packets_out.saturating_add(packets);
        // SYN and FIN have a number and are no data.
        let to = self.out.of(first.wrapping_add(segment.payload));
        if segment.payload > 0 && to > from {
            events.tell(Direction::Forward, Happened::Released(release), from, to);
            events.tell(Direction::Forward, Happened::Reached(Stamp::Scheduled), from, to);
        }
    }

    fn receive(
        &mut self,
        segment: &Segment,
        scale: u32,
        state: u64,
        now: &mut Snapshot,
        events: &mut Events<'_, impl Sink>,
    ) {
        while self.sent.front().is_some_and(|(end, _)| ahead(*end, segment.ack) <= 0) {
            self.sent.pop_front();
        }
        if ahead(segment.ack, now.snd_una) >= 0 && ahead(segment.ack, now.snd_nxt) <= 0 {
            let from = self.out.of(now.snd_una);
            let to = self.out.of(segment.ack);
            now.snd_una = segment.ack;
            now.snd_wnd = u32::from(segment.window) << scale.min(14);
            let known = self.sent.iter().fold(0_u32, |sum, (_, packets)| sum.saturating_add(*packets));
            let is_complete = self.sent.back().is_some_and(|(end, _)| *end == now.snd_nxt);
            now.packets_out = match now.snd_nxt == now.snd_una {
                true => 0,
                false if is_complete => known,
                false => now.packets_out,
            };
            if to > from {
                self.is_answered = true;
                events.tell(Direction::Forward, Happened::Reached(Stamp::Acknowledged), from, to);
            }
        }
        let new = ahead(segment.end, now.rcv_nxt);
        let is_open = !AFTER_FIN.contains(&state);
        if segment.payload > 0 && new > 0 && ahead(segment.seq, now.rcv_nxt) <= 0 && is_open {
            let end = if segment.is_fin { segment.end.wrapping_sub(1) } else { segment.end };
            now.rcv_nxt = end;
            self.came(end, events);
        }
    }

    /// All up to there has come by now.
    fn came(&mut self, end: u32, events: &mut Events<'_, impl Sink>) {
        if ahead(end, self.came_to) <= 0 {
            return;
        }
        let (from, to) = (self.inward.of(self.came_to), self.inward.of(end));
        self.came_to = end;
        events.tell(Direction::Backward, Happened::Reached(Stamp::Received), from, to);
    }
}

/// Where what came ends: the peer's FIN has a number and is no data.
fn end_of_data(end: u32, state: u64) -> u32 {
    if state == CLOSED || AFTER_FIN.contains(&state) { end.wrapping_sub(1) } else { end }
}

/// Whether a segment is the first one of a connection, which the thread sends that calls connect(2).
pub(super) fn is_connect(layout: &Layout, record: &Record<'_>, is_first: bool) -> bool {
    is_first && record.what == What::Queue && layout.get(record.copies, Known::State) == SYN_SENT
}
