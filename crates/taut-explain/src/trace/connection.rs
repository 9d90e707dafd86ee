use std::collections::{BTreeSet, VecDeque};

use taut_event::{
    AckSentBy, Call, ChannelEnd, Direction as Way, Event, Flow, FlowKey, Holder, Listening, LocalKind, Release,
    SocketState, Stamp, Task, Timer, What,
};

use super::readiness::Readiness;
use crate::engine::{Breakdown, Episode};
use crate::socket::holder;
use crate::tcp::sample::Sample;

/// Writes that wait for their last byte to leave; of more the earliest are not followed.
const MOST_WAITING: usize = 4096;
/// Room for so many is not given back.
const FEW_WAITING: usize = 32;
/// Kinds of system calls that are told by name.
const MOST_CALLS: usize = 8;
/// A write that takes longer, into what was full meanwhile, has waited for room.
const ROOM_NS: u64 = 100_000;
/// `EAGAIN` as a system call returns it.
const EAGAIN: i32 = -11;

/// One connection of a traced program, in bounded memory.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) flow: Flow,
    /// What this end sends, and what it has received: each nanosecond to one holder.
    breakdowns: [Breakdown; 2],
    /// What each of them is not told yet: the next part may continue it.
    open: [Option<(Holder, Episode)>; 2],
    pub(super) tally: Tally,
    /// The thread that used it last.
    pub(super) who: Option<u32>,
    pub(super) first: Option<u64>,
    last: u64,
    /// State after the last event; `None` when it is not known.
    pub(super) state: Option<SocketState>,
    /// Nothing is to be sent since then; whose turn it is, what comes next tells.
    idle_from: Option<u64>,
    /// Something has waited to be read since then; whether its reader had no processor, what comes next tells.
    unread_from: Option<u64>,
    /// A write is going on, or the last one was refused for lack of room.
    is_writing: bool,
    is_reading: bool,
    /// The last write was refused for lack of room, of a socket that is known by its calls alone.
    is_refused: bool,
    /// The channel of Bluetooth that it is an end of.
    pub(super) end: Option<ChannelEnd>,
    /// Nothing was to be sent when it was first seen: all that was written since is counted.
    pub(super) is_from_start: bool,
    waiting: VecDeque<Waiting>,
    /// Where the first byte that has not left stands.
    left_to: u64,
    release: Option<Release>,
    /// How what came was read.
    pub(super) readiness: Readiness,
}

/// A write whose call came back before all of it had left.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    end: u64,
    returned: u64,
}

/// What a connection did, counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) writes: u64,
    /// Writes that were still in the socket when the call came back; how long they stayed after that.
    pub(super) held: Sample,
    /// Writes of which it is not known when they left: too many waited at once.
    pub(super) not_followed: u64,
    /// Reads that got something.
    pub(super) reads: u64,
    /// Writes that waited for room, of a socket that is known by its calls alone.
    pub(super) waited: u64,
    /// Writes that the kernel took nothing of, for lack of room.
    pub(super) refused: u64,
    /// Of them, those for which the send buffer had room: Linux refuses as well while a channel has no credits.
    pub(super) refused_with_room: u64,
    /// Numbers of the system calls that write, of a socket of Bluetooth.
    pub(super) writing_calls: BTreeSet<u16>,
    pub(super) repeated: u64,
    /// Of them, the first segment of a connection that was not open.
    pub(super) repeated_openings: u64,
    /// The listening socket of this host that is to accept it, as it was when fullest.
    pub(super) listening: Option<Listening>,
    /// What let the writes go that had been held.
    pub(super) by_call: u64,
    pub(super) by_ack: [u64; 4],
    pub(super) by_write_timer: u64,
    pub(super) by_pacing: u64,
    pub(super) by_other: u64,
    /// Times that records were lost.
    pub(super) gaps: u64,
    /// States that were seen without `TCP_CORK`, and with it.
    pub(super) corked: [u64; 2],
    pub(super) largest_window: u32,
    pub(super) least_window: Option<u32>,
    /// The last state in which each holder stood that is told with its state.
    pub(super) evidence: Vec<(Holder, SocketState)>,
}

impl Tally {
    /// A call of this number writes.
    fn writes_by(&mut self, number: u16) {
        if self.writing_calls.len() < MOST_CALLS {
            self.writing_calls.insert(number);
        }
    }

