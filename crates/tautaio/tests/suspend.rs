//! `aio_suspend`.

mod support;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::time::{Duration, Instant};

use libc::timespec;
use support::aio::{self, PATIENCE, Request, suspend, suspend_raw};
use support::{both_engines, descriptors, signals};

both_engines!(an_empty_list_waits_for_nothing);
fn an_empty_list_waits_for_nothing() {
    let begin = Instant::now();
    assert_eq!(suspend(&[], Some(PATIENCE)), Ok(()));
    assert_eq!(suspend(&[], None), Ok(()));
    assert_eq!(suspend_raw(ptr::null(), 0, None), Ok(()));
    assert_eq!(suspend(&[None, None, None], None), Ok(()));
    assert!(begin.elapsed() < PATIENCE);
    start_engine();
}

both_engines!(a_negative_length_is_refused);
fn a_negative_length_is_refused() {
    assert_eq!(suspend_raw(ptr::null(), -1, None), Err(libc::EINVAL));
    let (_theirs, read) = pending();
    let list = [read.as_ptr().cast_const()];
    for length in [-1, i32::MIN] {
        assert_eq!(suspend_raw(list.as_ptr(), length, None), Err(libc::EINVAL));
    }
}

both_engines!(an_invalid_time_is_refused);
fn an_invalid_time_is_refused() {
    let (_theirs, read) = pending();
    let list = [read.as_ptr().cast_const()];
    for tv_nsec in [-1, 1_000_000_000, i64::MAX] {
        let timeout = timespec { tv_sec: 0, tv_nsec };
        assert_eq!(suspend_raw(list.as_ptr(), 1, Some(&timeout)), Err(libc::EINVAL), "{tv_nsec}");
    }
}

both_engines!(what_is_done_is_not_waited_for);
fn what_is_done_is_not_waited_for() {
    let (_theirs, read) = pending();
    let file = tempfile::tempfile().unwrap();
    let done = Request::write(&file, b"x").start();
    assert_eq!(done.wait(), Ok(1));
    assert_eq!(suspend(&[Some(&read), None, Some(&done)], None), Ok(()));
    assert_eq!(suspend(&[Some(&done), Some(&read)], Some(Duration::ZERO)), Ok(()));
    assert!(read.in_flight());
}

both_engines!(a_failed_request_counts_as_done);
fn a_failed_request_counts_as_done() {
    let (_theirs, read) = pending();
    let bad = Request::read(&descriptors::Unopened(-1), 1).start();
    assert_eq!(suspend(&[Some(&read), Some(&bad)], Some(PATIENCE)), Ok(()));
    assert_eq!(bad.error(), libc::EBADF);
}

both_engines!(nothing_in_time_is_an_error);
fn nothing_in_time_is_an_error() {
    let (_theirs, read) = pending();
    assert_eq!(suspend(&[Some(&read)], Some(Duration::ZERO)), Err(libc::EAGAIN));
    for milliseconds in [1, 20, 100] {
        let timeout = Duration::from_millis(milliseconds);
        let begin = Instant::now();
        assert_eq!(suspend(&[None, Some(&read)], Some(timeout)), Err(libc::EAGAIN));
        assert!(begin.elapsed() >= timeout);
    }
    assert!(read.in_flight());
}

both_engines!(it_ends_when_one_of_the_list_is_done);
fn it_ends_when_one_of_the_list_is_done() {
    let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
    let mut reads: Vec<_> = pairs.iter().map(|(ours, _)| Request::read(ours, 1).start()).collect();
    for timeout in [None, Some(PATIENCE)] {
        for chosen in [0, 99, 50, 1] {
            std::thread::scope(|scope| {
                let theirs = &pairs[chosen].1;
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(5));
                    (&mut &*theirs).write_all(b"x").unwrap();
                });
                let list: Vec<_> = reads.iter().flat_map(|read| [Some(read), None]).collect();
                assert_eq!(suspend(&list, timeout), Ok(()));
                assert!(!reads[chosen].in_flight());
                assert_eq!(reads.iter().filter(|read| read.in_flight()).count(), 99);
            });
            reads[chosen].submit().unwrap();
        }
    }
}

