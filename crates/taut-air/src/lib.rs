//! Bluetooth LE, and ACL links of BR/EDR, as pure state machines, and their simulation in virtual time.
//!
//! - Machines: [`controller::Controller`] (HCI above, packets on the air below, the link layer
//!   inside), [`host::Host`] (Linux's L2CAP and the programs on it), [`transport::Pipe`],
//!   [`medium::Medium`]. Each takes what happens at a time, gives what follows from it, and tells its
//!   next deadline. None reads a clock, opens anything or draws randomness that it was not given.
//! - [`Scenario`]: all parameters, by name, from text.
//! - [`Air`]: the controllers and the medium alone, for hosts from elsewhere: a kernel's, say.
//! - [`Simulation`]: the machines of both sides in virtual time; [`Observer`] sees everything, [`Outcome`] is the sum,
//!   [`Ledger`] tells for every nanosecond of the run what the air was used for or who kept it idle.
//! - [`AirLink`]: the same link with programs outside, in virtual time.
//! - [`Limit`]: what the link could carry.
#![no_std]

extern crate alloc;

mod air;
pub mod bredr;
mod cipher;
pub mod controller;
pub mod hci;
pub mod host;
pub mod l2cap;
mod ledger;
mod limit;
mod link;
pub mod medium;
pub mod pdu;
mod phy;
mod rng;
mod role;
pub mod scenario;
mod sim;
mod time;
pub mod transport;

pub use air::{Air, ToHost};
pub use ledger::{Category, Ledger};
pub use limit::{L2CAP_HEADER_BYTES, Limit, SDU_LENGTH_BYTES};
pub use link::{CloseReason, PduKind, Pickup, Reception};
pub use phy::{ACCESS_ADDRESS_BYTES, CRC_BYTES, HEADER_BYTES, MAX_LENGTH, MIC_BYTES, MIN_LENGTH, Phy};
pub use rng::Random;
pub use role::Role;
pub use scenario::{PARAMETERS, Parameter, Scenario, ScenarioError, Scope, Side};
pub use sim::{
    AirEvent, AirLink, Arrival, Counters, Happening, Latencies, Negotiated, Observer, Outcome, Purpose, Simulation,
};
pub use taut_time::{Duration, Instant};
pub use time::Nanos;
