//! What independent rounds allow to say. The spread between rounds (scheduler placement, neighbours)
//! is far wider than the sampling error within one, so every interval comes from the rounds.

/// Median of some values, which may be infinite; `None` of none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Rounds without which there is no [`interval`]. With n rounds of the same population all lie on
/// one side of its median with a probability of 2/2^n: 6 % with five, and with two every second
/// time, also when these two are equal to the last digit. That nothing scatters can be known
/// beforehand (a simulation with a seed has no rounds), but not be seen from two values.
pub const LEAST_ROUNDS: usize = 5;

/// The least level of an [`interval`].
const LEAST_LEVEL: f64 = 0.93;

/// An interval across rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end; infinite where a loss is.
    pub high: f64,
    /// The probability with which such an interval covers the median of the rounds' population, from 0 to 1.
    pub level: f64,
}

impl Interval {
    /// Both ends.
    pub const fn ends(self) -> (f64, f64) {
        (self.low, self.high)
    }
}

/// Interval that covers the median of the rounds' population with a probability of at least 93 %, whatever its shape:
/// the k-th smallest and k-th largest value, with the largest k that allows it (order statistics of the binomial
/// distribution). Five rounds give their full range (93.75 %); fewer than [`LEAST_ROUNDS`] give `None`.
pub fn interval(values: &[f64]) -> Option<Interval> {
    if values.len() < LEAST_ROUNDS {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let (cut, level) = narrowest(n, LEAST_LEVEL);
    Some(Interval { low: sorted[cut], high: sorted[n - 1 - cut], level })
}

/// How many of the outermost of so many rounds an interval may leave off at each end and still
/// cover their median with `level` (from 0 to 1), and the level that it has then. Where not even
/// the range of all has that level, nothing is left off.
pub fn narrowest(rounds: usize, level: f64) -> (usize, f64) {
    let levels: Vec<f64> = lower_tails(rounds).iter().map(|tail| (1.0 - 2.0 * tail).max(0.0)).collect();
    let cut = levels.iter().rposition(|&found| found >= level).unwrap_or(0);
    (cut, levels.get(cut).copied().unwrap_or(0.0))
}

/// The level of the interval from the (`cut` + 1)-th smallest to the (`cut` + 1)-th largest of `rounds` values: the
/// probability, from 0 to 1, that it covers the median of their population (sign test). 0 where the cut leaves nothing.
pub fn sign_test_level(rounds: usize, cut: usize) -> f64 {
    lower_tails(rounds).get(cut).map_or(0.0, |tail| (1.0 - 2.0 * tail).max(0.0))
}

/// P(X <= k) of the heads X of n fair coins, for each k below n / 2. Terms are taken relative to
/// the one in the middle, so that nothing that counts underflows, however many coins there are.
fn lower_tails(n: usize) -> Vec<f64> {
    let middle = n / 2;
    let mut terms = vec![1.0; middle + 1];
    for k in (0..middle).rev() {
        terms[k] = terms[k + 1] * (k + 1) as f64 / (n - k) as f64;
    }
    let lower: f64 = terms[..middle].iter().sum();
    // An odd number of coins has two terms in the middle.
    let total = 2.0 * lower + if n % 2 == 1 { 2.0 } else { 1.0 };
    let mut sum = 0.0;
    let within = if n % 2 == 1 { middle + 1 } else { middle };
    terms[..within]
        .iter()
        .map(|term| {
            sum += term;
            sum / total
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(values: &[f64]) -> Option<(f64, f64)> {
        interval(values).map(Interval::ends)
    }

    #[test]
    fn five_rounds_give_their_range_and_more_rounds_drop_the_extremes() {
        assert_eq!(interval(&[3.0, 1.0, 5.0, 2.0]), None);
        assert_eq!(interval(&[3.0; LEAST_ROUNDS - 1]), None);
        assert_eq!(interval(&[3.0, 1.0, 5.0, 2.0, 4.0]), Some(Interval { low: 1.0, high: 5.0, level: 0.9375 }));
        let nine: Vec<f64> = (1..=9).map(f64::from).collect();
        // Two tails of (1 + 9) / 512 leave 96 %; three values off would leave 82 %.
        assert_eq!(ends(&nine), Some((2.0, 8.0)));
    }

    /// Cuts and levels from exact fractions: sums of binomial coefficients over 2^n, as whole numbers of any length.
    #[test]
    fn cuts_and_levels_are_those_of_the_binomial_distribution_for_any_number_of_rounds() {
        let exact = [
            (5, 0, 0.9375),
            (6, 0, 0.96875),
            (8, 0, 0.9921875),
            (9, 1, 0.9609375),
            (20, 5, 0.9586105346679688),
            (100, 40, 0.9431120663590192),
            (1_000, 470, 0.9379768049016368),
            (1_074, 506, 0.9373552789919992),
            (1_075, 507, 0.9327973427093926),
            (1_100, 519, 0.934165880450274),
            (5_000, 2_435, 0.9319093292025619),
            (20_000, 9_871, 0.9308260342512518),
        ];
        for (rounds, cut, level) in exact {
            let found = narrowest(rounds, LEAST_LEVEL);
            assert_eq!((found.0, found.1), (cut, sign_test_level(rounds, cut)), "{rounds}");
            assert!((found.1 - level).abs() < 1e-10, "{rounds}: {found:?}");
        }
        assert_eq!((sign_test_level(5, 3), sign_test_level(0, 0)), (0.0, 0.0));
        assert_eq!((narrowest(5, 0.99), narrowest(1, 0.5), narrowest(0, 0.5)), ((0, 0.9375), (0, 0.0), (0, 0.0)));
    }

    #[test]
    fn more_than_a_thousand_rounds_have_an_interval_with_two_ends() {
        let many: Vec<f64> = (0..1_100).map(f64::from).collect();
        assert_eq!(ends(&many), Some((519.0, 580.0)));
    }

    #[test]
    fn many_rounds_narrow_the_interval() {
        let many: Vec<f64> = (0..1000).map(f64::from).collect();
        let (low, high) = ends(&many).unwrap();
        assert!(low > 450.0 && high < 550.0, "{low} {high}");
    }
}
