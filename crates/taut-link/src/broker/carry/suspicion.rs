//! A message at which the broker closes the connection each time. A broker of MQTT 3.1.1 that takes none so long does
//! that, since it can't say so, and would get the message again with each connection that is made anew. No I/O.

use std::collections::BTreeSet;

/// Messages that are given to a broker before it has acknowledged the first of them; it may want fewer. Mosquitto
/// closes a connection of MQTT 3.1.1 at more than 20 with QoS 2 (`max_inflight_messages`), of which that protocol says
/// nothing.
const MOST_UNDER_WAY: usize = 16;
/// Connections in a row that broke before anything was acknowledged: after so many, the next ones get one message at a
/// time, until they have had all that were under way.
const BREAKS: u32 = 2;
/// So many more of them, with the same message under way alone, and others go before it.
const BREAKS_ALONE: u32 = 3;
/// Messages that wait, each of which broke a connection alone. When the next one does so as well, it is the connections
/// and not the messages.
const MOST_ASIDE: usize = 16;
/// Messages in a row that a broker takes before those that were put aside are tried once more: where connections break
/// now and then, and not at a message, so many hardly pass by chance.
const PASSED: u32 = 8;
/// So many connections in a row may each have broken at a message, as these rules go. Of more, messages are not why.
const MOST_BREAKS: u32 = BREAKS + BREAKS_ALONE + MOST_ASIDE as u32;

/// Which messages may be why connections break.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    breaks: u32,
    /// One message is under way at a time until the broker has acknowledged this one, the last of those that were under
    /// way when it began; 0 for as many as there may be.
    careful_until: u64,
    /// The message that was under way alone when the last connections broke, so many of them in a row.
    number: u64,
    alone: u32,
    /// Messages that were acknowledged since a connection broke.
    passed: u32,
    /// Those that were put aside. The broker has taken others since, and now gets them once more.
    on_trial: BTreeSet<u64>,
    given_up: u64,
    first_given_up: Option<u64>,
}

/// What becomes of the messages that were under way when a connection broke.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// All go again in their order, also those that were put aside.
    Again,
    /// The one goes again once the broker has taken another one.
    Aside,
    /// The broker took others and closed at this one all the same: it does not go again.
    GivenUp,
}

impl Suspicion {
    /// How many may be under way.
    pub(super) fn most_under_way(&self) -> usize {
        if self.careful_until > 0 || !self.on_trial.is_empty() { 1 } else { MOST_UNDER_WAY }
    }

    /// A connection broke with these messages under way, at least one, while so many are aside.
    pub(super) fn broke(&mut self, under_way: &[u64], aside: usize) -> Verdict {
        let was_careful = self.careful_until > 0;
        self.passed = 0;
        self.breaks = self.breaks.saturating_add(1);
        if self.breaks >= BREAKS {
            self.careful_until = under_way.iter().copied().fold(self.careful_until, u64::max);
        }
        let alone = match under_way {
            [number] if was_careful || self.on_trial.contains(number) => *number,
            _ => {
                self.alone = 0;
                return Verdict::Again;
            }
        };
        if self.on_trial.remove(&alone) {
            self.given_up += 1;
            self.first_given_up = Some(self.first_given_up.map_or(alone, |first| first.min(alone)));
            (self.breaks, self.alone) = (0, 0);
            return Verdict::GivenUp;
        }
        self.alone = if alone == self.number { self.alone + 1 } else { 1 };
        self.number = alone;
        match aside {
            0 if self.alone >= BREAKS_ALONE => Verdict::Aside,
            1..MOST_ASIDE => Verdict::Aside,
            0 => Verdict::Again,
            _ => {
                self.alone = 0;
                Verdict::Again
            }
        }
    }

    /// Whether the broker takes so much that what was put aside can be told from what it takes.
    pub(super) const fn lets_pass(&self) -> bool {
        self.passed >= PASSED
    }

    /// The broker has taken others than these, which go once more.
    pub(super) fn put_on_trial(&mut self, numbers: impl Iterator<Item = u64>) {
        self.on_trial.extend(numbers);
    }

    /// The broker has acknowledged a message.
    pub(super) fn confirmed(&mut self, number: u64) {
        self.on_trial.remove(&number);
        (self.breaks, self.alone) = (0, 0);
        self.passed = self.passed.saturating_add(1);
        if number >= self.careful_until {
            self.careful_until = 0;
        }
    }

