use std::collections::VecDeque;

use super::samples::Flight;

/// The messages under way on one link, the oldest first. A closed loop has one at most, which costs next to nothing.
#[derive(Debug, Default)]
pub(super) struct Flights {
    oldest: Option<Flight>,
    /// Those after it; none without it.
    later: VecDeque<Flight>,
}

impl Flights {
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.oldest.is_none()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.oldest.is_some()) + self.later.len()
    }

    #[inline]
    pub(super) const fn oldest(&self) -> Option<&Flight> {
        self.oldest.as_ref()
    }

    /// One more, with a larger sequence number than those before.
    #[inline]
    pub(super) fn push(&mut self, flight: Flight) {
        if self.oldest.is_none() {
            self.oldest = Some(flight);
        } else {
            self.later.push_back(flight);
        }
    }

    #[inline]
    pub(super) fn take_oldest(&mut self) -> Option<Flight> {
        let oldest = self.oldest.take();
        if !self.later.is_empty() {
            self.oldest = self.later.pop_front();
        }
        oldest
    }

    /// Takes out the one with that sequence number.
    #[inline]
    pub(super) fn take(&mut self, sequence: u64) -> Option<Flight> {
        if self.oldest?.sequence == sequence {
            return self.take_oldest();
        }
        let position = self.later.binary_search_by_key(&sequence, |flight| flight.sequence).ok()?;
        self.later.remove(position)
    }
}

#[cfg(test)]
mod tests {
    use taut_time::Instant;

    use super::*;

    #[test]
    fn flights_are_taken_in_order_or_by_their_number() {
        let flight = |sequence| Flight { sequence, intended: Instant::default(), sent: Instant::default() };
        let mut flights = Flights::default();
        assert!(flights.is_empty() && flights.take(1).is_none() && flights.take_oldest().is_none());
        [1, 2, 5, 7].into_iter().for_each(|sequence| flights.push(flight(sequence)));
        let number = |flight: Option<Flight>| flight.map(|flight| flight.sequence);
        assert_eq!((number(flights.take(5)), number(flights.take(5)), number(flights.take(6))), (Some(5), None, None));
        assert_eq!((number(flights.take(1)), flights.len()), (Some(1), 2));
        assert_eq!((number(flights.take_oldest()), number(flights.take_oldest())), (Some(2), Some(7)));
        assert!(flights.is_empty());
    }
}
