use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use taut_link::Link;
use taut_time::Instant;

use super::{Engine, time_left};

/// epoll(7), level-triggered, with `epoll_pwait2` for times below a millisecond.
pub(super) struct Epoll<'a> {
    fd: OwnedFd,
    links: Vec<&'a Link>,
    events: Vec<Event>,
    writer: Option<usize>,
}

impl<'a> Epoll<'a> {
    pub(super) fn new(links: &[&'a Link]) -> io::Result<Self> {
        let fd = epoll::create(CreateFlags::CLOEXEC)?;
        for (index, link) in links.iter().enumerate() {
            epoll::add(&fd, link, EventData::new_u64(index as u64), EventFlags::IN)?;
        }
        let events = Vec::with_capacity(links.len().clamp(1, 1024));
        Ok(Self { fd, links: links.to_vec(), events, writer: None })
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
        let timeout = until.map(time_left);
        match epoll::wait(&self.fd, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) => {
                let readable = EventFlags::IN | EventFlags::ERR | EventFlags::HUP;
                let is_readable = |event: &Event| {
                    let flags = event.flags;
                    flags.intersects(readable).then(|| event.data.u64() as usize)
                };
                ready.extend(self.events.iter().filter_map(is_readable));
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(Errno::NOSYS) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the engine epoll needs Linux 5.11 (epoll_pwait2); here, use --engine poll",
            )),
            Err(errno) => Err(errno.into()),
        }
    }
}
