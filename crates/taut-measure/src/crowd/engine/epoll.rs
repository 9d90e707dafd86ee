use std::io;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use taut_link::Link;

use super::echo::{Next, Rest};

/// Links that one call tells of at most.
const EVENTS: usize = 512;

/// epoll(7), level-triggered.
pub(super) fn run(links: &[Link], ready: &mut dyn FnMut()) -> io::Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    for (index, link) in links.iter().enumerate() {
        link.set_nonblocking(true).map_err(io::Error::other)?;
        epoll::add(&epoll, link, EventData::new_u64(index as u64), EventFlags::IN)?;
    }
    let mut rests = vec![(Rest::default(), Next::Read); links.len()];
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
    ready();
    loop {
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &events {
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
            epoll::modify(&epoll, &links[index], EventData::new_u64(index as u64), flags)?;
        }
    }
}
