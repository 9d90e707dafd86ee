use std::fmt;
use std::str::FromStr;

use taut_record::stats::{Percentile, Quantile, Summary};
use taut_report::units;
use taut_time::Duration;

use crate::input;

/// What counts as late, and when late is a failure: the same for every command that measures times of messages.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Thresholds")]
pub(crate) struct ThresholdArgs {
    /// Limits of the table of late messages
    #[arg(long = "deadline", alias = "exceed", value_name = "TIME,…", value_delimiter = ',', default_value = "16.7ms,50ms,100ms,200ms,300ms",
          conflicts_with = "every", value_parser = input::duration)]
    pub(crate) exceed: Vec<Duration>,
    #[command(flatten)]
    assert: AssertArgs,
}

/// When figures are a failure.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Thresholds")]
pub(crate) struct AssertArgs {
    /// Fail with code 3 unless it holds everywhere: p99<2ms, max<=50ms, lost<0.1% (may be repeated)
    #[arg(long, value_name = "THRESHOLD")]
    assert: Vec<Assertion>,
}

impl ThresholdArgs {
    /// Whether there is any.
    pub(crate) const fn asserts(&self) -> bool {
        !self.assert.assert.is_empty()
    }

    /// As [`AssertArgs::are_missed`].
    pub(crate) fn are_missed(&self, on: &str, times: Option<&Summary>, lost: u64, sent: u64) -> bool {
        self.assert.are_missed(on, times, lost, sent)
    }
}

impl AssertArgs {
    /// Checks one row's figures, says on stderr which thresholds it misses, and whether it misses any.
    pub(crate) fn are_missed(&self, on: &str, times: Option<&Summary>, lost: u64, sent: u64) -> bool {
        let missed: Vec<String> =
            self.assert.iter().filter_map(|assertion| assertion.check(on, times, lost, sent).err()).collect();
        for line in &missed {
            anstream::eprintln!("taut: {line}");
        }
        !missed.is_empty()
    }
}

/// A threshold on what was measured: `p99<2ms`, `max<=50ms`, `lost<0.1%`.
#[derive(Clone, Debug)]
pub(crate) struct Assertion {
    text: String,
    figure: Figure,
    comparison: Comparison,
    limit: f64,
}

/// The figures of one row that a threshold may be on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged<'a> {
    pub(crate) times: Option<&'a Summary>,
    /// Interval of the rounds' longest times, in ns.
    pub(crate) longest: Option<(f64, f64)>,
    pub(crate) lost: u64,
    pub(crate) sent: u64,
}

/// What became of a threshold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Threshold {
    Holds,
    /// The figure misses it, and some of the rounds do not.
    Unsure(String),
    /// There is no such figure yet: too few messages came back, and half of them do not refute it.
    TooFew(String),
    Missed(String),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Figure {
    Min,
    Mean,
    P50,
    P90,
    P99,
    P999,
    P9999,
    Max,
    Lost,
}

#[derive(Clone, Copy, Debug)]
enum Comparison {
    Below,
    AtMost,
    Above,
    AtLeast,
}

const FORM: &str = "write FIGURE<LIMIT (or <=, >, >=), with a FIGURE of min, mean, p50, p90, p99, p999, p9999, max and a LIMIT \
like 2ms, or lost<0.1%";

