//! Calls that block for a time, and which signal(7) says are never restarted after an interruption.
//!
//! Each gives EAGAIN when its time is over and nothing came, whatever its own way to say so.
#![expect(unsafe_code, reason = "std restarts them or does not have them")]

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::aio::{errno, timespec_of};
use super::net::receive_timeout;

/// One of them, with a socket that stays silent.
pub(crate) type Call = fn(&UnixStream, Duration) -> Result<(), i32>;

/// Zero events are a time-out.
fn events(result: libc::c_int) -> Result<(), i32> {
    match result {
        -1 => Err(errno()),
        0 => Err(libc::EAGAIN),
        _ => Ok(()),
    }
}

fn milliseconds(timeout: Duration) -> i32 {
    timeout.as_millis().try_into().unwrap()
}

pub(crate) fn epoll_wait(silent: &UnixStream, timeout: Duration) -> Result<(), i32> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: 0 };
    // SAFETY: the event is a local.
    unsafe {
        let epoll = super::descriptors::own(libc::epoll_create1(libc::EPOLL_CLOEXEC));
        assert_eq!(libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, silent.as_raw_fd(), &raw mut event), 0);
        events(libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, milliseconds(timeout)))
    }
}

pub(crate) fn poll(silent: &UnixStream, timeout: Duration) -> Result<(), i32> {
    let mut poll = libc::pollfd { fd: silent.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure.
    events(unsafe { libc::poll(&raw mut poll, 1, milliseconds(timeout)) })
}

pub(crate) fn ppoll(silent: &UnixStream, timeout: Duration) -> Result<(), i32> {
    let mut poll = libc::pollfd { fd: silent.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, and no set of signals.
    events(unsafe { libc::ppoll(&raw mut poll, 1, &timespec_of(timeout), std::ptr::null()) })
}

pub(crate) fn receive(silent: &UnixStream, timeout: Duration) -> Result<(), i32> {
    receive_timeout(silent, milliseconds(timeout).into());
    let mut byte = 0u8;
    // SAFETY: one byte.
    let result = unsafe { libc::recv(silent.as_raw_fd(), (&raw mut byte).cast(), 1, 0) };
    if result < 0 { Err(errno()) } else { Ok(()) }
}

pub(crate) fn accept(_: &UnixStream, timeout: Duration) -> Result<(), i32> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    receive_timeout(&listener, milliseconds(timeout).into());
    // SAFETY: no address is asked for.
    let result = unsafe { libc::accept(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut()) };
    if result < 0 { Err(errno()) } else { Ok(()) }
}

pub(crate) fn semtimedop(_: &UnixStream, timeout: Duration) -> Result<(), i32> {
    let mut down = libc::sembuf { sem_num: 0, sem_op: -1, sem_flg: 0 };
    let timeout = timespec_of(timeout);
    // SAFETY: a set of one semaphore, which begins with zero, and one operation.
    unsafe {
        let set = libc::semget(libc::IPC_PRIVATE, 1, 0o600);
        assert!(set >= 0, "{}", std::io::Error::last_os_error());
        let result = libc::syscall(libc::SYS_semtimedop, set, &raw mut down, 1, &raw const timeout);
        let errno = errno();
        libc::semctl(set, 0, libc::IPC_RMID);
        if result < 0 { Err(errno) } else { Ok(()) }
    }
}

pub(crate) fn nanosleep(_: &UnixStream, timeout: Duration) -> Result<(), i32> {
    // SAFETY: what is left is not asked for.
    let result = unsafe { libc::nanosleep(&timespec_of(timeout), std::ptr::null_mut()) };
    if result == 0 { Err(libc::EAGAIN) } else { Err(errno()) }
}
