//! Notification: signals and threads, and that nobody else's system calls notice anything.

mod support;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libc::{c_int, c_void, siginfo_t};
use support::aio::{self, PATIENCE, Request, by_signal, by_signal_to, by_thread};
use support::descriptors::{self, Unopened, eventually};
use support::process;
use support::signals::{self, Taken, realtime};
use support::threads::{Attributes, Here};
use support::{both_engines, net, waiting};

both_engines!(a_signal_says_whose_it_is);
fn a_signal_says_whose_it_is() {
    let all = [realtime(0), realtime(7), libc::SIGRTMAX(), libc::SIGUSR1, libc::SIGIO];
    signals::block(&all);
    let file = tempfile::tempfile().unwrap();
    let (pid, uid) = (std::process::id().cast_signed(), descriptors::user());
    for (value, signal) in all.into_iter().enumerate() {
        let value = value + usize::MAX / 2;
        let write = Request::write(&file, b"x").notify(by_signal(signal, value)).start();
        let taken = signals::take(&all, PATIENCE);
        assert_eq!(taken, Ok(Taken { signal, code: libc::SI_ASYNCIO, value, pid, uid }));
        assert_eq!(write.error(), 0, "it is done when the signal comes");
        assert_eq!(write.result(), Ok(1));
    }
}

both_engines!(each_request_has_its_signal);
fn each_request_has_its_signal() {
    let signal = realtime(1);
    signals::block(&[signal]);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let reads: Vec<_> = (0..1000).map(|i| Request::read(&ours, 1).notify(by_signal(signal, i)).start()).collect();
    theirs.write_all(&[7; 1000]).unwrap();
    // Realtime signals are queued, and the reads are done in order.
    for (expected, read) in reads.iter().enumerate() {
        assert_eq!(signals::take(&[signal], PATIENCE).unwrap().value, expected);
        assert_eq!(read.result(), Ok(1));
    }
    assert_eq!(signals::take(&[signal], Duration::from_millis(20)), Err(libc::EAGAIN));
}

both_engines!(a_failure_is_notified_too);
fn a_failure_is_notified_too() {
    let signal = realtime(1);
    signals::block(&[signal]);
    let bad = Request::read(&Unopened(-1), 1).notify(by_signal(signal, 5)).start();
    assert_eq!(signals::take(&[signal], PATIENCE).unwrap().value, 5);
    assert_eq!(bad.result(), Err(libc::EBADF));
}

both_engines!(a_refused_submission_is_not_notified);
fn a_refused_submission_is_not_notified() {
    let signal = realtime(1);
    signals::block(&[signal]);
    let file = tempfile::tempfile().unwrap();
    let mut request = Request::write(&file, b"x").notify(by_signal(signal, 5));
    request.block_mut().aio_reqprio = -1;
    assert_eq!(request.submit(), Err(libc::EINVAL));
    request.block_mut().aio_reqprio = 0;
    request.submit().unwrap();
    signals::take(&[signal], PATIENCE).unwrap();
    assert_eq!(signals::take(&[signal], Duration::from_millis(20)), Err(libc::EAGAIN), "only the second");
}

both_engines!(no_notification_is_none);
fn no_notification_is_none() {
    let all: Vec<_> =
        (1..=libc::SIGRTMAX()).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)).collect();
    let blockable: Vec<_> = all.into_iter().filter(|signal| ![32, 33].contains(signal)).collect();
    signals::block(&blockable);
    let threads = descriptors::threads().len();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    for _ in 0..100 {
        let read = Request::read(&ours, 1).start();
        theirs.write_all(b"x").unwrap();
        assert_eq!(read.wait(), Ok(1));
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(signals::pending(), []);
    assert_eq!(descriptors::threads().len(), threads + process::threads_at_first());
}

both_engines!(no_signal_is_lost_when_the_queue_is_full);
/// The kernel refuses to queue more than RLIMIT_SIGPENDING of them.
fn no_signal_is_lost_when_the_queue_is_full() {
    let signal = realtime(1);
    signals::block(&[signal]);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    descriptors::set_limit(libc::RLIMIT_SIGPENDING, queued_by_this_user() + 3);
    let reads: Vec<_> = (0..200).map(|i| Request::read(&ours, 1).notify(by_signal(signal, i)).start()).collect();
    theirs.write_all(&[7; 200]).unwrap();
    // The results do not wait for the signals, and are none the worse for them.
    for read in &reads {
        assert_eq!(read.wait(), Ok(1));
    }
    std::thread::sleep(Duration::from_millis(20));
    for expected in 0..200 {
        assert_eq!(signals::take(&[signal], PATIENCE).unwrap().value, expected);
    }
    assert_eq!(signals::take(&[signal], Duration::from_millis(20)), Err(libc::EAGAIN));
    // Nor does anything else wait for them.
    let again: Vec<_> = (0..20).map(|i| Request::read(&ours, 1).notify(by_signal(signal, i)).start()).collect();
    theirs.write_all(&[7; 20]).unwrap();
    assert!(aio::wait_all(&again).iter().all(|&result| result == Ok(1)));
    let other = Request::read(&ours, 1).start();
    theirs.write_all(b"x").unwrap();
    assert_eq!(other.wait(), Ok(1));
}

