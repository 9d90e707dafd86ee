//! Cancellations under way: the answer of aio_cancel(3) comes from what became of its targets.
//!
//! Not from the kernel's answer to the attempt: a half-done write ends with its partial count although its cancellation
//! succeeded.
#![expect(unsafe_code, reason = "commands wait on their callers' stacks")]

use std::collections::HashSet;
use std::ffi::c_int;

use crate::interface::control_block::ControlBlock;
use crate::service::command::Command;

/// `AIO_CANCELED`.
pub(crate) const CANCELED: c_int = 0;
/// `AIO_NOTCANCELED`.
pub(crate) const NOT_CANCELED: c_int = 1;
/// `AIO_ALLDONE`.
pub(crate) const ALL_DONE: c_int = 2;

/// Commands that wait for their targets.
#[derive(Debug, Default)]
pub(crate) struct Cancellations {
    under_way: Vec<Cancellation>,
}

#[derive(Debug)]
struct Cancellation {
    command: *const Command,
    /// Answered only when all its targets have ended, canceled or not.
    to_the_end: bool,
    targets: HashSet<*const ControlBlock>,
    canceled: u32,
    not_canceled: u32,
    /// All targets are known.
    counted: bool,
}

impl Cancellations {
    /// A new command; its targets follow. With `to_the_end` it waits for those that can't be canceled.
    pub(crate) fn begin(&mut self, command: *const Command, to_the_end: bool) {
        let targets = HashSet::new();
        let (canceled, not_canceled, counted) = (0, 0, false);
        self.under_way.push(Cancellation { command, to_the_end, targets, canceled, not_canceled, counted });
    }

    /// A target of the newest command.
    pub(crate) fn watch(&mut self, block: *const ControlBlock) {
        if let Some(newest) = self.under_way.last_mut() {
            newest.targets.insert(block);
        }
    }

    /// The newest command has no more targets.
    pub(crate) fn counted(&mut self) {
        if let Some(newest) = self.under_way.last_mut() {
            newest.counted = true;
        }
    }

    /// An operation can't be canceled: it will end by itself.
    pub(crate) fn refused(&mut self, block: *const ControlBlock) {
        self.resolve(block, false, |cancellation| cancellation.not_canceled += 1);
    }

    /// An operation ended with this.
    pub(crate) fn ended(&mut self, block: *const ControlBlock, result: isize) {
        if self.under_way.is_empty() {
            return;
        }
        self.resolve(block, true, |cancellation| {
            if result == -(libc::ECANCELED as isize) {
                cancellation.canceled += 1;
            } else {
                cancellation.not_canceled += 1;
            }
        });
    }

    fn resolve(&mut self, block: *const ControlBlock, ended: bool, count: impl Fn(&mut Cancellation)) {
        for cancellation in self.under_way.iter_mut().filter(|cancellation| ended || !cancellation.to_the_end) {
            if cancellation.targets.remove(&block) {
                count(cancellation);
            }
        }
    }

    /// Answers those whose targets are all resolved.
    pub(crate) fn answer(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        self.under_way.retain(|cancellation| {
            let resolved = cancellation.counted && cancellation.targets.is_empty();
            if resolved {
                let answer = match (cancellation.canceled, cancellation.not_canceled) {
                    (0, 0) => ALL_DONE,
                    (_, 0) => CANCELED,
                    _ => NOT_CANCELED,
                };
                // SAFETY: its caller waits for the answer.
                unsafe { (*cancellation.command).finish(answer) };
            }
            !resolved
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::command::Request;

    #[test]
    fn to_resolve_all_is_not_quadratic() {
        const MANY: usize = 1_000_000;
        let blocks = (1..=MANY).map(|number| (number * size_of::<ControlBlock>()) as *const ControlBlock);
        let command = Command::place(Request::CatchUp);
        let mut cancellations = Cancellations::default();
        cancellations.begin(command, false);
        blocks.clone().for_each(|block| cancellations.watch(block));
        cancellations.counted();
        let begun = std::time::Instant::now();
        // The newest first: a list would be searched to its end.
        blocks.rev().for_each(|block| cancellations.ended(block, -(libc::ECANCELED as isize)));
        // Linear it is a fraction of a second, quadratic minutes.
        assert!(begun.elapsed() < std::time::Duration::from_secs(20));
        cancellations.answer();
        assert_eq!(command.wait(|| false), Some(CANCELED));
        command.give_back();
    }
}