    fn listens(&mut self, now: Listening) {
        let fuller = |known: Listening| if known.is_full() && !now.is_full() { known } else { now };
        self.listening = Some(self.listening.map_or(now, fuller));
    }

    fn released(&mut self, release: Option<Release>) {
        match release {
            Some(Release::Call) => self.by_call += 1,
            Some(Release::Acknowledgement(by)) => self.by_ack[ack_index(by)] += 1,
            Some(Release::Timer(Timer::Write)) => self.by_write_timer += 1,
            Some(Release::Timer(Timer::Pacing)) => self.by_pacing += 1,
            Some(Release::Timer(_) | Release::Unknown) | None => self.by_other += 1,
        }
    }
}

pub(super) const fn ack_index(by: AckSentBy) -> usize {
    match by {
        AckSentBy::DelayedAckTimer => 0,
        AckSentBy::Arrival => 1,
        AckSentBy::Program => 2,
        AckSentBy::NotSeen => 3,
    }
}

impl Connection {
    pub(super) fn new(flow: Flow) -> Self {
        Self {
            flow,
            breakdowns: [Breakdown::default(), Breakdown::default()],
            open: [None; 2],
            tally: Tally::default(),
            who: None,
            first: None,
            last: 0,
            state: None,
            idle_from: None,
            unread_from: None,
            is_writing: false,
            is_reading: false,
            is_refused: false,
            end: None,
            is_from_start: false,
            waiting: VecDeque::new(),
            left_to: 0,
            release: None,
            readiness: Readiness::default(),
        }
    }

    /// From now on it keeps so many stretches of each direction for a picture.
    pub(super) fn keep_trails(&mut self, limit: usize) {
        self.breakdowns.iter_mut().for_each(|breakdown| breakdown.keep_trail(limit));
    }

    pub(super) const fn breakdown(&self, way: Way) -> &Breakdown {
        &self.breakdowns[way as usize]
    }

    /// Writes that wait for their last byte to leave.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    #[cfg(test)]
    pub(super) fn room_to_wait(&self) -> usize {
        self.waiting.capacity()
    }

    /// Another write may wait if there `is_room` for it beside those of all connections.
    pub(super) fn event(&mut self, event: &Event, is_room: bool) {
        let at = event.at.as_nanos().max(self.last);
        match event.what {
            What::Gap => return self.gap(at),
            What::IsEnd(end) => {
                self.end = Some(end);
                return;
            }
            _ => {}
        }
        let turn = match (event.what, event.direction) {
            (What::Reached(Stamp::Received), Way::Backward) => Some(Holder::PeerTurn),
            (What::Reached(Stamp::WriteBegin), _) => Some(Holder::SendingProgram),
            _ => None,
        };
        if !matches!(event.what, What::Task(_)) {
            self.who = event.who.map_or(self.who, |task| Some(task.0));
        }
        if let Some(kind) = self.local() {
            self.local_event(at, kind, turn, event);
            return self.reader(at, event);
        }
        self.advance(at, turn);
        let bytes = event.bytes;
        match event.what {
            What::Reached(Stamp::WriteBegin) => self.is_writing = true,
            What::Reached(Stamp::WriteEnd) => {
                self.is_writing = false;
                self.tally.writes += u64::from(bytes.end > bytes.start);
                if bytes.end > self.left_to && bytes.end > bytes.start {
                    self.wait(Waiting { end: bytes.end, returned: at }, is_room);
                }
            }
            What::Call(Call::Begin { .. }) if event.direction == Way::Backward => self.is_reading = true,
            What::Call(Call::End { result, .. }) => match event.direction {
                Way::Backward => self.is_reading = false,
                // The program waits for room until it tries again.
                Way::Forward if result == EAGAIN => {
                    self.is_writing = true;
                    self.tally.refused += 1;
                }
                Way::Forward => self.is_writing = false,
            },
            What::Released(release) => self.release = Some(release),
            What::Reached(Stamp::Scheduled) => self.left(at, bytes.start, bytes.end),
            What::Reached(Stamp::Received) => self.add_received(bytes.end - bytes.start),
            What::Reached(Stamp::Repeated) => {
                self.tally.repeated += 1;
                let is_opening = self.state.as_ref().is_some_and(|state| state.is_opening);
                self.tally.repeated_openings += u64::from(is_opening);
            }
            What::State(state) => self.now(state),
            What::Listens(listening) => self.tally.listens(listening),
            _ => {}
        }
        self.reader(at, event);
    }

