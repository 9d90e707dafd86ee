//! The process of each thread that made a call.

use std::collections::{BTreeMap, HashMap};

/// So many that were met last are remembered, and at most as many before them.
const MOST: usize = 32_768;

#[derive(Debug, Default)]
pub(super) struct Threads {
    lately: HashMap<u32, Thread>,
    before: HashMap<u32, Thread>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Thread {
    process: u32,
    has_ended: bool,
}

impl Threads {
    /// A thread makes a call. Tells whether it is new: its number may be one that was used before.
    pub(super) fn meet(&mut self, thread: u32, process: u32) -> bool {
        let now = Thread { process, has_ended: false };
        self.set(thread, now) != Some(now)
    }

    pub(super) fn end(&mut self, thread: u32, process: u32) {
        self.set(thread, Thread { process, has_ended: true });
    }

    fn set(&mut self, thread: u32, now: Thread) -> Option<Thread> {
        let known = self.lately.insert(thread, now).or_else(|| self.before.get(&thread).copied());
        if self.lately.len() >= MOST {
            self.before = std::mem::take(&mut self.lately);
        }
        known
    }

    /// Its process, also of one that has ended.
    pub(super) fn process_of(&self, thread: u32) -> Option<u32> {
        self.lately.get(&thread).or_else(|| self.before.get(&thread)).map(|known| known.process)
    }

    /// All that are remembered, each with its process, by their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, u32)> {
        let before = self.before.iter().filter(|(thread, _)| !self.lately.contains_key(*thread));
        let all = before.chain(&self.lately).map(|(&thread, known)| (thread, known.process));
        all.collect::<BTreeMap<u32, u32>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_used_again_is_new_and_what_is_remembered_is_bounded() {
        let mut threads = Threads::default();
        assert_eq!([threads.meet(8, 7), threads.meet(8, 7), threads.meet(9, 7)], [true, false, true]);
        threads.end(8, 7);
        assert_eq!(threads.process_of(8), Some(7), "its connections are told with its program");
        assert!(threads.meet(8, 7), "another process has that number now");
        for thread in 0..3 * MOST as u32 {
            // One that goes on to call stays.
            assert!(!threads.meet(9, 7));
            threads.meet(1000 + thread, 1);
        }
        assert_eq!((threads.process_of(8), threads.process_of(9)), (None, Some(7)));
        let all: Vec<(u32, u32)> = threads.all().collect();
        assert!(all.len() <= 2 * MOST && all.iter().filter(|(thread, _)| *thread == 9).count() == 1);
    }
}
