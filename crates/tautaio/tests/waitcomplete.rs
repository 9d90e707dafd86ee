//! The extensions of `<tautaio.h>`: `aio_waitcomplete` and `tautaio_completion_fd`.

mod support;

use std::collections::HashSet;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use libc::timespec;
use support::aio::{self, PATIENCE, Request, completion_fd, timespec_of, waitcomplete};
use support::descriptors::{Unopened, drain_eventfd, is_readable};
use support::{both_engines, signals};

const AT_ONCE: Option<timespec> = Some(timespec { tv_sec: 0, tv_nsec: 0 });

fn patiently() -> Option<timespec> {
    Some(timespec_of(PATIENCE))
}

both_engines!(the_next_that_is_done);
fn the_next_that_is_done() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 100).start();
    assert_eq!(waitcomplete(AT_ONCE), Err(libc::EAGAIN));
    theirs.write_all(b"hello").unwrap();
    assert_eq!(waitcomplete(patiently()), Ok((read.as_ptr(), Ok(5))));
    assert_eq!(read.error(), 0);
    assert_eq!(&read.data()[..5], b"hello");
    assert_eq!(waitcomplete(AT_ONCE), Err(libc::EAGAIN), "each is given once");
}

both_engines!(in_the_order_of_completion);
fn in_the_order_of_completion() {
    let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
    let reads: Vec<_> = pairs.iter().map(|(ours, _)| Request::read(ours, 1).start()).collect();
    let order: Vec<_> = (0..100).map(|i| i * 37 % 100).collect();
    for &i in &order {
        (&pairs[i].1).write_all(b"x").unwrap();
        support::descriptors::eventually("it is done", || !reads[i].in_flight());
    }
    for &i in &order {
        assert_eq!(waitcomplete(patiently()), Ok((reads[i].as_ptr(), Ok(1))));
    }
    assert_eq!(waitcomplete(AT_ONCE), Err(libc::EAGAIN));
}

both_engines!(failures_are_given_with_their_error);
fn failures_are_given_with_their_error() {
    let bad = Request::read(&Unopened(-1), 1).start();
    assert_eq!(waitcomplete(patiently()), Ok((bad.as_ptr(), Err(libc::EBADF))));
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1).start();
    assert_eq!(read.cancel(), Ok(libc::AIO_CANCELED));
    assert_eq!(waitcomplete(patiently()), Ok((read.as_ptr(), Err(libc::ECANCELED))));
}

both_engines!(what_aio_return_gave_is_not_given_again);
fn what_aio_return_gave_is_not_given_again() {
    let file = tempfile::tempfile().unwrap();
    let writes: Vec<_> = (0..10).map(|i| Request::write(&file, b"x").at(i).start()).collect();
    for write in &writes {
        support::descriptors::eventually("it is done", || !write.in_flight());
    }
    let mut expected: HashSet<_> = writes.iter().map(Request::as_ptr).collect();
    for write in writes.iter().step_by(2) {
        assert_eq!(write.aio_return(), Ok(1));
        expected.remove(&write.as_ptr());
    }
    for _ in 0..5 {
        let (block, result) = waitcomplete(patiently()).unwrap();
        assert!(expected.remove(&block));
        assert_eq!(result, Ok(1));
    }
    assert_eq!(waitcomplete(AT_ONCE), Err(libc::EAGAIN));
}

both_engines!(memory_is_free_once_aio_return_was_called);
/// The same aiocb again and again, collected now this way and now that.
fn memory_is_free_once_aio_return_was_called() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut read = Request::read(&ours, 1);
    for turn in 0..3000 {
        read.submit().unwrap();
        theirs.write_all(b"x").unwrap();
        if turn % 3 == 0 {
            assert_eq!(waitcomplete(patiently()), Ok((read.as_ptr(), Ok(1))));
        } else {
            assert_eq!(read.wait(), Ok(1));
        }
        if turn % 7 == 0 {
            assert_eq!(waitcomplete(AT_ONCE), Err(libc::EAGAIN));
        }
    }
}

both_engines!(time_runs_out);
fn time_runs_out() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let _read = Request::read(&ours, 1).start();
    for milliseconds in [1, 50] {
        let begin = Instant::now();
        let timeout = Duration::from_millis(milliseconds);
        assert_eq!(waitcomplete(Some(timespec_of(timeout))), Err(libc::EAGAIN));
        assert!(begin.elapsed() >= timeout);
    }
    const { assert!(libc::EAGAIN == libc::EWOULDBLOCK) };
}

