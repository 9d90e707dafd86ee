//! What wakes the I/O thread: a futex, where its engine can wait for one among other things, or an eventfd.
#![expect(unsafe_code, reason = "reads and writes an eventfd")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::own::OwnDescriptors;
use super::{check, file, futex};

/// Rung by any thread and signal handler; one thread waits.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: AtomicU32,
    /// One more than the eventfd; 0 for a bell that is heard through the futex. What is 0 at first takes no room in the
    /// program's file, and this is part of a large static.
    event_fd: AtomicI32,
}

impl Bell {
    pub(crate) const fn new() -> Self {
        Self { rung: AtomicU32::new(0), event_fd: AtomicI32::new(0) }
    }

    /// Wakes who waits.
    pub(crate) fn ring(&self) {
        if let Some(event_fd) = self.event_fd() {
            signal_event_fd(event_fd, 1);
        } else {
            self.rung.fetch_add(1, Ordering::Release);
            futex::wake(&self.rung, 1);
        }
    }

    /// The word of the futex, which changes when the bell is rung.
    pub(crate) const fn word(&self) -> &AtomicU32 {
        &self.rung
    }

    /// Has the bell heard through an eventfd from now on.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub(crate) fn make_event_fd(&self, own: &OwnDescriptors) -> Result<c_int, c_int> {
        let made = own.adopt(event_fd)?;
        self.event_fd.store(made + 1, Ordering::Relaxed);
        Ok(made)
    }

    /// The eventfd, where there is one.
    pub(crate) fn event_fd(&self) -> Option<c_int> {
        Some(self.event_fd.load(Ordering::Relaxed) - 1).filter(|&fd| fd >= 0)
    }

    /// Forgets the eventfd; gives it.
    pub(crate) fn take_event_fd(&self) -> Option<c_int> {
        Some(self.event_fd.swap(0, Ordering::Relaxed) - 1).filter(|&fd| fd >= 0)
    }
}

/// An eventfd that is closed on exec and never blocks.
pub(crate) fn event_fd() -> Result<c_int, c_int> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } as isize).map(|fd| fd as c_int)
}

/// Adds to an eventfd. Where somebody has closed it behind the library's back and the number means
/// a file by now, nothing is written.
pub(crate) fn signal_event_fd(fd: c_int, count: u64) {
    // Of all that is anonymous, only an eventfd takes eight bytes.
    if file::look(fd).is_ok_and(|meaning| meaning.kind == file::FileKind::Anonymous) {
        // Not by the C library's write, which is a cancellation point: aio_write is none.
        // SAFETY: the kernel reads 8 bytes.
        unsafe { libc::syscall(libc::SYS_write, fd, &raw const count, size_of::<u64>()) };
    }
}

/// Sets an eventfd back to 0.
pub(crate) fn drain_event_fd(fd: c_int) {
    let mut count = 0_u64;
    // SAFETY: the kernel writes 8 bytes at most. It doesn't block: EFD_NONBLOCK.
    unsafe { libc::read(fd, (&raw mut count).cast(), size_of::<u64>()) };
}
