//! What can be seen of the sockets and programs of a host.
//!
//! - [`SocketTable`]: the TCP sockets of this network namespace with their state, by sock_diag(7); needs no right.
//! - [`Owners`]: which program has which socket, from `/proc`.
//! - [`is_own_address`]: whether an address is this host's.
//! - [`Options`]: options that no list of sockets has, read from a descriptor borrowed for that moment.
//! - [`Sampler`]: looks again and again, and books the time of each socket to holders.
//! - [`Trying`]: `TCP_NODELAY` on sockets of running programs, for a while; nothing else here
//!   changes anything.
//! - [`counting`]: what befalls connections between two looks, counted in the kernel event by event.
//! - [`trace`]: the sockets of running programs, event by event, through programs in the kernel.

pub mod counting;
mod netlink;
mod options;
mod own;
mod owners;
mod sampler;
mod socket;
pub mod trace;
mod trial;

pub use netlink::{Error, SocketTable};
pub use options::Options;
pub use own::is_own_address;
pub use owners::{Owner, Owners};
pub use sampler::{Reason, Sampler, Seen};
pub use socket::{AcceptQueue, Socket, SocketId, State};
pub use trial::{Settings, Trying};
