//! What carries operations out: io_uring, or epoll with a few threads where io_uring is refused.
//!
//! Both do single steps. The order of the operations and their continuation after a partial one are the worker's.

mod epoll;
mod pool;
mod uring;

use std::ffi::c_int;
use std::time::Duration;

pub(crate) use epoll::Epoll;
pub(crate) use pool::carry_out;
pub(crate) use uring::Uring;

use crate::system::file;
use crate::worker::order::{Class, Kind};

/// Where a step finds its file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// Under this number.
    Descriptor(c_int),
    /// Among the files that the backend registered.
    Registered(u32),
}

/// One step of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Names the operation; below 2^60.
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) class: Class,
    pub(crate) place: Place,
    /// Identity of its file, for those who go by a number later on.
    pub(crate) identity: u64,
    /// Address of the application's memory.
    pub(crate) buffer: usize,
    /// Bytes; at most `MAX_RW_COUNT`.
    pub(crate) length: u32,
    pub(crate) offset: i64,
    /// The last read found nothing more behind what it gave: there is likely nothing yet.
    pub(crate) likely_empty: bool,
    /// Its file system may make whoever tries it wait.
    pub(crate) may_block: bool,
}

/// What came of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// A count or a negative errno.
    Done {
        id: u64,
        result: isize,
        /// A read that left nothing behind.
        emptied: bool,
    },
    /// It waited for readiness, and may be tried again.
    Ready { id: u64 },
    /// It runs, and can't be stopped. It will end by itself.
    NotCancelable { id: u64 },
    /// It was not found when it was to be stopped: it has ended, or is about to be tried once more.
    NotFound { id: u64 },
    /// Those milliseconds are over.
    Tick,
}

/// Carries operations out.
pub(crate) trait Backend {
    /// Begins a step.
    fn issue(&mut self, job: Job);

    /// Waits until a step that gave `EAGAIN` may be tried again.
    fn await_readiness(&mut self, job: Job);

    /// Stops a step: `Done` comes with `ECANCELED` or whatever it came to, or `NotCancelable` first.
    fn cancel(&mut self, id: u64);

    /// Begins what was issued; gives whether that was all of it.
    fn submit(&mut self) -> bool;

    /// Begins what was issued and collects what is done. With `sleep` it waits until there is something, somebody wakes
    /// it, or this much time is over.
    fn turn(&mut self, sleep: bool, at_most: Option<Duration>, outcomes: &mut Vec<Outcome>);

    /// Whether a step that was begun holds its file by itself.
    fn holds_files(&self) -> bool;

    /// Holds the file that a number means, without a descriptor; `None` where that can't be.
    fn register(&mut self, fd: c_int) -> Option<u32>;

    /// Gives it back.
    fn unregister(&mut self, slot: u32);

    /// Whether files may be registered that could do without.
    fn has_places_to_spare(&self) -> bool;

    /// Asks for a [tick](Outcome::Tick), a few milliseconds from now.
    fn ask_for_tick(&mut self);
}

impl Job {
    /// The number that the step goes by, or none where it means another file by now, which somebody
    /// closed behind our back.
    fn descriptor(&self) -> Option<c_int> {
        match self.place {
            Place::Descriptor(fd) if file::means(fd, self.identity) => Some(fd),
            Place::Descriptor(_) | Place::Registered(_) => None,
        }
    }

    /// What a step by number came to: an error or an end that it met is another file's, when
    /// somebody closed the number behind our back after it was looked at.
    fn outcome(&self, result: isize) -> isize {
        if result <= 0 && self.descriptor().is_none() { -(libc::ECANCELED as isize) } else { result }
    }
}
