//! How many operations each descriptor has, for those who close one: one word each, readable from any thread and signal
//! handler.

use crate::sync::atomic::{AtomicU32, Ordering};

/// Operations in flight by descriptor: `OWN` descriptors have a counter of their own, all above share one.
#[derive(Debug)]
pub struct InFlight<const OWN: usize> {
    own: [AtomicU32; OWN],
    others: AtomicU32,
}

impl<const OWN: usize> InFlight<OWN> {
    /// Nothing in flight.
    #[cfg(not(loom))]
    #[expect(clippy::new_without_default, reason = "`default` could not be const")]
    pub const fn new() -> Self {
        Self { own: [const { AtomicU32::new(0) }; OWN], others: AtomicU32::new(0) }
    }

    /// Nothing in flight.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { own: std::array::from_fn(|_| AtomicU32::new(0)), others: AtomicU32::new(0) }
    }

    fn of(&self, fd: i32) -> &AtomicU32 {
        usize::try_from(fd).ok().and_then(|fd| self.own.get(fd)).unwrap_or(&self.others)
    }

    /// An operation is submitted. Before it can be seen by anybody else.
    pub fn enter(&self, fd: i32) {
        self.of(fd).fetch_add(1, Ordering::Relaxed);
    }

    /// An operation is complete, and its result stored: who finds it gone finds that.
    pub fn leave(&self, fd: i32) {
        // Never below nothing: a fork may have forgotten it meanwhile, when a signal handler forks amid a submission.
        let _ = self.of(fd).fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| count.checked_sub(1));
    }

    /// Whether this descriptor may have any.
    pub fn any(&self, fd: i32) -> bool {
        self.of(fd).load(Ordering::Acquire) > 0
    }

    /// The descriptors from `first` to `last` that have any, of those with a counter of their own.
    pub fn among(&self, first: u32, last: u32) -> impl Iterator<Item = i32> + '_ {
        let end = (last as usize).saturating_add(1).min(OWN);
        (first as usize..end).filter(|&fd| self.own[fd].load(Ordering::Acquire) > 0).map(|fd| fd as i32)
    }

    /// Forgets all: for the child of a fork, in which no other thread is.
    pub fn reset(&self) {
        for counter in self.own.iter().chain([&self.others]) {
            // Reading first leaves untouched memory untouched.
            if counter.load(Ordering::Relaxed) != 0 {
                counter.store(0, Ordering::Relaxed);
            }
        }
    }
}
