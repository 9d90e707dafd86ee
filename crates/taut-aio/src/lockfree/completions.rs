//! Completed requests in their order, for those who ask "what is done next" instead of "is this one done".
//!
//! One thread adds, any thread takes, and any thread may strike out a request whose result it has
//! collected otherwise. A slot's state is one word, its position in the endless sequence with two
//! bits: so a stale position strikes out nothing.

use crate::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};

/// The slot's request is being announced: it can be struck out, and not be taken yet.
const RESERVED: u64 = 1;
/// The slot's request can be taken or struck out.
const LIVE: u64 = 2;

/// A ring of completed requests.
#[derive(Debug)]
pub struct Completions {
    slots: Box<[Slot]>,
    /// Next position to take.
    head: AtomicU64,
    /// Next position to add. Positions begin at 1: 0 is no position.
    tail: AtomicU64,
}

#[derive(Debug)]
struct Slot {
    /// Position * 4 + what it is: struck out or taken (0), `RESERVED` or `LIVE`.
    state: AtomicU64,
    request: AtomicUsize,
    result: AtomicIsize,
}

/// A completed request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Completed {
    /// The request, as it was named when it was added. Its memory may be gone.
    pub request: usize,
    /// Its result: a count, or a negative errno.
    pub result: isize,
}

impl Completions {
    /// Room for this many, a power of two.
    pub fn new(capacity: usize) -> Self {
        let slot = || Slot { state: AtomicU64::new(0), request: AtomicUsize::new(0), result: AtomicIsize::new(0) };
        let slots = (0..capacity.next_power_of_two()).map(|_| slot()).collect();
        Self { slots, head: AtomicU64::new(1), tail: AtomicU64::new(1) }
    }

    fn slot(&self, position: u64) -> &Slot {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// Whether the oldest request has to be taken before another one can be added. For the adding thread.
    pub fn is_full(&self) -> bool {
        let state = self.slot(self.tail.load(Ordering::Relaxed)).state.load(Ordering::Acquire);
        state & 3 == LIVE
    }

    /// Puts a request in at the next position, which is given; nobody can take it before [`Self::publish`]. What was in
    /// the way is lost. For the adding thread.
    pub fn reserve(&self, completed: Completed) -> u64 {
        let position = self.tail.load(Ordering::Relaxed);
        let slot = self.slot(position);
        // First out of reach: who is about to take the old one will find that it is gone. Not a plain store, which
        // could be seen after those below.
        slot.state.swap(position << 2, Ordering::AcqRel);
        slot.request.store(completed.request, Ordering::Release);
        slot.result.store(completed.result, Ordering::Release);
        slot.state.store(position << 2 | RESERVED, Ordering::Release);
        position
    }

    /// Lets the request reserved last be taken, unless it was struck out meanwhile. For the adding thread.
    pub fn publish(&self, position: u64) {
        let state = position << 2;
        // It was struck out when this fails.
        let _ = self.slot(position).state.compare_exchange(
            state | RESERVED,
            state | LIVE,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        self.tail.store(position + 1, Ordering::Release);
    }

    /// Strikes out the request at a position, if it is still there.
    pub fn strike_out(&self, position: u64, request: usize) {
        let slot = self.slot(position);
        let state = slot.state.load(Ordering::Acquire);
        if state == 0 || state >> 2 != position || slot.request.load(Ordering::Acquire) != request {
            return;
        }
        for kind in [RESERVED, LIVE] {
            // Between the two it may become LIVE; then the second finds it.
            let _ =
                slot.state.compare_exchange(position << 2 | kind, position << 2, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Takes the oldest request.
    pub fn take(&self) -> Option<Completed> {
        let mut position = self.head.load(Ordering::Acquire);
        loop {
            let tail = self.tail.load(Ordering::Acquire);
            if position >= tail {
                return None;
            }
            let oldest = tail.saturating_sub(self.slots.len() as u64);
            if position < oldest {
                position = self.advance(position, oldest);
                continue;
            }
            let slot = self.slot(position);
            let completed = Completed {
                request: slot.request.load(Ordering::Acquire),
                result: slot.result.load(Ordering::Acquire),
            };
            let live = position << 2 | LIVE;
            let taken = slot.state.compare_exchange(live, position << 2, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            position = self.advance(position, position + 1);
            if taken {
                return Some(completed);
            }
        }
    }

    /// Moves the head on from where it was seen; gives where it is.
    fn advance(&self, from: u64, to: u64) -> u64 {
        match self.head.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => to,
            Err(now) => now,
        }
    }

    /// Forgets everything: for the child of a fork.
    pub fn clear(&self) {
        self.head.store(self.tail.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
