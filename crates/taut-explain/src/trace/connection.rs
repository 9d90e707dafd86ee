mod local;
mod probe;

use taut_event::{
    Call, ChannelEnd, Direction as Way, Event, Flow, FlowKey, Holder, LocalKind, Recovery, Release, SocketState, Stamp,
    Task, What,
};

use super::message::Messages;
use super::parts::{Load, Part, Parts, Probe, Probed};
use super::place::Places;
use super::readiness::Readiness;
use super::tally::Tally;
use super::thread::Users;
use super::writes::Writes;
use crate::engine::Breakdown;
use crate::socket::holder;

/// `EAGAIN` as a system call returns it.
const EAGAIN: i32 = -11;

/// One connection of a traced program, in bounded memory.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) flow: Flow,
    /// What this end sends, and what it has received.
    parts: Parts,
    pub(super) tally: Tally,
    /// The thread that used it last.
    who: Option<u32>,
    pub(super) first: Option<u64>,
    last: u64,
    /// State after the last event; `None` when it is not known.
    pub(super) state: Option<SocketState>,
    /// Nothing is to be sent since then; whose turn it is, what comes next tells.
    idle_from: Option<u64>,
    /// Since then the timer runs at whose end the first of what is not acknowledged is sent again.
    timer_from: u64,
    /// Something was sent again just now; by whom, the state after that tells.
    is_repeated: bool,
    /// Whether the last loss probe was needless is not known yet.
    probe: Option<Probe>,
    /// The device's queue had all that was on its way when it last held something.
    is_all_queued: bool,
    /// Something has waited to be read, or to be accepted, since then, and who has that time; whether that one had no
    /// processor, what comes next tells.
    unread_from: Option<(u64, Holder)>,
    accepting: Accepting,
    /// What was left to wait for when all was sent, and the end.
    ended: Option<Ended>,
    /// A write is going on, or the last one was refused for lack of room.
    is_writing: bool,
    /// The threads whose writes go on.
    writers: Vec<Option<u32>>,
    is_reading: bool,
    /// The last write was refused for lack of room, of a socket that is known by its calls alone.
    is_refused: bool,
    /// Its writes do not wait for room, as was seen; of a socket that is known by its calls alone.
    is_nonblocking: bool,
    /// The channel of Bluetooth that it is an end of.
    pub(super) end: Option<ChannelEnd>,
    /// Nothing was to be sent when it was first seen: all that was written since is counted.
    pub(super) is_from_start: bool,
    writes: Writes,
    /// Where the first byte that has not left stands.
    left_to: u64,
    /// Where the first byte stands whose arrival was seen.
    first_received: Option<u64>,
    release: Option<Release>,
    /// How what came was read.
    pub(super) readiness: Readiness,
    pub(super) users: Users,
    /// Of one that is known by its calls alone: what came since the last of these, and what its readers waited for.
    held_back: Vec<Event>,
    places: Places,
    pub(super) messages: Messages,
    /// The flow of its other end, where that is traced, too.
    pub(super) peer: Option<u32>,
    /// Its other end is traced, too, or was.
    pub(super) has_met_peer: bool,
}

/// Whether a connection that the other end opened waits for accept(2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Accepting {
    NotAwaited,
    Waits,
    /// It did before something was lost: the acceptance may have been.
    MayWait,
}

/// From when on nothing was left to send.
#[derive(Clone, Copy, Debug)]
struct Ended {
    from: u64,
    /// Until then some of it was not acknowledged.
    delivered: u64,
}

impl Connection {
    pub(super) fn new(flow: Flow) -> Self {
        Self {
            flow,
            parts: Parts::default(),
            tally: Tally::default(),
            who: None,
            first: None,
            last: 0,
            state: None,
            idle_from: None,
            timer_from: 0,
            is_repeated: false,
            probe: None,
            is_all_queued: false,
            unread_from: None,
            accepting: Accepting::NotAwaited,
            ended: None,
            is_writing: false,
            writers: Vec::new(),
            is_reading: false,
            is_refused: false,
            is_nonblocking: false,
            end: None,
            is_from_start: false,
            writes: Writes::default(),
            left_to: 0,
            first_received: None,
            release: None,
            readiness: Readiness::default(),
            users: Users::default(),
            held_back: Vec::new(),
            places: Places::default(),
            messages: Messages::default(),
            peer: None,
            has_met_peer: false,
        }
    }

    /// From now on it keeps so many stretches of each direction for a picture.
    pub(super) fn keep_trails(&mut self, limit: usize) {
        self.parts.keep_trails(limit);
    }

    pub(super) const fn breakdown(&self, way: Way) -> &Breakdown {
        self.parts.breakdown(way)
    }

    /// Writes that wait for their last byte to leave.
    pub(super) fn waiting(&self) -> usize {
        self.writes.waiting()
    }