both_engines!(what_can_not_be_told_holds_nobody_else_up);
fn what_can_not_be_told_holds_nobody_else_up() {
    let [full, other] = [realtime(1), libc::SIGUSR1];
    signals::block(&[full, other]);
    // Other processes of this user may make room for it: then a thread that blocks no signals gets it.
    signals::interrupt_by(full);
    let file = tempfile::tempfile().unwrap();
    let write = |event| assert_eq!(Request::write(&file, b"x").notify(event).start().wait(), Ok(1));
    // No system has that much for a stack. It is tried until the process ends, also after this function's end.
    let attributes = Box::leak(Box::new(Attributes::new(1 << 47, true)));
    write(by_thread(note, 1, attributes.as_ptr()));
    descriptors::set_limit(libc::RLIMIT_SIGPENDING, queued_by_this_user());
    write(by_signal(full, 2));
    write(by_signal(other, 3));
    assert!(signals::take(&[other], PATIENCE).is_ok());
    write(by_thread(note, 4, std::ptr::null()));
    write(by_thread(note, 5, std::ptr::null()));
    let mut called: Vec<_> = await_calls(2).into_iter().map(|(value, _)| value).collect();
    called.sort_unstable();
    assert_eq!(called, [4, 5]);
}

both_engines!(a_signal_says_who_the_user_is_now);
fn a_signal_says_who_the_user_is_now() {
    const NOBODY: libc::uid_t = 65534;
    if !descriptors::is_root() {
        return process::skip_here("only root becomes somebody else");
    }
    let signal = realtime(1);
    signals::block(&[signal]);
    let file = tempfile::tempfile().unwrap();
    for user in [descriptors::user(), NOBODY] {
        descriptors::become_user(user);
        assert_eq!(Request::write(&file, b"x").notify(by_signal(signal, 5)).start().wait(), Ok(1));
        assert_eq!(signals::take(&[signal], PATIENCE).unwrap().uid, user);
    }
}

/// Signals that wait in all processes of this user, which the limit is about (`SigQ` in proc_pid_status(5)).
fn queued_by_this_user() -> libc::rlim_t {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigQ:")).unwrap();
    line.split('/').next().unwrap().trim().parse().unwrap()
}

both_engines!(a_signal_goes_to_one_thread);
fn a_signal_goes_to_one_thread() {
    let signal = realtime(1);
    signals::block(&[signal]);
    let file = tempfile::tempfile().unwrap();
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        let other = scope.spawn(move || {
            send.send(signals::thread_id()).unwrap();
            signals::take(&[signal], PATIENCE)
        });
        let event = by_signal_to(receive.recv().unwrap(), signal, 5);
        let write = Request::write(&file, b"x").notify(event).start();
        let taken = other.join().unwrap().unwrap();
        assert_eq!((taken.code, taken.value), (libc::SI_ASYNCIO, 5));
        assert_eq!(write.result(), Ok(1));
    });
    assert_eq!(signals::take(&[signal], Duration::from_millis(20)), Err(libc::EAGAIN));
    // To one that is gone there is nobody to send it to; all else goes on.
    let gone = std::thread::spawn(signals::thread_id).join().unwrap();
    let write = Request::write(&file, b"x").notify(by_signal_to(gone, signal, 5)).start();
    assert_eq!(write.wait(), Ok(1));
    let write = Request::write(&file, b"x").notify(by_signal(signal, 6)).start();
    assert_eq!(signals::take(&[signal], PATIENCE).unwrap().value, 6);
    assert_eq!(write.result(), Ok(1));
}

/// What a notification function found, by the value it was called with.
static CALLS: Mutex<Vec<(usize, Here)>> = Mutex::new(Vec::new());

extern "C" fn note(value: libc::sigval) {
    let here = Here::now();
    CALLS.lock().unwrap().push((value.sival_ptr.addr(), here));
}

fn await_calls(count: usize) -> Vec<(usize, Here)> {
    eventually("the functions are called", || CALLS.lock().unwrap().len() >= count);
    std::mem::take(&mut *CALLS.lock().unwrap())
}

both_engines!(a_function_is_called_in_a_thread);
fn a_function_is_called_in_a_thread() {
    signals::block(&[libc::SIGUSR1, libc::SIGTERM]);
    let file = tempfile::tempfile().unwrap();
    let threads = {
        assert_eq!(Request::write(&file, b"x").start().wait(), Ok(1));
        descriptors::threads().len()
    };
    let write = Request::write(&file, b"x").notify(by_thread(note, 4711, std::ptr::null())).start();
    let calls = await_calls(1);
    let (value, here) = &calls[0];
    assert_eq!(*value, 4711);
    assert_ne!(here.thread, signals::thread_id());
    assert!(here.detached, "nobody joins it");
    assert_eq!(here.blocked, [], "its signal mask is empty");
    assert_eq!(write.result(), Ok(1));
    eventually("the thread ends", || descriptors::threads().len() <= threads);
}

