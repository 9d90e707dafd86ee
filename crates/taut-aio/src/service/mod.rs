//! The library in this process: what all threads share, its start with the first operation, and its new start in the
//! child of a fork.
#![expect(unsafe_code, reason = "pthread_atfork(3)")]

pub(crate) mod command;
pub(crate) mod queue;
pub(crate) mod target;

use std::env;
use std::ffi::c_int;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::thread;

use crate::backend::{Backend, Epoll, Uring};
use crate::interface::control_block::ControlBlock;
use crate::lockfree::announcement::Announcement;
use crate::lockfree::in_flight::InFlight;
use crate::lockfree::inbox::{Inbox, Sleep};
use crate::service::command::{Command, Request};
use crate::service::queue::Queue;
use crate::service::target::Target;
use crate::system::bell::Bell;
use crate::system::file::FileKind;
use crate::system::futex;
use crate::system::own::OwnDescriptors;
use crate::system::{self, Deadline, SignalsBlocked};
use crate::worker::Worker;
use crate::worker::order::Kind;

/// Completed requests that are kept for aio_waitcomplete(2) until somebody collects them.
const QUEUE: usize = 1 << 16;

/// Descriptors whose operations are counted one by one.
const COUNTED: usize = 1 << 16;

/// How often a block is asked about in a row before the processor is offered to others. A few hundred nanoseconds' worth,
/// which is what the offer costs where nobody takes it.
const PATIENT_POLLS: u32 = 16;

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) inbox: Inbox,
    /// Who waits in aio_suspend(3) or lio_listio(3).
    pub(crate) suspended: Announcement,
    pub(crate) in_flight: InFlight<COUNTED>,
    /// The library's own descriptors.
    pub(crate) own: OwnDescriptors,
    /// Wakes the I/O thread.
    pub(crate) bell: Bell,
    queue: OnceLock<Queue>,
    state: AtomicU32,
    /// How often this process was forked since the library first started in an ancestor.
    epoch: AtomicU32,
    /// The process that the I/O thread runs in.
    process: AtomicI32,
    strict_cancel: AtomicBool,
    /// The I/O thread, as [`system::thread`] tells threads apart.
    thread: AtomicUsize,
    /// The block that was asked about last and was in progress, and how often it was since.
    polled: AtomicUsize,
    polls: AtomicU32,
    /// The I/O thread was made `SCHED_BATCH`.
    batch: AtomicBool,
}

const IDLE: u32 = 0;
const STARTING: u32 = 1;
const RUNNING: u32 = 2;

