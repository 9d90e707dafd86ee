//! From records to events, socket by socket.
//!
//! The tracepoints stand *before* the change that they tell of: `tcp_probe` before the acknowledgement is worked in,
//! `net_dev_queue` before the segment counts as sent. Each snapshot is brought to what it is just after, else half of
//! a wait for the receive window reads as "about to go".

use std::collections::{HashMap, HashSet, VecDeque};

use taut_event::{
    AckSentBy, Call, Closed, Coverage, Direction, Flow, FlowId, FlowKey, Kind, Release, Sink, Stamp, Task, TaskId,
    Timer, What as Happened,
};
use taut_time::Instant;

use super::layout::{Known, Layout, Others as OtherLayouts};
use super::other::Others;
use super::readers::Readers;
use super::record::{Copied, Record, Segment, What};
use super::snapshot::{AFTER_FIN, PACING_NEEDED, Position, SYN_RECEIVED, SYN_SENT, Snapshot, ahead, later, state};
use super::told::{Early, Ends, Events, FlowIds, address, ends, is_send};

/// Segments that are remembered as sent and not acknowledged; with more the count is the kernel's own.
const MOST_SENT: usize = 4096;
/// Threads in a call on one socket at once.
const MOST_CALLS: usize = 64;
const ESTABLISHED: u64 = 1;
const CLOSED: u64 = 7;
/// `EAGAIN` as the kernel returns it.
const EAGAIN: i32 = -11;
/// `MSG_PEEK`.
const PEEK: u32 = 2;
const WRITE_END: Happened = Happened::Reached(Stamp::WriteEnd);

/// Turns records into events.
#[derive(Debug)]
pub(super) struct Follower {
    sockets: HashMap<u64, Socket>,
    by_ends: HashMap<Ends, u64>,
    /// Connections of the traced programs that were there before; with all set every socket is a traced one.
    wanted: HashSet<Ends>,
    takes_all: bool,
    /// Whether waits for a processor are seen.
    sees_readers: bool,
    readers: Readers,
    /// Threads that waited for one of several descriptors.
    pollers: HashSet<u32>,
    timers: HashMap<u64, Timer>,
    ids: FlowIds,
    /// What is not TCP.
    pub(super) others: Others,
    lost: u64,
    /// How often records were found to be lost.
    gaps: u64,
    /// Whether something of what is being read was left out, nobody knows where.
    pub(super) is_doubtful: bool,
    /// Whether the record before was such a one.
    was_doubtful: bool,
    /// Process of each thread that made a call.
    pub(super) threads: HashMap<u32, u32>,
    /// Processes that were not there when it was last asked for these.
    pub(super) new_processes: Vec<u32>,
    pub(super) records: u64,
}

/// A socket in the kernel.
#[derive(Debug)]
struct Socket {
    ends: Ends,
    /// Its number among the flows; none for one that is only watched as the peer of another.
    flow: Option<FlowId>,
    out: Position,
    inward: Position,
    /// End and number of packets of what is sent and not acknowledged.
    sent: VecDeque<(u32, u32)>,
    /// When pacing lets the next segment go, as far as the snapshots lag behind.
    wstamp: u64,
    /// End of the last small segment, likewise.
    small: Option<u32>,
    /// The calls on it that are going on: one thread may wait to read while another one writes.
    calls: Vec<CallBegun>,
    /// Up to where reads were told: two threads may wait in one at once.
    read_to: Option<u32>,
    /// The thread that read last, or is about to.
    reader: Option<u32>,
    /// Whether something waits to be read.
    has_unread: bool,
    /// Up to where it was seen to send.
    seen_to: Option<u32>,
    /// Up to where segments were seen to come. None unless established: only then each is seen (`tcp_probe`).
    heard_to: Option<u32>,
    /// Up to where it was told to have come.
    came_to: u32,
    /// When it was opened from the other end, if nothing was seen of it since.
    opened_at: Option<Instant>,
    /// It will be accepted, and by whom is told by the first call on it.
    is_awaited: bool,
    /// What came until then.
    early: Vec<Early>,
    /// What made this end send its last segment.
    sent_by: AckSentBy,
    /// What made the peer send the last one that came.
    came_by: AckSentBy,
    gaps: u64,
    /// Nothing more comes; what has come may be read yet.
    is_closed: bool,
    /// Something of what it sent was acknowledged beside the first segment.
    is_answered: bool,
    /// Since the last look at who listens, something was sent again before that.
    is_unanswered: bool,
}

