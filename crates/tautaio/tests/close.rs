//! Closing descriptors, their numbers used again, and threads that end.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use support::aio::{self, PATIENCE, Request, by_signal, cancel_all};
use support::descriptors::{self, close, close_by_system_call, close_range, dup2, dup3, memory_file, move_to, own};
use support::fuse::{Held, SlowFile};
use support::process::{is_epoll, skip_here};
use support::{both_engines, net, only_uring, signals};

/// A way to close a descriptor, and its name.
type Closing = (&'static str, fn(RawFd));

both_engines!(the_peer_sees_the_end);
/// The kernel alone would keep the connection open for the pending read.
fn the_peer_sees_the_end() {
    let closings: [Closing; 5] = [
        ("close", |fd| close(fd).unwrap()),
        ("dup2", |fd| assert_eq!(dup2(0, fd), Ok(fd))),
        ("dup3", |fd| assert_eq!(dup3(0, fd), Ok(fd))),
        ("close_range", |fd| close_range(fd, fd, 0).unwrap()),
        ("closefrom", descriptors::closefrom_1000),
    ];
    for (name, closing) in closings {
        let (ours, mut theirs) = net::tcp_pair();
        // Its number is above all others', for closefrom.
        let ours = move_to(ours.into(), 1000);
        let reads = [Request::read(&ours, 1).start(), Request::read(&ours, 1).start()];
        closing(ours.into_raw_fd());
        for read in &reads {
            assert_eq!(read.result(), Err(libc::ECANCELED), "{name}");
        }
        assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0, "{name}");
        let _ = close(1000);
    }
}

both_engines!(a_cancelled_operation_is_notified);
fn a_cancelled_operation_is_notified() {
    let signal = signals::realtime(1);
    signals::block(&[signal]);
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1).notify(by_signal(signal, 5)).start();
    drop(ours);
    assert_eq!(signals::take(&[signal], PATIENCE).unwrap().value, 5);
    assert_eq!(read.result(), Err(libc::ECANCELED));
}

both_engines!(other_descriptors_go_on);
fn other_descriptors_go_on() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let copy = ours.try_clone().unwrap();
    let (closed, _peer) = UnixStream::pair().unwrap();
    let reads = [Request::read(&ours, 1).start(), Request::read(&copy, 1).start()];
    let ended = Request::read(&closed, 1).start();
    drop(closed);
    assert_eq!(ended.result(), Err(libc::ECANCELED));
    // The same file under another number.
    drop(copy);
    assert_eq!(reads[1].result(), Err(libc::ECANCELED));
    assert!(reads[0].in_flight());
    theirs.write_all(b"x").unwrap();
    assert_eq!(reads[0].wait(), Ok(1));
}

both_engines!(what_closes_nothing_cancels_nothing);
fn what_closes_nothing_cancels_nothing() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let fd = ours.as_raw_fd();
    let read = Request::read(&ours, 1).start();
    assert_eq!(dup2(9999, fd), Err(libc::EBADF));
    assert_eq!(dup3(9999, fd), Err(libc::EBADF));
    assert_eq!(dup2(fd, fd), Ok(fd));
    assert_eq!(dup3(fd, fd), Err(libc::EINVAL));
    close_range(fd, fd, libc::CLOSE_RANGE_CLOEXEC).unwrap();
    assert_eq!(close_range(fd, fd - 1, 0), Err(libc::EINVAL));
    assert_eq!(close(-1), Err(libc::EBADF));
    assert_eq!(close(9999), Err(libc::EBADF));
    assert!(read.in_flight());
    theirs.write_all(b"x").unwrap();
    assert_eq!(read.wait(), Ok(1));
}

both_engines!(dup_to_another_number_works_as_ever);
fn dup_to_another_number_works_as_ever() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (victim, _peer) = UnixStream::pair().unwrap();
    let cancelled = Request::read(&victim, 1).start();
    let fd = victim.into_raw_fd();
    assert_eq!(dup2(ours.as_raw_fd(), fd), Ok(fd));
    assert_eq!(cancelled.result(), Err(libc::ECANCELED));
    let read = Request::read(&fd, 1).start();
    theirs.write_all(b"x").unwrap();
    assert_eq!(read.wait(), Ok(1));
    assert_eq!(descriptors::inheritable().iter().filter(|&&open| open == fd).count(), 1, "dup2 clears FD_CLOEXEC");
    assert_eq!(dup3(ours.as_raw_fd(), fd), Ok(fd));
    assert!(!descriptors::inheritable().contains(&fd));
    close(fd).unwrap();
}

