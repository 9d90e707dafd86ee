//! From the timeline of a path to the ledger of its waiting and to findings.
//!
//! - [`ledger()`]: how long the messages waited in each layer.
//! - [`Finding`]: cause, evidence, cost, remedy.
//! - [`air`]: a Bluetooth LE link, and what binds its throughput.
//! - [`nagle`]: writes held by Nagle's algorithm until the peer's delayed acknowledgement.

pub mod air;
mod finding;
mod ledger;
pub mod nagle;

pub use finding::{Finding, Proof};
pub use ledger::{Stage, ledger};
