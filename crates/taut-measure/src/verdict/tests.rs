//! Alike and unlike in virtual time: thousands of seeded comparisons of equal things, and of things
//! with a known difference.

use super::*;
use crate::rounds::turns;
use taut_record::stats::usual_rounds;

/// SplitMix64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// How a machine's rounds scatter. `at` counts the trials of a run from its beginning.
type Machine = fn(&mut Random, at: usize) -> f64;

/// Where the scheduler puts the two ends decides: one core or two.
fn bimodal(random: &mut Random, _at: usize) -> f64 {
    let middle = if random.unit() < 0.5 { 9_000.0 } else { 36_000.0 };
    middle * (0.97 + 0.06 * random.unit())
}

/// Every trial is slower than the one before, as a machine is that gets warm.
fn drift(random: &mut Random, at: usize) -> f64 {
    10_000.0 * (1.0 + 0.02 * at as f64) * (0.999 + 0.002 * random.unit())
}

/// A neighbour now and then: a tail without a mean.
fn heavy_tail(random: &mut Random, _at: usize) -> f64 {
    10_000.0 / random.unit().max(1e-6).powf(0.9)
}

/// The first trial after a pause is quicker, every third one hit by something periodic.
fn rhythm(random: &mut Random, at: usize) -> f64 {
    10_000.0 * (1.0 + 0.2 * f64::from(u8::from(at.is_multiple_of(3)))) * (0.99 + 0.02 * random.unit())
}

const MACHINES: [(&str, Machine); 4] =
    [("bimodal", bimodal), ("drift", drift), ("heavy tail", heavy_tail), ("rhythm", rhythm)];

/// Rounds of a base and others, each with its factor, measured in turn as the commands do it.
fn measure(random: &mut Random, machine: Machine, factors: &[f64], rounds: usize) -> Vec<Vec<Option<u64>>> {
    let mut figures = vec![Vec::new(); factors.len()];
    let mut at = 0;
    for round in 0..rounds {
        for turn in turns(round, factors.len()) {
            figures[turn].push(Some((machine(random, at) * factors[turn]) as u64));
            at += 1;
        }
    }
    figures
}

/// Share of `runs` in which any of the others was told apart from the base.
fn told_apart(machine: Machine, factors: &[f64], rounds: usize, runs: usize) -> f64 {
    let mut random = Random(7);
    let others = factors.len() - 1;
    let found = (0..runs).filter(|_| {
        let figures = measure(&mut random, machine, factors, rounds);
        figures[1..].iter().any(|mine| {
            let compared = compare(mine, &figures[0], others).unwrap();
            assert_ne!(compared.verdict, Verdict::TooFewRounds);
            compared.verdict != Verdict::CannotTellApart
        })
    });
    found.count() as f64 / runs as f64
}

#[test]
fn equal_things_are_told_apart_in_no_more_than_one_run_of_twenty() {
    for (name, machine) in MACHINES {
        for others in [1, 3, 12] {
            let share = told_apart(machine, &vec![1.0; others + 1], usual_rounds(others), 10_000);
            assert!(share <= MOST_FALSE, "{name}, {others} others: {share}");
        }
    }
}

/// The rule of before: all of five rounds on one side, whatever the number of alternatives.
#[test]
fn a_rule_that_does_not_count_the_alternatives_would_fail_this() {
    let mut random = Random(7);
    let found = (0..2_000).filter(|_| {
        let figures = measure(&mut random, bimodal, &[1.0; 13], 5);
        figures[1..].iter().any(|mine| {
            let ratio = Ratio::across(mine, &figures[0]).unwrap();
            beyond_doubt(ratio.interval) != Verdict::CannotTellApart
        })
    });
    assert!(found.count() > 400);
}

#[test]
fn a_known_difference_is_found_and_never_with_the_wrong_sign() {
    let mut random = Random(3);
    let quiet: Machine = |random, at| 5_060_000.0 * (1.0 + 0.002 * random.unit() + 1e-5 * at as f64);
    for factor in [1.02, 1.05, 1.20, 0.95] {
        let found = (0..1_000).filter(|_| {
            let figures = measure(&mut random, quiet, &[1.0, factor], usual_rounds(1));
            match compare(&figures[1], &figures[0], 1).unwrap().verdict {
                Verdict::Longer if factor > 1.0 => true,
                Verdict::Shorter if factor < 1.0 => true,
                Verdict::CannotTellApart => false,
                wrong => panic!("{factor}: {wrong:?}"),
            }
        });
        assert!(found.count() >= 950, "{factor}");
    }
}

