//! `aio_cancel`.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use libc::{AIO_ALLDONE, AIO_CANCELED, AIO_NOTCANCELED};
use support::aio::{PATIENCE, Request, by_signal, cancel_all, wait_all};
use support::descriptors::{self, Unopened, close, eventfd, fifo, set_nonblocking, terminal};
use support::fuse::{Held, SlowFile};
use support::net::tcp_pair;
use support::process::{is_epoll, skip_here};
use support::{both_engines, pattern, signals};

both_engines!(a_blocked_read_is_cancelled);
fn a_blocked_read_is_cancelled() {
    let (unix, _unix) = pair();
    let (tcp, _tcp) = tcp_pair();
    let (pipe, _pipe) = std::io::pipe().unwrap();
    let (_terminal, terminal) = terminal();
    let descriptors: [OwnedFd; 5] = [unix.into(), tcp.into(), pipe.into(), terminal, eventfd()];
    for (i, descriptor) in descriptors.iter().enumerate() {
        let read = Request::read(descriptor, 8).start();
        // Once so early that it may not have been looked at, once when it surely is under way.
        if i % 2 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(read.cancel(), Ok(AIO_CANCELED), "{i}");
        assert_eq!(read.error(), libc::ECANCELED, "when aio_cancel returns");
        assert!(read.aio_return().is_err());
    }
}

both_engines!(a_full_terminal_holds_nothing_up);
fn a_full_terminal_holds_nothing_up() {
    let (master, slave) = terminal();
    let write = Request::write(&slave, &[b'x'; 1 << 20]).start();
    let file = tempfile::tempfile().unwrap();
    for _ in 0..10 {
        assert_eq!(Request::write(&file, b"x").start().wait(), Ok(1));
    }
    assert!(write.in_flight());
    if is_epoll() {
        // One of the threads is in write(2), and nobody can stop it there.
        assert_eq!(write.cancel(), Ok(AIO_NOTCANCELED));
        drop(master);
        let _ = write.wait();
    } else {
        write.cancel().unwrap();
        let result = write.result();
        assert!(matches!(result, Ok(1..0x10_0000) | Err(libc::ECANCELED)), "{result:?}");
    }
}

both_engines!(a_write_to_a_full_fifo_ends_when_it_is_closed);
fn a_write_to_a_full_fifo_ends_when_it_is_closed() {
    for cancels in [false, true] {
        let (_output, input) = fifo();
        let write = Request::write(&input, &[b'x'; 1 << 20]).start();
        std::thread::sleep(Duration::from_millis(20));
        if cancels {
            write.cancel().unwrap();
        } else {
            close(input.into_raw_fd()).unwrap();
        }
        let result = write.wait();
        assert!(matches!(result, Ok(1..0x10_0000) | Err(libc::ECANCELED)), "{result:?}");
    }
}

both_engines!(a_fifo_gets_all_of_a_large_write);
fn a_fifo_gets_all_of_a_large_write() {
    let (mut output, input) = fifo();
    let content = pattern(1 << 20);
    let write = Request::write(&input, &content).start();
    let mut got = vec![0; content.len()];
    output.read_exact(&mut got).unwrap();
    assert_eq!(write.wait(), Ok(content.len()));
    assert!(got == content);
}

both_engines!(a_cancelled_read_takes_no_data);
fn a_cancelled_read_takes_no_data() {
    let (ours, mut theirs) = pair();
    for _ in 0..200 {
        let read = Request::read(&ours, 100).start();
        assert_eq!(read.cancel(), Ok(AIO_CANCELED));
        theirs.write_all(b"for others").unwrap();
        let mut data = [0; 10];
        (&ours).read_exact(&mut data).unwrap();
        assert_eq!(&data, b"for others");
        assert_eq!(read.data(), [0; 100]);
    }
}

both_engines!(a_blocked_write_without_progress_is_cancelled);
fn a_blocked_write_without_progress_is_cancelled() {
    let (output, input) = std::io::pipe().unwrap();
    let content = fill(&input);
    let write = Request::write(&input, b"too much").start();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(write.cancel(), Ok(AIO_CANCELED));
    assert_eq!(write.result(), Err(libc::ECANCELED));
    drop(input);
    let mut received = Vec::new();
    File::from(OwnedFd::from(output)).read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), content);
}

both_engines!(one_of_the_queue_is_cancelled);
fn one_of_the_queue_is_cancelled() {
    let (ours, mut theirs) = pair();
    let reads: Vec<_> = (0..5).map(|_| Request::read(&ours, 1).start()).collect();
    assert_eq!(reads[3].cancel(), Ok(AIO_CANCELED));
    assert_eq!(reads[0].cancel(), Ok(AIO_CANCELED));
    theirs.write_all(b"124").unwrap();
    let results = wait_all(&reads);
    assert_eq!(results, [Err(libc::ECANCELED), Ok(1), Ok(1), Err(libc::ECANCELED), Ok(1)]);
    assert_eq!([reads[1].data(), reads[2].data(), reads[4].data()].concat(), b"124");
}