    #[cfg(test)]
    pub(super) fn room_to_wait(&self) -> usize {
        self.writes.room()
    }

    /// A stretch in which data was held, and that is not taken yet.
    pub(super) fn take_held(&mut self) -> Option<(Way, Part)> {
        self.parts.take_held()
    }

    /// Another write may wait if there `is_room` for it beside those of all connections.
    pub(super) fn event(&mut self, event: &Event, is_room: bool) {
        if let Some(kind) = self.local() {
            if self.is_held_back(event) {
                return self.hold_back(event);
            }
            match event.what {
                What::Gap => self.held_back.clear(),
                _ => self.settle_held_back(kind),
            }
        }
        self.users.event(event);
        self.places.seen(event);
        self.take(event, is_room);
        self.places.done(event, self.local().is_some());
        if self.local().is_none() {
            self.messages.event(event);
        }
    }

    fn take(&mut self, event: &Event, is_room: bool) {
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
        let (bytes, writer) = (event.bytes, event.who.map(|task| task.0));
        match event.what {
            What::Reached(Stamp::WriteBegin) => self.begins_its_write(writer),
            What::Reached(Stamp::WriteEnd) => {
                self.ends_its_write(writer);
                self.tally.writes += u64::from(bytes.end > bytes.start);
                if bytes.end > self.left_to && bytes.end > bytes.start {
                    self.tally.not_followed += u64::from(self.writes.returned(bytes.end, at, is_room));
                }
            }
            What::Call(Call::Begin { .. }) if event.direction == Way::Backward => self.is_reading = true,
            What::Call(Call::End { result, .. }) => match event.direction {
                Way::Backward => self.is_reading = false,
                Way::Forward => {
                    self.ends_its_write(writer);
                    // The program waits for room until it tries again.
                    self.is_writing |= result == EAGAIN;
                    self.tally.refused += u64::from(result == EAGAIN);
                }
            },
            What::Released(release) => self.release = Some(release),
            What::Reached(Stamp::Scheduled) => {
                if self.state.is_none_or(|state| state.in_flight_bytes == 0) {
                    self.timer_from = at;
                }
                self.left(at, bytes.start, bytes.end);
            }
            What::Reached(Stamp::Acknowledged) => {
                self.timer_from = at;
                self.probe_acknowledged(at, bytes.end);
            }
            What::Reached(Stamp::Received) => {
                self.first_received.get_or_insert(bytes.start);
                self.add_received(bytes.len());
            }
            What::Reached(Stamp::Read) => {
                self.tally.reads += 1;
                // What had come before the trace began is told by its reads alone.
                let end = self.first_received.map_or(bytes.end, |first| bytes.end.min(first));
                self.add_received(end.saturating_sub(bytes.start));
            }
            What::Reached(Stamp::Repeated) => {
                self.tally.repeated += 1;
                let is_opening = self.state.as_ref().is_some_and(|state| state.is_opening);
                self.tally.repeated_openings += u64::from(is_opening);
                self.is_repeated = !is_opening;
            }
            What::State(state) => {
                self.settle_probe(at, &state);
                self.may_run_out(at, &state);
                if std::mem::take(&mut self.is_repeated) {
                    self.repeated(at, &state);
                }
                self.now(state);
            }
            What::Listens(listening) => {
                self.tally.listens(listening);
                // Only of one that waits still its own program's queue is told.
                if self.accepting == Accepting::MayWait {
                    self.accepting = Accepting::Waits;
                }
            }
            What::Awaits => (self.accepting, self.tally.was_awaited) = (Accepting::Waits, true),
            What::Accepted => {
                self.settle_unread(at);
                self.accepting = Accepting::NotAwaited;
            }
            What::IsPath => self.tally.is_path = true,
            _ => {}
        }
        self.reader(at, event);
    }

    /// What an event tells of the reader: one that calls or reads has run until then.
    fn reader(&mut self, at: u64, event: &Event) {
        match event.what {
            What::Task(Task::Ran { waited_ns }) => {
                // What came before its program accepts it comes then, and that it had run is told only then.
                if self.accepting == Accepting::NotAwaited {
                    self.readiness.ran(waited_ns);
                }
                self.has_run(event.at.as_nanos(), waited_ns);
            }
            What::Task(Task::Polled { waited_ns }) => self.readiness.polled(at, waited_ns),
            What::Task(Task::TimedOut { waited_ns }) => self.readiness.timed_out(at, waited_ns),
            What::Reached(Stamp::Read) => {
                self.settle_unread(at);
                self.readiness.read(at);
            }
            // What comes for nobody yet has come for its program when that accepts it.
            What::State(state) => match self.accepting {
                Accepting::NotAwaited => self.readiness.state(at, state.unread_bytes > 0),
                Accepting::Waits => self.readiness.state(at, false),
                Accepting::MayWait => {}
            },
            What::Call(_) if event.direction == Way::Backward => self.settle_unread(at),
            _ => {}
        }
    }

