//! The event loop: waits, and gives what happened to pipes, clients and plans.
//!
//! `mod` (the loop) > `clients` (who comes to listeners) > `pipes` (from their beginning to their
//! account) > `plans` (listeners).

mod clients;
mod pipes;
mod plans;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};

use rustix::event::{EventfdFlags, eventfd};
use taut_link::{Endpoint, Error, Result, clock};
use taut_time::{Duration, Instant};

use crate::plan::Plan;
use crate::poller::{Poller, Readiness, Token};
use crate::report::{EndedBy, Observer};
use pipes::{Opened, Pipes};
use plans::State;

const OPENED: u8 = 0;
const STOP: u8 = 1;

/// Makes pipes of plans and moves their bytes, in the thread that calls [`run`](Self::run).
pub struct Engine {
    pipes: Pipes,
    opened: mpsc::Receiver<Opened>,
    bell: Arc<OwnedFd>,
}

impl Engine {
    /// Binds all listeners of the plans, the first `passed` of them to sockets that a service manager has bound.
    ///
    /// # Errors
    /// [`Error::Input`] when a plan makes no sense or a file of TLS can't be used; else as
    /// [`taut_link::Listener::bind`].
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
        let bell = Arc::new(bell);
        let pipes = Pipes::new(poller, states, (opener, Arc::clone(&bell)), clock::now());
        Ok(Self { pipes, opened, bell })
    }

    /// Where is listened, with the ports that the kernel picked, in the order of the plans.
    pub fn listening(&self) -> Vec<Endpoint> {
        let listeners = self.pipes.plans.iter().flat_map(|state| &state.listeners).flatten();
        listeners.map(|listener| listener.endpoint().clone()).collect()
    }

    /// Moves bytes until all pipes are over and nobody is listened for any more, or `stop` becomes readable.
    ///
    /// # Errors
    /// [`Error::Host`] when the kernel can't wait any more; what goes wrong with one pipe is told to the observer.
    pub fn run(&mut self, stop: &OwnedFd, observer: &mut dyn Observer) -> Result<()> {
        let host = |error| Error::Host { what: "wait for events".to_owned(), error };
        self.pipes.poller.add_level(stop, Token::Other(STOP)).map_err(host)?;
        self.pipes.now = clock::now();
        for plan in 0..self.pipes.plans.len() {
            if self.pipes.plans[plan].plan.sides.iter().any(|side| side.listens) {
                self.pipes.heed_listeners(plan);
            } else {
                self.pipes.begin(plan, observer);
            }
        }
        let mut events = Vec::new();
        while !self.is_over() {
            let wait =
                if self.pipes.have_turns() { Some(Duration::ZERO) } else { self.until_next(observer.next_look()) };
            self.pipes.poller.wait(wait, &mut events).map_err(host)?;
            self.pipes.now = clock::now();
            for event in &events {
                self.handle(*event, observer);
            }
            if self.pipes.stopped {
                // It stays readable, and has said all that it has to.
                self.pipes.poller.remove(stop);
            }
            self.pipes.take_turns(observer);
            self.pipes.ring_alarms(observer);
            self.end_rests();
            if observer.next_look().is_some_and(|at| at <= self.pipes.now) {
                observer.look(&self.pipes.open_ones());
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let listens = |state: &State| state.listeners.iter().any(Option::is_some);
        self.pipes.plans.iter().all(|state| state.open == 0 && (self.pipes.stopped || !listens(state)))
    }

    fn until_next(&self, look: Option<Instant>) -> Option<Duration> {
        let rests = self.pipes.plans.iter().filter_map(State::rest_over);
        Some(self.pipes.next_alarm().into_iter().chain(rests).chain(look).min()?.saturating_since(self.pipes.now))
    }

    fn end_rests(&mut self) {
        for plan in 0..self.pipes.plans.len() {
            if self.pipes.plans[plan].end_rests(self.pipes.now) {
                self.pipes.heed_listeners(plan);
            }
        }
    }

    fn handle(&mut self, event: Readiness, observer: &mut dyn Observer) {
        match event.token {
            Token::Other(OPENED) => {
                let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
                while let Ok(opened) = self.opened.try_recv() {
                    self.pipes.take_opened(opened, observer);
                }
            }
            Token::Other(_) => self.stop(observer),
            Token::Listener { plan, end } => {
                if self.pipes.plans[plan].has_messages(end) {
                    self.pipes.sort_messages(plan, end, observer);
                } else {
                    self.pipes.accept(plan, end, observer);
                }
            }
            Token::End { slot, generation, end } => self.pipes.heed((slot, generation, end), event),
        }
    }

    fn stop(&mut self, observer: &mut dyn Observer) {
        let pipes = &mut self.pipes;
        if std::mem::replace(&mut pipes.stopped, true) {
            return;
        }
        for plan in 0..pipes.plans.len() {
            for end in [0, 1] {
                if pipes.plans[plan].has_messages(end) {
                    pipes.take_last_messages(plan, end, observer);
                }
            }
        }
        for state in &mut pipes.plans {
            state.forget_listeners(&pipes.poller);
        }
        for slot in 0..pipes.slots.len() {
            if let Some(pipe) = &mut pipes.slots[slot].pipe {
                pipe.end(EndedBy::Signal, "we were asked to end");
                pipe.close(pipes.now);
                pipes.look_again(slot, observer);
            }
        }
    }
}