both_engines!(a_thread_has_the_attributes_asked_for);
fn a_thread_has_the_attributes_asked_for() {
    let file = tempfile::tempfile().unwrap();
    for (turn, detached) in [false, true].into_iter().enumerate() {
        let attributes = Attributes::new(3 << 20, detached);
        let event = by_thread(note, turn, attributes.as_ptr());
        let write = Request::write(&file, b"x").notify(event).start();
        let calls = await_calls(1);
        assert_eq!(calls[0].0, turn);
        assert_eq!(calls[0].1.stack, 3 << 20);
        assert!(calls[0].1.detached, "whatever the attributes say: nobody can know which thread to join");
        assert_eq!(write.result(), Ok(1));
    }
}

both_engines!(many_threads_are_called);
fn many_threads_are_called() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let event = |i| by_thread(note, i, std::ptr::null());
    let reads: Vec<_> = (0..300).map(|i| Request::read(&ours, 1).notify(event(i)).start()).collect();
    theirs.write_all(&[7; 300]).unwrap();
    let mut values: Vec<_> = await_calls(300).into_iter().map(|(value, _)| value).collect();
    values.sort_unstable();
    assert_eq!(values, (0..300).collect::<Vec<_>>());
    assert!(reads.iter().all(|read| read.result() == Ok(1)));
}

both_engines!(a_list_is_notified_in_a_thread);
fn a_list_is_notified_in_a_thread() {
    let file = tempfile::tempfile().unwrap();
    let writes = [Request::write(&file, b"x"), Request::write(&file, b"y")];
    let event = by_thread(note, 5, std::ptr::null());
    aio::listio(libc::LIO_NOWAIT, &[Some(&writes[0]), Some(&writes[1])], Some(event)).unwrap();
    let calls = await_calls(1);
    assert_eq!((calls.len(), calls[0].0), (1, 5));
    assert!(writes.iter().all(|write| write.result() == Ok(1)));
}

/// The request that the handler submits again, and how often it did.
static REARMED: std::sync::OnceLock<Request> = std::sync::OnceLock::new();
static TURNS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn rearm(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    let request = REARMED.get().unwrap();
    // Only async-signal-safe calls: no assertion here may fail, or it would want to print.
    if request.error() == 0 && request.aio_return() == Ok(1) && request.submit_again() == Ok(()) {
        TURNS.fetch_add(1, Ordering::Release);
    }
}

both_engines!(a_handler_submits_again);
/// As servers of the time did it: the handler of the signal asks for the next data.
fn a_handler_submits_again() {
    let signal = realtime(1);
    signals::handle(signal, libc::SA_RESTART, rearm);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    signals::block(&[signal]);
    let read = REARMED.get_or_init(|| Request::read(&ours, 1).notify(by_signal(signal, 0)));
    assert_eq!(read.submit_again(), Ok(()));
    for turn in 0..5000 {
        theirs.write_all(b"x").unwrap();
        while TURNS.load(Ordering::Acquire) <= turn {
            signals::await_handler();
        }
    }
    assert_eq!(TURNS.load(Ordering::Acquire), 5000);
}

both_engines!(blocking_calls_are_not_interrupted);
/// Those that fail with EINTR rather than being restarted when the kernel runs something in their thread.
fn blocking_calls_are_not_interrupted() {
    let signal = realtime(1);
    signals::block(&[signal]);
    let (ours, theirs) = net::tcp_pair();
    let file = tempfile::tempfile().unwrap();
    let silent = UnixStream::pair().unwrap();
    let end = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // This thread submits all of it, and another makes it complete while this one blocks.
        let mut reads: Vec<_> = (0..64).map(|_| Request::read(&ours, 1).start()).collect();
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                (&theirs).write_all(b"x").unwrap();
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let _write = Request::write(&file, &vec![0; 1 << 20]).start();
        let timeout = Duration::from_millis(60);
        let calls: [(&str, waiting::Call); 8] = [
            ("epoll_wait", waiting::epoll_wait),
            ("sigtimedwait", |_, timeout| signals::take(&[realtime(1)], timeout).map(|_| ())),
            ("recv", waiting::receive),
            ("accept", waiting::accept),
            ("semtimedop", waiting::semtimedop),
            ("poll", waiting::poll),
            ("nanosleep", waiting::nanosleep),
            ("ppoll", waiting::ppoll),
        ];
        for (name, call) in calls {
            // On a busy machine the other thread may not get to run each time.
            let mut with_completions = 0;
            while with_completions < 3 {
                let begin = Instant::now();
                assert_eq!(call(&silent.0, timeout), Err(libc::EAGAIN), "{name}");
                assert!(begin.elapsed() >= timeout - Duration::from_millis(10), "{name} ended early");
                let done = reads.iter_mut().filter(|read| !read.in_flight()).map(|read| read.submit().unwrap()).count();
                with_completions += usize::from(done > 0);
            }
        }
        end.store(true, Ordering::Relaxed);
    });
}
