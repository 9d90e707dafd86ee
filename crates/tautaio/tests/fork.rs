//! fork(2) and execution of other programs.

mod support;

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::aio::{self, PATIENCE, Request, by_signal};
use support::process::{fork_and_wait, fork_child, wait_for};
use support::{both_engines, descriptors, signals};

both_engines!(a_child_starts_afresh);
fn a_child_starts_afresh() {
    use_both_kinds();
    let status = fork_and_wait(|| {
        use_both_kinds();
        let status = fork_and_wait(use_both_kinds);
        assert!(status.success(), "{status}");
        use_both_kinds();
    });
    assert!(status.success(), "{status}");
    use_both_kinds();
}

both_engines!(a_child_of_an_idle_parent_starts_afresh);
fn a_child_of_an_idle_parent_starts_afresh() {
    let status = fork_and_wait(use_both_kinds);
    assert!(status.success(), "{status}");
    use_both_kinds();
}

both_engines!(what_is_in_flight_is_not_the_childs);
fn what_is_in_flight_is_not_the_childs() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut reads: Vec<_> = (0..10).map(|_| Request::read(&ours, 1).start()).collect();
    let file = tempfile::tempfile().unwrap();
    let done = Request::write(&file, b"x").start();
    assert_eq!(done.wait(), Ok(1));
    let status = fork_and_wait(|| {
        for read in &reads {
            assert_eq!(read.error(), libc::ECANCELED);
            assert_eq!(read.result(), Err(libc::ECANCELED));
        }
        assert_eq!(done.result(), Ok(1), "what was done before is done");
        assert_eq!(aio::suspend(&[Some(&reads[0])], Some(PATIENCE)), Ok(()), "none of them is waited for");
        assert_eq!(reads[0].cancel(), Ok(libc::AIO_ALLDONE));
        assert_eq!(aio::cancel_all(&ours), Ok(libc::AIO_ALLDONE));
        assert!(aio::waitcomplete(Some(aio::timespec_of(Duration::ZERO))).is_err(), "nothing was completed here");
        // The memory is the child's own, for new requests.
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let again = &mut reads[0];
        again.block_mut().aio_fildes = ours.as_raw_fd();
        again.submit().unwrap();
        theirs.write_all(b"y").unwrap();
        assert_eq!(again.wait(), Ok(1));
        assert_eq!(again.data(), b"y");
    });
    assert!(status.success(), "{status}");
    assert!(reads.iter().all(Request::in_flight), "the parent's go on");
    theirs.write_all(b"0123456789").unwrap();
    assert!(aio::wait_all(&reads).iter().all(|&result| result == Ok(1)));
    assert_eq!(reads.iter().flat_map(Request::data).copied().collect::<Vec<_>>(), b"0123456789");
}

both_engines!(a_child_that_closes_does_not_end_the_parents);
fn a_child_that_closes_does_not_end_the_parents() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1).start();
    let status = fork_and_wait(|| {
        descriptors::close(ours.as_raw_fd()).unwrap();
        descriptors::close_range(3, i32::MAX, 0).unwrap();
        use_both_kinds();
    });
    assert!(status.success(), "{status}");
    assert!(read.in_flight());
    theirs.write_all(b"x").unwrap();
    assert_eq!(read.wait(), Ok(1));
}

both_engines!(signals_go_to_the_process_that_submitted);
fn signals_go_to_the_process_that_submitted() {
    let signal = signals::realtime(1);
    signals::block(&[signal]);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1).notify(by_signal(signal, 1)).start();
    let child = fork_child(|| {
        let file = tempfile::tempfile().unwrap();
        let write = Request::write(&file, b"x").notify(by_signal(signal, 2)).start();
        let taken = signals::take(&[signal], PATIENCE).unwrap();
        assert_eq!((taken.value, taken.pid), (2, std::process::id().cast_signed()));
        assert_eq!(write.result(), Ok(1));
        assert_eq!(signals::take(&[signal], Duration::from_millis(100)), Err(libc::EAGAIN));
    });
    std::thread::sleep(Duration::from_millis(50));
    theirs.write_all(b"x").unwrap();
    let taken = signals::take(&[signal], PATIENCE).unwrap();
    assert_eq!((taken.value, taken.pid), (1, std::process::id().cast_signed()));
    assert_eq!(read.result(), Ok(1));
    let status = wait_for(child);
    assert!(status.success(), "{status}");
}

both_engines!(forks_amid_the_work_of_other_threads);
fn forks_amid_the_work_of_other_threads() {
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    use_both_kinds();
                }
            });
        }
        for _ in 0..40 {
            // In the child there is one thread, whatever the others were at.
            let status = fork_and_wait(use_both_kinds);
            assert!(status.success(), "{status}");
        }
        end.store(true, Ordering::Relaxed);
    });
}

both_engines!(other_programs_run_beside_pending_operations);
fn other_programs_run_beside_pending_operations() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1).start();
    use_both_kinds();
    for _ in 0..5 {
        // std uses vfork or posix_spawn.
        let output = Command::new("/bin/ls").arg("/proc/self/fd").env_remove("LD_PRELOAD").output().unwrap();
        assert!(output.status.success());
        // Three and the one that lists them; perhaps what this process has inherited.
        let listed = String::from_utf8(output.stdout).unwrap().lines().count();
        assert!(listed <= 4 + descriptors::inheritable().len(), "descriptors of the library were inherited");
    }
    assert!(read.in_flight());
    theirs.write_all(b"x").unwrap();
    assert_eq!(read.wait(), Ok(1));
}

both_engines!(a_process_ends_with_operations_in_flight);
fn a_process_ends_with_operations_in_flight() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let child = fork_child(|| {
        drop(theirs);
        let _reads: Vec<_> = (0..100).map(|_| Request::read(&ours, 1).start()).collect();
        let file = tempfile::tempfile().unwrap();
        let _write = Request::write(&file, &[0; 1 << 20]).start();
        // Through the handlers of exit(3) as well.
        std::process::exit(7);
    });
    assert_eq!(wait_for(child).code(), Some(7));
    use_both_kinds();
}

/// A socket and a file.
fn use_both_kinds() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 4).start();
    let write = Request::write(&ours, b"ping").start();
    assert_eq!(write.wait(), Ok(4));
    theirs.read_exact(&mut [0; 4]).unwrap();
    theirs.write_all(b"pong").unwrap();
    assert_eq!(aio::suspend(&[Some(&read)], Some(PATIENCE)), Ok(()));
    assert_eq!(read.result(), Ok(4));
    assert_eq!(read.data(), b"pong");
    let file = tempfile::tempfile().unwrap();
    assert_eq!(Request::write(&file, b"x").start().wait(), Ok(1));
}
