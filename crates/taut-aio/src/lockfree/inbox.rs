//! How operations reach the I/O thread: a stack of letters that any thread and any signal handler may push on.
//!
//! Lock-free and without allocation: the links are in the letters. One word tells both what was pushed and whether the I/O
//! thread sleeps, so that exactly one push finds it asleep and has to wake it.

use crate::sync::atomic::{AtomicUsize, Ordering};

/// Nothing pushed, the I/O thread is awake.
const EMPTY: usize = 0;
/// Nothing pushed, the I/O thread sleeps. No letter has this address: letters are aligned to 8.
const ASLEEP: usize = 2;

/// Many threads push, one takes all.
#[derive(Debug)]
pub struct Inbox {
    top: AtomicUsize,
}

impl Inbox {
    /// An empty inbox.
    #[cfg(not(loom))]
    #[expect(clippy::new_without_default, reason = "`default` could not be const")]
    pub const fn new() -> Self {
        Self { top: AtomicUsize::new(EMPTY) }
    }

    /// An empty inbox.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { top: AtomicUsize::new(EMPTY) }
    }

    /// Pushes a chain of letters: `first` is the one on top, and `last_link` the link of the one at the bottom. Gives
    /// whether the I/O thread has to be woken.
    #[must_use]
    pub fn push(&self, first: usize, last_link: &AtomicUsize) -> bool {
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            last_link.store(if top == ASLEEP { EMPTY } else { top }, Ordering::Relaxed);
            match self.top.compare_exchange_weak(top, first, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return top == ASLEEP,
                Err(now) => top = now,
            }
        }
    }

    /// Takes everything: the letter on top, or 0. The taker is awake then.
    pub fn take(&self) -> usize {
        let top = self.top.load(Ordering::Relaxed);
        if top == EMPTY {
            return EMPTY;
        }
        match self.top.swap(EMPTY, Ordering::AcqRel) {
            ASLEEP => EMPTY,
            top => top,
        }
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        matches!(self.top.load(Ordering::Relaxed), EMPTY | ASLEEP)
    }

    /// Announces that the taker is about to sleep; false when there is something to take.
    #[must_use]
    pub fn fall_asleep(&self) -> bool {
        self.top.compare_exchange(EMPTY, ASLEEP, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Forgets everything: for the child of a fork.
    pub fn reset(&self) {
        self.top.store(EMPTY, Ordering::Relaxed);
    }
}
