//! Workloads, engines, schedules and statistics, and the recordings they make.
//!
//! - [`echo`], [`pace`], [`stream`], [`crowd`]: the workloads; [`serve`] is their other side,
//!   [`tune`] tries settings on them.
//! - [`route`]: what was measured of routes, as rows.
//! - [`air`]: Bluetooth LE links in virtual time.
//! - [`engine`]: how a process drives its I/O.
//! - [`stats`]: distributions, exceedance, and what independent rounds allow to say; [`verdict`]:
//!   the one rule of comparing.
//! - [`floor`], [`doctor`]: what the host itself costs and offers.
//! - [`recording`]: the shape in which all of it is kept.

pub mod air;
pub mod crowd;
pub mod doctor;
pub mod echo;
pub mod engine;
pub mod floor;
mod interrupt {
    pub use taut_link::Interrupt;
}
mod observe;
pub mod pace;
pub mod placement;
pub mod recording;
mod rounds;
pub mod route;
pub mod serve;
mod standstill;
pub mod stats;
pub mod stream;
pub mod tune;
pub mod verdict;

pub use interrupt::Interrupt;
pub use rounds::turns;
