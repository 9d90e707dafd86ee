//! futex(2), private to the process.
#![expect(unsafe_code, reason = "a raw system call")]

use std::ffi::{c_int, c_void};
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

/// [`sleep`] as a cancellation point (pthreads(7)): a thread cancelled here calls `leave` with
/// `argument` before it ends.
pub(crate) fn sleep_cancelably(
    word: &AtomicU32,
    value: u32,
    deadline: Deadline,
    leave: extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> Wait {
    let mut buffer = CleanupBuffer { routine: leave, argument, kind: 0, previous: ptr::null_mut() };
    let mut before = 0;
    // SAFETY: the buffer stays until it is popped, or until the C library has called the routine. While cancelling acts
    // at any instruction, nothing happens but the system call; nothing between here and the application needs dropping.
    unsafe {
        _pthread_cleanup_push(&raw mut buffer, leave, argument);
        pthread_setcanceltype(ASYNCHRONOUS, &raw mut before);
        let wait = sleep(word, value, deadline);
        pthread_setcanceltype(before, &raw mut before);
        _pthread_cleanup_pop(&raw mut buffer, 0);
        wait
    }
}

/// `PTHREAD_CANCEL_ASYNCHRONOUS`.
const ASYNCHRONOUS: c_int = 1;

/// `struct _pthread_cleanup_buffer` (pthread.h).
#[repr(C)]
struct CleanupBuffer {
    routine: extern "C" fn(*mut c_void),
    argument: *mut c_void,
    kind: c_int,
    previous: *mut Self,
}

unsafe extern "C-unwind" {
    fn _pthread_cleanup_push(buffer: *mut CleanupBuffer, routine: extern "C" fn(*mut c_void), argument: *mut c_void);
    fn _pthread_cleanup_pop(buffer: *mut CleanupBuffer, execute: c_int);
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

/// Wakes up to this many sleepers.
pub(crate) fn wake(word: &AtomicU32, most: i32) {
    // SAFETY: the word outlives the call, which only uses its address.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, most) };
}
