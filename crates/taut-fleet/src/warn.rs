//! When a pair is named: `p99 > 2ms or > 3 * usual`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

use crate::error::Error;
use crate::figure::{Figure, Measured};
use crate::words;

/// A condition under which a pair is named: alternatives, each of terms that all hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Warn {
    alternatives: Vec<Vec<Term>>,
}

/// A figure beside a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// What is looked at.
    pub figure: Figure,
    comparison: Comparison,
    /// What it is held against.
    pub limit: Limit,
    text: String,
}

/// What a figure is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Nanoseconds, messages, or bits per second.
    Value(f64),
    /// A share of the messages, as a fraction: a percentage in decimal is seldom a binary number.
    Share {
        /// So many messages …
        lost: u64,
        /// … of so many.
        of: u64,
    },
    /// So many times what is usual in this mesh.
    TimesUsual(f64),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Comparison {
    Below,
    AtMost,
    Above,
    AtLeast,
}

const FORM: &str = "write FIGURE > LIMIT (or >=, <, <=) with a FIGURE of min, mean, p50, p90, p99, p999, p9999, max, \
lost or throughput and a LIMIT like 2ms, 0, 0.1%, 100Mbit/s or 3 * usual; several with `and` and `or`";

impl Warn {
    /// All its terms, in order.
    pub fn terms(&self) -> impl Iterator<Item = &Term> {
        self.alternatives.iter().flatten()
    }

    /// What the first term looks at.
    pub fn figure(&self) -> Figure {
        self.terms().next().map_or(Figure::P50, |term| term.figure)
    }

    /// The alternatives that hold, each with its first term. `usual` says what of a figure is usual, if that is known;
    /// without it no term with `usual` holds.
    pub fn holding<'a>(
        &'a self,
        measured: &Measured,
        usual: &dyn Fn(Figure) -> Option<f64>,
    ) -> Vec<(String, &'a Term)> {
        let holds = |terms: &&Vec<Term>| terms.iter().all(|term| term.holds(measured, usual));
        let told = |terms: &'a Vec<Term>| Some((chain(terms), terms.first()?));
        self.alternatives.iter().filter(holds).filter_map(told).collect()
    }
}

impl Term {
    fn holds(&self, measured: &Measured, usual: &dyn Fn(Figure) -> Option<f64>) -> bool {
        let Some(value) = self.figure.of(measured) else { return false };
        let ordering = match self.limit {
            Limit::Value(limit) => value.partial_cmp(&limit),
            Limit::Share { lost, of } => {
                let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
                Some(product(measured.lost, of).cmp(&product(lost, measured.sent.max(1))))
            }
            Limit::TimesUsual(times) => usual(self.figure).and_then(|usual| value.partial_cmp(&(times * usual))),
        };
        ordering.is_some_and(|ordering| match self.comparison {
            Comparison::Below => ordering.is_lt(),
            Comparison::AtMost => ordering.is_le(),
            Comparison::Above => ordering.is_gt(),
            Comparison::AtLeast => ordering.is_ge(),
        })
    }

    fn parse(text: &str, before: Option<Figure>) -> Result<Self, Error> {
        let wrong = || Error::new(format!("`{text}`: {FORM}"));
        let at = text.find(['<', '>']).ok_or_else(wrong)?;
        let figure = match text[..at].trim() {
            "" => before.ok_or_else(wrong)?,
            name => Figure::ALL.into_iter().find(|figure| figure.name() == name).ok_or_else(wrong)?,
        };
        let (comparison, sign, limit) = match &text[at..] {
            rest if rest.starts_with("<=") => (Comparison::AtMost, "<=", &rest[2..]),
            rest if rest.starts_with(">=") => (Comparison::AtLeast, ">=", &rest[2..]),
            rest if rest.starts_with('<') => (Comparison::Below, "<", &rest[1..]),
            rest => (Comparison::Above, ">", &rest[1..]),
        };
        let words = limit.trim();
        let limit = match words.strip_suffix("usual") {
            Some("") => Limit::TimesUsual(1.0),
            Some(times) => {
                let times = times.trim_end().strip_suffix('*').ok_or_else(wrong)?;
                Limit::TimesUsual(positive(times).ok_or_else(wrong)?)
            }
            None => match figure {
                Figure::Lost => match words.strip_suffix('%') {
                    Some(percent) => match share(percent).ok_or_else(wrong)? {
                        Limit::Share { lost, of } if lost > of => {
                            return Err(Error::new(format!("`{text}`: no more than 100% can be lost")));
                        }
                        limit => limit,
                    },
                    None => Limit::Value(f64::from(words.parse::<u32>().map_err(|_| wrong())?)),
                },
                Figure::Throughput => Limit::Value(words::bit_rate(words)?),
                _ => Limit::Value(words::time(words)?.as_nanos() as f64),
            },
        };
        Ok(Self { figure, comparison, limit, text: format!("{figure} {sign} {words}") })
    }
}