#[derive(Clone, Copy, Debug)]
struct CallBegun {
    thread: u32,
    write_seq: u32,
    copied_seq: u32,
}

impl Follower {
    pub(super) fn new(takes_all: bool, sees_readers: bool, timers: HashMap<u64, Timer>) -> Self {
        Self {
            sees_readers,
            readers: Readers::default(),
            pollers: HashSet::new(),
            sockets: HashMap::new(),
            by_ends: HashMap::new(),
            wanted: HashSet::new(),
            takes_all,
            timers,
            ids: FlowIds::default(),
            others: Others::new(sees_readers),
            lost: 0,
            gaps: 0,
            is_doubtful: false,
            was_doubtful: false,
            threads: HashMap::new(),
            new_processes: Vec::new(),
            records: 0,
        }
    }

    /// Sockets that were met and not closed, and calls on them that are going on.
    pub(super) fn counts(&self) -> (usize, usize) {
        let calls: usize = self.sockets.values().map(|socket| socket.calls.len()).sum();
        (self.sockets.len(), calls + self.others.calls() + self.pollers.len())
    }

    /// Forgets the threads that waited for one of several descriptors and are not there any more.
    pub(super) fn keep_pollers(&mut self, is_there: impl Fn(u32) -> bool) {
        self.pollers.retain(|thread| is_there(*thread));
    }

    /// A connection of a traced program, of which no call may be seen.
    pub(super) fn want(&mut self, ends: Ends) {
        self.wanted.insert(ends);
    }

    /// Nothing more is read, `lost` records in all found no room, and it is `at`. A connection of which
    /// nothing was read since some were lost may have been in another state ever since.
    pub(super) fn end(&mut self, lost: u64, at: Instant, sink: &mut impl Sink) {
        if lost > self.lost || self.is_doubtful || self.was_doubtful {
            self.lost = lost;
            self.gaps += 1;
        }
        for socket in self.sockets.values_mut().filter(|socket| socket.gaps != self.gaps) {
            socket.gaps = self.gaps;
            Events::new(at, None, socket.flow, sink).tell(Direction::Forward, Happened::Gap, 0, 0);
        }
        self.others.end(self.gaps, at, sink);
        // What was left in them may never be read: that a program closes these is not seen.
        let closed: Vec<u64> =
            self.sockets.iter().filter(|(_, socket)| socket.is_closed).map(|(address, _)| *address).collect();
        closed.into_iter().for_each(|address| self.forget(address, sink));
    }

    /// The connections whose first segment, or first data, was sent again since the last time.
    pub(super) fn unanswered(&mut self) -> Vec<(FlowId, Ends)> {
        let asked = |socket: &mut Socket| std::mem::take(&mut socket.is_unanswered);
        let sockets = self.sockets.values_mut().filter_map(|socket| asked(socket).then_some(socket));
        sockets.filter_map(|socket| Some((socket.flow?, socket.ends))).collect()
    }

