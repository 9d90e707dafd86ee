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

use crate::worker::order::{Class, Kind};

/// One step of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Names the operation; below 2^60.
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) class: Class,
    pub(crate) fd: c_int,
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
}

/// Carries operations out.
pub(crate) trait Backend {
    /// Begins a step.
    fn issue(&mut self, job: Job);

    /// Waits until a step that gave `EAGAIN` may be tried again.
    fn await_readiness(&mut self, job: Job);

    /// Stops a step: `Done` comes with `ECANCELED` or whatever it came to, or `NotCancelable` first.
    fn cancel(&mut self, id: u64);

    /// Begins what was issued and collects what is done. With `sleep` it waits until there is something, somebody wakes
    /// it, or this much time is over.
    fn turn(&mut self, sleep: bool, at_most: Option<Duration>, outcomes: &mut Vec<Outcome>);

    /// Whether a step that waits goes on after its descriptor was closed behind our back.
    fn holds_files(&self) -> bool;
}