fn positive(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

/// A percentage of up to 16 digits.
fn share(percent: &str) -> Option<Limit> {
    let percent = percent.trim();
    let (whole, rest) = percent.split_once('.').unwrap_or((percent, ""));
    let digits = format!("{whole}{rest}");
    if digits.len() > 16 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(Limit::Share { lost: digits.parse().ok()?, of: 100 * 10_u64.pow(u32::try_from(rest.len()).ok()?) })
}

fn chain(terms: &[Term]) -> String {
    let texts: Vec<&str> = terms.iter().map(|term| term.text.as_str()).collect();
    texts.join(" and ")
}

impl FromStr for Warn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut alternatives = vec![Vec::new()];
        let mut before = None;
        let mut term = String::new();
        let mut close = |term: &mut String, alternatives: &mut Vec<Vec<Term>>| {
            let parsed = Term::parse(std::mem::take(term).trim(), before)?;
            before = Some(parsed.figure);
            alternatives.last_mut().into_iter().for_each(|terms| terms.push(parsed.clone()));
            Ok(())
        };
        for word in text.split_whitespace() {
            match word {
                "or" => {
                    close(&mut term, &mut alternatives)?;
                    alternatives.push(Vec::new());
                }
                "and" => close(&mut term, &mut alternatives)?,
                _ => term.push_str(&format!("{word} ")),
            }
        }
        close(&mut term, &mut alternatives)?;
        Ok(Self { alternatives })
    }
}

impl fmt::Display for Warn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.alternatives.iter().map(|terms| chain(terms)).collect();
        f.write_str(&texts.join(" or "))
    }
}

impl<'de> Deserialize<'de> for Warn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taut_record::stats::Distribution;

    use super::*;

    fn measured(ms: u64, lost: u64) -> Measured {
        let mut times: Distribution = (0..100 - lost).map(|_| std::time::Duration::from_millis(ms)).collect();
        times.record_lost(lost);
        Measured { rtt_ns: times.summary(), sent: 100, lost, throughput_bps: None }
    }

    fn holding(text: &str, measured: &Measured, usual: Option<f64>) -> Vec<String> {
        let warn: Warn = text.parse().unwrap();
        warn.holding(measured, &|_| usual).into_iter().map(|(text, _)| text).collect()
    }

    #[test]
    fn alternatives_and_what_all_of_them_needs() {
        let (fast, slow, lossy) = (measured(1, 0), measured(50, 0), measured(1, 2));
        let text = "p50>2ms or > 3 * usual and >10ms or lost > 0";
        assert!(holding(text, &fast, Some(1e6)).is_empty());
        assert_eq!(holding(text, &slow, Some(1e6)), ["p50 > 2ms", "p50 > 3 * usual and p50 > 10ms"]);
        assert_eq!(holding(text, &slow, None), ["p50 > 2ms"]);
        assert_eq!(holding(text, &lossy, Some(1e6)), ["lost > 0"]);
        assert_eq!(holding("lost >= 2%", &lossy, None), ["lost >= 2%"]);
        assert!(holding("lost >= 100%", &lossy, None).is_empty());
        assert!(holding("lost > 2%", &lossy, None).is_empty());
        // In binary, 0.7 % is a little less than 7 of 1,000, and 0.07 % a little more than 7 of 10,000.
        let of = |lost: u64, sent: u64| Measured { sent, lost, ..Measured::default() };
        for (limit, lost, sent) in [("0.7%", 7, 1000), ("0.07%", 7, 10_000), ("2.50%", 1, 40), (".1%", 1, 1000)] {
            assert!(holding(&format!("lost > {limit}"), &of(lost, sent), None).is_empty(), "{limit}");
            assert_eq!(holding(&format!("lost >= {limit}"), &of(lost, sent), None).len(), 1, "{limit}");
            assert_eq!(holding(&format!("lost > {limit}"), &of(lost + 1, sent), None).len(), 1, "{limit}");
        }
        // The 99th percentile falls on a lost message, which is later than every limit.
        assert_eq!(holding("p99 > 1h", &lossy, None), ["p99 > 1h"]);
        // Nothing came back at all.
        assert_eq!(holding("p50 > 1h", &Measured { sent: 9, lost: 9, ..Measured::default() }, None), ["p50 > 1h"]);
        let stream = Measured { throughput_bps: Some(5e8), ..Measured::default() };
        assert_eq!(holding("throughput < 1Gbit/s or < 0.5 * usual", &stream, Some(9e8)), ["throughput < 1Gbit/s"]);
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for wrong in [
            "",
            "p99",
            "> 2ms",
            "p99 > 2",
            "p98 > 2ms",
            "p99 > 2ms or",
            "or p99 > 1s",
            "p99 > x * usual",
            "p99 > -1 * usual",
            "lost > 2ms",
            "lost > -1%",
            "lost > %",
            "lost > 1.2.3%",
            "lost > 101%",
            "lost < 100.001%",
            "p99 2ms",
        ] {
            assert!(wrong.parse::<Warn>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(text in "(p50|lost|max|throughput)? ?[<>]=? ?[0-9.]{1,3}(ms|%|Mbit/s| \\* usual)?( (or|and) [<>]=? ?[0-9]{1,2}(ms|%| \\*usual)?)?") {
            if let Ok(warn) = text.parse::<Warn>() {
                prop_assert_eq!(warn.to_string().parse::<Warn>().unwrap(), warn);
            }
        }
    }
}
