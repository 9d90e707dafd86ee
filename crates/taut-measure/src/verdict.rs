//! What a comparison allows to say: one rule for every command that holds things against each other.
//!
//! Of equal things no verdict may be found in more than 5 % of the runs, however many are held
//! against one base in a run. So the level of each interval grows with their number, and where
//! there are too few rounds for it no verdict is given.

use std::cmp::Ordering;

use taut_record::stats::{Figure, LEAST_DIFFERENCE, MOST_FALSE, Ratio, rounds_needed};
use taut_record::{Comparison, Verdict};

/// A ratio and what it allows to say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The ratio across rounds.
    pub ratio: Ratio,
    /// What can be said.
    pub verdict: Verdict,
    /// Rounds that a verdict takes, where there are fewer.
    pub rounds_needed: Option<usize>,
}

impl Compared {
    /// As it stands in a recording.
    pub fn with(self, with: impl Into<String>) -> Comparison {
        Comparison {
            with: with.into(),
            p50_ratio: self.ratio.middle,
            p50_ratio_ci: self.ratio.interval,
            p50_ratio_level: Some(self.ratio.level),
            verdict: self.verdict,
            rounds_needed: self.rounds_needed,
        }
    }
}

/// Holds one of `others` against their base. The figures are by round, absent where a round has
/// none. `None` when no round has both, or losses leave the ratio without a median or an end.
pub fn compare<T: Figure>(mine: &[Option<T>], base: &[Option<T>], others: usize) -> Option<Compared> {
    let ratio = Ratio::of_several(mine, base, others)?;
    let needed = rounds_needed(others);
    Some(if ratio.rounds < needed {
        Compared { ratio, verdict: Verdict::TooFewRounds, rounds_needed: Some(needed) }
    } else {
        Compared { ratio, verdict: beyond_doubt(ratio.interval), rounds_needed: None }
    })
}

/// Whether a screening makes it worth to measure one again.
pub fn stands_out(screening: Option<Ratio>) -> bool {
    screening.is_some_and(|ratio| ratio.side().is_some())
}

/// What fresh rounds say of one that stood out among `others` in a screening. The ratio is theirs alone:
/// that of the screening is the sample by which it was chosen. For a verdict both have to lie on the
/// same side; of equal things that has a probability of half the product of what each interval misses.
pub fn confirm(screening: Ratio, again: Ratio, others: usize) -> Compared {
    let by_chance = |rounds: f64| 2f64.powf(1.0 - rounds).powi(2) / 2.0 * others as f64;
    let missed = (1.0 - screening.level) * (1.0 - again.level) / 2.0 * others as f64;
    if missed > MOST_FALSE {
        let needed = (2..64).find(|&rounds| by_chance(f64::from(rounds)) <= MOST_FALSE).unwrap_or(64);
        let verdict = Verdict::TooFewRounds;
        return Compared { ratio: again, verdict, rounds_needed: Some(needed as usize) };
    }
    let verdict = match (screening.side(), beyond_doubt(again.interval)) {
        (Some(Ordering::Less), Verdict::Shorter) => Verdict::Shorter,
        (Some(Ordering::Greater), Verdict::Longer) => Verdict::Longer,
        _ => Verdict::CannotTellApart,
    };
    Compared { ratio: again, verdict, rounds_needed: None }
}

/// What an interval of ratios says.
fn beyond_doubt((low, high): (f64, f64)) -> Verdict {
    match () {
        () if high < 1.0 - LEAST_DIFFERENCE => Verdict::Shorter,
        () if low > 1.0 + LEAST_DIFFERENCE => Verdict::Longer,
        () => Verdict::CannotTellApart,
    }
}

#[cfg(test)]
mod tests;
