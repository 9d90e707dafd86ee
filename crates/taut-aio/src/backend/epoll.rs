//! epoll(7) where io_uring is refused: streams are tried at once and then wait for readiness, files go to a pool.
//!
//! Registrations are one-shot and armed anew for each wait: an operation that is in flight has one, an idle descriptor
//! none, so a reused number finds nothing stale.
#![expect(unsafe_code, reason = "reads and writes the application's memory")]

use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::mem;
use std::time::Duration;

use super::pool::Pool;
use super::{Backend, Job, Outcome, Place};
use crate::system;
use crate::system::bell::{self, Bell};
use crate::system::file::{self, FileKind};
use crate::system::own::OwnDescriptors;
use crate::worker::order::{Class, Kind};

/// Events fetched at once.
const EVENTS: usize = 1024;
/// How often an idle engine looks whether its own descriptors are still there, in milliseconds.
const LOOK_MS: c_int = 1000;
/// What stands for the eventfd among the events' data; descriptors are below.
const WAKE: u64 = u64::MAX;

/// An epoll instance and what waits on it.
pub(crate) struct Epoll {
    fd: c_int,
    bell: &'static Bell,
    own: &'static OwnDescriptors,
    /// Steps that wait for readiness, by descriptor.
    waiting: HashMap<c_int, Waiting>,
    /// Descriptor and direction of each step that waits.
    places: HashMap<u64, (c_int, Kind)>,
    done: Vec<Outcome>,
    pool: Pool,
    events: Vec<libc::epoll_event>,
}

/// At most one of each: streams are served one read and one write at a time.
#[derive(Default)]
struct Waiting {
    read: Option<Step>,
    write: Option<Step>,
    /// It has told of an error that is no step's, as a socket does whose error queue nobody reads: that would be told
    /// again and again, but for changes alone.
    only_changes: bool,
}

/// A step that waits.
#[derive(Clone, Copy)]
struct Step {
    job: Job,
    /// Only readiness was asked for; the worker goes on.
    only_readiness: bool,
}

impl Epoll {
    /// An epoll instance that listens to the bell.
    ///
    /// # Errors
    /// The kernel is short of descriptors or memory.
    pub(crate) fn new(bell: &'static Bell, own: &'static OwnDescriptors) -> io::Result<Self> {
        let mut epoll = Self {
            fd: -1,
            bell,
            own,
            waiting: HashMap::new(),
            places: HashMap::new(),
            done: Vec::new(),
            pool: Pool::new(bell),
            events: Vec::with_capacity(EVENTS),
        };
        epoll.open().map_err(io::Error::from_raw_os_error)?;
        Ok(epoll)
    }

