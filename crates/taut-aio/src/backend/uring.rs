//! io_uring(7), owned by the I/O thread alone.
//!
//! Completions run as deferred task work of that thread (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1),
//! so that no other thread's system call is ever interrupted by them, and an operation lives as
//! long as the process and not the submitting thread.
#![expect(unsafe_code, reason = "submission queue entries name the application's memory")]

use std::collections::HashSet;
use std::ffi::c_int;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{CompletionQueue, IoUring, Probe, SubmissionQueue, Submitter, cqueue, opcode, squeue};

use super::{Backend, Job, Outcome, Place};
use crate::system;
use crate::system::bell::Bell;
use crate::system::file::{self, FileKind};
use crate::system::own::OwnDescriptors;
use crate::worker::order::{Class, Kind};

/// Entries of the submission queue. Small: since Linux 6.14 ring memory counts against `RLIMIT_MEMLOCK`.
const SUBMISSIONS: u32 = 256;
/// Entries of the completion queue. More completions than that wait in the kernel (`IORING_FEAT_NODROP`).
const COMPLETIONS: u32 = 8192;

/// How often an idle ring looks whether its eventfd is still there, where it has one.
const LOOK: Duration = Duration::from_secs(1);

/// What a completion belongs to: the upper bits of its user data.
const TAG: u64 = 0xf << 60;
const STEP: u64 = 0;
const READINESS: u64 = 1 << 60;
const CANCEL: u64 = 2 << 60;
const WAKE: u64 = 3 << 60;
const TICK: u64 = 4 << 60;

/// Longer than a program takes from one request to the next, and short for whoever waits for an end.
static TICK_AFTER: Timespec = Timespec::new().nsec(10_000_000);

/// Files that can be registered at once: one for each file with operations in flight, or that had some a moment ago. No
/// more than there may be descriptors (`RLIMIT_NOFILE`).
const FILES: usize = 1 << 16;
/// Of those, for files that have nothing else to hold them; fewer where there are few.
const NEEDED: usize = 1024;

/// `FUTEX2_SIZE_U32 | FUTEX2_PRIVATE` (include/uapi/linux/futex.h).
const FUTEX_FLAGS: u32 = 2 | 128;

/// The ring, owned by the thread that made it and never given back: its memory lives as long as the process.
pub(crate) struct Uring {
    submitter: Submitter<'static>,
    submissions: SubmissionQueue<'static>,
    completions: CompletionQueue<'static>,
    bell: &'static Bell,
    own: &'static OwnDescriptors,
    /// Places for registered files that are free, and how many are left to those that need one.
    slots: Vec<u32>,
    needed: usize,
    /// Steps that wait for readiness instead of running.
    polls: HashSet<u64>,
    /// What was completed while there was no room for submissions.
    early: Vec<cqueue::Entry>,
}

