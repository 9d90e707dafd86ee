//! The I/O thread: takes operations from the inbox, lines them up by descriptor, has them carried out and completes them.
//!
//! All state beyond the aiocb is this thread's own, so nothing here is locked. Within a turn results are stored first and
//! told afterwards, so that those who wait are woken once for many.
#![expect(unsafe_code, reason = "control blocks belong to the application")]

pub(crate) mod cancel;
mod descriptors;
mod lists;
pub(crate) mod notice;
pub(crate) mod order;
mod table;

use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::backend::{Backend, Job, Outcome};
use crate::interface::control_block::ControlBlock;
use crate::lockfree::completions::Completed;
use crate::service::command::{COMMAND, Command, Request};
use crate::service::queue::Queue;
use crate::service::{Shared, Task};
use crate::system::futex;
use crate::worker::cancel::Cancellations;
use crate::worker::descriptors::Descriptors;
use crate::worker::lists::Lists;
use crate::worker::notice::{Delivery, NOTIFY_QUEUE, Notice, Sender};
use crate::worker::order::{Class, Kind};
use crate::worker::table::{Operation, Table};

/// As much as one system call moves (`MAX_RW_COUNT`, include/linux/fs.h).
const MOST_AT_ONCE: usize = 0x7fff_f000;

/// How often a notice that could not be delivered is tried again.
const AGAIN: Duration = Duration::from_millis(1);

pub(crate) struct Worker {
    shared: &'static Shared,
    queue: &'static Queue,
    epoch: u32,
    backend: Box<dyn Backend>,
    sender: Sender,
    table: Table,
    descriptors: Descriptors,
    lists: Lists,
    cancellations: Cancellations,
    /// Notices of this turn.
    notices: Vec<Notice>,
    /// Notices that have to wait.
    late: VecDeque<Notice>,
    /// Results stored in this turn.
    completed: u32,
    /// Of those, the ones in the process's queue.
    queued: u32,
    /// Operations that may run now.
    next: Vec<u32>,
    /// Somebody was told something since we slept last: likely there will be work at once.
    told: bool,
}

impl Worker {
    pub(crate) fn new(shared: &'static Shared, queue: &'static Queue, backend: Box<dyn Backend>) -> Self {
        let epoch = shared.epoch();
        Self {
            shared,
            queue,
            epoch,
            backend,
            sender: Sender::this_process(),
            table: Table::default(),
            descriptors: Descriptors::default(),
            lists: Lists::default(),
            cancellations: Cancellations::default(),
            notices: Vec::new(),
            late: VecDeque::new(),
            completed: 0,
            queued: 0,
            next: Vec::new(),
            told: false,
        }
    }

    /// Works until the process ends.
    pub(crate) fn run(mut self) -> ! {
        let mut outcomes = Vec::new();
        loop {
            if mem::take(&mut self.told) && self.shared.inbox.is_empty() {
                // Whoever was told runs now when it shares our core, and pushes its next operations before we sleep:
                // cheaper for both than to be woken by it.
                // SAFETY: no arguments.
                unsafe { libc::sched_yield() };
            }
            self.read_inbox();
            // Operations may have failed at once.
            self.tell();
            let at_most = (!self.late.is_empty()).then_some(AGAIN);
            let sleep = !self.told && self.shared.inbox.fall_asleep();
            self.backend.turn(sleep, at_most, &mut outcomes);
            for outcome in outcomes.drain(..) {
                self.settle(outcome);
            }
            self.tell();
        }
    }

    /// Takes what was pushed, the oldest first.
    fn read_inbox(&mut self) {
        let mut top = self.shared.inbox.take();
        let mut oldest = 0;
        while top != 0 {
            // SAFETY: a letter in the inbox is valid until the I/O thread is done with it.
            let link = unsafe { link(top) };
            let below = link.load(Ordering::Relaxed);
            link.store(oldest, Ordering::Relaxed);
            oldest = top;
            top = below;
        }
        let mut list = None;
        while oldest != 0 {
            let letter = oldest;
            // SAFETY: as above. Read before the letter is worked on, which may end its life.
            oldest = unsafe { link(letter) }.load(Ordering::Relaxed);
            if letter & COMMAND != 0 {
                let command = (letter & !COMMAND) as *const Command;
                // SAFETY: we took it from the inbox.
                match unsafe { (*command).take() } {
                    Some(Request::Cancel { fd, block, issued }) => self.cancel(command, fd, block, issued),
                    Some(Request::Deliver(notice)) => {
                        self.notices.push(notice);
                        // SAFETY: its caller waits for the answer.
                        unsafe { (*command).finish(0) };
                    }
                    None => {}
                }
            } else {
                self.begin(letter as *const ControlBlock, &mut list);
            }
        }
    }