both_engines!(an_invalid_time_is_refused);
fn an_invalid_time_is_refused() {
    let file = tempfile::tempfile().unwrap();
    let write = Request::write(&file, b"x").start();
    for tv_nsec in [-1, 1_000_000_000] {
        assert_eq!(waitcomplete(Some(timespec { tv_sec: 0, tv_nsec })), Err(libc::EINVAL), "{tv_nsec}");
    }
    assert_eq!(waitcomplete(patiently()), Ok((write.as_ptr(), Ok(1))), "nothing was taken");
}

both_engines!(without_a_time_it_waits);
fn without_a_time_it_waits() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1).start();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            theirs.write_all(b"x").unwrap();
        });
        assert_eq!(waitcomplete(None), Ok((read.as_ptr(), Ok(1))));
    });
}

both_engines!(a_handler_interrupts_it);
fn a_handler_interrupts_it() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let _read = Request::read(&ours, 1).start();
    let signal = signals::realtime(1);
    signals::interrupt_by(signal);
    for timeout in [None, patiently()] {
        assert_eq!(signals::while_signalled(signal, || waitcomplete(timeout)), Err(libc::EINTR));
    }
}

both_engines!(many_threads_share_the_requests);
fn many_threads_share_the_requests() {
    const EACH: usize = 2000;
    let (ours, theirs) = UnixStream::pair().unwrap();
    let reads: Vec<_> = (0..4 * EACH).map(|_| Request::read(&ours, 1).start()).collect();
    let taken = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let (block, result) = waitcomplete(patiently()).unwrap();
                    assert_eq!(result, Ok(1));
                    assert!(taken.lock().unwrap().insert(block.addr()), "given twice");
                }
            });
        }
        for chunk in [7; 4 * EACH].chunks(100) {
            (&theirs).write_all(chunk).unwrap();
        }
    });
    assert_eq!(taken.into_inner().unwrap(), reads.iter().map(|read| read.as_ptr().addr()).collect());
}

both_engines!(a_list_gives_each_of_its_requests);
fn a_list_gives_each_of_its_requests() {
    let file = tempfile::tempfile().unwrap();
    let writes = [Request::write(&file, b"x"), Request::write(&file, b"y")];
    aio::listio(libc::LIO_WAIT, &[Some(&writes[0]), Some(&writes[1])], None).unwrap();
    let mut expected: HashSet<_> = writes.iter().map(Request::as_ptr).collect();
    for _ in 0..2 {
        assert!(expected.remove(&waitcomplete(AT_ONCE).unwrap().0));
    }
    assert_eq!(waitcomplete(AT_ONCE), Err(libc::EAGAIN));
}

both_engines!(the_descriptor_tells_of_requests);
fn the_descriptor_tells_of_requests() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let fd = completion_fd();
    assert!(fd >= 0);
    assert_eq!(completion_fd(), fd, "one for the process");
    // There may be something from before.
    drain_eventfd(fd);
    assert_eq!(waitcomplete(AT_ONCE), Err(libc::EAGAIN));
    let mut reads: Vec<_> = (0..3).map(|_| Request::read(&ours, 1).start()).collect();
    assert!(!is_readable(fd, Duration::from_millis(20)));
    for _ in 0..20 {
        theirs.write_all(b"123").unwrap();
        let mut done = 0;
        while done < 3 {
            assert!(is_readable(fd, PATIENCE));
            drain_eventfd(fd);
            while let Ok((_, result)) = waitcomplete(AT_ONCE) {
                assert_eq!(result, Ok(1));
                done += 1;
            }
        }
        assert_eq!(done, 3);
        for read in &mut reads {
            read.submit().unwrap();
        }
    }
}

both_engines!(the_descriptor_tells_of_what_was_done_before_it_was_made);
fn the_descriptor_tells_of_what_was_done_before_it_was_made() {
    let file = tempfile::tempfile().unwrap();
    let write = Request::write(&file, b"x").start();
    support::descriptors::eventually("it is done", || !write.in_flight());
    assert!(is_readable(completion_fd(), PATIENCE));
    assert_eq!(waitcomplete(AT_ONCE), Ok((write.as_ptr(), Ok(1))));
}
