use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::figures::Figures;
use super::{Distribution, Losses, Percentile, Quantile, interval, median};

/// Times of messages in figures, all in nanoseconds and of all messages: a lost one is later than every time,
/// so `null` at a percentile means that it falls on a lost message. Of several rounds each percentile is the
/// median over the rounds where each round has enough messages for it (10 for p90, 100 for p99, and so on),
/// and otherwise that of all rounds pooled; it is lost, too, where that share of all messages was lost.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Summary {
    /// Shortest of those that came back; null when none did.
    pub min: Option<u64>,
    /// Mean of those that came back; null when none did.
    pub mean: Option<u64>,
    /// Median.
    pub p50: Quantile,
    /// 90 % took no longer.
    pub p90: Quantile,
    /// 99 % took no longer.
    pub p99: Quantile,
    /// 99.9 % took no longer.
    pub p999: Quantile,
    /// 99.99 % took no longer.
    pub p9999: Quantile,
    /// Longest of all rounds; null when any message was lost.
    pub max: Quantile,
    /// Number of times: messages that came back.
    pub count: u64,
    /// Number of lost messages, which are in every figure but `min` and `mean`.
    #[serde(default)]
    pub lost: u64,
    /// Interval of the median across independent rounds, with null for a lost end; absent with fewer than five rounds.
    pub p50_ci: Option<(Quantile, Quantile)>,
    /// Interval of the 99th percentile across independent rounds; absent with fewer than five, or
    /// where a round has fewer than 100 messages.
    pub p99_ci: Option<(Quantile, Quantile)>,
    /// Level of both intervals: the probability, from 0 to 1, that such an interval covers the
    /// median of what the rounds are a sample of.
    #[serde(default)]
    pub ci_level: Option<f64>,
}

impl Summary {
    /// A percentile, if there are enough messages that at least one lies at or beyond it.
    pub fn percentile(&self, percentile: Percentile) -> Option<Quantile> {
        let value = match percentile {
            Percentile::P50 => self.p50,
            Percentile::P90 => self.p90,
            Percentile::P99 => self.p99,
            Percentile::P999 => self.p999,
            Percentile::P9999 => self.p9999,
        };
        (self.messages() >= percentile.least_messages()).then_some(value)
    }

    /// Number of all messages.
    pub const fn messages(&self) -> u64 {
        self.count.saturating_add(self.lost)
    }

    /// How many of all messages were lost.
    pub const fn losses(&self) -> Losses {
        Losses { lost: self.lost, messages: self.messages() }
    }
}

/// Times of several rounds: all of them pooled, and of each round its figures alone. What it takes
/// in memory does not grow with the messages, and with the rounds by about a hundred bytes each.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    pooled: Distribution,
    each: Vec<Option<Figures>>,
}

impl Rounds {
    /// Without rounds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a whole round.
    pub fn add(&mut self, round: &Distribution) {
        self.pooled.add(round);
        self.each.push(round.figures());
    }

    /// Adds what there is of a round that was cut short: to the pooled times, and to no median or
    /// interval across rounds.
    pub fn add_partial(&mut self, round: &Distribution) {
        self.pooled.add(round);
    }

    /// All rounds as one.
    pub const fn pooled(&self) -> &Distribution {
        &self.pooled
    }

    /// As [`Rounds::pooled`], at the end.
    pub fn into_pooled(self) -> Distribution {
        self.pooled
    }

    /// The figures of each round; `None` for one without messages.
    pub fn each(&self) -> &[Option<Figures>] {
        &self.each
    }

    /// The medians of the rounds.
    pub fn medians(&self) -> Vec<Option<Quantile>> {
        self.percentiles(Percentile::P50)
    }

    /// A percentile of each round that has enough messages for it.
    pub fn percentiles(&self, percentile: Percentile) -> Vec<Option<Quantile>> {
        self.each.iter().map(|round| round.as_ref()?.percentile(percentile)).collect()
    }

