//! From the timeline of a path to the ledger of its waiting and to findings.
//!
//! - [`ledger()`]: how long the messages waited in each layer.
//! - [`Finding`]: cause, evidence, cost, remedy.
//! - [`nagle`]: writes held by Nagle's algorithm until the peer's delayed acknowledgement.

mod finding;
mod ledger;
pub mod nagle;

pub use finding::Finding;
pub use ledger::{Stage, ledger};