static SHARED: Shared = Shared {
    inbox: Inbox::new(),
    suspended: Announcement::new(),
    in_flight: InFlight::new(),
    own: OwnDescriptors::new(),
    bell: Bell::new(),
    queue: OnceLock::new(),
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

/// What all threads share, with the I/O thread running.
///
/// # Errors
/// `EAGAIN`: it could not be started.
pub(crate) fn started() -> Result<&'static Shared, c_int> {
    if SHARED.state.load(Ordering::Acquire) == RUNNING {
        return Ok(&SHARED);
    }
    SHARED.start().map(|()| &SHARED).map_err(|()| libc::EAGAIN)
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
    /// Hands a chain of blocks over: `top` is the newest, `bottom` the oldest.
    ///
    /// # Safety
    /// All are marked as in flight and linked; the application leaves them alone until they are complete.
    pub(crate) unsafe fn submit(&self, top: *const ControlBlock, bottom: *const ControlBlock) {
        // SAFETY: the caller's promise.
        if let Some(sleep) = self.inbox.push(top as usize, unsafe { &(*bottom).link }) {
            self.wake(sleep);
        }
    }

    /// The file that a number means, held where that can be. Without a descriptor left the I/O thread is asked to come up to
    /// date first, since it gives most of them back as soon as the kernel has the operation.
    pub(crate) fn find_target(&self, fd: c_int) -> Target {
        let target = Target::find(fd, &self.own);
        let lacks_one = target.own.is_none() && target.kind.is_some_and(FileKind::may_be_duplicated);
        if !lacks_one || self.is_io_thread() || !self.runs_here() {
            return target;
        }
        self.ask(Request::CatchUp);
        Target::find(fd, &self.own)
    }

    /// Asks the I/O thread and waits for its answer.
    pub(crate) fn ask(&self, request: Request) -> c_int {
        let command = Command::new(request);
        if let Some(sleep) = self.inbox.push(command.address(), &command.link) {
            self.wake(sleep);
        }
        command.wait()
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

    /// Somebody looked at this block and found it in progress. Who does nothing else has a processor that the I/O thread may
    /// be waiting for, and gives way now and then.
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

    /// Whether the I/O thread was made `SCHED_BATCH`, which threads that it starts inherit.
    pub(crate) fn runs_as_batch(&self) -> bool {
        self.batch.load(Ordering::Relaxed)
    }

    /// Number of this life, which a fork ends.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Completed requests of the process, once something was submitted.
    pub(crate) fn queue(&self) -> Option<&Queue> {
        self.queue.get()
    }

    /// Whether what the kernel has counts as not cancelable (`TAUTAIO_CANCEL=strict`).
    pub(crate) fn cancels_strictly(&self) -> bool {
        self.strict_cancel.load(Ordering::Relaxed)
    }

    #[cold]
    fn start(&'static self) -> Result<(), ()> {
        // The new thread inherits that; and a handler here could not start what we are starting.
        let _blocked = SignalsBlocked::new();
        loop {
            match self.state.compare_exchange(IDLE, STARTING, Ordering::AcqRel, Ordering::Acquire) {
                Err(RUNNING) => return Ok(()),
                Err(_) => self.await_start(),
                Ok(_) => break,
            }
        }
        let begun = self.begin();
        if let Err(error) = &begun {
            log(|| format!("cannot start: {error}"));
            self.set_state(IDLE);
            return Err(());
        }
        self.await_start();
        if self.state.load(Ordering::Acquire) == RUNNING { Ok(()) } else { Err(()) }
    }

    fn begin(&'static self) -> io::Result<()> {
        self.strict_cancel.store(env::var_os("TAUTAIO_CANCEL").is_some_and(|how| how == "strict"), Ordering::Relaxed);
        self.process.store(system::process(), Ordering::Relaxed);
        let queue = self.queue.get_or_init(|| Queue::new(QUEUE));
        self.own.settle();
        let run = move || match choose_engine(self) {
            Ok(backend) => {
                let worker = Worker::new(self, queue, backend);
                // Who wakes us is in the middle of its own work and goes on with it on a shared core, instead of being
                // preempted for each operation that it submits (kernel/sched/fair.c, check_preempt_wakeup_fair).
                let batch =
                    env::var_os("TAUTAIO_SCHED").is_none_or(|how| how != "other") && system::schedule_as_batch();
                self.batch.store(batch, Ordering::Relaxed);
                self.thread.store(system::thread(), Ordering::Relaxed);
                self.set_state(RUNNING);
                // Without this thread everybody would wait for ever.
                let _alive = AbortOnPanic;
                #[cfg(debug_assertions)]
                assert!(env::var_os("TAUTAIO_PANIC").is_none(), "as TAUTAIO_PANIC asks");
                worker.run()
            }
            Err(error) => {
                log(|| format!("cannot start: {error}"));
                if let Some(event_fd) = self.bell.take_event_fd() {
                    self.own.close(event_fd);
                }
                self.set_state(IDLE);
            }
        };
        thread::Builder::new().name("tautaio".to_owned()).spawn(run).map(|_| ())
    }

    fn set_state(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        futex::wake(&self.state, i32::MAX);
    }

    fn await_start(&self) {
        while self.state.load(Ordering::Acquire) == STARTING {
            futex::sleep(&self.state, STARTING, Deadline::NEVER);
        }
    }
}

/// Ends the process when the thread that has it panics: a bug of ours, after which no operation would ever end.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("tautaio: an internal error, told above; the process is ended, as its requests can't go on");
            std::process::abort();
        }
    }
}

/// The engine that `TAUTAIO_ENGINE` names, or the best that works.
fn choose_engine(shared: &'static Shared) -> io::Result<Box<dyn Backend>> {
    let wanted = env::var("TAUTAIO_ENGINE").unwrap_or_default();
    if wanted != "epoll" {
        match Uring::new(&shared.bell, &shared.own) {
            Ok(uring) => {
                log(|| "engine io_uring".to_owned());
                return Ok(Box::new(uring));
            }
            Err(error) if wanted == "uring" => {
                return Err(io::Error::new(error.kind(), format!("io_uring is refused: {error}")));
            }
            Err(error) => log(|| format!("engine epoll (io_uring refused: {error})")),
        }
    } else {
        log(|| "engine epoll (as TAUTAIO_ENGINE asks)".to_owned());
    }
    Ok(Box::new(Epoll::new(&shared.bell, &shared.own)?))
}

/// A line on stderr for those who asked for it.
fn log(line: impl FnOnce() -> String) {
    if env::var_os("TAUTAIO_LOG").is_some_and(|level| level == "info") {
        // In one piece: others may write to the same place.
        let line = format!("tautaio: {}\n", line());
        eprint!("{line}");
    }
}

/// Before main: a fork in any moment of the first start finds the handlers. Miri knows no forks.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn mind_forks() {
        // SAFETY: the handlers keep to what is allowed between fork and exec: no lock, no allocation.
        unsafe { libc::pthread_atfork(Some(before_fork), None, Some(after_fork_in_child)) };
    }
    mind_forks
};

/// A start that is under way in another thread would never end in the child.
extern "C" fn before_fork() {
    SHARED.await_start();
}

/// The child has no I/O thread, and its operations are not the parent's.
extern "C" fn after_fork_in_child() {
    if SHARED.state.load(Ordering::Relaxed) == IDLE {
        return;
    }
    SHARED.bell.take_event_fd();
    SHARED.own.close_all();
    SHARED.thread.store(0, Ordering::Relaxed);
    SHARED.inbox.reset();
    SHARED.suspended.reset();
    SHARED.in_flight.reset();
    if let Some(queue) = SHARED.queue() {
        queue.reset();
    }
    SHARED.epoch.fetch_add(1, Ordering::Relaxed);
    SHARED.state.store(IDLE, Ordering::Relaxed);
}