both_engines!(the_librarys_own_survive_those_who_close_everything);
/// As daemons do it.
fn the_librarys_own_survive_those_who_close_everything() {
    use_it();
    close_range(3, i32::MAX, 0).unwrap();
    use_it();
    for fd in 3..1024 {
        let _ = close(fd);
    }
    use_it();
    let file = File::open("/dev/null").unwrap();
    for fd in (3..100).filter(|&fd| fd != file.as_raw_fd()) {
        let _ = dup2(file.as_raw_fd(), fd);
    }
    use_it();
}

only_uring!(closed_behind_the_back_an_operation_goes_on);
/// epoll(7) does not keep a file open that is registered with it.
fn closed_behind_the_back_an_operation_goes_on() {
    let (ours, mut theirs) = net::tcp_pair();
    let read = Request::read(&ours, 4).start();
    // It has begun.
    std::thread::sleep(Duration::from_millis(20));
    close_by_system_call(ours.into_raw_fd());
    assert!(read.in_flight());
    theirs.write_all(b"late").unwrap();
    assert_eq!(read.wait(), Ok(4));
    assert_eq!(read.data(), b"late");
}

both_engines!(a_number_used_again_means_the_new_file);
fn a_number_used_again_means_the_new_file() {
    for behind_the_back in [false, true] {
        let (old, mut old_peer) = UnixStream::pair().unwrap();
        let (new, mut new_peer) = UnixStream::pair().unwrap();
        let old_read = Request::read(&old, 3).start();
        std::thread::sleep(Duration::from_millis(10));
        let fd = old.into_raw_fd();
        if behind_the_back {
            close_by_system_call(fd);
        } else {
            close(fd).unwrap();
        }
        let reused = move_to(new.into(), fd);
        let new_read = Request::read(&reused, 3).start();
        let write = Request::write(&reused, b"out").start();
        new_peer.write_all(b"new").unwrap();
        assert_eq!(new_read.wait(), Ok(3));
        assert_eq!(new_read.data(), b"new");
        assert_eq!(write.wait(), Ok(3));
        new_peer.read_exact(&mut [0; 3]).unwrap();
        if behind_the_back {
            assert!(old_read.in_flight());
            old_peer.write_all(b"old").unwrap();
            assert_eq!(old_read.wait(), Ok(3));
            assert_eq!(old_read.data(), b"old");
        } else {
            assert_eq!(old_read.result(), Err(libc::ECANCELED));
            assert!(old_peer.write_all(b"old").is_err());
        }
    }
}

both_engines!(an_idle_number_used_again_means_the_new_file);
/// What was known of the number is not what is.
fn an_idle_number_used_again_means_the_new_file() {
    for _ in 0..20 {
        let (old, mut old_peer) = UnixStream::pair().unwrap();
        let (new, mut new_peer) = UnixStream::pair().unwrap();
        let read = Request::read(&old, 1).start();
        old_peer.write_all(b"x").unwrap();
        assert_eq!(read.wait(), Ok(1));
        assert_eq!(Request::write(&old, b"x").start().wait(), Ok(1));
        let fd = old.into_raw_fd();
        close_by_system_call(fd);
        let new = move_to(new.into(), fd);
        let writes: Vec<_> = (0..4u8).map(|number| Request::write(&new, &vec![number; 300_000]).start()).collect();
        let reads: Vec<_> = (0..4).map(|_| Request::read(&new, 1).start()).collect();
        std::thread::sleep(Duration::from_millis(2));
        assert!(reads.iter().all(Request::in_flight), "{:?}", reads.iter().map(Request::error).collect::<Vec<_>>());
        new_peer.write_all(b"0123").unwrap();
        assert!(aio::wait_all(&reads).iter().all(|&result| result == Ok(1)));
        assert_eq!(reads.iter().flat_map(Request::data).copied().collect::<Vec<_>>(), b"0123");
        for number in 0..4 {
            let mut block = vec![0; 300_000];
            new_peer.read_exact(&mut block).unwrap();
            assert!(block.iter().all(|&byte| byte == number), "write {number} is out of order");
        }
        assert!(aio::wait_all(&writes).iter().all(|&result| result == Ok(300_000)));
    }
}

