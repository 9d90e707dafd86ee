//! What is known by its calls alone: Unix sockets, sockets of UDP and Bluetooth, and pipes.

use std::mem::discriminant;

use taut_event::{Call, Direction as Way, Event, Holder, LocalKind, SocketState, Stamp, Task, What};

use super::{Connection, EAGAIN, who_makes_room};

/// A write that takes longer, into what was full meanwhile, has waited for room.
const ROOM_NS: u64 = 100_000;
/// So many threads that write at once are told apart.
const MOST_WRITERS: usize = 64;
/// So many events are held back until a call comes. Of more the last one of a kind stands for those after it.
const MOST_HELD_BACK: usize = 16;

impl Connection {
    /// An event of a Unix socket, a socket of UDP or a pipe. Their states tell only whether something waits to be read
    /// and whether there is room; a state stands before the end of a write and after that of a read.
    pub(super) fn local_event(&mut self, at: u64, kind: LocalKind, turn: Option<Holder>, event: &Event) {
        let unread = |state: &SocketState| state.unread_bytes > 0;
        let had_unread = self.state.as_ref().is_some_and(unread);
        let bytes = event.bytes.end.saturating_sub(event.bytes.start);
        let who = event.who.map(|task| task.0);
        let is_long = self.is_long_write(at);
        // What comes out of a pipe is what was written to it.
        let is_answer = !self.is_writing && kind != LocalKind::Pipe;
        let turn = match event.what {
            // What comes during a write is no answer to it, and another thread's write does not end it.
            What::Reached(Stamp::WriteBegin) => turn.filter(|_| !self.is_writing),
            What::Reached(Stamp::Received) => turn.filter(|_| is_answer),
            What::Reached(Stamp::Read) => (!had_unread && is_answer).then_some(Holder::PeerTurn),
            What::Reached(Stamp::WriteEnd) => Some(self.writer(at, kind)),
            // One that failed in the end may have waited as well.
            What::Call(Call::End { .. }) if event.direction == Way::Forward => Some(self.writer(at, kind)),
            _ => turn,
        };
        // Something has come that nothing told of: nobody knows when.
        let is_unheard = !had_unread && !self.is_reading && matches!(&event.what, What::State(state) if unread(state));
        self.advance_local(at, kind, turn, is_unheard);
        match event.what {
            What::Reached(Stamp::WriteBegin) => {
                self.begins_its_write(who);
                self.is_refused = false;
            }
            What::Reached(Stamp::WriteEnd) => {
                self.ends_its_write(who);
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
                    self.ends_its_write(who);
                    self.is_refused = result == EAGAIN;
                    // One that is refused after a while has waited (`SO_SNDTIMEO`).
                    self.is_nonblocking |= self.is_refused && !is_long;
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

    /// A thread writes.
    pub(super) fn begins_its_write(&mut self, who: Option<u32>) {
        if self.writers.len() < MOST_WRITERS && !self.writers.contains(&who) {
            self.writers.push(who);
        }
        self.is_writing = true;
    }

    /// A thread's write is over; those of others may go on.
    pub(super) fn ends_its_write(&mut self, who: Option<u32>) {
        self.writers.retain(|writer| *writer != who);
        self.is_writing = !self.writers.is_empty();
    }

    fn is_long_write(&self, at: u64) -> bool {
        self.is_writing && self.idle_from.is_some_and(|from| at.saturating_sub(from) >= ROOM_NS)
    }

    /// Who had the time of a write that ends now.
    fn writer(&mut self, at: u64, kind: LocalKind) -> Holder {
        // A long one of a socket that refuses others took long to copy, or its thread had no processor.
        let may_wait = !self.is_nonblocking || kind.is_bluetooth();
        let has_waited = self.is_long_write(at) && may_wait;
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

    /// Whether an event tells only of what comes, or of a thread that may read it. That is no call, and what is known
    /// by its calls alone may be closed by now: what was left in it nobody reads, and what comes may be for another one
    /// that has its place in the kernel's memory. So it counts only if a call comes after it, or nothing at all does.
    pub(super) fn is_held_back(&self, event: &Event) -> bool {
        let is_of_reader = matches!(event.what, What::Task(_));
        let comes = event.who.is_none() && matches!(event.what, What::Reached(Stamp::Received) | What::State(_));
        self.first.is_some() && (is_of_reader || comes && !self.is_bluetooth())
    }

    /// Keeps such an event. How what came is read counts at the read anyway.
    pub(super) fn hold_back(&mut self, event: &Event) {
        let at = event.at.as_nanos().max(self.last);
        match event.what {
            What::Task(Task::Ran { waited_ns }) => self.readiness.ran(waited_ns),
            What::Task(Task::Polled { waited_ns }) => return self.readiness.polled(at, waited_ns),
            What::Task(Task::TimedOut { waited_ns }) => return self.readiness.timed_out(at, waited_ns),
            What::Task(_) => return,
            What::State(state) => self.readiness.state(at, state.unread_bytes > 0),
            _ => {}
        }
        if self.held_back.len() < MOST_HELD_BACK {
            return self.held_back.push(*event);
        }
        let kind = discriminant(&event.what);
        let Some(last) = self.held_back.iter_mut().rfind(|held| discriminant(&held.what) == kind) else { return };
        let before = std::mem::replace(last, *event);
        if let (What::Task(Task::Ran { waited_ns: before }), What::Task(Task::Ran { waited_ns })) =
            (before.what, &mut last.what)
        {
            *waited_ns = waited_ns.saturating_add(before);
        }
    }

    /// What was held back counts.
    pub(super) fn settle_held_back(&mut self, kind: LocalKind) {
        for event in std::mem::take(&mut self.held_back) {
            let at = event.at.as_nanos().max(self.last);
            self.users.event(&event);
            self.places.seen(&event);
            match event.what {
                What::Task(Task::Ran { waited_ns }) => {
                    self.advance_local(at, kind, None, false);
                    self.has_run(at, waited_ns);
                }
                What::Reached(_) if event.direction == Way::Backward => {
                    self.local_event(at, kind, Some(Holder::PeerTurn), &event);
                }
                _ => self.local_event(at, kind, None, &event),
            }
        }
    }
}