    /// A write waits from now on; where there is no room, in place of the earliest.
    fn wait(&mut self, write: Waiting, is_room: bool) {
        let has_room = is_room && self.waiting.len() < MOST_WAITING;
        self.tally.not_followed += u64::from(!has_room);
        if has_room || self.waiting.pop_front().is_some() {
            self.waiting.push_back(write);
        }
    }

    /// What an event tells of the reader: one that calls or reads has run until then.
    fn reader(&mut self, at: u64, event: &Event) {
        match event.what {
            What::Task(Task::Ran { waited_ns }) => {
                self.readiness.ran(waited_ns);
                let Some(from) = self.unread_from else { return };
                let ready = at.saturating_sub(waited_ns).clamp(from, at);
                self.settle_unread(ready);
                self.book(Way::Backward, Holder::Processor, ready, at);
                self.unread_from = Some(at);
            }
            What::Task(Task::Polled { waited_ns }) => self.readiness.polled(at, waited_ns),
            What::Task(Task::TimedOut { waited_ns }) => self.readiness.timed_out(at, waited_ns),
            What::Reached(Stamp::Read) => {
                self.settle_unread(at);
                self.readiness.read(at);
            }
            What::State(state) => self.readiness.state(at, state.unread_bytes > 0),
            What::Call(_) if event.direction == Way::Backward => self.settle_unread(at),
            _ => {}
        }
    }

    /// Books a time of what is received.
    fn book_inward(&mut self, holder: Holder, from: u64, to: u64) {
        if holder == Holder::ReceivingProgram {
            self.unread_from.get_or_insert(from);
        } else {
            self.settle_unread(from);
            self.book(Way::Backward, holder, from, to);
        }
    }

    /// What waited to be read until now waited for the program.
    fn settle_unread(&mut self, at: u64) {
        if let Some(from) = self.unread_from.take() {
            self.book(Way::Backward, Holder::ReceivingProgram, from, at);
        }
    }

    /// Whether its program is in a write, or waits for room after one that was refused.
    pub(super) const fn is_waiting(&self) -> bool {
        self.is_writing || self.is_refused
    }

    /// Whether it is a socket of Bluetooth.
    pub(super) fn is_bluetooth(&self) -> bool {
        self.local().is_some_and(LocalKind::is_bluetooth)
    }

    /// Its kind, if it is known by its calls alone.
    pub(super) const fn local(&self) -> Option<LocalKind> {
        match self.flow.key {
            FlowKey::Local(key) => Some(key.kind),
            _ => None,
        }
    }

    /// An event of a Unix socket, a socket of UDP or a pipe. Their states tell only whether something waits to be read
    /// and whether there is room; a state stands before the end of a write and after that of a read.
    fn local_event(&mut self, at: u64, kind: LocalKind, turn: Option<Holder>, event: &Event) {
        let unread = |state: &SocketState| state.unread_bytes > 0;
        let had_unread = self.state.as_ref().is_some_and(unread);
        let bytes = event.bytes.end.saturating_sub(event.bytes.start);
        let turn = match event.what {
            // What comes during a write is no answer to it.
            What::Reached(Stamp::Received) => turn.filter(|_| !self.is_writing),
            What::Reached(Stamp::Read) => (!had_unread && !self.is_writing).then_some(Holder::PeerTurn),
            What::Reached(Stamp::WriteEnd) => Some(self.writer(at, kind)),
            // One that failed in the end may have waited as well.
            What::Call(Call::End { .. }) if event.direction == Way::Forward => Some(self.writer(at, kind)),
            _ => turn,
        };
        // Something has come that nothing told of: nobody knows when.
        let is_unheard = !had_unread && !self.is_reading && matches!(&event.what, What::State(state) if unread(state));
        self.advance_local(at, kind, turn, is_unheard);
        match event.what {
            What::Reached(Stamp::WriteBegin) => (self.is_writing, self.is_refused) = (true, false),
            What::Reached(Stamp::WriteEnd) => {
                self.is_writing = false;
                self.tally.writes += 1;
                self.tally.sent_bytes = self.tally.sent_bytes.saturating_add(bytes);
            }
            What::Reached(Stamp::Read) => {
                self.tally.reads += 1;
                self.add_received(bytes);
            }
            What::Call(Call::Begin { number }) => match event.direction {
                Way::Backward => self.is_reading = true,
                Way::Forward => self.tally.writes_by(number),
            },
            What::Call(Call::End { result, .. }) => match event.direction {
                Way::Backward => self.is_reading = false,
                Way::Forward => {
                    self.is_writing = false;
                    self.is_refused = result == EAGAIN;
                    self.tally.refused += u64::from(self.is_refused);
                    let has_room = self.state.as_ref().is_some_and(|state| !state.send_buffer_full);
                    self.tally.refused_with_room += u64::from(self.is_refused && has_room);
                }
            },
            What::State(state) => {
                self.is_from_start |= self.tally.writes == 0 && self.first == Some(at) && state.unsent_bytes == 0;
                self.state = Some(state);
            }
            _ => {}
        }
    }

