//! Two recordings, one made after the other, on machines in virtual time: thousands of seeded
//! reports on equal things, and on things with a known difference.

use taut_record::stats::{apart_by_chance, narrowest};

use super::figure::{Change, Compared, Figure, Kind, Sample};

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

    /// About normal, with a deviation of 1 (a sum of twelve).
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// How a machine's rounds scatter: `at` counts them from its beginning, `state` is what it
/// remembers of the round before.
type Machine = fn(&mut Random, at: usize, state: &mut f64) -> f64;

/// Where the scheduler puts the two ends decides anew in each round: one core or two.
fn bimodal(random: &mut Random, _at: usize, _state: &mut f64) -> f64 {
    let middle = if random.unit() < 0.5 { 9_000.0 } else { 36_000.0 };
    middle * (0.97 + 0.06 * random.unit())
}

/// Every round is slower than the one before, as a machine is that gets warm.
fn drift(random: &mut Random, at: usize, _state: &mut f64) -> f64 {
    10_000.0 * (1.0 + 0.02 * at as f64) * (0.999 + 0.002 * random.unit())
}

/// A neighbour now and then: a tail without a mean.
fn heavy_tail(random: &mut Random, _at: usize, _state: &mut f64) -> f64 {
    10_000.0 / random.unit().max(1e-6).powf(0.9)
}

/// Every third round is hit by something periodic.
fn rhythm(random: &mut Random, at: usize, _state: &mut f64) -> f64 {
    10_000.0 * (1.0 + 0.2 * f64::from(u8::from(at.is_multiple_of(3)))) * (0.99 + 0.02 * random.unit())
}

/// What moves it lasts for some ten rounds: neighbours on the same processor, clock rates (an
/// autoregression of order 1).
fn sluggish(random: &mut Random, _at: usize, state: &mut f64) -> f64 {
    *state = 0.9 * *state + 0.19_f64.sqrt() * random.normal();
    10_000.0 * (0.03 * *state + 0.005 * random.normal()).exp()
}

/// It stays where it went (a random walk).
fn wanders(random: &mut Random, _at: usize, state: &mut f64) -> f64 {
    *state += random.normal();
    10_000.0 * (0.01 * *state).exp()
}

const MACHINES: [(&str, Machine); 6] = [
    ("bimodal", bimodal),
    ("drift", drift),
    ("heavy tail", heavy_tail),
    ("rhythm", rhythm),
    ("sluggish", sluggish),
    ("wanders", wanders),
];

/// Rounds of two recordings, the second made at once after the first and with all times this much longer.
fn recordings(random: &mut Random, machine: Machine, rounds: usize, factor: f64) -> [Vec<f64>; 2] {
    let mut state = random.normal();
    let mut figures: Vec<f64> = (0..2 * rounds).map(|at| machine(random, at, &mut state)).collect();
    let after = figures.split_off(rounds).into_iter().map(|figure| figure * factor);
    [figures, after.collect()]
}

fn figure(rounds: &[f64]) -> Figure {
    Figure { name: "p50", kind: Kind::Time, value: 1.0, sample: Sample::Rounds(rounds.to_vec()) }
}

fn change([before, after]: &[Vec<f64>; 2]) -> Change {
    Compared::new(&figure(before), &figure(after), 0.05).unwrap().change
}

/// The rule for rounds that are independent of each other: intervals that do not overlap.
fn lie_apart([before, after]: &[Vec<f64>; 2]) -> bool {
    let cut = narrowest(before.len(), 0.93).0;
    assert!(apart_by_chance((before.len(), cut), (after.len(), cut)) <= 0.05);
    let ends = |rounds: &Vec<f64>| {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        (sorted[cut], sorted[sorted.len() - 1 - cut])
    };
    let (before, after) = (ends(before), ends(after));
    before.1 < after.0 || after.1 < before.0
}

const RUNS: usize = 2_000;

#[test]
fn equal_things_are_told_apart_in_no_more_than_one_report_of_twenty() {
    for (name, machine) in MACHINES {
        for rounds in [5, 7, 10, 20] {
            let mut random = Random(7);
            let found =
                (0..RUNS).filter(|_| change(&recordings(&mut random, machine, rounds, 1.0)) != Change::CannotTellApart);
            let share = found.count() as f64 / RUNS as f64;
            assert!(share <= 0.05, "{name}, {rounds} rounds: {share}");
        }
    }
}

/// Intervals that do not overlap are enough where all rounds are independent. Those of two recordings are not.
#[test]
fn a_rule_that_takes_the_rounds_for_independent_would_fail_this() {
    let share = |machine: Machine, rounds| {
        let mut random = Random(7);
        let found = (0..RUNS).filter(|_| lie_apart(&recordings(&mut random, machine, rounds, 1.0)));
        found.count() as f64 / RUNS as f64
    };
    assert!(share(bimodal, 5) < 0.05);
    assert!(share(sluggish, 5) > 0.1 && share(wanders, 5) > 0.2 && share(sluggish, 20) > 0.3);
    assert_eq!(share(drift, 5), 1.0);
}

/// On a machine whose rounds scatter by a percent, or by two with more of them.
#[test]
fn ten_percent_are_found_with_five_rounds_and_never_with_the_wrong_sign() {
    let quiet: Machine = |random, _, _| 10_000.0 * (0.01 * random.normal()).exp();
    let busier: Machine = |random, _, _| 10_000.0 * (0.02 * random.normal()).exp();
    for (machine, rounds, factor, least) in [
        (quiet, 5, 1.1, 0.95),
        (quiet, 7, 0.9, 0.95),
        (quiet, 20, 1.05, 0.95),
        (busier, 5, 1.25, 0.95),
        (busier, 20, 0.9, 0.95),
    ] {
        let mut random = Random(3);
        let found = (0..RUNS).filter(|_| match change(&recordings(&mut random, machine, rounds, factor)) {
            Change::More if factor > 1.0 => true,
            Change::Less if factor < 1.0 => true,
            Change::CannotTellApart => false,
            wrong => panic!("{factor}: {wrong:?}"),
        });
        let share = found.count() as f64 / RUNS as f64;
        assert!(share >= least, "{rounds} rounds, {factor}: {share}");
    }
}
