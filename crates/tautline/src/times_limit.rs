use taut_explain::{Explanation, Percentile, Rank, TimesOf};
use taut_report::units;

use crate::input;

/// The most that a percentile of times may be: `p99(turn)<20ms`, `p50(rtt)<=5ms`.
#[derive(Clone, Debug)]
pub(crate) struct TimesLimit {
    text: String,
    rank: Rank,
    of: TimesOf,
    allows_equal: bool,
    limit_ns: u64,
}

impl TimesLimit {
    /// Whether the text begins as one does.
    pub(crate) fn is_meant(text: &str) -> bool {
        text.split_once('(').is_some_and(|(rank, _)| {
            rank_of(rank).is_some()
                || rank.trim().strip_prefix('p').is_some_and(|rest| rest.starts_with(char::is_numeric))
        })
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}`: write RANK(TIMES)<TIME, with < or <=, a RANK of p50, p90, p99, p999, max and TIMES of turn, rtt, \
                 completion, such as p99(turn)<20ms"
            )
        };
        let (subject, limit) = text.split_once('<').ok_or_else(wrong)?;
        let (allows_equal, limit) = limit.strip_prefix('=').map_or((false, limit), |limit| (true, limit));
        let (rank, of) = subject.trim().strip_suffix(')').and_then(|s| s.split_once('(')).ok_or_else(wrong)?;
        let rank = rank_of(rank).ok_or_else(wrong)?;
        let of = TimesOf::ALL.into_iter().find(|known| known.name() == of.trim()).ok_or_else(wrong)?;
        let time = input::duration(limit.trim()).map_err(|_| wrong())?;
        let limit_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self { text: text.to_owned(), rank, of, allows_equal, limit_ns })
    }

    /// Whether it is missed, by all together or by one direction, or can't be told, which is said. `seen` is what was
    /// looked at.
    pub(crate) fn is_missed(&self, seen: &str, explanation: &Explanation) -> bool {
        let (missed, told) = self.check(explanation);
        told.iter().for_each(|line| anstream::eprintln!("taut: {seen}: {line}"));
        missed
    }

    fn check(&self, explanation: &Explanation) -> (bool, Option<String>) {
        let Self { text, rank, of, .. } = self;
        let name = of.name();
        let over_all = explanation.over_all.times.iter().find(|over_all| over_all.all.of == name);
        let Some(over_all) = over_all else {
            return (true, Some(format!("`{text}` can't be told, so it does not hold: there is no {name} in it")));
        };
        let unclear = match over_all.unclear_directions {
            0 => String::new(),
            count => format!("; of {} directions it can't be told", units::count(count)),
        };
        let all = over_all.all.count.saturating_add(over_all.all.unanswered);
        let value = |percentile| match percentile {
            Percentile::Time(ns) => units::time(ns),
            Percentile::Unanswered | Percentile::TooFew => "that of a question without an answer".to_owned(),
        };
        let latest = over_all.latest.iter().find(|latest| latest.rank == rank.name());
        if let Some(latest) = latest {
            let percentile = latest.time_ns.map_or(Percentile::Unanswered, Percentile::Time);
            if !self.is_met(percentile) {
                let (value, direction) = (value(percentile), &latest.direction);
                return (true, Some(format!("`{text}` does not hold: it is {value} of {direction}{unclear}")));
            }
        }
        match over_all.all.at(*rank) {
            Percentile::TooFew => {
                let (least, all) = (units::count(rank.least_count()), units::count(all));
                let told = format!(
                    "`{text}` can't be told, so it does not hold: there are {all} times, and it takes {least}{unclear}"
                );
                (true, Some(told))
            }
            percentile if !self.is_met(percentile) => {
                let (value, all) = (value(percentile), units::count(all));
                (true, Some(format!("`{text}` does not hold: it is {value} of all {all} together{unclear}")))
            }
            _ if over_all.unclear_directions > 0 => {
                let count = units::count(over_all.unclear_directions);
                (false, Some(format!("`{text}` can't be told of {count} directions")))
            }
            _ => (false, None),
        }
    }

    const fn is_met(&self, percentile: Percentile) -> bool {
        match percentile {
            Percentile::Time(ns) => ns < self.limit_ns || self.allows_equal && ns == self.limit_ns,
            Percentile::Unanswered | Percentile::TooFew => false,
        }
    }
}

fn rank_of(text: &str) -> Option<Rank> {
    let name = match text.trim() {
        "p99.9" => "p999",
        name => name,
    };
    Rank::ALL.into_iter().find(|rank| rank.name() == name)
}

#[cfg(test)]
mod tests {
    use taut_explain::{Latest, Times, TimesOverAll};

    use super::*;

    const MS: u64 = 1_000_000;

    fn explanation(count: u64, unanswered: u64, unclear: u64) -> Explanation {
        let all = Times {
            of: "turn".to_owned(),
            count,
            unanswered,
            p50_ns: Some(2 * MS),
            p90_ns: Some(4 * MS),
            p99_ns: (count >= 100 && unanswered == 0).then_some(20 * MS),
            p999_ns: None,
            max_ns: (unanswered == 0).then_some(30 * MS),
        };
        let latest = Latest { rank: "p90".to_owned(), direction: "a > b".to_owned(), time_ns: Some(9 * MS) };
        let mut explanation = Explanation { directions: 3, ..Explanation::default() };
        explanation.over_all.times = vec![TimesOverAll { all, unclear_directions: unclear, latest: vec![latest] }];
        explanation
    }

    fn check(text: &str, of: &Explanation) -> (bool, String) {
        let (missed, told) = TimesLimit::parse(text).unwrap().check(of);
        (missed, told.unwrap_or_default())
    }

    #[test]
    fn all_together_and_the_latest_direction_have_to_meet_it() {
        let of = explanation(200, 0, 0);
        assert_eq!(check("p99(turn)<20.1ms", &of), (false, String::new()));
        assert_eq!((check("p99(turn)<20ms", &of).0, check("p99(turn)<=20ms", &of).0), (true, false));
        assert!(check("p99(turn)<20ms", &of).1.contains("it is 20.0 ms of all 200 together"));
        assert!(check("p90(turn)<5ms", &of).1.contains("it is 9.00 ms of a > b"));
        assert_eq!(check("p90( turn ) < 10ms", &of), (false, String::new()));
    }

    #[test]
    fn what_can_not_be_told_does_not_hold() {
        assert!(check("p99(turn)<20s", &explanation(99, 0, 0)).1.contains("there are 99 times, and it takes 100"));
        assert!(check("p99.9(turn)<20s", &explanation(200, 0, 0)).1.contains("and it takes 1,000"));
        let (missed, told) = check("p50(rtt)<1s", &explanation(99, 0, 0));
        assert!(missed && told.contains("there is no rtt in it"), "{told}");
        assert!(check("max(turn)<1h", &Explanation::default()).0);
        let (missed, told) = check("p50(turn)<1s", &explanation(99, 0, 2));
        assert!(!missed && told.contains("can't be told of 2 directions"), "{told}");
    }

    #[test]
    fn a_question_without_an_answer_is_beyond_every_limit() {
        let (missed, told) = check("max(turn)<100h", &explanation(200, 1, 0));
        assert!(missed && told.contains("a question without an answer"), "{told}");
        assert!(check("p99(turn)<100h", &explanation(200, 3, 0)).0);
    }

    #[test]
    fn typos_are_told_with_the_names() {
        for text in [
            "p99(turns)<1ms",
            "p98(turn)<1ms",
            "p99(turn)",
            "p99(turn)>1ms",
            "p99(turn)<1%",
            "p99(turn<1ms",
            "max(rtt)<",
        ] {
            assert!(TimesLimit::is_meant(text), "{text}");
            assert!(TimesLimit::parse(text).unwrap_err().contains("write RANK(TIMES)<TIME"), "{text}");
        }
        assert!(
            !TimesLimit::is_meant("held(nagle)<1%")
                && !TimesLimit::is_meant("pacing(x)<1ms")
                && !TimesLimit::is_meant("")
        );
    }
}
