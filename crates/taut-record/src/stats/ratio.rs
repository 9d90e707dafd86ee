//! Two things measured in turn, round by round: the ratio of their figures, and how sure one can be of it.

use super::{Quantile, median, narrowest};

/// Chance that a comparison of equal things, all its verdicts taken together, finds a difference: at most this.
pub const MOST_FALSE: f64 = 0.05;

/// A difference of less than so much is called none.
pub const LEAST_DIFFERENCE: f64 = 0.01;

/// Least coverage of an interval that stands by itself.
const USUAL: f64 = 0.93;

/// What a ratio can be of: a figure in ns (or any other unit), or a [`Quantile`], which may be lost.
pub trait Figure: Copy + Into<Quantile> {}

impl<T: Copy + Into<Quantile>> Figure for T {}

/// The ratio of two figures across rounds in which both were measured. A lost one is longer than every time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median over the rounds; below 1 means that the first is shorter.
    pub middle: f64,
    /// An interval of the median: from the k-th smallest to the k-th largest round.
    pub interval: (f64, f64),
    /// Probability with which such an interval covers the median, whatever the shape of the
    /// population; 0 for one round.
    pub level: f64,
    /// Rounds that have both figures.
    pub rounds: usize,
}

impl Ratio {
    /// The ratio with an interval of at least the usual 93 %, or the whole range where the rounds don't suffice
    /// for that. `None` when no round has both, or a loss stands in the median or at an end of the interval.
    pub fn across<T: Figure>(mine: &[Option<T>], base: &[Option<T>]) -> Option<Self> {
        Self::at_level(mine, base, USUAL)
    }

    /// The same for one of several comparisons of which none is to be wrong: with `others` held against one
    /// base, each has a level of 1 - 0.05 / `others` (Bonferroni), so that all of them together have 95 %.
    pub fn of_several<T: Figure>(mine: &[Option<T>], base: &[Option<T>], others: usize) -> Option<Self> {
        Self::at_level(mine, base, 1.0 - MOST_FALSE / others.max(1) as f64)
    }

    /// The same for a screening of `others`, and for the fresh rounds of those that stood out in it. As both have
    /// to agree, each may miss more: of equal things one is found with half the product of what the two miss.
    pub fn of_two_stages<T: Figure>(mine: &[Option<T>], base: &[Option<T>], others: usize) -> Option<Self> {
        let missed = (2.0 * MOST_FALSE / others.max(1) as f64).sqrt();
        Self::at_level(mine, base, USUAL.max(1.0 - missed))
    }

    fn at_level<T: Figure>(mine: &[Option<T>], base: &[Option<T>], level: f64) -> Option<Self> {
        let ratio = |(mine, base): (&Option<T>, &Option<T>)| match ((*mine)?.into(), (*base)?.into()) {
            // Of two that are lost neither is longer.
            (Quantile::Lost, Quantile::Lost) | (_, Quantile::Time(0)) => None,
            (mine, base) => Some(mine.as_f64() / base.as_f64()),
        };
        let mut ratios: Vec<f64> = mine.iter().zip(base).filter_map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let rounds = ratios.len();
        let middle = median(&ratios)?;
        let (cut, level) = narrowest(rounds, level);
        let interval = (ratios[cut], ratios[rounds - 1 - cut]);
        // To a loss it is 0, and of a loss infinite.
        let is_of_times = [middle, interval.0, interval.1].iter().all(|ratio| ratio.is_finite() && *ratio > 0.0);
        is_of_times.then_some(Self { middle, interval, level, rounds })
    }

    /// Whether the interval lies on one side of 1: the side, as the sign of the difference.
    pub fn side(&self) -> Option<std::cmp::Ordering> {
        match self.interval {
            (_, high) if high < 1.0 => Some(std::cmp::Ordering::Less),
            (low, _) if low > 1.0 => Some(std::cmp::Ordering::Greater),
            _ => None,
        }
    }
}

/// Rounds without which no verdict on `others` that are held against one base can have 95 % in all:
/// with n rounds of equal things the ratios all lie on one side with a probability of 2^(1-n).
pub fn rounds_needed(others: usize) -> usize {
    (1.0 + (others.max(1) as f64 / MOST_FALSE).log2()).ceil() as usize
}

