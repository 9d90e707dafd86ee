//! A few threads for what blocks whatever one does: regular files without io_uring.
#![expect(unsafe_code, reason = "reads and writes the application's memory")]

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::{Job, Outcome};
use crate::service::{AbortOnPanic, shared};
use crate::system::{self, arena, bell::Bell};
use crate::worker::order::{Class, Kind};

/// Threads at most. Enough to keep a disk's queue filled, few enough to start and forget.
const MOST_THREADS: usize = 8;

/// Threads that carry blocking steps out, all but the first started when there is work for them.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: usize,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    /// Tells the I/O thread that something is done.
    bell: &'static Bell,
}

#[derive(Default)]
struct State {
    waiting: Waiting,
    done: Vec<Outcome>,
    idle: usize,
}

/// Steps that nobody has begun, the oldest first. To take one back takes no longer the more there are.
#[derive(Default)]
struct Waiting {
    /// With some that were taken back.
    jobs: VecDeque<Job>,
    wanted: HashSet<u64>,
}

impl Waiting {
    fn push(&mut self, job: Job) {
        self.wanted.insert(job.id);
        self.jobs.push_back(job);
    }

    fn pop(&mut self) -> Option<Job> {
        loop {
            let job = self.jobs.pop_front()?;
            if self.wanted.remove(&job.id) {
                return Some(job);
            }
        }
    }

    fn take_back(&mut self, id: u64) -> bool {
        let is_there = self.wanted.remove(&id);
        if self.jobs.len() > 2 * self.wanted.len() + 64 {
            self.jobs.retain(|job| self.wanted.contains(&job.id));
        }
        is_there
    }

    fn len(&self) -> usize {
        self.wanted.len()
    }
}

impl Pool {
    pub(crate) fn new(bell: &'static Bell) -> Self {
        let shared = Shared { state: Mutex::default(), work: Condvar::new(), bell };
        let shared = Arc::new(shared);
        // Others are started when there is work for them, and not while their starter waits for a lock of malloc(3).
        let threads = usize::from(shared.start_thread());
        Self { shared, threads }
    }

    /// Hands a step over.
    pub(crate) fn submit(&mut self, job: Job) {
        let mut state = self.shared.lock();
        state.waiting.push(job);
        let short_of_threads = state.waiting.len() > state.idle;
        drop(state);
        if short_of_threads && self.threads < MOST_THREADS {
            self.threads += 1;
            let pool = Arc::clone(&self.shared);
            shared().starter.ask(Box::new(move || {
                let is_started = pool.start_thread();
                if !is_started {
                    // Who was to start it does what it would have done, until the system has room for it.
                    drop(pool.work_off(pool.lock()));
                }
                is_started
            }));
        }
        self.shared.work.notify_one();
    }

    /// Takes a step back that nobody has begun.
    pub(crate) fn withdraw(&self, id: u64) -> bool {
        self.shared.lock().waiting.take_back(id)
    }

    /// What was done since it was last asked.
    pub(crate) fn collect(&self, outcomes: &mut Vec<Outcome>) {
        if self.threads > 0 {
            outcomes.append(&mut self.shared.lock().done);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_thread(self: &Arc<Self>) -> bool {
        let pool = Arc::clone(self);
        // Whoever starts it has all signals blocked, which it inherits.
        let work = move || {
            arena::take_from_arena();
            let _alive = AbortOnPanic;
            if shared().runs_as_batch() {
                system::schedule_as_batch();
            }
            pool.work()
        };
        thread::Builder::new().name("tautaio-file".to_owned()).spawn(work).is_ok()
    }

    /// Does all there is to do.
    fn work_off<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while let Some(job) = state.waiting.pop() {
            drop(state);
            let result = carry_out(&job);
            state = self.lock();
            state.done.push(Outcome::Done { id: job.id, result, emptied: false });
            if state.done.len() == 1 {
                self.bell.ring();
            }
        }
        state
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            state = self.work_off(state);
            state.idle += 1;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

/// Does it, and gives a count or a negative errno.
pub(crate) fn carry_out(job: &Job) -> isize {
    let buffer = job.buffer as *mut libc::c_void;
    let length = job.length as usize;
    let offset = job.offset;
    let Some(fd) = job.descriptor() else { return -(libc::ECANCELED as isize) };
    // SAFETY: the application lends its memory until the operation is complete (POSIX aio.h).
    let result = unsafe {
        match (job.kind, job.class) {
            (Kind::Read, Class::File { .. }) => libc::pread(fd, buffer, length, offset),
            (Kind::Write, Class::File { .. }) => libc::pwrite(fd, buffer, length, offset),
            (Kind::Read, Class::Socket | Class::Stream) => libc::read(fd, buffer, length),
            (Kind::Write, Class::Socket | Class::Stream) => libc::write(fd, buffer, length),
            (Kind::Sync, _) => libc::fsync(fd) as isize,
            (Kind::DataSync, _) => libc::fdatasync(fd) as isize,
        }
    };
    job.outcome(system::check(result).unwrap_or_else(|errno| -(errno as isize)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Place;

    fn job(id: u64) -> Job {
        Job {
            id,
            kind: Kind::Read,
            class: Class::Stream,
            place: Place::Descriptor(-1),
            identity: 0,
            buffer: 0,
            length: 0,
            offset: 0,
            likely_empty: false,
            may_block: false,
        }
    }

    #[test]
    fn what_is_taken_back_does_not_come() {
        let mut waiting = Waiting::default();
        (0..5).for_each(|id| waiting.push(job(id)));
        assert!(waiting.take_back(0) && waiting.take_back(3) && !waiting.take_back(3) && !waiting.take_back(9));
        assert_eq!(waiting.len(), 3);
        let rest: Vec<u64> = std::iter::from_fn(|| waiting.pop()).map(|job| job.id).collect();
        assert_eq!(rest, [1, 2, 4]);
        assert!(!waiting.take_back(1));
    }

    #[test]
    fn to_take_all_back_is_not_quadratic() {
        const MANY: u64 = 500_000;
        let mut waiting = Waiting::default();
        (0..MANY).for_each(|id| waiting.push(job(id)));
        let begun = std::time::Instant::now();
        assert!((0..MANY).all(|id| waiting.take_back(id)));
        // Linear it is a fraction of a second, quadratic minutes.
        assert!(begun.elapsed() < std::time::Duration::from_secs(20));
        assert!(waiting.jobs.len() <= 64, "what was taken back is kept");
    }
}
