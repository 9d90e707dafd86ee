//! The I/O thread's table of operations in flight.

use std::ffi::c_int;

use super::notice::Event;
use crate::interface::control_block::ControlBlock;
use crate::worker::order::Kind;

/// An operation from its arrival to its completion: all that is needed, so that the application's
/// memory is touched only once more, at the end.
///
/// Two cache lines: with thousands in flight each one is a miss.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Operation {
    pub(crate) block: *const ControlBlock,
    pub(crate) buffer: usize,
    pub(crate) offset: i64,
    pub(crate) event: Event,
    /// Bytes; at most `MAX_RW_COUNT`.
    pub(crate) length: u32,
    /// Bytes moved by earlier steps.
    pub(crate) moved: u32,
    pub(crate) fd: c_int,
    /// The list of lio_listio(3) that it belongs to.
    pub(crate) list: Option<u32>,
    /// Index of its descriptor's entry; `NONE` before it is lined up there.
    pub(crate) descriptor: u32,
    /// Its neighbours among the operations of that entry.
    pub(crate) older: u32,
    pub(crate) newer: u32,
    /// Its place in the descriptor's order.
    pub(crate) sequence: u64,
    pub(crate) kind: Kind,
    /// Of a synchronisation: the error of the first operation that failed of those it waits for, or 0.
    pub(crate) failed: c_int,
    /// Whether the backend has it.
    pub(crate) issued: bool,
    pub(crate) stop: Stop,
}

/// Whether somebody wants an operation stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    /// Nobody.
    No,
    /// aio_cancel(3), which waits for what comes of it: the operation is not continued.
    Asked,
    /// aio_cancel(3), which was told that it can't be (`AIO_NOTCANCELED`): it goes on. A write on a stream
    /// ends with the part under way.
    Refused,
    /// Whoever closes its descriptor: it is not continued, whatever aio_cancel(3) is told.
    Bound,
}

impl Stop {
    /// Whether the operation ends as canceled when its step has moved nothing.
    pub(crate) const fn ends(self) -> bool {
        matches!(self, Self::Asked | Self::Bound)
    }
}

const _: () = assert!(size_of::<Option<Operation>>() == 128);

/// No operation, no entry.
pub(crate) const NONE: u32 = u32::MAX;

/// Operations by number. A number is used again, with another generation: what is late finds nothing.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Option<Operation>>,
    generations: Vec<u32>,
    free: Vec<u32>,
    /// The newest operation on each descriptor's entry.
    newest: Vec<u32>,
}

/// Bits of the generation in an identity: four are left for the backend.
const GENERATIONS: u32 = (1 << 28) - 1;

impl Table {
    /// Takes an operation in; gives its number.
    pub(crate) fn insert(&mut self, operation: Operation) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = Some(operation);
            return index;
        }
        self.entries.push(Some(operation));
        self.generations.push(0);
        self.entries.len() as u32 - 1
    }

    /// The number with its generation, below 2^60.
    pub(crate) fn identity(&self, index: u32) -> u64 {
        u64::from(self.generations[index as usize]) << 32 | u64::from(index)
    }

    /// The number of an identity, if it is still in flight.
    pub(crate) fn find(&self, identity: u64) -> Option<u32> {
        let index = identity as u32;
        let generation = *self.generations.get(index as usize)?;
        (u64::from(generation) == identity >> 32 && self.entries[index as usize].is_some()).then_some(index)
    }

    /// An operation in flight.
    pub(crate) fn get(&mut self, index: u32) -> Option<&mut Operation> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    /// Puts an operation on a descriptor's entry, as its newest.
    pub(crate) fn attach(&mut self, index: u32, descriptor: u32) {
        let place = descriptor as usize;
        if self.newest.len() <= place {
            self.newest.resize(place + 1, NONE);
        }
        let older = std::mem::replace(&mut self.newest[place], index);
        if let Some(operation) = self.get(index) {
            (operation.descriptor, operation.older, operation.newer) = (descriptor, older, NONE);
        }
        if let Some(older) = self.get(older) {
            older.newer = index;
        }
    }

    fn detach(&mut self, operation: &Operation) {
        if operation.descriptor == NONE {
            return;
        }
        match self.get(operation.newer) {
            Some(newer) => newer.older = operation.older,
            None => self.newest[operation.descriptor as usize] = operation.older,
        }
        if let Some(older) = self.get(operation.older) {
            older.newer = operation.newer;
        }
    }

    /// Takes an operation out.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Operation> {
        let operation = self.entries.get_mut(index as usize)?.take()?;
        self.detach(&operation);
        let generation = &mut self.generations[index as usize];
        *generation = (*generation + 1) & GENERATIONS;
        self.free.push(index);
        Some(operation)
    }

    /// Numbers of the operations on a descriptor's entry, the oldest first.
    pub(crate) fn on_descriptor(&self, descriptor: u32) -> Vec<u32> {
        let operation = |index: u32| self.entries.get(index as usize)?.as_ref();
        let newest = self.newest.get(descriptor as usize).copied().filter(|&newest| newest != NONE);
        let older = |&index: &u32| operation(index).map(|operation| operation.older).filter(|&older| older != NONE);
        let mut found: Vec<u32> = std::iter::successors(newest, older).collect();
        found.reverse();
        found
    }
}
