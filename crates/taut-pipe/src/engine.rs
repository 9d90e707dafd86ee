//! The event loop: listeners, pipes, their times, and those who open ends for it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use taut_link::{Endpoint, Error, Listener, PeerAddress, Result, clock};
use taut_time::{Duration, Framing as Edges, Instant};

use crate::address::Address;
use crate::end::{End, Form, LEFT};
use crate::flow::{Desk, KernelPipe};
use crate::open::{self, Which};
use crate::pipe::{Phase, Pipe, Tap};
use crate::plan::{Plan, back_off};
use crate::poller::{Poller, Readiness, Token};
use crate::report::{EndedBy, Observer};
use crate::sys;
use crate::tls::TlsRole;

/// One buffer serves all reads: the longest message of a Unix socket.
const SCRATCH: usize = 128 << 10;
/// Stack of a thread that opens an end: resolving a name is what needs most.
const OPENER_STACK: usize = 256 << 10;
/// How long a listener rests when there is no descriptor or memory for a client.
const REST: Duration = Duration::from_millis(100);

const OPENED: u8 = 0;
const STOP: u8 = 1;

/// Makes pipes of plans and moves their bytes, in the thread that calls [`run`](Self::run).
pub struct Engine {
    poller: Poller,
    plans: Vec<State>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    turns: VecDeque<usize>,
    alarms: BinaryHeap<Reverse<(Instant, usize, u32)>>,
    resting: Vec<(Instant, usize, usize)>,
    opened: mpsc::Receiver<Opened>,
    opener: mpsc::Sender<Opened>,
    bell: Arc<OwnedFd>,
    scratch: Vec<u8>,
    spare: Vec<KernelPipe>,
    pipes: u64,
    now: Instant,
    stopped: bool,
}

struct Slot {
    generation: u32,
    pipe: Option<Box<Pipe>>,
}

/// A plan at work.
struct State {
    plan: Plan,
    tls: [Option<TlsRole>; 2],
    listeners: [Option<Arc<Listener>>; 2],
    /// Whether the listener is waited for.
    listens: [bool; 2],
    /// Pipes that there are.
    open: usize,
    /// Those whose second end's client has not come yet.
    parked: VecDeque<usize>,
    clients: HashMap<PeerAddress, usize>,
    refused: u64,
    /// Messages for which their listener's socket had no room, as far as they have been told of.
    dropped: u64,
}

struct Opened {
    slot: usize,
    generation: u32,
    end: usize,
    result: Result<End>,
}

