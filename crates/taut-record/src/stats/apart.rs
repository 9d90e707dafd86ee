//! Two samples that were not taken in turn, such as the rounds of two recordings: how often equal
//! things lie apart by chance, and how far a machine moves meanwhile.

use super::median;

/// Probability that intervals of two samples of one population do not overlap, whatever its shape:
/// each from the (`cut` + 1)-th smallest to the (`cut` + 1)-th largest of its rounds, given as
/// `(rounds, cut)`. 1 where a cut leaves nothing.
///
/// All orders of the two samples among each other are equally likely. One lies below the other when all of
/// its rounds but the cut come before the (cut + 1)-th of the other (negative hypergeometric distribution).
pub fn apart_by_chance(one: (usize, usize), other: (usize, usize)) -> f64 {
    (below(one, other) + below(other, one)).min(1.0)
}

/// Rounds of each of two samples without which even those that do not overlap at all lie so by
/// chance more often than with this probability.
pub fn rounds_to_be_apart(by_chance: f64) -> usize {
    (1..64).find(|&rounds| apart_by_chance((rounds, 0), (rounds, 0)) <= by_chance).unwrap_or(64)
}

/// Groups of rounds by which [`moved`] looks.
const GROUPS: usize = 5;

/// How far a figure moved while a recording was made, as a ratio of at least 1: the largest over
/// the smallest median of five groups of rounds that follow each other (batch means; of five
/// rounds, simply these). What scatters from round to round averages out within a group, what lasts
/// for longer does not. A round without a figure (one that is 0, or lost) says nothing of it.
pub fn moved(rounds: &[f64]) -> f64 {
    let group = |at: usize| {
        let rounds = &rounds[at * rounds.len() / GROUPS..(at + 1) * rounds.len() / GROUPS];
        median(&rounds.iter().copied().filter(|figure| *figure > 0.0 && figure.is_finite()).collect::<Vec<_>>())
    };
    let medians: Vec<f64> = (0..GROUPS).filter_map(group).collect();
    let ends = |(low, high): (f64, f64), &median: &f64| (low.min(median), high.max(median));
    let (low, high) = medians.iter().fold((f64::INFINITY, 0.0), ends);
    if medians.is_empty() { 1.0 } else { high / low }
}

/// Probability that the interval of `(n, cut)` ends before that of `(m, skip)` begins.
fn below((n, cut): (usize, usize), (m, skip): (usize, usize)) -> f64 {
    if 2 * cut >= n || 2 * skip >= m {
        return 1.0;
    }
    let factorials = log_factorials(n + m);
    // Natural logarithm of the binomial coefficient.
    let log_choose = |of: usize, take: usize| factorials[of] - factorials[take] - factorials[of - take];
    let all = log_choose(n + m, n);
    // So many of the one, and `skip` of the other, come before the one of the other at which its interval begins.
    let log_term =
        |before: usize| log_choose(before + skip, skip) + log_choose(n - before + m - 1 - skip, n - before) - all;
    (n - cut..=n).map(|before| log_term(before).exp()).sum()
}

/// Natural logarithms of the factorials, up to that of a number.
fn log_factorials(last: usize) -> Vec<f64> {
    let mut logs = vec![0.0];
    logs.extend((1..=last).scan(0.0, |sum, number| {
        *sum += (number as f64).ln();
        Some(*sum)
    }));
    logs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted over all orders of the two samples.
    fn counted((n, cut): (usize, usize), (m, skip): (usize, usize)) -> f64 {
        let (mut apart, mut all) = (0_u32, 0_u32);
        for order in 0_u32..1 << (n + m) {
            if order.count_ones() as usize != n {
                continue;
            }
            all += 1;
            let places = |wanted: u32| (0..n + m).filter(move |at| order >> at & 1 == wanted).collect::<Vec<_>>();
            let (one, other) = (places(1), places(0));
            let is_below = one[n - 1 - cut] < other[skip];
            apart += u32::from(is_below || other[m - 1 - skip] < one[cut]);
        }
        f64::from(apart) / f64::from(all)
    }

    #[test]
    fn the_chance_is_that_of_all_orders() {
        for (one, other) in [((5, 0), (5, 0)), ((6, 1), (5, 0)), ((7, 2), (9, 1)), ((1, 0), (3, 0)), ((8, 3), (8, 3))] {
            let (found, exact) = (apart_by_chance(one, other), counted(one, other));
            assert!((found - exact).abs() < 1e-12, "{one:?} {other:?}: {found} {exact}");
        }
        assert!((apart_by_chance((5, 0), (5, 0)) - 2.0 / 252.0).abs() < 1e-12);
        assert_eq!(apart_by_chance((4, 2), (5, 0)), 1.0);
        let many = apart_by_chance((20_000, 9_871), (20_000, 9_871));
        assert!((0.0..0.02).contains(&many), "{many}");
    }

    #[test]
    fn more_comparisons_take_more_rounds() {
        assert_eq!([1.0, 0.05, 0.01, 0.05 / 30.0].map(rounds_to_be_apart), [1, 4, 5, 7]);
    }

    #[test]
    fn what_scatters_averages_out_and_what_lasts_does_not() {
        assert_eq!(moved(&[2.0, 3.0, 4.0, 2.0, 5.0]), 2.5);
        let scatter: Vec<f64> = (0..50).map(|at| if at % 2 == 0 { 1.0 } else { 3.0 }).collect();
        assert_eq!(moved(&scatter), 1.0);
        let drift: Vec<f64> = (0..50).map(|at| 1.0 + f64::from(at) / 10.0).collect();
        assert!(moved(&drift) > 3.5, "{}", moved(&drift));
        // One round of fifty that was hit does not count, one of five does.
        let mut hit = vec![1.0; 50];
        hit[7] = 9.0;
        assert_eq!((moved(&hit), moved(&[1.0, 1.0, 9.0, 1.0, 1.0])), (1.0, 9.0));
        // Lost rounds, and none at all.
        assert_eq!(moved(&[f64::INFINITY, 2.0, 0.0, 3.0, 2.0]), 1.5);
        assert_eq!((moved(&[f64::INFINITY; 5]), moved(&[]), moved(&[7.0, 8.0])), (1.0, 1.0, 8.0 / 7.0));
    }
}
