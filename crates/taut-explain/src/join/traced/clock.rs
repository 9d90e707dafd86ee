use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The clocks of a host, read as a trace began and as it ended, or as late as its file goes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct HostClock {
    /// As it began.
    pub begin: ClockReading,
    /// As it ended.
    pub end: ClockReading,
}

/// Two clocks of a host, read at once.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ClockReading {
    /// The clock of the trace (`CLOCK_MONOTONIC`).
    pub at_ns: u64,
    /// By how much the time of day (`CLOCK_REALTIME`, from 1970) was ahead of it.
    pub time_of_day_ahead_ns: i64,
    /// That may be wrong by so much, either way.
    pub uncertainty_ns: u64,
}

impl HostClock {
    /// By how much the time of day was set while it was traced, in nanoseconds: what the readings differ by beyond
    /// their errors. Slewing moves both clocks alike.
    pub fn was_set_by(&self) -> i64 {
        let Self { begin, end } = self;
        let by = end.time_of_day_ahead_ns.saturating_sub(begin.time_of_day_ahead_ns);
        let error = begin.uncertainty_ns.saturating_add(end.uncertainty_ns);
        if by.unsigned_abs() > error { by } else { 0 }
    }
}
