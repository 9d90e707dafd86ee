//! Queues of completed requests that somebody waits on.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::lockfree::announcement::{Announcement, Wait};
use crate::lockfree::completions::{Completed, Completions};
use crate::system::own::OwnDescriptors;
use crate::system::{Deadline, bell, futex};

/// Completed requests, those who wait for one, and an eventfd for those who poll.
#[derive(Debug)]
pub(crate) struct Queue {
    completions: Completions,
    announcement: Announcement,
    /// -1 while nobody asked for it.
    event_fd: AtomicI32,
}

impl Queue {
    /// Room for this many requests that are complete and not taken.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            completions: Completions::new(capacity),
            announcement: Announcement::new(),
            event_fd: AtomicI32::new(-1),
        }
    }

    pub(crate) fn completions(&self) -> &Completions {
        &self.completions
    }

    /// Waits for the oldest request.
    pub(crate) fn wait(&self, deadline: Deadline) -> Result<Completed, Wait> {
        self.announcement.wait(|| self.completions.take(), |word, value| futex::sleep(word, value, deadline))
    }

    /// Tells that this many requests were added; gives whether anybody sleeps until there are some.
    pub(crate) fn announce(&self, added: u32) -> bool {
        let woken = self.announcement.announce(|word| futex::wake(word, added.cast_signed()));
        let event_fd = self.event_fd.load(Ordering::Acquire);
        if event_fd >= 0 {
            bell::signal_event_fd(event_fd, added.into());
        }
        woken
    }

    /// An eventfd that counts what is added from now on, and says that there may be something already.
    pub(crate) fn event_fd(&self, own: &OwnDescriptors) -> Result<i32, i32> {
        let present = self.event_fd.load(Ordering::Acquire);
        if present >= 0 {
            return Ok(present);
        }
        let made = own.adopt(bell::event_fd)?;
        match self.event_fd.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                bell::signal_event_fd(made, 1);
                Ok(made)
            }
            Err(present) => {
                own.close(made);
                Ok(present)
            }
        }
    }

    /// Forgets everything: for the child of a fork, in which the library's descriptors are closed.
    pub(crate) fn reset(&self) {
        self.event_fd.store(-1, Ordering::Relaxed);
        self.completions.clear();
        self.announcement.reset();
    }
}
