//! A median in bounded memory.

const KEPT: usize = 64;

/// Every so many-th of the values seen, evenly over the whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    values: Vec<u64>,
    /// One in so many is kept; a power of two.
    stride: u64,
    pub(crate) count: u64,
    pub(crate) max: u64,
}

impl Sample {
    pub(crate) fn add(&mut self, value: u64) {
        if self.stride == 0 {
            self.stride = 1;
        }
        if self.count.is_multiple_of(self.stride) {
            if self.values.len() == KEPT {
                let mut keep = false;
                self.values.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.stride *= 2;
            }
            if self.count.is_multiple_of(self.stride) {
                self.values.push(value);
            }
        }
        self.count += 1;
        self.max = self.max.max(value);
    }

    pub(crate) fn median(&self) -> Option<u64> {
        let mut sorted = self.values.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_many_is_near_the_true_one() {
        let mut sample = Sample::default();
        (0..100_001).for_each(|value| sample.add(value));
        assert!(sample.values.len() <= KEPT);
        assert!(sample.median().unwrap().abs_diff(50_000) < 4_000, "{:?}", sample.median());
        assert_eq!((sample.count, sample.max), (100_001, 100_000));
        assert_eq!(Sample::default().median(), None);
    }
}
