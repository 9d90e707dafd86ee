//! Which files the I/O thread keeps at hand, by number: who submits finds out without a lock whether the file that the
//! number means is one of them, and keeps it there until its operation has arrived.
//!
//! One word for each number: the entry that has the file, how often the number was kept, and how many operations were
//! submitted on that. Pins are only counted up; the I/O thread knows how many of them have arrived.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bits of a word that count pins.
const PINS: u64 = (1 << 16) - 1;
/// One more time that a number was kept.
const TIME: u64 = 1 << 16;
/// Where the entry begins, plus one; 0 is none. What is below but for the pins are the times.
const ENTRY: u32 = 44;

/// Files by number, for numbers below `NUMBERS`.
#[derive(Debug)]
pub struct Kept<const NUMBERS: usize> {
    words: [AtomicU64; NUMBERS],
    identities: [AtomicU64; NUMBERS],
    /// All that ever was kept is below.
    end: AtomicU32,
}

impl<const NUMBERS: usize> Kept<NUMBERS> {
    /// Entries that can be told: those below.
    pub const ENTRIES: u32 = (1 << (64 - ENTRY)) - 1;

    /// Nothing kept.
    #[cfg(not(loom))]
    #[expect(clippy::new_without_default, reason = "`default` could not be const")]
    pub const fn new() -> Self {
        Self {
            words: [const { AtomicU64::new(0) }; NUMBERS],
            identities: [const { AtomicU64::new(0) }; NUMBERS],
            end: AtomicU32::new(0),
        }
    }

    /// Nothing kept.
    #[cfg(loom)]
    pub fn new() -> Self {
        let nothing = |_| AtomicU64::new(0);
        Self { words: std::array::from_fn(nothing), identities: std::array::from_fn(nothing), end: AtomicU32::new(0) }
    }

    fn place(&self, fd: i32) -> Option<usize> {
        usize::try_from(fd).ok().filter(|&number| number < NUMBERS)
    }

    /// The entry that has this file under this number: it keeps it until the operation that is told so has
    /// [arrived](Self::release). Async-signal-safe.
    ///
    /// Nothing is pinned once `is_current` says no: a signal handler that interrupts this may fork, and in the child
    /// the operation never arrives.
    pub fn pin(&self, fd: i32, identity: u64, is_current: impl Fn() -> bool) -> Option<u32> {
        let place = self.place(fd)?;
        let mut word = self.words[place].load(Ordering::Acquire);
        loop {
            let entry = (word >> ENTRY).checked_sub(1)?;
            // After the word was read: a fork from here on, or another file kept, has changed it.
            if word & PINS == PINS || self.identities[place].load(Ordering::Acquire) != identity || !is_current() {
                return None;
            }
            match self.words[place].compare_exchange(word, word + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(entry as u32),
                // Somebody else was faster, and no more than that.
                Err(now) if now & !PINS == word & !PINS => word = now,
                Err(_) => return None,
            }
        }
    }

    /// Keeps a file. For the I/O thread, as all below; false where that can't be told.
    #[must_use]
    pub fn keep(&self, fd: i32, identity: u64, entry: u32) -> bool {
        let Some(place) = self.place(fd).filter(|_| entry < Self::ENTRIES) else { return false };
        self.end.fetch_max(place as u32 + 1, Ordering::Relaxed);
        let times = self.words[place].load(Ordering::Relaxed).wrapping_add(TIME) & ((1 << ENTRY) - TIME);
        self.identities[place].store(identity, Ordering::Release);
        self.words[place].swap(u64::from(entry + 1) << ENTRY | times, Ordering::AcqRel);
        true
    }

    /// Keeps the file no more, if all operations have arrived that were submitted on that: so many.
    #[must_use]
    pub fn release(&self, fd: i32, arrived: u32) -> bool {
        self.exchange(fd, arrived, |word| word & ((1 << ENTRY) - TIME))
    }

    /// Begins to count from nothing, if so many have arrived and that is all.
    #[must_use]
    pub fn settle(&self, fd: i32, arrived: u32) -> bool {
        self.exchange(fd, arrived, |word| word & !PINS)
    }

    fn exchange(&self, fd: i32, arrived: u32, change: impl Fn(u64) -> u64) -> bool {
        let Some(place) = self.place(fd) else { return false };
        let word = self.words[place].load(Ordering::Relaxed);
        word & PINS == u64::from(arrived)
            && self.words[place].compare_exchange(word, change(word), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The number means another file, or none: no operation more is submitted on this one. Gives how many were.
    pub fn end(&self, fd: i32) -> u32 {
        let Some(place) = self.place(fd) else { return 0 };
        let times = self.words[place].load(Ordering::Relaxed) & ((1 << ENTRY) - TIME);
        (self.words[place].swap(times, Ordering::AcqRel) & PINS) as u32
    }

    /// Forgets all: for the child of a fork, in which no other thread is.
    pub fn reset(&self) {
        for word in &self.words[..self.end.load(Ordering::Relaxed) as usize] {
            let times = word.load(Ordering::Relaxed) & ((1 << ENTRY) - TIME);
            word.swap(times, Ordering::AcqRel);
        }
    }
}
