//! epoll(7): who is ready, by what it belongs to.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use taut_time::Duration;

use crate::sys;

/// What became ready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Token {
    /// The listener of a plan's end.
    Listener { plan: usize, end: usize },
    /// A descriptor of a pipe's end.
    End { slot: usize, generation: u32, end: usize },
    /// Somebody else's descriptor: an end was opened, or we are to stop.
    Other(u8),
}

impl Token {
    const fn to_bits(self) -> u64 {
        match self {
            Self::Listener { plan, end } => 1 | (end as u64) << 2 | (plan as u64) << 3,
            Self::End { slot, generation, end } => {
                2 | (end as u64) << 2 | (slot as u64 & 0x1fff_ffff) << 3 | (generation as u64) << 32
            }
            Self::Other(which) => 3 | (which as u64) << 3,
        }
    }

    const fn of_bits(bits: u64) -> Self {
        let end = (bits >> 2 & 1) as usize;
        match bits & 3 {
            1 => Self::Listener { plan: (bits >> 3) as usize, end },
            2 => Self::End { slot: (bits >> 3 & 0x1fff_ffff) as usize, generation: (bits >> 32) as u32, end },
            _ => Self::Other((bits >> 3) as u8),
        }
    }
}

/// What is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) token: Token,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) hung_up: bool,
}

pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<Event>,
    /// The kernel has no epoll_pwait2(2), with its nanoseconds: Linux before 5.11.
    is_old: bool,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(256), is_old: false })
    }

    /// Tells once each time that something becomes ready. Whether the descriptor can be waited for at all: regular files can't,
    /// and are always ready.
    pub(crate) fn add(&self, fd: impl AsFd, token: Token) -> io::Result<bool> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        match epoll::add(&self.epoll, fd, EventData::new_u64(token.to_bits()), flags) {
            Ok(()) => Ok(true),
            Err(Errno::PERM) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells for as long as there is something to read.
    pub(crate) fn add_level(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token.to_bits()), EventFlags::IN)?)
    }

    pub(crate) fn remove(&self, fd: impl AsFd) {
        // Of one that is not there nothing has to be removed.
        let _ = epoll::delete(&self.epoll, fd);
    }

    fn wait_for_events(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if !self.is_old {
            let timeout = timeout.map(rustix::event::Timespec::try_from).transpose().unwrap_or(None);
            self.events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
                Err(Errno::NOSYS) => self.is_old = true,
                result => return Ok(result.map(drop)?),
            }
        }
        sys::epoll_wait(self.epoll.as_fd(), &mut self.events, milliseconds(timeout))
    }

    /// Waits for as long as said; `None`: until something happens.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>, out: &mut Vec<Readiness>) -> io::Result<()> {
        match self.wait_for_events(timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        out.clear();
        out.extend(self.events.iter().map(|event| {
            let flags = event.flags;
            let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            Readiness {
                token: Token::of_bits(event.data.u64()),
                readable: hung_up || flags.contains(EventFlags::IN),
                writable: flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP),
                hung_up,
            }
        }));
        Ok(())
    }
}

/// Never less than said; -1 is without end.
fn milliseconds(time: Option<Duration>) -> i32 {
    time.map_or(-1, |time| i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn both_ways_to_wait_tell_the_same() {
        use std::io::Write;
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(b"x").unwrap();
        let ready = [false, true].map(|is_old| {
            let mut poller = Poller { is_old, ..Poller::new().unwrap() };
            let mut events = Vec::new();
            poller.wait(Some(Duration::from_micros(1)), &mut events).unwrap();
            assert!(events.is_empty(), "nothing is waited for");
            poller.add(&far, Token::Other(9)).unwrap();
            poller.wait(None, &mut events).unwrap();
            events.iter().map(|event| (event.token, event.readable, event.writable, event.hung_up)).collect::<Vec<_>>()
        });
        assert_eq!(ready[0], ready[1]);
        assert_eq!(ready[0], [(Token::Other(9), true, true, false)]);
    }

    #[test]
    fn a_wait_is_never_shorter_than_said() {
        assert_eq!(milliseconds(None), -1);
        assert_eq!(milliseconds(Some(Duration::ZERO)), 0);
        assert_eq!(milliseconds(Some(Duration::from_nanos(1))), 1);
        assert_eq!(milliseconds(Some(Duration::from_millis(2))), 2);
        assert_eq!(milliseconds(Some(Duration::from_secs(1 << 40))), i32::MAX);
    }

    #[test]
    fn tokens_survive_the_kernel() {
        for token in [
            Token::Listener { plan: 7, end: 1 },
            Token::End { slot: 20_000, generation: u32::MAX, end: 0 },
            Token::End { slot: 0, generation: 0, end: 1 },
            Token::Other(2),
        ] {
            assert_eq!(Token::of_bits(token.to_bits()), token);
        }
    }
}