both_engines!(all_of_a_descriptor_are_cancelled);
fn all_of_a_descriptor_are_cancelled() {
    let (ours, _theirs) = pair();
    let (others, mut answer) = pair();
    let (output, input) = std::io::pipe().unwrap();
    fill(&input);
    let other = Request::read(&others, 1).start();
    let reads: Vec<_> = (0..100).map(|_| Request::read(&ours, 1).start()).collect();
    let writes: Vec<_> = (0..100).map(|_| Request::write(&input, b"x").start()).collect();
    assert_eq!(cancel_all(&ours), Ok(AIO_CANCELED));
    assert!(reads.iter().all(|read| read.result() == Err(libc::ECANCELED)));
    assert_eq!(cancel_all(&input), Ok(AIO_CANCELED));
    assert!(writes.iter().all(|write| write.result() == Err(libc::ECANCELED)));
    assert_eq!(cancel_all(&ours), Ok(AIO_ALLDONE));
    assert!(other.in_flight(), "another descriptor's go on");
    answer.write_all(b"x").unwrap();
    assert_eq!(other.wait(), Ok(1));
    drop(output);
}

both_engines!(nothing_there_is_all_done);
fn nothing_there_is_all_done() {
    let (ours, mut theirs) = pair();
    assert_eq!(cancel_all(&ours), Ok(AIO_ALLDONE));
    let read = Request::read(&ours, 1).start();
    theirs.write_all(b"x").unwrap();
    assert_eq!(read.wait(), Ok(1));
    assert_eq!(read.cancel(), Ok(AIO_ALLDONE));
    assert_eq!(cancel_all(&ours), Ok(AIO_ALLDONE));
    assert_eq!(read.result(), Ok(1), "and nothing changes");
    assert_eq!(Request::read(&ours, 1).cancel(), Ok(AIO_ALLDONE), "never submitted");
}

both_engines!(a_wrong_descriptor_is_refused);
fn a_wrong_descriptor_is_refused() {
    let (ours, theirs) = pair();
    let mut read = Request::read(&ours, 1).start();
    for fd in [-1, 9999] {
        assert_eq!(cancel_all(&Unopened(fd)), Err(libc::EBADF), "{fd}");
    }
    assert_eq!(read.cancel_on(&theirs), Err(libc::EINVAL));
    assert_eq!(read.cancel_on(&Unopened(9999)), Err(libc::EBADF));
    assert!(read.in_flight());
    assert_eq!(read.cancel_on(&ours), Ok(AIO_CANCELED));
    read.block_mut().aio_fildes = -1;
}

both_engines!(the_usual_notification_is_delivered);
fn the_usual_notification_is_delivered() {
    let signal = signals::realtime(1);
    signals::block(&[signal]);
    let (ours, _theirs) = pair();
    let reads: Vec<_> = (0..3).map(|i| Request::read(&ours, 1).notify(by_signal(signal, i)).start()).collect();
    assert_eq!(reads[1].cancel(), Ok(AIO_CANCELED));
    assert_eq!(signals::take(&[signal], PATIENCE).unwrap().value, 1);
    assert_eq!(cancel_all(&ours), Ok(AIO_CANCELED));
    let mut values: Vec<_> = (0..2).map(|_| signals::take(&[signal], PATIENCE).unwrap().value).collect();
    values.sort_unstable();
    assert_eq!(values, [0, 2]);
    assert_eq!(signals::take(&[signal], Duration::from_millis(20)), Err(libc::EAGAIN));
}

both_engines!(a_cancelled_entry_ends_its_list);
fn a_cancelled_entry_ends_its_list() {
    let signal = signals::realtime(1);
    signals::block(&[signal]);
    let (ours, _theirs) = pair();
    let reads = [Request::read(&ours, 1), Request::read(&ours, 1)];
    let list = [Some(&reads[0]), Some(&reads[1])];
    support::aio::listio(libc::LIO_NOWAIT, &list, Some(by_signal(signal, 5))).unwrap();
    assert_eq!(cancel_all(&ours), Ok(AIO_CANCELED));
    assert_eq!(signals::take(&[signal], PATIENCE).unwrap().value, 5);
}

both_engines!(a_suspended_thread_wakes_up);
fn a_suspended_thread_wakes_up() {
    let (ours, _theirs) = pair();
    let read = Request::read(&ours, 1).start();
    std::thread::scope(|scope| {
        let suspended = scope.spawn(|| support::aio::suspend(&[Some(&read)], Some(PATIENCE)));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(read.cancel(), Ok(AIO_CANCELED));
        assert_eq!(suspended.join().unwrap(), Ok(()));
    });
}

