use core::time::Duration;

use crate::Instant;

/// How times of one clock become times of another, and how far they can be trusted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockMap {
    /// Whose clock it is.
    pub domain: ClockDomain,
    /// Added to every time, in nanoseconds.
    pub offset_ns: i64,
    /// How much faster than the reference it runs, in parts per million.
    pub rate_ppm: f64,
    /// The offset may be wrong by so much, either way.
    pub uncertainty: Duration,
    /// The smallest step of the clock.
    pub resolution: Duration,
}

/// The clock that times were taken from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ClockDomain {
    /// Time since boot, `CLOCK_MONOTONIC`.
    Monotonic,
    /// Time of day, `CLOCK_REALTIME`; captures have it. It may be set while it is read.
    RealTime,
    /// Virtual time of a simulation.
    Simulated,
}

impl ClockMap {
    /// A clock that is its own reference.
    pub const fn own(domain: ClockDomain, resolution: Duration) -> Self {
        Self { domain, offset_ns: 0, rate_ppm: 0.0, uncertainty: Duration::ZERO, resolution }
    }

    /// A time of this clock on the reference clock. The rate counts from the clock's origin.
    pub fn to_reference(&self, at: Instant) -> Instant {
        let drift = -(at.as_nanos() as f64 * self.rate_ppm / 1e6);
        at.offset_by(self.offset_ns.saturating_add(drift as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_move_by_offset_and_rate() {
        let own = ClockMap::own(ClockDomain::RealTime, Duration::from_micros(1));
        let at = Instant::from_nanos(1_000_000_000);
        assert_eq!(own.to_reference(at), at);
        let fast = ClockMap { offset_ns: -500, rate_ppm: 10.0, ..own };
        assert_eq!(fast.to_reference(at), Instant::from_nanos(1_000_000_000 - 500 - 10_000));
    }
}
