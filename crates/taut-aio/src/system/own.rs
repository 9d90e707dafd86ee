//! The library's own descriptors, known by number to any thread and signal handler, so that the application's calls go
//! round them and the child of a fork closes them.
#![expect(unsafe_code, reason = "fcntl(2)")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use super::{Patience, check};
use crate::lockfree::windows::{Place, Windows};

/// Descriptors that can be known: those below.
const MOST: usize = 1 << 16;
const WORDS: usize = MOST / 64;

/// Where they begin: out of the way of programs that count on the lowest numbers or have some of
/// their own, as shells keep theirs.
const HIGH: c_int = 1000;

/// The library's own descriptors.
#[derive(Debug)]
pub(crate) struct OwnDescriptors {
    bits: [AtomicU64; WORDS],
    /// How far below [`HIGH`] they begin. What is 0 at first takes no room in the program's file.
    lower: AtomicI32,
    windows: Windows<INSIDE, FORKS>,
    /// How often this process is the child of a fork.
    life: AtomicU32,
}

/// Threads that open or close own descriptors at a time, and those that fork. What exceeds them is not waited for.
const INSIDE: usize = 32;
const FORKS: usize = 8;

/// No thread forks while this lives: there is a descriptor that only its thread knows.
#[derive(Debug)]
#[must_use]
pub(crate) struct NoForks<'a> {
    windows: &'a Windows<INSIDE, FORKS>,
    thread: usize,
    place: Place,
}

impl Drop for NoForks<'_> {
    fn drop(&mut self) {
        self.windows.leave(self.thread, self.place);
    }
}

impl OwnDescriptors {
    pub(crate) const fn new() -> Self {
        Self {
            bits: [const { AtomicU64::new(0) }; WORDS],
            lower: AtomicI32::new(0),
            windows: Windows::new(),
            life: AtomicU32::new(0),
        }
    }

    /// Finds out where they may begin: below the limit, in its upper quarter where it is low.
    pub(crate) fn settle(&self) {
        let limit = super::descriptor_limit();
        self.lower.store((HIGH - (limit - limit / 4)).max(0), Ordering::Relaxed);
    }

    fn bit(&self, fd: c_int) -> Option<(&AtomicU64, u64)> {
        let number = usize::try_from(fd).ok()?;
        Some((self.bits.get(number / 64)?, 1 << (number % 64)))
    }

    /// Keeps forks away. Async-signal-safe; a handler that interrupts this thread may fork all the same.
    pub(crate) fn keep_forks_away(&self) -> NoForks<'_> {
        let thread = super::thread();
        let mut patience = Patience::new();
        let place = self.windows.enter(thread, || patience.wait());
        NoForks { windows: &self.windows, thread, place }
    }

    /// Before a fork: waits until all own descriptors are known.
    pub(crate) fn before_fork(&self) {
        let mut patience = Patience::new();
        self.windows.begin_fork(super::thread(), || patience.wait());
    }

    /// After it, in the parent.
    pub(crate) fn after_fork(&self) {
        self.windows.end_fork(super::thread());
    }

    /// After it, in the child.
    pub(crate) fn after_fork_in_child(&self) {
        self.windows.reset();
    }

    /// A second descriptor of a file, closed on exec. Async-signal-safe.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`.
    pub(crate) fn duplicate(&self, fd: c_int) -> Result<c_int, c_int> {
        let _no_forks = self.keep_forks_away();
        let life = self.life.load(Ordering::Relaxed);
        let from = HIGH - self.lower.load(Ordering::Relaxed);
        // SAFETY: no memory is passed.
        let result = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, from) };
        let own = match check(result as isize) {
            Ok(own) => own as c_int,
            // The limit was lowered below where we begin.
            Err(libc::EINVAL) => return Err(libc::EMFILE),
            Err(errno) => return Err(errno),
        };
        if !self.mark(own) {
            super::close(own);
            return Err(libc::EMFILE);
        }
        if self.life.load(Ordering::Relaxed) != life {
            // A signal handler has forked, and this is the child, whose requests are canceled: nobody would close it.
            if self.contains(own) {
                self.close(own);
            }
            return Err(libc::EMFILE);
        }
        Ok(own)
    }

    /// Makes a descriptor and takes it over, under a high number where there is one.
    ///
    /// # Errors
    /// That of what makes it.
    pub(crate) fn adopt(&self, make: impl FnOnce() -> Result<c_int, c_int>) -> Result<c_int, c_int> {
        let _no_forks = self.keep_forks_away();
        let fd = make()?;
        Ok(match self.duplicate(fd) {
            Ok(own) => {
                super::close(fd);
                own
            }
            Err(_) => {
                self.take(fd);
                fd
            }
        })
    }

    /// Takes a descriptor over under the number that it has.
    pub(crate) fn take(&self, fd: c_int) {
        self.mark(fd);
    }

    fn mark(&self, fd: c_int) -> bool {
        let Some((word, bit)) = self.bit(fd) else { return false };
        word.fetch_or(bit, Ordering::Relaxed);
        true
    }

    /// Forgets one that is ours no more.
    pub(crate) fn forget(&self, fd: c_int) {
        if let Some((word, bit)) = self.bit(fd) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Closes one.
    pub(crate) fn close(&self, fd: c_int) {
        let _no_forks = self.keep_forks_away();
        self.forget(fd);
        super::close(fd);
    }

    /// Whether it is one of them.
    pub(crate) fn contains(&self, fd: c_int) -> bool {
        self.bit(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// The first one from this number on.
    pub(crate) fn next(&self, from: u32) -> Option<c_int> {
        let from = usize::try_from(from).ok().filter(|&from| from < MOST)?;
        (from / 64..WORDS).find_map(|index| {
            let mut word = self.bits[index].load(Ordering::Relaxed);
            if index == from / 64 {
                word &= u64::MAX << (from % 64);
            }
            (word != 0).then(|| (index * 64) as c_int + word.trailing_zeros() as c_int)
        })
    }

    /// Closes all: for the child of a fork.
    pub(crate) fn close_all(&self) {
        self.life.fetch_add(1, Ordering::Relaxed);
        let mut from = 0;
        while let Some(fd) = self.next(from) {
            self.close(fd);
            from = fd.unsigned_abs() + 1;
        }
    }
}
