//! System calls and per-thread facts that several modules need.
#![expect(unsafe_code, reason = "system calls")]

pub(crate) mod arena;
pub(crate) mod bell;
pub(crate) mod file;
pub(crate) mod futex;
pub(crate) mod own;

use std::ffi::{CStr, c_int, c_long};
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

/// A whole file, without the C library.
///
/// # Errors
/// The errno of open(2) or read(2).
pub(crate) fn read_file(path: &CStr) -> Result<Vec<u8>, c_int> {
    const PIECE: usize = 16 << 10;
    // SAFETY: the path is a string.
    let opened =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let fd = check(opened as isize)? as c_int;
    let mut bytes = Vec::new();
    let end = loop {
        let length = bytes.len();
        bytes.resize(length + PIECE, 0);
        // SAFETY: there is room for PIECE bytes behind those read so far.
        let got = check(unsafe { libc::syscall(libc::SYS_read, fd, bytes.as_mut_ptr().add(length), PIECE) } as isize);
        bytes.truncate(length + got.unwrap_or(0).unsigned_abs());
        match got {
            Ok(0) => break Ok(bytes),
            Ok(_) | Err(libc::EINTR) => {}
            Err(errno) => break Err(errno),
        }
    };
    close(fd);
    end
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

/// How many descriptors the process may have (`RLIMIT_NOFILE`).
pub(crate) fn descriptor_limit() -> c_int {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the struct.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    c_int::try_from(limit.rlim_cur).unwrap_or(c_int::MAX)
}

/// Status flags and access mode of a descriptor (`F_GETFL`).
pub(crate) fn status_flags(fd: c_int) -> Result<c_int, c_int> {
    // SAFETY: F_GETFL takes no argument.
    check(unsafe { libc::fcntl(fd, libc::F_GETFL) } as isize).map(|flags| flags as c_int)
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

/// The calling thread no longer preempts others when it is woken (`SCHED_BATCH`); gives whether that is
/// so now. A thread that is not of the ordinary kind, but of a real-time one or idle, stays as it is.
pub(crate) fn schedule_as_batch() -> bool {
    scheduler() == c_long::from(libc::SCHED_OTHER) && schedule_as(libc::SCHED_BATCH)
}

/// The calling thread's policy; musl's function only returns ENOSYS.
fn scheduler() -> c_long {
    // SAFETY: no memory is passed.
    unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) }
}

fn schedule_as(policy: c_int) -> bool {
    // `struct sched_param` of linux/sched/types.h is this int alone.
    let priority: c_int = 0;
    // SAFETY: the struct outlives the call.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0 }
}

/// The calling thread is listed under the program's name, as threads are that programs start.
pub(crate) fn take_programs_name() {
    unsafe extern "C" {
        static program_invocation_short_name: *const std::ffi::c_char;
    }
    // SAFETY: the C library sets it before main and keeps it; the kernel takes the first 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, program_invocation_short_name) };
}

/// Lets others that share this processor run.
pub(crate) fn give_way() {
    // SAFETY: no arguments.
    unsafe { libc::sched_yield() };
}

/// Lets time pass for others to come out of the way, but not more than a second in all.
#[derive(Debug)]
pub(crate) struct Patience {
    turns: u32,
    /// When it ends, once it was needed: a sleep takes as long as a busy machine likes.
    until: Option<libc::timespec>,
}

impl Patience {
    pub(crate) const fn new() -> Self {
        Self { turns: 0, until: None }
    }

    /// Waits a little; false when it has been enough. Async-signal-safe, and no cancellation point.
    pub(crate) fn wait(&mut self) -> bool {
        const YIELDS: u32 = 50;
        const MOST: Duration = Duration::from_secs(1);
        static SLEEP: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 200_000 };
        self.turns += 1;
        if self.turns <= YIELDS {
            give_way();
        } else {
            let errno = errno();
            // SAFETY: the time outlives the call.
            unsafe { libc::syscall(libc::SYS_nanosleep, &raw const SLEEP, std::ptr::null_mut::<libc::timespec>()) };
            set_errno(errno);
        }
        let until = *self.until.get_or_insert_with(|| Deadline::after(MOST).timespec());
        let now = monotonic();
        (now.tv_sec, now.tv_nsec) < (until.tv_sec, until.tv_nsec)
    }
}

/// A word that tells this thread from all others of the process that live.
pub(crate) fn thread() -> usize {
    // SAFETY: no arguments.
    unsafe { libc::pthread_self() as usize }
}
