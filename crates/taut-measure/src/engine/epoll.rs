#![expect(unsafe_code, reason = "epoll_wait(2) without epoll_pwait2(2) has no safe wrapper in rustix")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use taut_link::Link;
use taut_time::Instant;

use super::{Engine, time_left};

/// epoll(7), level-triggered, with `epoll_pwait2` for times below a millisecond; before Linux 5.11, which brought that, ppoll(2) waits
/// for the epoll descriptor itself, which keeps those times and costs another call.
pub(super) struct Epoll<'a> {
    fd: OwnedFd,
    links: Vec<&'a Link>,
    events: Vec<Event>,
    writer: Option<usize>,
    /// Room for events where `epoll_pwait2` is missing.
    old: Option<Vec<libc::epoll_event>>,
}

impl<'a> Epoll<'a> {
    pub(super) fn new(links: &[&'a Link]) -> io::Result<Self> {
        let fd = epoll::create(CreateFlags::CLOEXEC)?;
        for (index, link) in links.iter().enumerate() {
            epoll::add(&fd, link, EventData::new_u64(index as u64), EventFlags::IN)?;
        }
        let events = Vec::with_capacity(links.len().clamp(1, 1024));
        Ok(Self { fd, links: links.to_vec(), events, writer: None, old: None })
    }
}

impl Engine for Epoll<'_> {
    fn wait(&mut self, until: Option<Instant>, writer: Option<usize>, ready: &mut Vec<usize>) -> io::Result<()> {
        if self.writer != writer {
            for (changed, flags) in [(self.writer, EventFlags::IN), (writer, EventFlags::IN | EventFlags::OUT)] {
                if let Some(index) = changed {
                    epoll::modify(&self.fd, self.links[index], EventData::new_u64(index as u64), flags)?;
                }
            }
            self.writer = writer;
        }
        ready.clear();
        self.events.clear();
        if self.old.is_none() {
            let timeout = until.map(time_left);
            match epoll::wait(&self.fd, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
                Ok(_) => {
                    let readable = EventFlags::IN | EventFlags::ERR | EventFlags::HUP;
                    let is_readable = |event: &Event| {
                        let flags = event.flags;
                        flags.intersects(readable).then(|| event.data.u64() as usize)
                    };
                    ready.extend(self.events.iter().filter_map(is_readable));
                    return Ok(());
                }
                Err(Errno::INTR) => return Ok(()),
                Err(Errno::NOSYS) => {
                    let none = libc::epoll_event { events: 0, u64: 0 };
                    self.old = Some(vec![none; self.events.capacity()]);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        self.wait_as_before(until, ready)
    }
}

impl Epoll<'_> {
    fn wait_as_before(&mut self, until: Option<Instant>, ready: &mut Vec<usize>) -> io::Result<()> {
        let timeout = until.map(time_left);
        match rustix::event::poll(&mut [PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::IN)], timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let Some(room) = &mut self.old else { return Ok(()) };
        let most = libc::c_int::try_from(room.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the pointer and the number describe `room`, which is borrowed for the call.
        let count = unsafe { libc::epoll_wait(self.fd.as_raw_fd(), room.as_mut_ptr(), most, 0) };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        };
        let readable = (libc::EPOLLIN | libc::EPOLLERR | libc::EPOLLHUP) as u32;
        let come = room[..count].iter().filter(|event| event.events & readable != 0);
        ready.extend(come.map(|event| event.u64 as usize));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use taut_link::{Listener, clock};
    use taut_time::Duration;

    use super::*;

    #[test]
    fn without_epoll_pwait2_links_are_waited_for_as_well_and_times_are_kept() {
        let listener = Listener::bind(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
        let links: Vec<Link> =
            (0..3).map(|_| Link::connect(listener.endpoint(), Duration::from_secs(1)).unwrap()).collect();
        let peers: Vec<Link> = (0..3).map(|_| listener.accept().unwrap()).collect();
        let mut engine = Epoll::new(&links.iter().collect::<Vec<_>>()).unwrap();
        engine.old = Some(vec![libc::epoll_event { events: 0, u64: 0 }; 3]);
        let mut ready = Vec::new();
        peers[1].send_all(b"x").unwrap();
        engine.wait(None, None, &mut ready).unwrap();
        assert_eq!(ready, [1]);
        links[1].receive(&mut [0; 8]).unwrap();
        // Not a whole millisecond, which is what epoll_wait(2) would make of it: neither early nor at once.
        let until = clock::now() + Duration::from_micros(1300);
        engine.wait(Some(until), None, &mut ready).unwrap();
        assert!(clock::now() >= until && ready.is_empty());
        // A writer wakes it up, and is no reader.
        engine.wait(Some(clock::now() + Duration::from_secs(5)), Some(2), &mut ready).unwrap();
        assert!(ready.is_empty() && clock::now() < until + Duration::from_secs(5));
    }
}
