//! How many operations each descriptor has, for those who close one: readable from any thread and signal handler.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// Descriptors with a counter of their own; all above share one.
const OWN: usize = 1 << 16;

/// Operations in flight by descriptor.
#[derive(Debug)]
pub(crate) struct InFlight {
    own: [AtomicU32; OWN],
    others: AtomicU32,
}

impl InFlight {
    pub(crate) const fn new() -> Self {
        Self { own: [const { AtomicU32::new(0) }; OWN], others: AtomicU32::new(0) }
    }

    fn counter(&self, fd: c_int) -> &AtomicU32 {
        usize::try_from(fd).ok().and_then(|fd| self.own.get(fd)).unwrap_or(&self.others)
    }

    /// An operation is submitted.
    pub(crate) fn enter(&self, fd: c_int) {
        self.counter(fd).fetch_add(1, Ordering::Relaxed);
    }

    /// It is complete.
    pub(crate) fn leave(&self, fd: c_int) {
        self.counter(fd).fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether this descriptor may have any.
    pub(crate) fn any(&self, fd: c_int) -> bool {
        self.counter(fd).load(Ordering::Relaxed) > 0
    }

    /// The descriptors from `first` to `last` that may have any.
    pub(crate) fn among(&self, first: u32, last: u32) -> impl Iterator<Item = c_int> + '_ {
        let end = (last as usize).saturating_add(1).min(OWN);
        (first as usize..end).filter(|&fd| self.own[fd].load(Ordering::Relaxed) > 0).map(|fd| fd as c_int)
    }

    /// Forgets all: for the child of a fork.
    pub(crate) fn reset(&self) {
        // Reading first leaves untouched memory untouched.
        for counter in self.own.iter().filter(|counter| counter.load(Ordering::Relaxed) != 0) {
            counter.store(0, Ordering::Relaxed);
        }
        self.others.store(0, Ordering::Relaxed);
    }
}
