//! What a signal handler may call, whatever it interrupts.

mod support;

use std::io::Write;
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libc::{c_int, c_void, siginfo_t};
use support::aio::{self, PATIENCE, Request};
use support::descriptors::{close, eventually};
use support::{both_engines, plain_libc, signals, threads};

/// Requests that belong to the handler.
struct Handlers {
    read: Request,
    write: Request,
    peer: UnixStream,
}

static HANDLERS: OnceLock<Handlers> = OnceLock::new();
static READS: AtomicUsize = AtomicUsize::new(0);
static WRITES: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// No assertion in it: panicking is not async-signal-safe. What goes wrong shows in the counts.
extern "C" fn handler(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    let errno = aio::errno();
    if let Some(handlers) = HANDLERS.get() {
        let _ = aio::suspend_one(&handlers.read, Duration::ZERO);
        if handlers.read.error() == 0 && handlers.read.aio_return() == Ok(1) && handlers.read.submit_again().is_ok() {
            READS.fetch_add(1, Ordering::Relaxed);
        }
        if handlers.write.error() == 0 && handlers.write.aio_return() == Ok(1) && handlers.write.submit_again().is_ok()
        {
            WRITES.fetch_add(1, Ordering::Relaxed);
        }
        // A close with nothing to cancel.
        let _ = close(-1);
    }
    CALLS.fetch_add(1, Ordering::Release);
    aio::set_errno(errno);
}

both_engines!(a_handler_interrupts_anything);
/// It would hang if the calls took a lock or allocated memory: the interrupted code may hold that lock or be in malloc.
fn a_handler_interrupts_anything() {
    let signal = signals::realtime(1);
    let (ours, peer) = UnixStream::pair().unwrap();
    // The peer's own reader empties it, so that writes always find room.
    let mut drain = peer.try_clone().unwrap();
    std::thread::spawn(move || std::io::copy(&mut drain, &mut std::io::sink()));
    aio::init(1);
    let read = Request::read(&ours, 1).start();
    let write = Request::write(&ours, b"x").start();
    HANDLERS.set(Handlers { read, write, peer }).ok().unwrap();
    signals::handle(signal, libc::SA_RESTART, handler);

    let (own, own_peer) = UnixStream::pair().unwrap();
    let interrupted = signals::Thread::current();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            signals::block(&[signal]);
            let (mut sent, mut written) = (0, 0);
            while !end.load(Ordering::Relaxed) {
                // A handler that finds its read not done takes nothing, so that the socket could fill up.
                if written < READS.load(Ordering::Relaxed) + 3 {
                    (&HANDLERS.get().unwrap().peer).write_all(b"x").unwrap();
                    written += 1;
                }
                interrupted.signal(signal);
                sent += 1;
                // One by one, or the kernel's queue of signals would fill up.
                while CALLS.load(Ordering::Acquire) < sent && !end.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            }
        });
        let mut turns = 0usize;
        let mut read = Request::read(&own, 1);
        let done = || READS.load(Ordering::Relaxed).min(WRITES.load(Ordering::Relaxed));
        // A busy machine makes each hand-over between four threads take milliseconds; a deadlock lasts for ever.
        let long_enough = Instant::now() + Duration::from_secs(20);
        while done().min(turns) < 2000 && (done().min(turns) < 100 || Instant::now() < long_enough) {
            let memory: Vec<_> = (1..20).map(|size| vec![0u8; size * 50]).collect();
            read.submit().unwrap();
            if turns.is_multiple_of(4) {
                assert_eq!(read.cancel(), Ok(libc::AIO_CANCELED));
            } else {
                (&own_peer).write_all(b"x").unwrap();
                let suspended = aio::suspend(&[Some(&read)], Some(PATIENCE));
                assert!(matches!(suspended, Ok(()) | Err(libc::EINTR)), "{suspended:?}");
                assert_eq!(read.wait(), Ok(1));
            }
            let (closed, _peer) = UnixStream::pair().unwrap();
            let pending = Request::read(&closed, 1).start();
            close(closed.into_raw_fd()).unwrap();
            assert_eq!(pending.result(), Err(libc::ECANCELED));
            drop(memory);
            turns += 1;
        }
        end.store(true, Ordering::Relaxed);
    });
}

static INTERRUPTED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn counter(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    INTERRUPTED.fetch_add(1, Ordering::Release);
}

plain_libc!(a_pause_ends_whatever_interrupts_it);
/// The tests' own waiting, on which a flood of signals once hung.
fn a_pause_ends_whatever_interrupts_it() {
    const PAUSE: Duration = Duration::from_secs(1);
    let signal = signals::realtime(1);
    signals::handle(signal, libc::SA_RESTART, counter);
    let interrupted = signals::Thread::current();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            signals::block(&[signal]);
            let deadline = Instant::now() + 10 * PAUSE;
            let mut sent = 0;
            while !end.load(Ordering::Relaxed) {
                assert!(Instant::now() < deadline, "a pause of {PAUSE:?} lasts ten times as long");
                interrupted.signal(signal);
                sent += 1;
                while INTERRUPTED.load(Ordering::Acquire) < sent {
                    std::hint::spin_loop();
                }
            }
        });
        threads::pause(PAUSE);
        end.store(true, Ordering::Relaxed);
    });
}

static TO_CLOSE: AtomicUsize = AtomicUsize::new(usize::MAX);

extern "C" fn closer(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    let fd = TO_CLOSE.swap(usize::MAX, Ordering::Relaxed);
    if let Ok(fd) = i32::try_from(fd) {
        let _ = close(fd);
    }
}

both_engines!(a_handler_closes_a_busy_descriptor);
fn a_handler_closes_a_busy_descriptor() {
    let signal = signals::realtime(1);
    signals::handle(signal, libc::SA_RESTART, closer);
    let interrupted = signals::Thread::current();
    std::thread::scope(|scope| {
        let (go, gone) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            signals::block(&[signal]);
            while gone.recv().is_ok() {
                interrupted.signal(signal);
            }
        });
        for _ in 0..300 {
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let read = Request::read(&ours, 1).start();
            TO_CLOSE.store(usize::try_from(ours.into_raw_fd()).unwrap(), Ordering::Relaxed);
            go.send(()).unwrap();
            eventually("the read is cancelled", || {
                drop(vec![0u8; 100]);
                !read.in_flight()
            });
            assert_eq!(read.result(), Err(libc::ECANCELED));
        }
    });
}
