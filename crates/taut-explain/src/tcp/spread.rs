//! Percentiles of times in bounded memory.

use super::sample::{KEPT, Sample};

/// So many steps are told apart at most, 8 kB; beyond that they are made twice as wide.
const STEPS: usize = 512;
/// At first a step is at most a 128th of the times in it.
const FINEST: u8 = 7;

/// Times, of which percentiles are wanted: exact up to 64 of them, beyond that in steps. One without a value is a
/// pointer, and no more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread(Option<Box<Inner>>);

#[derive(Clone, Debug)]
enum Inner {
    Few(Sample),
    Many(Steps),
}

/// How many times there were, by steps of the same width relative to the times in them.
#[derive(Clone, Debug)]
struct Steps {
    /// Width: a power of two has 2 to this many steps.
    fineness: u8,
    /// The least time of a step, and how many there were; rising.
    cells: Vec<(u64, u64)>,
    count: u64,
    max: u64,
}

impl Spread {
    pub(crate) fn add(&mut self, value: u64) {
        match self.0.get_or_insert_with(|| Box::new(Inner::Few(Sample::default()))).as_mut() {
            Inner::Few(sample) if sample.count() < KEPT as u64 => sample.add(value),
            inner => inner.steps().add(value, 1),
        }
    }

    /// Adds all of another one.
    pub(crate) fn add_all(&mut self, other: &Self) {
        match other.0.as_deref() {
            None => {}
            Some(Inner::Few(sample)) => sample.sorted().into_iter().for_each(|value| self.add(value)),
            Some(Inner::Many(theirs)) => {
                let steps = self.0.get_or_insert_with(|| Box::new(Inner::Few(Sample::default()))).steps();
                theirs.cells.iter().for_each(|&(value, count)| steps.add(value, count));
                steps.max = steps.max.max(theirs.max);
            }
        }
    }

    /// How many values there were.
    pub(crate) fn count(&self) -> u64 {
        match self.0.as_deref() {
            None => 0,
            Some(Inner::Few(sample)) => sample.count(),
            Some(Inner::Many(steps)) => steps.count,
        }
    }

    /// The largest one; 0 without any.
    pub(crate) fn max(&self) -> u64 {
        match self.0.as_deref() {
            None => 0,
            Some(Inner::Few(sample)) => sample.max(),
            Some(Inner::Many(steps)) => steps.max,
        }
    }

    /// The value in the middle, as exact as [`Self::at`].
    pub(crate) fn median(&self) -> Option<u64> {
        self.at(self.count() / 2 + 1)
    }

    /// The value of this rank, the least one has 1. Of more than 64 values it is the upper end of its step: never less
    /// than the true one, and more by 0.8 % at most where the values lie within four powers of two, by 1.6 % within
    /// eight, by 3.1 % within sixteen.
    pub(crate) fn at(&self, rank: u64) -> Option<u64> {
        match self.0.as_deref()? {
            Inner::Few(sample) => sample.sorted().get(usize::try_from(rank.checked_sub(1)?).ok()?).copied(),
            Inner::Many(steps) => steps.at(rank),
        }
    }
}

impl Inner {
    fn steps(&mut self) -> &mut Steps {
        if let Self::Few(sample) = self {
            *self = Self::Many(Steps::of(sample));
        }
        match self {
            Self::Many(steps) => steps,
            Self::Few(_) => unreachable!("it has just been made many"),
        }
    }
}

impl Steps {
    /// Of a sample that has kept all.
    fn of(sample: &Sample) -> Self {
        let mut steps = Self { fineness: FINEST, cells: Vec::new(), count: 0, max: 0 };
        sample.sorted().into_iter().for_each(|value| steps.add(value, 1));
        steps
    }

    /// The width of the step in which a value lies.
    const fn width(&self, value: u64) -> u64 {
        match value.checked_ilog2() {
            Some(power) if power > self.fineness as u32 => 1 << (power - self.fineness as u32),
            _ => 1,
        }
    }

    const fn least(&self, value: u64) -> u64 {
        value - value % self.width(value)
    }

    fn add(&mut self, value: u64, count: u64) {
        self.count = self.count.saturating_add(count);
        self.max = self.max.max(value);
        let least = self.least(value);
        match self.cells.binary_search_by_key(&least, |&(least, _)| least) {
            Ok(found) => self.cells[found].1 = self.cells[found].1.saturating_add(count),
            Err(place) => {
                self.cells.insert(place, (least, count));
                // With four steps to a power of two there are no 512.
                while self.cells.len() > STEPS {
                    self.widen();
                }
            }
        }
    }

    fn widen(&mut self) {
        self.fineness -= 1;
        let cells = std::mem::take(&mut self.cells);
        for (value, count) in cells {
            let least = self.least(value);
            match self.cells.last_mut() {
                Some(last) if last.0 == least => last.1 = last.1.saturating_add(count),
                _ => self.cells.push((least, count)),
            }
        }
    }

    fn at(&self, rank: u64) -> Option<u64> {
        let mut before = 0_u64;
        let (least, _) = self.cells.iter().find(|(_, count)| {
            before = before.saturating_add(*count);
            before >= rank.max(1)
        })?;
        Some((least + (self.width(*least) - 1)).min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spread(values: impl IntoIterator<Item = u64>) -> Spread {
        let mut spread = Spread::default();
        values.into_iter().for_each(|value| spread.add(value));
        spread
    }

    fn steps(spread: &Spread) -> usize {
        match spread.0.as_deref() {
            Some(Inner::Many(steps)) => steps.cells.len(),
            _ => 0,
        }
    }

    #[test]
    fn few_values_are_exact_and_none_has_no_rank() {
        let few = spread((1..=64).map(|n| n * 1_000_003));
        assert_eq!(
            (few.at(1), few.at(63), few.at(64), few.at(65)),
            (Some(1_000_003), Some(63_000_189), Some(64_000_192), None)
        );
        assert_eq!((few.at(0), Spread::default().at(1), Spread::default().count()), (None, None, 0));
        assert_eq!((few.median(), Spread::default().median()), (Some(33_000_099), None));
    }

    #[test]
    fn any_times_of_any_number_take_little() {
        let mut seed = 7_u64;
        let any = spread((0..200_000).map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> (seed % 64)
        }));
        assert!(steps(&any) <= STEPS, "{}", steps(&any));
        assert_eq!((any.count(), any.at(200_000)), (200_000, Some(any.max())));
        let ends = spread([0, u64::MAX].into_iter().cycle().take(100));
        assert_eq!((ends.at(50), ends.at(51)), (Some(0), Some(u64::MAX)));
    }

    proptest! {
        /// Never below the true value, and above it by no more than a step; put together or not.
        #[test]
        fn a_rank_is_the_true_one_within_a_step(
            values in prop::collection::vec(1_000_u64..16_000_000, 1..400),
            cut in 0..400_usize,
        ) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let (one, other) = values.split_at(cut.min(values.len()));
            let mut both = spread(one.iter().copied());
            both.add_all(&spread(other.iter().copied()));
            prop_assert_eq!((both.count(), both.max()), (values.len() as u64, sorted[sorted.len() - 1]));
            let whole = spread(values.iter().copied());
            for (index, &truth) in sorted.iter().enumerate() {
                for spread in [&whole, &both] {
                    let told = spread.at(index as u64 + 1).unwrap();
                    prop_assert!(truth <= told && told as f64 <= truth as f64 * 1.032, "{told} for {truth}");
                }
            }
        }
    }
}
