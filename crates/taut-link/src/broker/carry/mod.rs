//! Messages carried over a broker from a writer to a reader, with an account of what came of them.
//!
//! - [`Carriage`]: the settings of an address that concern only this.
//! - [`Carrier`]: one connection to a broker that is made again when it breaks; no call of it waits but
//!   [`Carrier::open`].
//! - [`BrokerAccount`]: what a carrier knows of its messages.
//!
//! `carrier` (what is done with it), `line` (its connection) > `wire` (socket and TLS), `writer`, `reader` (who keeps
//! what, without I/O) > `ledger` (numbers that came and that did not), `suspicion` (messages at which connections
//! break), `envelope` (what stands with a message), `receipt` (what reader and writer tell each other), `account`.

mod account;
mod carrier;
mod envelope;
mod ledger;
mod line;
mod reader;
mod receipt;
mod settings;
mod suspicion;
#[cfg(test)]
mod tests;
mod wire;
mod writer;

pub use account::{BrokerAccount, HeardAccount, ReaderAccount, WrittenAccount};
pub use carrier::{Directions, Offered};
pub use line::Carrier;
pub use settings::Carriage;
