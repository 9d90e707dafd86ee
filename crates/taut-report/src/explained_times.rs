//! How long answers, round trips and packets in a controller took, in lines.

use taut_explain::{Explanation, Percentile, Rank, Times, TimesOverAll};

use crate::units;

/// `turn: 120 times, p50 3.10 ms, p90 4.00 ms, p99 30.0 ms, max 31.2 ms`.
pub(crate) fn line(times: &Times) -> String {
    let unanswered = match times.unanswered {
        0 => String::new(),
        count => format!(" and {} without an answer", units::count(count)),
    };
    let rank = |rank: Rank| match times.at(rank) {
        Percentile::Time(ns) => Some(format!("{} {}", rank.name(), units::time(ns))),
        Percentile::Unanswered => Some(format!("{} no answer", rank.name())),
        Percentile::TooFew => None,
    };
    let ranks: Vec<String> = Rank::ALL.into_iter().filter_map(rank).collect();
    format!("{}: {} times{unanswered}, {}.", times.of, units::count(times.count), ranks.join(", "))
}

/// Those of all directions, where there are several.
pub(crate) fn over_all(explanation: &Explanation) -> Vec<String> {
    let told = |of: &TimesOverAll| {
        let unclear = match of.unclear_directions {
            0 => String::new(),
            count => format!(" Of {} more directions they can't be told.", units::count(count)),
        };
        let any = of.all.count + of.all.unanswered > 0;
        any.then(|| format!("ALL {}{unclear}", line(&of.all)))
    };
    explanation.over_all.times.iter().filter(|_| explanation.directions > 2).filter_map(told).collect()
}
