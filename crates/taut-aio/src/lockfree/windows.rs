//! Moments that no fork may fall into: a thread has a descriptor that the library does not know of yet, or no more, and
//! the child of a fork could not close it.
//!
//! Who forks waits until nobody is in such a window, and who wants to enter one until the fork is over. A thread never
//! waits for itself: a signal handler may interrupt it in a window and fork.

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Nobody. Threads have other numbers.
const NOBODY: usize = 0;

/// `INSIDE` threads in windows and `FORKS` that fork can be known at a time.
#[derive(Debug)]
pub struct Windows<const INSIDE: usize, const FORKS: usize> {
    inside: [AtomicUsize; INSIDE],
    forking: [AtomicUsize; FORKS],
    /// A fork takes longer than somebody was ready to wait.
    overdue: AtomicBool,
}

/// A place among those inside; none where all are taken.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Place(Option<usize>);

impl<const INSIDE: usize, const FORKS: usize> Windows<INSIDE, FORKS> {
    /// Nobody inside.
    #[cfg(not(loom))]
    #[expect(clippy::new_without_default, reason = "`default` could not be const")]
    pub const fn new() -> Self {
        Self {
            inside: [const { AtomicUsize::new(NOBODY) }; INSIDE],
            forking: [const { AtomicUsize::new(NOBODY) }; FORKS],
            overdue: AtomicBool::new(false),
        }
    }

    /// Nobody inside.
    #[cfg(loom)]
    pub fn new() -> Self {
        let nobody = |_| AtomicUsize::new(NOBODY);
        let overdue = AtomicBool::new(false);
        Self { inside: std::array::from_fn(nobody), forking: std::array::from_fn(nobody), overdue }
    }

    /// A thread enters. `wait` lets time pass, and says no when that was enough: what holds a fork up for so long is
    /// not let in the way of everybody else, nor waited for again. It may wait for a lock of malloc(3) whose thread
    /// waits for us.
    pub fn enter(&self, thread: usize, mut wait: impl FnMut() -> bool) -> Place {
        loop {
            let place = claim(&self.inside, thread);
            // Pairs with the fence in `begin_fork`: either we see that fork, or it sees us inside.
            fence(Ordering::SeqCst);
            if !self.is_held_up(thread) {
                return place;
            }
            self.leave(thread, place);
            while self.is_held_up(thread) {
                if self.overdue.load(Ordering::Relaxed) || !wait() {
                    self.overdue.store(true, Ordering::Relaxed);
                    return claim(&self.inside, thread);
                }
            }
        }
    }

    /// Whether others fork, and this thread is not between the handlers of a fork of its own, which would wait for
    /// itself.
    fn is_held_up(&self, thread: usize) -> bool {
        let is = |wanted: fn(usize, usize) -> bool| {
            self.forking.iter().any(|forking| wanted(forking.load(Ordering::Acquire), thread))
        };
        is(|other, _| other != NOBODY) && !is(|other, thread| other == thread)
    }

    /// It leaves.
    pub fn leave(&self, thread: usize, place: Place) {
        release(&self.inside, thread, place);
    }

    /// A thread is about to fork. Who is inside beyond the time that `wait` grants is not counted any more: the thread
    /// may have left by siglongjmp(3).
    pub fn begin_fork(&self, thread: usize, mut wait: impl FnMut() -> bool) {
        let _ = claim(&self.forking, thread);
        fence(Ordering::SeqCst);
        for inside in &self.inside {
            loop {
                let other = inside.load(Ordering::Acquire);
                if other == NOBODY || other == thread {
                    break;
                }
                if !wait() {
                    let _ = inside.compare_exchange(other, NOBODY, Ordering::Relaxed, Ordering::Relaxed);
                    break;
                }
            }
        }
    }

    /// It has forked, and this is the parent.
    pub fn end_fork(&self, thread: usize) {
        for forking in &self.forking {
            if forking.load(Ordering::Relaxed) == thread {
                forking.store(NOBODY, Ordering::Release);
                if self.forking.iter().all(|forking| forking.load(Ordering::Relaxed) == NOBODY) {
                    self.overdue.store(false, Ordering::Relaxed);
                }
                return;
            }
        }
    }

    /// Forgets all: for the child of a fork, in which no other thread is.
    pub fn reset(&self) {
        for place in self.inside.iter().chain(&self.forking) {
            // Reading first leaves untouched memory untouched.
            if place.load(Ordering::Relaxed) != NOBODY {
                place.store(NOBODY, Ordering::Relaxed);
            }
        }
        self.overdue.store(false, Ordering::Relaxed);
    }
}

fn claim(places: &[AtomicUsize], thread: usize) -> Place {
    let is_free =
        |place: &AtomicUsize| place.compare_exchange(NOBODY, thread, Ordering::Acquire, Ordering::Relaxed).is_ok();
    Place(places.iter().position(is_free))
}

fn release(places: &[AtomicUsize], thread: usize, place: Place) {
    if let Some(place) = place.0.and_then(|place| places.get(place)) {
        // It may be somebody else's by now: a fork has forgotten it, or lost its patience.
        let _ = place.compare_exchange(thread, NOBODY, Ordering::Release, Ordering::Relaxed);
    }
}