    /// The figures of all rounds; `None` when there are no messages.
    pub fn summary(&self) -> Option<Summary> {
        let max = self.pooled.quantile(1.0)?;
        let figures: Vec<Figures> = self.each.iter().flatten().copied().collect();
        // Rising with the share by construction: medians of figures that rise are so, and a pooled
        // one beyond them is kept from falling below.
        let mut least = Quantile::Time(0);
        let mut of = |percentile| {
            least = least.max(self.across(percentile, &figures)?);
            Some(least)
        };
        let [p50, p90, p99, p999, p9999] = Percentile::ALL.map(&mut of);
        let ends = |percentile: Percentile, value: Quantile| {
            let supported = figures.iter().all(|round| round.messages >= percentile.least_messages());
            let interval = interval(&values(percentile, &figures)).filter(|_| supported)?;
            // What the pooled messages make lost is lost in the interval, too.
            Some((Quantile::from_f64(interval.low), Quantile::from_f64(interval.high).max(value)))
        };
        Some(Summary {
            min: self.pooled.min(),
            mean: self.pooled.mean(),
            p50: p50?,
            p90: p90?,
            p99: p99?,
            p999: p999?,
            p9999: p9999?,
            max,
            count: self.pooled.count(),
            lost: self.pooled.lost(),
            p50_ci: ends(Percentile::P50, p50?),
            p99_ci: ends(Percentile::P99, p99?),
            ci_level: interval(&values(Percentile::P50, &figures)).map(|interval| interval.level),
        })
    }

    fn across(&self, percentile: Percentile, rounds: &[Figures]) -> Option<Quantile> {
        let pooled = self.pooled.quantile(percentile.share())?;
        let supported = rounds.iter().all(|round| round.messages >= percentile.least_messages());
        let across = median(&values(percentile, rounds)).filter(|_| supported && pooled != Quantile::Lost);
        Some(across.map_or(pooled, Quantile::from_f64))
    }
}

impl Distribution {
    /// The figures of this sample by itself, without intervals; `None` when there are no messages.
    pub fn summary(&self) -> Option<Summary> {
        let mut rounds = Rounds::new();
        rounds.add(self);
        rounds.summary()
    }
}

impl<'a> FromIterator<&'a Distribution> for Rounds {
    fn from_iter<T: IntoIterator<Item = &'a Distribution>>(rounds: T) -> Self {
        let mut all = Self::new();
        rounds.into_iter().for_each(|round| all.add(round));
        all
    }
}

