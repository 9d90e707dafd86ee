//! The machines of both sides, driven in virtual time: on to the next deadline, again and again.

mod account;
mod arrival;
mod latency;
mod link;
mod node;
mod observe;
mod outcome;
mod purpose;
mod setup;
mod world;

use taut_time::Instant;

use crate::scenario::{Scenario, ScenarioError};
use crate::time::{Nanos, after};

pub use arrival::Arrival;
pub use latency::Latencies;
pub use link::AirLink;
pub use observe::{AirEvent, Happening, Observer, Purpose};
pub use outcome::{Counters, Negotiated, Outcome};
pub(crate) use purpose::Parts;
use setup::SETUP;
use world::World;

/// A simulation of a scenario. Equal scenarios and seeds give equal runs, event by event.
#[derive(Clone, Debug)]
pub struct Simulation {
    world: World,
}

impl Simulation {
    /// The machines of `scenario`, powered off. An error when its parameters don't fit each other.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Self, ScenarioError> {
        scenario.check()?;
        Ok(Self { world: World::new(scenario, seed) })
    }

    /// Connects, opens the channels, and from then on writes for `duration`. A second call goes on.
    ///
    /// The observer sees everything from the first advertising packet on; the [`Outcome`] begins
    /// where the writing does.
    pub fn run(&mut self, duration: Nanos, observer: &mut impl Observer) -> Outcome {
        let world = &mut self.world;
        if !world.is_measuring() {
            let limit = after(world.now(), SETUP);
            while !world.is_ready() && world.step(limit, observer) {}
            if world.is_ready() {
                world.measure(observer);
                world.start_writing(observer);
            }
        }
        if world.is_measuring() {
            let end = after(world.now(), duration);
            while world.step(end, observer) {}
        }
        world.outcome(observer)
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.world.now()
    }
}
