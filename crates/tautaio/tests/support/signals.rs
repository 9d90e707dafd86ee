//! Signals: blocking, taking and handling them.
#![expect(unsafe_code, reason = "std has no signals")]

use std::ptr;
use std::time::Duration;

use libc::{c_int, c_void, siginfo_t, sigset_t};

use super::aio::{errno, timespec_of};

/// A realtime signal that nobody else uses.
pub(crate) fn realtime(number: c_int) -> c_int {
    libc::SIGRTMIN() + number
}

/// What a signal carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Taken {
    pub(crate) signal: c_int,
    pub(crate) code: c_int,
    pub(crate) value: usize,
    pub(crate) pid: libc::pid_t,
    pub(crate) uid: libc::uid_t,
}

impl Taken {
    /// In a handler, too.
    pub(crate) fn from(info: &siginfo_t) -> Self {
        // SAFETY: a queued signal has these fields, and all bytes of the structure are initialised.
        let (value, pid, uid) = unsafe { (info.si_value(), info.si_pid(), info.si_uid()) };
        Self { signal: info.si_signo, code: info.si_code, value: value.sival_ptr.addr(), pid, uid }
    }
}

pub(crate) fn set_of(signals: &[c_int]) -> sigset_t {
    // SAFETY: sigemptyset makes any bytes a set.
    let mut set = unsafe { std::mem::zeroed() };
    // SAFETY: the set is a local.
    unsafe { libc::sigemptyset(&raw mut set) };
    for &signal in signals {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::sigaddset(&raw mut set, signal) }, 0);
    }
    set
}

/// Blocks them in this thread and in those it starts.
pub(crate) fn block(signals: &[c_int]) {
    // SAFETY: the set is a local.
    assert_eq!(unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set_of(signals), ptr::null_mut()) }, 0);
}

/// Sleeps until a handler has run, with no signal blocked meanwhile.
pub(crate) fn await_handler() {
    // SAFETY: the set is a local.
    unsafe { libc::sigsuspend(&set_of(&[])) };
}

/// Signals that this thread blocks.
pub(crate) fn blocked() -> Vec<c_int> {
    let mut set = set_of(&[]);
    // SAFETY: the set is a local.
    assert_eq!(unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut set) }, 0);
    members(&set)
}

/// Signals that wait to be unblocked.
pub(crate) fn pending() -> Vec<c_int> {
    let mut set = set_of(&[]);
    // SAFETY: the set is a local.
    assert_eq!(unsafe { libc::sigpending(&raw mut set) }, 0);
    members(&set)
}

fn members(set: &sigset_t) -> Vec<c_int> {
    // SAFETY: the set is a local of the caller.
    (1..=libc::SIGRTMAX()).filter(|&signal| unsafe { libc::sigismember(set, signal) } == 1).collect()
}

/// Takes a blocked signal; the error is `errno`, EAGAIN when none came in time.
pub(crate) fn take(signals: &[c_int], timeout: Duration) -> Result<Taken, i32> {
    // SAFETY: all-zero is a value of the structure.
    let mut info: siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: all pointers are to locals.
    let signal = unsafe { libc::sigtimedwait(&set_of(signals), &raw mut info, &timespec_of(timeout)) };
    if signal < 0 { Err(errno()) } else { Ok(Taken::from(&info)) }
}

/// Handles a signal. A handler may do only what is async-signal-safe.
pub(crate) fn handle(signal: c_int, flags: c_int, handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void)) {
    // SAFETY: all-zero is a value of the structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | flags;
    // SAFETY: the handler has the type that SA_SIGINFO asks for.
    assert_eq!(unsafe { libc::sigaction(signal, &action, ptr::null_mut()) }, 0);
}

/// A handler that does nothing, and without SA_RESTART.
pub(crate) fn interrupt_by(signal: c_int) {
    extern "C" fn nothing(_: c_int, _: *mut siginfo_t, _: *mut c_void) {}
    handle(signal, 0, nothing);
}

/// The default action, which for SIGPIPE Rust's start-up code has changed.
pub(crate) fn default_action(signal: c_int) {
    // SAFETY: SIG_DFL is an action of every signal.
    assert_ne!(unsafe { libc::signal(signal, libc::SIG_DFL) }, libc::SIG_ERR);
}

pub(crate) fn thread_id() -> libc::pid_t {
    // SAFETY: asks for a number.
    unsafe { libc::gettid() }
}

/// A thread that can be sent signals.
#[derive(Clone, Copy)]
pub(crate) struct Thread(libc::pthread_t);

impl Thread {
    pub(crate) fn current() -> Self {
        // SAFETY: asks for a handle.
        Self(unsafe { libc::pthread_self() })
    }

    pub(crate) fn signal(self, signal: c_int) {
        // SAFETY: the tests let the thread outlive the one that signals it.
        assert_eq!(unsafe { libc::pthread_kill(self.0, signal) }, 0);
    }
}

/// Runs `body` while another thread keeps signalling this one, from a while after the start on.
pub(crate) fn while_signalled<T>(signal: c_int, body: impl FnOnce() -> T) -> T {
    let thread = Thread::current();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while ended
                .recv_timeout(Duration::from_millis(50))
                .is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                thread.signal(signal);
            }
        });
        let result = body();
        drop(end);
        result
    })
}
