//! epoll(7) with times in nanoseconds, on kernels with and without `epoll_pwait2`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use taut_time::Duration;

use crate::sys;

/// An epoll(7) instance, with room for the events of one wait.
///
/// Times are in nanoseconds everywhere. Linux 5.11 has `epoll_pwait2` for that; before it, ppoll(2)
/// waits for the epoll descriptor itself, which costs another call, and only where a time is given.
pub struct Epoll {
    fd: OwnedFd,
    /// Those of the last wait.
    events: Vec<Event>,
    way: TimedWait,
}

/// How one waits for a time.
enum TimedWait {
    Pwait2,
    /// ppoll(2), then epoll_wait(2), which has a structure of its own for the same.
    Poll(Vec<libc::epoll_event>),
}

impl Epoll {
    /// One whose waits tell of `room` descriptors at most (1 at least).
    ///
    /// # Errors
    /// As epoll_create1(2).
    pub fn new(room: usize) -> io::Result<Self> {
        static HAS_PWAIT2: OnceLock<bool> = OnceLock::new();
        let fd = epoll::create(CreateFlags::CLOEXEC)?;
        let has_pwait2 = *HAS_PWAIT2.get_or_init(|| has_pwait2(&fd));
        Ok(Self::of(fd, room.max(1), has_pwait2))
    }

    fn of(fd: OwnedFd, room: usize, has_pwait2: bool) -> Self {
        let way = if has_pwait2 {
            TimedWait::Pwait2
        } else {
            TimedWait::Poll(vec![libc::epoll_event { events: 0, u64: 0 }; room])
        };
        Self { fd, events: Vec::with_capacity(room), way }
    }

    /// Waits for a descriptor too; its events bring `data`.
    ///
    /// # Errors
    /// As epoll_ctl(2): [`Errno::PERM`] for what is always ready, as files are.
    pub fn add(&self, fd: impl AsFd, data: u64, flags: EventFlags) -> Result<(), Errno> {
        epoll::add(&self.fd, fd, EventData::new_u64(data), flags)
    }

    /// Waits for other things on a descriptor that was added.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    pub fn modify(&self, fd: impl AsFd, data: u64, flags: EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.fd, fd, EventData::new_u64(data), flags)
    }

    /// Waits for a descriptor no more.
    ///
    /// # Errors
    /// As epoll_ctl(2): [`Errno::NOENT`] when it was not waited for.
    pub fn delete(&self, fd: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.fd, fd)
    }

    /// Waits until something happens, or for no less than said. Without events it returns sooner
    /// when a signal comes, or when what happened is over before it could be told.
    ///
    /// # Errors
    /// As epoll_wait(2) and ppoll(2). A signal is none.
    #[inline]
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<&[Event]> {
        self.events.clear();
        let waited = match &mut self.way {
            TimedWait::Pwait2 => pwait2(&self.fd, &mut self.events, timeout),
            TimedWait::Poll(room) => poll_and_wait(&self.fd, &mut self.events, room, timeout),
        };
        match waited {
            Ok(()) | Err(Errno::INTR) => Ok(&self.events),
            Err(errno) => Err(errno.into()),
        }
    }

    /// What the last wait brought.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

fn pwait2(fd: &OwnedFd, events: &mut Vec<Event>, timeout: Option<Duration>) -> Result<(), Errno> {
    let timeout = timeout.and_then(time);
    #[expect(clippy::disallowed_methods, reason = "where the kernel has no epoll_pwait2, the other way was taken")]
    epoll::wait(fd, spare_capacity(events), timeout.as_ref()).map(drop)
}

/// Waits by `epoll_wait` alone where its milliseconds say the same.
fn poll_and_wait(
    fd: &OwnedFd,
    events: &mut Vec<Event>,
    room: &mut [libc::epoll_event],
    timeout: Option<Duration>,
) -> Result<(), Errno> {
    let timeout = timeout.and_then(time);
    if let Some(timeout) = timeout.filter(|time| (time.tv_sec, time.tv_nsec) != (0, 0)) {
        let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
        if poll(&mut fds, Some(&timeout))? == 0 {
            return Ok(());
        }
    }
    let come = sys::epoll_wait(fd.as_fd(), room, timeout.is_none())?;
    events.extend(
        come.iter().map(|event| Event {
            flags: EventFlags::from_bits_retain(event.events),
            data: EventData::new_u64(event.u64),
        }),
    );
    Ok(())
}

/// As the kernel takes it; `None`, without an end, where it has more seconds than fit there.
fn time(timeout: Duration) -> Option<Timespec> {
    Timespec::try_from(timeout).ok()
}

