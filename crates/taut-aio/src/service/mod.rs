//! The library in this process: what all threads share, its start with the first operation, and its new start in the
//! child of a fork.
#![expect(unsafe_code, reason = "pthread_atfork(3)")]

mod abort;
pub(crate) mod command;
pub(crate) mod queue;
mod shared;
pub(crate) mod starter;
pub(crate) mod target;

use std::env;
use std::ffi::c_int;
use std::io;
use std::sync::atomic::Ordering;
use std::thread;

use crate::backend::{Backend, Epoll, Uring};
use crate::service::command::Command;
use crate::service::queue::Queue;
use crate::system::{self, SignalsBlocked, arena};
use crate::worker::Worker;

pub(crate) use abort::AbortOnPanic;
pub(crate) use shared::{COUNTED, Shared, Task, shared};
use shared::{IDLE, RUNNING, SHARED, STARTING};

/// Completed requests that are kept for aio_waitcomplete(2) until somebody collects them.
const QUEUE: usize = 1 << 16;

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

/// After a submission: a signal handler that interrupted it may have forked, and in the child nobody serves it yet.
pub(crate) fn mind_fork() {
    if SHARED.state.load(Ordering::Acquire) != RUNNING {
        // Without one it stays in progress, until another call starts one.
        let _ = started();
    }
}

impl Shared {
    #[cold]
    fn start(&'static self) -> Result<(), ()> {
        // The new thread inherits that; and a handler here could not start what we are starting.
        let _blocked = SignalsBlocked::new();
        loop {
            // Not amid a fork: the child would have half of a start, and a descriptor that nobody knows.
            let no_forks = self.own.keep_forks_away();
            let state = self.state.compare_exchange(IDLE, STARTING, Ordering::AcqRel, Ordering::Acquire);
            drop(no_forks);
            match state {
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
        let queue = self.queue().unwrap_or_else(|| self.make_queue());
        self.own.settle();
        let run = move || {
            // Before it allocates anything.
            arena::take_from_arena();
            self.run(queue);
        };
        thread::Builder::new().name("tautaio".to_owned()).spawn(run).map(|_| ())
    }

    fn make_queue(&self) -> &'static Queue {
        let queue = Box::leak(Box::new(Queue::new(QUEUE)));
        self.queue.store(queue, Ordering::Release);
        queue
    }

    /// What the I/O thread does.
    fn run(&'static self, queue: &'static Queue) {
        // Whose threads are the application's: they are scheduled as it is.
        let started = self.starter.run();
        // Who wakes us is in the middle of its own work and goes on with it on a shared core, instead of being
        // preempted for each operation that it submits (kernel/sched/fair.c, check_preempt_wakeup_fair).
        let batch = env::var_os("TAUTAIO_SCHED").is_none_or(|how| how != "other") && system::schedule_as_batch();
        self.batch.store(batch, Ordering::Relaxed);
        match started.and_then(|()| choose_engine(self)) {
            Ok(backend) => {
                let worker = Worker::new(self, queue, backend);
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
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork_in_child)) };
    }
    mind_forks
};

/// A start that is under way in another thread would never end in the child, which would keep a descriptor that another
/// thread has just opened.
extern "C" fn before_fork() {
    loop {
        SHARED.await_start();
        SHARED.own.before_fork();
        // None begins any more, but one may have begun before.
        if SHARED.state.load(Ordering::Acquire) != STARTING {
            return;
        }
        SHARED.own.after_fork();
    }
}

extern "C" fn after_fork() {
    SHARED.own.after_fork();
}

/// The child has no I/O thread, and its operations are not the parent's.
extern "C" fn after_fork_in_child() {
    SHARED.own.after_fork_in_child();
    arena::after_fork_in_child();
    if SHARED.state.load(Ordering::Relaxed) == IDLE {
        return;
    }
    SHARED.bell.take_event_fd();
    SHARED.own.close_all();
    SHARED.thread.store(0, Ordering::Relaxed);
    SHARED.inbox.reset();
    SHARED.suspended.reset();
    SHARED.in_flight.reset();
    SHARED.starter.reset();
    SHARED.kept.reset();
    if let Some(queue) = SHARED.queue() {
        queue.reset();
    }
    Command::forget_all();
    SHARED.epoch.fetch_add(1, Ordering::Relaxed);
    SHARED.state.store(IDLE, Ordering::Relaxed);
}
