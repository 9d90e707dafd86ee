//! Meshes: measurements between many hosts.
//!
//! - [`Plan`]: the file, with nothing unknown in it: hosts, which pairs, what is measured, what is too slow.
//! - [`choose`]: who measures whom; each pair once, and every host about as often.
//! - [`Sums`]: what a plan comes to in packets, series and bytes, before anything is sent.
//! - [`Schedule`]: which measurement may begin now. What is to be alone on a host or in a rack has a lease of it.
//! - [`judge()`]: which pairs are beyond their thresholds, also beside the other pairs.
//! - [`Matrix`]: a square of all pairs.
//! - [`run()`]: starts servers and clients over there by a command of the user ([`Via`]), and gathers.
//!
//! All but the last are sums: they open nothing, wait for nothing and read no clock. How a measurement gets to its host
//! is known to `run` alone, so agents that are told over a broker can take the same plan and schedule.

mod blank;
#[cfg(feature = "nats")]
mod bus;
mod counts;
mod error;
mod far;
mod figure;
mod host;
mod judge;
mod matrix;
mod outcome;
mod pairs;
mod plan;
mod process;
mod reply;
mod run;
mod schedule;
mod spread;
mod sums;
mod task;
mod warn;
mod words;
mod work;

#[cfg(feature = "nats")]
pub use bus::{
    AgentEnded, AgentSettings, AgentTally, Allowed, GatherSettings, Gathered, Hours, MOST_TIME, Network, Own,
    Rehearsal, Servers, agent, gather,
};
pub use counts::{AgentCounts, CountedPair, MOST_COUNTED, PairCounts};
pub use error::Error;
pub use far::Via;
pub use figure::{Figure, Measured};
pub use host::Host;
pub use judge::judge;
pub use matrix::{Cell, Matrix};
pub use outcome::{
    Between, Explained, Explanation, Failures, HostOutcome, MeshOutcome, Miss, PairOutcome, Reached, Results, Usual,
    WorkOutcome,
};
pub use pairs::{MOST_PAIRS, Pair, choose};
pub use plan::{MOST_HOSTS, Pairs, Plan};
pub use run::{Progress, Settings, run};
pub use schedule::{Alone, Job, Limits, Schedule};
pub use sums::{Sums, WorkSums};
pub use warn::{Limit, Term, Warn};
pub use work::{Kind, Transport, Work};
