//! A foreign peer: a TCP receiver unlike Linux, which delays its acknowledgements by a time of one's choice.
//!
//! A Linux receiver that only reads acknowledges each small segment at once, so Nagle's algorithm (RFC 896) in the
//! sender has nothing to wait for. Other systems hold an acknowledgement back for up to 500 ms (RFC 1122, section
//! 4.2.3.2) or until the next tick of a coarse timer, and then the sender's small writes merge: one segment for each
//! ACK delay. This module brings such a receiver to the local machine:
//!
//! - [`ForeignPeer`]: the receiver, without I/O and without a clock.
//! - [`AckTimer`]: when it acknowledges.
//! - [`ForeignHost`]: the receiver at work behind a TUN device, in a network namespace of its own. The sender under
//!   test is the kernel's own TCP.
//!
//! ```no_run
//! use std::{net::TcpStream, time::Duration};
//! use taut_link::foreign::{AckTimer, ForeignHost};
//!
//! let host = ForeignHost::start(AckTimer::after(Duration::from_millis(56)))?;
//! let stream = host.in_namespace(|| TcpStream::connect(host.address()))??;
//! // ... write to the stream, from any thread, then:
//! let arrivals = host.take_arrivals(stream.local_addr()?.port());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod connection;
mod device;
mod machine;
mod namespace;
mod policy;
mod record;
mod segment;
mod tun;

pub use machine::{Config, ForeignPeer};
pub use policy::AckTimer;
pub use record::{AckSent, Arrival};
pub use tun::ForeignHost;