    /// Takes the bytes of one record.
    pub(super) fn take(&mut self, layout: &Layout, others: Option<&OtherLayouts>, bytes: &[u8], sink: &mut impl Sink) {
        let Some(record) = Record::parse(bytes) else { return };
        self.records += 1;
        // What was left out may have come after the last record of that look.
        let was_doubtful = std::mem::replace(&mut self.was_doubtful, self.is_doubtful);
        if record.lost > self.lost || self.is_doubtful || was_doubtful {
            self.lost = record.lost;
            self.gaps += 1;
        }
        match record.what {
            What::Ran => return self.ran(&record, sink),
            What::Polled => return self.polled(&record, sink),
            _ => {}
        }
        let is_call = record.what.is_of_program();
        if record.what.copied() != Copied::Tcp {
            let Some(layouts) = others else { return };
            if is_call {
                self.meet_thread(&record);
            }
            let before = self.others.last_reader(record.socket);
            self.others.take(layouts, &record, self.gaps, &mut self.ids, sink);
            self.passed_on(before, self.others.last_reader(record.socket));
            self.readers.set(record.socket, self.others.reader(record.socket));
            return;
        }
        let Some(ends) = ends(layout, record.copies) else { return };
        let known = self.sockets.get(&record.socket);
        // One that is closed gives its port back, and there may be something in it to read.
        let ends =
            known.filter(|known| known.is_closed && is_left_of(ends, known.ends)).map_or(ends, |known| known.ends);
        // An address of the kernel is used again; then the ends are others.
        if known.is_some_and(|known| known.ends != ends && !known.ends.1.ip().is_unspecified())
            && record.what != What::Close
        {
            self.forget(record.socket, sink);
        }
        // Only a traced program's own are seen while they open.
        let is_opening = layout.get(record.copies, Known::State) == SYN_SENT;
        let is_traced = is_call || is_opening || self.takes_all || self.wanted.contains(&ends);
        self.meet(layout, &record, ends, is_traced, sink);
        let is_first = self.sockets.get(&record.socket).is_some_and(|socket| socket.seen_to.is_none());
        if is_call || is_connect(layout, &record, is_first) {
            self.meet_thread(&record);
        }
        if record.what == What::Receive {
            let sent_by = self.by_ends.get(&(ends.1, ends.0)).and_then(|peer| self.sockets.get(peer));
            let came_by = sent_by.map_or(AckSentBy::NotSeen, |peer| peer.sent_by);
            if let Some(socket) = self.sockets.get_mut(&record.socket) {
                socket.came_by = came_by;
            }
        }
        let timer = (record.timer != 0).then(|| self.timers.get(&record.timer).copied().unwrap_or(Timer::Other));
        let gaps = self.gaps;
        if let Some(socket) = self.sockets.get_mut(&record.socket) {
            let before = socket.reader;
            socket.take(layout, &record, timer, gaps, sink);
            let (reader, has_unread) = (socket.reader, socket.has_unread);
            self.passed_on(before, reader);
            self.readers.set(record.socket, reader.filter(|_| has_unread));
        }
        let Some(socket) = self.sockets.get_mut(&record.socket) else { return };
        socket.is_closed |= record.what == What::Close;
        // What has come is still to be read.
        if socket.is_closed && !(socket.has_unread && socket.flow.is_some()) {
            self.forget(record.socket, sink);
        }
    }

    /// A thread has waited for a processor: what it is to read has, and what woke it up.
    fn ran(&self, record: &Record<'_>, sink: &mut impl Sink) {
        let thread = record.thread;
        let woken_by = Some(record.socket).filter(|by| self.readers.waits_for(thread).all(|socket| socket != *by));
        for socket in self.readers.waits_for(thread).chain(woken_by) {
            self.tell_reader(socket, record, Task::Ran { waited_ns: record.result.unsigned_abs() }, sink);
        }
    }

    /// A thread has learned that it can read from sockets, or has waited in vain.
    fn polled(&mut self, record: &Record<'_>, sink: &mut impl Sink) {
        self.pollers.insert(record.thread);
        let waited_ns = record.ns.saturating_sub(record.socket);
        for socket in self.readers.told(record.thread, record.process, &self.threads) {
            let is_ready = record.result > 0;
            let task = if is_ready { Task::Polled { waited_ns } } else { Task::TimedOut { waited_ns } };
            self.tell_reader(socket, record, task, sink);
        }
    }

    fn tell_reader(&self, socket: u64, record: &Record<'_>, task: Task, sink: &mut impl Sink) {
        let flow = self.sockets.get(&socket).map_or_else(|| self.others.flow(socket), |socket| socket.flow);
        let (at, who) = (Instant::from_nanos(record.ns), Some(TaskId(record.thread)));
        Events::new(at, who, flow, sink).tell(Direction::Backward, Happened::Task(task), 0, 0);
    }

    /// The last reader of a socket may be another one now.
    fn passed_on(&mut self, before: Option<u32>, now: Option<u32>) {
        let (Some(before), Some(now)) = (before, now) else { return };
        let process = self.threads.get(&now);
        if let Some(&process) = process.filter(|process| before != now && self.threads.get(&before) == Some(process)) {
            self.readers.share(process);
        }
    }

