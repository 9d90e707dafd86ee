//! The library in this process: what all threads share, its start with the first operation, and its new start in the
//! child of a fork.
#![expect(unsafe_code, reason = "pthread_atfork(3)")]

pub(crate) mod command;
pub(crate) mod in_flight;
pub(crate) mod queue;

use std::env;
use std::ffi::c_int;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread;

use crate::backend::{Backend, Epoll, Uring};
use crate::interface::control_block::ControlBlock;
use crate::lockfree::announcement::Announcement;
use crate::lockfree::inbox::Inbox;
use crate::service::command::{Command, Request};
use crate::service::in_flight::InFlight;
use crate::service::queue::Queue;
use crate::system::futex;
use crate::system::{self, Deadline, SignalsBlocked};
use crate::worker::Worker;
use crate::worker::order::Kind;

/// Completed requests that are kept for aio_waitcomplete(2) until somebody collects them.
const QUEUE: usize = 1 << 16;

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) inbox: Inbox,
    /// Who waits in aio_suspend(3) or lio_listio(3).
    pub(crate) suspended: Announcement,
    pub(crate) in_flight: InFlight,
    queue: OnceLock<Queue>,
    state: AtomicU32,
    /// How often this process was forked since the library first started in an ancestor.
    epoch: AtomicU32,
    /// The process that the I/O thread runs in.
    process: AtomicI32,
    wake: AtomicI32,
    engine: AtomicI32,
    strict_cancel: AtomicBool,
}

const IDLE: u32 = 0;
const STARTING: u32 = 1;
const RUNNING: u32 = 2;

static SHARED: Shared = Shared {
    inbox: Inbox::new(),
    suspended: Announcement::new(),
    in_flight: InFlight::new(),
    queue: OnceLock::new(),
    state: AtomicU32::new(IDLE),
    epoch: AtomicU32::new(0),
    process: AtomicI32::new(0),
    wake: AtomicI32::new(-1),
    engine: AtomicI32::new(-1),
    strict_cancel: AtomicBool::new(false),
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
    pub(crate) in_list: bool,
    pub(crate) heads_list: bool,
    /// The submitting thread tried it; what that came to is in the block.
    pub(crate) tried: bool,
}

impl Task {
    /// Of an operation that stands alone.
    pub(crate) const fn new(kind: Kind) -> Self {
        Self { kind, in_list: false, heads_list: false, tried: false }
    }

    /// As it is stored.
    pub(crate) fn word(self) -> u32 {
        self.kind as u32 | u32::from(self.in_list) << 8 | u32::from(self.heads_list) << 9 | u32::from(self.tried) << 10
    }

    /// From what was stored.
    pub(crate) fn read(word: u32) -> Self {
        let kind = match word & 0xff {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::Sync,
            _ => Kind::DataSync,
        };
        Self { kind, in_list: word & 1 << 8 != 0, heads_list: word & 1 << 9 != 0, tried: word & 1 << 10 != 0 }
    }
}

impl Shared {
    /// Hands a chain of blocks over: `top` is the newest, `bottom` the oldest.
    ///
    /// # Safety
    /// All are marked as in flight and linked; the application leaves them alone until they are complete.
    pub(crate) unsafe fn submit(&self, top: *const ControlBlock, bottom: *const ControlBlock) {
        // SAFETY: the caller's promise.
        if self.inbox.push(top as usize, unsafe { &(*bottom).link }) {
            self.wake();
        }
    }

    /// Asks the I/O thread and waits for its answer.
    pub(crate) fn ask(&self, request: Request) -> c_int {
        let command = Command::new(request);
        if self.inbox.push(command.address(), &command.link) {
            self.wake();
        }
        command.wait()
    }

    fn wake(&self) {
        let errno = system::errno();
        system::signal_event_fd(self.wake.load(Ordering::Relaxed), 1);
        system::set_errno(errno);
    }

