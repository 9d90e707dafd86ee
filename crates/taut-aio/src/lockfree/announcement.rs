//! How a thread waits for something that the I/O thread announces: a number that grows, slept on with futex(2).
//!
//! Waiting is async-signal-safe: no lock, no allocation.

use crate::sync::atomic::{AtomicU32, Ordering, fence};

/// A number that grows with each announcement, and how many sleep on it.
#[derive(Debug)]
pub struct Announcement {
    sequence: AtomicU32,
    /// How many sleep, and above how often that was forgotten: who began to wait before, and was
    /// interrupted by the signal handler that forked, takes nothing off.
    waiting: AtomicU32,
}

/// Those bits of [`Announcement::waiting`] that count sleepers.
const SLEEPERS: u32 = (1 << 20) - 1;

/// How a wait ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wait {
    /// The condition holds.
    Done,
    /// It is past the deadline.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

impl Announcement {
    /// Nothing announced yet.
    #[cfg(not(loom))]
    #[expect(clippy::new_without_default, reason = "`default` could not be const")]
    pub const fn new() -> Self {
        Self { sequence: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    /// Nothing announced yet.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { sequence: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    /// Waits until `condition` gives something. `sleep(word, value)` sleeps while the word has this
    /// value, and tells how it was woken; waking for nothing is fine.
    pub fn wait<T>(
        &self,
        mut condition: impl FnMut() -> Option<T>,
        mut sleep: impl FnMut(&AtomicU32, u32) -> Wait,
    ) -> Result<T, Wait> {
        if let Some(found) = condition() {
            return Ok(found);
        }
        let life = self.waiting.fetch_add(1, Ordering::SeqCst) & !SLEEPERS;
        let result = loop {
            let sequence = self.sequence.load(Ordering::SeqCst);
            // Pairs with the fence in `announce`: either we see what was stored before it, or it sees us waiting.
            fence(Ordering::SeqCst);
            if let Some(found) = condition() {
                break Ok(found);
            }
            match sleep(&self.sequence, sequence) {
                Wait::Done => {}
                ended => break condition().ok_or(ended),
            }
        };
        self.end_wait(Some(life));
        result
    }

    /// Announces what was stored before; gives whether anybody waits. `wake(word)` wakes those who sleep on it, and is
    /// called only when there may be some.
    pub fn announce(&self, wake: impl FnOnce(&AtomicU32)) -> bool {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) & SLEEPERS == 0 {
            return false;
        }
        self.sequence.fetch_add(1, Ordering::SeqCst);
        wake(&self.sequence);
        true
    }

    /// A thread that waits ends instead.
    pub fn leave(&self) {
        self.end_wait(None);
    }

    fn end_wait(&self, life: Option<u32>) {
        let _ = self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |waiting| {
            let counted = waiting & SLEEPERS > 0 && life.is_none_or(|life| life == waiting & !SLEEPERS);
            counted.then(|| waiting - 1)
        });
    }

    /// Forgets who waited: for the child of a fork.
    pub fn reset(&self) {
        // Who was about to sleep looks again.
        self.sequence.fetch_add(1, Ordering::SeqCst);
        let life = self.waiting.load(Ordering::SeqCst) & !SLEEPERS;
        self.waiting.store(life.wrapping_add(SLEEPERS + 1), Ordering::SeqCst);
    }
}
