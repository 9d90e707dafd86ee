//! What independent rounds allow to say. The spread between rounds (scheduler placement, neighbours) is far wider than the
//! sampling error within one, so every interval comes from the rounds.

/// Median of some values; `None` of none.
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

/// Rounds without which there is no [`interval`]. With n rounds of the same population all lie on one side of its median with a probability
/// of 2/2^n: 6 % with five, and with two every second time, also when these two are equal to the last digit. That nothing scatters
/// can be known beforehand (a simulation with a seed has no rounds), but not be seen from two values.
pub const LEAST_ROUNDS: usize = 5;

/// Interval that covers the median of the rounds' population with a probability of at least 93 %, whatever its shape:
/// the k-th smallest and k-th largest value, with the largest k that allows it (order statistics of the binomial
/// distribution). Five rounds give their full range (93.75 %); fewer than [`LEAST_ROUNDS`] give `None`.
pub fn interval(values: &[f64]) -> Option<(f64, f64)> {
    const COVERAGE: f64 = 0.93;
    if values.len() < LEAST_ROUNDS {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    // One tail: the probability that at most `cut` of n fair coins fall heads.
    let (mut cut, mut term) = (0, 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX)));
    let mut tail = term;
    loop {
        term *= (n - cut) as f64 / (cut + 1) as f64;
        if 1.0 - 2.0 * (tail + term) < COVERAGE || 2 * (cut + 2) > n {
            break;
        }
        tail += term;
        cut += 1;
    }
    Some((sorted[cut], sorted[n - 1 - cut]))
}

/// Ratios of two figures measured in turn, round by round: their median, and their interval.
pub fn ratio_across(mine: &[Option<u64>], base: &[Option<u64>]) -> Option<(f64, (f64, f64))> {
    let ratios: Vec<f64> = mine
        .iter()
        .zip(base)
        .filter_map(|(mine, base)| Some((*mine)? as f64 / (*base).filter(|&base| base > 0)? as f64))
        .collect();
    Some((median(&ratios)?, interval(&ratios)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_rounds_give_their_range_and_more_rounds_drop_the_extremes() {
        assert_eq!(interval(&[3.0, 1.0, 5.0, 2.0]), None);
        assert_eq!(interval(&[3.0; LEAST_ROUNDS - 1]), None);
        assert_eq!(interval(&[3.0, 1.0, 5.0, 2.0, 4.0]), Some((1.0, 5.0)));
        let nine: Vec<f64> = (1..=9).map(f64::from).collect();
        // Two tails of (1 + 9) / 512 leave 96 %; three values off would leave 82 %.
        assert_eq!(interval(&nine), Some((2.0, 8.0)));
    }

    #[test]
    fn a_ratio_needs_both_sides_of_a_round() {
        let mine = [Some(2), None, Some(2), Some(2), Some(2), Some(2)];
        let base = [Some(1), Some(1), Some(1), Some(1), Some(1), Some(1)];
        assert_eq!(ratio_across(&mine, &base), Some((2.0, (2.0, 2.0))));
    }

    #[test]
    fn many_rounds_narrow_the_interval() {
        let many: Vec<f64> = (0..1000).map(f64::from).collect();
        let (low, high) = interval(&many).unwrap();
        assert!(low > 450.0 && high < 550.0, "{low} {high}");
    }
}