    /// Who had the time of a write that ends now.
    fn writer(&mut self, at: u64, kind: LocalKind) -> Holder {
        let has_waited = self.is_writing && self.idle_from.is_some_and(|from| at.saturating_sub(from) >= ROOM_NS);
        // Linux lets a write wait as long as a channel of Bluetooth has no credits, whatever room there is.
        let is_full = kind.is_bluetooth() || self.state.as_ref().is_some_and(|state| state.send_buffer_full);
        self.tally.waited += u64::from(has_waited && is_full);
        if has_waited && is_full { who_makes_room(kind) } else { Holder::SendingProgram }
    }

    /// Books the time since the last event.
    fn advance_local(&mut self, at: u64, kind: LocalKind, turn: Option<Holder>, is_unheard: bool) {
        if self.first.is_none() {
            (self.first, self.last) = (Some(at), at);
        }
        let last = std::mem::replace(&mut self.last, at);
        let Some(state) = self.state else {
            return Way::BOTH.into_iter().for_each(|way| self.book(way, Holder::NotKnown, last, at));
        };
        let inward = match state.unread_bytes > 0 {
            true => Holder::ReceivingProgram,
            false if is_unheard => Holder::NotKnown,
            false => Holder::PeerTurn,
        };
        self.book_inward(inward, last, at);
        if self.is_refused {
            self.book(Way::Forward, who_makes_room(kind), last, at);
            return;
        }
        let from = *self.idle_from.get_or_insert(last);
        if let Some(turn) = turn {
            self.book(Way::Forward, turn, from, at);
            self.idle_from = None;
        }
    }

    fn add_received(&mut self, bytes: u64) {
        self.tally.received_bytes = self.tally.received_bytes.saturating_add(bytes);
    }

    fn left(&mut self, at: u64, start: u64, end: u64) {
        self.tally.sent_bytes += end.saturating_sub(start.max(self.left_to));
        self.left_to = self.left_to.max(end);
        let release = self.release.take();
        while let Some(write) = self.waiting.front().filter(|write| write.end <= end) {
            self.tally.held.add(at.saturating_sub(write.returned));
            self.tally.released(release);
            self.waiting.pop_front();
        }
        if self.waiting.capacity() > FEW_WAITING && self.waiting.len() < self.waiting.capacity() / 4 {
            self.waiting.shrink_to(FEW_WAITING.max(2 * self.waiting.len()));
        }
    }

    fn now(&mut self, state: SocketState) {
        if let Some(window) = state.send_window_bytes {
            self.tally.largest_window = self.tally.largest_window.max(window);
            self.tally.least_window = Some(self.tally.least_window.map_or(window, |least| least.min(window)));
        }
        self.tally.corked[usize::from(state.cork == Some(true))] += 1;
        self.state = Some(state);
        if let Some(held) = self.holder() {
            match self.tally.evidence.iter_mut().find(|(known, _)| *known == held) {
                Some((_, seen)) => *seen = state,
                None => self.tally.evidence.push((held, state)),
            }
        }
    }

    /// Who holds what is to be sent; `None` when nothing is, or when the state is not known.
    fn holder(&self) -> Option<Holder> {
        let state = self.state.as_ref()?;
        let held = holder(state)?;
        let waits_for_room = self.is_writing && state.send_buffer_full;
        let is_room = waits_for_room && matches!(held, Holder::Delivery | Holder::NotKnown);
        Some(if is_room { Holder::SendBuffer } else { held })
    }

