//! The library's own descriptors, known by number to any thread and signal handler, so that the application's calls go
//! round them and the child of a fork closes them.
#![expect(unsafe_code, reason = "fcntl(2)")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::check;

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
    from: AtomicI32,
}

impl OwnDescriptors {
    pub(crate) const fn new() -> Self {
        Self { bits: [const { AtomicU64::new(0) }; WORDS], from: AtomicI32::new(HIGH) }
    }

    /// Finds out where they may begin: below the limit, in its upper quarter where it is low.
    pub(crate) fn settle(&self) {
        let limit = super::descriptor_limit();
        self.from.store((limit - limit / 4).min(HIGH), Ordering::Relaxed);
    }

    fn bit(&self, fd: c_int) -> Option<(&AtomicU64, u64)> {
        let number = usize::try_from(fd).ok()?;
        Some((self.bits.get(number / 64)?, 1 << (number % 64)))
    }

    /// A second descriptor of a file, closed on exec. Async-signal-safe.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`.
    pub(crate) fn duplicate(&self, fd: c_int) -> Result<c_int, c_int> {
        // SAFETY: no memory is passed.
        let result = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, self.from.load(Ordering::Relaxed)) };
        let own = match check(result as isize) {
            Ok(own) => own as c_int,
            // The limit was lowered below where we begin.
            Err(libc::EINVAL) => return Err(libc::EMFILE),
            Err(errno) => return Err(errno),
        };
        if self.mark(own) {
            return Ok(own);
        }
        super::close(own);
        Err(libc::EMFILE)
    }

    /// Takes a descriptor over, under a high number where there is one.
    pub(crate) fn adopt(&self, fd: c_int) -> c_int {
        match self.duplicate(fd) {
            Ok(own) => {
                super::close(fd);
                own
            }
            Err(_) => {
                self.take(fd);
                fd
            }
        }
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
        let mut from = 0;
        while let Some(fd) = self.next(from) {
            self.close(fd);
            from = fd.unsigned_abs() + 1;
        }
    }
}