    fn meet_thread(&mut self, record: &Record<'_>) {
        if self.threads.insert(record.thread, record.process) != Some(record.process) {
            self.new_processes.push(record.process);
        }
    }

    fn meet(&mut self, layout: &Layout, record: &Record<'_>, ends: Ends, is_traced: bool, sink: &mut impl Sink) {
        let number = |known| layout.word(record.copies, known);
        let gaps = self.gaps;
        let socket = self.sockets.entry(record.socket).or_insert_with(|| Socket {
            ends,
            flow: None,
            out: Position::new(number(Known::SndNxt)),
            inward: Position::new(number(Known::CopiedSeq)),
            sent: VecDeque::new(),
            wstamp: 0,
            small: None,
            calls: Vec::new(),
            read_to: None,
            reader: None,
            has_unread: false,
            seen_to: None,
            heard_to: None,
            came_to: number(Known::RcvNxt),
            opened_at: None,
            is_awaited: false,
            early: Vec::new(),
            sent_by: AckSentBy::NotSeen,
            came_by: AckSentBy::NotSeen,
            gaps,
            is_closed: false,
            is_answered: false,
            is_unanswered: false,
        });
        socket.ends = ends;
        self.by_ends.insert(ends, record.socket);
        // A call on what is over, or on what was never connected, is no connection.
        let is_over = record.what == What::Close || layout.get(record.copies, Known::State) == CLOSED;
        if is_traced && socket.flow.is_none() && !is_over {
            let id = self.ids.take();
            socket.flow = Some(id);
            let coverage = Coverage::of(&[Kind::Writes, Kind::Reads, Kind::KernelStamps, Kind::Queues, Kind::Releases]);
            let coverage = if self.sees_readers { coverage.and(Coverage::of(&[Kind::Tasks])) } else { coverage };
            let key = FlowKey::Tcp(address(ends.0), address(ends.1));
            sink.flow(id, &Flow { key, from_start: false, coverage });
            socket.is_awaited = false;
            let early = std::mem::take(&mut socket.early);
            Events::new(Instant::from_nanos(record.ns), None, Some(id), sink).tell_early(early);
        }
    }

    fn forget(&mut self, address: u64, sink: &mut impl Sink) {
        let Some(socket) = self.sockets.remove(&address) else { return };
        self.readers.set(address, None);
        if self.by_ends.get(&socket.ends) == Some(&address) {
            self.by_ends.remove(&socket.ends);
        }
        if let Some(id) = socket.flow {
            sink.close(id, Closed::Ended);
            self.ids.give_back(id);
        }
    }
}

