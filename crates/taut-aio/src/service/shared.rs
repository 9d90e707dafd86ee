//! What all threads share.
#![expect(unsafe_code, reason = "control blocks are the application's")]

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::command::{Command, Request};
use super::queue::Queue;
use super::starter::Starter;
use super::target::Target;
use crate::interface::control_block::ControlBlock;
use crate::lockfree::announcement::Announcement;
use crate::lockfree::in_flight::InFlight;
use crate::lockfree::inbox::{Inbox, Sleep};
use crate::lockfree::kept::Kept;
use crate::system::bell::Bell;
use crate::system::futex;
use crate::system::own::OwnDescriptors;
use crate::system::{self, Deadline};
use crate::worker::order::Kind;

/// Descriptors whose operations are counted one by one.
pub(crate) const COUNTED: usize = 1 << 16;

/// How often a block is asked about in a row before the processor is offered to others. A few
/// hundred nanoseconds' worth, which is what the offer costs where nobody takes it.
const PATIENT_POLLS: u32 = 16;

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) inbox: Inbox,
    /// Who waits in aio_suspend(3) or lio_listio(3).
    pub(crate) suspended: Announcement,
    pub(crate) in_flight: InFlight<COUNTED>,
    /// Files that the I/O thread has at hand.
    pub(crate) kept: Kept<COUNTED>,
    /// The library's own descriptors.
    pub(crate) own: OwnDescriptors,
    /// Wakes the I/O thread.
    pub(crate) bell: Bell,
    pub(crate) starter: Starter,
    /// Null before the first start. No `OnceLock`: in a child that was forked amid its making it would stay locked.
    pub(super) queue: AtomicPtr<Queue>,
    pub(super) state: AtomicU32,
    /// How often this process was forked since the library first started in an ancestor.
    pub(super) epoch: AtomicU32,
    /// The process that the I/O thread runs in.
    pub(super) process: AtomicI32,
    pub(super) strict_cancel: AtomicBool,
    /// The I/O thread, as [`system::thread`] tells threads apart.
    pub(super) thread: AtomicUsize,
    /// The block that was asked about last and was in progress, and how often it was since.
    pub(super) polled: AtomicUsize,
    pub(super) polls: AtomicU32,
    /// The I/O thread was made `SCHED_BATCH`.
    pub(super) batch: AtomicBool,
}

pub(super) const IDLE: u32 = 0;
pub(super) const STARTING: u32 = 1;
pub(super) const RUNNING: u32 = 2;

pub(super) static SHARED: Shared = Shared {
    inbox: Inbox::new(),
    suspended: Announcement::new(),
    in_flight: InFlight::new(),
    kept: Kept::new(),
    own: OwnDescriptors::new(),
    bell: Bell::new(),
    starter: Starter::new(),
    queue: AtomicPtr::new(ptr::null_mut()),
    state: AtomicU32::new(IDLE),
    epoch: AtomicU32::new(0),
    process: AtomicI32::new(0),
    strict_cancel: AtomicBool::new(false),
    thread: AtomicUsize::new(0),
    polled: AtomicUsize::new(0),
    polls: AtomicU32::new(0),
    batch: AtomicBool::new(false),
};

/// What all threads share, the I/O thread running or not.
pub(crate) fn shared() -> &'static Shared {
    &SHARED
}

/// What an operation is, in a word of its control block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Task {
    pub(crate) kind: Kind,
    /// It belongs to a list that is told of when it is complete.
    pub(crate) in_list: bool,
}

impl Task {
    /// Of an operation that stands alone.
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, in_list: false }
    }

    /// As it is stored.
    pub(crate) fn word(self) -> u32 {
        self.kind as u32 | u32::from(self.in_list) << 8
    }

    /// From what was stored.
    pub(crate) fn read(word: u32) -> Self {
        let kind = match word & 0xff {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::Sync,
            _ => Kind::DataSync,
        };
        Self { kind, in_list: word & 1 << 8 != 0 }
    }
}

