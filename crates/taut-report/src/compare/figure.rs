use std::cmp::Ordering;

use serde_json::{Value, json};
use taut_record::stats::LEAST_DIFFERENCE;
use taut_record::stats::{
    LEAST_ROUNDS, Losses, apart_by_chance, losses_differ_at, moved, narrowest, rounds_to_be_apart, sign_test_level,
};

use crate::sheet::Tone;
use crate::units;

/// One figure with what it was taken from.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) value: f64,
    pub(super) sample: Sample,
}

/// What a figure was taken from.
#[derive(Clone, Debug)]
pub(super) enum Sample {
    /// Virtual time: the same seed gives the same figure.
    Exact,
    /// The figure of each round, infinite where it is that of a lost message.
    Rounds(Vec<f64>),
    /// An interval across rounds with its level, where that is known.
    Interval((f64, f64), Option<f64>),
    /// Too few rounds, or too few messages in them.
    None,
}

/// What a figure is, and so which way is better.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Time,
    Throughput,
    /// Of a setting's time over the base's.
    Ratio,
    /// Of messages.
    Share,
}

/// A figure before and after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    pub(super) figure: &'static str,
    /// Infinite where the figure falls on a lost message.
    pub(super) before: f64,
    pub(super) after: f64,
    /// After over before; none where either is lost, or there was nothing before.
    pub(super) ratio: Option<f64>,
    /// The widest that the two intervals allow, and the drift on top; it holds 1 just when no
    /// change is told. None where an end is lost.
    pub(super) ratio_interval: Option<(f64, f64)>,
    /// By what factor the machine may have moved between the two; none of figures that do not scatter.
    pub(super) drift: Option<f64>,
    pub(super) change: Change,
    kind: Kind,
}

/// What can be said of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Change {
    Less,
    More,
    CannotTellApart,
    /// Too few rounds, or too few messages in them.
    NoInterval,
    /// So many rounds on both sides would do: with those that there are, one of so many equal
    /// figures lies apart too often.
    TooFewRounds(usize),
    /// Times are not held against each other where one side loses more.
    LossesDiffer,
}

impl Sample {
    /// Whether it scatters, so that equal things may lie apart by chance.
    pub(super) const fn scatters(&self) -> bool {
        matches!(self, Self::Rounds(_) | Self::Interval(..))
    }

    /// The number of rounds, and how many an interval leaves off at each end that stands by itself.
    fn shape(&self) -> Option<(usize, usize)> {
        match self {
            Self::Rounds(rounds) => Some((rounds.len(), narrowest(rounds.len(), LEAST_LEVEL).0)),
            Self::Interval(_, level) => of_level((*level)?),
            Self::Exact | Self::None => None,
        }
    }

    fn interval(&self, cut: usize) -> Option<(f64, f64)> {
        match self {
            Self::Rounds(rounds) => {
                let mut sorted = rounds.clone();
                sorted.sort_by(f64::total_cmp);
                Some((*sorted.get(cut)?, *sorted.get(sorted.len().checked_sub(cut + 1)?)?))
            }
            Self::Interval(interval, _) => Some(*interval),
            Self::Exact | Self::None => None,
        }
    }

    /// How far it moved while the recording was made.
    fn moved(&self) -> f64 {
        match self {
            Self::Rounds(rounds) => moved(rounds),
            Self::Interval((low, high), _) => moved(&[*low, *high]),
            Self::Exact | Self::None => 1.0,
        }
    }

    /// Whether a wider interval can be taken of it.
    const fn widens(&self) -> bool {
        matches!(self, Self::Rounds(_))
    }
}

/// Least level of an interval that stands by itself.
const LEAST_LEVEL: f64 = 0.93;

/// Rounds and cut that have this level; the fewest.
fn of_level(level: f64) -> Option<(usize, usize)> {
    const MOST: usize = 200;
    let is_it = |&(rounds, cut): &(usize, usize)| (sign_test_level(rounds, cut) - level).abs() < 1e-9;
    (LEAST_ROUNDS..=MOST).flat_map(|rounds| (0..rounds / 2).map(move |cut| (rounds, cut))).find(is_it)
}

