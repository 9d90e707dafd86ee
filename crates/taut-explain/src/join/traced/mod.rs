//! A capture and what a live trace saw of the same connections, on one timeline.
//!
//! - [`HostClock`]: where the time of day stood against the clock of the trace.
//! - [`TraceLog`]: what a trace saw of the connections of a capture, in bounded memory.
//! - `pair`: which packet of the capture is which event of the trace; `line`: the clock of one on that of the other.
//! - `rule`: who is believed where both tell; `ledger`: each nanosecond to one holder by it.
//! - `evidence`: the packets and the calls of a program around a stretch.
//! - `report`: all of that, as a [`JoinedTrace`].

mod clock;
mod evidence;
mod ledger;
mod line;
mod log;
mod pair;
mod report;
mod rule;

#[cfg(test)]
mod tests;

pub use clock::{ClockReading, HostClock};
pub use log::TraceLog;
pub use report::{Disagreement, JoinedDirection, JoinedTrace, ToldBy, Witnessed};