/// Asks the kernel, or what filters its calls: filters that don't know a call answer `EPERM`, which
/// the call itself never does.
fn has_pwait2(fd: &OwnedFd) -> bool {
    let mut events = Vec::with_capacity(1);
    !matches!(pwait2(fd, &mut events, Some(Duration::ZERO)), Err(Errno::NOSYS | Errno::PERM))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::Instant;

    use super::*;

    /// The ways that this kernel has, with room for `room` events; the older one is on all of them.
    fn both(room: usize) -> Vec<Epoll> {
        let fd = || epoll::create(CreateFlags::CLOEXEC).unwrap();
        let ways = [has_pwait2(&fd()), false];
        ways.into_iter().map(|has_pwait2| Epoll::of(fd(), room, has_pwait2)).collect()
    }

    fn told(events: &[Event]) -> Vec<(u64, EventFlags)> {
        events.iter().map(|event| (event.data.u64(), event.flags)).collect()
    }

    #[test]
    fn the_way_is_that_of_the_kernel() {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
        let version = (numbers.next().unwrap(), numbers.next().unwrap());
        let epoll = Epoll::new(1).unwrap();
        // A filter may take it away; nothing gives it to an older kernel.
        assert!(version >= (5, 11) || matches!(epoll.way, TimedWait::Poll(_)), "{release}");
        assert_eq!(matches!(epoll.way, TimedWait::Pwait2), has_pwait2(&epoll.fd));
    }

    #[test]
    fn both_ways_tell_the_same() {
        let results = both(8).into_iter().map(|mut epoll| {
            let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
            for (index, (near, _)) in pairs.iter().enumerate() {
                epoll.add(near, u64::MAX - index as u64, EventFlags::IN | EventFlags::RDHUP).unwrap();
            }
            assert!(epoll.wait(Some(Duration::ZERO)).unwrap().is_empty(), "nothing is waited for");
            (&pairs[1].1).write_all(b"x").unwrap();
            let readable = told(epoll.wait(None).unwrap());
            assert_eq!(told(epoll.events()), readable);
            // A writer too, and no reader any more.
            epoll.modify(&pairs[1].0, 7, EventFlags::OUT).unwrap();
            let writable = told(epoll.wait(Some(Duration::from_secs(5))).unwrap());
            epoll.delete(&pairs[1].0).unwrap();
            assert_eq!(epoll.delete(&pairs[1].0), Err(Errno::NOENT));
            let none = told(epoll.wait(Some(Duration::ZERO)).unwrap());
            [readable, writable, none]
        });
        let results: Vec<_> = results.collect();
        assert_eq!(results[0], results[1]);
        assert_eq!(results[0], [vec![(u64::MAX - 1, EventFlags::IN)], vec![(7, EventFlags::OUT)], vec![]]);
    }

    #[test]
    fn times_are_kept_to_the_nanosecond_and_none_is_cut_short() {
        let (near, _far) = UnixStream::pair().unwrap();
        for mut epoll in both(1) {
            epoll.add(&near, 0, EventFlags::IN).unwrap();
            // None is a whole millisecond, which is what epoll_wait(2) would make of them: neither early nor at once.
            for nanos in [1, 400_000, 1_300_001] {
                let (time, begin) = (Duration::from_nanos(nanos), Instant::now());
                while begin.elapsed() < time {
                    let left = time.saturating_sub(begin.elapsed());
                    let waits = Instant::now();
                    assert!(epoll.wait(Some(left)).unwrap().is_empty());
                    assert!(waits.elapsed() >= left, "{nanos} ns: {:?} of {left:?}", waits.elapsed());
                }
            }
        }
    }

    #[test]
    fn a_time_below_a_millisecond_does_not_take_one() {
        let (near, _far) = UnixStream::pair().unwrap();
        for mut epoll in both(1) {
            epoll.add(&near, 0, EventFlags::IN).unwrap();
            // On a busy machine many are late, but not every single one.
            let mut waits = (0..200).map(|_| {
                let begin = Instant::now();
                epoll.wait(Some(Duration::from_micros(20))).unwrap();
                begin.elapsed()
            });
            assert!(
                waits.any(|wait| wait < Duration::from_micros(900)),
                "with epoll_pwait2: {}",
                matches!(epoll.way, TimedWait::Pwait2)
            );
        }
    }

    #[test]
    fn what_happens_later_ends_a_wait_and_more_than_there_is_room_for_comes_the_next_time() {
        for mut epoll in both(1) {
            let pairs: Vec<_> = (0..2).map(|_| UnixStream::pair().unwrap()).collect();
            for (index, (near, _)) in pairs.iter().enumerate() {
                epoll.add(near, index as u64, EventFlags::IN | EventFlags::ET).unwrap();
            }
            for timeout in [None, Some(Duration::from_secs(60)), Some(Duration::MAX)] {
                thread::scope(|scope| {
                    scope.spawn(|| {
                        thread::sleep(Duration::from_millis(5));
                        pairs.iter().for_each(|(_, far)| (&*far).write_all(b"x").unwrap());
                    });
                    let mut seen = Vec::new();
                    while seen.len() < 2 {
                        let events = epoll.wait(timeout).unwrap();
                        assert!(events.len() <= 1);
                        seen.extend(events.iter().map(|event| event.data.u64()));
                    }
                    seen.sort_unstable();
                    assert_eq!(seen, [0, 1]);
                });
                // Edges are told once.
                assert!(epoll.wait(Some(Duration::from_nanos(1))).unwrap().is_empty());
            }
        }
    }
}
