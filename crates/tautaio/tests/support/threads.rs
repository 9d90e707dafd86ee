//! Threads as POSIX has them.
#![expect(unsafe_code, reason = "std knows no attributes")]

use std::time::Duration;

use libc::{c_int, pthread_attr_t};

use super::aio::timespec_of;
use super::signals;

unsafe extern "C" {
    fn pthread_attr_getdetachstate(attributes: *const pthread_attr_t, state: *mut c_int) -> c_int;
}

/// What a thread finds out about itself.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    pub(crate) thread: libc::pid_t,
    pub(crate) detached: bool,
    pub(crate) stack: usize,
    pub(crate) blocked: Vec<c_int>,
}

impl Here {
    pub(crate) fn now() -> Self {
        // SAFETY: all-zero is good enough for what is filled in.
        let mut attributes: pthread_attr_t = unsafe { std::mem::zeroed() };
        let (mut state, mut start, mut stack) = (0, std::ptr::null_mut(), 0);
        // SAFETY: all are locals, and the attributes are initialised by the first call.
        unsafe {
            assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes), 0);
            assert_eq!(pthread_attr_getdetachstate(&raw const attributes, &raw mut state), 0);
            assert_eq!(libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut stack), 0);
            libc::pthread_attr_destroy(&raw mut attributes);
        }
        let detached = state == libc::PTHREAD_CREATE_DETACHED;
        Self { thread: signals::thread_id(), detached, stack, blocked: signals::blocked() }
    }
}

/// Attributes of threads to come.
pub(crate) struct Attributes(pthread_attr_t);

impl Attributes {
    pub(crate) fn new(stack: usize, detached: bool) -> Self {
        let state = if detached { libc::PTHREAD_CREATE_DETACHED } else { libc::PTHREAD_CREATE_JOINABLE };
        // SAFETY: all-zero is good enough for what pthread_attr_init fills.
        let mut attributes: pthread_attr_t = unsafe { std::mem::zeroed() };
        // SAFETY: it is a local, and stays valid when it is moved: glibc's holds no pointer to itself.
        unsafe {
            assert_eq!(libc::pthread_attr_init(&raw mut attributes), 0);
            assert_eq!(libc::pthread_attr_setstacksize(&raw mut attributes, stack), 0);
            assert_eq!(libc::pthread_attr_setdetachstate(&raw mut attributes, state), 0);
        }
        Self(attributes)
    }

    pub(crate) fn as_ptr(&self) -> *const pthread_attr_t {
        &raw const self.0
    }
}

/// Sleeps for this time however often handlers run. `std::thread::sleep` goes on with what is left, to which the kernel
/// adds the thread's timer slack (50 us) each time: interrupted more often than that, a sleep grows and never ends.
pub(crate) fn pause(time: Duration) {
    let mut until = timespec_of(Duration::ZERO);
    // SAFETY: the kernel fills the structure.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut until) }, 0);
    let nanoseconds = until.tv_nsec + i64::from(time.subsec_nanos());
    until.tv_sec += i64::try_from(time.as_secs()).unwrap() + nanoseconds / 1_000_000_000;
    until.tv_nsec = nanoseconds % 1_000_000_000;
    let left = std::ptr::null_mut();
    // SAFETY: the structure is a local; what is left is not asked for.
    while unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const until, left) } != 0 {}
}
