//! Descriptors of all kinds, as raw numbers: the stress closes them in ways that an owning type would not.
#![expect(unsafe_code, reason = "raw descriptors")]

use std::ffi::{c_int, c_void};
use std::net::{TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::ptr;

use super::ffi::errno;

/// `close` through its exported name, as programs call it.
pub(crate) fn close(fd: c_int) {
    // SAFETY: the number is the caller's.
    assert_eq!(unsafe { libc::close(fd) }, 0, "close({fd}): errno {}", errno());
}

/// `close` behind the library's back.
pub(crate) fn close_raw(fd: c_int) {
    // SAFETY: the number is the caller's.
    assert_eq!(unsafe { libc::syscall(libc::SYS_close, fd) }, 0, "close({fd}): errno {}", errno());
}

/// Puts the file of `from` where `onto` is, which is closed by it.
pub(crate) fn duplicate_onto(from: c_int, onto: c_int, third: bool) {
    // SAFETY: both numbers are the caller's.
    let result = unsafe { if third { libc::dup3(from, onto, libc::O_CLOEXEC) } else { libc::dup2(from, onto) } };
    assert_eq!(result, onto, "dup2({from}, {onto}): errno {}", errno());
}

pub(crate) fn duplicate(fd: c_int) -> c_int {
    // SAFETY: the number is the caller's.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    assert!(copy >= 0, "dup of {fd}: errno {}", errno());
    copy
}

/// Which file a number means, among all that are open; 0 for none.
pub(crate) fn inode(fd: c_int) -> u64 {
    // SAFETY: all-zero is a value of the structure, which the call fills in.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: it lives through the call.
    if unsafe { libc::fstat(fd, &raw mut stat) } == 0 { stat.st_ino } else { 0 }
}

/// The read end and the write end.
pub(crate) fn pipe() -> [c_int; 2] {
    let mut ends = [-1; 2];
    // SAFETY: there is room for two.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0, "pipe2: errno {}", errno());
    ends
}

pub(crate) fn socket_pair(kind: c_int) -> [c_int; 2] {
    let mut ends = [-1; 2];
    // SAFETY: there is room for two.
    let result = unsafe { libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) };
    assert_eq!(result, 0, "socketpair: errno {}", errno());
    ends
}

/// A TCP connection over loopback.
pub(crate) fn tcp() -> [c_int; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let one = TcpStream::connect(address).expect("a connection");
    // The library's thread and handlers may interrupt nobody, but the noise does.
    let (other, _) = retry(|| listener.accept()).expect("a connection");
    one.set_nodelay(true).expect("an open socket");
    other.set_nodelay(true).expect("an open socket");
    [one.into_raw_fd(), other.into_raw_fd()]
}

fn retry<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

pub(crate) fn set_nonblocking(fd: c_int) {
    // SAFETY: the number is the caller's.
    let result = unsafe { libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK) };
    assert_eq!(result, 0, "O_NONBLOCK");
}

/// Makes the kernel's buffer as small as it gets, so that writes have to wait.
pub(crate) fn set_small(fd: c_int, is_pipe: bool) {
    if is_pipe {
        // SAFETY: the number is the caller's.
        unsafe { libc::fcntl(fd, libc::F_SETPIPE_SZ, 4096) };
    } else {
        let size: c_int = 4096;
        // SAFETY: the option's value is an int.
        unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, (&raw const size).cast(), 4) };
    }
}

/// Whether `events` holds, waiting at most this long.
pub(crate) fn is_ready(fd: c_int, events: i16, milliseconds: c_int) -> bool {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    loop {
        // SAFETY: one entry.
        let count = unsafe { libc::poll(&raw mut entry, 1, milliseconds) };
        if count >= 0 || errno() != libc::EINTR {
            return count == 1 && entry.revents & events != 0;
        }
    }
}

/// Reads what is there. None when nothing is, errno when it fails.
pub(crate) fn read_now(fd: c_int, buffer: &mut [u8]) -> Option<Result<usize, c_int>> {
    if !is_ready(fd, libc::POLLIN, 0) && !is_ready(fd, libc::POLLHUP, 0) && !is_ready(fd, libc::POLLERR, 0) {
        return None;
    }
    // SAFETY: the buffer is as long as it says.
    let count = unsafe { libc::read(fd, buffer.as_mut_ptr().cast::<c_void>(), buffer.len()) };
    match usize::try_from(count) {
        Ok(count) => Some(Ok(count)),
        Err(_) if errno() == libc::EINTR || errno() == libc::EAGAIN => None,
        Err(_) => Some(Err(errno())),
    }
}

/// Writes at most a page, if there is room. None when there is none.
pub(crate) fn write_now(fd: c_int, bytes: &[u8]) -> Option<usize> {
    if !is_ready(fd, libc::POLLOUT, 0) {
        return None;
    }
    // A pipe that is ready takes a page whole.
    let bytes = &bytes[..bytes.len().min(4096)];
    // SAFETY: the buffer is as long as it says.
    let count = unsafe {
        let sent = libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        if sent < 0 && errno() == libc::ENOTSOCK { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) } else { sent }
    };
    usize::try_from(count).ok()
}

/// Reads a file through a descriptor of its own position.
pub(crate) fn read_at(fd: c_int, buffer: &mut [u8], offset: usize) -> usize {
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut buffer[done..];
        let place = i64::try_from(offset + done).expect("a small file");
        // SAFETY: the buffer is as long as it says.
        let count = unsafe { libc::pread(fd, rest.as_mut_ptr().cast(), rest.len(), place) };
        match usize::try_from(count) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(_) => assert_eq!(errno(), libc::EINTR, "pread"),
        }
    }
    done
}

/// A file in this directory that has no name any more.
pub(crate) fn file(directory: &std::path::Path, flags: c_int) -> Result<c_int, c_int> {
    let directory = std::ffi::CString::new(directory.as_os_str().as_encoded_bytes()).expect("no zero in it");
    // SAFETY: a string that ends in zero.
    let fd = unsafe { libc::open(directory.as_ptr(), libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC | flags, 0o600) };
    if fd < 0 { Err(errno()) } else { Ok(fd) }
}

/// Sleeps, woken by nothing.
pub(crate) fn pause(microseconds: u64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: i64::try_from(microseconds * 1000).expect("short") };
    // SAFETY: the time lives through the call; a signal that shortens it does no harm.
    unsafe { libc::nanosleep(&raw const time, ptr::null_mut()) };
}
