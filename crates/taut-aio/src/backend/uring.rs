//! io_uring(7), owned by the I/O thread alone.
//!
//! Completions run as deferred task work of that thread (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1), so that no other thread's
//! system call is ever interrupted by them, and an operation lives as long as the process and not the submitting thread.
#![expect(unsafe_code, reason = "submission queue entries name the application's memory")]

use std::ffi::c_int;
use std::io;
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::{Backend, Job, Outcome};
use crate::worker::order::{Class, Kind};

/// Entries of the submission queue. Small: since Linux 6.14 ring memory counts against `RLIMIT_MEMLOCK`.
const SUBMISSIONS: u32 = 256;
/// Entries of the completion queue. More completions than that wait in the kernel (`IORING_FEAT_NODROP`).
const COMPLETIONS: u32 = 8192;

/// What a completion belongs to: the upper bits of its user data.
const TAG: u64 = 0xf << 60;
const STEP: u64 = 0;
const READINESS: u64 = 1 << 60;
const CANCEL: u64 = 2 << 60;
const WAKE: u64 = 3 << 60;

/// The ring, and the eventfd by which others wake its owner.
pub(crate) struct Uring {
    ring: IoUring,
    wake: c_int,
}

impl Uring {
    /// A ring for the calling thread.
    ///
    /// # Errors
    /// The kernel refuses: too old, forbidden (seccomp, `kernel.io_uring_disabled`), or no memory (`RLIMIT_MEMLOCK`).
    pub(crate) fn new(wake: c_int) -> io::Result<Self> {
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
        let mut uring = Self { ring, wake };
        uring.listen();
        Ok(uring)
    }

    /// The descriptor of the ring.
    pub(crate) fn fd(&self) -> c_int {
        std::os::fd::AsRawFd::as_raw_fd(&self.ring)
    }

    /// Waits for wake-ups: a poll that stays armed, so that a wake-up costs no read and no new entry.
    fn listen(&mut self) {
        let entry = opcode::PollAdd::new(Fd(self.wake), libc::POLLIN as u32).multi(true).build().user_data(WAKE);
        self.push(&entry);
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the application lends its memory until the operation is complete (POSIX aio.h); all else that an
            // entry names is ours and lives as long as the ring.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            // Full. EBUSY and EAGAIN pass once completions were taken, which the kernel does by itself on submission.
            let _ = self.ring.submit();
        }
    }

    fn collect(&mut self, outcomes: &mut Vec<Outcome>) {
        let mut deaf = false;
        for entry in self.ring.completion() {
            let id = entry.user_data() & !TAG;
            let result = entry.result() as isize;
            match entry.user_data() & TAG {
                STEP => outcomes.push(Outcome::Done { id, result, emptied: !cqueue::sock_nonempty(entry.flags()) }),
                READINESS if result < 0 => outcomes.push(Outcome::Done { id, result, emptied: false }),
                READINESS => outcomes.push(Outcome::Ready { id }),
                CANCEL if result == -(libc::EALREADY as isize) => outcomes.push(Outcome::NotCancelable { id }),
                WAKE => deaf |= !cqueue::more(entry.flags()),
                // Cancelled (its own completion says so), or gone before.
                _ => {}
            }
        }
        if deaf {
            // The kernel ends a multishot poll when it is short of memory.
            self.listen();
        }
    }
}

fn entry(job: &Job) -> squeue::Entry {
    let fd = Fd(job.fd);
    let buffer = job.buffer as *mut u8;
    match (job.kind, job.class) {
        (Kind::Read, Class::Socket) => {
            let poll_first = if job.likely_empty { POLL_FIRST } else { 0 };
            opcode::Recv::new(fd, buffer, job.length).ioprio(poll_first).build()
        }
        // MSG_WAITALL: a short count of a blocking socket would not be what write(2) gives.
        (Kind::Write, Class::Socket) => {
            opcode::Send::new(fd, buffer, job.length).flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL).build()
        }
        // Offset -1 is the current position, which only makes sense without offsets.
        (Kind::Read, Class::Stream) => opcode::Read::new(fd, buffer, job.length).offset(u64::MAX).build(),
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
        let flags = if job.may_block { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        self.push(&entry(&job).flags(flags).user_data(STEP | job.id));
    }

    fn await_readiness(&mut self, job: Job) {
        let events = if job.kind == Kind::Read { libc::POLLIN } else { libc::POLLOUT };
        self.push(&opcode::PollAdd::new(Fd(job.fd), events as u32).build().user_data(READINESS | job.id));
    }

    fn cancel(&mut self, id: u64) {
        for tag in [STEP, READINESS] {
            self.push(&opcode::AsyncCancel::new(tag | id).build().user_data(CANCEL | id));
        }
    }

    fn turn(&mut self, sleep: bool, at_most: Option<Duration>, outcomes: &mut Vec<Outcome>) {
        // What goes wrong here is a signal (none: all are blocked), or completions in excess, which are collected below.
        let _ = match (sleep, at_most) {
            (false, _) => self.ring.submit_and_wait(0),
            (true, None) => self.ring.submit_and_wait(1),
            (true, Some(time)) => {
                let time = Timespec::new().sec(time.as_secs()).nsec(time.subsec_nanos());
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        self.collect(outcomes);
    }

    fn holds_files(&self) -> bool {
        true
    }
}