    /// Whether the I/O thread runs in this process. False in a child that shares our memory (vfork(2)).
    pub(crate) fn runs_here(&self) -> bool {
        self.state.load(Ordering::Acquire) == RUNNING && self.process.load(Ordering::Relaxed) == system::process()
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

    /// Whether a descriptor is the library's own.
    pub(crate) fn owns(&self, fd: c_int) -> bool {
        fd >= 0 && self.own().contains(&fd)
    }

    /// The library's own descriptors.
    pub(crate) fn own(&self) -> [c_int; 3] {
        let event_fd = self.queue().and_then(Queue::present_event_fd).unwrap_or(-1);
        [self.wake.load(Ordering::Relaxed), self.engine.load(Ordering::Relaxed), event_fd]
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
        static AT_FORK: OnceLock<()> = OnceLock::new();
        AT_FORK.get_or_init(|| {
            // SAFETY: the handlers keep to what is allowed between fork and exec: no lock, no allocation.
            unsafe { libc::pthread_atfork(Some(before_fork), None, Some(after_fork_in_child)) };
        });
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
        let wake = system::event_fd().map_err(io::Error::from_raw_os_error)?;
        self.wake.store(wake, Ordering::Relaxed);
        let run = move || match choose_engine(wake) {
            Ok((backend, fd)) => {
                self.engine.store(fd, Ordering::Relaxed);
                let worker = Worker::new(self, queue, backend);
                if env::var_os("TAUTAIO_SCHED").is_none_or(|how| how != "other") {
                    // Who wakes us is in the middle of its own work and goes on with it on a shared core, instead of being
                    // preempted for each operation that it submits (kernel/sched/fair.c, check_preempt_wakeup_fair).
                    system::schedule_as_batch();
                }
                self.set_state(RUNNING);
                worker.run()
            }
            Err(error) => {
                log(|| format!("cannot start: {error}"));
                self.abandon(wake);
                self.set_state(IDLE);
            }
        };
        thread::Builder::new().name("tautaio".to_owned()).spawn(run).map(|_| ()).inspect_err(|_| self.abandon(wake))
    }

    fn abandon(&self, wake: c_int) {
        self.wake.store(-1, Ordering::Relaxed);
        system::close(wake);
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

/// The engine that `TAUTAIO_ENGINE` names, or the best that works; with its descriptor.
fn choose_engine(wake: c_int) -> io::Result<(Box<dyn Backend>, c_int)> {
    let wanted = env::var("TAUTAIO_ENGINE").unwrap_or_default();
    if wanted != "epoll" {
        match Uring::new(wake) {
            Ok(uring) => {
                log(|| "engine io_uring".to_owned());
                let fd = uring.fd();
                return Ok((Box::new(uring), fd));
            }
            Err(error) if wanted == "uring" => {
                return Err(io::Error::new(error.kind(), format!("io_uring is refused: {error}")));
            }
            Err(error) => log(|| format!("engine epoll (io_uring refused: {error})")),
        }
    } else {
        log(|| "engine epoll (as TAUTAIO_ENGINE asks)".to_owned());
    }
    let epoll = Epoll::new(wake)?;
    let fd = epoll.fd();
    Ok((Box::new(epoll), fd))
}

/// A line on stderr for those who asked for it.
fn log(line: impl FnOnce() -> String) {
    if env::var_os("TAUTAIO_LOG").is_some_and(|level| level == "info") {
        eprintln!("tautaio: {}", line());
    }
}

/// A start that is under way in another thread would never end in the child.
extern "C" fn before_fork() {
    SHARED.await_start();
}

/// The child has no I/O thread, and its operations are not the parent's.
extern "C" fn after_fork_in_child() {
    if SHARED.state.load(Ordering::Relaxed) == IDLE {
        return;
    }
    for fd in [&SHARED.wake, &SHARED.engine] {
        let fd = fd.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            system::close(fd);
        }
    }
    SHARED.inbox.reset();
    SHARED.suspended.reset();
    SHARED.in_flight.reset();
    if let Some(queue) = SHARED.queue() {
        queue.reset();
    }
    SHARED.epoch.fetch_add(1, Ordering::Relaxed);
    SHARED.state.store(IDLE, Ordering::Relaxed);
}
