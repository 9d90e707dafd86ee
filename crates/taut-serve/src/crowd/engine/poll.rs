use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use taut_link::Link;

use super::echo::{Next, Unsent};

/// poll(2): the array stays as it is, but the kernel looks at all of it at each call, and the
/// program until it has found as many as are ready.
pub(super) fn run(links: &[Link], ready: &mut dyn FnMut()) -> io::Result<()> {
    links.iter().try_for_each(|link| link.set_nonblocking(true)).map_err(io::Error::other)?;
    let watch = |link: usize, flags| PollFd::from_borrowed_fd(links[link].as_fd(), flags);
    let mut fds: Vec<PollFd<'_>> = (0..links.len()).map(|link| watch(link, PollFlags::IN)).collect();
    let mut rests = vec![(Unsent::default(), Next::Read); links.len()];
    ready();
    loop {
        let count = match poll(&mut fds, None) {
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let mut found = 0;
        for link in 0..links.len() {
            if found == count {
                break;
            }
            if fds[link].revents().is_empty() {
                continue;
            }
            found += 1;
            let (rest, waiting_for) = &mut rests[link];
            let next = rest.turn(&links[link]);
            if next != *waiting_for {
                *waiting_for = next;
                fds[link] = match next {
                    Next::Read => watch(link, PollFlags::IN),
                    Next::Write => watch(link, PollFlags::OUT),
                    Next::Over => return Ok(()),
                };
            }
        }
    }
}
