use alloc::vec::Vec;
use core::fmt;

use crate::time::Nanos;

/// Buckets for each power of two: values are known to 1/64, that is 1.6 %.
const BITS: u32 = 6;

/// A distribution of times in bounded memory.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    min: Nanos,
    max: Nanos,
}

impl Latencies {
    pub(crate) fn record(&mut self, nanos: Nanos) {
        let bucket = bucket(nanos);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.min = if self.count == 0 { nanos } else { self.min.min(nanos) };
        self.max = self.max.max(nanos);
        self.count += 1;
        self.sum += u128::from(nanos);
    }

    /// Number of values.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The smallest, exactly; `None` without values.
    pub fn min(&self) -> Option<Nanos> {
        (self.count > 0).then_some(self.min)
    }

    /// The largest, exactly.
    pub fn max(&self) -> Option<Nanos> {
        (self.count > 0).then_some(self.max)
    }

    /// The mean, exactly.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The smallest value that a share `q` (0 to 1) of all values doesn't exceed, at most 1.6 % too large.
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64) as u64).min(self.count.checked_sub(1)?);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|&count| {
            seen += count;
            seen > rank
        })?;
        Some(upper(bucket).clamp(self.min, self.max))
    }

    /// Values as buckets that are not empty: the largest value in each, and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> {
        self.buckets.iter().enumerate().filter(|(_, count)| **count > 0).map(|(index, &count)| (upper(index), count))
    }
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, min, max, .. } = self;
        write!(f, "{count} times, {min} to {max} ns, median {:?}", self.quantile(0.5))
    }
}

const fn bucket(nanos: Nanos) -> usize {
    if nanos < 1 << BITS {
        return nanos as usize;
    }
    let shift = 63 - BITS - nanos.leading_zeros();
    (((shift + 1) as usize) << BITS) + ((nanos >> shift) as usize - (1 << BITS))
}

const fn upper(bucket: usize) -> Nanos {
    if bucket < 1 << BITS {
        return bucket as Nanos;
    }
    let shift = (bucket >> BITS) - 1;
    let mantissa = (bucket & ((1 << BITS) - 1)) as u128 + (1 << BITS);
    (((mantissa + 1) << shift) - 1) as Nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_falls_into_it() {
        for nanos in (0..100_000).chain([u64::MAX, u64::MAX / 3, 1 << 40]) {
            let bucket = bucket(nanos);
            assert!(upper(bucket) >= nanos);
            assert!(bucket == 0 || upper(bucket - 1) < nanos);
            assert!(upper(bucket) - nanos <= nanos / 64);
        }
    }

    #[test]
    fn quantiles_of_a_line() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        (1..=1000).for_each(|nanos| latencies.record(nanos * 1000));
        assert_eq!(
            (latencies.min(), latencies.max(), latencies.mean()),
            (Some(1000), Some(1_000_000), Some(500_500.0))
        );
        let median = latencies.quantile(0.5).unwrap();
        assert!((501_000..=509_000).contains(&median), "{median}");
        assert_eq!(latencies.quantile(1.0), Some(1_000_000));
    }
}
