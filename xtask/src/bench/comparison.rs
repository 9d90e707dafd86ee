//! Two tools, the same work, round by round.

use serde_json::{Value, json};

use super::outcome::{Outcome, median, table};

/// Which way round a ratio is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ratio {
    /// taut / peer.
    OfPeer,
    /// peer / taut: how many times better, for a time.
    OfTaut,
}

/// What the median of the ratios has to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    /// For a time: no more than this.
    AtMost(f64),
    /// For a rate: no less than this.
    AtLeast(f64),
    /// Measured for its own sake.
    None,
}

impl Bar {
    fn met(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
            Self::None => true,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("<= {most}"),
            Self::AtLeast(least) => format!(">= {least}"),
            Self::None => "-".to_owned(),
        }
    }
}

/// The rounds of one case.
pub(crate) struct Comparison {
    /// What was done, `tcp 32 B`.
    pub(crate) case: String,
    /// The other tool.
    pub(crate) peer: &'static str,
    /// What was measured, with its unit: a key of the object.
    pub(crate) quantity: &'static str,
    /// How to print it: unit and what to divide by.
    pub(crate) unit: (&'static str, f64),
    /// How the two are set in relation.
    pub(crate) ratio: Ratio,
    /// What is to be kept.
    pub(crate) bar: Bar,
    /// taut's value and the peer's, by round.
    pub(crate) rounds: Vec<(f64, f64)>,
}

impl Comparison {
    fn ratios(&self) -> Vec<f64> {
        let ratio = |&(taut, peer): &(f64, f64)| match self.ratio {
            Ratio::OfPeer => taut / peer,
            Ratio::OfTaut => peer / taut,
        };
        self.rounds.iter().map(ratio).collect()
    }

    fn met(&self) -> bool {
        self.bar.met(median(&self.ratios()))
    }

    /// Whether the bar was met, and by how many rounds.
    fn verdict(&self) -> String {
        if matches!(self.bar, Bar::None) {
            return "-".to_owned();
        }
        let ratios = self.ratios();
        let met = ratios.iter().filter(|ratio| self.bar.met(**ratio)).count();
        format!("{} ({met} of {} rounds)", if self.met() { "met" } else { "MISSED" }, ratios.len())
    }

    fn row(&self) -> Vec<String> {
        let ratios = self.ratios();
        let (taut, peer): (Vec<_>, Vec<_>) = self.rounds.iter().copied().unzip();
        let value = |values: &[f64]| format!("{:.2} {}", median(values) / self.unit.1, self.unit.0);
        let ratio = |ratio: f64| format!("{ratio:.3}");
        let which = match self.ratio {
            Ratio::OfPeer => "taut/peer",
            Ratio::OfTaut => "peer/taut",
        };
        vec![
            self.case.clone(),
            value(&taut),
            format!("{} {}", self.peer, value(&peer)),
            format!("{which} {}", ratio(median(&ratios))),
            ratio(least(&ratios)),
            ratio(most(&ratios)),
            self.bar.text(),
            self.verdict(),
        ]
    }

    fn json(&self) -> Value {
        let ratios = self.ratios();
        let (taut, peer): (Vec<_>, Vec<_>) = self.rounds.iter().copied().unzip();
        json!({
            "case": self.case,
            "peer": self.peer,
            "quantity": self.quantity,
            "taut_by_round": taut,
            "peer_by_round": peer,
            "ratio": if self.ratio == Ratio::OfPeer { "taut / peer" } else { "peer / taut" },
            "ratio_by_round": ratios,
            "ratio_median": median(&ratios),
            "ratio_min": least(&ratios),
            "ratio_max": most(&ratios),
            "bar": self.bar.text(),
            "met": self.met(),
        })
    }
}

/// The table and the object of some cases.
pub(crate) fn outcome(cases: &[Comparison]) -> Outcome {
    let header = ["case", "taut", "peer", "ratio", "min", "max", "bar", "verdict"];
    let mut text = table(&header, &cases.iter().map(Comparison::row).collect::<Vec<_>>());
    for case in cases {
        let ratios: Vec<String> = case.ratios().iter().map(|ratio| format!("{ratio:.3}")).collect();
        text += &format!("\n{} beside {}, ratio by round: {}", case.case, case.peer, ratios.join(" "));
    }
    Outcome { text, json: cases.iter().map(Comparison::json).collect(), met: Some(cases.iter().all(Comparison::met)) }
}

/// Runs both tools in a round, taut first in every other one, so that neither always has the warmer machine.
pub(crate) fn both<E>(
    round: u32,
    taut: impl FnOnce() -> Result<f64, E>,
    peer: impl FnOnce() -> Result<f64, E>,
) -> Result<(f64, f64), E> {
    if round.is_multiple_of(2) {
        let taut = taut()?;
        Ok((taut, peer()?))
    } else {
        let peer = peer()?;
        Ok((taut()?, peer))
    }
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(bar: Bar, rounds: &[(f64, f64)]) -> Comparison {
        let (case, unit) = ("tcp".to_owned(), ("µs", 1000.0));
        let (peer, quantity, ratio) = ("other", "rtt_ns", Ratio::OfPeer);
        Comparison { case, peer, quantity, unit, ratio, bar, rounds: rounds.to_vec() }
    }

    #[test]
    fn the_median_of_the_ratios_decides() {
        let rounds = [(10.0, 10.0), (10.4, 10.0), (20.0, 10.0)];
        assert_eq!(outcome(&[case(Bar::AtMost(1.05), &rounds)]).met, Some(true));
        assert_eq!(outcome(&[case(Bar::AtMost(1.03), &rounds)]).met, Some(false));
        assert_eq!(outcome(&[case(Bar::AtLeast(0.97), &rounds)]).met, Some(true));
        assert_eq!(case(Bar::AtMost(1.05), &rounds).verdict(), "met (2 of 3 rounds)");
        assert_eq!(case(Bar::AtMost(1.05), &rounds).json()["ratio_max"], 2.0);
    }

    #[test]
    fn a_ratio_may_be_the_other_way_round() {
        let turned = Comparison { ratio: Ratio::OfTaut, ..case(Bar::AtLeast(40.0), &[(20.0, 1000.0)]) };
        assert_eq!(turned.ratios(), [50.0]);
        assert_eq!(outcome(&[turned]).met, Some(true));
        assert_eq!(outcome(&[case(Bar::None, &[(20.0, 1000.0)])]).met, Some(true));
    }

    #[test]
    fn what_was_not_measured_meets_no_bar() {
        assert!(!case(Bar::AtMost(1.05), &[(f64::NAN, 1.0)]).met());
        assert!(!case(Bar::AtLeast(0.97), &[]).met());
    }

    #[test]
    fn the_order_changes_and_the_pair_does_not() {
        for round in 0..2 {
            let order = std::cell::RefCell::new(String::new());
            let say = |name: &str, value| {
                order.borrow_mut().push_str(name);
                Ok::<_, ()>(value)
            };
            assert_eq!(both(round, || say("t", 1.0), || say("p", 2.0)), Ok((1.0, 2.0)));
            assert_eq!(*order.borrow(), ["tp", "pt"][round as usize]);
        }
    }
}
