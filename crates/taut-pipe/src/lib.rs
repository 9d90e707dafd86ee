//! Joins two endpoints of any kind in both directions.
//!
//! - [`Side`], [`Address`]: one end as written.
//! - [`Plan`], [`Options`]: a pipe to be made, and its limits; [`parse_config`] reads many from a file.
//! - [`Engine`]: one thread that makes pipes of plans and moves bytes, until all are over.
//! - [`Observer`], [`PipeReport`]: what it tells.
//! - [`framing`]: messages on streams, without I/O.
//!
//! From text to bytes: `address`, `config` > `plan` > `engine` (event loop) > `pipe` (one pair of
//! ends) > `flow` (one direction) > `end` (one channel, as `open` made it).

mod address;
mod config;
mod end;
mod engine;
mod flow;
pub mod framing;
mod hint;
mod open;
mod pipe;
mod plan;
mod poller;
mod report;
mod sys;
mod tty;
mod words;

pub use address::{Address, Side};
pub use config::parse as parse_config;
pub use engine::Engine;
pub use open::Which;
pub use plan::{Options, Plan};
pub use report::{Account, EndedBy, Observer, OpenPipes, PipeReport};
pub use taut_link::tls::TlsFiles;
pub use tty::{Flow, Parity, TtySettings};

/// The longest message that is carried, in bytes: that of a UDP datagram over IPv4 (RFC 768).
pub const MESSAGE_LIMIT: usize = 65_507;
