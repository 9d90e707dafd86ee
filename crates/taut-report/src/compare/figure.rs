use serde_json::{Value, json};

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
}

/// A figure before and after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    pub(super) figure: &'static str,
    pub(super) before: f64,
    pub(super) after: f64,
    /// After over before.
    pub(super) ratio: f64,
    /// The widest that the two intervals allow; it holds 1 just when they overlap.
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
    /// Too few rounds.
    NoInterval,
}

impl Compared {
    pub(super) fn new(before: &Figure, after: &Figure) -> Option<Self> {
        if before.value <= 0.0 || before.name != after.name {
            return None;
        }
        let intervals = before.interval.zip(after.interval).filter(|(before, _)| before.0 > 0.0);
        let ratio_interval = intervals.map(|(before, after)| (after.0 / before.1, after.1 / before.0));
        let change = match ratio_interval {
            None => Change::NoInterval,
            Some((_, high)) if high < 1.0 => Change::Less,
            Some((low, _)) if low > 1.0 => Change::More,
            Some(_) => Change::CannotTellApart,
        };
        Some(Self {
            figure: before.name,
            before: before.value,
            after: after.value,
            ratio: after.value / before.value,
            ratio_interval,
            change,
            kind: before.kind,
        })
    }

    pub(super) fn words(&self, value: f64) -> String {
        match self.kind {
            Kind::Time => units::time(value as u64),
            Kind::Throughput => units::bit_rate(value),
            Kind::Ratio => units::number(value),
        }
    }

    pub(super) fn verdict_in_words(&self) -> String {
        let by = match self.ratio {
            ratio if ratio < 1.0 => units::share(1.0 - ratio),
            ratio if ratio < 2.0 => units::share(ratio - 1.0),
            ratio => format!("{} times", units::number(ratio)),
        };
        let (less, more) = match self.kind {
            Kind::Time => ("shorter", if self.ratio < 2.0 { "longer" } else { "as long" }),
            Kind::Throughput | Kind::Ratio => ("lower", if self.ratio < 2.0 { "higher" } else { "as high" }),
        };
        match self.change {
            Change::Less => format!("{by} {less}"),
            Change::More => format!("{by} {more}"),
            Change::CannotTellApart => "cannot tell apart".to_owned(),
            Change::NoInterval => "too few rounds".to_owned(),
        }
    }

    pub(super) fn tone(&self) -> Tone {
        let less_is_better = self.kind != Kind::Throughput;
        match self.change {
            Change::Less if less_is_better => Tone::Good,
            Change::More if !less_is_better => Tone::Good,
            Change::Less | Change::More => Tone::Bad,
            Change::CannotTellApart | Change::NoInterval => Tone::Faint,
        }
    }

    pub(super) fn data(&self) -> Value {
        let unit = match self.kind {
            Kind::Time => "ns",
            Kind::Throughput => "bps",
            Kind::Ratio => "ratio",
        };
        let verdict = match self.change {
            Change::Less => "less",
            Change::More => "more",
            Change::CannotTellApart => "cannot_tell_apart",
            Change::NoInterval => "no_interval",
        };
        json!({
            "figure": self.figure,
            "unit": unit,
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

    proptest! {
        #[test]
        fn intervals_that_overlap_cannot_be_told_apart(a in 1.0..100.0f64, b in 0.0..50.0f64, c in 1.0..100.0f64, d in 0.0..50.0f64) {
            let compared = Compared::new(&figure(a, a, a + b), &figure(c, c, c + d)).unwrap();
            let overlap = a <= c + d && c <= a + b;
            // Dividing may round either way just where the ends touch.
            prop_assume!((a - (c + d)).abs() > 1e-9 && (c - (a + b)).abs() > 1e-9);
            prop_assert_eq!(compared.change == Change::CannotTellApart, overlap);
            prop_assert_eq!(compared.change == Change::Less, c + d < a);
        }
    }
}
