//! Network namespaces for the bench: the sensor's end of a cable lives in one of its own.
#![expect(
    unsafe_code,
    reason = "unshare is unsafe in rustix, for a flag that is not used here; and in tests a socket option"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{panic, thread};

use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// A network namespace. It lives as long as this, a thread or a socket is in it.
#[derive(Debug)]
pub(crate) struct Namespace(OwnedFd);

impl Namespace {
    /// A new one, with nothing in it but a loopback device that is down.
    pub(crate) fn create() -> io::Result<Self> {
        let make = || -> io::Result<OwnedFd> {
            // SAFETY: the flag is NEWNET, never FILES: the table of file descriptors stays shared by all threads.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok(File::open("/proc/thread-self/ns/net")?.into())
        };
        // On a thread that ends: the caller stays where it is.
        let thread = thread::Builder::new().name("taut-netns".into()).spawn(make)?;
        thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause)).map(Self)
    }

    /// Runs `f` on a thread inside and returns what it returned. A socket that it makes belongs to
    /// the namespace for ever.
    pub(crate) fn inside<T: Send>(&self, f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let run = || {
                rustix::thread::move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?;
                f()
            };
            let thread = thread::Builder::new().name("taut-netns".into()).spawn_scoped(scope, run)?;
            thread.join().unwrap_or_else(|cause| panic::resume_unwind(cause))
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sends a header of options for the destination with each datagram from now on (`IPV6_DSTOPTS`, RFC 3542, section 9).
#[cfg(test)]
pub(super) fn set_destination_options(socket: &std::net::UdpSocket, header: &[u8]) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let (level, option) = (libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS);
    let (at, length) = (header.as_ptr().cast(), header.len() as libc::socklen_t);
    // SAFETY: the header is live and its length is told.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, at, length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A socket that sends whole frames out of a device (packet(7)) and receives none.
#[cfg(test)]
pub(super) fn packet_socket(ifindex: u32) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all zeroes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    (address.sll_family, address.sll_ifindex) = (libc::AF_PACKET as u16, ifindex.cast_signed());
    let (at, length) = ((&raw const address).cast(), size_of_val(&address) as libc::socklen_t);
    // SAFETY: the address is live and its length is told.
    let result = unsafe { libc::bind(socket.as_raw_fd(), at, length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}