both_engines!(a_number_changes_from_a_socket_to_a_file_and_back);
fn a_number_changes_from_a_socket_to_a_file_and_back() {
    for turn in 0..200 {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let read = Request::read(&ours, 1).start();
        theirs.write_all(b"s").unwrap();
        assert_eq!(read.wait(), Ok(1));
        let fd = ours.into_raw_fd();
        if turn % 2 == 0 {
            close_by_system_call(fd);
        } else {
            close(fd).unwrap();
        }
        let file = move_to(tempfile::tempfile().unwrap().into(), fd);
        assert_eq!(Request::write(&file, b"file").at(2).start().wait(), Ok(4));
        let read = Request::read(&file, 10).at(1).start();
        assert_eq!(read.wait(), Ok(5));
        assert_eq!(&read.data()[..5], b"\0file");
        close(file.into_raw_fd()).unwrap();
    }
}

both_engines!(opened_and_closed_many_times);
fn opened_and_closed_many_times() {
    let before = descriptors::open().len();
    for turn in 0..2000 {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let read = Request::read(&ours, 1).start();
        if turn % 3 == 0 {
            theirs.write_all(b"x").unwrap();
        }
        drop(ours);
        // Data that came before the end may have been read.
        assert!(matches!(read.result(), Ok(1) | Err(libc::ECANCELED)), "{:?}", read.result());
        assert!(turn % 3 == 0 || read.result() == Err(libc::ECANCELED));
    }
    // The library has opened some of its own.
    assert!(descriptors::open().len() <= before + 4, "descriptors leak");
}

both_engines!(a_file_is_closed_under_its_operations);
fn a_file_is_closed_under_its_operations() {
    let slow = match SlowFile::mount(1 << 20) {
        Ok(slow) => slow,
        Err(reason) => return skip_here(&reason),
    };
    let file = File::options().read(true).append(true).open(slow.path()).unwrap();
    let writes = [Request::write(&file, b"first").start(), Request::write(&file, b"second").start()];
    let held = slow.expect(Held::Write);
    let closing = std::thread::spawn(move || drop(file));
    assert_eq!(writes[1].wait(), Err(libc::ECANCELED));
    if is_epoll() {
        // A thread may be about to use the number, so closing waits for it.
        std::thread::sleep(Duration::from_millis(50));
        assert!(!closing.is_finished());
        slow.release(held);
        closing.join().unwrap();
    } else {
        closing.join().unwrap();
        assert!(writes[0].in_flight(), "the kernel is at it");
        slow.release(held);
    }
    assert_eq!(writes[0].wait(), Ok(5));
}

both_engines!(an_operation_outlives_the_thread_that_submitted_it);
fn an_operation_outlives_the_thread_that_submitted_it() {
    let (ours, mut theirs) = net::tcp_pair();
    let (pipe_output, mut pipe_input) = std::io::pipe().unwrap();
    let file = tempfile::tempfile().unwrap();
    let requests = std::thread::scope(|scope| {
        let submit = || {
            [
                Request::read(&ours, 4).start(),
                Request::read(&pipe_output, 4).start(),
                Request::write(&file, &vec![1; 4 << 20]).start(),
            ]
        };
        scope.spawn(submit).join().unwrap()
    });
    std::thread::sleep(Duration::from_millis(50));
    theirs.write_all(b"late").unwrap();
    pipe_input.write_all(b"late").unwrap();
    assert_eq!(aio::wait_all(&requests), [Ok(4), Ok(4), Ok(4 << 20)]);
}

both_engines!(what_is_at_hand_is_closed_too);
/// A file that had some operations a moment ago is open no longer than its number; closed behind the back, a moment
/// longer.
fn what_is_at_hand_is_closed_too() {
    let ways: [Closing; 3] = [
        ("close", |fd| close(fd).unwrap()),
        ("dup2", |fd| assert_eq!(dup2(0, fd), Ok(fd))),
        ("the system call", close_by_system_call),
    ];
    for (name, closing) in ways {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for _ in 0..4 {
            let read = Request::read(&ours, 1).start();
            theirs.write_all(b"x").unwrap();
            assert_eq!(read.wait(), Ok(1));
            assert_eq!(Request::write(&ours, b"y").start().wait(), Ok(1));
            theirs.read_exact(&mut [0; 1]).unwrap();
        }
        let number = ours.into_raw_fd();
        closing(number);
        theirs.set_nonblocking(name != "the system call").unwrap();
        assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0, "{name}");
        if name == "dup2" {
            close(number).unwrap();
        }
    }
}

