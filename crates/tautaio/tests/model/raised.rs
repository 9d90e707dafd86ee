//! Signal handlers that do with requests what a handler may: they submit, wait, cancel and close, whatever the thread
//! was doing, malloc(3) among it. Each has one of a few pairs of sockets to itself meanwhile.
#![expect(unsafe_code, reason = "requests in signal handlers")]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::descriptor;
use super::fault::fault;
use super::ffi::{self, Aiocb};
use super::takers;

const PAIRS: usize = 12;

/// No round has made it.
const NONE: u32 = 0;
/// Nothing is in flight.
const IDLE: u32 = 1;
/// A read is, which nobody serves.
const READING: u32 = 2;
/// A handler is at it.
const BUSY: u32 = 3;

/// A pair of sockets with a read and a write. Static, as a thread in aio_waitcomplete may look at them later.
struct Pair {
    state: AtomicU32,
    inner: UnsafeCell<Inner>,
}

struct Inner {
    ends: [c_int; 2],
    read: Aiocb,
    write: Aiocb,
    got: [u8; 8],
    sent: [u8; 8],
}

// SAFETY: who made the state BUSY has what is inside to itself.
unsafe impl Sync for Pair {}

static ALL: [Pair; PAIRS] = [const {
    let (read, write) = (Aiocb::empty(), Aiocb::empty());
    let inner = Inner { ends: [-1; 2], read, write, got: [0; 8], sent: [0; 8] };
    Pair { state: AtomicU32::new(NONE), inner: UnsafeCell::new(inner) }
}; PAIRS];

/// Gives handlers their choices.
static CHOICES: AtomicU64 = AtomicU64::new(0);

fn choice() -> u64 {
    let number = CHOICES.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    (number ^ (number >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 33
}

/// Before a round.
pub(crate) fn set_up(seed: u64) {
    CHOICES.store(seed, Ordering::Relaxed);
    for pair in &ALL {
        // SAFETY: no handler looks at it in this state.
        unsafe { (*pair.inner.get()).ends = descriptor::socket_pair(libc::SOCK_STREAM) };
        pair.state.store(IDLE, Ordering::Release);
    }
}

/// After a round, when no thread is left whose handlers could be at it.
pub(crate) fn put_away() {
    for pair in &ALL {
        let state = pair.state.swap(NONE, Ordering::AcqRel);
        if state == NONE {
            continue;
        }
        // SAFETY: it is nobody else's.
        let inner = unsafe { &mut *pair.inner.get() };
        if state == READING {
            inner.cancel();
        }
        inner.ends.into_iter().for_each(descriptor::close);
    }
}

/// One step with one pair, in a handler.
pub(crate) fn act() {
    let pair = &ALL[choice() as usize % PAIRS];
    let before = pair.state.load(Ordering::Relaxed);
    if !matches!(before, IDLE | READING)
        || pair.state.compare_exchange(before, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err()
    {
        return;
    }
    let errno = ffi::errno();
    // SAFETY: it is ours while it is busy.
    let inner = unsafe { &mut *pair.inner.get() };
    let after = if before == IDLE { inner.begin() } else { inner.go_on() };
    // SAFETY: errno is the thread's own.
    unsafe { *libc::__errno_location() = errno };
    pair.state.store(after, Ordering::Release);
}

impl Inner {
    fn begin(&mut self) -> u32 {
        self.got = [0; 8];
        self.read = request(self.ends[0], &mut self.got);
        check(self.submit_read(), 0, "aio_read in a handler");
        READING
    }

    fn go_on(&mut self) -> u32 {
        match choice() % 8 {
            0..4 => self.serve(),
            4 | 5 => self.cancel(),
            6 => self.close(),
            _ => {
                let list = [&raw const self.read];
                let waited = ffi::suspend(&list, Some(std::time::Duration::from_micros(choice() % 50)), false);
                if waited.is_ok() {
                    fault("aio_suspend in a handler, with nothing complete", 0, 0);
                }
                return READING;
            }
        }
        IDLE
    }

    fn submit_read(&mut self) -> u64 {
        // SAFETY: it stays until it is complete.
        unsafe { ffi::aio_read(&raw mut self.read) as u64 }
    }

    /// Writes what the read waits for, and waits for both.
    fn serve(&mut self) {
        self.sent = choice().to_le_bytes();
        self.write = request(self.ends[1], &mut self.sent);
        // SAFETY: it stays until it is complete.
        check(unsafe { ffi::aio_write(&raw mut self.write) } as u64, 0, "aio_write in a handler");
        for request in [&raw const self.read, &raw const self.write] {
            let mut turns = 0;
            // SAFETY: it is there.
            while unsafe { ffi::aio_error(request) } == libc::EINPROGRESS {
                let _ = ffi::suspend(&[request], Some(std::time::Duration::from_millis(10)), false);
                turns += 1;
                if turns > 6000 {
                    fault("a request of a handler is lost", turns, 0);
                }
            }
        }
        check(ffi::result(&mut self.read) as u64, 8, "the result of a handler's read");
        check(ffi::result(&mut self.write) as u64, 8, "the result of a handler's write");
        if self.got != self.sent {
            fault("a handler's read got other bytes", u64::from_le_bytes(self.got), u64::from_le_bytes(self.sent));
        }
    }

    fn cancel(&mut self) {
        let answer = ffi::cancel(self.ends[0], &raw mut self.read, false);
        check(answer as u64, libc::AIO_CANCELED as u64, "aio_cancel in a handler");
        self.was_canceled();
    }

    /// Closes the end that is read, which cancels that, and has another pair.
    fn close(&mut self) {
        // SAFETY: both numbers are ours.
        unsafe {
            check(libc::close(self.ends[0]) as u64, 0, "close in a handler");
            self.was_canceled();
            check(libc::close(self.ends[1]) as u64, 0, "close in a handler");
            let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
            let made = libc::socketpair(libc::AF_UNIX, kind, 0, self.ends.as_mut_ptr());
            check(made as u64, 0, "socketpair in a handler");
        }
    }

    fn was_canceled(&mut self) {
        check(ffi::status(&self.read) as u64, libc::ECANCELED as u64, "the status of a handler's canceled read");
        check(ffi::result(&mut self.read) as u64, u64::MAX, "the result of a handler's canceled read");
    }
}

fn request(fd: c_int, bytes: &mut [u8; 8]) -> Aiocb {
    let mut request = Aiocb::empty();
    (request.fd, request.buffer, request.length) = (fd, ptr::from_mut(bytes).cast(), bytes.len());
    request.event.value = takers::IGNORED;
    request
}

fn check(got: u64, wanted: u64, what: &str) {
    if got != wanted {
        fault(what, got, wanted);
    }
}