    /// Takes an operation in. `list` is the list whose entries are being read.
    fn begin(&mut self, address: *const ControlBlock, list: &mut Option<u32>) {
        // SAFETY: the application lends it until the operation is complete.
        let block = unsafe { &*address };
        let task = Task::read(block.task);
        if task.heads_list {
            let (length, event) = block.carried_list();
            *list = Some(self.lists.begin(length, event));
        }
        let operation = Operation {
            block: address,
            kind: task.kind,
            fd: block.fd,
            buffer: block.buffer as usize,
            length: block.length.min(MOST_AT_ONCE),
            offset: block.offset,
            event: block.event,
            moved: 0,
            list: if task.in_list { *list } else { None },
            descriptor: u32::MAX,
            sequence: 0,
            issued: false,
            stopping: false,
        };
        let found = self.descriptors.find(operation.fd, task.kind);
        let index = self.table.insert(operation);
        block.handle.store(self.table.identity(index), Ordering::Relaxed);
        let found = match found {
            Ok(found) => found,
            Err(errno) => return self.complete(index, -(errno as isize)),
        };
        if let Some(orphaned) = found.orphaned {
            self.orphan(orphaned);
        }
        let descriptor = self.descriptors.get(found.entry);
        let is_file = matches!(descriptor.order.class(), Class::File { .. });
        let place = descriptor.order.admit(index, task.kind);
        let Some(operation) = self.table.get(index) else { return };
        operation.descriptor = found.entry;
        operation.sequence = place.sequence;
        if is_file && operation.offset < 0 && matches!(task.kind, Kind::Read | Kind::Write) {
            // -1 would be the current position to the kernel.
            return if place.runs {
                self.complete(index, -(libc::EINVAL as isize));
            } else {
                self.withdraw(index, libc::EINVAL);
            };
        }
        if place.runs {
            self.issue(index);
        }
    }

    /// Operations on a file whose number means another one now: what has not begun never can.
    fn orphan(&mut self, entry: u32) {
        for index in self.table.on_descriptor(entry) {
            let Some(operation) = self.table.get(index) else { continue };
            if !operation.issued {
                self.withdraw(index, libc::EBADF);
            } else if !self.backend.holds_files() {
                operation.stopping = true;
                let identity = self.table.identity(index);
                self.backend.cancel(identity);
            }
        }
    }

    fn issue(&mut self, index: u32) {
        if let Some(job) = self.job(index) {
            self.backend.issue(job);
        }
    }

    /// The next step of an operation.
    fn job(&mut self, index: u32) -> Option<Job> {
        let id = self.table.identity(index);
        let operation = self.table.get(index)?;
        operation.issued = true;
        let descriptor = self.descriptors.get(operation.descriptor);
        Some(Job {
            id,
            kind: operation.kind,
            class: descriptor.order.class(),
            fd: operation.fd,
            buffer: operation.buffer + operation.moved,
            length: (operation.length - operation.moved) as u32,
            offset: operation.offset,
            likely_empty: descriptor.emptied,
        })
    }

