//! From the timeline of a path to the ledger of its waiting and to findings.
//!
//! - [`ledger()`]: how long the messages waited in each layer.
//! - [`Finding`]: cause, evidence, cost, remedy.
//! - [`air`]: a Bluetooth LE link, and what binds its throughput.
//! - [`l2cap`]: an L2CAP channel of Bluetooth LE under a real kernel.
//! - [`nagle`]: writes held by Nagle's algorithm until the peer's delayed acknowledgement.

pub mod air;
mod finding;
pub mod l2cap;
mod ledger;
pub mod nagle;

pub use finding::{Finding, Proof};
pub use ledger::{Stage, ledger};
