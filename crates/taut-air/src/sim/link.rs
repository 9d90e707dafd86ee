use alloc::string::ToString;

use taut_time::Instant;

use super::arrival::Arrival;
use super::observe::Observer;
use super::outcome::Outcome;
use super::setup::SETUP;
use super::world::World;
use crate::role::Role;
use crate::scenario::{Scenario, ScenarioError};
use crate::time::after;

/// A link whose two programs are outside: they write and read in virtual time.
///
/// The first link of the scenario is used. Blocks, `block_work` and `period` play no part; all else
/// does, wake-up times of both hosts too.
///
/// ```
/// use taut_air::{AirLink, Role, Scenario};
///
/// let mut link = AirLink::open(&Scenario::default(), 7, &mut ())?;
/// let begun = link.now();
/// link.write(Role::Central, b"ping");
/// let arrival = link.wait(begun + core::time::Duration::from_secs(1), &mut ()).expect("within a second");
/// assert_eq!((arrival.side, &arrival.bytes[..]), (Role::Peripheral, &b"ping"[..]));
/// // It had to wait for the next connection event, 50 ms at most.
/// assert!(arrival.at > begun && arrival.at.signed_since(begun) < 60_000_000);
/// # Ok::<(), taut_air::ScenarioError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AirLink {
    world: World,
}

impl AirLink {
    /// Connects and opens the channel; virtual time stands at that moment then.
    ///
    /// An error when the scenario's parameters don't fit each other, or when the link doesn't come
    /// up within five virtual minutes: the medium loses too much.
    pub fn open(scenario: &Scenario, seed: u64, observer: &mut impl Observer) -> Result<Self, ScenarioError> {
        scenario.check()?;
        let mut world = World::new(&Scenario { links: 1, ..scenario.clone() }, seed);
        let limit = after(world.now(), SETUP);
        while !world.is_ready() && world.step(limit, observer) {}
        if !world.is_ready() {
            let message = "the link did not come up within five virtual minutes: the medium loses too much".to_string();
            return Err(ScenarioError::whole(message));
        }
        world.measure(observer);
        world.keep_arrivals();
        Ok(Self { world })
    }

    /// Virtual time.
    pub const fn now(&self) -> Instant {
        self.world.now()
    }

    /// Longest SDU that `side` may send; longer writes become several.
    pub fn mtu(&self, side: Role) -> u16 {
        self.world.mtu(side)
    }

    /// The program of `side` has these bytes to send, now. They wait for the socket, as far as it doesn't take them.
    pub fn write(&mut self, side: Role, bytes: &[u8]) {
        self.world.write(side, bytes);
    }

    /// Bytes written that the socket of `side` has not taken.
    pub fn unwritten(&self, side: Role) -> usize {
        self.world.unwritten(side)
    }

    /// When something happens next in the model; `None` when nothing ever will.
    pub fn deadline(&self) -> Option<Instant> {
        self.world.deadline()
    }

    /// Lets time pass until a program has read something, at most to `until`. What has been read
    /// comes out in order; time stands at that moment then, or at `until`.
    pub fn wait(&mut self, until: Instant, observer: &mut impl Observer) -> Option<Arrival> {
        loop {
            if let Some(arrival) = self.world.arrival() {
                return Some(arrival);
            }
            if !self.world.step(until, observer) {
                return self.world.arrival();
            }
        }
    }

    /// HCI's reason when the link is gone.
    pub const fn disconnected(&self) -> Option<u8> {
        self.world.disconnected()
    }

    /// The books since the link was opened. Throughput and latencies count both directions.
    pub fn outcome(&mut self, observer: &mut impl Observer) -> Outcome {
        self.world.outcome(observer)
    }
}
