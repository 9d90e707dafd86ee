//! A median in bounded memory.

pub(super) const KEPT: usize = 64;

/// Every so many-th of the values seen, evenly over the whole. A connection has several, most of them
/// without a value: such a one is a pointer, and no more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(Option<Box<Seen>>);

#[derive(Clone, Debug)]
struct Seen {
    values: Values,
    /// One in so many is kept; a power of two.
    stride: u64,
    count: u64,
    max: u64,
}

/// Times of a connection are hardly ever longer than 4.29 s, and a connection has several samples: half as
/// large until one is.
#[derive(Clone, Debug)]
enum Values {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Values {
    const fn len(&self) -> usize {
        match self {
            Self::Narrow(values) => values.len(),
            Self::Wide(values) => values.len(),
        }
    }

    fn push(&mut self, value: u64) {
        match (u32::try_from(value), &mut *self) {
            (Ok(value), Self::Narrow(values)) => values.push(value),
            (_, Self::Wide(values)) => values.push(value),
            (Err(_), Self::Narrow(values)) => {
                let mut wide: Vec<u64> = values.iter().copied().map(u64::from).collect();
                wide.push(value);
                *self = Self::Wide(wide);
            }
        }
    }

    /// Every second one goes.
    fn thin(&mut self) {
        let mut keep = false;
        let mut every_second = || {
            keep = !keep;
            keep
        };
        match self {
            Self::Narrow(values) => values.retain(|_| every_second()),
            Self::Wide(values) => values.retain(|_| every_second()),
        }
    }

    fn sorted(&self) -> Vec<u64> {
        let mut sorted = match self {
            Self::Narrow(values) => values.iter().copied().map(u64::from).collect(),
            Self::Wide(values) => values.clone(),
        };
        sorted.sort_unstable();
        sorted
    }
}

impl Sample {
    /// What is kept, rising: all, up to 64 of them.
    pub(super) fn sorted(&self) -> Vec<u64> {
        self.0.as_ref().map_or_else(Vec::new, |seen| seen.values.sorted())
    }

    pub(crate) fn add(&mut self, value: u64) {
        let begin = || Box::new(Seen { values: Values::Narrow(Vec::new()), stride: 1, count: 0, max: 0 });
        self.0.get_or_insert_with(begin).add(value);
    }

    /// How many values there were.
    pub(crate) fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |seen| seen.count)
    }

    /// The largest one; 0 without any.
    pub(crate) fn max(&self) -> u64 {
        self.0.as_ref().map_or(0, |seen| seen.max)
    }

    pub(crate) fn median(&self) -> Option<u64> {
        let sorted = self.0.as_ref()?.values.sorted();
        sorted.get(sorted.len() / 2).copied()
    }

    /// Nine of ten of the values that are kept are no larger.
    pub(crate) fn ninth_tenth(&self) -> Option<u64> {
        let sorted = self.sorted();
        sorted.get((9 * sorted.len()).div_ceil(10).checked_sub(1)?).copied()
    }

    /// The ends of the middle half.
    pub(crate) fn quarters(&self) -> Option<[u64; 2]> {
        let sorted = self.sorted();
        let quarter = sorted.len() / 4;
        Some([*sorted.get(quarter)?, *sorted.get(sorted.len().checked_sub(quarter + 1)?)?])
    }

    #[cfg(test)]
    fn kept(&self) -> usize {
        self.0.as_ref().map_or(0, |seen| seen.values.len())
    }
}

impl Seen {
    fn add(&mut self, value: u64) {
        if self.count.is_multiple_of(self.stride) {
            if self.values.len() == KEPT {
                self.values.thin();
                self.stride *= 2;
            }
            if self.count.is_multiple_of(self.stride) {
                self.values.push(value);
            }
        }
        self.count += 1;
        self.max = self.max.max(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_many_is_near_the_true_one() {
        let mut sample = Sample::default();
        (0..100_001).for_each(|value| sample.add(value));
        assert!(sample.kept() <= KEPT);
        assert!(sample.median().unwrap().abs_diff(50_000) < 4_000, "{:?}", sample.median());
        assert!(sample.ninth_tenth().unwrap().abs_diff(90_000) < 4_000, "{:?}", sample.ninth_tenth());
        assert_eq!((sample.count(), sample.max()), (100_001, 100_000));
        assert_eq!(Sample::default().median(), None);
    }

    #[test]
    fn long_times_stand_beside_short_ones() {
        let mut sample = Sample::default();
        let long = 5_000_000_000;
        [1, 2, long, long + 1, long + 2].into_iter().for_each(|value| sample.add(value));
        assert_eq!(sample.median(), Some(long));
        (0..1000).for_each(|_| sample.add(3));
        assert_eq!((sample.median(), sample.kept() <= KEPT), (Some(3), true));
    }
}
