//! The I/O thread's table of operations in flight.

use std::ffi::c_int;

use crate::interface::control_block::{ControlBlock, SigEvent};
use crate::worker::order::Kind;

/// An operation from its arrival to its completion: all that is needed, so that the application's memory is touched only
/// once more, at the end.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) block: *const ControlBlock,
    pub(crate) kind: Kind,
    pub(crate) fd: c_int,
    pub(crate) buffer: usize,
    pub(crate) length: usize,
    pub(crate) offset: i64,
    pub(crate) event: SigEvent,
    /// Bytes moved by earlier steps.
    pub(crate) moved: usize,
    /// The list of lio_listio(3) that it belongs to.
    pub(crate) list: Option<u32>,
    /// Index of its descriptor's entry.
    pub(crate) descriptor: u32,
    /// Its place in the descriptor's order.
    pub(crate) sequence: u64,
    /// Whether the backend has it.
    pub(crate) issued: bool,
    /// Whether somebody wants it stopped: it is not continued then.
    pub(crate) stopping: bool,
}

/// Operations by number. A number is used again, with another generation: what is late finds nothing.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    operation: Option<Operation>,
}

/// Bits of the generation in an identity: four are left for the backend.
const GENERATIONS: u32 = (1 << 28) - 1;

impl Table {
    /// Takes an operation in; gives its number.
    pub(crate) fn insert(&mut self, operation: Operation) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize].operation = Some(operation);
            return index;
        }
        self.entries.push(Entry { generation: 0, operation: Some(operation) });
        self.entries.len() as u32 - 1
    }

    /// The number with its generation, below 2^60.
    pub(crate) fn identity(&self, index: u32) -> u64 {
        u64::from(self.entries[index as usize].generation) << 32 | u64::from(index)
    }

    /// The number of an identity, if it is still in flight.
    pub(crate) fn find(&self, identity: u64) -> Option<u32> {
        let index = identity as u32;
        let entry = self.entries.get(index as usize)?;
        (u64::from(entry.generation) == identity >> 32 && entry.operation.is_some()).then_some(index)
    }

    /// An operation in flight.
    pub(crate) fn get(&mut self, index: u32) -> Option<&mut Operation> {
        self.entries.get_mut(index as usize)?.operation.as_mut()
    }

    /// Takes an operation out.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Operation> {
        let entry = self.entries.get_mut(index as usize)?;
        let operation = entry.operation.take()?;
        entry.generation = (entry.generation + 1) & GENERATIONS;
        self.free.push(index);
        Some(operation)
    }

    /// Numbers of the operations on a descriptor's entry, the oldest first.
    pub(crate) fn on_descriptor(&self, descriptor: u32) -> Vec<u32> {
        let mut found: Vec<(u64, u32)> = self
            .entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| {
                let operation = entry.operation.as_ref()?;
                (operation.descriptor == descriptor).then_some((operation.sequence, index as u32))
            })
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, index)| index).collect()
    }
}
