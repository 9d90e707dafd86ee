use std::io;

use rustix::event::epoll::EventFlags;
use taut_link::{Epoll, Link};

use super::echo::{Next, Unsent};

/// Links that one call tells of at most.
const EVENTS: usize = 512;

/// epoll(7), level-triggered.
pub(super) fn run(links: &[Link], ready: &mut dyn FnMut()) -> io::Result<()> {
    let mut epoll = Epoll::new(EVENTS)?;
    for (index, link) in links.iter().enumerate() {
        link.set_nonblocking(true).map_err(io::Error::other)?;
        epoll.add(link, index as u64, EventFlags::IN)?;
    }
    let mut rests = vec![(Unsent::default(), Next::Read); links.len()];
    ready();
    loop {
        epoll.wait(None)?;
        for event in epoll.events() {
            let index = event.data.u64() as usize;
            let (rest, waiting_for) = &mut rests[index];
            let next = rest.turn(&links[index]);
            if next == *waiting_for {
                continue;
            }
            *waiting_for = next;
            let flags = match next {
                Next::Read => EventFlags::IN,
                Next::Write => EventFlags::OUT,
                Next::Over => return Ok(()),
            };
            epoll.modify(&links[index], index as u64, flags)?;
        }
    }
}
