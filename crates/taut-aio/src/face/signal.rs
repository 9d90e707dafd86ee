#![expect(unsafe_code, reason = "sigwaitinfo(2)")]

use std::ffi::c_int;
use std::io;
use std::mem;
use std::ptr;
use std::time::Duration;

use crate::system;

/// Waits for the signals of operations, as the published experiment did.
pub struct SignalWaiter {
    set: libc::sigset_t,
}

impl SignalWaiter {
    /// Blocks the signal in this thread and those that it starts from now on, so that it can be waited for.
    ///
    /// # Errors
    /// `EINVAL`: there is no such signal.
    pub fn new(signal: c_int) -> io::Result<Self> {
        // SAFETY: the set is filled by the calls.
        unsafe {
            let mut set: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&raw mut set);
            system::check(libc::sigaddset(&raw mut set, signal) as isize).map_err(io::Error::from_raw_os_error)?;
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) {
                0 => Ok(Self { set }),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    /// The first real-time signal that the C library leaves to programs, and those above it.
    ///
    /// # Errors
    /// `EINVAL`: beyond the last one.
    pub fn realtime(number: c_int) -> io::Result<c_int> {
        let signal = libc::SIGRTMIN() + number;
        if (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&signal) {
            Ok(signal)
        } else {
            Err(io::Error::from_raw_os_error(libc::EINVAL))
        }
    }

    /// Waits for the signal and gives the token of the operation that it came from; `None` when the time is over first.
    ///
    /// # Errors
    /// `EINTR`: a handler of another signal ran.
    pub fn wait(&self, at_most: Option<Duration>) -> io::Result<Option<usize>> {
        let timeout = at_most.map(|time| libc::timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the set and the time are valid, the kernel fills the rest; an AIO signal carries a value.
        unsafe {
            let mut info: libc::siginfo_t = mem::zeroed();
            match system::check(libc::sigtimedwait(&raw const self.set, &raw mut info, timeout) as isize) {
                Ok(_) => Ok(Some(info.si_value().sival_ptr as usize)),
                Err(libc::EAGAIN) => Ok(None),
                Err(errno) => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

impl std::fmt::Debug for SignalWaiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignalWaiter").finish_non_exhaustive()
    }
}
