//! Threads that are cancelled (pthread_cancel(3)) while they wait in aio_suspend. Their requests go on.
#![expect(unsafe_code, reason = "pthread_cancel, and requests that a thread leaves behind")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::descriptor::{self, close};
use super::ffi::{self, Aiocb};
use super::random::Random;
use super::takers;

/// `PTHREAD_CANCELED` (pthread.h).
const CANCELED: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// What a thread submits and its canceller looks after. Static, as a thread in aio_waitcomplete may look at it later.
struct Left {
    read: Aiocb,
    write: Aiocb,
    bytes: [u8; 2],
}

// SAFETY: the pointers in it are followed by the kernel only.
unsafe impl Send for Left {}

static LEFT: Mutex<Left> = Mutex::new(Left { read: Aiocb::empty(), write: Aiocb::empty(), bytes: [0; 2] });

/// Submits both requests and waits for the one that nobody serves, for ever. Nothing in it needs to be dropped.
extern "C-unwind" fn wait_for_ever(left: *mut c_void) -> *mut c_void {
    let left = left.cast::<Left>();
    // SAFETY: it stays until this thread was joined and both requests are complete.
    unsafe {
        let (read, write) = (&raw mut (*left).read, &raw mut (*left).write);
        if ffi::aio_read(read) != 0 || ffi::aio_write(write) != 0 {
            return ptr::null_mut();
        }
        let list = [read.cast_const()];
        loop {
            ffi::aio_suspend(list.as_ptr(), 1, ptr::null());
        }
    }
}

/// Cancels threads now and then, until told to stop.
pub(crate) fn cancel_now_and_then(mut random: Random, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let [ours, theirs] = descriptor::socket_pair(libc::SOCK_STREAM);
        let mut left = super::lock(&LEFT);
        (left.read, left.write, left.bytes) = (Aiocb::empty(), Aiocb::empty(), [0, 5]);
        let bytes = left.bytes.as_mut_ptr();
        (left.read.fd, left.read.buffer, left.read.length) = (ours, bytes.cast(), 1);
        // SAFETY: there are two.
        (left.write.fd, left.write.buffer, left.write.length) = (ours, unsafe { bytes.add(1) }.cast(), 1);
        (left.read.event.value, left.write.event.value) = (takers::IGNORED, takers::IGNORED);
        assert_eq!(cancel_one(&mut left, random.below(400) as u64), CANCELED, "a thread's result");
        assert_eq!(descriptor::write_now(theirs, &[7]), Some(1), "a write to a socket");
        let begin = Instant::now();
        while [&left.read, &left.write].iter().any(|request| ffi::status(request) == libc::EINPROGRESS) {
            assert!(begin.elapsed() < Duration::from_secs(30), "a cancelled thread's request is lost");
            descriptor::pause(50);
        }
        assert_eq!((ffi::result(&mut left.read), ffi::result(&mut left.write), left.bytes[0]), (1, 1, 7));
        drop(left);
        close(ours);
        close(theirs);
        descriptor::pause(random.between(200, 5000) as u64);
    }
}

/// A thread's result, cancelled so many microseconds after its start.
fn cancel_one(left: &mut Left, after: u64) -> *mut c_void {
    let mut thread: libc::pthread_t = 0;
    let mut result = ptr::null_mut();
    // SAFETY: the function's type is that of a thread, which may be left by unwinding. The thread is joined.
    unsafe {
        let start = std::mem::transmute::<
            extern "C-unwind" fn(*mut c_void) -> *mut c_void,
            extern "C" fn(*mut c_void) -> *mut c_void,
        >(wait_for_ever);
        let left = ptr::from_mut(left).cast::<c_void>();
        assert_eq!(libc::pthread_create(&raw mut thread, ptr::null(), start, left), 0, "pthread_create");
        descriptor::pause(after);
        assert_eq!(libc::pthread_cancel(thread), 0, "pthread_cancel");
        assert_eq!(libc::pthread_join(thread, &raw mut result), 0, "pthread_join");
    }
    result
}
