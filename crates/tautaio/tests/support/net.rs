//! Sockets.
#![expect(unsafe_code, reason = "std has neither socket options nor every kind of pair")]

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::c_int;

use super::descriptors::own;

/// Two ends of a TCP connection over loopback.
pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A pair of Unix sockets of any type.
pub(crate) fn unix_pair(kind: c_int) -> (OwnedFd, OwnedFd) {
    let mut ends = [-1; 2];
    // SAFETY: writes two descriptors.
    let result = unsafe { libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    (own(ends[0]), own(ends[1]))
}

/// Sets a socket option to a number.
pub(crate) fn set_option(socket: &impl AsRawFd, option: c_int, value: c_int) {
    set(socket, option, &value);
}

/// From now on `close` resets the connection.
pub(crate) fn reset_on_close(socket: &impl AsRawFd) {
    set(socket, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 });
}

/// How long a receiving or accepting call blocks.
pub(crate) fn receive_timeout(socket: &impl AsRawFd, milliseconds: i64) {
    set(socket, libc::SO_RCVTIMEO, &libc::timeval { tv_sec: milliseconds / 1000, tv_usec: milliseconds % 1000 * 1000 });
}

fn set<T>(socket: &impl AsRawFd, option: c_int, value: &T) {
    let size = libc::socklen_t::try_from(size_of::<T>()).unwrap();
    // SAFETY: the value is a local of that size.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, std::ptr::from_ref(value).cast(), size)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