both_engines!(a_half_done_write_tells_how_much);
fn a_half_done_write_tells_how_much() {
    const LENGTH: usize = 32 << 20;
    let data = pattern(LENGTH);
    let (tcp, unix, pipe) = (tcp_pair(), pair(), std::io::pipe().unwrap());
    let pairs: [(OwnedFd, OwnedFd); 3] =
        [(tcp.0.into(), tcp.1.into()), (unix.0.into(), unix.1.into()), (pipe.1.into(), pipe.0.into())];
    for (ours, theirs) in pairs {
        let write = Request::write(&ours, &data).start();
        let queued = Request::write(&ours, b"never").start();
        let mut theirs = File::from(theirs);
        let mut received = vec![0; 1000];
        theirs.read_exact(&mut received).unwrap();
        assert_eq!(write.cancel(), Ok(AIO_NOTCANCELED));
        let sent = write.wait().unwrap();
        assert!((1000..LENGTH).contains(&sent), "{sent}");
        // What was queued behind it may have begun since.
        let answer = queued.cancel().unwrap();
        let also_sent = queued.wait().unwrap_or(0);
        assert_eq!(answer == AIO_CANCELED, also_sent == 0);
        drop(ours);
        theirs.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), sent + also_sent, "the count is what the peer has got");
        assert!(received[..sent] == data[..sent]);
    }
}

both_engines!(one_that_is_not_cancelled_decides_the_answer);
fn one_that_is_not_cancelled_decides_the_answer() {
    let (ours, theirs) = pair();
    let write = Request::write(&ours, &vec![0; 32 << 20]).start();
    let read = Request::read(&ours, 1).start();
    (&theirs).read_exact(&mut [0; 1000]).unwrap();
    assert_eq!(cancel_all(&ours), Ok(AIO_NOTCANCELED));
    assert_eq!(read.result(), Err(libc::ECANCELED));
    assert!(write.wait().is_ok_and(|sent| sent >= 1000));
}

both_engines!(what_a_file_system_works_on_is_not_cancelled);
fn what_a_file_system_works_on_is_not_cancelled() {
    let slow = match SlowFile::mount(0) {
        Ok(slow) => slow,
        Err(reason) => return skip_here(&reason),
    };
    let file = File::options().read(true).append(true).open(slow.path()).unwrap();
    let writes = [Request::write(&file, b"first").start(), Request::write(&file, b"second").start()];
    let held = slow.expect(Held::Write);
    assert_eq!(writes[0].cancel(), Ok(AIO_NOTCANCELED));
    assert!(writes[0].in_flight());
    assert_eq!(writes[1].cancel(), Ok(AIO_CANCELED), "it was queued behind the first");
    assert_eq!(writes[1].result(), Err(libc::ECANCELED));
    assert_eq!(cancel_all(&file), Ok(AIO_NOTCANCELED));
    slow.release(held);
    assert_eq!(writes[0].wait(), Ok(5));
    slow.expect_none();
    assert_eq!(writes[0].cancel(), Ok(AIO_ALLDONE));
}

both_engines!(a_race_with_data_loses_none);
/// Each byte arrives in the cancelled read or stays in the socket.
fn a_race_with_data_loses_none() {
    let (ours, theirs) = pair();
    set_nonblocking(&ours);
    let (mut cancelled, mut done) = (0, 0);
    let barrier = std::sync::Barrier::new(2);
    let turns = 2000u32;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..turns {
                barrier.wait();
                (0..turn % 64 * 8).for_each(|_| std::hint::spin_loop());
                (&theirs).write_all(&turn.to_le_bytes()).unwrap();
                barrier.wait();
            }
        });
        for turn in 0..turns {
            let read = Request::read(&ours, 4).start();
            barrier.wait();
            (0..(turn / 64) % 16 * 16).for_each(|_| std::hint::spin_loop());
            let answer = read.cancel();
            barrier.wait();
            if answer == Ok(AIO_CANCELED) {
                cancelled += 1;
                assert_eq!(read.result(), Err(libc::ECANCELED));
                let mut data = [0; 4];
                (&ours).read_exact(&mut data).unwrap();
                assert_eq!(data, turn.to_le_bytes());
            } else {
                assert!(matches!(answer, Ok(AIO_ALLDONE | AIO_NOTCANCELED)), "{answer:?}");
                done += 1;
                assert_eq!(read.wait(), Ok(4));
                assert_eq!(read.data(), turn.to_le_bytes());
            }
            let nothing = (&ours).read(&mut [0; 4]);
            assert_eq!(nothing.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        }
    });
    println!("{cancelled} cancelled, {done} done");
}

both_engines!(strictly_only_what_is_queued with [("TAUTAIO_CANCEL", "strict")]);
fn strictly_only_what_is_queued() {
    let (ours, mut theirs) = pair();
    let reads = [Request::read(&ours, 1).start(), Request::read(&ours, 1).start()];
    // By then the first has begun to wait.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(reads[0].cancel(), Ok(AIO_NOTCANCELED));
    assert_eq!(reads[1].cancel(), Ok(AIO_CANCELED));
    assert_eq!(cancel_all(&ours), Ok(AIO_NOTCANCELED));
    assert!(reads[0].in_flight());
    theirs.write_all(b"x").unwrap();
    assert_eq!(wait_all(&reads), [Ok(1), Err(libc::ECANCELED)]);
}

/// Writes to a pipe until it is full, and says how much that was.
fn fill(input: &std::io::PipeWriter) -> usize {
    let copy = input.try_clone().unwrap();
    set_nonblocking(&copy);
    let mut written = 0;
    while let Ok(length) = (&copy).write(&[0; 4096]) {
        written += length;
    }
    // Both share the flag.
    descriptors::set_blocking(input);
    written
}

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}