impl Engine {
    /// Binds all listeners of the plans, the first `passed` of them to sockets that a service manager has bound.
    ///
    /// # Errors
    /// [`Error::Input`] when a plan makes no sense or a file of TLS can't be used; else as [`Listener::bind`].
    pub fn new(plans: Vec<Plan>, passed: Vec<OwnedFd>) -> Result<Self> {
        let host = |what: &str| {
            let what = what.to_owned();
            move |error: io::Error| Error::Host { what, error }
        };
        let poller = Poller::new().map_err(host("make an epoll"))?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| host("make an eventfd")(error.into()))?;
        poller.add_level(&bell, Token::Other(OPENED)).map_err(host("wait for an eventfd"))?;
        let (opener, opened) = mpsc::channel();
        let mut passed = passed.into_iter();
        let states: Vec<State> = plans.into_iter().map(|plan| State::new(plan, &mut passed)).collect::<Result<_>>()?;
        let left = passed.count();
        if left > 0 {
            return Err(Error::Input(format!("{left} more sockets were passed than there are ends with listen:")));
        }
        Ok(Self {
            poller,
            plans: states,
            slots: Vec::new(),
            free: Vec::new(),
            turns: VecDeque::new(),
            alarms: BinaryHeap::new(),
            resting: Vec::new(),
            opened,
            opener,
            bell: Arc::new(bell),
            scratch: vec![0; SCRATCH],
            spare: Vec::new(),
            pipes: 0,
            now: clock::now(),
            stopped: false,
        })
    }

    /// Where is listened, with the ports that the kernel picked, in the order of the plans.
    pub fn listening(&self) -> Vec<Endpoint> {
        self.plans
            .iter()
            .flat_map(|state| &state.listeners)
            .flatten()
            .map(|listener| listener.endpoint().clone())
            .collect()
    }

    /// Moves bytes until all pipes are over and nobody is listened for any more, or `stop` becomes readable.
    ///
    /// # Errors
    /// [`Error::Host`] when the kernel can't wait any more; what goes wrong with one pipe is told to the observer.
    pub fn run(&mut self, stop: &OwnedFd, observer: &mut dyn Observer) -> Result<()> {
        let host = |error| Error::Host { what: "wait for events".to_owned(), error };
        self.poller.add_level(stop, Token::Other(STOP)).map_err(host)?;
        self.now = clock::now();
        for plan in 0..self.plans.len() {
            if self.plans[plan].plan.sides.iter().any(|side| side.listens) {
                self.heed_listeners(plan);
            } else {
                self.begin(plan, observer);
            }
        }
        let mut events = Vec::new();
        while !self.is_over() {
            let wait = if self.turns.is_empty() { self.until_next() } else { Some(Duration::ZERO) };
            self.poller.wait(wait, &mut events).map_err(host)?;
            self.now = clock::now();
            for event in &events {
                self.handle(*event, observer);
            }
            // Each that has something to do now has one turn; who wants more gets it after the others.
            for _ in 0..self.turns.len() {
                if let Some(slot) = self.turns.pop_front() {
                    self.turn(slot, observer);
                }
            }
            self.ring_alarms(observer);
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let listens = |state: &State| state.listeners.iter().any(Option::is_some);
        self.plans.iter().all(|state| state.open == 0 && (self.stopped || !listens(state)))
    }

    fn until_next(&self) -> Option<Duration> {
        let alarm = self.alarms.peek().map(|Reverse((at, ..))| *at);
        let rest = self.resting.iter().map(|(at, ..)| *at).min();
        Some(alarm.into_iter().chain(rest).min()?.saturating_since(self.now))
    }

    fn handle(&mut self, event: Readiness, observer: &mut dyn Observer) {
        match event.token {
            Token::Other(OPENED) => {
                let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
                while let Ok(opened) = self.opened.try_recv() {
                    self.take_opened(opened, observer);
                }
            }
            Token::Other(_) => self.stop(observer),
            Token::Listener { plan, end } => {
                if self.plans[plan].has_messages(end) {
                    self.sort_messages(plan, end, observer);
                } else {
                    self.accept(plan, end, observer);
                }
            }
            Token::End { slot, generation, end } => {
                let Some(entry) = self.slots.get_mut(slot).filter(|entry| entry.generation == generation) else {
                    return;
                };
                let Some(pipe) = &mut entry.pipe else { return };
                if let Some(end) = &mut pipe.ends[end] {
                    end.readable |= event.readable;
                    end.writable |= event.writable;
                    end.hung_up |= event.hung_up;
                }
                if !std::mem::replace(&mut pipe.is_queued, true) {
                    self.turns.push_back(slot);
                }
            }
        }
    }

    // Pipes: from their beginning to their account.

    fn begin(&mut self, plan: usize, observer: &mut dyn Observer) {
        let slot = self.make(plan);
        for which in [Which::A, Which::B] {
            if !self.plans[plan].plan.sides[which.index()].listens {
                self.open(slot, which.index(), observer);
            }
        }
    }

    fn make(&mut self, plan: usize) -> usize {
        self.pipes += 1;
        self.plans[plan].open += 1;
        let pipe = Box::new(Pipe::new(self.pipes, plan, self.now));
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
        let state = &self.plans[pipe.plan];
        let address = state.plan.sides[end].address.clone();
        let (tls, timeout) = (state.tls[end].clone(), state.plan.options.connect_timeout);
        let (opener, bell) = (self.opener.clone(), Arc::clone(&self.bell));
        let work = move || {
            let result = open::open(&address, Which::of(end), tls.as_ref(), timeout);
            // Both fail only when nobody waits for it any more.
            let _ = opener.send(Opened { slot, generation, end, result });
            let _ = rustix::io::write(&bell, &1_u64.to_ne_bytes());
        };
        if let Err(error) = thread::Builder::new().name("opener".to_owned()).stack_size(OPENER_STACK).spawn(work) {
            let error = Error::Host { what: "start a thread".to_owned(), error };
            self.take_opened(Opened { slot, generation, end, result: Err(error) }, observer);
        }
    }

    fn take_opened(&mut self, opened: Opened, observer: &mut dyn Observer) {
        let Opened { slot, generation, end, result } = opened;
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
    fn put(&mut self, slot: usize, end: usize, open: End, observer: &mut dyn Observer) {
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
            Err(why) => {
                let which = pipe.ends.iter().position(Option::is_some).unwrap_or(0);
                let endpoint = pipe.ends[which].as_ref().map_or_else(String::new, |end| end.name.clone());
                pipe.fail(which, &Error::Refused { endpoint, reason: why });
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

    fn queue(&mut self, slot: usize) {
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
        let mut desk = Desk { now, scratch: &mut self.scratch, spare: &mut self.spare, tee: None };
        let mut tee = |from: Which, bytes: &[u8]| observer.bytes(number, from, now, bytes);
        let tee: Option<Tap<'_>> = if wants_bytes { Some(&mut tee) } else { None };
        if pipe.turn(options, &mut desk, tee) {
            pipe.is_queued = true;
            self.turns.push_back(slot);
        }
        self.look_again(slot, observer);
    }

    /// Sets the time at which a pipe is looked at again, or ends it.
    fn look_again(&mut self, slot: usize, observer: &mut dyn Observer) {
        let entry = &mut self.slots[slot];
        let Some(pipe) = &mut entry.pipe else { return };
        let options = &self.plans[pipe.plan].plan.options;
        if pipe.ends.iter().flatten().any(|end| end.hung_up) {
            pipe.give_up_if_left(self.now);
        }
        if pipe.is_closed(options, self.now) {
            return self.finish(slot, observer);
        }
        if let Some(at) = pipe.deadline(options) {
            // A later one is found when the earlier one rings.
            if pipe.alarm.is_none_or(|alarm| at < alarm) {
                pipe.alarm = Some(at);
                self.alarms.push(Reverse((at, slot, entry.generation)));
            }
        }
    }

    fn ring_alarms(&mut self, observer: &mut dyn Observer) {
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
                    let which = pipe.ends.iter().position(Option::is_some).unwrap_or(0);
                    let endpoint = pipe.ends[which].as_ref().map_or_else(String::new, |end| end.name.clone());
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
        let now = self.now;
        let rested: Vec<(usize, usize)> =
            self.resting.extract_if(.., |(at, ..)| *at <= now).map(|(_, plan, end)| (plan, end)).collect();
        for (plan, _) in rested {
            self.heed_listeners(plan);
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
        let failed = summary.failed && summary.ended_by != EndedBy::Signal;
        // Before it is told, so that a terminal has its settings back by then.
        drop(pipe);
        observer.ended(summary);
        if state.plan.options.once {
            self.forget_listeners(plan);
        }
        let state = &self.plans[plan];
        let goes = !state.plan.sides.iter().any(|side| side.listens);
        if goes && failed && state.plan.options.retries > 0 && !self.stopped {
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

    fn stop(&mut self, observer: &mut dyn Observer) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        for plan in 0..self.plans.len() {
            for end in [0, 1] {
                if self.plans[plan].has_messages(end) {
                    self.take_last_messages(plan, end, observer);
                }
            }
        }
        for state in &mut self.plans {
            for (end, listener) in state.listeners.iter_mut().enumerate() {
                if std::mem::take(&mut state.listens[end])
                    && let Some(listener) = listener
                {
                    self.poller.remove(listener.as_fd());
                }
                *listener = None;
            }
        }
        for slot in 0..self.slots.len() {
            if let Some(pipe) = &mut self.slots[slot].pipe {
                pipe.end(EndedBy::Signal, "we were asked to end");
                pipe.close(self.now);
                self.look_again(slot, observer);
            }
        }
    }

    // Listeners.

    /// Waits for a plan's listeners, or does not, as there is room for clients.
    fn heed_listeners(&mut self, plan: usize) {
        let state = &mut self.plans[plan];
        for end in [0, 1] {
            let Some(listener) = &state.listeners[end] else { continue };
            let rests = self.resting.iter().any(|(_, of, at)| (*of, *at) == (plan, end));
            let is_second = end == 1 && state.plan.sides[0].listens;
            let has_room = if is_second { !state.parked.is_empty() } else { state.open < state.plan.options.clients };
            // A socket of messages is read even when there is no room: what comes for those that are served has to get through.
            let wanted = !self.stopped && !rests && (has_room || state.has_messages(end));
            if wanted && !state.listens[end] {
                state.listens[end] = self.poller.add_level(listener.as_fd(), Token::Listener { plan, end }).is_ok();
            } else if !wanted && state.listens[end] {
                self.poller.remove(listener.as_fd());
                state.listens[end] = false;
            }
        }
    }

    fn accept(&mut self, plan: usize, end: usize, observer: &mut dyn Observer) {
        let Some(listener) = self.plans[plan].listeners[end].clone() else { return };
        let is_second = end == 1 && self.plans[plan].plan.sides[0].listens;
        while self.plans[plan].listens[end] {
            if is_second && !self.is_waited_with(plan, observer) {
                return self.heed_listeners(plan);
            }
            let (link, from) = match listener.accept_from() {
                Ok(accepted) => accepted,
                Err(error) => {
                    if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
                    {
                        observer.note(&format!("{}: {error}; resting for {REST:?}", listener.endpoint()));
                        self.resting.push((self.now + REST, plan, end));
                        self.heed_listeners(plan);
                    }
                    // Others are of one client that has gone already.
                    return;
                }
            };
            let name = open::client_name(&self.plans[plan].plan.sides[end].to_string(), from, &link);
            let opened = open::of_link(link, name).and_then(|mut open| {
                if let Some(role) = &self.plans[plan].tls[end] {
                    open.form = Form::Tls(role.begin("")?);
                }
                Ok(open)
            });
            let open = match opened {
                Ok(mut open) => {
                    open.is_client = true;
                    open
                }
                Err(error) => {
                    observer.note(&error.to_string());
                    continue;
                }
            };
            let parked = if is_second { self.plans[plan].parked.pop_front() } else { None };
            let slot = parked.unwrap_or_else(|| self.make(plan));
            let is_last = self.plans[plan].plan.options.once && (end == 1 || !self.plans[plan].plan.sides[1].listens);
            self.put(slot, end, open, observer);
            if is_last {
                self.forget_listeners(plan);
                return;
            }
            self.heed_listeners(plan);
        }
    }

    /// Whether the first one of those that wait for a second client is still there; those before it that are not are given up.
    /// One that has closed its side is first only where there is no other.
    fn is_waited_with(&mut self, plan: usize, observer: &mut dyn Observer) -> bool {
        let slots = &mut self.slots;
        let is_whole = |slot: &usize| slots[*slot].pipe.as_mut().is_some_and(|pipe| pipe.who_left().is_none());
        let parked = &mut self.plans[plan].parked;
        if let Some(whole) = parked.iter().position(is_whole).and_then(|index| parked.remove(index)) {
            parked.push_front(whole);
        }
        while let Some(&slot) = self.plans[plan].parked.front() {
            if let Some(pipe) = &mut self.slots[slot].pipe
                && pipe.phase == Phase::Parked
                && !pipe.give_up_if_left(self.now)
            {
                return true;
            }
            self.plans[plan].parked.pop_front();
            self.look_again(slot, observer);
        }
        false
    }

    fn forget_listeners(&mut self, plan: usize) {
        let state = &mut self.plans[plan];
        for end in [0, 1] {
            if let Some(listener) = state.listeners[end].take() {
                self.poller.remove(listener.as_fd());
                state.listens[end] = false;
            }
        }
    }

    /// Gives each message at a socket of many clients to the pipe of its sender, a new one if need be.
    fn sort_messages(&mut self, plan: usize, end: usize, observer: &mut dyn Observer) {
        let Some(listener) = self.plans[plan].listeners[end].clone() else { return };
        let now = self.now;
        let mut scratch = std::mem::take(&mut self.scratch);
        // A turn's worth; the level tells that there is more.
        for _ in 0..64 {
            let (bytes, peer) = match listener.receive_from(&mut scratch) {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            let state = &mut self.plans[plan];
            let known = state.clients.get(&peer).copied();
            if known.is_none() && state.open >= state.plan.senders(end)
                || (known.is_none() && state.once_is_over(self.pipes))
            {
                state.refused += 1;
                if state.refused == 1 {
                    let most = match state.plan.senders(end) {
                        most if most < state.plan.options.clients => format!(" beside {most} programs (--children)"),
                        _ => String::new(),
                    };
                    observer.note(&format!("{}: no room for {peer}{most}; its messages are lost", listener.endpoint()));
                }
                continue;
            }
            let slot = known.unwrap_or_else(|| self.make(plan));
            if known.is_none() {
                let state = &mut self.plans[plan];
                state.clients.insert(peer.clone(), slot);
                let name = format!("{} from {peer}", state.plan.sides[end]);
                let limit = listener.endpoint().datagram_limit().unwrap_or(usize::MAX);
                let form = Form::Client { listener: Arc::clone(&listener), peer, inbox: VecDeque::new() };
                let mut open = End::new(name, form, None);
                open.write_limit = limit;
                open.halves = false;
                open.is_client = true;
                self.put(slot, end, open, observer);
            }
            if let Some(pipe) = &mut self.slots[slot].pipe {
                pipe.deliver(end, &scratch[..bytes], now);
            }
            self.queue(slot);
        }
        self.scratch = scratch;
    }

    /// Takes what is left at a socket of many clients, so that it is in their accounts.
    fn take_last_messages(&mut self, plan: usize, end: usize, observer: &mut dyn Observer) {
        let now = self.now;
        let state = &self.plans[plan];
        let Some(listener) = &state.listeners[end] else { return };
        let mut strangers = 0_u64;
        for _ in 0..LEFT {
            let (bytes, peer) = match listener.receive_from(&mut self.scratch) {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            match state.clients.get(&peer).and_then(|slot| self.slots[*slot].pipe.as_mut()) {
                Some(pipe) => {
                    pipe.deliver(end, &self.scratch[..bytes], now);
                }
                None => strangers += 1,
            }
        }
        if strangers > 0 {
            observer.note(&format!(
                "{}: {strangers} messages came too late for a pipe; they are lost",
                listener.endpoint()
            ));
        }
    }
}

impl State {
    fn new(plan: Plan, passed: &mut impl Iterator<Item = OwnedFd>) -> Result<Self> {
        plan.check()?;
        let tls = plan.tls_roles()?;
        let mut listeners = [None, None];
        for (end, side) in plan.sides.iter().enumerate() {
            let endpoint = match &side.address {
                Address::Link(endpoint) | Address::Tls { endpoint, .. } if side.listens => endpoint,
                _ => continue,
            };
            let listener = match passed.next() {
                Some(socket) => Listener::adopt(endpoint, socket)?,
                None => Listener::bind(endpoint)?,
            };
            listener.set_nonblocking(true)?;
            listeners[end] = Some(Arc::new(listener));
        }
        let (listens, parked, clients) = ([false; 2], VecDeque::new(), HashMap::new());
        Ok(Self { plan, tls, listeners, listens, open: 0, parked, clients, refused: 0, dropped: 0 })
    }

    /// Puts messages for which there was no room to the account of the client whose they were; where that is not known, says so.
    fn tell_dropped(&mut self, pipe: &mut Pipe) -> Option<String> {
        let (end, listener) = pipe.ends.iter().enumerate().find_map(|(which, end)| match &end.as_ref()?.form {
            Form::Client { listener, .. } => Some((which, Arc::clone(listener))),
            _ => None,
        })?;
        let dropped = sys::dropped(listener.as_fd());
        let new = dropped.saturating_sub(std::mem::replace(&mut self.dropped, dropped));
        if self.clients.len() == 1 && self.refused == 0 {
            pipe.note_dropped(end, new);
            return None;
        }
        let endpoint = listener.endpoint();
        (new > 0).then(|| {
            format!("{endpoint}: {new} messages are lost: the socket had no room; whose they were is not known")
        })
    }

    fn has_messages(&self, end: usize) -> bool {
        self.listeners[end].as_ref().is_some_and(|listener| listener.endpoint().framing() == Edges::Datagram)
    }

    /// With `once`, the first client is the only one.
    const fn once_is_over(&self, pipes: u64) -> bool {
        self.plan.options.once && pipes > 0
    }
}
