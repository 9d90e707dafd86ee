//! POSIX AIO: a read under way on each link. Ours or the C library's, by the same code.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use taut_aio::{CompletionQueue, Notify, Operation, OperationList, Provider, SignalWaiter};
use taut_link::Link;

use super::BUFFER_BYTES;

/// Each read that is complete is told of by a real-time signal with the number of its link, as in the published experiment.
pub(super) fn by_signal(provider: Provider, links: Vec<Link>, ready: &mut dyn FnMut()) -> io::Result<()> {
    let signal = SignalWaiter::realtime(1)?;
    // Before the library starts a thread, so that none is there to be interrupted.
    let waiter = SignalWaiter::new(signal)?;
    let (reads, writes) = operations(provider, links, &Notify::Signal(signal));
    one_by_one(reads, writes, ready, || waiter.wait(None))
}

/// Each read that is complete stands in a queue.
pub(super) fn by_queue(links: Vec<Link>, ready: &mut dyn FnMut()) -> io::Result<()> {
    let queue = CompletionQueue::new(links.len());
    let (reads, writes) = operations(Provider::Taut, links, &Notify::Queue(queue.clone()));
    one_by_one(reads, writes, ready, || queue.wait(None))
}

/// aio_suspend(3) over all reads, and a look at each of them.
pub(super) fn by_suspend(links: Vec<Link>, ready: &mut dyn FnMut()) -> io::Result<()> {
    let (reads, mut writes) = operations(Provider::Taut, links, &Notify::Silent);
    let mut reads = OperationList::new(reads)?;
    (0..reads.len()).try_for_each(|link| reads[link].start_read(BUFFER_BYTES, 0))?;
    ready();
    loop {
        match reads.suspend(None) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        for link in 0..reads.len() {
            if !answer(&mut reads[link], &mut writes[link])? {
                return leave((reads, writes));
            }
        }
    }
}

/// A read and a write for each link, with the number of the link.
fn operations(provider: Provider, links: Vec<Link>, notify: &Notify) -> (Vec<Operation>, Vec<Operation>) {
    let pair = |(number, link): (usize, Link)| {
        let fd = Arc::new(OwnedFd::from(link));
        let read = Operation::new(provider, Arc::clone(&fd), BUFFER_BYTES, number, notify.clone());
        (read, Operation::new(provider, fd, BUFFER_BYTES, number, Notify::Silent))
    };
    links.into_iter().enumerate().map(pair).unzip()
}

fn one_by_one(
    mut reads: Vec<Operation>,
    mut writes: Vec<Operation>,
    ready: &mut dyn FnMut(),
    next: impl Fn() -> io::Result<Option<usize>>,
) -> io::Result<()> {
    reads.iter_mut().try_for_each(|read| read.start_read(BUFFER_BYTES, 0))?;
    ready();
    loop {
        match next() {
            Ok(Some(link)) if !answer(&mut reads[link], &mut writes[link])? => return leave((reads, writes)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes back what a read brought, if it is complete, and begins the next one. False when the link is closed.
fn answer(read: &mut Operation, write: &mut Operation) -> io::Result<bool> {
    let length = match read.take_result() {
        None => return Ok(true),
        Some(Ok(length @ 1..)) => length,
        Some(_) => return Ok(false),
    };
    // The message is there since the peer has the reply before it, whose result may be a moment behind.
    while write.is_in_flight() {
        thread::yield_now();
    }
    if let Some(Err(_)) = write.take_result() {
        return Ok(false);
    }
    if let (Some(from), Some(to)) = (read.buffer(), write.buffer_mut()) {
        to[..length].copy_from_slice(&from[..length]);
    }
    write.start_write(length, 0)?;
    read.start_read(BUFFER_BYTES, 0)?;
    Ok(true)
}

/// A link is closed, which ends the host. What is under way goes with the process: glibc can't take it back.
fn leave<T>(operations: T) -> io::Result<()> {
    mem::forget(operations);
    Ok(())
}
