//! futex(2), private to the process.
#![expect(unsafe_code, reason = "a raw system call")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

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
/// `argument` before it ends, and so does one whose signal handler jumps out of here (siglongjmp(3)).
pub(crate) fn sleep_cancelably(
    word: &AtomicU32,
    value: u32,
    deadline: Deadline,
    leave: extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> Wait {
    let mut left = Left { leave, argument, before: AtomicI32::new(UNKNOWN) };
    let place = (&raw mut left).cast::<c_void>();
    let mut buffer = CleanupBuffer { routine: clean_up, argument: place, kind: 0, previous: ptr::null_mut() };
    let mut asynchronous = 0;
    // SAFETY: the buffer stays until it is popped, or until the C library has called the routine. While cancelling acts
    // at any instruction, nothing happens but the system call; nothing between here and the application needs dropping.
    unsafe {
        _pthread_cleanup_push(&raw mut buffer, clean_up, place);
        // The C library stores what was before it changes that.
        pthread_setcanceltype(ASYNCHRONOUS, left.before.as_ptr());
        let wait = sleep(word, value, deadline);
        pthread_setcanceltype(left.before.load(Ordering::Relaxed), &raw mut asynchronous);
        _pthread_cleanup_pop(&raw mut buffer, 0);
        wait
    }
}

/// A wait that is left by another way than its end.
struct Left {
    leave: extern "C" fn(*mut c_void),
    argument: *mut c_void,
    /// The thread's type of cancellation before the wait, which a jump does not restore by itself.
    before: AtomicI32,
}

extern "C" fn clean_up(left: *mut c_void) {
    // SAFETY: it is on the stack below, in the frame that is being left.
    let left = unsafe { &*left.cast_const().cast::<Left>() };
    let (before, mut asynchronous) = (left.before.load(Ordering::Relaxed), 0);
    if before != UNKNOWN {
        // SAFETY: the place lives through the call.
        unsafe { pthread_setcanceltype(before, &raw mut asynchronous) };
    }
    (left.leave)(left.argument);
}

/// No type of cancellation: it has not been changed yet.
const UNKNOWN: c_int = -1;

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
