//! The I/O thread: takes operations from the inbox, lines them up by descriptor, has them carried
//! out and completes them.
//!
//! All state beyond the aiocb is this thread's own, so nothing here is locked. Within a turn
//! results are stored first and told afterwards, so that those who wait are woken once for many.
#![expect(unsafe_code, reason = "control blocks belong to the application")]

pub(crate) mod cancel;
mod completion;
mod descriptors;
mod keeper;
mod lists;
mod mounts;
pub(crate) mod notice;
pub(crate) mod order;
mod table;

use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::backend::{self, Backend, Job, Outcome, Place};
use crate::interface::control_block::ControlBlock;
use crate::service::command::{COMMAND, Command, Request};
use crate::service::queue::Queue;
use crate::service::{Shared, Task};
use crate::system;
use crate::worker::cancel::Cancellations;
use crate::worker::descriptors::{Descriptors, Hold};
use crate::worker::lists::Lists;
use crate::worker::notice::{Notice, Sender};
use crate::worker::order::{Class, Kind};
use crate::worker::table::{NONE, Operation, Stop, Table};

/// As much as one system call moves (`MAX_RW_COUNT`, include/linux/fs.h).
const MOST_AT_ONCE: usize = 0x7fff_f000;

/// What a step gives that can't be done now.
const EAGAIN: isize = libc::EAGAIN as isize;

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
    is_issuing: bool,
    /// Entries whose operations were begun in this turn.
    begun: Vec<u32>,
    /// Who waits until all is begun that was submitted.
    waiting: Vec<*const Command>,
    /// Somebody who slept was woken in this turn.
    woken: bool,
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
            descriptors: Descriptors::new(shared),
            lists: Lists::default(),
            cancellations: Cancellations::default(),
            notices: Vec::new(),
            late: VecDeque::new(),
            completed: 0,
            queued: 0,
            next: Vec::new(),
            is_issuing: false,
            begun: Vec::new(),
            waiting: Vec::new(),
            woken: false,
        }
    }

    /// Works until the process ends.
    pub(crate) fn run(mut self) -> ! {
        let mut outcomes = Vec::new();
        loop {
            self.read_inbox();
            if mem::take(&mut self.woken) && self.shared.inbox.is_empty() {
                // Whoever was woken runs now when it shares our core, and submits what comes next before
                // we sleep: cheaper than to be woken by it. Not after signals: yielding costs us our share
                // of the core (since Linux 6.18), and then each signal of the next batch would preempt us.
                system::give_way();
                self.read_inbox();
            }
            // Operations may have failed at once.
            self.tell();
            self.give_back();
            let at_most = (!self.late.is_empty()).then_some(AGAIN);
            let sleep = self.shared.inbox.fall_asleep();
            self.backend.turn(sleep, at_most, &mut outcomes);
            for outcome in outcomes.drain(..) {
                self.settle(outcome);
            }
            self.tell();
        }
    }

    /// Has the kernel take what was begun, and gives back what held it until then.
    fn give_back(&mut self) {
        // What the kernel has not taken yet goes by the number that holds it.
        if (!self.begun.is_empty() || self.descriptors.has_replaced()) && self.backend.submit() {
            for entry in self.begun.drain(..) {
                self.descriptors.release_begun(entry, &mut *self.backend);
            }
            self.descriptors.close_replaced();
        }
        for command in self.waiting.drain(..) {
            // SAFETY: its caller waits for the answer.
            unsafe { (*command).finish(0) };
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
        while oldest != 0 {
            let letter = oldest;
            // SAFETY: as above. Read before the letter is worked on, which may end its life.
            oldest = unsafe { link(letter) }.load(Ordering::Relaxed);
            if letter & COMMAND != 0 {
                let command = (letter & !COMMAND) as *const Command;
                // SAFETY: we took it from the inbox.
                match unsafe { (*command).take() } {
                    Some(Request::Cancel { fd, block: 0, issued }) => {
                        let targets = self.on_number(fd);
                        self.cancellations.begin(command, false);
                        self.cancel(targets, issued.then_some(Stop::Asked));
                    }
                    Some(Request::Cancel { block, issued, .. }) => {
                        let target = self.find_block(block as *const ControlBlock);
                        self.cancellations.begin(command, false);
                        self.cancel(target.into_iter().collect(), issued.then_some(Stop::Asked));
                    }
                    Some(Request::Close { fd }) => {
                        let targets = self.on_number(fd);
                        // A thread of the pool may be about to use the number.
                        self.cancellations.begin(command, !self.backend.holds_files());
                        self.cancel(targets, Some(Stop::Bound));
                        self.descriptors.forget(fd, &mut *self.backend);
                    }
                    Some(Request::CatchUp) => self.waiting.push(command),
                    Some(Request::List { length, event }) => {
                        let list = self.lists.begin(length, event);
                        // SAFETY: its caller waits for the answer.
                        unsafe { (*command).finish(list.cast_signed()) };
                    }
                    Some(Request::Deliver(notice)) => {
                        self.notices.push(notice);
                        // SAFETY: its caller waits for the answer.
                        unsafe { (*command).finish(0) };
                    }
                    None => {}
                }
            } else {
                self.begin(letter as *const ControlBlock);
            }
        }
    }

    /// Takes an operation in.
    fn begin(&mut self, address: *const ControlBlock) {
        // SAFETY: the application lends it until the operation is complete.
        let block = unsafe { &*address };
        if !block.is_ours(self.epoch) {
            // Submitted by the parent, in the signal handler that forked us: the parent carries it out.
            return;
        }
        let task = Task::read(block.task);
        // aio_fsync(3) leaves the length out of account.
        let length = if task.kind.moves_data() { block.length.min(MOST_AT_ONCE) as u32 } else { 0 };
        let target = block.target();
        let operation = Operation {
            block: address,
            kind: task.kind,
            fd: block.fd,
            buffer: block.buffer as usize,
            length,
            offset: block.offset,
            event: (&block.event).into(),
            moved: 0,
            list: task.in_list.then_some(block.list),
            failed: 0,
            descriptor: NONE,
            older: NONE,
            newer: NONE,
            sequence: 0,
            issued: false,
            stop: Stop::No,
        };
        let fd = operation.fd;
        let index = self.table.insert(operation);
        block.handle.store(self.table.identity(index), Ordering::Relaxed);
        let found = match self.descriptors.find(fd, target, &mut *self.backend) {
            Ok(found) => found,
            Err(errno) => return self.complete(index, -(errno as isize)),
        };
        if let Some(orphaned) = found.orphaned {
            self.orphan(orphaned);
        }
        let place = self.descriptors.get(found.entry).order.admit(index, task.kind);
        self.table.attach(index, found.entry);
        if let Some(operation) = self.table.get(index) {
            operation.sequence = place.sequence;
        }
        match (place.runs, found.fresh) {
            (true, true) => self.issue(index),
            (true, false) => self.issue_if_there(index),
            (false, _) => {}
        }
    }

    /// Operations on a file whose number means another one now: those that nothing but the number held can't go on.
    fn orphan(&mut self, entry: u32) {
        if !matches!(self.descriptors.get(entry).hold, Hold::Number(_)) {
            return;
        }
        for index in self.table.on_descriptor(entry) {
            let Some(operation) = self.table.get(index) else { continue };
            if !operation.issued {
                self.withdraw(index, libc::ECANCELED);
            } else if !self.backend.holds_files() {
                operation.stop = Stop::Bound;
                let identity = self.table.identity(index);
                self.backend.cancel(identity);
            }
        }
    }

    /// Issues a step some time after its file was looked at: somebody may have closed, behind our back, what holds it.
    fn issue_if_there(&mut self, index: u32) {
        let Some(operation) = self.table.get(index) else { return };
        let (entry, moved) = (operation.descriptor, operation.moved);
        if self.descriptors.get(entry).is_there() {
            return self.issue(index);
        }
        let result = if moved > 0 { moved as isize } else { -(libc::ECANCELED as isize) };
        self.complete(index, result);
    }

    fn issue(&mut self, index: u32) {
        let Some(job) = self.job(index) else { return self.complete(index, -(libc::ECANCELED as isize)) };
        if job.kind.moves_data() && matches!(job.class, Class::File { .. }) && job.offset < 0 {
            // -1 would be the current position to the kernel.
            return self.complete(index, -(libc::EINVAL as isize));
        }
        if job.kind == Kind::Write
            && matches!(job.class, Class::File { .. })
            && job.length > 0
            && job.offset == i64::MAX
        {
            // POSIX, aio_write. The kernel finds that the sum of both is no offset, and says EINVAL.
            return self.complete(index, -(libc::EFBIG as isize));
        }
        if job.class == Class::Socket && !job.kind.moves_data() {
            // As fsync(2) has it. Not by the kernel, which looks for the file when its own thread
            // comes to it: what holds a socket is given back before.
            return self.complete(index, -(libc::EINVAL as isize));
        }
        if job.class == Class::Socket
            && matches!(job.place, Place::Descriptor(_))
            && let Some(operation) = self.table.get(index)
        {
            self.begun.push(operation.descriptor);
        }
        self.backend.issue(job);
    }

    /// The next step of an operation.
    fn job(&mut self, index: u32) -> Option<Job> {
        let id = self.table.identity(index);
        let operation = self.table.get(index)?;
        operation.issued = true;
        let descriptor = self.descriptors.get(operation.descriptor);
        let class = descriptor.order.class();
        // What is appended has no offset; the kernel would check it all the same.
        let appends = class == (Class::File { append: true }) && operation.kind == Kind::Write;
        Some(Job {
            id,
            kind: operation.kind,
            class,
            place: descriptor.place()?,
            identity: descriptor.identity,
            buffer: operation.buffer + operation.moved as usize,
            length: operation.length - operation.moved,
            offset: if appends { 0 } else { operation.offset },
            likely_empty: descriptor.emptied,
            may_block: descriptor.may_block(operation.kind),
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
                    Some(operation) if operation.stop.ends() => self.advance(index, -(libc::ECANCELED as isize), false),
                    _ => self.issue_if_there(index),
                }
            }
            Outcome::Tick => self.descriptors.tick(&mut *self.backend),
            Outcome::NotFound { id } => {
                // The kernel doesn't find what it is about to try once more: data came, or went, in the moment
                // when it began to wait. If that try comes to nothing, it waits again, and nobody would stop it.
                let Some(index) = self.table.find(id) else { return };
                if self.table.get(index).is_some_and(|operation| operation.stop.ends()) {
                    self.backend.cancel(id);
                }
            }
            Outcome::NotCancelable { id } => {
                let Some(index) = self.table.find(id) else { return };
                let Some(operation) = self.table.get(index) else { return };
                let descriptor = self.descriptors.get(operation.descriptor);
                let in_parts = operation.kind == Kind::Write && descriptor.order.class() == Class::Stream;
                // The kernel interrupts its thread in such a write, and in all that waits for a socket.
                let is_interrupted = in_parts && descriptor.may_be_interrupted()
                    || operation.kind.moves_data() && descriptor.order.class() == Class::Socket;
                if is_interrupted && self.backend.holds_files() {
                    return;
                }
                if operation.stop == Stop::Asked {
                    operation.stop = Stop::Refused;
                }
                self.cancellations.refused(operation.block);
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
        // Nobody asked for it: the kernel was short of a thread (io_acct_cancel_pending_work, io_uring/io-wq.c).
        let dropped = result == -(libc::ECANCELED as isize) && !operation.stop.ends();
        let interrupted = result == -(libc::EINTR as isize) && operation.stop != Stop::No;
        if operation.stop == Stop::Refused && operation.moved == 0 && (dropped || interrupted || result == -EAGAIN) {
            // It goes on, as aio_cancel(3) was told, and a write as a whole.
            operation.stop = Stop::No;
            if interrupted {
                return self.issue_if_there(index);
            }
        }
        let stop = operation.stop;
        let mut result = if interrupted { -(libc::ECANCELED as isize) } else { result };
        if dropped || result == -EAGAIN {
            let (entry, fd) = (operation.descriptor, operation.fd);
            if stop != Stop::No || !self.descriptors.get(entry).is_there() {
                // It has not happened, and somebody wants that it doesn't, or nothing holds its file.
                result = -(libc::ECANCELED as isize);
            } else {
                let Some(job) = self.job(index) else { return };
                if is_stream {
                    // A descriptor with O_NONBLOCK on which the kernel won't wait by itself.
                    return self.backend.await_readiness(job);
                }
                // Without a thread to wait for the file, this one does.
                result = backend::carry_out(&Job { place: Place::Descriptor(fd), ..job });
            }
        }
        let Some(operation) = self.table.get(index) else { return };
        if result > 0 {
            operation.moved += result as u32;
            let whole = operation.moved >= operation.length;
            if operation.kind == Kind::Write && is_stream && !whole && operation.stop == Stop::No {
                // A write on a stream is whole, as write(2) on a blocking descriptor is.
                return self.issue_if_there(index);
            }
        }
        let result = match operation.failed {
            _ if operation.moved > 0 => operation.moved as isize,
            0 => result,
            failed if result == 0 => -(failed as isize),
            _ => result,
        };
        self.complete(index, result);
    }

    /// Takes an operation that has not begun out of the order and completes it with an error.
    fn withdraw(&mut self, index: u32, errno: c_int) {
        let Some(operation) = self.table.get(index) else { return };
        let (entry, kind, sequence) = (operation.descriptor, operation.kind, operation.sequence);
        self.descriptors.get(entry).order.withdraw(index, kind, sequence, &mut self.next);
        self.finish(index, -(errno as isize));
        self.descriptors.release(entry, &mut *self.backend);
        self.issue_next();
    }

    /// Completes an operation that has begun, and begins those that waited for it.
    fn complete(&mut self, index: u32, result: isize) {
        let Some(operation) = self.table.get(index) else { return };
        let (entry, kind, sequence) = (operation.descriptor, operation.kind, operation.sequence);
        self.finish(index, result);
        if entry == NONE {
            return;
        }
        if kind.moves_data() && result < 0 && result != -(libc::ECANCELED as isize) {
            // POSIX, aio_fsync: what fails of that which it waits for is its error.
            for sync in self.descriptors.get(entry).order.syncs_behind(sequence) {
                let Some(sync) = self.table.get(sync) else { continue };
                sync.failed = if sync.failed == 0 { -result as c_int } else { sync.failed };
            }
        }
        self.descriptors.get(entry).order.retire(kind, sequence, &mut self.next);
        self.descriptors.release(entry, &mut *self.backend);
        self.issue_next();
    }

    /// Begins what may run now. What fails at once lets the next one run: one after the other, not
    /// one within the other.
    fn issue_next(&mut self) {
        if mem::replace(&mut self.is_issuing, true) {
            return;
        }
        while let Some(index) = self.next.pop() {
            self.issue_if_there(index);
        }
        self.is_issuing = false;
    }

    /// Operations on what a number means now, the oldest first.
    fn on_number(&mut self, fd: c_int) -> Vec<u32> {
        self.descriptors.current(fd).map(|entry| self.table.on_descriptor(entry)).unwrap_or_default()
    }

    /// Tries to stop these operations for the cancellation just begun; those that the backend has if `issued` says so.
    fn cancel(&mut self, targets: Vec<u32>, issued: Option<Stop>) {
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
            if let Some(stop) = issued {
                if operation.stop != Stop::Bound {
                    operation.stop = stop;
                }
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
