//! How many operations each descriptor has, for those who close one or write to it: readable from any thread and signal
//! handler.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::worker::order::Kind;

/// Descriptors with a counter of their own; all above share one.
const OWN: usize = 1 << 16;

/// The only write in flight on a descriptor is being tried by the thread that submits it.
const TRYING: u32 = 1 << 31;

/// Operations in flight by descriptor.
#[derive(Debug)]
pub(crate) struct InFlight {
    own: [Counters; OWN],
    others: Counters,
}

#[derive(Debug)]
struct Counters {
    operations: AtomicU32,
    /// Of those, the writes; and `TRYING`.
    writes: AtomicU32,
    /// Whether it was a socket when it was last looked at. A hint: the number may mean something else by now.
    socket: AtomicBool,
}

impl Counters {
    const fn new() -> Self {
        Self { operations: AtomicU32::new(0), writes: AtomicU32::new(0), socket: AtomicBool::new(false) }
    }
}

impl InFlight {
    pub(crate) const fn new() -> Self {
        Self { own: [const { Counters::new() }; OWN], others: Counters::new() }
    }

    fn own(&self, fd: c_int) -> Option<&Counters> {
        usize::try_from(fd).ok().and_then(|fd| self.own.get(fd))
    }

    fn of(&self, fd: c_int) -> &Counters {
        self.own(fd).unwrap_or(&self.others)
    }

    /// An operation is submitted.
    pub(crate) fn enter(&self, fd: c_int, kind: Kind) {
        let counters = self.of(fd);
        counters.operations.fetch_add(1, Ordering::Relaxed);
        if kind == Kind::Write {
            counters.writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A write is submitted, as with `enter`, and the submitting thread may try it first: there is no other write on this
    /// socket that it could overtake, and the I/O thread begins none before it has this one.
    pub(crate) fn enter_trying(&self, fd: c_int) -> bool {
        let Some(counters) = self.own(fd) else { return false };
        let may = counters.socket.load(Ordering::Relaxed)
            && counters.writes.compare_exchange(0, TRYING | 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if may {
            counters.operations.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// Whether a write is being tried and has not yet come to the I/O thread.
    pub(crate) fn is_being_tried(&self, fd: c_int) -> bool {
        self.of(fd).writes.load(Ordering::Acquire) & TRYING != 0
    }

    /// The write that was tried has come to the I/O thread; gives whether it is the only one.
    pub(crate) fn tried(&self, fd: c_int) -> bool {
        self.of(fd).writes.fetch_and(!TRYING, Ordering::AcqRel) == TRYING | 1
    }

    /// An operation is complete.
    pub(crate) fn leave(&self, fd: c_int, kind: Kind) {
        let counters = self.of(fd);
        counters.operations.fetch_sub(1, Ordering::Release);
        if kind == Kind::Write {
            counters.writes.fetch_sub(1, Ordering::Release);
        }
    }

    /// Whether this descriptor may have any.
    pub(crate) fn any(&self, fd: c_int) -> bool {
        self.of(fd).operations.load(Ordering::Acquire) > 0
    }

    /// The descriptors from `first` to `last` that may have any or are known.
    pub(crate) fn among(&self, first: u32, last: u32) -> impl Iterator<Item = c_int> + '_ {
        let end = (last as usize).saturating_add(1).min(OWN);
        let counts = |counters: &Counters| {
            counters.operations.load(Ordering::Relaxed) > 0 || counters.socket.load(Ordering::Relaxed)
        };
        (first as usize..end).filter(move |&fd| counts(&self.own[fd])).map(|fd| fd as c_int)
    }

    /// What the I/O thread found a descriptor to be; not a socket once somebody closes it.
    pub(crate) fn note(&self, fd: c_int, is_socket: bool) {
        // Reading first leaves untouched memory untouched.
        if let Some(counters) = self.own(fd).filter(|counters| counters.socket.load(Ordering::Relaxed) != is_socket) {
            counters.socket.store(is_socket, Ordering::Relaxed);
        }
    }

    /// What a descriptor was found to be, and nobody was seen to close it since.
    pub(crate) fn is_socket(&self, fd: c_int) -> bool {
        self.own(fd).is_some_and(|counters| counters.socket.load(Ordering::Relaxed))
    }

    /// Forgets all: for the child of a fork.
    pub(crate) fn reset(&self) {
        for counters in self.own.iter().chain([&self.others]) {
            // Reading first leaves untouched memory untouched.
            if counters.operations.load(Ordering::Relaxed) != 0 {
                counters.operations.store(0, Ordering::Relaxed);
                counters.writes.store(0, Ordering::Relaxed);
            }
        }
    }
}
