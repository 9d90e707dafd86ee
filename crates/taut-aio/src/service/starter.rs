//! The thread that starts others: functions of `SIGEV_THREAD`, and threads for files.
//!
//! pthread_create(3) allocates by malloc(3), whose lock a thread may have whose signal handler waits for a request. So
//! the I/O thread, which would complete that request, does not call it.
#![expect(unsafe_code, reason = "what is to be done goes from thread to thread by its address")]

use std::collections::VecDeque;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::AbortOnPanic;
use crate::system::{Deadline, arena, futex};

/// How often what the system has no room for is tried again.
const AGAIN: Duration = Duration::from_millis(1);

/// What is to be done; false asks for another try a little later.
pub(crate) type Task = Box<dyn FnMut() -> bool + Send>;

/// What is to be done, from any of the library's threads to the one that does it.
#[derive(Debug)]
pub(crate) struct Starter {
    top: AtomicPtr<Letter>,
    /// Changes with each letter.
    rung: AtomicU32,
    runs: AtomicBool,
}

struct Letter {
    task: Task,
    below: *mut Self,
}

impl Starter {
    pub(crate) const fn new() -> Self {
        Self { top: AtomicPtr::new(ptr::null_mut()), rung: AtomicU32::new(0), runs: AtomicBool::new(false) }
    }

    /// Starts the thread, which has the scheduling of its caller, the first time.
    ///
    /// # Errors
    /// Those of pthread_create(3).
    pub(crate) fn run(&'static self) -> io::Result<()> {
        if self.runs.load(Ordering::Relaxed) {
            return Ok(());
        }
        let work = || {
            arena::take_from_arena();
            let _alive = AbortOnPanic;
            self.work()
        };
        thread::Builder::new().name("tautaio-starter".to_owned()).spawn(work)?;
        self.runs.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Has it done, one after the other.
    pub(crate) fn ask(&self, task: Task) {
        let letter = Box::into_raw(Box::new(Letter { task, below: ptr::null_mut() }));
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // SAFETY: it is ours until it is pushed.
            unsafe { (*letter).below = top };
            match self.top.compare_exchange_weak(top, letter, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => top = now,
            }
        }
        self.rung.fetch_add(1, Ordering::Release);
        futex::wake(&self.rung, 1);
    }

    fn work(&self) -> ! {
        let mut tasks: VecDeque<Task> = VecDeque::new();
        loop {
            let rung = self.rung.load(Ordering::Acquire);
            self.take(&mut tasks);
            while let Some(mut task) = tasks.pop_front() {
                if !task() {
                    // It may never succeed: the others are tried before it, next time.
                    tasks.push_back(task);
                    break;
                }
            }
            let deadline = if tasks.is_empty() { Deadline::NEVER } else { Deadline::after(AGAIN) };
            futex::sleep(&self.rung, rung, deadline);
        }
    }

    /// Takes what was asked for, the oldest first.
    fn take(&self, tasks: &mut VecDeque<Task>) {
        let mut letter = self.top.swap(ptr::null_mut(), Ordering::Acquire);
        let known = tasks.len();
        while !letter.is_null() {
            // SAFETY: pushed by `ask`, and taken by us alone.
            let Letter { task, below } = *unsafe { Box::from_raw(letter) };
            tasks.insert(known, task);
            letter = below;
        }
    }

    /// For the child of a fork, which has no such thread yet.
    pub(crate) fn reset(&self) {
        self.top.store(ptr::null_mut(), Ordering::Relaxed);
        self.runs.store(false, Ordering::Relaxed);
    }
}