impl Shared {
    /// Hands a chain of blocks over that were begun in this epoch: `top` is the newest, `bottom` the oldest. None is
    /// handed over when the process has been forked since, and this is the child: they are canceled there.
    ///
    /// # Safety
    /// All are marked as in flight and linked; the application leaves them alone until they are complete.
    pub(crate) unsafe fn submit(&self, top: *const ControlBlock, bottom: *const ControlBlock, epoch: u32) {
        // SAFETY: the caller's promise.
        if let Some(sleep) = self.inbox.push(top as usize, unsafe { &(*bottom).link }, || self.epoch() == epoch) {
            self.wake(sleep);
        }
    }

    /// The file that a number means, held where that can be, for an operation of this epoch. Without a descriptor left
    /// the I/O thread is asked to come up to date first, since it gives most of them back as soon as the kernel has the
    /// operation.
    pub(crate) fn find_target(&self, fd: c_int, epoch: u32) -> Target {
        let find = || Target::find(fd, &self.own, |identity| self.kept.pin(fd, identity, || self.epoch() == epoch));
        let target = find();
        if !target.lacks_a_descriptor() || self.is_io_thread() || !self.runs_here() {
            return target;
        }
        self.ask(Request::CatchUp);
        find()
    }

    /// Asks the I/O thread and waits for its answer. In the child of a fork by a signal handler that
    /// interrupts this nothing is left to be done: the answer is 0.
    pub(crate) fn ask(&self, request: Request) -> c_int {
        let epoch = self.epoch();
        let command = Command::place(request);
        if let Some(sleep) = self.inbox.push(command.address(), &command.link, || self.epoch() == epoch) {
            self.wake(sleep);
        }
        // The fork may have come before the first line, after the caller found the I/O thread running.
        let is_child = || self.epoch() != epoch || self.state.load(Ordering::Acquire) == IDLE;
        match command.wait(is_child) {
            Some(answer) => {
                command.give_back();
                answer
            }
            // The place stays taken: a new I/O thread may come upon the command.
            None => 0,
        }
    }

    fn wake(&self, sleep: Sleep) {
        let errno = system::errno();
        self.bell.ring();
        self.inbox.has_ended(sleep);
        system::set_errno(errno);
    }

    /// Whether the I/O thread runs in this process. False in a child that shares our memory (vfork(2)).
    pub(crate) fn runs_here(&self) -> bool {
        self.state.load(Ordering::Acquire) == RUNNING && self.process.load(Ordering::Relaxed) == system::process()
    }

    /// Somebody looked at this block and found it in progress. Who does nothing else has a
    /// processor that the I/O thread may be waiting for, and gives way now and then.
    pub(crate) fn polled(&self, block: *const ControlBlock) {
        if self.polled.load(Ordering::Relaxed) != block as usize {
            self.polled.store(block as usize, Ordering::Relaxed);
            self.polls.store(0, Ordering::Relaxed);
        } else if self.polls.fetch_add(1, Ordering::Relaxed) + 1 == PATIENT_POLLS {
            self.polls.store(0, Ordering::Relaxed);
            let errno = system::errno();
            system::give_way();
            system::set_errno(errno);
        }
    }

    /// Whether the caller is the I/O thread, which can't wait for itself.
    pub(crate) fn is_io_thread(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == system::thread()
    }

    /// Whether the I/O thread was made `SCHED_BATCH`.
    pub(crate) fn runs_as_batch(&self) -> bool {
        self.batch.load(Ordering::Relaxed)
    }

    /// Number of this life, which a fork ends.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Completed requests of the process, once something was submitted.
    pub(crate) fn queue(&self) -> Option<&'static Queue> {
        // SAFETY: null, or a queue that is never given back.
        unsafe { self.queue.load(Ordering::Acquire).as_ref() }
    }

    /// Whether what the kernel has counts as not cancelable (`TAUTAIO_CANCEL=strict`).
    pub(crate) fn cancels_strictly(&self) -> bool {
        self.strict_cancel.load(Ordering::Relaxed)
    }

    pub(super) fn set_state(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        futex::wake(&self.state, i32::MAX);
    }

    pub(super) fn await_start(&self) {
        while self.state.load(Ordering::Acquire) == STARTING {
            futex::sleep(&self.state, STARTING, Deadline::NEVER);
        }
    }
}
