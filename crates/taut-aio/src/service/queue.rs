//! Queues of completed requests that somebody waits on.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::lockfree::announcement::{Announcement, Wait};
use crate::lockfree::completions::{Completed, Completions};
use crate::system::futex;
use crate::system::{self, Deadline};
use crate::worker::notice::Event;

/// Completed requests, those who wait for one, and an eventfd for those who poll.
#[derive(Debug)]
pub(crate) struct Queue {
    completions: Completions,
    announcement: Announcement,
    /// Somebody has asked for completed requests.
    wanted: AtomicBool,
    /// -1 while nobody asked for it.
    event_fd: AtomicI32,
}

impl Queue {
    /// Room for this many requests that are complete and not taken.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            completions: Completions::new(capacity),
            announcement: Announcement::new(),
            wanted: AtomicBool::new(false),
            event_fd: AtomicI32::new(-1),
        }
    }

    pub(crate) fn completions(&self) -> &Completions {
        &self.completions
    }

    /// Whether a request with this event is for the process's queue. One that tells by itself only is once somebody asks
    /// for completed requests: then it may be that all are asked for.
    pub(crate) fn collects(&self, event: &Event) -> bool {
        event.is_silent() || self.wanted.load(Ordering::Relaxed) && !event.is_private()
    }

    /// Waits for the oldest request.
    pub(crate) fn wait(&self, deadline: Deadline) -> Result<Completed, Wait> {
        self.wanted.store(true, Ordering::Relaxed);
        self.announcement.wait(|| self.completions.take(), |word, value| futex::sleep(word, value, deadline))
    }

    /// Tells that this many requests were added; gives whether anybody sleeps until there are some.
    pub(crate) fn announce(&self, added: u32) -> bool {
        let woken = self.announcement.announce(|word| futex::wake(word, added.cast_signed()));
        let event_fd = self.event_fd.load(Ordering::Acquire);
        if event_fd >= 0 {
            system::signal_event_fd(event_fd, added.into());
        }
        woken
    }

    /// An eventfd that counts what is added from now on, and says that there may be something already.
    pub(crate) fn event_fd(&self) -> Result<i32, i32> {
        self.wanted.store(true, Ordering::Relaxed);
        let present = self.event_fd.load(Ordering::Acquire);
        if present >= 0 {
            return Ok(present);
        }
        let made = system::event_fd()?;
        match self.event_fd.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                system::signal_event_fd(made, 1);
                Ok(made)
            }
            Err(present) => {
                system::close(made);
                Ok(present)
            }
        }
    }

    /// The eventfd, when somebody asked for it.
    pub(crate) fn present_event_fd(&self) -> Option<i32> {
        Some(self.event_fd.load(Ordering::Relaxed)).filter(|&fd| fd >= 0)
    }

    /// Forgets everything: for the child of a fork.
    pub(crate) fn reset(&self) {
        let event_fd = self.event_fd.swap(-1, Ordering::Relaxed);
        if event_fd >= 0 {
            system::close(event_fd);
        }
        self.wanted.store(false, Ordering::Relaxed);
        self.completions.clear();
        self.announcement.reset();
    }
}
