//! Times that people set limits on: how long answers, round trips and packets in a controller took.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tcp::Spread;

/// A direction alone has to have so many for its percentiles to be held against a limit, however low the percentile.
const LEAST_OF_ONE: u64 = 10;

/// Which times.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TimesOf {
    /// The peer's time for an answer: from the last data that one end sent to the first that came back, on TCP less the
    /// way there and back. Over all directions those count that a client sends.
    Turn,
    /// Round trips of TCP, with what the receiver delayed its acknowledgements.
    Rtt,
    /// From a packet's hand-over to a Bluetooth controller to its completion.
    Completion,
}

impl TimesOf {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Turn, Self::Rtt, Self::Completion];

    /// `turn`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Rtt => "rtt",
            Self::Completion => "completion",
        }
    }
}

/// A percentile that is told of times.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rank {
    /// The median.
    P50,
    /// 90 % took no longer.
    P90,
    /// 99 % took no longer.
    P99,
    /// 99.9 % took no longer.
    P999,
    /// The longest.
    Max,
}

impl Rank {
    /// All of them, rising.
    pub const ALL: [Self; 5] = [Self::P50, Self::P90, Self::P99, Self::P999, Self::Max];

    /// `p99`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p999",
            Self::Max => "max",
        }
    }

    /// So many times it takes, so that at least one lies at or beyond it.
    pub const fn least_count(self) -> u64 {
        match self {
            Self::P50 | Self::Max => 1,
            Self::P90 => 10,
            Self::P99 => 100,
            Self::P999 => 1000,
        }
    }

    /// The rank of its time among so many, from 1.
    const fn among(self, count: u64) -> u64 {
        let beyond = match self {
            Self::P50 => count / 2,
            Self::P90 => count / 10,
            Self::P99 => count / 100,
            Self::P999 => count / 1000,
            Self::Max => 0,
        };
        count - beyond
    }
}

/// Percentiles of some times: a percentile is absent if there are too few (10 for p90, 100 for p99, 1000 for p999), and
/// if it falls on one without an answer, which is later than every time. Of more than 64 times they are rounded up, by
/// 0.8 to 3 %.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Times {
    /// `turn`, `rtt` or `completion`.
    pub of: String,
    /// How many there were.
    pub count: u64,
    /// How many questions had no answer when they were asked again, or up to the end.
    pub unanswered: u64,
    /// The median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// 90 % took no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90_ns: Option<u64>,
    /// 99 % took no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// 99.9 % took no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999_ns: Option<u64>,
    /// The longest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
}

/// What became of a percentile.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Percentile {
    /// In nanoseconds.
    Time(u64),
    /// It falls on a question without an answer.
    Unanswered,
    /// There are too few times.
    TooFew,
}

impl Times {
    fn of(of: TimesOf, spread: &Spread, unanswered: u64) -> Self {
        let count = spread.count();
        let all = count.saturating_add(unanswered);
        let at = |rank: Rank| (all >= rank.least_count()).then(|| spread.at(rank.among(all))).flatten();
        Self {
            of: of.name().to_owned(),
            count,
            unanswered,
            p50_ns: at(Rank::P50),
            p90_ns: at(Rank::P90),
            p99_ns: at(Rank::P99),
            p999_ns: at(Rank::P999),
            max_ns: at(Rank::Max),
        }
    }

    /// One of its percentiles.
    pub fn at(&self, rank: Rank) -> Percentile {
        let ns = match rank {
            Rank::P50 => self.p50_ns,
            Rank::P90 => self.p90_ns,
            Rank::P99 => self.p99_ns,
            Rank::P999 => self.p999_ns,
            Rank::Max => self.max_ns,
        };
        match ns {
            Some(ns) => Percentile::Time(ns),
            None if self.count.saturating_add(self.unanswered) < rank.least_count() => Percentile::TooFew,
            None => Percentile::Unanswered,
        }
    }
}

/// Times over all directions.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TimesOverAll {
    /// All together.
    pub all: Times,
    /// Directions in which there may be such times, of which the capture can't tell.
    pub unclear_directions: u64,
    /// Of each percentile the direction in which it is latest, among those with enough of these times (ten at least).
    pub latest: Vec<Latest>,
}

/// The direction with the latest percentile.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Latest {
    /// `p50`, `p90`, `p99`, `p999` or `max`.
    pub rank: String,
    /// From whom to whom.
    pub direction: String,
    /// How long it took; absent where it falls on a question without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<u64>,
}

/// The times of one direction.
#[derive(Debug)]
pub(crate) struct Timed<'a> {
    pub(crate) of: TimesOf,
    /// Absent where they can't be told.
    pub(crate) spread: Option<&'a Spread>,
    pub(crate) unanswered: u64,
    /// Whether they count over all directions.
    pub(crate) is_judged: bool,
}

impl Timed<'_> {
    pub(crate) fn told(&self) -> Option<Times> {
        let spread = self.spread?;
        (spread.count() + self.unanswered > 0).then(|| Times::of(self.of, spread, self.unanswered))
    }
}

/// Gathers the times of all directions.
#[derive(Debug, Default)]
pub(super) struct AllTimes([One; TimesOf::ALL.len()]);