/// The two intervals by which samples are told apart, wide enough that equal ones lie apart with a
/// probability of at most `by_chance`; else what can be said without.
fn intervals(before: &Sample, after: &Sample, by_chance: f64) -> Result<[(f64, f64); 2], Change> {
    if !before.scatters() || !after.scatters() {
        return Err(Change::NoInterval);
    }
    let too_few = Change::TooFewRounds(rounds_to_be_apart(by_chance));
    let (of_before, of_after) = before.shape().zip(after.shape()).ok_or(too_few)?;
    if of_before.0.min(of_after.0) < LEAST_ROUNDS {
        return Err(Change::NoInterval);
    }
    let most = of_before.1.max(of_after.1);
    for less in 0..=most {
        let narrow = |sample: &Sample, cut: usize| if sample.widens() { cut.saturating_sub(less) } else { cut };
        let (cut, other) = (narrow(before, of_before.1), narrow(after, of_after.1));
        if apart_by_chance((of_before.0, cut), (of_after.0, other)) <= by_chance {
            return before.interval(cut).zip(after.interval(other)).map(|(a, b)| [a, b]).ok_or(too_few);
        }
    }
    Err(too_few)
}

impl Compared {
    /// Holds two figures against each other so that equal ones are told apart with a probability of
    /// at most `by_chance`.
    pub(super) fn new(before: &Figure, after: &Figure, by_chance: f64) -> Option<Self> {
        if before.name != after.name {
            return None;
        }
        let exact = [before, after].map(|figure| (figure.value, figure.value));
        let intervals = match (&before.sample, &after.sample) {
            (Sample::Exact, Sample::Exact) => Ok(exact),
            (before, after) => intervals(before, after, by_chance),
        };
        // The two were not measured in turn, and between them the machine moves as it does within
        // them: a gap between the intervals counts where it is wider than that.
        let scatters = before.sample.scatters() && after.sample.scatters();
        let drift = before.sample.moved().max(after.sample.moved()).max(1.0 + LEAST_DIFFERENCE);
        let drift = scatters.then_some(drift);
        let by = drift.unwrap_or(1.0);
        let change = match intervals {
            Err(change) => change,
            Ok([before, after]) if after.1 * by < before.0 => Change::Less,
            Ok([before, after]) if after.0 > before.1 * by => Change::More,
            Ok(_) => Change::CannotTellApart,
        };
        let is_of_times = before.value.is_finite() && after.value.is_finite();
        let ratios = intervals.ok().map(|[before, after]| (after.0 / before.1 / by, after.1 / before.0 * by));
        Some(Self {
            figure: before.name,
            before: before.value,
            after: after.value,
            // Nothing has no ratio to something.
            ratio: (is_of_times && before.value > 0.0).then(|| after.value / before.value),
            ratio_interval: ratios.filter(|(low, high)| is_of_times && low.is_finite() && high.is_finite()),
            drift,
            change,
            kind: before.kind,
        })
    }

    /// Shares of lost messages; `None` where neither side lost any. Equal ones are told apart with a
    /// probability of at most `by_chance`, where so many are lost together on the average (1: each by itself).
    pub(super) fn of_losses(before: Losses, after: Losses, together: f64, by_chance: f64) -> Option<Self> {
        let cases = |losses: Losses| {
            let cases = |messages: u64| (messages as f64 / together).round() as u64;
            Losses { lost: cases(losses.lost), messages: cases(losses.messages) }
        };
        let change = match losses_differ_at(cases(after), cases(before), by_chance) {
            Some(Ordering::Less) => Change::Less,
            Some(_) => Change::More,
            None => Change::CannotTellApart,
        };
        (before.lost + after.lost > 0).then(|| Self {
            figure: "lost",
            before: before.share(),
            after: after.share(),
            ratio: (before.lost > 0).then(|| after.share() / before.share()),
            ratio_interval: None,
            drift: None,
            change,
            kind: Kind::Share,
        })
    }

    /// A figure of messages of which one side lost more.
    pub(super) fn beside_unlike_losses(self) -> Self {
        Self { change: Change::LossesDiffer, ..self }
    }

    /// Whether the two differ beyond the noise.
    pub(super) fn differs(&self) -> bool {
        matches!(self.change, Change::Less | Change::More)
    }

    pub(super) fn words(&self, value: f64) -> String {
        match self.kind {
            Kind::Time if value.is_infinite() => units::LOST.to_owned(),
            Kind::Time => units::time(value as u64),
            Kind::Throughput => units::bit_rate(value),
            Kind::Ratio => units::number(value),
            Kind::Share => units::share(value),
        }
    }

