//! Which numbers of a writer's run came, and which did not.

use std::collections::BTreeMap;

/// The numbers of one run of a writer, as a reader saw them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// The lowest that came, or the first one behind what was before this reader; 0 before any is known.
    first: u64,
    /// The highest that came, or the last one that was before this reader.
    highest: u64,
    read: u64,
    twice: u64,
    out_of_order: u64,
    /// Numbers between `first` and `highest` that have not come: the last one of each gap by its first.
    gaps: BTreeMap<u64, u64>,
    /// Numbers in gaps that are not kept any more, and the highest of them.
    forgotten: u64,
    forgotten_up_to: u64,
    /// The highest number that the writer has told of.
    told: u64,
    /// Up to this number the broker has acknowledged all, as the writer told.
    confirmed: u64,
    /// Messages that the writer has dropped before they had a number, as it told.
    dropped: u64,
}

/// What the account of a run says. `missing` are those numbers from `first` on that did not come, up to the highest
/// that is known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Sums {
    pub(super) first: u64,
    /// The highest that came.
    pub(super) highest: u64,
    pub(super) up_to: u64,
    pub(super) read: u64,
    pub(super) twice: u64,
    pub(super) out_of_order: u64,
    pub(super) missing: u64,
    /// Those of the missing that the broker had acknowledged and that are below one that came.
    pub(super) passed_over: u64,
    pub(super) dropped: u64,
}

/// Gaps that are kept: a broker that loses every second message would have any number.
const MOST_GAPS: usize = 65_536;

impl Ledger {
    /// Takes a number that came; whether it came for the first time. One in a gap that is not kept any more counts as
    /// come twice.
    pub(super) fn take(&mut self, number: u64) -> bool {
        let is_new = if self.first == 0 {
            (self.first, self.highest) = (number, number);
            true
        } else if number > self.highest {
            self.open_gap(self.highest + 1, number - 1);
            self.highest = number;
            true
        } else if number < self.first {
            self.open_gap(number + 1, self.first - 1);
            self.first = number;
            self.out_of_order += 1;
            true
        } else {
            let is_late = self.close_gap(number);
            self.out_of_order += u64::from(is_late);
            is_late
        };
        *(if is_new { &mut self.read } else { &mut self.twice }) += 1;
        is_new
    }

    fn open_gap(&mut self, from: u64, to: u64) {
        if from > to {
            return;
        }
        self.gaps.insert(from, to);
        if self.gaps.len() > MOST_GAPS
            && let Some((from, to)) = self.gaps.pop_first()
        {
            self.forgotten += to - from + 1;
            self.forgotten_up_to = self.forgotten_up_to.max(to);
        }
    }

    /// Takes a number out of its gap; `false` where it is in none.
    fn close_gap(&mut self, number: u64) -> bool {
        let Some((&from, &to)) = self.gaps.range(..=number).next_back().filter(|(_, to)| **to >= number) else {
            return false;
        };
        self.gaps.remove(&from);
        if from < number {
            self.gaps.insert(from, number - 1);
        }
        if number < to {
            self.gaps.insert(number + 1, to);
        }
        true
    }

    /// The writer has told how far it is. What it tells first, where nothing has come, was before this reader; a writer
    /// that had given nothing then has nothing that was.
    pub(super) fn tell(&mut self, told: u64, confirmed: u64, dropped: u64) {
        if self.first == 0 {
            (self.first, self.highest) = (told + 1, told);
        }
        self.told = self.told.max(told);
        self.confirmed = self.confirmed.max(confirmed.min(told));
        self.dropped = self.dropped.max(dropped);
    }

    /// The highest number that came, or that was before this reader; 0 before any is known.
    pub(super) const fn highest(&self) -> u64 {
        self.highest
    }

