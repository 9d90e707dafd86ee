//! System calls and per-thread facts that several modules need.
#![expect(unsafe_code, reason = "system calls")]

pub(crate) mod futex;

use std::ffi::c_int;
use std::mem;
use std::time::Duration;

/// A moment of `CLOCK_MONOTONIC`, or never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(libc::timespec);

impl Deadline {
    /// So far off that nobody lives to see it.
    pub(crate) const NEVER: Self = Self(libc::timespec { tv_sec: i64::MAX >> 8, tv_nsec: 0 });

    /// After this time from now.
    pub(crate) fn after(time: Duration) -> Self {
        let now = monotonic();
        let nanos = now.tv_nsec + i64::from(time.subsec_nanos());
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX >> 8);
        Self(libc::timespec {
            tv_sec: now.tv_sec.saturating_add(seconds).saturating_add(nanos / 1_000_000_000).min(i64::MAX >> 8),
            tv_nsec: nanos % 1_000_000_000,
        })
    }

    /// As the kernel takes it.
    pub(crate) const fn timespec(self) -> libc::timespec {
        self.0
    }
}

fn monotonic() -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the struct; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now
}

/// This thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library gives a valid address for each thread.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's errno.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// What a system call gave, with its errno when that is -1.
pub(crate) fn check(result: isize) -> Result<isize, c_int> {
    if result == -1 { Err(errno()) } else { Ok(result) }
}

/// Closes without the C library, whose `close` may be ours.
pub(crate) fn close(fd: c_int) {
    // SAFETY: the descriptor is the caller's to close.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// Process identity from the kernel: right in every kind of child.
pub(crate) fn process() -> libc::pid_t {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_getpid) as libc::pid_t }
}

/// Whether the descriptor is open.
pub(crate) fn is_open(fd: c_int) -> bool {
    // SAFETY: F_GETFD takes no argument.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}

/// Status flags and access mode of a descriptor (`F_GETFL`).
pub(crate) fn status_flags(fd: c_int) -> Result<c_int, c_int> {
    // SAFETY: F_GETFL takes no argument.
    check(unsafe { libc::fcntl(fd, libc::F_GETFL) } as isize).map(|flags| flags as c_int)
}

/// An eventfd that is closed on exec and never blocks.
pub(crate) fn event_fd() -> Result<c_int, c_int> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } as isize).map(|fd| fd as c_int)
}

/// Adds to an eventfd.
pub(crate) fn signal_event_fd(fd: c_int, count: u64) {
    // SAFETY: the kernel reads 8 bytes.
    unsafe { libc::write(fd, (&raw const count).cast(), size_of::<u64>()) };
}

/// Sets an eventfd back to 0.
pub(crate) fn drain_event_fd(fd: c_int) {
    let mut count = 0_u64;
    // SAFETY: the kernel writes 8 bytes at most. It doesn't block: EFD_NONBLOCK.
    unsafe { libc::read(fd, (&raw mut count).cast(), size_of::<u64>()) };
}

/// All signals blocked in this thread for as long as this lives; threads started meanwhile inherit that.
#[derive(Debug)]
pub(crate) struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    pub(crate) fn new() -> Self {
        // SAFETY: both sets are filled by the calls.
        unsafe {
            let mut all: libc::sigset_t = mem::zeroed();
            let mut before: libc::sigset_t = mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set was filled by `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// The calling thread no longer preempts others when it is woken (`SCHED_BATCH`). Where that is forbidden it stays as it is.
pub(crate) fn schedule_as_batch() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the struct outlives the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
}