    pub(super) fn verdict_in_words(&self) -> String {
        // From nothing lost, or to a percentile that is, there is no ratio.
        let by = match self.ratio {
            None => String::new(),
            Some(ratio) if ratio < 1.0 => format!("{} ", units::share(1.0 - ratio)),
            Some(ratio) if ratio < 2.0 => format!("{} ", units::share(ratio - 1.0)),
            Some(ratio) => format!("{} times ", units::number(ratio)),
        };
        let is_multiple = self.ratio.is_some_and(|ratio| ratio >= 2.0);
        let (less, more) = match self.kind {
            Kind::Time => ("shorter", if is_multiple { "as long" } else { "longer" }),
            Kind::Throughput | Kind::Ratio => ("lower", if is_multiple { "as high" } else { "higher" }),
            Kind::Share => ("less", if is_multiple { "as many" } else { "more" }),
        };
        match self.change {
            Change::Less => format!("{by}{less}"),
            Change::More => format!("{by}{more}"),
            Change::CannotTellApart => "cannot tell apart".to_owned(),
            Change::NoInterval => "no interval".to_owned(),
            Change::TooFewRounds(needed) => crate::sheet::too_few_rounds(Some(needed)),
            Change::LossesDiffer => "losses differ".to_owned(),
        }
    }

    pub(super) fn tone(&self) -> Tone {
        let less_is_better = self.kind != Kind::Throughput;
        match self.change {
            Change::Less if less_is_better => Tone::Good,
            Change::More if !less_is_better => Tone::Good,
            Change::Less | Change::More => Tone::Bad,
            Change::CannotTellApart | Change::NoInterval | Change::TooFewRounds(_) | Change::LossesDiffer => {
                Tone::Faint
            }
        }
    }