    /// A message that had its number does not go again, as its broker takes no such message.
    pub(super) fn lost(&mut self, number: u64) {
        self.on_trial.remove(&number);
        self.first_given_up = Some(self.first_given_up.map_or(number, |first| first.min(number)));
    }

    /// Whether the connection that just broke with messages under way may have done so at one of them: nothing was
    /// acknowledged since the one before it broke.
    pub(super) const fn may_be_why(&self) -> bool {
        1 < self.breaks && self.breaks <= MOST_BREAKS
    }

    /// The lowest number that was given up, or that no broker takes.
    pub(super) const fn first_given_up(&self) -> Option<u64> {
        self.first_given_up
    }

    /// How many were given up.
    #[cfg(test)]
    pub(super) const fn given_up(&self) -> u64 {
        self.given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that has put the message 7 aside.
    fn of_seven() -> Suspicion {
        let mut suspicion = Suspicion::default();
        for under_way in [&[7, 8, 9][..], &[7, 8]] {
            assert_eq!((suspicion.most_under_way(), suspicion.broke(under_way, 0)), (MOST_UNDER_WAY, Verdict::Again));
        }
        for verdict in [Verdict::Again, Verdict::Again, Verdict::Aside] {
            assert_eq!((suspicion.most_under_way(), suspicion.broke(&[7], 0)), (1, verdict));
        }
        suspicion
    }

    #[test]
    fn who_breaks_connections_alone_and_after_another_one_has_passed_is_given_up() {
        let mut suspicion = of_seven();
        suspicion.confirmed(8);
        suspicion.put_on_trial([7].into_iter());
        assert_eq!((suspicion.most_under_way(), suspicion.broke(&[7], 0)), (1, Verdict::GivenUp));
        assert_eq!((suspicion.most_under_way(), suspicion.first_given_up()), (MOST_UNDER_WAY, Some(7)));
    }

    #[test]
    fn what_was_put_aside_waits_until_eight_in_a_row_have_passed() {
        let mut suspicion = of_seven();
        (8..15).for_each(|number| suspicion.confirmed(number));
        assert!(!suspicion.lets_pass());
        suspicion.broke(&[15, 16], 1);
        (15..22).for_each(|number| suspicion.confirmed(number));
        assert!(!suspicion.lets_pass());
        suspicion.confirmed(22);
        assert!(suspicion.lets_pass());
    }

    #[test]
    fn who_passes_in_the_end_is_not() {
        let mut suspicion = of_seven();
        suspicion.confirmed(8);
        suspicion.put_on_trial([7].into_iter());
        suspicion.confirmed(7);
        let found = (suspicion.most_under_way(), suspicion.given_up(), suspicion.first_given_up());
        assert_eq!(found, (MOST_UNDER_WAY, 0, None));
    }

    #[test]
    fn who_is_on_trial_and_is_not_taken_at_all_holds_nobody_up() {
        let mut suspicion = of_seven();
        suspicion.confirmed(8);
        suspicion.put_on_trial([7].into_iter());
        suspicion.lost(7);
        let found = (suspicion.most_under_way(), suspicion.given_up(), suspicion.first_given_up());
        assert_eq!(found, (MOST_UNDER_WAY, 0, Some(7)));
    }

    #[test]
    fn one_at_a_time_goes_on_until_all_that_were_under_way_have_passed() {
        let mut suspicion = Suspicion::default();
        (0..2).for_each(|_| assert_eq!(suspicion.broke(&[5, 6, 7], 0), Verdict::Again));
        for (number, most) in [(5, 1), (6, 1), (7, MOST_UNDER_WAY)] {
            suspicion.confirmed(number);
            assert_eq!(suspicion.most_under_way(), most, "{number}");
        }
    }

    #[test]
    fn where_each_one_breaks_them_none_is_to_blame() {
        let mut suspicion = of_seven();
        for aside in 1..MOST_ASIDE {
            assert_eq!(suspicion.broke(&[7 + aside as u64], aside), Verdict::Aside);
        }
        assert_eq!(suspicion.broke(&[99], MOST_ASIDE), Verdict::Again);
        assert_eq!((suspicion.broke(&[7], 0), suspicion.most_under_way()), (Verdict::Again, 1));
    }
}