/// Rounds to take when nobody says how many: one more than a verdict needs, and five where nothing is compared.
pub fn usual_rounds(others: usize) -> usize {
    if others == 0 { super::LEAST_ROUNDS } else { rounds_needed(others) + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ratios: &[f64]) -> Option<Ratio> {
        let mine: Vec<_> = ratios.iter().map(|ratio| Some((ratio * 1e6) as u64)).collect();
        Ratio::across(&mine, &vec![Some(1_000_000); ratios.len()])
    }

    #[test]
    fn the_level_is_that_of_the_sign_test() {
        for (rounds, exact) in [(1, 0.0), (2, 0.5), (5, 0.9375), (7, 0.984_375)] {
            assert_eq!(narrowest(rounds, 0.999), (0, exact));
        }
        // Two tails of (1 + 9) / 512, and of (1 + 17 + 136 + 680 + 2380) / 131072.
        assert_eq!(narrowest(9, USUAL).0, 1);
        let (cut, level) = narrowest(17, 0.95);
        assert!(cut == 4 && (level - (1.0 - 2.0 * 3214.0 / 131_072.0)).abs() < 1e-12, "{cut} {level}");
    }

    #[test]
    fn any_number_of_rounds_has_an_interval_of_its_level() {
        for rounds in [100, 1_074, 1_076, 20_000] {
            let (cut, level) = narrowest(rounds, 0.95);
            // The normal distribution's 1.96 standard deviations, to a round.
            let normal = rounds as f64 / 2.0 - 1.96 * (rounds as f64).sqrt() / 2.0;
            assert!((cut as f64 - normal).abs() <= 2.0 && (0.95..0.97).contains(&level), "{rounds}: {cut} {level}");
        }
    }

    #[test]
    fn a_verdict_on_more_takes_more_rounds() {
        assert_eq!([1, 2, 3, 13, 40].map(rounds_needed), [6, 7, 7, 10, 11]);
        assert_eq!([0, 1, 3].map(usual_rounds), [5, 7, 8]);
        for others in 1..100 {
            let false_by_chance = |rounds: usize| others as f64 * 2f64.powi(1 - rounds as i32);
            let needed = rounds_needed(others);
            assert!(false_by_chance(needed) <= MOST_FALSE && false_by_chance(needed - 1) > MOST_FALSE, "{others}");
        }
    }

    #[test]
    fn a_ratio_of_losses_is_none() {
        let times = |rounds: usize, ns| vec![Some(Quantile::Time(ns)); rounds];
        let (sound, mut lossy) = (times(5, 1), times(5, 1));
        lossy[2] = Some(Quantile::Lost);
        assert_eq!((Ratio::across(&lossy, &sound), Ratio::across(&sound, &lossy)), (None, None));
        // Of nine rounds the interval leaves one off at each end: there a loss is just a long time.
        let (sound, mut lossy) = (times(9, 1), times(9, 2));
        lossy[2] = Some(Quantile::Lost);
        let ratio = Ratio::across(&lossy, &sound).unwrap();
        assert_eq!((ratio.middle, ratio.interval, ratio.rounds), (2.0, (2.0, 2.0), 9));
        lossy[3] = Some(Quantile::Lost);
        assert_eq!(Ratio::across(&lossy, &sound), None);
    }

    #[test]
    fn a_ratio_needs_both_sides_of_a_round() {
        let mine = [Some(2_u64), None, Some(2), Some(2), Some(2), Some(2)];
        let base = [Some(1), Some(1), Some(1), Some(0), Some(1), Some(1)];
        let ratio = Ratio::across(&mine, &base).unwrap();
        assert_eq!((ratio.middle, ratio.interval, ratio.rounds), (2.0, (2.0, 2.0), 4));
        assert_eq!(Ratio::across(&[None], &[Some(1_u64)]), None);
    }

    #[test]
    fn the_side_is_that_of_the_whole_interval() {
        use std::cmp::Ordering::{Greater, Less};
        let side = |ratios: &[f64]| of(ratios).unwrap().side();
        assert_eq!(side(&[0.8, 0.9, 0.7, 0.99, 0.5]), Some(Less));
        assert_eq!(side(&[0.8, 0.9, 0.7, 1.01, 0.5]), None);
        assert_eq!(side(&[1.8, 1.9, 1.7, 1.01, 1.5]), Some(Greater));
    }
}