    pub(super) fn sums(&self) -> Sums {
        let in_gaps: u64 = self.gaps.iter().map(|(from, to)| to - from + 1).sum();
        let up_to = self.told.max(self.highest);
        // Of those that are forgotten it is known only of all at once.
        let forgotten = if self.forgotten_up_to <= self.confirmed { self.forgotten } else { 0 };
        let acknowledged = |(from, to): (&u64, &u64)| (self.confirmed.min(*to) + 1).saturating_sub(*from);
        Sums {
            first: self.first.max(1),
            highest: self.highest,
            up_to,
            read: self.read,
            twice: self.twice,
            out_of_order: self.out_of_order,
            missing: in_gaps + self.forgotten + (up_to - self.highest),
            passed_over: self.gaps.iter().map(acknowledged).sum::<u64>() + forgotten,
            dropped: self.dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_stock_broker_drops_is_missing_and_passed_over_once_a_later_one_came() {
        let mut ledger = Ledger::default();
        (1..=1000).for_each(|number| assert!(ledger.take(number)));
        ledger.tell(5000, 5000, 7);
        let sums = ledger.sums();
        assert_eq!((sums.read, sums.missing, sums.passed_over, sums.dropped), (1000, 4000, 0, 7));
        assert!(ledger.take(5001));
        assert_eq!((ledger.sums().missing, ledger.sums().passed_over, ledger.sums().up_to), (4000, 4000, 5001));
        // One that comes after all is read, and no more missing.
        assert!(ledger.take(3000) && !ledger.take(3000));
        let sums = ledger.sums();
        assert_eq!((sums.read, sums.missing, sums.out_of_order, sums.twice), (1002, 3999, 1, 1));
    }

    #[test]
    fn a_reader_that_comes_late_misses_nothing_of_what_was_before() {
        let mut ledger = Ledger::default();
        ledger.tell(10, 0, 0);
        assert_eq!((ledger.sums().missing, ledger.sums().first), (0, 11));
        // All that is told of behind that is.
        ledger.tell(15, 0, 0);
        assert_eq!(ledger.sums().missing, 5);
        assert!(ledger.take(13) && ledger.take(16));
        assert_eq!((ledger.sums().missing, ledger.sums().first, ledger.sums().read), (4, 11, 2));
        assert!(ledger.take(9), "out of order, from before");
        assert_eq!((ledger.sums().missing, ledger.sums().first), (5, 9));
    }

    #[test]
    fn a_reader_that_was_there_first_misses_all_that_does_not_come() {
        let mut ledger = Ledger::default();
        ledger.tell(0, 0, 0);
        assert_eq!((ledger.sums().missing, ledger.sums().first), (0, 1));
        assert!(ledger.take(3));
        let sums = ledger.sums();
        assert_eq!((sums.first, sums.read, sums.missing, sums.out_of_order), (1, 1, 2, 0));
        assert!(ledger.take(1) && ledger.take(2) && !ledger.take(3));
        assert_eq!((ledger.sums().missing, ledger.sums().read), (0, 3));
        // Nor is what it is told of next, before anything came.
        let mut ledger = Ledger::default();
        ledger.tell(0, 0, 0);
        ledger.tell(4, 4, 0);
        assert_eq!((ledger.sums().missing, ledger.sums().first, ledger.sums().up_to), (4, 1, 4));
    }

    #[test]
    fn more_gaps_than_are_kept_stay_missing() {
        let mut ledger = Ledger::default();
        let most = MOST_GAPS as u64;
        (0..=most + 10).for_each(|index| _ = ledger.take(1 + 2 * index));
        assert_eq!((ledger.sums().missing, ledger.gaps.len()), (most + 10, MOST_GAPS));
        assert_eq!(ledger.sums().passed_over, 0, "nobody had acknowledged any");
        assert!(!ledger.take(2), "it is not known any more");
        assert!(ledger.take(2 * most));
        ledger.tell(3 * most, 3 * most, 0);
        assert_eq!(ledger.sums().passed_over, most + 9);
    }

    proptest! {
        #[test]
        fn the_sums_are_those_of_a_set(numbers in prop::collection::vec(1..60_u64, 1..200), told in 0..80_u64) {
            let (mut ledger, mut seen, mut twice) = (Ledger::default(), BTreeSet::new(), 0);
            for number in numbers {
                let is_new = seen.insert(number);
                twice += u64::from(!is_new);
                prop_assert_eq!(ledger.take(number), is_new);
            }
            ledger.tell(told, told, 0);
            let (first, highest) = (*seen.first().unwrap(), *seen.last().unwrap());
            let sums = ledger.sums();
            let up_to = highest.max(told);
            prop_assert_eq!((sums.first, sums.up_to, sums.twice), (first, up_to, twice));
            prop_assert_eq!(sums.read, seen.len() as u64);
            prop_assert_eq!(sums.missing + sums.read, up_to - first + 1);
            let passed = (first..highest).filter(|number| !seen.contains(number) && *number <= told).count();
            prop_assert_eq!(sums.passed_over, passed as u64);
        }
    }
}
