use std::io;

use taut_link::{Link, SocketRing};

use super::buffer::BUFFER_BYTES;

/// io_uring: a receive under way on each link; a reply and the next receive go out with one call, which also waits.
pub(super) fn run(links: Vec<Link>, ready: &mut dyn FnMut()) -> io::Result<()> {
    let mut ring = SocketRing::new(links, BUFFER_BYTES)?;
    (0..ring.len()).try_for_each(|slot| ring.receive(slot))?;
    let mut done = Vec::with_capacity(ring.len());
    ready();
    loop {
        ring.wait(&mut done)?;
        for completion in &done {
            match completion.result {
                Ok(length) if length > 0 => ring.reply(completion.slot, length)?,
                _ => return Ok(()),
            }
        }
    }
}