impl Socket {
    fn take(&mut self, layout: &Layout, record: &Record<'_>, timer: Option<Timer>, gaps: u64, sink: &mut impl Sink) {
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
        let mut early = std::mem::take(&mut self.early);
        let mut events = Events::new(Instant::from_nanos(record.ns), who, self.flow, sink);
        events.early = self.is_awaited.then_some(&mut early);
        self.opening(layout, record, &now, &mut events);
        // More has left than was seen to leave: events of this socket were missed.
        let is_unseen = self.seen_to.is_some_and(|seen| ahead(now.snd_nxt, seen) > 0);
        // Or more has come than was seen to come. A call copies the state without the socket's lock: a segment may come
        // between the begin of its record and the copy, so only what holds the lock is asked.
        let is_established = get(Known::State) == ESTABLISHED;
        let is_asked = is_established && matches!(record.what, What::Queue | What::Receive);
        let is_unheard = is_asked && self.heard_to.is_some_and(|heard| ahead(now.rcv_nxt, heard) > 0);
        if self.gaps != gaps || is_unseen || is_unheard {
            self.gaps = gaps;
            self.sent.clear();
            self.calls.clear();
            self.small = None;
            events.tell(Direction::Forward, Happened::Gap, 0, 0);
        }
        if is_asked {
            let came = if record.what == What::Receive { record.segment.end } else { now.rcv_nxt };
            let before = self.heard_to.unwrap_or(now.rcv_nxt);
            self.heard_to = Some(later(before, later(now.rcv_nxt, came)));
        } else if !is_established {
            self.heard_to = None;
        }
        match record.what {
            What::Call => self.begin(record, &now, &mut events),
            What::Return => self.end(record, &now, &mut events),
            What::Queue => self.queue(layout, record, timer, &mut now, &mut events),
            What::Receive => {
                let scale = get(Known::SndWscale) as u32;
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
                let is_accepted = get(Known::State) == SYN_RECEIVED;
                self.opened_at = is_accepted.then_some(events.at);
                self.is_awaited = is_accepted && self.flow.is_none();
            }
            // What is not TCP has another follower.
            What::SocketCall
            | What::SocketReturn
            | What::SocketReady
            | What::PipeCall
            | What::PipeReturn
            | What::Ran
            | What::Polled => {}
            What::Written => self.written(record, &now, &mut events),
            What::Taken => self.taken(record, &now, &mut events),
        }
        self.seen_to = Some(now.snd_nxt);
        let state = state(layout, record, &now);
        self.has_unread = state.unread_bytes > 0;
        events.tell(Direction::Forward, Happened::State(state), 0, 0);
        self.early = early;
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
        let call = CallBegun { thread: record.thread, write_seq: now.write_seq, copied_seq: now.copied_seq };
        // A thread makes one call at a time: the end of an older one was not seen.
        self.take_call(record.thread);
        if self.calls.len() < MOST_CALLS {
            self.calls.push(call);
        }
        if is_send(record.number) {
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
        Some(self.calls.swap_remove(at))
    }

    fn end(&mut self, record: &Record<'_>, now: &Snapshot, events: &mut Events<'_, impl Sink>) {
        let begun = self.take_call(record.thread);
        let result = i32::try_from(record.result).unwrap_or(i32::MAX);
        let end = Happened::Call(Call::End { number: record.number as u16, result });
        if is_send(record.number) {
            let written = begun.map_or(0, |call| ahead(now.write_seq, call.write_seq).max(0) as u64);
            let to = self.out.of(now.write_seq);
            if written > 0 {
                let what = Happened::Reached(Stamp::WriteEnd);
                events.tell(Direction::Forward, what, to.saturating_sub(written), to);
            } else {
                events.tell(Direction::Forward, end, 0, 0);
            }
            return;
        }
        let from = |call: CallBegun| self.read_to.map_or(call.copied_seq, |to| later(call.copied_seq, to));
        let read = begun.map_or(0, |call| ahead(now.copied_seq, from(call)).max(0) as u64);
        if read > 0 {
            self.read_to = Some(now.copied_seq);
            // It was read, and nobody has told that it came. The peer's FIN may count as one.
            if ahead(now.copied_seq, self.came_to) > 1 {
                self.came_to = now.copied_seq;
                events.tell(Direction::Forward, Happened::Gap, 0, 0);
            }
            let to = self.inward.of(now.copied_seq);
            events.tell(Direction::Backward, Happened::Reached(Stamp::Read), to.saturating_sub(read), to);
        }
        events.tell(Direction::Backward, end, 0, 0);
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
        let from = self.out.of(now.snd_nxt);
        now.snd_nxt = segment.end;
        now.packets_out = now.packets_out.saturating_add(packets);
        // SYN and FIN have a number and are no data.
        let to = self.out.of(segment.seq.wrapping_add(segment.payload));
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
            self.came_to = now.rcv_nxt;
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

/// Whether a socket with these ends may be the one that had the others before it was closed.
fn is_left_of(ends: Ends, before: Ends) -> bool {
    ends.0.port() == 0 && ends.0.ip() == before.0.ip() && ends.1 == before.1
}

/// Where what came ends: the peer's FIN has a number and is no data.
fn end_of_data(end: u32, state: u64) -> u32 {
    if state == CLOSED || AFTER_FIN.contains(&state) { end.wrapping_sub(1) } else { end }
}

/// Whether a segment is the first one of a connection, which the thread sends that calls connect(2).
fn is_connect(layout: &Layout, record: &Record<'_>, is_first: bool) -> bool {
    is_first && record.what == What::Queue && layout.get(record.copies, Known::State) == SYN_SENT
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
