use std::io;

use rustix::event::epoll::EventFlags;
use taut_link::{Link, clock};
use taut_time::Instant;

use super::wait::Engine;

/// epoll(7), level-triggered.
pub(super) struct Epoll<'a> {
    epoll: taut_link::Epoll,
    links: Vec<&'a Link>,
    writer: Option<usize>,
}

impl<'a> Epoll<'a> {
    pub(super) fn new(links: &[&'a Link]) -> io::Result<Self> {
        let epoll = taut_link::Epoll::new(links.len().min(1024))?;
        for (index, link) in links.iter().enumerate() {
            epoll.add(link, index as u64, EventFlags::IN)?;
        }
        Ok(Self { epoll, links: links.to_vec(), writer: None })
    }
}

impl Engine for Epoll<'_> {
    fn wait(&mut self, until: Option<Instant>, writer: Option<usize>, ready: &mut Vec<usize>) -> io::Result<()> {
        if self.writer != writer {
            for (changed, flags) in [(self.writer, EventFlags::IN), (writer, EventFlags::IN | EventFlags::OUT)] {
                if let Some(index) = changed {
                    self.epoll.modify(self.links[index], index as u64, flags)?;
                }
            }
            self.writer = writer;
        }
        ready.clear();
        let timeout = until.map(|until| until.saturating_since(clock::now()));
        let readable = EventFlags::IN | EventFlags::ERR | EventFlags::HUP;
        let come = self.epoll.wait(timeout)?.iter().filter(|event| {
            let flags = event.flags;
            flags.intersects(readable)
        });
        ready.extend(come.map(|event| event.data.u64() as usize));
        Ok(())
    }
}