impl Uring {
    /// A ring for the calling thread.
    ///
    /// # Errors
    /// The kernel refuses: too old, forbidden (seccomp, `kernel.io_uring_disabled`), or no memory (`RLIMIT_MEMLOCK`).
    pub(crate) fn new(bell: &'static Bell, own: &'static OwnDescriptors) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS).setup_submit_all().dontfork();
        let ring = builder
            .clone()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(SUBMISSIONS)
            .or_else(|error| match error.raw_os_error() {
                // Linux 5.18 to 6.0 know less; task work then interrupts this thread, which is ready for that.
                Some(libc::EINVAL) => builder.build(SUBMISSIONS),
                _ => Err(error),
            })?;
        if !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel may drop completions"));
        }
        let mut probe = Probe::new();
        let waits_on_futex =
            ring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(opcode::FutexWait::CODE);
        if !waits_on_futex {
            bell.make_event_fd(own).map_err(io::Error::from_raw_os_error)?;
        }
        let places = FILES.min(usize::try_from(system::descriptor_limit()).unwrap_or(FILES));
        let has_places = ring.submitter().register_files(&vec![-1; places]).is_ok();
        let fd = ring.as_raw_fd();
        let (mut submitter, submissions, completions) = Box::leak(Box::new(ring)).split();
        if submitter.register_ring_fd().is_ok() && registers_by_index() {
            // The thread has the ring without a number now, which nobody can close behind our back.
            system::close(fd);
        } else {
            own.take(fd);
        }
        let slots = if has_places { (0..places as u32).rev().collect() } else { Vec::new() };
        let needed = NEEDED.min(slots.len() / 2);
        let (polls, early) = (HashSet::new(), Vec::new());
        let mut uring = Self { submitter, submissions, completions, bell, own, slots, needed, polls, early };
        uring.listen();
        Ok(uring)
    }

    /// Waits for the bell: in an entry, or in a poll that stays armed.
    fn listen(&mut self) {
        let entry = match self.bell.event_fd() {
            Some(wake) => opcode::PollAdd::new(Fd(wake), libc::POLLIN as u32).multi(true).build(),
            None => {
                // Before the inbox is said to be asleep: who rings later changes the word.
                let word = self.bell.word();
                let value = u64::from(word.load(Ordering::Acquire));
                opcode::FutexWait::new(word.as_ptr(), value, u64::from(u32::MAX), FUTEX_FLAGS).build()
            }
        };
        self.push(&entry.user_data(WAKE));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the application lends its memory until the operation is complete (POSIX aio.h); all else that an
            // entry names is ours and lives as long as the ring.
            if unsafe { self.submissions.push(entry) }.is_ok() {
                return;
            }
            self.enter(0, None);
            // What the kernel won't take while there are completions in excess.
            self.completions.sync();
            self.early.extend(&mut self.completions);
        }
    }

    /// Submits, and waits for so many completions.
    fn enter(&mut self, wanted: usize, at_most: Option<Duration>) {
        self.submissions.sync();
        let result = match at_most {
            None => self.submitter.submit_and_wait(wanted),
            Some(time) => {
                let time = Timespec::new().sec(time.as_secs()).nsec(time.subsec_nanos());
                self.submitter.submit_with_args(wanted, &SubmitArgs::new().timespec(&time))
            }
        };
        self.submissions.sync();
        let Err(error) = result else { return };
        match error.raw_os_error() {
            // Time is over, or a signal, although all are blocked (a debugger's).
            Some(libc::ETIME | libc::EINTR) => {}
            // Completions in excess, or too little memory: it passes once completions were taken and others have run.
            Some(libc::EBUSY | libc::EAGAIN | libc::ENOMEM) => system::give_way(),
            // The ring is gone or broken, and with it all that is in flight.
            _ => {
                eprintln!(
                    "tautaio: io_uring_enter(2) fails: {error}; the process is ended, as its requests can't go on"
                );
                std::process::abort();
            }
        }
    }

    /// Somebody may have closed the eventfd behind our back, which who rings can't know.
    fn mend(&mut self, event_fd: c_int) {
        if file::look(event_fd).is_ok_and(|meaning| meaning.kind == FileKind::Anonymous) {
            return;
        }
        self.own.forget(event_fd);
        if self.bell.make_event_fd(self.own).is_ok() {
            self.listen();
        }
    }

    fn collect(&mut self, outcomes: &mut Vec<Outcome>) {
        let mut deaf = false;
        let mut not_found = Vec::new();
        self.completions.sync();
        for entry in self.early.drain(..).chain(&mut self.completions) {
            let id = entry.user_data() & !TAG;
            let result = entry.result() as isize;
            match entry.user_data() & TAG {
                STEP => outcomes.push(Outcome::Done { id, result, emptied: !cqueue::sock_nonempty(entry.flags()) }),
                READINESS => {
                    self.polls.remove(&id);
                    outcomes.push(if result < 0 {
                        Outcome::Done { id, result, emptied: false }
                    } else {
                        Outcome::Ready { id }
                    });
                }
                CANCEL if result == -(libc::EALREADY as isize) => outcomes.push(Outcome::NotCancelable { id }),
                CANCEL if result == -(libc::ENOENT as isize) => not_found.push(Outcome::NotFound { id }),
                TICK => outcomes.push(Outcome::Tick),
                WAKE => deaf |= !cqueue::more(entry.flags()),
                // Cancelled: its own completion says so.
                _ => {}
            }
        }
        self.completions.sync();
        // After what has ended.
        outcomes.append(&mut not_found);
        if deaf {
            // A futex is waited for once; the kernel ends a multishot poll when it is short of memory.
            self.listen();
        }
    }
}

/// Whether registering goes by the index under which this thread has registered its first ring (Linux 6.3).
fn registers_by_index() -> bool {
    /// `IORING_REGISTER_PROBE` with `IORING_REGISTER_USE_REGISTERED_RING` (include/uapi/linux/io_uring.h).
    const PROBE: u32 = 8 | 1 << 31;
    // `struct io_uring_probe` with no entries.
    let mut probe = [0_u64; 2];
    // SAFETY: the kernel writes the head, there is room for no entry.
    unsafe { libc::syscall(libc::SYS_io_uring_register, 0, PROBE, probe.as_mut_ptr(), 0) == 0 }
}

