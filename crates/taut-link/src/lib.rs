//! Endpoints and sockets of every kind, their options and timestamps, and the wire protocol of the tests.
//!
//! - [`Endpoint`]: the address of one end, `tcp://`, `udp://`, `unix:`, `unix-dgram:`, `l2cap://`,
//!   `rfcomm://` or `mqtt://`.
//! - [`Link`] and [`Listener`]: an open channel, and what accepts channels; the same calls on every kind.
//! - [`SocketOption`]: options by name, applied and read back.
//! - [`stamp`]: software timestamps of both directions (`SO_TIMESTAMPING`).
//! - [`TcpInfo`]: what the kernel tells of a TCP connection.
//! - [`Session`]: a link on which a server of the tests has agreed to work; [`Numbering`] of its messages.
//! - [`CrowdSession`]: the same for many links to a process of the server's.
//! - [`Shaper`]: a server asked to receive links in another way.
//! - [`SocketRing`]: many sockets on one io_uring.
//! - [`Epoll`]: epoll(7) with times in nanoseconds on every kernel.
//! - [`affinity`]: which processors a thread runs on; [`descriptors`]: room for many links.
//! - [`process`]: another process' CPU time, and ending with the process that started us.
//! - [`wire`]: frames of the tests' protocol, parsed and emitted without I/O.
//! - [`foreign`]: a TCP peer unlike Linux, with an ACK delay of one's choice, on a TUN device.
//! - [`bluetooth`]: what is particular to L2CAP and RFCOMM.
//! - [`broker`]: messages over a broker of MQTT or NATS; its clients without I/O.
//! - [`tls`]: TLS over a socket of any of them.
//! - [`message`]: data together with what the kernel knows of it.
//! - [`service`]: what a service manager passes and wants to be told.
//! - [`Interrupt`]: the user's wish to stop.
//! - [`clock`]: the live clock and sleeping on an absolute schedule.

pub mod affinity;
pub mod bluetooth;
mod boot;
pub mod broker;
pub mod clock;
mod crowd;
pub mod descriptors;
mod endpoint;
mod epoll;
mod error;
mod files;
pub mod foreign;
mod inet_address;
mod interrupt;
mod keep_alive;
mod link;
mod listener;
pub mod message;
mod numbering;
mod option;
pub mod peer_clock;
pub mod process;
mod questions;
mod refusal;
mod ring;
pub mod service;
mod session;
mod shaper;
#[cfg(test)]
mod skip;
mod socket_file;
pub mod stamp;
mod sys;
mod tcp_info;
pub mod tls;
pub mod wire;

pub use boot::{boot_identity, is_this_boot};
pub use crowd::{CrowdRequest, CrowdSession};
pub use endpoint::{Endpoint, UnixAddress};
pub use epoll::Epoll;
pub use error::{Error, Fault, Result};
pub use files::read_short;
pub use inet_address::InetAddress;
pub use interrupt::Interrupt;
pub use keep_alive::keep_alive;
pub use link::Link;
pub use listener::{Listener, PeerAddress};
pub use numbering::Numbering;
pub use option::SocketOption;
pub use ring::{Completion, SocketRing};
pub use session::{Request, Session};
pub use shaper::Shaper;
pub use socket_file::SocketFile;
pub use tcp_info::{TcpInfo, receive_low_water};
