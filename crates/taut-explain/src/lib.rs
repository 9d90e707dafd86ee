//! From the timeline of a path to the ledger of its waiting and to findings.
//!
//! - [`Engine`]: takes events of any number of flows, and says who held the data of each.
//! - [`ledger()`]: how long the messages waited in each layer.
//! - [`Finding`]: cause, evidence, cost, remedy.
//! - [`air`]: a Bluetooth LE link, and what binds its throughput.
//! - [`broker`]: messages held on the way to a broker or from it.
//! - [`join`]: two captures of one path on one timeline, or a capture and a trace.
//! - [`l2cap`]: an L2CAP channel of Bluetooth LE under a real kernel.
//! - [`nagle`]: writes held by Nagle's algorithm until the peer's delayed acknowledgement.
//! - [`socket`]: who holds what a socket has to send, from its state at one moment.
//! - [`trace`]: the ledger of a live trace: the same from the states at each event.
//! - [`watch`]: losses that stand over several intervals.

pub mod air;
pub mod broker;
pub mod broker_loss;
mod channel;
mod dns;
mod engine;
mod finding;
pub mod join;
pub mod l2cap;
mod ledger;
pub mod nagle;
mod quanta;
mod quic;
mod sniffer;
pub mod socket;
mod tcp;
pub mod trace;
mod udp;
pub mod watch;
mod words;

pub use engine::{
    AirFacts, CauseIn, CauseTime, Certainty, ChannelFacts, Cost, DatagramFacts, Direction, DnsFacts, DnsServer, Engine,
    Evidence, Explanation, Found, GattFacts, GattHandle, Held, HostPair, Latest, LinkModel, LongStall, ModelledLink,
    ModelledRemedy, MostHeld, OverAll, Percentile, Picture, QuicFacts, QuicLogFacts, Rank, Span, Stall, StreamFacts,
    Times, TimesOf, TimesOverAll, Unanswered, Verdict, VerdictOn, causes,
};
pub use finding::{Finding, Proof, Unit};
pub use ledger::{Stage, ledger};
