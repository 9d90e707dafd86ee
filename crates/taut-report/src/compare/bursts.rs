//! Losses that come together: a stall of the machine takes all that is on its way, and is one case, not so many.

use taut_record::stats::Losses;

/// How many messages are lost together, by how the rounds of a recording scatter: their chi-square
/// over its degrees of freedom (quasi-binomial dispersion). 1, each by itself, as long as the
/// rounds scatter no more than such do in 95 % of the cases.
pub(super) fn together(rounds: &[Losses]) -> f64 {
    let rounds: Vec<(f64, f64)> = rounds
        .iter()
        .filter(|round| round.messages > 0)
        .map(|round| (round.lost as f64, round.messages as f64))
        .collect();
    let (lost, messages) = rounds.iter().fold((0.0, 0.0), |sum, round| (sum.0 + round.0, sum.1 + round.1));
    let share = lost / messages;
    if rounds.len() < 2 || !(share > 0.0 && share < 1.0) {
        return 1.0;
    }
    let term = |(lost, messages): &(f64, f64)| (lost - messages * share).powi(2) / (messages * share * (1.0 - share));
    let freedom = (rounds.len() - 1) as f64;
    let scatter = rounds.iter().map(term).sum::<f64>() / freedom;
    if scatter > usual(freedom) { scatter.max(1.0) } else { 1.0 }
}

/// 95 % of all chi-squares with this many degrees of freedom, over these, are smaller (Wilson and Hilferty, 1931).
fn usual(freedom: f64) -> f64 {
    const NORMAL: f64 = 1.645;
    let spread = 2.0 / (9.0 * freedom);
    (1.0 - spread + NORMAL * spread.sqrt()).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::figure::Compared;

    fn of(lost: [u64; 5]) -> Vec<Losses> {
        lost.iter().map(|&lost| Losses { lost, messages: 200 }).collect()
    }

    fn is_told(before: [u64; 5], after: [u64; 5]) -> bool {
        let (before, after) = (of(before), of(after));
        let together = together(&before).max(together(&after));
        Compared::of_losses(Losses::sum(before), Losses::sum(after), together, 0.025).is_some_and(|it| it.differs())
    }

    #[test]
    fn limits_are_those_of_the_tables() {
        for (freedom, chi_square) in [(4.0, 9.488), (9.0, 16.919), (19.0, 30.144)] {
            assert!((usual(freedom) * freedom - chi_square).abs() < 0.06, "{freedom}");
        }
    }

    #[test]
    fn a_stall_that_takes_many_is_one_case() {
        // Twelve that one stall took look like 1.2 %, which Fisher's test alone calls more than nothing.
        assert!(together(&of([0, 0, 12, 0, 0])) > 10.0);
        assert!(!is_told([0; 5], [0, 0, 12, 0, 0]) && !is_told([0, 0, 12, 0, 0], [0; 5]));
        assert!(!is_told([30, 0, 1, 0, 0], [2; 5]));
    }

    #[test]
    fn one_percent_in_all_rounds_is_told() {
        assert!(is_told([0; 5], [2; 5]) && is_told([2; 5], [0; 5]) && is_told([0; 5], [1, 3, 2, 4, 2]));
        assert_eq!((together(&of([1, 3, 2, 4, 2])), together(&of([0; 5])), together(&of([200; 5]))), (1.0, 1.0, 1.0));
        assert_eq!((together(&[]), together(&of([0, 0, 0, 0, 1])[4..])), (1.0, 1.0));
        // What all rounds lose of, and unlike, is still more than nothing.
        assert!(is_told([0; 5], [80, 60, 90, 40, 70]));
    }
}
