//! Pipes from their beginning to their account, and those who open ends for them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread;

use taut_link::{Error, Result};
use taut_time::Instant;

use super::plans::State;
use crate::end::{End, Form};
use crate::flow::{KernelPipe, Turn};
use crate::open::{self, Which};
use crate::pipe::{Phase, Pipe, Tap};
use crate::plan::back_off;
use crate::poller::{Poller, Readiness, Token};
use crate::report::{EndedBy, Observer, OpenPipes};

/// One buffer serves all reads: the longest message of a Unix socket.
const SCRATCH: usize = 128 << 10;
/// Stack of a thread that opens an end: resolving a name is what needs most.
const OPENER_STACK: usize = 256 << 10;

/// All pipes, with what they share.
pub(super) struct Pipes {
    pub(super) poller: Poller,
    pub(super) plans: Vec<State>,
    pub(super) slots: Vec<Slot>,
    free: Vec<usize>,
    turns: VecDeque<usize>,
    alarms: BinaryHeap<Reverse<(Instant, usize, u32)>>,
    opener: mpsc::Sender<Opened>,
    bell: Arc<OwnedFd>,
    pub(super) scratch: Vec<u8>,
    spare: Vec<KernelPipe>,
    /// So many there were so far.
    pub(super) made: u64,
    pub(super) now: Instant,
    pub(super) stopped: bool,
}

pub(super) struct Slot {
    generation: u32,
    pub(super) pipe: Option<Box<Pipe>>,
}

/// What became of opening an end.
pub(super) struct Opened {
    plan: usize,
    slot: usize,
    generation: u32,
    end: usize,
    result: Result<End>,
}

impl Pipes {
    /// None yet. Who opens ends sends what became of it through `opener`, and writes to the `bell`, an eventfd.
    pub(super) fn new(
        poller: Poller,
        plans: Vec<State>,
        (opener, bell): (mpsc::Sender<Opened>, Arc<OwnedFd>),
        now: Instant,
    ) -> Self {
        let (slots, free, spare) = (Vec::new(), Vec::new(), Vec::new());
        let (turns, alarms, scratch) = (VecDeque::new(), BinaryHeap::new(), vec![0; SCRATCH]);
        let (made, stopped) = (0, false);
        Self { poller, plans, slots, free, turns, alarms, opener, bell, scratch, spare, made, now, stopped }
    }

    /// Whether some have something to do now.
    pub(super) fn have_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// When the first one has to be looked at, if nothing happens before.
    pub(super) fn next_alarm(&self) -> Option<Instant> {
        self.alarms.peek().map(|Reverse((at, ..))| *at)
    }

    /// Gives each that has something to do now one turn; who wants more gets it after the others.
    pub(super) fn take_turns(&mut self, observer: &mut dyn Observer) {
        for _ in 0..self.turns.len() {
            if let Some(slot) = self.turns.pop_front() {
                self.turn(slot, observer);
            }
        }
    }

    /// An end became ready for something.
    pub(super) fn heed(&mut self, (slot, generation, end): (usize, u32, usize), event: Readiness) {
        let Some(entry) = self.slots.get_mut(slot).filter(|entry| entry.generation == generation) else { return };
        let Some(pipe) = &mut entry.pipe else { return };
        if let Some(end) = &mut pipe.ends[end] {
            end.readable |= event.readable;
            end.writable |= event.writable;
            end.hung_up |= event.hung_up;
        }
        self.queue(slot);
    }

    /// Waits for a plan's listeners, or does not, as there is room for clients.
    pub(super) fn heed_listeners(&mut self, plan: usize) {
        self.plans[plan].heed_listeners(plan, &self.poller);
    }

    pub(super) fn begin(&mut self, plan: usize, observer: &mut dyn Observer) {
        let slot = self.make(plan);
        for which in [Which::A, Which::B] {
            if !self.plans[plan].plan.sides[which.index()].listens {
                self.open(slot, which.index(), observer);
            }
        }
    }