#[derive(Debug, Default)]
struct One {
    all: Spread,
    unanswered: u64,
    unclear: u64,
    latest: [Option<(Percentile, String)>; Rank::ALL.len()],
}

impl AllTimes {
    pub(super) fn add(&mut self, timed: &Timed<'_>, name: &str) {
        if !timed.is_judged {
            return;
        }
        let one = &mut self.0[timed.of as usize];
        let Some(spread) = timed.spread else {
            one.unclear += 1;
            return;
        };
        one.all.add_all(spread);
        one.unanswered = one.unanswered.saturating_add(timed.unanswered);
        let Some(times) = timed.told() else { return };
        for (rank, latest) in Rank::ALL.into_iter().zip(&mut one.latest) {
            let least = if rank == Rank::Max { 1 } else { LEAST_OF_ONE };
            let now = times.at(rank);
            if now == Percentile::TooFew || times.count.saturating_add(times.unanswered) < least {
                continue;
            }
            if latest.as_ref().is_none_or(|(known, _)| order(now) > order(*known)) {
                *latest = Some((now, name.to_owned()));
            }
        }
    }

    pub(super) fn finish(self) -> Vec<TimesOverAll> {
        let told = |(of, one): (TimesOf, One)| {
            let all = Times::of(of, &one.all, one.unanswered);
            let latest = |(rank, latest): (Rank, Option<(Percentile, String)>)| {
                let (percentile, direction) = latest?;
                let time_ns = match percentile {
                    Percentile::Time(ns) => Some(ns),
                    Percentile::Unanswered | Percentile::TooFew => None,
                };
                Some(Latest { rank: rank.name().to_owned(), direction, time_ns })
            };
            (all.count + all.unanswered + one.unclear > 0).then(|| TimesOverAll {
                all,
                unclear_directions: one.unclear,
                latest: Rank::ALL.into_iter().zip(one.latest).filter_map(latest).collect(),
            })
        };
        TimesOf::ALL.into_iter().zip(self.0).filter_map(told).collect()
    }
}

/// What has no answer is later than every time.
const fn order(percentile: Percentile) -> (bool, u64) {
    match percentile {
        Percentile::Time(ns) => (false, ns),
        Percentile::Unanswered => (true, 0),
        Percentile::TooFew => (false, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: impl IntoIterator<Item = u64>) -> Spread {
        let mut spread = Spread::default();
        values.into_iter().for_each(|value| spread.add(value));
        spread
    }

    fn times(values: impl IntoIterator<Item = u64>, unanswered: u64) -> Times {
        Times::of(TimesOf::Turn, &spread(values), unanswered)
    }

    #[test]
    fn a_percentile_needs_its_number_of_times() {
        let nine = times(1..=9, 0);
        assert_eq!((nine.at(Rank::P50), nine.at(Rank::Max)), (Percentile::Time(5), Percentile::Time(9)));
        assert_eq!((nine.at(Rank::P90), nine.at(Rank::P99)), (Percentile::TooFew, Percentile::TooFew));
        assert_eq!(times(1..=10, 0).at(Rank::P90), Percentile::Time(9));
        assert_eq!(times(1..=99, 0).at(Rank::P99), Percentile::TooFew);
        assert_eq!(times(1..=100, 0).at(Rank::P99), Percentile::Time(99));
        assert_eq!(times([], 0).at(Rank::Max), Percentile::TooFew);
    }

    #[test]
    fn what_has_no_answer_is_later_than_all() {
        let most = times(1..=99, 1);
        assert_eq!((most.at(Rank::P99), most.at(Rank::Max)), (Percentile::Time(99), Percentile::Unanswered));
        assert_eq!(times(1..=98, 2).at(Rank::P99), Percentile::Unanswered);
        assert_eq!(times([], 1).at(Rank::P50), Percentile::Unanswered);
    }

    #[test]
    fn the_latest_direction_is_named_and_the_few_of_many_count_together() {
        let mut all = AllTimes::default();
        let (slow, quick, few) = (spread([9; 20]), spread([2; 200]), spread([50; 5]));
        let timed = |spread| Timed { of: TimesOf::Turn, spread, unanswered: 0, is_judged: true };
        all.add(&timed(Some(&quick)), "quick");
        all.add(&timed(Some(&slow)), "slow");
        all.add(&timed(Some(&few)), "few");
        all.add(&timed(None), "unclear");
        all.add(&Timed { is_judged: false, ..timed(Some(&few)) }, "not judged");
        let told = all.finish();
        let [turns] = &told[..] else { panic!("{told:?}") };
        assert_eq!(
            (turns.all.count, turns.all.p50_ns, turns.all.p99_ns, turns.unclear_directions),
            (225, Some(2), Some(50), 1)
        );
        let latest = |rank: &str| {
            turns
                .latest
                .iter()
                .find(|latest| latest.rank == rank)
                .map(|latest| (latest.direction.as_str(), latest.time_ns))
        };
        // Five are too few for a direction by itself, but for their longest.
        assert_eq!((latest("p50"), latest("p90")), (Some(("slow", Some(9))), Some(("slow", Some(9)))));
        assert_eq!((latest("p99"), latest("p999")), (Some(("quick", Some(2))), None));
        assert_eq!(latest("max"), Some(("few", Some(50))));
    }
}
