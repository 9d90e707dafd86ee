use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_time::Duration;

/// How often a limit was exceeded.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Exceedance {
    /// The limit.
    pub over_ns: u64,
    /// How many of the messages took longer, or never came.
    pub count: u64,
    /// Their share of all messages sent.
    pub share: f64,
}

/// Counts times by the limits that they exceed, exactly. A loss exceeds every limit.
///
/// Each time is put into the one class between two limits, and the table is added up from above: it
/// can't fail to be monotone.
#[derive(Clone, Debug)]
pub struct ExceedanceCounter {
    limits_ns: Vec<u64>,
    /// `classes[i]` exceed limits `0..i` and no more.
    classes: Vec<u64>,
}

impl ExceedanceCounter {
    /// A counter for these limits, in any order.
    pub fn new(limits: &[Duration]) -> Self {
        let mut limits_ns: Vec<u64> =
            limits.iter().map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)).collect();
        limits_ns.sort_unstable();
        limits_ns.dedup();
        let classes = vec![0; limits_ns.len() + 1];
        Self { limits_ns, classes }
    }

    /// Counts a time.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.classes[self.limits_ns.partition_point(|&limit| limit < nanos)] += 1;
    }

    /// Counts messages that never came: they stand at infinity.
    pub fn record_lost(&mut self, count: u64) {
        self.classes[self.limits_ns.len()] += count;
    }

    /// Adds the counts of another counter with the same limits.
    pub fn add(&mut self, other: &Self) {
        debug_assert_eq!(self.limits_ns, other.limits_ns);
        self.classes.iter_mut().zip(&other.classes).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// The table, by rising limit.
    pub fn table(&self) -> Vec<Exceedance> {
        let total: u64 = self.classes.iter().sum();
        let mut count = total;
        self.limits_ns
            .iter()
            .zip(&self.classes)
            .map(|(&over_ns, class)| {
                count -= class;
                Exceedance { over_ns, count, share: if total == 0 { 0.0 } else { count as f64 / total as f64 } }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn losses_exceed_every_limit_and_the_limit_itself_is_not_exceeded() {
        let ms = Duration::from_millis;
        let mut counter = ExceedanceCounter::new(&[ms(50), ms(100)]);
        for time in [10, 50, 51, 100, 200] {
            counter.record(ms(time));
        }
        counter.record_lost(5);
        let shares: Vec<f64> = counter.table().iter().map(|row| row.share).collect();
        assert_eq!(shares, [0.8, 0.6]);
    }

    proptest! {
        #[test]
        fn the_table_is_monotone_for_any_input(
            limits in proptest::collection::vec(any::<u64>(), 0..20),
            times in proptest::collection::vec(any::<u64>(), 0..200),
            lost in 0..1000u64,
        ) {
            let limits: Vec<Duration> = limits.into_iter().map(Duration::from_nanos).collect();
            let mut counter = ExceedanceCounter::new(&limits);
            times.iter().for_each(|&time| counter.record(Duration::from_nanos(time)));
            counter.record_lost(lost);
            let table = counter.table();
            for pair in table.windows(2) {
                prop_assert!(pair[0].over_ns < pair[1].over_ns);
                prop_assert!(pair[0].count >= pair[1].count && pair[0].share >= pair[1].share);
            }
            for row in table {
                let over = times.iter().filter(|&&time| time > row.over_ns).count() as u64;
                prop_assert_eq!(row.count, over + lost);
                prop_assert!((0.0..=1.0).contains(&row.share));
            }
        }
    }
}
