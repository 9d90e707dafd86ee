//! Puts events in the order of their times, as far as they stand near their places.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use taut_event::{Direction, Quic};

/// So many events wait for earlier ones behind them.
const MOST: usize = 1024;
/// So much is told by those that wait; one event alone may tell more.
const MOST_TOLD: usize = 1 << 16;

/// An event that may not be the next one.
pub(super) struct Waiting {
    /// Its time by the log's clock, in milliseconds; finite.
    pub(super) at_ms: f64,
    /// Its number in the log, from 1.
    pub(super) place: u64,
    /// Index of its connection.
    pub(super) flow: usize,
    /// What it tells, each with the bytes of data that it is about.
    pub(super) told: Vec<(Direction, Quic, u64)>,
}

/// Events of a trace, the earliest first; of two with one time that which stands first.
#[derive(Default)]
pub(super) struct Order {
    waiting: BinaryHeap<Reverse<Waiting>>,
    told: usize,
    /// The time of the event given last.
    reached_ms: Option<f64>,
}

impl Order {
    /// Takes an event.
    ///
    /// # Errors
    ///
    /// By how many milliseconds it is earlier than one that was given already.
    pub(super) fn push(&mut self, event: Waiting) -> Result<(), f64> {
        if let Some(reached) = self.reached_ms.filter(|reached| event.at_ms < *reached) {
            return Err(reached - event.at_ms);
        }
        self.told += event.told.len();
        self.waiting.push(Reverse(event));
        Ok(())
    }

    /// The next event, if enough of them wait, or if there are no more to come.
    pub(super) fn next(&mut self, is_end: bool) -> Option<Waiting> {
        let is_full = self.waiting.len() > MOST || self.told > MOST_TOLD;
        let Reverse(event) = if is_full || is_end { self.waiting.pop()? } else { return None };
        self.told -= event.told.len();
        self.reached_ms = Some(event.at_ms);
        Some(event)
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at_ms.total_cmp(&other.at_ms).then(self.place.cmp(&other.place))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}
