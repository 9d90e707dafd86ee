//! The system calls that no crate wraps, each behind a safe function: the only place of this crate with `unsafe`.
#![expect(unsafe_code, reason = "these system calls have no safe wrapper in rustix or std")]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{Ioctl, c_int, c_void, socklen_t};

/// Bytes in a TCP or Unix socket's or terminal's send queue (`SIOCOUTQ`, `TIOCOUTQ`: the same
/// number); of TCP those without an acknowledgement, the FIN being one. Sockets of Bluetooth tell
/// the room in the queue instead (net/bluetooth/af_bluetooth.c).
pub(crate) fn unsent(fd: BorrowedFd<'_>) -> Option<u64> {
    number(fd, libc::TIOCOUTQ)
}

/// Bytes that can be read now (`FIONREAD`); of a pipe those that its reader has not taken yet.
pub(crate) fn unread(fd: BorrowedFd<'_>) -> Option<u64> {
    number(fd, libc::FIONREAD)
}

fn number(fd: BorrowedFd<'_>, request: Ioctl) -> Option<u64> {
    let mut value: c_int = 0;
    // SAFETY: both requests write one int to the pointer, which is valid for it.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut value) };
    if result < 0 { None } else { u64::try_from(value).ok() }
}

/// Memory on this side that has what was written to a socket, in bytes with all that the kernel puts around
/// them (`SO_MEMINFO`, sock_diag(7)); every kind of socket counts that, also where it counts no bytes.
pub(crate) fn memory_of_unsent(fd: BorrowedFd<'_>) -> Option<u64> {
    /// linux/sock_diag.h: SK_MEMINFO_WMEM_ALLOC.
    const WMEM_ALLOC: usize = 2;
    memory(fd).map(|values| values[WMEM_ALLOC].into())
}

/// Messages that came to a socket which had no room for them (or that were damaged), since it was
/// made. Unix sockets lose none.
pub(crate) fn dropped(fd: BorrowedFd<'_>) -> u64 {
    /// linux/sock_diag.h: SK_MEMINFO_DROPS.
    const DROPS: usize = 8;
    memory(fd).map_or(0, |values| u64::from(values[DROPS]))
}

/// What a socket holds (`SO_MEMINFO`, sock_diag(7)).
fn memory(fd: BorrowedFd<'_>) -> Option<[u32; 9]> {
    let mut values = [0_u32; 9];
    let mut length = size_of_val(&values) as socklen_t;
    // SAFETY: pointer and length describe `values`, which outlives the call; the kernel writes at most `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast::<c_void>(),
            &raw mut length,
        )
    };
    (result == 0).then_some(values)
}

/// Whether a TCP connection is no more, so that nothing that waits in it will be acknowledged.
/// `false` for other sockets.
pub(crate) fn is_tcp_closed(fd: BorrowedFd<'_>) -> bool {
    /// linux/tcp_states.h.
    const CLOSE: u8 = 7;
    // The state comes first in struct tcp_info; a shorter buffer is filled as far as it goes.
    let mut state = 0_u8;
    let mut length = 1 as socklen_t;
    // SAFETY: pointer and length describe `state`, which outlives the call; the kernel writes at most `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut state).cast::<c_void>(),
            &raw mut length,
        )
    };
    result == 0 && length == 1 && state == CLOSE
}

/// Has the program begin a session of its own with the terminal on its stdin in control of it.
pub(crate) fn lead_a_session(command: &mut Command) {
    let begin = || {
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        Ok(())
    };
    // SAFETY: between fork and exec only two system calls are made, both async-signal-safe.
    unsafe { command.pre_exec(begin) };
}