both_engines!(threads_do_not_disturb_each_other);
fn threads_do_not_disturb_each_other() {
    std::thread::scope(|scope| {
        for number in 0..8u8 {
            scope.spawn(move || {
                let (ours, mut theirs) = UnixStream::pair().unwrap();
                let file = tempfile::tempfile().unwrap();
                for turn in 0..200 {
                    let read = Request::read(&ours, 64).start();
                    let write = Request::write(&file, &[number; 100]).at(turn * 100).start();
                    theirs.write_all(&[number; 64]).unwrap();
                    assert_eq!(read.wait(), Ok(64));
                    assert_eq!(read.data(), [number; 64]);
                    assert_eq!(write.wait(), Ok(100));
                }
                let mut content = Vec::new();
                (&file).read_to_end(&mut content).unwrap();
                assert!(content.len() == 20_000 && content.iter().all(|&byte| byte == number));
            });
        }
    });
}

fn use_it() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1).start();
    theirs.write_all(b"x").unwrap();
    assert_eq!(read.wait(), Ok(1));
    let file = own(memory_file());
    assert_eq!(Request::write(&file, b"x").start().wait(), Ok(1));
    let _: OwnedFd = file;
}

both_engines!(who_takes_the_number_over_cancels_nothing_of_its_former_file);
fn who_takes_the_number_over_cancels_nothing_of_its_former_file() {
    let former: [fn() -> (OwnedFd, OwnedFd); 2] = [
        || UnixStream::pair().map(|(reader, writer)| (reader.into(), writer.into())).unwrap(),
        || std::io::pipe().map(|(reader, writer)| (reader.into(), writer.into())).unwrap(),
    ];
    for (reader, writer) in former.map(|make| make()) {
        let reads = [Request::read(&reader, 1).start(), Request::read(&reader, 1).start()];
        let number = reader.into_raw_fd();
        close_by_system_call(number);
        let other = move_to(own(memory_file()), number);
        assert_eq!(cancel_all(&other), Ok(libc::AIO_ALLDONE));
        close(other.into_raw_fd()).unwrap();
        assert!(reads.iter().all(Request::in_flight));
        for read in reads {
            assert_eq!(Request::write(&writer, b"x").start().wait(), Ok(1));
            assert_eq!(read.wait(), Ok(1));
            assert_eq!(read.data(), b"x");
        }
    }
}

both_engines!(a_dup3_that_is_refused_cancels_nothing);
fn a_dup3_that_is_refused_cancels_nothing() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1).start();
    assert_eq!(descriptors::dup3_with(0, ours.as_raw_fd(), libc::O_APPEND), Err(libc::EINVAL));
    theirs.write_all(b"x").unwrap();
    assert_eq!(read.wait(), Ok(1));
}

both_engines!(the_ends_of_a_pipe_are_two_files);
/// The number of one end becomes that of the other behind our back.
fn the_ends_of_a_pipe_are_two_files() {
    let (output, input) = std::io::pipe().unwrap();
    let read = Request::read(&output, 5).start();
    let number = output.into_raw_fd();
    close_by_system_call(number);
    let input = move_to(input.into(), number);
    assert_eq!(Request::write(&input, b"hello").start().wait(), Ok(5));
    assert_eq!(read.wait(), Ok(5));
    assert_eq!(read.data(), b"hello");
}

both_engines!(a_table_of_ones_own_misdirects_nothing);
/// The number of the library's second descriptor is another file's in the table that the I/O thread has.
fn a_table_of_ones_own_misdirects_nothing() {
    let pipes: Vec<_> = (0..4).map(|_| std::io::pipe().unwrap()).collect();
    let (_, mine) = std::io::pipe().unwrap();
    let first = Request::read(&pipes[0].0, 1).start();
    std::thread::scope(|scope| {
        let (go, come) = std::sync::mpsc::channel::<()>();
        let (ready, unshared) = std::sync::mpsc::channel();
        let mine = &mine;
        let other = scope.spawn(move || {
            descriptors::unshare_descriptors();
            ready.send(()).unwrap();
            come.recv().unwrap();
            Request::write(mine, b"SECRET").start().wait()
        });
        unshared.recv().unwrap();
        // Held by numbers that the other table has free, on the whole way of the pipe's contents.
        let writes: Vec<_> = pipes[1..].iter().map(|(_, input)| Request::write(input, &[0; 1 << 17]).start()).collect();
        go.send(()).unwrap();
        assert_eq!(other.join().unwrap(), Err(libc::ECANCELED));
        for ((output, _), write) in pipes[1..].iter().zip(&writes) {
            let mut got = vec![1; 1 << 17];
            let mut output = output;
            output.read_exact(&mut got).unwrap();
            assert!(got.iter().all(|&byte| byte == 0));
            assert_eq!(write.wait(), Ok(1 << 17));
        }
    });
    (&pipes[0].1).write_all(b"x").unwrap();
    assert_eq!(first.wait(), Ok(1));
}