    fn settle(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done { id, result, emptied } => {
                let Some(index) = self.table.find(id) else { return };
                self.advance(index, result, emptied);
            }
            Outcome::Ready { id } => {
                let Some(index) = self.table.find(id) else { return };
                match self.table.get(index) {
                    Some(operation) if operation.stopping => self.advance(index, -(libc::ECANCELED as isize), false),
                    _ => self.issue(index),
                }
            }
            Outcome::NotCancelable { id } => {
                let Some(index) = self.table.find(id) else { return };
                if let Some(operation) = self.table.get(index) {
                    operation.stopping = false;
                    self.cancellations.refused(operation.block);
                }
            }
        }
    }

    /// A step of an operation gave this: goes on with it, or completes it.
    fn advance(&mut self, index: u32, result: isize, emptied: bool) {
        let Some(operation) = self.table.get(index) else { return };
        let descriptor = self.descriptors.get(operation.descriptor);
        let class = descriptor.order.class();
        let is_stream = !matches!(class, Class::File { .. });
        if operation.kind == Kind::Read {
            descriptor.emptied = emptied;
        }
        if result == -(libc::EAGAIN as isize) && is_stream && !operation.stopping {
            // A descriptor with O_NONBLOCK on which the kernel won't wait by itself.
            if let Some(job) = self.job(index) {
                self.backend.await_readiness(job);
            }
            return;
        }
        if result > 0 {
            operation.moved += result as usize;
            let whole = operation.moved >= operation.length;
            if operation.kind == Kind::Write && is_stream && !whole && !operation.stopping {
                // A write on a stream is whole, as write(2) on a blocking descriptor is.
                return self.issue(index);
            }
        }
        let result = if operation.moved > 0 { operation.moved as isize } else { result };
        self.complete(index, result);
    }

    /// Takes an operation that has not begun out of the order and completes it with an error.
    fn withdraw(&mut self, index: u32, errno: c_int) {
        let Some(operation) = self.table.get(index) else { return };
        let (entry, kind, sequence) = (operation.descriptor, operation.kind, operation.sequence);
        self.descriptors.get(entry).order.withdraw(index, kind, sequence, &mut self.next);
        self.publish(index, -(errno as isize));
        self.descriptors.release(entry);
        self.issue_next();
    }

    /// Completes an operation that has begun, and begins those that waited for it.
    fn complete(&mut self, index: u32, result: isize) {
        let Some(operation) = self.table.get(index) else { return };
        let (entry, kind, sequence) = (operation.descriptor, operation.kind, operation.sequence);
        self.publish(index, result);
        if entry == u32::MAX {
            return;
        }
        self.descriptors.get(entry).order.retire(kind, sequence, &mut self.next);
        self.descriptors.release(entry);
        self.issue_next();
    }

    fn issue_next(&mut self) {
        while let Some(index) = self.next.pop() {
            self.issue(index);
        }
    }

    /// Stores the result where the application looks, and notes who is to be told.
    fn publish(&mut self, index: u32, result: isize) {
        let identity = self.table.identity(index);
        let Some(operation) = self.table.remove(index) else { return };
        self.shared.in_flight.leave(operation.fd);
        self.cancellations.ended(operation.block, result);
        let private = operation.event.notify == NOTIFY_QUEUE;
        // SAFETY: the application lends it until the store below.
        let block = unsafe { &*operation.block };
        // Memory that the application took back too early is not ours to write to.
        if block.is_in_flight(self.epoch) && block.handle.load(Ordering::Relaxed) == identity {
            if private {
                block.complete(result, 0);
            } else {
                let completions = self.queue.completions();
                let position = completions.reserve(Completed { request: operation.block as usize, result });
                block.complete(result, position);
                completions.publish(position);
                self.queued += 1;
            }
        }
        self.completed += 1;
        match Notice::new(&operation.event, result) {
            Notice::Silent => {}
            notice => self.notices.push(notice),
        }
        if let Some(notice) = operation.list.and_then(|list| self.lists.leave(list)) {
            self.notices.push(notice);
        }
    }

    /// Tells everybody what was completed.
    fn tell(&mut self) {
        if mem::take(&mut self.completed) > 0 {
            self.told |= self.shared.suspended.announce(|word| futex::wake(word, i32::MAX));
        }
        match mem::take(&mut self.queued) {
            0 => {}
            queued => self.told |= self.queue.announce(queued),
        }
        self.cancellations.answer();
        if self.notices.is_empty() && self.late.is_empty() {
            return;
        }
        let mut filled: Vec<(Arc<Queue>, u32)> = Vec::new();
        let mut again = mem::take(&mut self.late);
        for notice in again.drain(..).chain(self.notices.drain(..)) {
            // What can't be delivered keeps its place in the line.
            let stuck = !self.late.is_empty() && !matches!(notice, Notice::Queue { .. });
            if stuck || matches!(self.sender.deliver(&notice), Delivery::Later) {
                self.late.push_back(notice);
                continue;
            }
            self.told |= !matches!(notice, Notice::Queue { .. });
            if let Notice::Queue { queue, .. } = notice {
                match filled.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &queue)) {
                    Some((_, added)) => *added += 1,
                    None => filled.push((queue, 1)),
                }
            }
        }
        for (queue, added) in filled {
            self.told |= queue.announce(added);
        }
    }

    /// aio_cancel(3).
    fn cancel(&mut self, command: *const Command, fd: c_int, block: usize, issued: bool) {
        let targets = if block == 0 {
            self.descriptors.present(fd).map(|entry| self.table.on_descriptor(entry)).unwrap_or_default()
        } else {
            self.find_block(block as *const ControlBlock).into_iter().collect()
        };
        self.cancellations.begin(command);
        // Those that wait first, so that none of them begins meanwhile.
        for &index in &targets {
            match self.table.get(index) {
                Some(operation) if !operation.issued => self.cancellations.watch(operation.block),
                _ => continue,
            }
            self.withdraw(index, libc::ECANCELED);
        }
        for index in targets {
            let id = self.table.identity(index);
            let Some(operation) = self.table.get(index) else { continue };
            self.cancellations.watch(operation.block);
            if issued {
                operation.stopping = true;
                self.backend.cancel(id);
            } else {
                self.cancellations.refused(operation.block);
            }
        }
        self.cancellations.counted();
    }

    /// The operation of a block, if it is in flight.
    fn find_block(&mut self, address: *const ControlBlock) -> Option<u32> {
        // SAFETY: the caller of aio_cancel lends it for the call.
        let handle = unsafe { (*address).handle.load(Ordering::Relaxed) };
        let index = self.table.find(handle)?;
        self.table.get(index).is_some_and(|operation| operation.block == address).then_some(index)
    }
}

/// The link of a letter.
///
/// # Safety
/// The letter is in the inbox or was just taken from it.
unsafe fn link<'a>(letter: usize) -> &'a crate::sync::atomic::AtomicUsize {
    // SAFETY: the caller's promise.
    unsafe {
        if letter & COMMAND != 0 {
            &(*((letter & !COMMAND) as *const Command)).link
        } else {
            &(*(letter as *const ControlBlock)).link
        }
    }
}
