use taut_time::{Duration, Instant};

use super::segment::MSS;

/// When a receiver acknowledges data.
///
/// Whatever the policy, two full segments of unacknowledged data are acknowledged at once, and so is a segment that is
/// out of order (RFC 1122, section 4.2.3.2; RFC 5681, section 4.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AckTimer {
    /// Time from the arrival of the first unacknowledged segment to its acknowledgement.
    pub delay: Duration,
    /// Period of the timer that sends acknowledgements: they wait for its next tick after `delay`. Ticks fall on
    /// multiples of the period since the clock's origin. `None`, or zero: a timer without ticks.
    pub tick: Option<Duration>,
}

impl AckTimer {
    /// Acknowledges `delay` after the first unacknowledged segment, to the nanosecond.
    pub const fn after(delay: Duration) -> Self {
        Self { delay, tick: None }
    }

    /// Acknowledges at the first multiple of `tick` that is at least `delay` after the first unacknowledged segment.
    pub const fn on_tick(delay: Duration, tick: Duration) -> Self {
        Self { delay, tick: Some(tick) }
    }

    /// When data of which the first segment arrived at `first` is to be acknowledged.
    pub(crate) fn due(self, first: Instant) -> Instant {
        let due = first + self.delay;
        let tick = self.tick.and_then(|tick| u64::try_from(tick.as_nanos()).ok()).unwrap_or(0);
        Instant::from_nanos(due.as_nanos().checked_next_multiple_of(tick).unwrap_or(due.as_nanos()))
    }

    /// Whether so much data is to be acknowledged at once.
    pub(crate) const fn is_plenty(unacknowledged: u64) -> bool {
        unacknowledged >= 2 * MSS as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_tick_rounds_up_and_keeps_what_is_on_it() {
        let policy = AckTimer::on_tick(50 * MS, 10 * MS);
        assert_eq!(policy.due(Instant::from_nanos(0) + 3 * MS), Instant::from_nanos(0) + 60 * MS);
        assert_eq!(policy.due(Instant::from_nanos(0) + 10 * MS), Instant::from_nanos(0) + 60 * MS);
        assert_eq!(policy.due(Instant::from_nanos(10_000_001)), Instant::from_nanos(0) + 70 * MS);
    }

    #[test]
    fn absurd_policies_saturate() {
        let end = Instant::from_nanos(u64::MAX);
        assert_eq!(AckTimer::after(Duration::MAX).due(end), end);
        assert_eq!(AckTimer::on_tick(Duration::MAX, 7 * MS).due(end), end);
        assert_eq!(AckTimer::on_tick(MS, Duration::ZERO).due(Instant::default()), Instant::default() + MS);
        assert_eq!(AckTimer::on_tick(MS, Duration::MAX).due(Instant::default()), Instant::default() + MS);
    }
}