    pub(super) fn data(&self) -> Value {
        let unit = match self.kind {
            Kind::Time => "ns",
            Kind::Throughput => "bps",
            Kind::Ratio => "ratio",
            Kind::Share => "share",
        };
        let verdict = match self.change {
            Change::Less => "less",
            Change::More => "more",
            Change::CannotTellApart => "cannot_tell_apart",
            Change::NoInterval => "no_interval",
            Change::TooFewRounds(_) => "too_few_rounds",
            Change::LossesDiffer => "losses_differ",
        };
        let needed = match self.change {
            Change::TooFewRounds(needed) => Some(needed),
            _ => None,
        };
        json!({
            "figure": self.figure,
            "unit": unit,
            // What is lost has no number: null.
            "before": self.before,
            "after": self.after,
            "ratio": self.ratio,
            "ratio_ci": self.ratio_interval.map(|(low, high)| [low, high]),
            // By this factor the interval is wider than what the rounds say by themselves.
            "drift_ratio": self.drift,
            "verdict": verdict,
            "rounds_needed": needed,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn figure(low: f64, value: f64, high: f64) -> Figure {
        Figure { name: "p50", kind: Kind::Time, value, sample: Sample::Rounds(vec![low, low, value, high, high]) }
    }

    /// A stream that stood still and runs again: as much of a change as one that stops.
    #[test]
    fn what_was_nothing_before_is_held_against_what_is_after() {
        let figure = |value: f64| Figure {
            name: "throughput",
            kind: Kind::Throughput,
            value,
            sample: Sample::Rounds(vec![value; 9]),
        };
        let compared = |before, after| Compared::new(&figure(before), &figure(after), 0.01).unwrap();
        let (up, down, same) = (compared(0.0, 1e9), compared(1e9, 0.0), compared(0.0, 0.0));
        assert_eq!([up.change, down.change, same.change], [Change::More, Change::Less, Change::CannotTellApart]);
        assert_eq!([up.ratio, down.ratio, same.ratio], [None, Some(0.0), None]);
        assert_eq!((up.ratio_interval, same.ratio_interval), (None, None));
    }

    #[test]
    fn a_lost_figure_has_no_ratio_and_no_number() {
        let lost = figure(1.0, f64::INFINITY, f64::INFINITY);
        let compared = Compared::new(&figure(2.0, 3.0, 4.0), &lost, 0.05).unwrap();
        assert_eq!((compared.ratio, compared.ratio_interval, compared.change), (None, None, Change::CannotTellApart));
        assert_eq!(compared.words(compared.after), "lost");
        assert_eq!(compared.data()["after"], Value::Null);
        // Lost in all rounds, which is later than whatever was there before.
        let all = figure(f64::INFINITY, f64::INFINITY, f64::INFINITY);
        let compared = Compared::new(&figure(2.0, 3.0, 4.0), &all, 0.05).unwrap();
        assert_eq!((compared.change, compared.verdict_in_words()), (Change::More, "longer".to_owned()));
        let compared = Compared::new(&all, &all, 0.05).unwrap();
        assert_eq!((compared.change, compared.ratio), (Change::CannotTellApart, None));
    }

    #[test]
    fn losses_are_told_with_what_they_were() {
        let losses = |lost| Losses { lost, messages: 400 };
        let words = |before, after| {
            let compared = Compared::of_losses(losses(before), losses(after), 1.0, 0.05).unwrap();
            (compared.words(compared.after), compared.verdict_in_words(), compared.tone())
        };
        assert!(Compared::of_losses(losses(0), losses(0), 1.0, 0.05).is_none());
        assert_eq!(words(0, 160), ("40.0 %".to_owned(), "more".to_owned(), Tone::Bad));
        assert_eq!(words(160, 0), ("0 %".to_owned(), "100 % less".to_owned(), Tone::Good));
        assert_eq!(words(40, 160), ("40.0 %".to_owned(), "4.00 times as many".to_owned(), Tone::Bad));
        assert_eq!(words(0, 1).1, "cannot tell apart");
    }

    /// 5 of each lie apart by chance in 0.8 % of all cases, which is too much for one of ten; with
    /// more rounds the interval widens first.
    #[test]
    fn a_verdict_on_one_of_many_takes_more_rounds_or_a_wider_interval() {
        // Rounds that lie so many thousandths above 1, and do not move for longer than one.
        let at = |thousandths: &[u32]| Figure {
            name: "p50",
            kind: Kind::Time,
            value: 1.0,
            sample: Sample::Rounds(thousandths.iter().map(|&at| 1.0 + f64::from(at) / 1000.0).collect()),
        };
        let change = |before: &Figure, after: &Figure, of: f64| Compared::new(before, after, 0.05 / of).unwrap().change;
        let (five, later) = (at(&[1, 2, 3, 4, 5]), at(&[51, 52, 53, 54, 55]));
        assert_eq!(change(&five, &later, 6.0), Change::More);
        assert_eq!(change(&later, &five, 6.0), Change::Less);
        assert_eq!(change(&five, &later, 10.0), Change::TooFewRounds(6));
        assert_eq!(change(&at(&[1, 2, 3, 4]), &later, 1.0), Change::NoInterval);
        // Nine rounds of which the last and the first overlap: not for a verdict on one of many.
        let (nine, mut others) = ([1, 3, 60, 2, 4, 1, 3, 2, 4], [101, 103, 55, 102, 104, 101, 103, 102, 104]);
        assert_eq!(change(&at(&nine), &at(&others), 1.0), Change::More);
        assert_eq!(change(&at(&nine), &at(&others), 30.0), Change::CannotTellApart);
        others[2] = 103;
        assert_eq!(change(&at(&nine), &at(&others), 30.0), Change::More);
        // Where only an interval is known, its level tells the rounds.
        let of = |low: f64, level| Figure { sample: Sample::Interval((low, low * 1.1), level), ..at(&[]) };
        let held = |level, of_many| change(&of(1.0, level), &of(1.5, level), of_many);
        assert_eq!((held(Some(0.9375), 1.0), held(Some(0.9375), 10.0)), (Change::More, Change::TooFewRounds(6)));
        assert!(matches!(held(None, 1.0), Change::TooFewRounds(_)));
    }

    proptest! {
        #[test]
        fn what_is_no_further_apart_than_it_moves_cannot_be_told_apart(
            a in 1.0..100.0f64,
            b in 0.0..50.0f64,
            c in 1.0..100.0f64,
            d in 0.0..50.0f64,
        ) {
            let compared = Compared::new(&figure(a, a, a + b), &figure(c, c, c + d), 0.05).unwrap();
            let drift = ((a + b) / a).max((c + d) / c).max(1.01);
            let is_near = a <= (c + d) * drift && c <= (a + b) * drift;
            prop_assert_eq!(compared.change == Change::CannotTellApart, is_near);
            prop_assert_eq!(compared.change == Change::Less, (c + d) * drift < a);
            let (low, high) = compared.ratio_interval.unwrap();
            prop_assert!((low <= 1.0 + 1e-9 && high >= 1.0 - 1e-9) || !is_near);
        }
    }
}