    /// Makes the descriptors that are the engine's own.
    fn open(&mut self) -> Result<(), c_int> {
        let wake = self.bell.make_event_fd(self.own)?;
        self.fd = self.own.adopt(|| {
            // SAFETY: no memory is passed.
            system::check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } as isize).map(|made| made as c_int)
        })?;
        self.control(libc::EPOLL_CTL_ADD, wake, libc::EPOLLIN as u32, WAKE)
    }

    /// Whether the engine's own descriptors are what they were.
    fn is_whole(&self) -> bool {
        let is_anonymous = |fd| file::look(fd).is_ok_and(|meaning| meaning.kind == FileKind::Anonymous);
        is_anonymous(self.fd) && self.bell.event_fd().is_some_and(is_anonymous)
    }

    /// Somebody has closed the engine's own descriptors behind our back: makes new ones, and arms what waits anew.
    fn mend(&mut self) {
        for lost in [Some(self.fd), self.bell.event_fd()].into_iter().flatten() {
            self.own.forget(lost);
        }
        if self.open().is_err() {
            // Once more a little later.
            return;
        }
        let waiting: Vec<c_int> = self.waiting.keys().copied().collect();
        for fd in waiting {
            let waiting = self.waiting.get(&fd);
            let steps = waiting.map(|waiting| [waiting.read, waiting.write]).into_iter().flatten().flatten();
            if steps.map(|step| step.job).any(|job| job.descriptor().is_none()) {
                self.fail(fd, libc::ECANCELED);
            } else if let Err(errno) = self.arm(fd) {
                self.fail(fd, errno);
            }
        }
    }

    fn control(&self, operation: c_int, fd: c_int, events: u32, data: u64) -> Result<(), c_int> {
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: the event outlives the call.
        system::check(unsafe { libc::epoll_ctl(self.fd, operation, fd, &raw mut event) } as isize).map(|_| ())
    }

    /// Arms the descriptor's registration for what waits on it.
    fn arm(&self, fd: c_int) -> Result<(), c_int> {
        let Some(waiting) = self.waiting.get(&fd) else { return Ok(()) };
        let mut events = if waiting.only_changes { libc::EPOLLET } else { libc::EPOLLONESHOT } as u32;
        if waiting.read.is_some() {
            events |= libc::EPOLLIN as u32;
        }
        if waiting.write.is_some() {
            events |= libc::EPOLLOUT as u32;
        }
        match self.control(libc::EPOLL_CTL_MOD, fd, events, fd as u64) {
            Err(libc::ENOENT) => self.control(libc::EPOLL_CTL_ADD, fd, events, fd as u64),
            result => result,
        }
    }

    fn wait_for(&mut self, step: Step) {
        let Job { id, kind, .. } = step.job;
        let Place::Descriptor(fd) = step.job.place else { return self.finish(id, -(libc::EBADF as isize)) };
        let waiting = self.waiting.entry(fd).or_default();
        let place = if kind == Kind::Read { &mut waiting.read } else { &mut waiting.write };
        *place = Some(step);
        self.places.insert(id, (fd, kind));
        let armed = self.arm(fd);
        if armed.is_err() && !self.is_whole() {
            // Its own descriptors are lost, and made anew with all that waits.
            return self.mend();
        }
        match armed {
            Ok(()) => {}
            // Always ready: not a thing that epoll knows to wait for.
            Err(libc::EPERM) => {
                self.forget(id);
                self.pool.submit(step.job);
            }
            Err(errno) => {
                self.forget(id);
                self.finish(id, step.job.outcome(-(errno as isize)));
            }
        }
    }

    /// Takes a step out of those that wait.
    fn forget(&mut self, id: u64) -> Option<Step> {
        let (fd, kind) = self.places.remove(&id)?;
        let waiting = self.waiting.get_mut(&fd)?;
        let step = if kind == Kind::Read { waiting.read.take() } else { waiting.write.take() };
        if waiting.read.is_none() && waiting.write.is_none() {
            self.waiting.remove(&fd);
            // Nobody is left to wait for it. It is gone by itself when the descriptor was closed.
            let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
        step
    }

    fn finish(&mut self, id: u64, result: isize) {
        self.done.push(Outcome::Done { id, result, emptied: false });
    }

    /// Tries a step without blocking; lets it wait when it can't be done now.
    fn attempt(&mut self, job: Job) {
        let Place::Descriptor(fd) = job.place else { return self.finish(job.id, -(libc::EBADF as isize)) };
        match try_now(&job, fd) {
            Attempt::Result(result) => self.finish(job.id, job.outcome(result)),
            Attempt::NotYet => self.wait_for(Step { job, only_readiness: false }),
            Attempt::MayBlock => self.pool.submit(bounded(job)),
        }
    }

    fn ready(&mut self, fd: c_int, events: u32) {
        let Some(waiting) = self.waiting.get(&fd) else { return };
        let broken = events & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
        let readable = broken || events & libc::EPOLLIN as u32 != 0;
        let writable = broken || events & libc::EPOLLOUT as u32 != 0;
        let steps = [waiting.read.filter(|_| readable), waiting.write.filter(|_| writable)];
        for step in steps.into_iter().flatten() {
            let id = step.job.id;
            if step.only_readiness {
                self.forget(id);
                self.done.push(Outcome::Ready { id });
                continue;
            }
            // It may mean another file by now, whose data are not this operation's.
            let Some(fd) = step.job.descriptor() else {
                self.forget(id);
                self.finish(id, -(libc::ECANCELED as isize));
                continue;
            };
            match try_now(&step.job, fd) {
                Attempt::Result(result) => {
                    self.forget(id);
                    self.finish(id, step.job.outcome(result));
                }
                Attempt::NotYet => {}
                Attempt::MayBlock => {
                    self.forget(id);
                    self.pool.submit(bounded(step.job));
                }
            }
        }
        let Some(waiting) = self.waiting.get_mut(&fd) else { return };
        if waiting.only_changes {
            return;
        }
        waiting.only_changes = events & (libc::EPOLLIN | libc::EPOLLOUT) as u32 == 0;
        // What still waits has to be armed anew.
        if let Err(errno) = self.arm(fd) {
            self.fail(fd, errno);
        }
    }

    /// Ends what waits on a descriptor.
    fn fail(&mut self, fd: c_int, errno: c_int) {
        let Some(waiting) = self.waiting.get(&fd) else { return };
        let left = [waiting.read, waiting.write];
        for step in left.into_iter().flatten() {
            self.forget(step.job.id);
            self.finish(step.job.id, step.job.outcome(-(errno as isize)));
        }
    }
}

/// What a try without blocking came to.
enum Attempt {
    Result(isize),
    NotYet,
    /// Ready, but this kernel can't be kept from blocking on it.
    MayBlock,
}

/// A write on what is ready, as far as a pipe takes it without having the thread wait: it could not be stopped then.
fn bounded(job: Job) -> Job {
    let most = if job.kind == Kind::Write { libc::PIPE_BUF as u32 } else { u32::MAX };
    Job { length: job.length.min(most), ..job }
}

