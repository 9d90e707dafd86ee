//! What a caller asks of the I/O thread and waits for.
//!
//! Commands don't live on their callers' stacks: a signal handler that interrupts the wait may leave
//! it by siglongjmp(3), and the answer comes all the same. Then the place is lost.
#![expect(unsafe_code, reason = "the request is handed from thread to thread")]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use crate::lockfree::announcement::Wait;
use crate::system::{self, Deadline, futex};
use crate::worker::notice::{Event, Notice};

/// Marks the address of a command among those of control blocks; both are aligned to 8.
pub(crate) const COMMAND: usize = 1;

/// In place of an answer: a fork has come between.
const FORGOTTEN: u32 = 2;

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
    busy: AtomicBool,
    /// In a mapping of its own.
    mapped: bool,
}

/// Places for commands; with more of them waiting than this each further one gets a mapping of its own.
static PLACES: [Command; 64] = [const { Command::empty(false) }; 64];

// SAFETY: the request is its caller's until the command is pushed, and the I/O thread's afterwards.
unsafe impl Sync for Command {}

impl Command {
    const fn empty(mapped: bool) -> Self {
        Self {
            link: AtomicUsize::new(0),
            request: UnsafeCell::new(None),
            answer: AtomicI32::new(0),
            answered: AtomicU32::new(0),
            busy: AtomicBool::new(mapped),
            mapped,
        }
    }

    /// A command in a place of its own until it is [given back](Self::give_back). Async-signal-safe.
    pub(crate) fn place(request: Request) -> &'static Self {
        let command = loop {
            let free =
                |place: &&Self| place.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
            match PLACES.iter().find(free).or_else(|| Self::map()) {
                Some(command) => break command,
                // Without memory: others give theirs back.
                None => system::give_way(),
            }
        };
        command.answered.store(0, Ordering::Relaxed);
        // SAFETY: nobody else has the place.
        unsafe { *command.request.get() = Some(request) };
        command
    }

    fn map() -> Option<&'static Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, large enough and aligned to a page.
        unsafe {
            let place = libc::mmap(ptr::null_mut(), size_of::<Self>(), protection, flags, -1, 0);
            if place == libc::MAP_FAILED {
                return None;
            }
            let command = place.cast::<Self>();
            command.write(Self::empty(true));
            Some(&*command)
        }
    }

    /// Its answer was read.
    pub(crate) fn give_back(&'static self) {
        if self.mapped {
            // SAFETY: mapped in `map`, and nobody else knows it any more: what is woken late goes by the address alone.
            unsafe { libc::munmap(ptr::from_ref(self).cast_mut().cast(), size_of::<Self>()) };
        } else {
            self.busy.store(false, Ordering::Release);
        }
    }

    /// As a letter.
    pub(crate) fn address(&self) -> usize {
        ptr::from_ref(self) as usize | COMMAND
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
        // Only the word's address is used after the store: a mapping that is gone does no harm.
        let word: *const AtomicU32 = &raw const self.answered;
        self.answered.store(1, Ordering::Release);
        // SAFETY: futex(2) takes an address to wake; when it was unmapped, EFAULT comes back.
        futex::wake(unsafe { &*word }, 1);
    }

    /// In the child of a fork: nobody answers what was asked before.
    pub(crate) fn forget_all() {
        for place in PLACES.iter().filter(|place| place.busy.load(Ordering::Relaxed)) {
            place.answered.store(FORGOTTEN, Ordering::Relaxed);
        }
    }

    /// Waits for the answer; none when nobody will give it any more: a signal handler has forked,
    /// and this is the child.
    pub(crate) fn wait(&self, is_child: impl Fn() -> bool) -> Option<c_int> {
        loop {
            match self.answered.load(Ordering::Acquire) {
                FORGOTTEN => return None,
                0 if is_child() => return None,
                0 => {}
                _ => break,
            }
            // A fork between the question and the sleep changes the word of a place, but not that of a mapping.
            let deadline = if self.mapped { Deadline::after(Duration::from_millis(100)) } else { Deadline::NEVER };
            match futex::sleep(&self.answered, 0, deadline) {
                Wait::Done | Wait::TimedOut | Wait::Interrupted => {}
            }
        }
        Some(self.answer.load(Ordering::Relaxed))
    }
}