impl Assertion {
    const fn holds(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::Below => value < self.limit,
            Comparison::AtMost => value <= self.limit,
            Comparison::Above => value > self.limit,
            Comparison::AtLeast => value >= self.limit,
        }
    }

    /// As [`check`](Self::check), with the interval across rounds: a threshold is missed only where all of it lies
    /// beyond. `longest` is the interval of the rounds' maxima, in ns, where there is one.
    pub(crate) fn judge(&self, on: &str, of: Judged<'_>) -> Threshold {
        let Err(text) = self.check(on, of.times, of.lost, of.sent) else { return Threshold::Holds };
        let ends = |(low, high): (Quantile, Quantile)| (low.as_f64(), high.as_f64());
        let interval = match self.figure {
            Figure::P50 => of.times.and_then(|times| times.p50_ci).map(ends),
            Figure::P99 => of.times.and_then(|times| times.p99_ci).map(ends),
            Figure::Max => of.longest,
            _ => None,
        };
        match interval {
            Some((low, high)) if self.holds(low) || self.holds(high) => {
                let end = |ns: f64| if ns.is_finite() { units::time(ns as u64) } else { units::LOST.to_owned() };
                Threshold::Unsure(format!("{text}; but the rounds lie from {} to {}", end(low), end(high)))
            }
            _ if self.lacks_messages(of.times) => Threshold::TooFew(text),
            _ => Threshold::Missed(text),
        }
    }

    /// Whether something came back, not enough for such a percentile, and nothing that refutes it: no percentile of
    /// these is below the median. The slower the answers, the fewer there are.
    fn lacks_messages(&self, times: Option<&Summary>) -> bool {
        let Some(times) = times.filter(|times| times.count > 0 && self.figure.percentile().is_some()) else {
            return false;
        };
        let is_open = match self.comparison {
            Comparison::Below | Comparison::AtMost => self.holds(times.p50.as_f64()),
            Comparison::Above | Comparison::AtLeast => self.holds(times.max.as_f64()),
        };
        is_open && self.figure.of(times).is_none()
    }

    /// Checks the figures of one row; what it says when the threshold is missed. A row without times misses every
    /// threshold on times, and one with too few of them those on percentiles that it has not.
    fn check(&self, on: &str, times: Option<&Summary>, lost: u64, sent: u64) -> Result<(), String> {
        let value = match (self.figure, times) {
            (Figure::Lost, _) => Some(if sent == 0 { 0.0 } else { lost as f64 / sent as f64 }),
            (_, None) => None,
            (figure, Some(times)) => figure.of(times).map(Quantile::as_f64),
        };
        if value.is_some_and(|value| self.holds(value)) {
            return Ok(());
        }
        let too_few = |percentile: Percentile| {
            let found = times.map_or(0, Summary::messages);
            let (found, least) = (units::count(found), units::count(percentile.least_messages()));
            format!("there are {found} messages, and it takes {least}")
        };
        let found = match (value, self.figure) {
            (None, figure) => figure
                .percentile()
                .filter(|_| times.is_some())
                .map_or_else(|| "there is no such figure, since nothing came back".to_owned(), too_few),
            (Some(share), Figure::Lost) => format!("it is {:.4} %", share * 100.0),
            (Some(nanos), _) if nanos.is_infinite() => {
                let (lost, all) = times.map_or((lost, sent), |times| (times.lost, times.messages()));
                let share = units::share(lost as f64 / all.max(1) as f64);
                format!("it falls on a lost message ({} of {}, {share})", units::count(lost), units::count(all))
            }
            (Some(nanos), _) if nanos < 1e6 => format!("it is {:.3} µs", nanos / 1e3),
            (Some(nanos), _) => format!("it is {:.3} ms", nanos / 1e6),
        };
        Err(format!("{on}: `{self}` does not hold: {found}"))
    }
}

impl Figure {
    /// A time of the summary; `None` where there is none.
    fn of(self, times: &Summary) -> Option<Quantile> {
        match self {
            Self::Min => times.min.map(Quantile::Time),
            Self::Mean => times.mean.map(Quantile::Time),
            Self::Max => Some(times.max),
            _ => times.percentile(self.percentile()?),
        }
    }

    const fn percentile(self) -> Option<Percentile> {
        Some(match self {
            Self::P50 => Percentile::P50,
            Self::P90 => Percentile::P90,
            Self::P99 => Percentile::P99,
            Self::P999 => Percentile::P999,
            Self::P9999 => Percentile::P9999,
            Self::Min | Self::Mean | Self::Max | Self::Lost => return None,
        })
    }
}

