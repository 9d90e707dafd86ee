//! The clock and the event form that every layer of Tautline shares.
//!
//! - [`Instant`]: a point on a nanosecond clock that this crate never reads. Live code puts `CLOCK_MONOTONIC` on it, a
//!   simulation its virtual time; whoever owns the clock says which.
//! - [`ClockMap`]: how times of one clock become times of another.
//! - [`Event`]: something that happened to bytes at a time in a layer.
//! - [`Timeline`]: events of all layers on one clock, and the view of them by message.
//!
//! No I/O, no clock, no thread, no randomness.
#![no_std]

extern crate alloc;

mod clock_map;
mod event;
mod instant;
mod timeline;

pub use clock_map::{ClockDomain, ClockMap};
pub use core::time::Duration;
pub use event::{ByteRange, Event, Host, Layer, SendQueue, What};
pub use instant::Instant;
pub use timeline::{Framing, MessageTimes, Timeline};
