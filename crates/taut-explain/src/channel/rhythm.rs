//! The rhythm in which packets go: how many in an event, how far apart, and how long one takes.

use crate::tcp::sample::Sample;

/// Parts of an interval that the gaps are told apart by, in halves of it.
const GAPS: [u64; 5] = [1, 3, 5, 7, 11];

/// Counts of a direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rhythm {
    /// From one packet to the next: within an event, then about one, two, three, four or five intervals, and more.
    pub(super) gaps: [u64; 6],
    /// Groups of so many packets with less than half an interval between two; the last entry has also those with more.
    pub(super) groups: [u64; 8],
    /// Within an event, the time from one packet to the next: none, about its own on the air, twice that, and more.
    pub(super) paces: [u64; 4],
    /// Within an event, the time from one packet to the next in thousandths of its own on the air.
    pub(super) pace: Sample,
    last: Option<u64>,
    group: usize,
}

impl Rhythm {
    /// A packet of `air_ns` on the air was through, or arrived.
    pub(super) fn went(&mut self, at: u64, interval_ns: u64, air_ns: u64) {
        let Some(gap) = self.last.replace(at).map(|last| at.saturating_sub(last)) else {
            self.group = 1;
            return;
        };
        let halves = gap.saturating_mul(2) / interval_ns.max(1);
        let bin = GAPS.iter().position(|&most| halves < most).unwrap_or(GAPS.len());
        self.gaps[bin] += 1;
        if bin > 0 {
            self.groups[self.group.clamp(1, self.groups.len()) - 1] += 1;
            self.group = 1;
            return;
        }
        self.group += 1;
        let pace = match gap {
            0 => 0,
            _ if 5 * gap < 7 * air_ns => 1,
            _ if 5 * gap < 13 * air_ns => 2,
            _ => 3,
        };
        self.paces[pace] += 1;
        if let Some(pace) = gap.saturating_mul(1000).checked_div(air_ns).filter(|&pace| pace > 0) {
            self.pace.add(pace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_grouped_by_the_events_that_they_went_in() {
        let mut rhythm = Rhythm::default();
        for event in 0..10u64 {
            let anchor = event * 50_000_000;
            [2_400_000, 4_800_000, 9_600_000]
                .iter()
                .for_each(|after| rhythm.went(anchor + after, 50_000_000, 2_400_000));
        }
        assert_eq!((rhythm.gaps, rhythm.groups), ([20, 9, 0, 0, 0, 0], [0, 0, 9, 0, 0, 0, 0, 0]));
        // One as long as a packet, one as long as two: a repeat.
        assert_eq!(rhythm.paces, [0, 10, 10, 0]);
        // Clocks that stand still, and intervals that nobody knows.
        rhythm.went(0, 0, 0);
        assert_eq!(rhythm.gaps.iter().sum::<u64>(), 30);
    }
}