impl FromStr for Assertion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}`: {FORM}");
        let at = text.find(['<', '>']).ok_or_else(wrong)?;
        let figure = match text[..at].trim() {
            "min" => Figure::Min,
            "mean" => Figure::Mean,
            "p50" => Figure::P50,
            "p90" => Figure::P90,
            "p99" => Figure::P99,
            "p999" | "p99.9" => Figure::P999,
            "p9999" | "p99.99" => Figure::P9999,
            "max" => Figure::Max,
            "lost" => Figure::Lost,
            _ => return Err(wrong()),
        };
        let (comparison, limit) = match &text[at..] {
            rest if rest.starts_with("<=") => (Comparison::AtMost, &rest[2..]),
            rest if rest.starts_with(">=") => (Comparison::AtLeast, &rest[2..]),
            rest if rest.starts_with('<') => (Comparison::Below, &rest[1..]),
            rest => (Comparison::Above, &rest[1..]),
        };
        let limit = limit.trim();
        let limit = if figure == Figure::Lost {
            let percent = limit.strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
            percent.map(|percent| percent / 100.0).ok_or_else(wrong)?
        } else {
            input::duration(limit).map_err(|_| wrong())?.as_nanos() as f64
        };
        Ok(Self { text: text.to_owned(), figure, comparison, limit })
    }
}

impl fmt::Display for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use taut_record::stats::Distribution;

    use super::*;

    fn check(text: &str, lost: u64) -> Result<(), String> {
        let mut times: Distribution = (1..=100 - lost).map(Duration::from_millis).collect();
        times.record_lost(lost);
        text.parse::<Assertion>().unwrap().check("x", times.summary().as_ref(), lost, 100)
    }

    #[test]
    fn a_lost_message_is_later_than_every_limit() {
        assert_eq!(check("p99<200ms", 1), Ok(()));
        assert_eq!(
            check("p99<1000s", 2),
            Err("x: `p99<1000s` does not hold: it falls on a lost message (2 of 100, 2.00 %)".to_owned())
        );
        assert!(check("max<1000s", 1).unwrap_err().contains("it falls on a lost message (1 of 100, 1.00 %)"));
        assert_eq!((check("max>1000s", 1), check("p90<200ms", 2)), (Ok(()), Ok(())));
        // Of those that came back, and said to be so.
        assert_eq!((check("mean<51ms", 2), check("min<=1ms", 2)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_threshold_is_missed_where_all_rounds_miss_it() {
        let mut rounds = taut_record::stats::Rounds::new();
        for base_ms in [10, 11, 12, 13, 30] {
            rounds.add(&(1..=100).map(|step| Duration::from_micros(base_ms * 1000 + step)).collect());
        }
        let times = rounds.summary();
        let of = Judged { times: times.as_ref(), longest: Some((10e6, 30e6)), lost: 0, sent: 500 };
        let judge = |text: &str| text.parse::<Assertion>().unwrap().judge("x", of);
        assert_eq!(judge("p50<13ms"), Threshold::Holds);
        assert!(matches!(judge("p50<11ms"), Threshold::Unsure(text) if text.contains("the rounds lie from 10.")));
        assert!(matches!(judge("p50<9ms"), Threshold::Missed(_)));
        assert!(matches!(judge("max<20ms"), Threshold::Unsure(_)));
        assert!(matches!(judge("max<5ms"), Threshold::Missed(_)));
        assert!(matches!(judge("p50>20ms"), Threshold::Unsure(_)));
        assert!(matches!(judge("p9999<1s"), Threshold::TooFew(text) if text.contains("there are 500 messages")));
        // However few there are, half of these took too long, or all took less.
        assert!(matches!(judge("p9999<5ms"), Threshold::Missed(text) if text.contains("there are 500 messages")));
        assert!(matches!(judge("p9999>1s"), Threshold::Missed(_)));
        assert!(matches!(judge("p9999>20ms"), Threshold::TooFew(_)));
        // Without an interval the figure itself decides.
        assert!(matches!(judge("mean<1ms"), Threshold::Missed(_)));
        let none = Judged { times: None, longest: None, lost: 5, sent: 5 };
        assert!(matches!("p50<1s".parse::<Assertion>().unwrap().judge("x", none), Threshold::Missed(_)));
        // All were lost.
        let mut lost = Distribution::default();
        lost.record_lost(50);
        let lost = lost.summary();
        let of = Judged { times: lost.as_ref(), longest: None, lost: 50, sent: 50 };
        assert!(matches!("p99<1s".parse::<Assertion>().unwrap().judge("x", of), Threshold::Missed(_)));
    }

    #[test]
    fn thresholds_hold_or_say_why_not() {
        assert_eq!(check("p50<51ms", 0), Ok(()));
        assert_eq!(check("max >= 99ms", 0), Ok(()));
        assert!(check("p99<2ms", 0).unwrap_err().contains("p99<2ms"));
        assert_eq!(check("lost<=1%", 1), Ok(()));
        assert!(check("lost<1%", 1).is_err());
    }

    #[test]
    fn no_times_miss_a_threshold_on_times() {
        let assertion: Assertion = "p99<2ms".parse().unwrap();
        assert!(assertion.check("x", None, 5, 5).is_err());
    }

    #[test]
    fn a_percentile_of_too_few_messages_is_missed() {
        assert_eq!(
            check("p9999<1000s", 0),
            Err("x: `p9999<1000s` does not hold: there are 100 messages, and it takes 10,000".to_owned())
        );
        assert_eq!((check("p99<1000s", 0), check("max<1000s", 0)), (Ok(()), Ok(())));
    }

    #[test]
    fn the_form_is_explained() {
        for text in ["", "p99", "p98<2ms", "p99<2", "lost<5", "p99==2ms"] {
            assert!(text.parse::<Assertion>().is_err(), "{text}");
        }
    }
}
