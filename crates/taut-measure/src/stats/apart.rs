//! Two samples that were not taken in turn, such as the rounds of two recordings: how often equal things lie apart by chance.

/// Probability that intervals of two samples of one population do not overlap, whatever its shape: each from the
/// (`cut` + 1)-th smallest to the (`cut` + 1)-th largest of its rounds, given as `(rounds, cut)`. 1 where a cut leaves nothing.
///
/// All orders of the two samples among each other are equally likely. One lies below the other when all of its rounds but
/// the cut come before the (cut + 1)-th of the other (negative hypergeometric distribution).
pub fn apart_by_chance(one: (usize, usize), other: (usize, usize)) -> f64 {
    (below(one, other) + below(other, one)).min(1.0)
}

/// Rounds of each of two samples without which even those that do not overlap at all lie so by chance more often than with
/// this probability.
pub fn rounds_to_be_apart(by_chance: f64) -> usize {
    (1..64).find(|&rounds| apart_by_chance((rounds, 0), (rounds, 0)) <= by_chance).unwrap_or(64)
}

/// Probability that the interval of `(n, cut)` ends before that of `(m, skip)` begins.
fn below((n, cut): (usize, usize), (m, skip): (usize, usize)) -> f64 {
    if 2 * cut >= n || 2 * skip >= m {
        return 1.0;
    }
    // So many of the one, and `skip` of the other, come before the one of the other at which its interval begins.
    let log_term = |before: usize| {
        log_choose(before + skip, skip) + log_choose(n - before + m - 1 - skip, n - before) - log_choose(n + m, n)
    };
    (n - cut..=n).map(|before| log_term(before).exp()).sum()
}

/// Natural logarithm of the binomial coefficient.
fn log_choose(of: usize, take: usize) -> f64 {
    let take = take.min(of - take);
    (0..take).map(|i| ((of - i) as f64 / (i + 1) as f64).ln()).sum()
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
}
