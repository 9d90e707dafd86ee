use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use taut_link::Interrupt;

/// That the server ends: a flag for who looks, and a descriptor for who waits.
#[derive(Debug)]
pub(super) struct Ending {
    flag: Interrupt,
    /// Readable from the end on. Where the system has none left, nobody waits.
    bell: Option<OwnedFd>,
}

impl Ending {
    pub(super) fn new() -> Self {
        Self { flag: Interrupt::default(), bell: eventfd(0, EventfdFlags::CLOEXEC).ok() }
    }

    pub(super) const fn flag(&self) -> &Interrupt {
        &self.flag
    }

    pub(super) fn announce(&self) {
        self.flag.flag().store(true, Ordering::Relaxed);
        if let Some(bell) = &self.bell {
            // Its counter has room for one.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    }

    /// Waits until the socket has something, or the server ends: an idle server takes nothing of its host. It may
    /// return sooner, as after a signal.
    pub(super) fn wait_with(&self, socket: impl AsFd) {
        if let Some(bell) = &self.bell {
            let mut either = [PollFd::new(&socket, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
            // What fails returns at once, and its caller's own call on the socket waits.
            let _ = poll(&mut either, None);
        }
    }
}
