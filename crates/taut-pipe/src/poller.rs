//! epoll(7): who is ready, by what it belongs to.

use std::io;
use std::os::fd::AsFd;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use taut_link::Epoll;
use taut_time::Duration;

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
    epoll: Epoll,
}

/// Events taken in one call.
const ROOM: usize = 256;

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new(ROOM)? })
    }

    /// Tells once each time that something becomes ready. Whether the descriptor can be waited for
    /// at all: regular files can't, and are always ready.
    pub(crate) fn add(&self, fd: impl AsFd, token: Token) -> io::Result<bool> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        match self.epoll.add(fd, token.to_bits(), flags) {
            Ok(()) => Ok(true),
            Err(Errno::PERM) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells for as long as there is something to read.
    pub(crate) fn add_level(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        Ok(self.epoll.add(fd, token.to_bits(), EventFlags::IN)?)
    }

    pub(crate) fn remove(&self, fd: impl AsFd) {
        // Of one that is not there nothing has to be removed.
        let _ = self.epoll.delete(fd);
    }

    /// Waits for as long as said; `None`: until something happens.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>, out: &mut Vec<Readiness>) -> io::Result<()> {
        out.clear();
        out.extend(self.epoll.wait(timeout)?.iter().map(|event| Readiness::of(event.data.u64(), event.flags)));
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
    fn what_became_ready_is_told_once_and_a_time_is_no_less_than_asked_for() {
        use std::io::Write;
        use std::time::Instant;
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(b"x").unwrap();
        let mut poller = Poller::new().unwrap();
        let mut events = Vec::new();
        assert!(poller.add(&far, Token::Other(9)).unwrap());
        poller.wait(None, &mut events).unwrap();
        let told: Vec<_> =
            events.iter().map(|event| (event.token, event.readable, event.writable, event.hung_up)).collect();
        assert_eq!(told, [(Token::Other(9), true, true, false)]);
        let begin = Instant::now();
        poller.wait(Some(Duration::from_micros(1300)), &mut events).unwrap();
        assert!(events.is_empty() && begin.elapsed() >= Duration::from_micros(1300));
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