/// The place as an entry names it; `FIXED_FILE` says which kind it is.
fn place(job: &Job) -> (Fd, squeue::Flags) {
    match job.place {
        Place::Descriptor(fd) => (Fd(fd), squeue::Flags::empty()),
        Place::Registered(slot) => (Fd(slot.cast_signed()), squeue::Flags::FIXED_FILE),
    }
}

fn entry(job: &Job, fd: Fd) -> squeue::Entry {
    let buffer = job.buffer as *mut u8;
    match (job.kind, job.class) {
        // recv(2) of nothing would wait, and take a datagram; read(2) does neither.
        (Kind::Read, Class::Socket) if job.length > 0 => {
            let poll_first = if job.likely_empty { POLL_FIRST } else { 0 };
            opcode::Recv::new(fd, buffer, job.length).ioprio(poll_first).build()
        }
        // MSG_WAITALL: a short count of a blocking socket would not be what write(2) gives.
        (Kind::Write, Class::Socket) => {
            opcode::Send::new(fd, buffer, job.length).flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL).build()
        }
        // Offset -1 is the current position, which only makes sense without offsets.
        (Kind::Read, Class::Socket | Class::Stream) => {
            opcode::Read::new(fd, buffer, job.length).offset(u64::MAX).build()
        }
        (Kind::Write, Class::Stream) => opcode::Write::new(fd, buffer, job.length).offset(u64::MAX).build(),
        (Kind::Read, Class::File { .. }) => opcode::Read::new(fd, buffer, job.length).offset(job.offset as u64).build(),
        (Kind::Write, Class::File { .. }) => {
            opcode::Write::new(fd, buffer, job.length).offset(job.offset as u64).build()
        }
        (Kind::Sync, _) => opcode::Fsync::new(fd).build(),
        (Kind::DataSync, _) => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
    }
}

/// `IORING_RECVSEND_POLL_FIRST`: don't try before there is something (io_uring_prep_recv(3)).
const POLL_FIRST: u16 = 1;

impl Backend for Uring {
    fn issue(&mut self, job: Job) {
        let (fd, flags) = place(&job);
        let flags = if job.may_block { flags | squeue::Flags::ASYNC } else { flags };
        self.push(&entry(&job, fd).flags(flags).user_data(STEP | job.id));
    }

    fn await_readiness(&mut self, job: Job) {
        let events = if job.kind == Kind::Read { libc::POLLIN } else { libc::POLLOUT };
        let (fd, flags) = place(&job);
        self.polls.insert(job.id);
        self.push(&opcode::PollAdd::new(fd, events as u32).build().flags(flags).user_data(READINESS | job.id));
    }

    fn cancel(&mut self, id: u64) {
        let tag = if self.polls.contains(&id) { READINESS } else { STEP };
        self.push(&opcode::AsyncCancel::new(tag | id).build().user_data(CANCEL | id));
    }

    fn submit(&mut self) -> bool {
        self.enter(0, None);
        self.submissions.is_empty()
    }

    fn turn(&mut self, sleep: bool, at_most: Option<Duration>, outcomes: &mut Vec<Outcome>) {
        match (sleep && self.early.is_empty(), at_most, self.bell.event_fd()) {
            (false, ..) => self.enter(0, None),
            (true, None, Some(event_fd)) => {
                self.enter(1, Some(LOOK));
                self.mend(event_fd);
            }
            (true, at_most, _) => self.enter(1, at_most),
        }
        if self.submissions.taskrun() {
            // More has ended since, while others had the processor: so they are told of all of it at once.
            self.enter(0, None);
        }
        self.collect(outcomes);
    }

    fn holds_files(&self) -> bool {
        true
    }

    fn register(&mut self, fd: c_int) -> Option<u32> {
        let slot = self.slots.pop()?;
        if matches!(self.submitter.register_files_update(slot, &[fd]), Ok(1)) {
            return Some(slot);
        }
        self.slots.push(slot);
        None
    }

    fn unregister(&mut self, slot: u32) {
        // Nothing can go wrong that would let the file be used: who gets the place next registers another.
        let _ = self.submitter.register_files_update(slot, &[-1]);
        self.slots.push(slot);
    }

    fn has_places_to_spare(&self) -> bool {
        self.slots.len() > self.needed
    }

    fn ask_for_tick(&mut self) {
        self.push(&opcode::Timeout::new(&TICK_AFTER).build().user_data(TICK));
    }
}
