//! futex(2), private to the process.
#![expect(unsafe_code, reason = "a raw system call")]

use std::ptr;
use std::sync::atomic::AtomicU32;

use crate::lockfree::announcement::Wait;
use crate::system::{self, Deadline};

/// Sleeps while the word has this value, at most until the deadline.
pub(crate) fn sleep(word: &AtomicU32, value: u32, deadline: Deadline) -> Wait {
    // With a time-out the kernel never restarts the call after a signal handler, whatever SA_RESTART says
    // (kernel/futex/waitwake.c, futex_wait): aio_suspend must report EINTR.
    let until = deadline.timespec();
    // SAFETY: the word and the time outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            value,
            &raw const until,
            ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        )
    };
    match (result, system::errno()) {
        (-1, libc::ETIMEDOUT) => Wait::TimedOut,
        (-1, libc::EINTR) => Wait::Interrupted,
        // Woken, or the value is another by now.
        _ => Wait::Done,
    }
}

/// Wakes up to this many sleepers.
pub(crate) fn wake(word: &AtomicU32, most: i32) {
    // SAFETY: the word outlives the call, which only uses its address.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, most) };
}