fn try_now(job: &Job, fd: c_int) -> Attempt {
    let buffer = job.buffer as *mut libc::c_void;
    let length = job.length as usize;
    // SAFETY: the application lends its memory until the operation is complete (POSIX aio.h).
    let result = unsafe {
        match (job.class, job.kind) {
            // As in the other engine.
            (Class::Socket, Kind::Read) if length == 0 => libc::read(fd, buffer, 0),
            (Class::Socket, Kind::Read) => libc::recv(fd, buffer, length, libc::MSG_DONTWAIT),
            (Class::Socket, Kind::Write) => libc::send(fd, buffer, length, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL),
            (Class::Stream, Kind::Read | Kind::Write) => return try_stream(job, fd),
            _ => return Attempt::MayBlock,
        }
    };
    attempt(system::check(result))
}

fn attempt(result: Result<isize, c_int>) -> Attempt {
    match result {
        Ok(count) => Attempt::Result(count),
        Err(libc::EAGAIN | libc::EINTR) => Attempt::NotYet,
        Err(errno) => Attempt::Result(-(errno as isize)),
    }
}

/// Pipes and terminals have no `MSG_DONTWAIT`; `RWF_NOWAIT` works for some, since some kernel. First, since it tells at
/// once of what can never be; a file is not ready for that.
fn try_stream(job: &Job, fd: c_int) -> Attempt {
    let part = libc::iovec { iov_base: job.buffer as *mut libc::c_void, iov_len: job.length as usize };
    // SAFETY: as above; the struct outlives the call. Offset -1: the current position.
    let result = unsafe {
        match job.kind {
            Kind::Read => libc::preadv2(fd, &raw const part, 1, -1, libc::RWF_NOWAIT),
            _ => libc::pwritev2(fd, &raw const part, 1, -1, libc::RWF_NOWAIT),
        }
    };
    match system::check(result) {
        Err(libc::EOPNOTSUPP | libc::ENOSYS) => ask_whether_ready(job, fd),
        result => attempt(result),
    }
}

fn ask_whether_ready(job: &Job, fd: c_int) -> Attempt {
    let events = if job.kind == Kind::Read { libc::POLLIN } else { libc::POLLOUT };
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: the struct outlives the call. A read of nothing waits for nothing.
    if job.length == 0 || unsafe { libc::poll(&raw mut poll, 1, 0) } != 0 {
        return Attempt::MayBlock;
    }
    // The wrong end of a pipe is never ready.
    let wrong = if job.kind == Kind::Read { libc::O_WRONLY } else { libc::O_RDONLY };
    match system::status_flags(fd) {
        Ok(flags) if flags & libc::O_ACCMODE != wrong => Attempt::NotYet,
        Ok(_) => Attempt::Result(-(libc::EBADF as isize)),
        Err(errno) => Attempt::Result(-(errno as isize)),
    }
}

impl Backend for Epoll {
    fn issue(&mut self, job: Job) {
        match (job.class, job.kind) {
            (Class::Socket | Class::Stream, Kind::Read | Kind::Write) => self.attempt(job),
            _ => self.pool.submit(job),
        }
    }

    fn await_readiness(&mut self, job: Job) {
        self.wait_for(Step { job, only_readiness: true });
    }

    fn cancel(&mut self, id: u64) {
        if self.forget(id).is_some() || self.pool.withdraw(id) {
            self.finish(id, -(libc::ECANCELED as isize));
        } else if !self.done.iter().any(|outcome| matches!(*outcome, Outcome::Done { id: done, .. } if done == id)) {
            self.done.push(Outcome::NotCancelable { id });
        }
    }

    fn submit(&mut self) -> bool {
        true
    }

    fn turn(&mut self, sleep: bool, at_most: Option<Duration>, outcomes: &mut Vec<Outcome>) {
        let timeout = match at_most {
            _ if !sleep || !self.done.is_empty() => 0,
            // Who rings the bell can't know that it was closed behind our back; nobody else looks.
            None => LOOK_MS,
            Some(time) => i32::try_from(time.as_millis()).unwrap_or(i32::MAX).max(1),
        };
        self.events.clear();
        // SAFETY: there is room for EVENTS events; the kernel says how many it wrote.
        unsafe {
            let count = libc::epoll_wait(self.fd, self.events.as_mut_ptr(), EVENTS as c_int, timeout);
            self.events.set_len(usize::try_from(count).unwrap_or(0));
        }
        if self.events.is_empty() && timeout != 0 && !self.is_whole() {
            self.mend();
        }
        let events = mem::take(&mut self.events);
        for event in &events {
            let (data, events) = (event.u64, event.events);
            if data == WAKE {
                if let Some(wake) = self.bell.event_fd() {
                    bell::drain_event_fd(wake);
                }
            } else {
                self.ready(data as c_int, events);
            }
        }
        self.events = events;
        self.pool.collect(outcomes);
        outcomes.append(&mut self.done);
    }

    fn holds_files(&self) -> bool {
        false
    }

    fn register(&mut self, _fd: c_int) -> Option<u32> {
        None
    }

    fn unregister(&mut self, _slot: u32) {}

    fn has_places_to_spare(&self) -> bool {
        false
    }

    /// Of use for registered files alone.
    fn ask_for_tick(&mut self) {}
}
