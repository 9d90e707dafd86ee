//! System calls of the user path: receiving a datagram together with what the kernel knows of it, and setting up input devices.
#![expect(unsafe_code, reason = "recvmsg(2) with these control messages and these ioctls have no safe wrapper")]

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

/// A datagram that has been received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) bytes: usize,
    /// Its sender, on IP sockets.
    pub(super) from: Option<SocketAddr>,
    /// When the kernel took it in (`CLOCK_REALTIME`, ns).
    pub(super) arrived_ns: Option<i64>,
    /// How many hosts it might still have passed, this one included.
    pub(super) hops: Option<u8>,
    /// Datagrams for which the socket's queue had no room so far (`SO_RXQ_OVFL`).
    pub(super) overflows: Option<u32>,
}

/// Switches on what [`receive`] tells.
pub(super) fn prepare(fd: BorrowedFd<'_>) -> io::Result<()> {
    // Of both versions of IP: a socket of IPv6 may get datagrams of the other one. One of IPv4 has no options of IPv6.
    let options = [
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
        (libc::IPPROTO_IP, libc::IP_RECVTTL),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
    ];
    for (level, name) in options {
        let on: libc::c_int = 1;
        // SAFETY: the pointer and the length describe a live int.
        let result =
            unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const on).cast(), size_of_val(&on) as u32) };
        if result < 0 && level != libc::IPPROTO_IPV6 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[repr(C, align(8))]
struct Control([u8; 128]);

/// Receives a datagram.
pub(super) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control([0; 128]);
    // SAFETY: all zeroes are a valid sockaddr_storage.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    // SAFETY: all zeroes are a valid msghdr, with no buffers.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of_val(&name) as u32;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: all buffers in the message are live, and their lengths are told.
    let result = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let from = address(&name);
    let mut received = Received { bytes: result as usize, from, arrived_ns: None, hops: None, overflows: None };
    // SAFETY: the kernel filled the control buffer and told its length; CMSG_* stay within it.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(header) = at.as_ref() {
            let data = libc::CMSG_DATA(at);
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    received.arrived_ns = Some(time.tv_sec * 1_000_000_000 + time.tv_nsec);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    received.overflows = Some(data.cast::<u32>().read_unaligned());
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    received.hops = u8::try_from(data.cast::<libc::c_int>().read_unaligned()).ok();
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(&raw const message, at);
        }
    }
    Ok(received)
}

fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one, and the storage has room for and the alignment of any address.
            let name = unsafe { &*std::ptr::from_ref(name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { &*std::ptr::from_ref(name).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(name.sin6_port), name.sin6_flowinfo, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Puts the calling thread into SCHED_FIFO.
pub(crate) fn fifo(priority: u8) -> io::Result<()> {
    // SAFETY: all zeroes are a valid sched_param.
    let mut parameter: libc::sched_param = unsafe { mem::zeroed() };
    parameter.sched_priority = priority.into();
    // SAFETY: the pointer is to a live sched_param.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `struct input_mask` (linux/input.h).
#[repr(C)]
struct InputMask {
    kind: u32,
    bytes: u32,
    codes: u64,
}

/// Has an input device hand over one type and code of events only, with times of `CLOCK_MONOTONIC`.
pub(super) fn only_events(fd: BorrowedFd<'_>, kind: u16, code: u16) -> io::Result<()> {
    const EVIOCSCLOCKID: u32 = 0x4004_45a0;
    const EVIOCSMASK: u32 = 0x4010_4593;
    let clock: libc::c_int = libc::CLOCK_MONOTONIC;
    // SAFETY: the ioctl takes a pointer to an int, which is live.
    if unsafe { libc::ioctl(fd.as_raw_fd(), EVIOCSCLOCKID as _, &raw const clock) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // Codes go up to KEY_MAX, 0x2ff. The mask of type 0 is one of types.
    for (of, only) in [(0, kind), (kind, code)] {
        let mut codes = [0_u8; 0x300 / 8];
        codes[usize::from(only / 8)] |= 1 << (only % 8);
        let mask = InputMask { kind: of.into(), bytes: codes.len() as u32, codes: codes.as_ptr() as u64 };
        // SAFETY: the ioctl takes a pointer to this struct, in which address and length of the live bitmap are told.
        if unsafe { libc::ioctl(fd.as_raw_fd(), EVIOCSMASK as _, &raw const mask) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
