//! Two captures of a link of Bluetooth on one timeline: a host's log and a sniffer's capture, or both hosts' logs.
//!
//! - [`Crossings`]: the L2CAP PDUs that one file has, link by link, so many at most; of a sniffer the PDUs on the air,
//!   too.
//! - `align`: which PDU of one file is which of the other: by their bytes, and where those are in cipher text by their
//!   order and lengths.
//! - `pair`: which link of one file is which of the other, and what that tells of the clocks. The line through it is
//!   `fit`'s, as for TCP.
//! - `split`: what passed while the sender's controller had something.
//! - [`TracedLinks`]: the same of what a live trace saw; `meanwhile`: what the air did while somebody held a traced
//!   program's data.
//! - `report`: all of it.

mod air;
mod align;
mod between;
mod crossings;
mod host;
mod meanwhile;
mod pair;
mod pdu;
mod report;
mod split;
#[cfg(test)]
mod tests;
mod told;
mod traced;
mod within;

pub use air::OnAir;
pub use between::join_bluetooth;
pub use crossings::{Crossings, HostLink};
pub use told::{BluetoothWay, BluetoothWays, HeldOnAir, InController, Meanwhile, ProgramOnAir, TimesOn};
pub use traced::{FinishedLinks, TracedLinks};