    pub(super) fn make(&mut self, plan: usize) -> usize {
        self.made += 1;
        self.plans[plan].open += 1;
        let pipe = Box::new(Pipe::new(self.made, plan, self.now));
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot].pipe = Some(pipe);
                slot
            }
            None => {
                self.slots.push(Slot { generation: 0, pipe: Some(pipe) });
                self.slots.len() - 1
            }
        }
    }

    /// Has a thread open an end, as that may wait.
    fn open(&mut self, slot: usize, end: usize, observer: &mut dyn Observer) {
        let generation = self.slots[slot].generation;
        let Some(pipe) = &self.slots[slot].pipe else { return };
        let plan = pipe.plan;
        let state = &mut self.plans[plan];
        state.opening += 1;
        let [address, other] = [end, 1 - end].map(|end| state.plan.sides[end].address.clone());
        let (tls, timeout) = (state.tls[end].clone(), state.plan.options.connect_timeout);
        let (opener, bell) = (self.opener.clone(), Arc::clone(&self.bell));
        let work = move || {
            let result = open::open(&address, Which::of(end), &other, tls.as_ref(), timeout);
            // Both fail only when nobody waits for it any more.
            let _ = opener.send(Opened { plan, slot, generation, end, result });
            let _ = rustix::io::write(&bell, &1_u64.to_ne_bytes());
        };
        if let Err(error) = thread::Builder::new().name("opener".to_owned()).stack_size(OPENER_STACK).spawn(work) {
            let error = Error::Host { what: "start a thread".to_owned(), error };
            self.take_opened(Opened { plan, slot, generation, end, result: Err(error) }, observer);
        }
    }

    pub(super) fn take_opened(&mut self, opened: Opened, observer: &mut dyn Observer) {
        let Opened { plan, slot, generation, end, result } = opened;
        self.plans[plan].opening -= 1;
        self.heed_listeners(plan);
        let Some(entry) = self.slots.get_mut(slot).filter(|entry| entry.generation == generation) else { return };
        let Some(pipe) = &mut entry.pipe else { return };
        let options = &self.plans[pipe.plan].plan.options;
        match result {
            Ok(open) => {
                pipe.failures = 0;
                self.put(slot, end, open, observer);
            }
            Err(error) => {
                let is_of_words = error.fault() == taut_link::Fault::Input && !matches!(error, Error::Io { .. });
                if pipe.failures < options.retries && !self.stopped && !is_of_words {
                    let until = self.now + back_off(pipe.failures);
                    pipe.failures = pipe.failures.saturating_add(1);
                    pipe.phase = Phase::BackingOff { until };
                    observer.note(&format!("{error}; trying again in {:?}", until.saturating_since(self.now)));
                } else {
                    pipe.fail(end, &error);
                    pipe.close(self.now);
                }
                self.look_again(slot, observer);
            }
        }
    }

    /// An end is open.
    pub(super) fn put(&mut self, slot: usize, end: usize, open: End, observer: &mut dyn Observer) {
        let generation = self.slots[slot].generation;
        let token = Token::End { slot, generation, end };
        let Some(pipe) = &mut self.slots[slot].pipe else { return };
        if matches!(pipe.phase, Phase::Closing { .. }) {
            return;
        }
        let mut fds: Vec<&Arc<OwnedFd>> = open.input.iter().chain(&open.output).collect();
        fds.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let failed = fds.into_iter().find_map(|fd| self.poller.add(fd, token).err());
        pipe.ends[end] = Some(open);
        if let Some(error) = failed {
            pipe.fail(end, &Error::Host { what: "wait for an end".to_owned(), error });
            pipe.close(self.now);
        }
        self.go_on(slot, observer);
    }

    /// Does what is next with a pipe that is not running yet.
    fn go_on(&mut self, slot: usize, observer: &mut dyn Observer) {
        let Some(pipe) = &mut self.slots[slot].pipe else { return };
        let plan = pipe.plan;
        let state = &mut self.plans[plan];
        let options = &state.plan.options;
        if matches!(pipe.phase, Phase::Closing { .. } | Phase::BackingOff { .. } | Phase::Running) {
            return self.look_again(slot, observer);
        }
        match pipe.greet() {
            Ok(true) => {}
            Ok(false) => {
                if !matches!(pipe.phase, Phase::Greeting { .. }) {
                    pipe.phase = Phase::Greeting { until: self.now + options.connect_timeout };
                }
                return self.look_again(slot, observer);
            }
            Err((which, error)) => {
                pipe.fail(which, &error);
                pipe.close(self.now);
                return self.look_again(slot, observer);
            }
        }
        pipe.phase = Phase::Opening;
        if let [Some(a), Some(b)] = &pipe.ends {
            observer.opened(pipe.number, [&a.name, &b.name]);
            pipe.run(options, self.now);
            self.queue(slot);
            return self.look_again(slot, observer);
        }
        let (here, there) = if pipe.ends[0].is_some() { (0, 1) } else { (1, 0) };
        match (state.plan.sides[here].listens, state.plan.sides[there].listens) {
            // The first one's client is there, and the second one's has still to come.
            (true, true) => {
                pipe.phase = Phase::Parked;
                state.parked.push_back(slot);
                self.heed_listeners(plan);
            }
            (true, false) => self.open(slot, there, observer),
            // Both are on their way already.
            (false, _) => {}
        }
        self.look_again(slot, observer);
    }

    pub(super) fn queue(&mut self, slot: usize) {
        if let Some(pipe) = &mut self.slots[slot].pipe
            && !std::mem::replace(&mut pipe.is_queued, true)
        {
            self.turns.push_back(slot);
        }
    }

    fn turn(&mut self, slot: usize, observer: &mut dyn Observer) {
        let Some(pipe) = &mut self.slots[slot].pipe else { return };
        pipe.is_queued = false;
        match pipe.phase {
            Phase::Running => {}
            Phase::Greeting { .. } => return self.go_on(slot, observer),
            Phase::Opening | Phase::Parked | Phase::BackingOff { .. } | Phase::Closing { .. } => {
                return self.look_again(slot, observer);
            }
        }
        let options = &self.plans[pipe.plan].plan.options;
        let (number, now) = (pipe.number, self.now);
        let wants_bytes = observer.wants_bytes();
        let mut turn = Turn { now, scratch: &mut self.scratch, spare: &mut self.spare, tee: None };
        let mut tee = |from: Which, bytes: &[u8]| observer.bytes(number, from, now, bytes);
        let tee: Option<Tap<'_>> = if wants_bytes { Some(&mut tee) } else { None };
        if pipe.turn(options, &mut turn, tee) {
            pipe.is_queued = true;
            self.turns.push_back(slot);
        }
        self.look_again(slot, observer);
    }

    /// Sets the time at which a pipe is looked at again, or ends it.
    pub(super) fn look_again(&mut self, slot: usize, observer: &mut dyn Observer) {
        let entry = &mut self.slots[slot];
        let Some(pipe) = &mut entry.pipe else { return };
        let options = &self.plans[pipe.plan].plan.options;
        if pipe.ends.iter().flatten().any(|end| end.hung_up) {
            pipe.give_up_if_left(self.now);
        }
        let is_closed = pipe.is_closed(options, self.now);
        while let Some(note) = pipe.take_note() {
            observer.note(&note);
        }
        if is_closed {
            return self.finish(slot, observer);
        }
        if let Some(at) = pipe.deadline(options) {
            // A later one is found when the earlier one rings.
            if pipe.alarm.is_none_or(|alarm| at < alarm) {
                pipe.alarm = Some(at);
                self.alarms.push(Reverse((at, slot, entry.generation)));
                self.forget_old_alarms();
            }
        }
    }

    /// Pipes that are over leave their alarms behind until they would have rung: with long limits
    /// and many short pipes that would be any number.
    fn forget_old_alarms(&mut self) {
        if self.alarms.len() > 64 + 4 * self.slots.len() {
            let slots = &self.slots;
            self.alarms.retain(|Reverse((at, slot, generation))| {
                let entry = slots.get(*slot).filter(|entry| entry.generation == *generation);
                entry.and_then(|entry| entry.pipe.as_ref()).is_some_and(|pipe| pipe.alarm == Some(*at))
            });
        }
    }

    /// What those that are open have carried.
    pub(super) fn open_ones(&self) -> OpenPipes {
        let mut open = OpenPipes::default();
        for pipe in self.slots.iter().filter_map(|slot| slot.pipe.as_ref()) {
            open.count += 1;
            pipe.add_to(&mut open.accounts);
        }
        open
    }

    pub(super) fn ring_alarms(&mut self, observer: &mut dyn Observer) {
        // First all that are due: a pipe may set its next time to now, and has its turn before.
        let mut due = Vec::new();
        while let Some(Reverse(alarm)) = self.alarms.peek().copied()
            && alarm.0 <= self.now
        {
            self.alarms.pop();
            due.push(alarm);
        }
        for (at, slot, generation) in due {
            let Some(entry) = self.slots.get_mut(slot).filter(|entry| entry.generation == generation) else { continue };
            let Some(pipe) = &mut entry.pipe else { continue };
            if pipe.alarm == Some(at) {
                pipe.alarm = None;
            }
            let options = &self.plans[pipe.plan].plan.options;
            pipe.keep_limits(options, self.now);
            match pipe.phase {
                Phase::Running if pipe.deadline(options).is_some_and(|due| due <= self.now) => self.queue(slot),
                Phase::Greeting { until } if until <= self.now => {
                    let after_ms = u64::try_from(options.connect_timeout.as_millis()).unwrap_or(u64::MAX);
                    let (which, endpoint) =
                        pipe.greeting().map_or_else(|| (0, String::new()), |(which, end)| (which, end.name.clone()));
                    pipe.fail(which, &Error::Silent { endpoint, to: "the beginning of TLS", after_ms });
                    pipe.close(self.now);
                }
                Phase::BackingOff { until } if until <= self.now => {
                    pipe.phase = Phase::Opening;
                    let missing: Vec<usize> = (0..2)
                        .filter(|&end| pipe.ends[end].is_none() && !self.plans[pipe.plan].plan.sides[end].listens)
                        .collect();
                    for end in missing {
                        self.open(slot, end, observer);
                    }
                }
                _ => {}
            }
            self.look_again(slot, observer);
        }
    }

    fn finish(&mut self, slot: usize, observer: &mut dyn Observer) {
        let entry = &mut self.slots[slot];
        let Some(mut pipe) = entry.pipe.take() else { return };
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
        let plan = pipe.plan;
        let state = &mut self.plans[plan];
        state.open -= 1;
        state.parked.retain(|parked| *parked != slot);
        if let Some(note) = state.tell_dropped(&mut pipe) {
            observer.note(&note);
        }
        for end in pipe.ends.iter().flatten() {
            if let Form::Client { peer, .. } = &end.form {
                state.clients.remove(peer);
            }
            end.input.iter().chain(&end.output).for_each(|fd| self.poller.remove(fd));
        }
        let summary = pipe.summary(&state.plan, self.now);
        let broke = summary.broke && summary.ended_by != EndedBy::Signal;
        // Before it is told, so that a terminal has its settings back by then.
        drop(pipe);
        observer.ended(summary);
        if state.plan.options.once {
            self.plans[plan].forget_listeners(&self.poller);
        }
        let state = &self.plans[plan];
        let goes = !state.plan.sides.iter().any(|side| side.listens);
        if goes && broke && state.plan.options.retries > 0 && !self.stopped {
            // A pipe that broke is made anew, after the shortest wait; that to connect lasts longer each time.
            let slot = self.make(plan);
            if let Some(pipe) = &mut self.slots[slot].pipe {
                pipe.phase = Phase::BackingOff { until: self.now + back_off(0) };
                observer.note("the pipe broke; making it anew");
            }
            return self.look_again(slot, observer);
        }
        self.heed_listeners(plan);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Options, Plan};

    struct Nobody;
    impl Observer for Nobody {}

    #[test]
    fn short_pipes_with_long_limits_leave_nothing_behind() {
        let options = Options { time: Some(taut_time::Duration::from_secs(86_400)), ..Options::default() };
        let sides = ["listen:tcp://127.0.0.1:0", "exec:cat"].map(|side| side.parse().unwrap());
        let plan = State::new(Plan { name: "test".to_owned(), sides, options }, &mut std::iter::empty()).unwrap();
        let (opener, _opened) = mpsc::channel();
        let bell = Arc::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap());
        let now = taut_link::clock::now();
        let mut pipes = Pipes::new(Poller::new().unwrap(), vec![plan], (opener, bell), now);
        for _ in 0..10_000 {
            let slot = pipes.make(0);
            pipes.look_again(slot, &mut Nobody);
            assert!(pipes.next_alarm().is_some());
            pipes.finish(slot, &mut Nobody);
        }
        assert!(pipes.alarms.len() < 100, "{}", pipes.alarms.len());
    }
}
