use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use taut_link::Link;
use taut_time::Instant;

use super::wait::{Engine, time_left};

/// ppoll(2) over all links.
pub(super) struct Poll<'a> {
    links: Vec<&'a Link>,
    wanted: Vec<PollFd<'a>>,
    writer: Option<usize>,
}

impl<'a> Poll<'a> {
    pub(super) fn new(links: &[&'a Link]) -> Self {
        let wanted = links.iter().map(|&link| PollFd::from_borrowed_fd(link.as_fd(), PollFlags::IN)).collect();
        Self { links: links.to_vec(), wanted, writer: None }
    }
}

impl Engine for Poll<'_> {
    fn wait(&mut self, until: Option<Instant>, writer: Option<usize>, ready: &mut Vec<usize>) -> io::Result<()> {
        if self.writer != writer {
            for (changed, flags) in [(self.writer, PollFlags::IN), (writer, PollFlags::IN | PollFlags::OUT)] {
                if let Some(index) = changed {
                    self.wanted[index] = PollFd::from_borrowed_fd(self.links[index].as_fd(), flags);
                }
            }
            self.writer = writer;
        }
        ready.clear();
        let timeout = until.map(time_left);
        match rustix::event::poll(&mut self.wanted, timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => {
                let readable = PollFlags::IN | PollFlags::ERR | PollFlags::HUP;
                let is_readable =
                    |(index, fd): (usize, &PollFd<'_>)| fd.revents().intersects(readable).then_some(index);
                ready.extend(self.wanted.iter().enumerate().filter_map(is_readable));
                Ok(())
            }
            Err(errno) => Err(errno.into()),
        }
    }
}
