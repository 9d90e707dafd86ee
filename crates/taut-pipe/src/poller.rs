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
    /// Room for events where `epoll_pwait2` is missing, that is before Linux 5.11.
    old: Option<Vec<libc::epoll_event>>,
}

/// Events taken in one call.
const ROOM: usize = 256;

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(ROOM), old: None })
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

    /// Waits for as long as said, before Linux 5.11 up to a millisecond longer; `None`: until something happens.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>, out: &mut Vec<Readiness>) -> io::Result<()> {
        out.clear();
        if self.old.is_none() {
            let timeout = timeout.map(rustix::event::Timespec::try_from).transpose().unwrap_or(None);
            self.events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
                Ok(_) => {
                    out.extend(self.events.iter().map(|event| Readiness::of(event.data.u64(), event.flags)));
                    return Ok(());
                }
                Err(Errno::INTR) => return Ok(()),
                Err(Errno::NOSYS) => self.old = Some(vec![libc::epoll_event { events: 0, u64: 0 }; ROOM]),
                Err(error) => return Err(error.into()),
            }
        }
        let Some(room) = &mut self.old else { return Ok(()) };
        let come = sys::epoll_wait(self.epoll.as_fd(), room, timeout)?;
        out.extend(come.iter().map(|event| Readiness::of(event.u64, EventFlags::from_bits_retain(event.events))));
        Ok(())
    }
}

impl Readiness {
    const fn of(bits: u64, flags: EventFlags) -> Self {
        let hung_up = flags.intersects(EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR));
        Self {
            token: Token::of_bits(bits),
            readable: hung_up || flags.contains(EventFlags::IN),
            writable: flags.intersects(EventFlags::OUT.union(EventFlags::ERR).union(EventFlags::HUP)),
            hung_up,
        }
    }
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
        let ready = [None, Some(vec![libc::epoll_event { events: 0, u64: 0 }; ROOM])].map(|old| {
            let mut poller = Poller { old, ..Poller::new().unwrap() };
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
    #[test]
    fn without_epoll_pwait2_the_same_is_told_and_times_are_kept() {
        use std::io::Write;
        use std::time::Instant;
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(&far, Token::Other(3)).unwrap();
        let mut new = Vec::new();
        near.write_all(b"x").unwrap();
        poller.wait(None, &mut new).unwrap();
        poller.remove(&far);
        poller.old = Some(vec![libc::epoll_event { events: 0, u64: 0 }; 1]);
        poller.add(&far, Token::Other(3)).unwrap();
        let mut old = Vec::new();
        poller.wait(None, &mut old).unwrap();
        assert_eq!(format!("{new:?}"), format!("{old:?}"));
        assert!(old[0].readable && old[0].writable && !old[0].hung_up);
        // Told once; then time passes, and no less than was asked for.
        let begin = Instant::now();
        poller.wait(Some(Duration::from_micros(1300)), &mut old).unwrap();
        assert!(old.is_empty() && begin.elapsed() >= Duration::from_micros(1300));
    }
}
