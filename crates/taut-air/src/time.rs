//! Arithmetic of nanoseconds. Spans are plain numbers of nanoseconds here: the machines add them up millions of times.

use taut_time::Instant;

/// A span of time in nanoseconds.
pub type Nanos = u64;

/// One microsecond.
pub(crate) const US: Nanos = 1_000;
/// One millisecond.
pub(crate) const MS: Nanos = 1_000_000;
/// One second.
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// Later than anything that happens.
pub(crate) const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// `span` after `at`.
pub(crate) const fn after(at: Instant, span: Nanos) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_add(span))
}

/// `span` before `at`, or the clock's origin.
pub(crate) const fn before(at: Instant, span: Nanos) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_sub(span))
}

/// From `earlier` to `later`, zero when they are the other way round.
pub(crate) const fn span(earlier: Instant, later: Instant) -> Nanos {
    later.as_nanos().saturating_sub(earlier.as_nanos())
}

/// `NEVER` is no deadline.
pub(crate) const fn deadline(at: Instant) -> Option<Instant> {
    if at.as_nanos() == u64::MAX { None } else { Some(at) }
}

/// `true_span` as a clock runs that is `ppm` parts per million fast (its second ends early).
pub(crate) const fn drifted(true_span: Nanos, ppm: i32) -> Nanos {
    if ppm == 0 {
        return true_span;
    }
    let error = (true_span as i128 * ppm as i128) / 1_000_000;
    (true_span as i128 - error) as Nanos
}