    /// Books the time since the last event. `turn` says whose turn it was while nothing was to be sent.
    fn advance(&mut self, at: u64, turn: Option<Holder>) {
        if self.first.is_none() {
            (self.first, self.last) = (Some(at), at);
        }
        let last = self.last;
        let Some(state) = self.state else {
            Way::BOTH.into_iter().for_each(|way| self.book(way, Holder::NotKnown, last, at));
            self.last = at;
            return;
        };
        let unread = if state.unread_bytes > 0 { Holder::ReceivingProgram } else { Holder::PeerTurn };
        self.book_inward(unread, last, at);
        match self.holder() {
            None => {
                let from = *self.idle_from.get_or_insert(last);
                if let Some(turn) = turn {
                    self.book(Way::Forward, turn, from, at);
                    self.idle_from = None;
                }
            }
            Some(Holder::Pacing) => {
                self.settle(Holder::SendingProgram);
                let until = at.min(last.saturating_add(state.pacing_wait_ns.into()));
                self.book(Way::Forward, Holder::Pacing, last, until);
                let after = holder(&SocketState { pacing_wait_ns: 0, ..state });
                self.book(Way::Forward, after.unwrap_or(Holder::NotKnown), until, at);
            }
            Some(held) => {
                self.settle(Holder::SendingProgram);
                self.book(Way::Forward, held, last, at);
            }
        }
        self.last = at;
    }

    fn book(&mut self, way: Way, holder: Holder, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let open = &mut self.open[way as usize];
        match open {
            Some((known, episode)) if *known == holder && episode.to == from => episode.to = to,
            _ => {
                let part = Episode { from, to, places: (0, 0) };
                if let Some((holder, done)) = open.replace((holder, part)) {
                    self.breakdowns[way as usize].book(holder, done);
                }
            }
        }
    }

    /// What happened since the last event was lost, so nobody knows who held what.
    fn gap(&mut self, at: u64) {
        self.settle(Holder::NotKnown);
        self.settle_unread(self.last);
        self.readiness.forget();
        self.state = None;
        self.advance(at, None);
        self.tally.gaps += 1;
        self.waiting = VecDeque::new();
        (self.is_writing, self.is_reading, self.is_refused) = (false, false, false);
    }

    /// Ends a time in which nothing was to be sent.
    fn settle(&mut self, turn: Holder) {
        if let Some(from) = self.idle_from.take() {
            self.book(Way::Forward, turn, from, self.last);
        }
    }

    /// Nothing more comes; of a connection that is still open the time until `end` is known.
    pub(super) fn finish(&mut self, end: Option<u64>) {
        if let (Some(_), Some(kind)) = (self.first, self.local()) {
            // It may be closed since its last call, which is not seen.
            let end = end.filter(|_| self.is_reading || self.is_writing || self.is_refused);
            self.advance_local(end.unwrap_or(self.last).max(self.last), kind, None, false);
            let is_full = kind.is_bluetooth() || self.state.as_ref().is_some_and(|state| state.send_buffer_full);
            let turn = match self.is_writing {
                true if is_full => who_makes_room(kind),
                false if self.is_reading => Holder::PeerTurn,
                _ => Holder::SendingProgram,
            };
            self.settle(turn);
        } else if self.first.is_some() {
            self.advance(end.unwrap_or(self.last).max(self.last), None);
        }
        self.settle(if self.is_reading { Holder::PeerTurn } else { Holder::SendingProgram });
        self.settle_unread(self.last);
        for (open, breakdown) in self.open.iter_mut().zip(&mut self.breakdowns) {
            if let Some((holder, done)) = open.take() {
                breakdown.book(holder, done);
            }
            breakdown.close();
        }
    }
}

/// Whose turn it is where a write waits for room: within a host what is written lies there until it is read.
const fn who_makes_room(kind: LocalKind) -> Holder {
    match kind {
        LocalKind::Unix | LocalKind::Pipe => Holder::ReceivingProgram,
        LocalKind::Udp | LocalKind::L2cap | LocalKind::Rfcomm | LocalKind::Sco => Holder::SendBuffer,
    }
}
