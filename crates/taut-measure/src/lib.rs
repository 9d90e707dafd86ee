//! Workloads, engines and schedules, and the recordings they make.
//!
//! - [`echo`], [`pace`], [`stream`], [`crowd`]: the workloads, whose other side is `taut-serve`;
//!   [`tune`] tries settings on them.
//! - [`route`]: what was measured of routes, as rows.
//! - [`air`]: Bluetooth LE links in virtual time.
//! - [`engine`]: how a process drives its I/O.
//! - [`verdict`]: the one rule of comparing.
//! - [`floor`], [`doctor`], [`host_facts()`]: what the host itself costs, offers and is.
//! - [`settings`]: what its settings cost.
//!
//! All of it is kept in the shape of `taut-record`.

pub mod air;
pub mod crowd;
pub mod doctor;
pub mod echo;
pub mod engine;
pub mod floor;
mod host;
mod interrupt {
    pub use taut_link::Interrupt;
}
mod observe;
pub mod pace;
pub mod placement;
mod rounds;
pub mod route;
pub mod settings;
mod standstill;
pub mod stream;
mod tcp_facts;
pub mod tune;
pub mod verdict;

pub use host::host_facts;
pub use interrupt::Interrupt;
pub use rounds::turns;
