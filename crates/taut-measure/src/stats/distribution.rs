use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_time::Duration;

use super::interval;

/// Times, kept to three significant digits from 0 to an hour (HdrHistogram).
#[derive(Clone, Debug)]
pub struct Distribution {
    histogram: Histogram<u64>,
}

/// A distribution in figures, all in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Summary {
    /// Shortest.
    pub min: u64,
    /// Mean.
    pub mean: u64,
    /// Median.
    pub p50: u64,
    /// 90 % took no longer.
    pub p90: u64,
    /// 99 % took no longer.
    pub p99: u64,
    /// 99.9 % took no longer.
    pub p999: u64,
    /// 99.99 % took no longer.
    pub p9999: u64,
    /// Longest.
    pub max: u64,
    /// Number of times.
    pub count: u64,
    /// Interval of the median across independent rounds; absent with fewer than five.
    pub p50_ci: Option<(u64, u64)>,
    /// Interval of the 99th percentile across independent rounds; absent with fewer than five.
    pub p99_ci: Option<(u64, u64)>,
}

const LONGEST_NS: u64 = 3_600_000_000_000;

impl Distribution {
    /// A distribution without times.
    pub fn new() -> Self {
        // The bounds are constants that HdrHistogram accepts, so this can't fail.
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("constant bounds are valid");
        Self { histogram }
    }

    /// Adds a time; one longer than an hour counts as an hour.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        self.record_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds a time in nanoseconds.
    #[inline]
    pub fn record_ns(&mut self, nanos: u64) {
        self.histogram.saturating_record(nanos);
    }

    /// Adds all times of another distribution.
    pub fn add(&mut self, other: &Self) {
        // Equal bounds: nothing can be out of range.
        self.histogram.add(&other.histogram).expect("distributions share their bounds");
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The time that the share `q` (0 to 1) did not exceed, in ns; `None` when there are no times.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        (self.count() > 0).then(|| self.histogram.value_at_quantile(q))
    }

    /// Mean in ns; `None` when there are no times.
    pub fn mean(&self) -> Option<u64> {
        (self.count() > 0).then(|| self.histogram.mean().round() as u64)
    }

    /// The figures, with intervals across the rounds that the distribution was added up from. `None` when there are no times.
    pub fn summary(&self, rounds: &[Self]) -> Option<Summary> {
        let across = |q: f64| {
            let values: Vec<f64> = rounds.iter().filter_map(|round| round.quantile(q)).map(|ns| ns as f64).collect();
            interval(&values).map(|(low, high)| (low as u64, high as u64))
        };
        let h = &self.histogram;
        (self.count() > 0).then(|| Summary {
            min: h.min(),
            mean: h.mean().round() as u64,
            p50: h.value_at_quantile(0.5),
            p90: h.value_at_quantile(0.9),
            p99: h.value_at_quantile(0.99),
            p999: h.value_at_quantile(0.999),
            p9999: h.value_at_quantile(0.9999),
            max: h.max(),
            count: h.len(),
            p50_ci: across(0.5),
            p99_ci: across(0.99),
        })
    }

    /// Quantiles with their times in ns, dense where `1 / (1 - q)` is large, up to the last one that the count supports.
    pub fn curve(&self) -> Vec<(f64, u64)> {
        let count = self.count() as f64;
        if count == 0.0 {
            return Vec::new();
        }
        let steps = (count.log10() * 12.0).ceil() as u32;
        let mut curve: Vec<(f64, u64)> = vec![(0.0, self.histogram.min())];
        let mut quantiles: Vec<f64> = (1..=steps).map(|step| 1.0 - 10f64.powf(-f64::from(step) / 12.0)).collect();
        quantiles.extend((1..10).map(|decile| f64::from(decile) / 10.0).filter(|q| *q < 1.0 - 1.0 / count));
        quantiles.sort_by(f64::total_cmp);
        curve.extend(quantiles.iter().map(|&q| (q.min(1.0 - 1.0 / count), self.histogram.value_at_quantile(q))));
        curve.push((1.0 - 1.0 / count, self.histogram.max()));
        curve.dedup();
        curve
    }
}

impl Default for Distribution {
    fn default() -> Self {
        Self::new()
    }
}

impl Extend<Duration> for Distribution {
    fn extend<T: IntoIterator<Item = Duration>>(&mut self, times: T) {
        times.into_iter().for_each(|time| self.record(time));
    }
}

impl FromIterator<Duration> for Distribution {
    fn from_iter<T: IntoIterator<Item = Duration>>(times: T) -> Self {
        let mut distribution = Self::new();
        distribution.extend(times);
        distribution
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_within_a_thousandth() {
        let times: Distribution = (1..=100_000).map(Duration::from_nanos).collect();
        let summary = times.summary(&[]).unwrap();
        for (figure, exact) in [(summary.p50, 50_000.0), (summary.p99, 99_000.0), (summary.p9999, 99_990.0)] {
            assert!((figure as f64 / exact - 1.0).abs() < 0.001, "{figure} for {exact}");
        }
        assert_eq!(summary.count, 100_000);
    }

    #[test]
    fn no_times_give_no_figures() {
        assert_eq!(Distribution::new().summary(&[]), None);
        assert!(Distribution::new().curve().is_empty());
    }

    #[test]
    fn the_curve_never_falls() {
        let times: Distribution = (1..5000).map(|i| Duration::from_nanos(i * i % 7919 + 1)).collect();
        let curve = times.curve();
        assert!(curve.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1), "{curve:?}");
    }
}