fn values(percentile: Percentile, rounds: &[Figures]) -> Vec<f64> {
    rounds.iter().map(|round| round.at(percentile).as_f64()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taut_time::Duration;

    use super::*;
    use crate::stats::ExceedanceCounter;

    fn round(nanos: impl IntoIterator<Item = u64>, lost: u64) -> Distribution {
        let mut round: Distribution = nanos.into_iter().map(Duration::from_nanos).collect();
        round.record_lost(lost);
        round
    }

    /// A fast round of a closed loop has more messages than a slow one; it says no more for that.
    #[test]
    fn a_percentile_is_the_median_over_the_rounds_and_not_that_of_the_fastest() {
        let rounds = [(5, 9_000), (50, 900), (60, 800), (5, 9_000), (70, 700)];
        let rounds: Rounds = rounds.map(|(ns, count)| round(vec![ns; count], 0)).iter().collect();
        let summary = rounds.summary().unwrap();
        assert_eq!(rounds.pooled().quantile(0.5), Some(Quantile::Time(5)));
        assert_eq!((summary.p50, summary.p99), (Quantile::Time(50), Quantile::Time(50)));
        assert_eq!(summary.p50_ci, Some((Quantile::Time(5), Quantile::Time(70))));
        assert_eq!((summary.p99_ci, summary.ci_level), (summary.p50_ci, Some(0.9375)));
        // No round has ten thousand messages, so this one is of all of them together.
        assert_eq!(summary.p9999, Quantile::Time(70));
    }

    #[test]
    fn what_a_round_is_too_short_for_has_no_interval() {
        let rounds: Rounds = (0..5).map(|i| round(i..i + 50, 0)).collect::<Vec<_>>().iter().collect();
        let summary = rounds.summary().unwrap();
        assert!(summary.p50_ci.is_some() && summary.p99_ci.is_none());
        assert_eq!(summary.percentile(Percentile::P99), Some(summary.p99), "250 messages are enough for one");
        assert_eq!(summary.percentile(Percentile::P999), None);
    }

    #[test]
    fn a_percentile_is_lost_where_that_share_was_lost_in_whichever_rounds() {
        // 2 % of all, and all of them in one round.
        let mut rounds: Vec<Distribution> = (0..4).map(|_| round(vec![7; 500], 0)).collect();
        rounds.push(round(vec![7; 450], 50));
        let summary = rounds.iter().collect::<Rounds>().summary().unwrap();
        assert_eq!((summary.p50, summary.p90), (Quantile::Time(7), Quantile::Time(7)));
        assert_eq!((summary.p99, summary.max), (Quantile::Lost, Quantile::Lost));
        assert_eq!(summary.p99_ci, Some((Quantile::Time(7), Quantile::Lost)));
        // Most rounds lost most, although most messages came back.
        let mut rounds: Vec<Distribution> = (0..3).map(|_| round([7], 2)).collect();
        rounds.extend((0..2).map(|_| round(vec![7; 500], 0)));
        let summary = rounds.iter().collect::<Rounds>().summary().unwrap();
        assert_eq!((summary.p50, summary.p50_ci), (Quantile::Lost, Some((Quantile::Time(7), Quantile::Lost))));
    }

    #[test]
    fn rounds_take_little_memory() {
        let per_round = size_of::<Option<Figures>>();
        assert!(per_round <= 128, "{per_round}");
    }

    proptest! {
        /// Percentiles, curve and exceedance are three views of the same messages.
        #[test]
        fn percentiles_curve_and_exceedance_agree(
            times in proptest::collection::vec(1..10_000_000_u64, 0..400),
            lost in 0..50_u64,
            limits in proptest::collection::vec(1..10_000_000_u64, 1..6),
        ) {
            prop_assume!(times.len() as u64 + lost > 0);
            let all = round(times.iter().copied(), lost);
            let limits: Vec<_> = limits.into_iter().map(Duration::from_nanos).collect();
            let mut exceed = ExceedanceCounter::new(&limits);
            times.iter().for_each(|&ns| exceed.record(Duration::from_nanos(ns)));
            exceed.record_lost(lost);
            let mut sorted: Vec<Quantile> = times.iter().copied().map(Quantile::Time).collect();
            sorted.sort_unstable();
            sorted.resize(times.len() + lost as usize, Quantile::Lost);
            let near = |found: Quantile, exact: Quantile| match (found, exact) {
                (Quantile::Time(found), Quantile::Time(exact)) => {
                    found >= exact && found as f64 <= exact as f64 * 1.001 + 1.0
                }
                (found, exact) => found == exact,
            };
            let summary = all.summary().unwrap();
            prop_assert_eq!(summary.messages(), sorted.len() as u64);
            prop_assert!(near(summary.max, *sorted.last().unwrap()));
            let mut before = Quantile::Time(0);
            for percentile in Percentile::ALL {
                let found = all.figures().unwrap().at(percentile);
                // Exactly, in whole numbers: the rank is that share of ten thousand of the messages, rounded up.
                let share = (percentile.share() * 1e4).round() as usize;
                let exact = sorted[(share * sorted.len()).div_ceil(10_000).max(1) - 1];
                prop_assert!(near(found, exact), "{:?}: {:?} for {:?}", percentile, found, exact);
                prop_assert!(found >= before);
                before = found;
                for row in exceed.table() {
                    // More than this share took longer just when the percentile did; near the limit
                    // the histogram rounds.
                    let far = (found.as_f64() / row.over_ns as f64 - 1.0).abs() > 0.002;
                    let beyond = row.count as usize > sorted.len() - (share * sorted.len()).div_ceil(10_000).max(1);
                    prop_assert!(!far || beyond == (found > Quantile::Time(row.over_ns)), "{:?} {:?}", found, row);
                }
            }
            let mut curve = all.curve();
            if lost == 0 {
                // A logarithmic axis has no 1, so the longest stands where it begins.
                prop_assert_eq!(curve.pop().map(|(_, ns)| Quantile::Time(ns)), Some(summary.max));
            }
            for (q, ns) in curve {
                prop_assert_eq!(all.quantile(q), Some(Quantile::Time(ns)), "{}", q);
                let rank = ((q * sorted.len() as f64 - 1e-6).ceil() as usize).max(1);
                prop_assert!(rank <= times.len() && near(Quantile::Time(ns), sorted[rank - 1]), "{}", q);
            }
        }
    }
}
