//! How operations reach the I/O thread: a stack of letters that any thread and any signal handler may push on.
//!
//! Lock-free and without allocation: the links are in the letters. One word tells both what was
//! pushed and whether the I/O thread sleeps. Who pushes on a sleeper has to wake it, unless another
//! one has done so already. That another one is about to is not enough: it may have been
//! interrupted by a signal handler, which pushes next and waits for what it has pushed.

use crate::sync::atomic::{AtomicUsize, Ordering};

/// Nothing pushed, the I/O thread is awake.
const EMPTY: usize = 0;
/// Beside the letter on top or alone: the I/O thread sleeps. Letters are aligned to 8, and bit 0 is theirs.
const ASLEEP: usize = 2;
/// Set in every other life of the process, which a fork ends: so a push that a fork has interrupted finds another word.
const LIFE: usize = 4;
const FLAGS: usize = ASLEEP | LIFE;

/// Many threads push, one takes all. On a cache line of its own: each push needs all of it.
#[derive(Debug)]
#[repr(align(64))]
pub struct Inbox {
    top: AtomicUsize,
    /// Which sleep the taker is in, or was in last.
    sleep: AtomicUsize,
    /// The sleep that somebody has ended last.
    ended: AtomicUsize,
}

/// A sleep of the taker that has to be ended.
#[derive(Debug)]
#[must_use]
pub struct Sleep(usize);

impl Inbox {
    /// An empty inbox.
    #[cfg(not(loom))]
    #[expect(clippy::new_without_default, reason = "`default` could not be const")]
    pub const fn new() -> Self {
        Self { top: AtomicUsize::new(EMPTY), sleep: AtomicUsize::new(0), ended: AtomicUsize::new(0) }
    }

    /// An empty inbox.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { top: AtomicUsize::new(EMPTY), sleep: AtomicUsize::new(0), ended: AtomicUsize::new(0) }
    }

    /// Pushes a chain of letters: `first` is the one on top, and `last_link` the link of the one at the bottom. When it
    /// gives a sleep, the I/O thread has to be woken, and then [`Self::has_ended`] to be told.
    ///
    /// Nothing is pushed once `is_current` says no: a signal handler that interrupts this may fork, and what was the
    /// parent's is nothing to the child.
    #[must_use]
    pub fn push(&self, first: usize, last_link: &AtomicUsize, is_current: impl Fn() -> bool) -> Option<Sleep> {
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // After `top` was read: a fork from here on has changed it.
            if !is_current() {
                return None;
            }
            last_link.store(top & !FLAGS, Ordering::Relaxed);
            match self.top.compare_exchange_weak(top, first | top & FLAGS, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => top = now,
            }
        }
        if top & ASLEEP == 0 {
            return None;
        }
        // This sleep or, when the taker has got up meanwhile, a later one: which does no harm to end.
        let sleep = self.sleep.load(Ordering::Relaxed);
        (self.ended.load(Ordering::Relaxed) != sleep).then_some(Sleep(sleep))
    }

    /// The I/O thread was woken from this sleep: nobody else has to.
    pub fn has_ended(&self, sleep: Sleep) {
        // An older number than what is there lets others wake it once more than needed.
        self.ended.store(sleep.0, Ordering::Relaxed);
    }

    /// Takes everything: the letter on top, or 0. The taker is awake then.
    pub fn take(&self) -> usize {
        let top = self.top.load(Ordering::Relaxed);
        if top & !LIFE == EMPTY {
            return EMPTY;
        }
        self.top.swap(top & LIFE, Ordering::AcqRel) & !FLAGS
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.top.load(Ordering::Relaxed) & !FLAGS == EMPTY
    }

    /// Announces that the taker is about to sleep, after it has begun to listen for who wakes it; false when there is
    /// something to take.
    #[must_use]
    pub fn fall_asleep(&self) -> bool {
        // Before the word says so: who reads there that it sleeps finds this number, or a later one.
        self.sleep.store(self.sleep.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let empty = self.top.load(Ordering::Relaxed) & LIFE;
        self.top.compare_exchange(empty, empty | ASLEEP, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Forgets everything: for the child of a fork.
    pub fn reset(&self) {
        let life = self.top.load(Ordering::Relaxed) & LIFE;
        self.top.store(life ^ LIFE, Ordering::Relaxed);
    }
}
