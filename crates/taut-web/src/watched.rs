#![expect(unsafe_code, reason = "tokio watches a descriptor only by our word that it stays open")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use taut_link::{Link, Listener};
use tokio::io::unix::AsyncFd;

/// What has one descriptor, keeps it open until it is dropped, and gives no other one out meanwhile.
pub(crate) trait OneDescriptor: AsFd {}

impl OneDescriptor for Link {}
impl OneDescriptor for Listener {}
impl OneDescriptor for OwnedFd {}

/// Something with a descriptor, in the form in which tokio asks for it.
pub(crate) struct Held<T>(pub(crate) T);

impl<T: OneDescriptor> AsRawFd for Held<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Registers something with the runtime of the caller, which owns it from now on.
///
/// # Errors
/// As epoll_ctl(2).
pub(crate) fn watch<T: OneDescriptor>(inner: T) -> io::Result<AsyncFd<Held<T>>> {
    // SAFETY: `Held` owns what it holds, of which `OneDescriptor` says that its descriptor stays
    // the same and open until it is dropped.
    unsafe { AsyncFd::register(Held(inner)) }.map_err(io::Error::from)
}
