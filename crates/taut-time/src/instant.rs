use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point in time: nanoseconds since an origin that the owner of the clock chose (boot for
/// `CLOCK_MONOTONIC`, zero for a simulation). Covers 584 years.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Instant(u64);

impl Instant {
    /// The instant `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`, zero when `earlier` is in fact later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds since `other`, negative when `other` is later.
    pub const fn signed_since(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }

    /// This instant moved by a signed number of nanoseconds, stopping at the clock's origin.
    pub const fn offset_by(self, nanos: i64) -> Self {
        Self(self.0.saturating_add_signed(nanos))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(duration)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(saturating_nanos(duration)))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_signed_or_saturate() {
        let (early, late) = (Instant::from_nanos(5), Instant::from_nanos(12));
        assert_eq!(late.saturating_since(early), Duration::from_nanos(7));
        assert_eq!(early.saturating_since(late), Duration::ZERO);
        assert_eq!(early.signed_since(late), -7);
        assert_eq!(late.offset_by(-20), Instant::from_nanos(0));
    }

    #[test]
    fn addition_saturates_instead_of_wrapping() {
        assert_eq!(Instant::from_nanos(1) + Duration::MAX, Instant::from_nanos(u64::MAX));
    }
}
