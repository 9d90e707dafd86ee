//! What a caller asks of the I/O thread and waits for.
#![expect(unsafe_code, reason = "a command lives on its caller's stack")]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

use crate::lockfree::announcement::Wait;
use crate::system::Deadline;
use crate::system::futex;
use crate::worker::notice::{Event, Notice};

/// Marks the address of a command among those of control blocks; both are aligned to 8.
pub(crate) const COMMAND: usize = 1;

/// What to do.
#[derive(Debug)]
pub(crate) enum Request {
    /// aio_cancel(3): one block or, with 0, all on this descriptor. `issued` says whether those that the kernel has are
    /// tried too.
    Cancel { fd: c_int, block: usize, issued: bool },
    /// The descriptor is about to be closed: cancel all on it, wait for what would go on with the
    /// number, and forget what it was.
    Close { fd: c_int },
    /// A list of this many operations, whose notice is to come after the last of them; the answer is the list's number.
    List { length: u32, event: Event },
    /// Answer once all that was submitted before is begun.
    CatchUp,
    /// Deliver a notice.
    Deliver(Notice),
}

/// A request with its answer.
#[derive(Debug)]
#[repr(align(8))]
pub(crate) struct Command {
    pub(crate) link: AtomicUsize,
    request: UnsafeCell<Option<Request>>,
    answer: AtomicI32,
    answered: AtomicU32,
}

impl Command {
    pub(crate) fn new(request: Request) -> Self {
        Self {
            link: AtomicUsize::new(0),
            request: UnsafeCell::new(Some(request)),
            answer: AtomicI32::new(0),
            answered: AtomicU32::new(0),
        }
    }

    /// As a letter.
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize | COMMAND
    }

    /// Takes the request out.
    ///
    /// # Safety
    /// Only the I/O thread calls this, after it took the command from the inbox.
    pub(crate) unsafe fn take(&self) -> Option<Request> {
        // SAFETY: the caller's promise; the other side does not look at the request any more.
        unsafe { (*self.request.get()).take() }
    }

    /// Answers. The command is gone before this returns.
    pub(crate) fn finish(&self, answer: c_int) {
        self.answer.store(answer, Ordering::Relaxed);
        // Only the word's address is used after the store: a stack that is gone does no harm.
        let word: *const AtomicU32 = &raw const self.answered;
        self.answered.store(1, Ordering::Release);
        // SAFETY: futex(2) takes an address to wake; when the stack was unmapped, EFAULT comes back.
        futex::wake(unsafe { &*word }, 1);
    }

    /// Waits for the answer.
    pub(crate) fn wait(&self) -> c_int {
        while self.answered.load(Ordering::Acquire) == 0 {
            match futex::sleep(&self.answered, 0, Deadline::NEVER) {
                Wait::Done | Wait::TimedOut | Wait::Interrupted => {}
            }
        }
        self.answer.load(Ordering::Relaxed)
    }
}