    /// What waits to be read or accepted has waited for a processor until then.
    fn has_run(&mut self, at: u64, waited_ns: u64) {
        let Some((from, holder)) = self.unread_from.filter(|(from, _)| *from < at) else { return };
        let ready = at.saturating_sub(waited_ns).clamp(from, at);
        self.settle_unread(ready);
        self.book(Way::Backward, Holder::Processor, ready, at);
        self.unread_from = Some((at, holder));
    }

    /// Books a time of what is received.
    fn book_inward(&mut self, holder: Holder, from: u64, to: u64) {
        if self.unread_from.is_some_and(|(_, before)| before != holder) {
            self.settle_unread(from);
        }
        if matches!(holder, Holder::ReceivingProgram | Holder::AcceptQueue) {
            self.unread_from.get_or_insert((from, holder));
        } else {
            self.book(Way::Backward, holder, from, to);
        }
    }

    /// What waited to be read or accepted until now waited for the program.
    fn settle_unread(&mut self, at: u64) {
        if let Some((from, holder)) = self.unread_from.take() {
            self.book(Way::Backward, holder, from, at);
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

    /// The thread that used it last. A pipe has two ends, mostly of two programs: the one that used this one last.
    pub(super) fn thread(&self, way: Way) -> Option<u32> {
        let is_pipe = self.local() == Some(LocalKind::Pipe);
        self.users.last_caller(way).filter(|_| is_pipe).or(self.who)
    }

    /// Its kind, if it is known by its calls alone.
    pub(super) const fn local(&self) -> Option<LocalKind> {
        match self.flow.key {
            FlowKey::Local(key) => Some(key.kind),
            _ => None,
        }
    }

    fn add_received(&mut self, bytes: u64) {
        self.tally.received_bytes = self.tally.received_bytes.saturating_add(bytes);
    }

    fn left(&mut self, at: u64, start: u64, end: u64) {
        self.tally.sent_bytes += end.saturating_sub(start.max(self.left_to));
        self.left_to = self.left_to.max(end);
        let release = self.release.take();
        self.writes.left(at, end, |stayed_ns| {
            self.tally.held.add(stayed_ns);
            self.tally.released(release);
        });
    }

    fn now(&mut self, state: SocketState) {
        if let Some(window) = state.send_window_bytes {
            self.tally.largest_window = self.tally.largest_window.max(window);
            self.tally.least_window = Some(self.tally.least_window.map_or(window, |least| least.min(window)));
        }
        self.tally.duplicates(state.duplicates);
        self.state = Some(state);
        if let Some(held) = self.holder() {
            if held == Holder::DeviceQueue {
                self.is_all_queued = state.device_bytes >= state.in_flight_bytes;
            }
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
        let unread = match self.accepting {
            Accepting::Waits => Holder::AcceptQueue,
            Accepting::MayWait => Holder::NotKnown,
            Accepting::NotAwaited if state.unread_bytes > 0 => Holder::ReceivingProgram,
            Accepting::NotAwaited => Holder::PeerTurn,
        };
        self.book_inward(unread, last, at);
        let held = self.holder();
        if state.is_ended && matches!(held, None | Some(Holder::Delivery)) {
            self.after_end(at, held.is_some(), turn);
            self.last = at;
            return;
        }
        self.book_ended(None);
        match held {
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

    /// All was sent, and the end. Until the peer acknowledges it nobody has anything to do, and the time counts only if
    /// something comes after it that was waited for.
    fn after_end(&mut self, at: u64, is_on_its_way: bool, turn: Option<Holder>) {
        self.settle(Holder::SendingProgram);
        let last = self.last;
        let ended = self.ended.get_or_insert(Ended { from: last, delivered: last });
        if is_on_its_way {
            ended.delivered = at;
        }
        if turn == Some(Holder::PeerTurn) {
            self.book_ended(Some((Holder::PeerTurn, at)));
        }
    }

    /// Books the time since the end, and whose turn it was once all had been acknowledged.
    fn book_ended(&mut self, turn: Option<(Holder, u64)>) {
        let Some(Ended { from, delivered }) = self.ended.take() else { return };
        self.book(Way::Forward, Holder::Delivery, from, delivered);
        if let Some((turn, to)) = turn {
            self.book(Way::Forward, turn, delivered, to);
        }
    }

    fn book(&mut self, way: Way, holder: Holder, from: u64, to: u64) {
        if from >= to {
            return;
        }
        self.users.book(way, holder, to - from);
        let bytes = self.places.waiting(way, holder, self.state.as_ref());
        self.parts.book(way, holder, (from, to), Load { bytes, thread: self.users.of_wait(way, holder) });
    }

    /// The timer may have run out by this state. The kernel says so when it gives to the device what it sends again,
    /// and that it was sent again after that.
    fn may_run_out(&mut self, at: u64, state: &SocketState) {
        let has_run_out = |state: &SocketState| holder(state) == Some(Holder::RetransmissionTimeout);
        if !has_run_out(state) || self.state.as_ref().is_none_or(has_run_out) {
            return;
        }
        // The kernel may not send again yet what its device still has.
        self.was_lost(Holder::RetransmissionTimeout, self.timer_from, at, false);
    }

    fn was_lost(&mut self, by: Holder, from: u64, at: u64, is_dropped: bool) {
        // What came before the end is still missing there.
        if self.ended.is_some_and(|ended| ended.delivered == at) {
            self.book_ended(None);
        }
        self.parts.was_lost(by, from, at, is_dropped);
    }

    /// Something was sent again. If a timer did that, what it waited for before was lost. The kernel sends nothing
    /// again that waits in its device's queue: then that has dropped it.
    fn repeated(&mut self, at: u64, state: &SocketState) {
        // What the one before sent again was never told to be needless.
        self.probe = None;
        self.parts.settle_probe(Probed::Lost);
        let by = match state.recovery {
            Recovery::Repeating if state.timeouts == 0 => return,
            Recovery::None if state.timeouts == 0 => Holder::TailLossProbe,
            _ => Holder::RetransmissionTimeout,
        };
        let from = std::mem::replace(&mut self.timer_from, at);
        self.was_lost(by, from, at, self.is_all_queued);
        if by == Holder::TailLossProbe {
            self.probes(state);
        }
    }

    /// What happened since the last event was lost, so nobody knows who held what.
    fn gap(&mut self, at: u64) {
        self.settle(Holder::NotKnown);
        self.book_ended(Some((Holder::NotKnown, self.last)));
        self.settle_unread(self.last);
        self.probe_is_lost_sight_of();
        self.readiness.forget();
        self.state = None;
        // One that is known by its calls alone may be closed: only its next call tells that it was there.
        if self.local().is_none() {
            self.advance(at, None);
        }
        if self.accepting == Accepting::Waits {
            self.accepting = Accepting::MayWait;
        }
        // No timer is known to have run before.
        (self.timer_from, self.is_repeated) = (at, false);
        self.tally.gaps += 1;
        self.writes.forget();
        (self.is_writing, self.is_reading, self.is_refused) = (false, false, false);
        self.writers.clear();
    }

    /// Ends a time in which nothing was to be sent.
    fn settle(&mut self, turn: Holder) {
        if let Some(from) = self.idle_from.take() {
            self.book(Way::Forward, turn, from, self.last);
        }
    }

    /// Nothing more comes; of a connection that is still open the time until `end` is known.
    pub(super) fn finish(&mut self, end: Option<u64>) {
        let is_called = self.is_reading || self.is_writing || self.is_refused;
        if let Some(kind) = self.local().filter(|_| end.is_some()) {
            // Nobody else has got its place. It may be closed all the same, and its threads waited for others then.
            while !is_called && self.held_back.pop_if(|event| matches!(event.what, What::Task(_))).is_some() {}
            self.settle_held_back(kind);
        }
        self.users.nobody_acts();
        if let (Some(_), Some(kind)) = (self.first, self.local()) {
            // It may be closed since its last call, which is not seen.
            let end = end.filter(|_| is_called);
            self.advance_local(end.unwrap_or(self.last).max(self.last), kind, None, false);
            let is_full = kind.is_bluetooth() || self.state.as_ref().is_some_and(|state| state.send_buffer_full);
            let turn = match self.is_writing {
                true if is_full => who_makes_room(kind),
                // Who reads from a pipe waits for who writes to it.
                false if self.is_reading && kind != LocalKind::Pipe => Holder::PeerTurn,
                _ => Holder::SendingProgram,
            };
            self.settle(turn);
        } else if self.first.is_some() {
            self.advance(end.unwrap_or(self.last).max(self.last), None);
        }
        if end.is_some() && self.is_reading {
            self.book_ended(Some((Holder::PeerTurn, self.last)));
        }
        self.settle(if self.is_reading { Holder::PeerTurn } else { Holder::SendingProgram });
        self.settle_unread(self.last);
        self.tally.is_never_accepted = self.accepting == Accepting::Waits;
        self.probe_ends();
        self.parts.finish();
    }
}

/// Whose turn it is where a write waits for room: within a host what is written lies there until it is read.
const fn who_makes_room(kind: LocalKind) -> Holder {
    match kind {
        LocalKind::Unix | LocalKind::Pipe => Holder::ReceivingProgram,
        LocalKind::Udp | LocalKind::L2cap | LocalKind::Rfcomm | LocalKind::Sco => Holder::SendBuffer,
    }
}
