//! What happens around a program's requests: signals that interrupt, and forks.
#![expect(unsafe_code, reason = "kill, fork and requests in the child")]

use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use super::descriptor::{self, close};
use super::ffi::{self, Aiocb};
use super::ledger;
use super::random::Random;
use super::takers;

/// The kernel's number of this thread.
pub(crate) fn this_thread() -> c_int {
    // SAFETY: asks for a number.
    unsafe { libc::gettid() }
}

/// Interrupts threads at random until told to stop.
pub(crate) fn make_noise(mut random: Random, threads: &[AtomicI32], stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let thread = random.pick(threads).load(Ordering::Acquire);
        if thread != 0 {
            // SAFETY: sends a signal that has a handler to a thread of this process.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, ledger::NOISE) };
        }
        descriptor::pause(random.between(20, 2000) as u64);
    }
}

/// The request that is inherited. Static, as a thread in aio_waitcomplete may look at it after its
/// owner is done with it.
static REQUEST: Mutex<Inherited> = Mutex::new(Inherited(Aiocb::empty()));

struct Inherited(Aiocb);

// SAFETY: the pointer in it is followed by the kernel only.
unsafe impl Send for Inherited {}

/// Forks while requests are in flight, until told to stop. Each child uses the library by itself.
pub(crate) fn fork_now_and_then(mut random: Random, stop: &AtomicBool) {
    let [reader, writer] = descriptor::pipe();
    let mut byte = 0_u8;
    while !stop.load(Ordering::Acquire) {
        let mut inherited = super::lock(&REQUEST);
        inherited.0 = Aiocb::empty();
        let inherited = &mut inherited.0;
        (inherited.fd, inherited.buffer, inherited.length) = (reader, (&raw mut byte).cast(), 1);
        inherited.event.value = takers::IGNORED;
        ffi::read(inherited);
        // SAFETY: the child calls what it may: the library, and _exit.
        match unsafe { libc::fork() } {
            0 => {
                let code = in_child(inherited);
                // SAFETY: ends the child.
                unsafe { libc::_exit(code) }
            }
            child => {
                assert!(child > 0, "fork: errno {}", ffi::errno());
                let code = wait_for(child);
                assert_eq!(code, 0, "in a forked child: {}", describe(code));
            }
        }
        assert_eq!(ffi::status(inherited), libc::EINPROGRESS, "the parent's request after a fork");
        assert_eq!(descriptor::write_now(writer, &[7]), Some(1), "a write to a pipe");
        let begin = Instant::now();
        while ffi::status(inherited) == libc::EINPROGRESS {
            assert!(begin.elapsed() < Duration::from_secs(30), "the parent's request is lost after a fork");
            descriptor::pause(50);
        }
        assert_eq!((ffi::result(inherited), byte), (1, 7), "the parent's request after a fork");
        descriptor::pause(random.between(1000, 30_000) as u64);
    }
    close(reader);
    close(writer);
}

/// What the child found wrong; 0 for nothing.
fn in_child(inherited: &Aiocb) -> c_int {
    if ffi::status(inherited) != libc::ECANCELED {
        return 1;
    }
    let mut ends = [-1; 2];
    // SAFETY: there is room for two.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return 2;
    }
    let (mut from, mut to) = ([0_u8; 16], *b"a child's bytes.");
    let (mut read, mut write) = (Aiocb::empty(), Aiocb::empty());
    (read.fd, read.buffer, read.length) = (ends[0], from.as_mut_ptr().cast(), from.len());
    (write.fd, write.buffer, write.length) = (ends[1], to.as_mut_ptr().cast(), to.len());
    // SAFETY: both stay until they are complete, or the process ends.
    if unsafe { ffi::aio_read(&raw mut read) != 0 || ffi::aio_write(&raw mut write) != 0 } {
        return 3;
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    for request in [&raw mut read, &raw mut write] {
        // SAFETY: they are there.
        while unsafe { ffi::aio_error(request) } == libc::EINPROGRESS {
            if Instant::now() > deadline {
                return 4;
            }
            let _ = ffi::suspend(&[request.cast_const()], Some(Duration::from_millis(100)), false);
        }
        // SAFETY: they are there.
        if unsafe { ffi::aio_return(request) } != 16 {
            return 5;
        }
    }
    if from == to { 0 } else { 6 }
}

fn describe(code: c_int) -> &'static str {
    match code {
        1 => "an inherited request isn't ECANCELED",
        2 => "no pipe",
        3 => "submission failed",
        4 => "its own request did not complete",
        5 => "its own request failed",
        6 => "its own request moved other bytes",
        _ => "it died or hung",
    }
}

/// The child's code; 100 for one that died by a signal or hung.
fn wait_for(child: c_int) -> c_int {
    let begin = Instant::now();
    let mut status = 0;
    // SAFETY: it is our child, and the status lives through the call.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } != child {
        if begin.elapsed() > Duration::from_secs(40) {
            return 100;
        }
        descriptor::pause(200);
    }
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 100 }
}
