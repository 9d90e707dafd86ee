//! POSIX AIO: a read under way on each link. Ours or the C library's, by the same code.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use taut_aio::{CompletionQueue, InPlace, Notify, Operation, OperationList, Provider, SignalWaiter};
use taut_link::Link;

use super::buffer::BUFFER_BYTES;

/// Each read that is complete is told of by a real-time signal with the number of its link, as in
/// the published experiment.
pub(super) fn by_signal(provider: Provider, links: Vec<Link>, ready: &mut dyn FnMut()) -> io::Result<()> {
    let signal = SignalWaiter::realtime(1)?;
    // Before the library starts a thread, so that none is there to be interrupted.
    let waiter = SignalWaiter::new(signal)?;
    one_by_one(reads(provider, links, &Notify::Signal(signal)), provider, ready, || waiter.wait(None))
}

/// Each read that is complete stands in a queue.
pub(super) fn by_queue(links: Vec<Link>, ready: &mut dyn FnMut()) -> io::Result<()> {
    let queue = CompletionQueue::new(links.len());
    let reads = reads(Provider::Taut, links, &Notify::Queue(queue.clone()));
    one_by_one(reads, Provider::Taut, ready, || queue.wait(None))
}

/// aio_suspend(3) over all reads, and a look at each of them.
pub(super) fn by_suspend(links: Vec<Link>, ready: &mut dyn FnMut()) -> io::Result<()> {
    let mut reads = OperationList::new(reads(Provider::Taut, links, &Notify::Silent))?;
    let mut replies = Replies::new(Provider::Taut);
    (0..reads.len()).try_for_each(|link| reads.get_mut(link).start_read(BUFFER_BYTES, 0))?;
    ready();
    loop {
        match reads.suspend(None) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        for link in 0..reads.len() {
            if !replies.answer(reads.get_mut(link))? {
                return leave((reads, replies));
            }
        }
    }
}

/// A read for each link, with the number of the link.
fn reads(provider: Provider, links: Vec<Link>, notify: &Notify) -> Vec<Operation> {
    let read = |(number, link): (usize, Link)| {
        Operation::new(provider, Arc::new(OwnedFd::from(link)), BUFFER_BYTES, number, notify.clone())
    };
    links.into_iter().enumerate().map(read).collect()
}

fn one_by_one(
    mut reads: Vec<Operation>,
    provider: Provider,
    ready: &mut dyn FnMut(),
    next: impl Fn() -> io::Result<Option<usize>>,
) -> io::Result<()> {
    let mut replies = Replies::new(provider);
    reads.iter_mut().try_for_each(|read| read.start_read(BUFFER_BYTES, 0))?;
    ready();
    loop {
        match next() {
            Ok(Some(link)) if !replies.answer((&mut reads[link]).into())? => return leave((reads, replies)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The writes under way, the oldest first: as many as there are replies at once, not as there are links.
struct Replies {
    provider: Provider,
    writes: VecDeque<Operation>,
}

impl Replies {
    const fn new(provider: Provider) -> Self {
        Self { provider, writes: VecDeque::new() }
    }

    /// Writes back what a read brought, if it is complete, and begins the next one. False when the link is closed.
    fn answer(&mut self, mut read: InPlace<'_>) -> io::Result<bool> {
        let length = match read.take_result() {
            None => return Ok(true),
            Some(Ok(length @ 1..)) => length,
            Some(_) => return Ok(false),
        };
        let mut write = match self.writes.pop_front_if(|oldest| !oldest.is_in_flight()) {
            Some(mut done) => {
                if let Some(Err(_)) = done.take_result() {
                    return Ok(false);
                }
                done.turn_to(Arc::clone(read.fd()))?;
                done
            }
            None => Operation::new(self.provider, Arc::clone(read.fd()), BUFFER_BYTES, 0, Notify::Silent),
        };
        if let (Some(from), Some(to)) = (read.buffer(), write.buffer_mut()) {
            to[..length].copy_from_slice(&from[..length]);
        }
        write.start_write(length, 0)?;
        self.writes.push_back(write);
        read.start_read(BUFFER_BYTES, 0)?;
        Ok(true)
    }
}

/// A link is closed, which ends the host. What is under way goes with the process: glibc can't take it back.
fn leave<T>(operations: T) -> io::Result<()> {
    mem::forget(operations);
    Ok(())
}
