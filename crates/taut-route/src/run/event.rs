//! What sources share: an event, what waiting gave, and the waiting.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use taut_link::clock;

/// How long a source waits before it looks whether it is to end.
pub(super) const LOOK_UP: Duration = Duration::from_millis(100);

/// An event, with its bytes in the buffer of the caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) bytes: usize,
    /// When it happened (`CLOCK_MONOTONIC`, ns), as far as the kernel tells; else when it was read.
    pub(super) at_ns: i64,
    /// The condition's time: that of the interrupt where the kernel tells it, else when it was read.
    pub(super) now_ns: i64,
    /// Who sent it.
    pub(super) from: Option<SocketAddr>,
    /// How many hosts it might still have passed, this one included, where the kernel tells.
    pub(super) hops: Option<u8>,
    /// Events lost before it.
    pub(super) lost: u64,
}

/// What waiting gave.
pub(super) enum Next {
    Event(Event),
    /// Something that is no event: a line that is no number.
    Unreadable,
    /// So many events were lost, as was found out afterwards.
    Lost(u64),
    /// Nothing yet.
    Nothing,
    /// There will be no more.
    End,
}

/// An event whose only field is a number in the host's byte order.
pub(super) fn number(buffer: &mut [u8], value: i64, at_ns: i64) -> Next {
    buffer[..8].copy_from_slice(&value.to_ne_bytes());
    Next::Event(Event { bytes: 8, at_ns, now_ns: at_ns, from: None, hops: None, lost: 0 })
}

pub(super) fn now_ns() -> i64 {
    clock::now().as_nanos().cast_signed()
}

pub(super) fn is_quiet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Which of them can be read, after waiting for a while.
pub(super) fn wait(fds: &[BorrowedFd<'_>]) -> io::Result<Vec<bool>> {
    wait_for(fds, PollFlags::IN)
}

/// The same for something else than data.
pub(super) fn wait_for(fds: &[BorrowedFd<'_>], flags: PollFlags) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, flags)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_UP.subsec_nanos().into() };
    match rustix::event::poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
}