both_engines!(others_do_not_end_it);
fn others_do_not_end_it() {
    let (_theirs, read) = pending();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let end = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = Request::read(&ours, 1);
            while !end.load(std::sync::atomic::Ordering::Relaxed) {
                other.submit().unwrap();
                (&mut &theirs).write_all(b"x").unwrap();
                assert_eq!(other.wait(), Ok(1));
            }
        });
        let begin = Instant::now();
        assert_eq!(suspend(&[Some(&read)], Some(Duration::from_millis(200))), Err(libc::EAGAIN));
        assert!(begin.elapsed() >= Duration::from_millis(200));
        end.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

both_engines!(a_handler_interrupts_it);
fn a_handler_interrupts_it() {
    let (_theirs, read) = pending();
    let signal = signals::realtime(1);
    signals::interrupt_by(signal);
    for timeout in [None, Some(PATIENCE)] {
        let result = signals::while_signalled(signal, || suspend(&[Some(&read)], timeout));
        assert_eq!(result, Err(libc::EINTR));
        assert!(read.in_flight());
    }
}

both_engines!(a_list_of_ten_thousand);
fn a_list_of_ten_thousand() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let reads: Vec<_> = (0..10_000).map(|_| Request::read(&ours, 1).start()).collect();
    let list: Vec<_> = reads.iter().map(Some).collect();
    assert_eq!(suspend(&list, Some(Duration::from_millis(1))), Err(libc::EAGAIN));
    for done in [1, 2, 3] {
        (&mut &theirs).write_all(b"x").unwrap();
        assert_eq!(suspend(&list[done - 1..], Some(PATIENCE)), Ok(()));
        assert_eq!(reads[done - 1].result(), Ok(1));
    }
    // The last of the list.
    std::thread::scope(|scope| {
        scope.spawn(|| (&mut &theirs).write_all(&[0; 10_000]).unwrap());
        assert_eq!(suspend(&list[9_999..], Some(PATIENCE)), Ok(()));
    });
    assert!(aio::wait_all(&reads).iter().all(|&result| result == Ok(1)));
}

both_engines!(threads_wait_for_requests_of_their_own);
fn threads_wait_for_requests_of_their_own() {
    let pairs: Vec<_> = (0..16).map(|_| UnixStream::pair().unwrap()).collect();
    std::thread::scope(|scope| {
        for (ours, theirs) in &pairs {
            scope.spawn(move || {
                let mut read = Request::read(ours, 1);
                for _ in 0..300 {
                    read.submit().unwrap();
                    (&mut &*theirs).write_all(b"x").unwrap();
                    assert_eq!(suspend(&[Some(&read)], Some(PATIENCE)), Ok(()));
                    assert_eq!(read.result(), Ok(1));
                }
            });
        }
    });
}

both_engines!(threads_wait_for_the_same_request);
fn threads_wait_for_the_same_request() {
    let (theirs, read) = pending();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..8).map(|_| scope.spawn(|| suspend(&[Some(&read)], Some(PATIENCE)))).collect();
        std::thread::sleep(Duration::from_millis(20));
        (&mut &theirs).write_all(b"x").unwrap();
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), Ok(()));
        }
    });
}

/// A read that will stay in flight until the peer, which is returned as well, writes.
fn pending() -> (UnixStream, Request) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1).start();
    // The request needs the descriptor open, and the test ends with the process.
    std::mem::forget(ours);
    (theirs, read)
}

fn start_engine() {
    let (theirs, read) = pending();
    (&mut &theirs).write_all(b"x").unwrap();
    assert_eq!(read.wait(), Ok(1));
}
