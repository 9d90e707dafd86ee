//! What is known by its calls alone: Unix sockets, sockets of UDP and Bluetooth, and pipes.

use taut_event::{Call, Direction as Way, Event, Holder, LocalKind, SocketState, Stamp, Task, What};

use super::{Connection, EAGAIN, Ran, who_makes_room};

/// A write that takes longer, into what was full meanwhile, has waited for room.
const ROOM_NS: u64 = 100_000;
/// So many waits for a processor are kept apart until a call comes. The last of them has the time of those after it.
const MOST_RAN: usize = 32;

impl Connection {
    /// An event of a Unix socket, a socket of UDP or a pipe. Their states tell only whether something waits to be read
    /// and whether there is room; a state stands before the end of a write and after that of a read.
    pub(super) fn local_event(&mut self, at: u64, kind: LocalKind, turn: Option<Holder>, event: &Event) {
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
    pub(super) fn advance_local(&mut self, at: u64, kind: LocalKind, turn: Option<Holder>, is_unheard: bool) {
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

    /// A thread that may read what waits here has run, or has learned of it. That is no call: what is known by its
    /// calls alone may be closed by now, with something left in it. So its time goes on only if something else comes.
    pub(super) fn local_task(&mut self, task: Task, event: &Event) {
        let at = event.at.as_nanos().max(self.last);
        match task {
            Task::Ran { waited_ns } if self.first.is_some() => {
                self.readiness.ran(waited_ns);
                let thread = event.who.map(|task| task.0);
                let is_full = self.ran.len() >= MOST_RAN;
                match self.ran.last_mut().filter(|_| is_full) {
                    Some(last) => {
                        *last = Ran { at, waited_ns: last.waited_ns.saturating_add(waited_ns), thread };
                    }
                    None => self.ran.push(Ran { at, waited_ns, thread }),
                }
            }
            Task::Polled { waited_ns } => self.readiness.polled(at, waited_ns),
            Task::TimedOut { waited_ns } => self.readiness.timed_out(at, waited_ns),
            _ => {}
        }
    }

    /// Books the waits for a processor that were before what comes now.
    pub(super) fn settle_ran(&mut self, kind: LocalKind) {
        for Ran { at, waited_ns, thread } in std::mem::take(&mut self.ran) {
            let at = at.max(self.last);
            self.users.runs(thread);
            self.advance_local(at, kind, None, false);
            self.has_run(at, waited_ns);
        }
    }
}
