use hdrhistogram::Histogram;
use taut_time::Duration;

use super::figures::Figures;
use super::{Percentile, Quantile};

/// Times of messages, kept to three significant digits from 0 to an hour (HdrHistogram), and how many
/// of the messages were lost. Every figure is of all of them: a lost one is later than every time.
#[derive(Clone, Debug)]
pub struct Distribution {
    histogram: Histogram<u64>,
    lost: u64,
}

const LONGEST_NS: u64 = 3_600_000_000_000;

impl Distribution {
    /// A distribution without messages.
    pub fn new() -> Self {
        // The bounds are constants that HdrHistogram accepts, so this can't fail.
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("constant bounds are valid");
        Self { histogram, lost: 0 }
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

    /// Adds messages that never came.
    pub const fn record_lost(&mut self, messages: u64) {
        self.lost += messages;
    }

    /// Adds all messages of another distribution.
    pub fn add(&mut self, other: &Self) {
        // Equal bounds: nothing can be out of range.
        self.histogram.add(&other.histogram).expect("distributions share their bounds");
        self.lost += other.lost;
    }

    /// Number of times, lost messages not included.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Number of lost messages.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Number of all messages.
    pub fn messages(&self) -> u64 {
        self.count() + self.lost
    }

    /// What the share `q` (0 to 1) of all messages did not exceed; `None` when there are none.
    pub fn quantile(&self, q: f64) -> Option<Quantile> {
        let messages = self.messages();
        // A product like 0.07 * 100 lies a hair above the whole number that it is.
        let rank = (q * messages as f64 * (1.0 - 2.0 * f64::EPSILON)).ceil() as u64;
        let rank = rank.clamp(1, messages.max(1));
        (messages > 0).then(|| if rank > self.count() { Quantile::Lost } else { Quantile::Time(self.at_rank(rank)) })
    }

    /// The times with how many there are of each, rising, in ns: equal to three digits, and told as the longest of
    /// them, as percentiles are.
    pub fn times(&self) -> impl Iterator<Item = (u64, u64)> {
        self.histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
    }

    /// The time of this rank, from 1 to the count, in ns.
    fn at_rank(&self, rank: u64) -> u64 {
        // In the middle of the rank's share, where rounding can't reach the ranks beside it.
        self.histogram.value_at_quantile((rank as f64 - 0.5) / self.count() as f64)
    }

    /// Shortest time in ns; `None` when nothing came back.
    pub fn min(&self) -> Option<u64> {
        (self.count() > 0).then(|| self.histogram.min())
    }

    /// Mean of the times in ns; `None` when nothing came back.
    pub fn mean(&self) -> Option<u64> {
        (self.count() > 0).then(|| self.histogram.mean().round() as u64)
    }

    /// The figures of this sample by itself, in little memory; `None` when there are no messages.
    pub fn figures(&self) -> Option<Figures> {
        Some(Figures {
            percentiles: [
                self.quantile(Percentile::P50.share())?,
                self.quantile(Percentile::P90.share())?,
                self.quantile(Percentile::P99.share())?,
                self.quantile(Percentile::P999.share())?,
                self.quantile(Percentile::P9999.share())?,
            ],
            max: self.quantile(1.0)?,
            messages: self.messages(),
        })
    }

    /// Quantiles of all messages with their times in ns, dense where `1 / (1 - q)` is large. It ends
    /// with the last message that came back; without losses just before 1, where that many messages lie.
    pub fn curve(&self) -> Vec<(f64, u64)> {
        if self.count() == 0 {
            return Vec::new();
        }
        let messages = self.messages() as f64;
        let came_back = self.count() as f64 / messages;
        let last = came_back.min(1.0 - 1.0 / messages);
        let steps = (messages.log10() * 12.0).ceil() as u32;
        let mut quantiles: Vec<f64> = (1..=steps).map(|step| 1.0 - 10f64.powf(-f64::from(step) / 12.0)).collect();
        quantiles.extend((1..10).map(|decile| f64::from(decile) / 10.0));
        quantiles.sort_by(f64::total_cmp);
        let inner = quantiles.into_iter().filter(|&q| q < last);
        let points = inner.filter_map(|q| Some((q, self.quantile(q)?.time()?)));
        let end = (last, self.at_rank(self.count()));
        let mut curve: Vec<(f64, u64)> = std::iter::once((0.0, self.at_rank(1))).chain(points).chain([end]).collect();
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
        let summary = times.summary().unwrap();
        for (figure, exact) in [(summary.p50, 50_000.0), (summary.p99, 99_000.0), (summary.p9999, 99_990.0)] {
            assert!((figure.as_f64() / exact - 1.0).abs() < 0.001, "{figure:?} for {exact}");
        }
        assert_eq!((summary.count, summary.lost), (100_000, 0));
    }

    #[test]
    fn no_messages_give_no_figures() {
        assert_eq!(Distribution::new().summary(), None);
        assert!(Distribution::new().curve().is_empty());
    }

    #[test]
    fn lost_messages_are_later_than_all_others() {
        let mut times: Distribution = (1..=98).map(Duration::from_nanos).collect();
        times.record_lost(2);
        let summary = times.summary().unwrap();
        assert_eq!((summary.p50, summary.p90), (Quantile::Time(50), Quantile::Time(90)));
        assert_eq!((summary.p99, summary.max), (Quantile::Lost, Quantile::Lost));
        assert_eq!((summary.count, summary.lost, summary.min), (98, 2, Some(1)));
        assert_eq!(times.quantile(0.98), Some(Quantile::Time(98)));
        assert_eq!(times.curve().last(), Some(&(0.98, 98)));
    }

    #[test]
    fn what_is_lost_in_whole_has_figures_and_no_times() {
        let mut times = Distribution::new();
        times.record_lost(5);
        let summary = times.summary().unwrap();
        assert_eq!((summary.p50, summary.max), (Quantile::Lost, Quantile::Lost));
        assert_eq!((summary.min, summary.mean, summary.count, summary.lost), (None, None, 0, 5));
        assert!(times.curve().is_empty());
    }
}
