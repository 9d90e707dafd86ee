use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use taut_link::Link;

use super::echo::{Next, Rest};

/// poll(2): the array stays as it is, but the kernel looks at all of it at each call, and the program until it has found
/// as many as are ready.
pub(super) fn run(links: &[Link], ready: &mut dyn FnMut()) -> io::Result<()> {
    links.iter().try_for_each(|link| link.set_nonblocking(true)).map_err(io::Error::other)?;
    let watch = |link: usize, flags| PollFd::from_borrowed_fd(links[link].as_fd(), flags);
    let mut fds: Vec<PollFd<'_>> = (0..links.len()).map(|link| watch(link, PollFlags::IN)).collect();
    // Which link an element is of: closed ones leave the array.
    let mut owners: Vec<usize> = (0..links.len()).collect();
    let mut rests = vec![Rest::default(); links.len()];
    ready();
    while !fds.is_empty() {
        let mut left = match poll(&mut fds, None) {
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let mut place = 0;
        while left > 0 && place < fds.len() {
            if fds[place].revents().is_empty() {
                place += 1;
                continue;
            }
            left -= 1;
            let link = owners[place];
            match rests[link].turn(&links[link]) {
                // What takes the place was the last element, and is still to be looked at.
                Next::Over => {
                    fds.swap_remove(place);
                    owners.swap_remove(place);
                    continue;
                }
                Next::Read => fds[place] = watch(link, PollFlags::IN),
                Next::Write => fds[place] = watch(link, PollFlags::OUT),
            }
            place += 1;
        }
    }
    Ok(())
}
