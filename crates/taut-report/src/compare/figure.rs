use std::cmp::Ordering;

use serde_json::{Value, json};
use taut_measure::stats::{Losses, losses_differ};

use crate::sheet::Tone;
use crate::units;

/// One figure with its interval across rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) value: f64,
    pub(super) interval: Option<(f64, f64)>,
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
    /// After over before; none where either is lost.
    pub(super) ratio: Option<f64>,
    /// The widest that the two intervals allow; it holds 1 just when they overlap. None where an end is lost.
    pub(super) ratio_interval: Option<(f64, f64)>,
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
    /// Times are not held against each other where one side loses more.
    LossesDiffer,
}

impl Compared {
    pub(super) fn new(before: &Figure, after: &Figure) -> Option<Self> {
        if before.value <= 0.0 || before.name != after.name {
            return None;
        }
        let change = match before.interval.zip(after.interval) {
            None => Change::NoInterval,
            Some((before, after)) if after.1 < before.0 => Change::Less,
            Some((before, after)) if after.0 > before.1 => Change::More,
            Some(_) => Change::CannotTellApart,
        };
        let is_of_times = before.value.is_finite() && after.value.is_finite();
        let ratios =
            before.interval.zip(after.interval).map(|(before, after)| (after.0 / before.1, after.1 / before.0));
        Some(Self {
            figure: before.name,
            before: before.value,
            after: after.value,
            ratio: is_of_times.then(|| after.value / before.value),
            ratio_interval: ratios.filter(|(low, high)| is_of_times && low.is_finite() && high.is_finite()),
            change,
            kind: before.kind,
        })
    }

    /// Shares of lost messages; `None` where neither side lost any.
    pub(super) fn of_losses(before: Losses, after: Losses) -> Option<Self> {
        let change = match losses_differ(after, before) {
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
            Change::LossesDiffer => "losses differ".to_owned(),
        }
    }

    pub(super) fn tone(&self) -> Tone {
        let less_is_better = self.kind != Kind::Throughput;
        match self.change {
            Change::Less if less_is_better => Tone::Good,
            Change::More if !less_is_better => Tone::Good,
            Change::Less | Change::More => Tone::Bad,
            Change::CannotTellApart | Change::NoInterval | Change::LossesDiffer => Tone::Faint,
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
            Change::LossesDiffer => "losses_differ",
        };
        json!({
            "figure": self.figure,
            "unit": unit,
            // What is lost has no number: null.
            "before": self.before,
            "after": self.after,
            "ratio": self.ratio,
            "ratio_ci": self.ratio_interval.map(|(low, high)| [low, high]),
            "verdict": verdict,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn figure(low: f64, value: f64, high: f64) -> Figure {
        Figure { name: "p50", kind: Kind::Time, value, interval: Some((low, high)) }
    }

    #[test]
    fn a_lost_figure_has_no_ratio_and_no_number() {
        let lost = figure(1.0, f64::INFINITY, f64::INFINITY);
        let compared = Compared::new(&figure(2.0, 3.0, 4.0), &lost).unwrap();
        assert_eq!((compared.ratio, compared.ratio_interval, compared.change), (None, None, Change::CannotTellApart));
        assert_eq!(compared.words(compared.after), "lost");
        assert_eq!(compared.data()["after"], Value::Null);
        // Lost in all rounds, which is later than whatever was there before.
        let all = figure(f64::INFINITY, f64::INFINITY, f64::INFINITY);
        let compared = Compared::new(&figure(2.0, 3.0, 4.0), &all).unwrap();
        assert_eq!((compared.change, compared.verdict_in_words()), (Change::More, "longer".to_owned()));
        let compared = Compared::new(&all, &all).unwrap();
        assert_eq!((compared.change, compared.ratio), (Change::CannotTellApart, None));
    }

    #[test]
    fn losses_are_told_with_what_they_were() {
        let losses = |lost| Losses { lost, messages: 400 };
        let words = |before, after| {
            let compared = Compared::of_losses(losses(before), losses(after)).unwrap();
            (compared.words(compared.after), compared.verdict_in_words(), compared.tone())
        };
        assert!(Compared::of_losses(losses(0), losses(0)).is_none());
        assert_eq!(words(0, 160), ("40.0 %".to_owned(), "more".to_owned(), Tone::Bad));
        assert_eq!(words(160, 0), ("0 %".to_owned(), "100 % less".to_owned(), Tone::Good));
        assert_eq!(words(40, 160), ("40.0 %".to_owned(), "4.00 times as many".to_owned(), Tone::Bad));
        assert_eq!(words(0, 1).1, "cannot tell apart");
    }

    proptest! {
        #[test]
        fn intervals_that_overlap_cannot_be_told_apart(a in 1.0..100.0f64, b in 0.0..50.0f64, c in 1.0..100.0f64, d in 0.0..50.0f64) {
            let compared = Compared::new(&figure(a, a, a + b), &figure(c, c, c + d)).unwrap();
            let overlap = a <= c + d && c <= a + b;
            prop_assert_eq!(compared.change == Change::CannotTellApart, overlap);
            prop_assert_eq!(compared.change == Change::Less, c + d < a);
        }
    }
}
