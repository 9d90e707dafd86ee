//! The end of an operation: its result is stored where the application looks, and who waits for it is told.
#![expect(unsafe_code, reason = "control blocks belong to the application")]

use std::ffi::c_int;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Worker;
use crate::interface::control_block::ControlBlock;
use crate::lockfree::completions::Completed;
use crate::service::queue::Queue;
use crate::system::futex;
use crate::worker::notice::{Delivery, Event, Notice};

impl Worker {
    /// Takes an operation out of the table and stores its result.
    pub(super) fn finish(&mut self, index: u32, result: isize) {
        let identity = self.table.identity(index);
        let Some(operation) = self.table.remove(index) else { return };
        // SAFETY: the application lends it until the result is stored.
        let block = unsafe { &*operation.block };
        // Memory that the application took back too early is not ours to write to.
        if block.is_in_flight(self.epoch) && block.handle.load(Ordering::Relaxed) == identity {
            self.publish(operation.block, operation.fd, &operation.event, result);
        } else {
            self.shared.in_flight.leave(operation.fd);
        }
        if let Some(notice) = operation.list.and_then(|list| self.lists.leave(list)) {
            self.notices.push(notice);
        }
        self.cancellations.ended(operation.block, result);
    }

    /// Stores a result where the application looks, and notes who is to be told.
    fn publish(&mut self, address: *const ControlBlock, fd: c_int, event: &Event, result: isize) {
        // SAFETY: as above; it is the application's again after `complete`.
        let block = unsafe { &*address };
        if !event.is_private() {
            let completions = self.queue.completions();
            let position = completions.reserve(Completed { request: address as usize, result });
            block.complete(result, position);
            completions.publish(position);
            self.queued += 1;
        } else {
            block.complete(result, 0);
        }
        // Not before: who finds nothing in flight must find nothing in progress either.
        self.shared.in_flight.leave(fd);
        self.completed += 1;
        match Notice::new(event, result) {
            Notice::Silent => {}
            notice => self.notices.push(notice),
        }
    }

    /// Tells everybody what was completed.
    pub(super) fn tell(&mut self) {
        if mem::take(&mut self.completed) > 0 {
            self.woken |= self.shared.suspended.announce(|word| futex::wake(word, i32::MAX));
        }
        match mem::take(&mut self.queued) {
            0 => {}
            queued => self.woken |= self.queue.announce(queued),
        }
        self.cancellations.answer();
        if self.notices.is_empty() && self.late.is_empty() {
            return;
        }
        let mut signaled = false;
        let mut filled: Vec<(Arc<Queue>, u32)> = Vec::new();
        let mut again = mem::take(&mut self.late);
        // Lines that don't move in this turn.
        let mut stuck = 0;
        for notice in again.drain(..).chain(self.notices.drain(..)) {
            // What can't be delivered keeps its place in its line, and holds no other line up.
            let line = notice.line();
            if stuck & line != 0 {
                self.late.push_back(notice);
                continue;
            }
            if matches!(self.sender.deliver(&notice, &self.shared.starter), Delivery::Later) {
                stuck |= line;
                self.late.push_back(notice);
                continue;
            }
            signaled |= !matches!(notice, Notice::Queue { .. });
            if let Notice::Queue { queue, .. } = notice {
                match filled.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &queue)) {
                    Some((_, added)) => *added += 1,
                    None => filled.push((queue, 1)),
                }
            }
        }
        for (queue, added) in filled {
            self.woken |= queue.announce(added);
        }
        self.woken &= !signaled;
    }
}
