use taut_event::Holder;
use taut_explain::Explanation;
use taut_report::units;

use crate::input;

/// The most that a holder may have of each direction: `held(nagle)<1%`, `held(receive_window)<50ms`,
/// `longest(peer_turn)<20ms`.
#[derive(Clone, Debug)]
pub(crate) struct HeldLimit {
    text: String,
    figure: Figure,
    holder: Holder,
    allows_equal: bool,
    limit: Limit,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Figure {
    /// All stretches together.
    Held,
    /// The longest one.
    Longest,
}

#[derive(Clone, Copy, Debug)]
enum Limit {
    /// Of the direction's time, 0 to 1.
    Share(f64),
    /// In nanoseconds.
    Time(u64),
}

impl HeldLimit {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}`: write held(HOLDER)<SHARE%, held(HOLDER)<TIME, longest(HOLDER)<TIME or p99(turn)<TIME, with < or <=, such as held(nagle)<1%"
            )
        };
        let (subject, limit) = text.split_once('<').ok_or_else(wrong)?;
        let (allows_equal, limit) = limit.strip_prefix('=').map_or((false, limit), |limit| (true, limit));
        let (figure, holder) = subject.trim().strip_suffix(')').and_then(|s| s.split_once('(')).ok_or_else(wrong)?;
        let figure = match figure {
            "held" => Figure::Held,
            "longest" => Figure::Longest,
            _ => return Err(wrong()),
        };
        let name = holder.trim();
        let holder = Holder::named(name).ok_or_else(|| {
            let names: Vec<&str> = Holder::ALL.into_iter().map(Holder::name).collect();
            format!("`{name}` is no holder; there are {}", names.join(", "))
        })?;
        let limit = match limit.trim().strip_suffix('%') {
            Some(_) if figure == Figure::Longest => return Err(wrong()),
            Some(percent) => {
                let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
                if !(0.0..=100.0).contains(&percent) {
                    return Err(format!("`{text}`: a share is from 0% to 100%"));
                }
                Limit::Share(percent / 100.0)
            }
            None => {
                let time = input::duration(limit.trim()).map_err(|_| wrong())?;
                Limit::Time(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
            }
        };
        Ok(Self { text: text.to_owned(), figure, holder, allows_equal, limit })
    }

    /// Whether the direction that has most misses it, which is said, as is what can't be told. Where there is no data
    /// nothing is shown to hold: a capture that failed must not pass for a good one. `seen` is what was looked at.
    pub(crate) fn is_missed(&self, seen: &str, explanation: &Explanation) -> bool {
        if explanation.directions == 0 {
            let text = &self.text;
            anstream::eprintln!("taut: {seen}: `{text}` can't be told, so it does not hold: there is no data in it");
            return true;
        }
        let (missed, told) = self.check(explanation);
        told.iter().for_each(|line| anstream::eprintln!("taut: {seen}: {line}"));
        missed
    }

    fn check(&self, explanation: &Explanation) -> (bool, Vec<String>) {
        let most = |holder: Holder| explanation.over_all.most_held.iter().find(|most| most.holder == holder.name());
        let mut told = Vec::new();
        let mut missed = false;
        if let Some(most) = most(self.holder) {
            let (is_met, value, direction) = match (self.figure, self.limit) {
                (_, Limit::Share(limit)) => {
                    (self.is_met(most.share, limit), units::share(most.share), &most.share_direction)
                }
                (Figure::Held, Limit::Time(limit)) => {
                    (self.is_met(most.held_ns, limit), units::time(most.held_ns), &most.held_direction)
                }
                (Figure::Longest, Limit::Time(limit)) => {
                    (self.is_met(most.longest_ns, limit), units::time(most.longest_ns), &most.longest_direction)
                }
            };
            if !is_met {
                told.push(format!("`{}` does not hold: it is {value} of {direction}", self.text));
                missed = true;
            }
        } else {
            // Nothing is held: only a limit below nothing is missed.
            missed = !match self.limit {
                Limit::Share(limit) => self.is_met(0.0, limit),
                Limit::Time(limit) => self.is_met(0, limit),
            };
            if missed {
                told.push(format!("`{}` does not hold: it is 0, which is not less", self.text));
            }
        }
        let dark = most(Holder::NotKnown).filter(|dark| dark.held_ns > 0 && self.holder != Holder::NotKnown);
        if let Some(dark) = dark.filter(|_| !missed) {
            let could_miss = match self.limit {
                Limit::Share(limit) => !self.is_met(dark.share, limit),
                Limit::Time(limit) => !self.is_met(dark.held_ns, limit),
            };
            if could_miss {
                told.push(format!(
                    "`{}` can't be told of all: who held the data is not known for {} of {}",
                    self.text,
                    units::share(dark.share),
                    dark.share_direction
                ));
            }
        }
        (missed, told)
    }

    fn is_met<T: PartialOrd>(&self, value: T, limit: T) -> bool {
        value < limit || self.allows_equal && value == limit
    }
}

#[cfg(test)]
mod tests {
    use taut_explain::MostHeld;

    use super::*;

    fn explanation() -> Explanation {
        let most = |holder: &str, share, held_ms: u64, longest_ms: u64| MostHeld {
            holder: holder.to_owned(),
            share,
            share_direction: "a > b".to_owned(),
            held_ns: held_ms * 1_000_000,
            held_direction: "c > d".to_owned(),
            longest_ns: longest_ms * 1_000_000,
            longest_direction: "e > f".to_owned(),
        };
        let mut explanation = Explanation { directions: 3, ..Explanation::default() };
        explanation.over_all.most_held = vec![most("nagle", 0.1, 80, 40), most("not_known", 0.02, 30, 20)];
        explanation
    }

    fn check(text: &str) -> (bool, String) {
        let (missed, told) = HeldLimit::parse(text).unwrap().check(&explanation());
        (missed, told.join("\n"))
    }

    #[test]
    fn the_direction_that_has_most_decides_and_is_named() {
        assert!(check("held(nagle)<5%").1.contains("10.0 % of a > b"), "{:?}", check("held(nagle)<5%"));
        assert!(check("held(nagle)<50ms").1.contains("80.0 ms of c > d"), "{:?}", check("held(nagle)<50ms"));
        assert!(check("longest(nagle) < 20ms").1.contains("40.0 ms of e > f"));
        assert_eq!((check("held(nagle)<10%").0, check("held(nagle)<=10%").0), (true, false));
        assert_eq!((check("longest(nagle)<40ms").0, check("longest(nagle)<=40ms").0), (true, false));
        assert_eq!(check("held(nagle)<11%"), (false, String::new()));
        assert_eq!((check("held(cork)<=0%").0, check("held(cork)<0%").0), (false, true));
    }

    #[test]
    fn what_is_not_known_may_be_the_holder_and_is_said() {
        let (missed, told) = check("held(cork)<1%");
        assert!(!missed && told.contains("not known for 2.00 % of a > b"), "{told}");
        // There is not so much of it.
        assert_eq!(check("held(cork)<3%"), (false, String::new()));
        assert!(check("held(not_known)<1%").0);
    }

    #[test]
    fn typos_are_told_with_the_names() {
        let error = |text| HeldLimit::parse(text).unwrap_err();
        assert!(error("held(nagel)<1%").contains("`nagel` is no holder; there are handshake, "));
        for text in
            ["", "held", "held(nagle)", "held(nagle)>1%", "p99(nagle)<1ms", "longest(nagle)<1%", "held(nagle)<1"]
        {
            assert!(error(text).contains("write held(HOLDER)<SHARE%"), "{text}");
        }
        assert!(error("held(nagle)<101%").contains("from 0% to 100%") && HeldLimit::parse("held(nagle)<NaN%").is_err());
    }
}
