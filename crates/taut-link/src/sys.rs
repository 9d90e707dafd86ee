//! The system calls that no crate wraps, each behind a safe function. The only place of this crate
//! with `unsafe`, but for the TUN device and its namespace in [`crate::foreign`].
#![expect(unsafe_code, reason = "these system calls have no safe wrapper in rustix or socket2")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, c_void, socklen_t};
use rustix::io::Errno;
use socket2::{SockAddr, SockAddrStorage};

/// Sets an `int` socket option.
pub(crate) fn set_option(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set_option_bytes(fd, level, name, &value.to_ne_bytes())
}

/// Sets a socket option from its bytes.
pub(crate) fn set_option_bytes(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast::<c_void>(), value.len() as socklen_t)
    };
    check(result).map(drop)
}

/// Reads an `int` socket option.
pub(crate) fn option(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value = [0; size_of::<c_int>()];
    option_bytes(fd, level, name, &mut value)?;
    Ok(c_int::from_ne_bytes(value))
}

/// Reads a socket option into `value` and returns how many bytes the kernel wrote.
pub(crate) fn option_bytes(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &mut [u8]) -> io::Result<usize> {
    let mut length = value.len() as socklen_t;
    // SAFETY: the pointer and the length describe `value`, which outlives the call; the kernel
    // writes at most `length` bytes.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast::<c_void>(), &raw mut length) };
    check(result)?;
    Ok(length as usize)
}

/// A socket address from the bytes of its C structure, family first.
pub(crate) fn socket_address(bytes: &[u8]) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    let length = bytes.len().min(storage.size_of() as usize);
    // SAFETY: both sides are valid for `length` bytes and do not overlap, and those of the storage
    // are initialised after it; an address is plain data, of which the kernel checks the rest.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut storage).cast::<u8>(), length);
        SockAddr::new(storage, length as socklen_t)
    }
}

/// The bytes of an address's C structure.
pub(crate) fn address_bytes(address: &SockAddr) -> &[u8] {
    // SAFETY: the storage behind the pointer lives as long as `address`, is initialised and has at least that length.
    unsafe { std::slice::from_raw_parts(address.as_ptr().cast::<u8>(), address.len() as usize) }
}

/// Bytes written to a TCP socket and not yet sent for the first time (`SIOCOUTQNSD`, tcp(7)).
pub(crate) fn unsent_bytes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // linux/sockios.h; the libc crate has no name for it.
    const SIOCOUTQNSD: libc::Ioctl = 0x894B;
    queued(fd, SIOCOUTQNSD)
}

/// Bytes written to a TCP socket and not yet acknowledged (`SIOCOUTQ`, tcp(7)).
pub(crate) fn unacknowledged_bytes(fd: BorrowedFd<'_>) -> io::Result<u32> {
    queued(fd, libc::TIOCOUTQ)
}

/// What one of the two requests above answers.
fn queued(fd: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<u32> {
    let mut value: c_int = 0;
    // SAFETY: the request writes one int to the pointer, which is valid for it.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut value) })?;
    Ok(value.max(0) as u32)
}

/// epoll_wait(2) for what is ready, and, where `sleep` says so, until something is; rustix has only
/// `epoll_pwait2` for this, which came with Linux 5.11.
pub(crate) fn epoll_wait<'a>(
    epoll: BorrowedFd<'_>,
    room: &'a mut [libc::epoll_event],
    sleep: bool,
) -> Result<&'a [libc::epoll_event], Errno> {
    let most = c_int::try_from(room.len()).unwrap_or(c_int::MAX);
    let milliseconds = if sleep { -1 } else { 0 };
    // SAFETY: the pointer and the number describe `room`, which is borrowed for the call.
    let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), room.as_mut_ptr(), most, milliseconds) };
    match usize::try_from(count) {
        Ok(count) => Ok(&room[..count]),
        Err(_) => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Gives a terminal another line discipline (`TIOCSETD`, ioctl_tty(2)).
pub(crate) fn set_line_discipline(fd: BorrowedFd<'_>, number: c_int) -> io::Result<()> {
    // SAFETY: the request reads one int from the pointer, which is valid for it.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCSETD, &raw const number) }).map(drop)
}

/// Sets the protocol of a terminal with the line discipline of Bluetooth, which makes an adapter of
/// it (`HCIUARTSETPROTO`).
pub(crate) fn set_hci_uart_protocol(fd: BorrowedFd<'_>, protocol: c_int) -> io::Result<()> {
    // hci_uart.h: _IOW('U', 200, int), of which the kernel takes the value itself.
    const HCIUARTSETPROTO: libc::Ioctl = 0x4004_55C8;
    // SAFETY: the request takes an integer and touches no memory.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), HCIUARTSETPROTO, libc::c_ulong::from(protocol.unsigned_abs())) })
        .map(drop)
}

/// Number of the adapter that such a terminal is (`HCIUARTGETDEVICE`).
pub(crate) fn hci_uart_device(fd: BorrowedFd<'_>) -> io::Result<u16> {
    // hci_uart.h: _IOR('U', 202, int), which returns the number.
    const HCIUARTGETDEVICE: u32 = 0x8004_55CA;
    // SAFETY: the request touches no memory.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), HCIUARTGETDEVICE as libc::Ioctl, 0) }).map(|number| number as u16)
}

/// CPU time of a process, all threads, dead ones included: seconds and nanoseconds (clock_getcpuclockid(3)).
pub(crate) fn cpu_of_process(pid: i32) -> io::Result<(i64, i64)> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the pointer is to a live clockid_t.
    match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
        0 => {}
        errno => return Err(io::Error::from_raw_os_error(errno)),
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    Ok((time.tv_sec, time.tv_nsec))
}

/// Has the kernel send `SIGIO` to this process when a descriptor becomes readable or hangs up (fcntl(2), `O_ASYNC`).
pub(crate) fn signal_when_readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: these three commands of fcntl take and return integers and touch no memory.
    unsafe {
        check(libc::fcntl(fd.as_raw_fd(), libc::F_SETOWN, libc::getpid()))?;
        let flags = check(libc::fcntl(fd.as_raw_fd(), libc::F_GETFL))?;
        check(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_ASYNC))?;
    }
    Ok(())
}

/// Sets scheduling policy and priority of the calling thread.
pub(crate) fn set_scheduler(policy: c_int, priority: c_int) -> io::Result<()> {
    // `struct sched_param` of linux/sched/types.h is this int alone. musl's function only returns ENOSYS.
    // SAFETY: the pointer is to a live struct sched_param; pid 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes the descriptors that the service manager passed (sd_listen_fds(3)); `None` when they were taken before.
///
/// # Errors
/// What `LISTEN_FDS` says is no number, or one of them is not open.
pub(crate) fn take_passed() -> io::Result<Option<Vec<OwnedFd>>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(None);
    }
    // SAFETY: the manager opened them for this process and gave them over (`LISTEN_PID` is ours),
    // they were seen to be open, and they are taken once: above.
    Ok(Some(sd_notify::listen_fds()?.map(|number| unsafe { OwnedFd::from_raw_fd(number) }).collect()))
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
