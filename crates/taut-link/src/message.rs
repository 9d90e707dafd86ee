//! recvmsg(2): data together with what the kernel knows of it.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrLike, SockaddrStorage, recvmsg};

use crate::sys;

/// What one call brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// Bytes of data.
    pub bytes: usize,
    /// The sender; datagrams of IP only.
    pub from: Option<SocketAddr>,
    /// When the kernel took it in or sent it on: `CLOCK_REALTIME`, seconds and nanoseconds.
    pub stamp: Option<(i64, i64)>,
    /// How many hosts it might still have passed, this one included.
    pub hops: Option<u8>,
    /// Datagrams for which the socket's queue had no room so far (`SO_RXQ_OVFL`).
    pub overflows: Option<u32>,
    /// `IP_RECVERR` or `IPV6_RECVERR`: `(ee_origin, ee_info, ee_data)` of `struct sock_extended_err`.
    pub(crate) extended_error: Option<(u8, u32, u32)>,
}

/// Room for all control messages of one call.
#[repr(align(8))]
struct Control([u8; 256]);

// linux/net_tstamp.h
pub(crate) const RX_SOFTWARE: u32 = 1 << 3;
pub(crate) const SOFTWARE: u32 = 1 << 4;

/// Switches receive timestamps of a socket on or off, for [`receive`].
///
/// # Errors
/// As setsockopt(2).
pub(crate) fn stamp_arrivals(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let flags = if on { SOFTWARE | RX_SOFTWARE } else { 0 };
    sys::set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags as i32)
}

/// Switches on what [`datagram`] tells.
///
/// # Errors
/// As setsockopt(2).
pub fn prepare(udp: BorrowedFd<'_>) -> io::Result<()> {
    for (level, name) in [
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
        (libc::IPPROTO_IP, libc::IP_RECVTTL),
    ] {
        sys::set_option(udp, level, name, 1)?;
    }
    // A socket of IPv6 may get datagrams of the other version. One of IPv4 has no options of IPv6.
    let _ = sys::set_option(udp, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1);
    Ok(())
}

/// Receives a datagram from a socket of UDP, with its sender.
///
/// # Errors
/// As recvmsg(2).
#[inline]
pub fn datagram(udp: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let (mut received, name) = receive_as::<SockaddrStorage>(udp, buffer, MsgFlags::empty())?;
    let v4 = |name: &SockaddrStorage| Some(SocketAddr::V4(SocketAddrV4::from(*name.as_sockaddr_in()?)));
    let v6 = |name: &SockaddrStorage| Some(SocketAddr::V6(SocketAddrV6::from(*name.as_sockaddr_in6()?)));
    received.from = name.and_then(|name| v4(&name).or_else(|| v6(&name)));
    Ok(received)
}

/// Receives from any socket; of TCP the call brings no sender.
///
/// # Errors
/// As recvmsg(2).
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], flags: i32) -> io::Result<Received> {
    receive_as::<()>(fd, buffer, MsgFlags::from_bits_retain(flags)).map(|(received, _)| received)
}

fn receive_as<S: SockaddrLike>(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: MsgFlags,
) -> io::Result<(Received, Option<S>)> {
    let mut control = Control([0; 256]);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<S>(fd.as_raw_fd(), &mut parts, Some(&mut control.0), flags)?;
    let mut received = Received { bytes: message.bytes, ..Received::default() };
    // They are left out where they had no room, which they have.
    for told in message.cmsgs().into_iter().flatten() {
        match told {
            ControlMessageOwned::ScmTimestampns(at) => received.stamp = Some((at.tv_sec(), at.tv_nsec())),
            ControlMessageOwned::ScmTimestampsns(all) if all.system.tv_sec() != 0 => {
                received.stamp = Some((all.system.tv_sec(), all.system.tv_nsec()));
            }
            ControlMessageOwned::RxqOvfl(count) => received.overflows = Some(count),
            ControlMessageOwned::Ipv4Ttl(hops) | ControlMessageOwned::Ipv6HopLimit(hops) => {
                received.hops = u8::try_from(hops).ok();
            }
            ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _) => {
                received.extended_error = Some((error.ee_origin, error.ee_info, error.ee_data));
            }
            _ => {}
        }
    }
    Ok((received, message.address))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_datagram_comes_with_its_sender_its_time_its_hops_and_what_was_lost_before() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let (from, to) = (UdpSocket::bind(any).unwrap(), UdpSocket::bind(any).unwrap());
            prepare(to.as_fd()).unwrap();
            socket2::SockRef::from(&to).set_recv_buffer_size(4096).unwrap();
            for _ in 0..100 {
                from.send_to(&[7; 500], to.local_addr().unwrap()).unwrap();
            }
            to.set_nonblocking(true).unwrap();
            let mut buffer = [0; 600];
            let first = datagram(to.as_fd(), &mut buffer).unwrap();
            assert_eq!((first.bytes, first.from), (500, Some(from.local_addr().unwrap())));
            assert_eq!((first.hops, first.overflows), (Some(64), None));
            assert!(first.stamp.is_some_and(|(seconds, nanoseconds)| seconds > 0 && nanoseconds < 1_000_000_000));
            let mut taken = 1;
            while datagram(to.as_fd(), &mut buffer).is_ok() {
                taken += 1;
            }
            from.send_to(b"last", to.local_addr().unwrap()).unwrap();
            let last = datagram(to.as_fd(), &mut buffer).unwrap();
            assert_eq!((last.bytes, last.overflows), (4, Some(100 - taken)), "{any}");
        }
    }
}