#[test]
fn too_few_rounds_give_an_interval_with_its_level_and_no_verdict() {
    let (mine, base) = ([Some(1); 5], [Some(100); 5]);
    let compared = compare(&mine, &base, 1).unwrap();
    assert_eq!((compared.verdict, compared.rounds_needed), (Verdict::TooFewRounds, Some(6)));
    assert_eq!((compared.ratio.interval, compared.ratio.level), ((0.01, 0.01), 0.9375));
    assert_eq!(compare(&mine[..1], &base[..1], 1).unwrap().ratio.level, 0.0);
    assert_eq!(compare(&[Some(1); 6], &[Some(100); 6], 1).unwrap().verdict, Verdict::Shorter);
    assert_eq!(compare(&[Some(1); 6], &[Some(100); 6], 2).unwrap().verdict, Verdict::TooFewRounds);
}

/// What `taut tune` does: a screening, and fresh rounds for what stood out in it.
fn tuned(random: &mut Random, machine: Machine, factors: &[f64], rounds: usize) -> Vec<(f64, Verdict)> {
    let others = factors.len() - 1;
    let screening = measure(random, machine, factors, rounds);
    let ratios: Vec<Ratio> =
        screening[1..].iter().map(|mine| Ratio::of_two_stages(mine, &screening[0], others).unwrap()).collect();
    let chosen: Vec<usize> = (0..others).filter(|&index| stands_out(Some(ratios[index]))).collect();
    let again: Vec<f64> = std::iter::once(1.0).chain(chosen.iter().map(|&index| factors[index + 1])).collect();
    let again = measure(random, machine, &again, rounds);
    chosen
        .iter()
        .zip(&again[1..])
        .map(|(&index, mine)| {
            let compared = confirm(ratios[index], Ratio::of_two_stages(mine, &again[0], others).unwrap(), others);
            (compared.ratio.middle, compared.verdict)
        })
        .collect()
}

#[test]
fn of_thirteen_settings_that_do_nothing_hardly_ever_one_is_named() {
    for (name, machine) in MACHINES {
        for rounds in [5, 7] {
            let mut random = Random(11);
            let named = (0..5_000).filter(|_| {
                let verdicts = tuned(&mut random, machine, &[1.0; 14], rounds);
                verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Shorter | Verdict::Longer))
            });
            let share = named.count() as f64 / 5_000.0;
            assert!(share <= MOST_FALSE, "{name}, {rounds} rounds: {share}");
        }
    }
}

/// Half of the settings really shorten the path by 4 %, on a machine whose rounds scatter as much:
/// the gain that is told is not that of the lucky sample.
#[test]
fn the_gain_is_not_that_of_the_sample_that_chose() {
    let noisy: Machine = |random, _| 10_000.0 * (0.98 + 0.04 * random.unit());
    let factors = [1.0, 0.96, 0.96, 0.96, 0.96, 1.0, 1.0, 1.0, 1.0];
    let mut random = Random(5);
    let (mut sum, mut count) = (0.0, 0.0);
    for _ in 0..3_000 {
        for (ratio, _) in tuned(&mut random, noisy, &factors, 7) {
            sum += ratio;
            count += 1.0;
        }
    }
    // With the few that stood out by chance among those that do nothing, whose fresh ratio is 1.
    assert!((sum / count - 0.96).abs() < 0.002, "{}", sum / count);
}

#[test]
fn both_stages_have_to_agree() {
    let ratio = |low: f64, high: f64| Ratio { middle: low, interval: (low, high), level: 0.9375, rounds: 5 };
    let verdict = |screening, again, others| confirm(screening, again, others).verdict;
    assert_eq!(verdict(ratio(0.8, 0.9), ratio(0.8, 0.9), 13), Verdict::Shorter);
    assert_eq!(verdict(ratio(1.1, 1.2), ratio(1.1, 1.2), 13), Verdict::Longer);
    assert_eq!(verdict(ratio(0.8, 0.9), ratio(1.1, 1.2), 13), Verdict::CannotTellApart);
    assert_eq!(verdict(ratio(0.8, 0.9), ratio(0.8, 1.1), 13), Verdict::CannotTellApart);
    let many = confirm(ratio(0.8, 0.9), ratio(0.8, 0.9), 60);
    assert_eq!((many.verdict, many.rounds_needed), (Verdict::TooFewRounds, Some(6)));
}

/// What chance brings once in thirty cases is no difference where six are looked at.
#[test]
fn losses_that_differ_by_chance_alone_are_not_told_apart_among_many() {
    use taut_record::LossComparison;
    use taut_record::stats::Losses;
    let losses = |lost| Losses { lost, messages: 1000 };
    let differs = |others| LossComparison::of(losses(3), losses(12), others, "base").unwrap().differs;
    assert!(differs(1) && !differs(6));
}
