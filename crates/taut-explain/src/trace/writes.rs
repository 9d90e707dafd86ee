//! Writes whose call came back before all of it had left.

use std::collections::VecDeque;

/// Writes that wait for their last byte to leave; of more the earliest are not followed.
const MOST_WAITING: usize = 4096;
/// Room for so many is not given back.
const FEW_WAITING: usize = 32;

/// Those of one connection.
#[derive(Debug, Default)]
pub(super) struct Writes {
    waiting: VecDeque<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    end: u64,
    returned: u64,
}

impl Writes {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.waiting.capacity()
    }

    /// A write waits from now on; where there is no room, in place of the earliest. Whether one is not followed.
    pub(super) fn returned(&mut self, end: u64, returned: u64, is_room: bool) -> bool {
        let has_room = is_room && self.waiting.len() < MOST_WAITING;
        if has_room || self.waiting.pop_front().is_some() {
            self.waiting.push_back(Waiting { end, returned });
        }
        !has_room
    }

    /// All up to there has left: how long each write stayed that has left with it.
    pub(super) fn left(&mut self, at: u64, end: u64, mut stayed: impl FnMut(u64)) {
        while let Some(write) = self.waiting.front().filter(|write| write.end <= end) {
            stayed(at.saturating_sub(write.returned));
            self.waiting.pop_front();
        }
        if self.waiting.capacity() > FEW_WAITING && self.waiting.len() < self.waiting.capacity() / 4 {
            self.waiting.shrink_to(FEW_WAITING.max(2 * self.waiting.len()));
        }
    }

    /// What left meanwhile is not known.
    pub(super) fn forget(&mut self) {
        self.waiting = VecDeque::new();
    }
}
