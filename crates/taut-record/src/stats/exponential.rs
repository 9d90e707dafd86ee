use super::Distribution;

/// Times in buckets whose bounds grow by 2^(1/64), 1.09 %: the exponential histogram of OpenTelemetry at scale 6 and
/// the native one of Prometheus with schema 6. A percentile read back lies in the bucket of the recording's, so it is
/// off by less than that. What it takes in memory is fixed: 21 KB, however much is added.
///
/// A bucket's index i says that its times are longer than 2^((i-1)/64) seconds and not longer than 2^(i/64).
#[derive(Clone, Debug)]
pub struct ExponentialHistogram {
    counts: Vec<u64>,
    zeros: u64,
    lost: u64,
    sum_s: f64,
}

/// The scale, or schema: bounds grow by 2^(2^-6).
pub const SCALE: i32 = 6;
/// Buckets in which times double.
const BUCKETS_PER_DOUBLING: i32 = 1 << SCALE;
/// That of one nanosecond.
const FIRST: i32 = -1913;
/// That of an hour, which is the longest time of a [`Distribution`], and of what its rounding adds.
const LAST: i32 = 760;

impl ExponentialHistogram {
    /// A histogram without times.
    pub fn new() -> Self {
        Self { counts: vec![0; (LAST - FIRST + 1) as usize], zeros: 0, lost: 0, sum_s: 0.0 }
    }

    /// Adds all messages of a distribution.
    pub fn add(&mut self, times: &Distribution) {
        for (nanos, count) in times.times() {
            match nanos {
                0 => self.zeros += count,
                _ => self.counts[(index(nanos) - FIRST) as usize] += count,
            }
            self.sum_s += nanos as f64 * 1e-9 * count as f64;
        }
        self.lost += times.lost();
    }

    /// Times of 0 ns, which have no bucket.
    pub const fn zeros(&self) -> u64 {
        self.zeros
    }

    /// Messages that never came: they are later than every time, and in no bucket.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Number of times, lost messages not included.
    pub fn count(&self) -> u64 {
        self.zeros + self.counts.iter().sum::<u64>()
    }

    /// Sum of the times, in seconds.
    pub const fn sum_s(&self) -> f64 {
        self.sum_s
    }

    /// The buckets in which something is, as index and count, rising.
    pub fn buckets(&self) -> impl Iterator<Item = (i32, u64)> {
        (FIRST..).zip(&self.counts).map(|(index, &count)| (index, count)).filter(|&(_, count)| count > 0)
    }

    /// How many times are not longer than the bound of this bucket.
    pub fn count_to(&self, index: i32) -> u64 {
        let end = (index - FIRST + 1).clamp(0, LAST - FIRST + 1) as usize;
        self.zeros + self.counts[..end].iter().sum::<u64>()
    }

    /// Upper bound of a bucket, in seconds.
    pub fn bound_s(index: i32) -> f64 {
        (f64::from(index) / f64::from(BUCKETS_PER_DOUBLING)).exp2()
    }
}

impl Default for ExponentialHistogram {
    fn default() -> Self {
        Self::new()
    }
}

fn index(nanos: u64) -> i32 {
    let exact = (nanos as f64 * 1e-9).log2() * f64::from(BUCKETS_PER_DOUBLING);
    (exact.ceil() as i32).clamp(FIRST, LAST)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taut_time::Duration;

    use super::*;
    use crate::stats::Quantile;

    #[test]
    fn every_time_has_the_bucket_that_its_bounds_say() {
        let hour = 3_600_000_000_000;
        for nanos in (1..5000).chain([1_000_000_000, 999_999_999, 1_000_000_001, hour, hour + hour / 1000]) {
            let (index, seconds) = (index(nanos), nanos as f64 * 1e-9);
            let below = ExponentialHistogram::bound_s(index - 1) * (1.0 - 1e-12);
            let above = ExponentialHistogram::bound_s(index) * (1.0 + 1e-12);
            assert!(below < seconds && seconds <= above, "{nanos} ns in {index}");
        }
        assert_eq!((index(1), index(hour + hour / 1000) <= LAST), (FIRST, true));
        assert!(ExponentialHistogram::bound_s(1) - 1.0 < 0.011);
    }

    #[test]
    fn times_beyond_an_hour_zeros_and_losses_are_counted() {
        let mut times: Distribution =
            [Duration::ZERO, Duration::from_millis(999), Duration::from_secs(100_000)].into_iter().collect();
        times.record_lost(3);
        let mut histogram = ExponentialHistogram::new();
        histogram.add(&times);
        histogram.add(&times);
        assert_eq!((histogram.zeros(), histogram.count(), histogram.lost()), (2, 6, 6));
        assert_eq!((histogram.count_to(-2000), histogram.count_to(0), histogram.count_to(9999)), (2, 4, 6));
        assert!((histogram.sum_s() / 7202.0 - 1.0).abs() < 0.001, "{}", histogram.sum_s());
    }

    proptest! {
        /// The bucket in which a percentile's rank falls is that of the distribution's percentile.
        #[test]
        fn percentiles_have_the_bucket_of_the_recordings(
            times in proptest::collection::vec(1..3_600_000_000_000_u64, 1..300),
            q in 0.001..1.0_f64,
        ) {
            let all: Distribution = times.into_iter().map(Duration::from_nanos).collect();
            let mut histogram = ExponentialHistogram::new();
            histogram.add(&all);
            let rank = (q * all.count() as f64).ceil() as u64;
            let mut below = 0;
            let found = histogram.buckets().find(|&(_, count)| { below += count; below >= rank }).unwrap().0;
            let Some(Quantile::Time(exact)) = all.quantile(q) else { panic!() };
            let bound = ExponentialHistogram::bound_s(found);
            prop_assert!((bound / (exact as f64 * 1e-9) - 1.0).abs() < 0.011, "{} for {}", bound, exact);
        }
    }
}
