//! Sockets, pipes, terminals: what has no place to read at.
#![expect(unsafe_code, reason = "clock_gettime(2)")]

mod support;

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use support::aio::{self, Request};
use support::descriptors::{self, eventfd, set_nonblocking, terminal};
use support::net::{reset_on_close, set_option, tcp_pair, unix_pair};
use support::{both_engines, pattern, plain_libc, signals};

/// Long enough to tell what waits from what does not.
const WHILE: Duration = Duration::from_millis(30);

both_engines!(a_read_waits_for_data);
fn a_read_waits_for_data() {
    let (unix, tcp) = (pair(), tcp_pair());
    let pairs: [(OwnedFd, OwnedFd); 2] = [(unix.0.into(), unix.1.into()), (tcp.0.into(), tcp.1.into())];
    for (ours, theirs) in pairs {
        let read = Request::read(&ours, 100).start();
        std::thread::sleep(WHILE);
        assert!(read.in_flight());
        std::fs::File::from(theirs).write_all(b"hello").unwrap();
        assert_eq!(read.wait(), Ok(5), "what is there, and not the whole buffer");
        assert_eq!(&read.data()[..5], b"hello");
    }
}

both_engines!(a_nonblocking_descriptor_waits_as_well);
/// FreeBSD's reading of POSIX: EAGAIN is never reported.
fn a_nonblocking_descriptor_waits_as_well() {
    let (ours, mut theirs) = pair();
    let (pipe_end, mut pipe_input) = std::io::pipe().unwrap();
    let event = eventfd();
    for fd in [ours.as_raw_fd(), pipe_end.as_raw_fd(), event.as_raw_fd()] {
        set_nonblocking(&fd);
    }
    let reads =
        [Request::read(&ours, 8).start(), Request::read(&pipe_end, 8).start(), Request::read(&event, 8).start()];
    std::thread::sleep(WHILE);
    assert!(reads.iter().all(Request::in_flight));
    theirs.write_all(&7u64.to_ne_bytes()).unwrap();
    pipe_input.write_all(&7u64.to_ne_bytes()).unwrap();
    std::fs::File::from(event.try_clone().unwrap()).write_all(&7u64.to_ne_bytes()).unwrap();
    for read in reads {
        assert_eq!(read.wait(), Ok(8));
        assert_eq!(read.data(), 7u64.to_ne_bytes());
    }
}

both_engines!(a_pending_read_does_not_hold_up_a_write);
/// With glibc it waits until the read is done.
fn a_pending_read_does_not_hold_up_a_write() {
    let (ours, mut theirs) = tcp_pair();
    let read = Request::read(&ours, 10).start();
    let write = Request::write(&ours, b"question").start();
    assert_eq!(write.wait(), Ok(8));
    let mut question = [0; 8];
    theirs.read_exact(&mut question).unwrap();
    assert!(read.in_flight());
    theirs.write_all(b"answer").unwrap();
    assert_eq!(read.wait(), Ok(6));
}

both_engines!(a_pending_write_does_not_hold_up_a_read);
fn a_pending_write_does_not_hold_up_a_read() {
    let (ours, mut theirs) = pair();
    let write = Request::write(&ours, &vec![1; 8 << 20]).start();
    theirs.write_all(b"now").unwrap();
    assert_eq!(Request::read(&ours, 3).start().wait(), Ok(3));
    assert!(write.in_flight());
    drop(theirs);
    assert!(write.wait().is_err() || write.wait().is_ok_and(|sent| sent < 8 << 20));
}

both_engines!(reads_are_done_in_order);
fn reads_are_done_in_order() {
    let (ours, mut theirs) = pair();
    let reads: Vec<_> = (0..500).map(|_| Request::read(&ours, 4).start()).collect();
    for turn in 0..500u32 {
        theirs.write_all(&turn.to_le_bytes()).unwrap();
    }
    for (turn, read) in (0u32..).zip(&reads) {
        assert_eq!(read.wait(), Ok(4));
        assert_eq!(read.data(), turn.to_le_bytes());
    }
}

both_engines!(writes_are_done_in_order_before_a_slow_reader);
/// The peer reads in small pieces, so that every write is cut many times.
fn writes_are_done_in_order_before_a_slow_reader() {
    const EACH: usize = 64 << 10;
    let (ours, mut theirs) = tcp_pair();
    set_option(&ours, libc::SO_SNDBUF, 16 << 10);
    let writes: Vec<_> = (0..64u8).map(|number| Request::write(&ours, &vec![number; EACH]).start()).collect();
    let mut received = Vec::new();
    let mut piece = [0; 5000];
    while received.len() < 64 * EACH {
        let length = theirs.read(&mut piece).unwrap();
        received.extend_from_slice(&piece[..length]);
        if received.len() % 7 == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    for (number, block) in (0u8..).zip(received.chunks(EACH)) {
        assert!(block.iter().all(|&byte| byte == number), "block {number} is out of order");
    }
    assert!(aio::wait_all(&writes).iter().all(|&result| result == Ok(EACH)));
}

both_engines!(small_and_large_writes_keep_their_order);
/// Small ones find room and large ones do not, in no regular way.
fn small_and_large_writes_keep_their_order() {
    let (ours, theirs) = tcp_pair();
    set_option(&ours, libc::SO_SNDBUF, 16 << 10);
    let mut random = 1u32;
    let mut next = move || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        random >> 8
    };
    let data = pattern(8 << 20);
    std::thread::scope(|scope| {
        let received = scope.spawn(|| {
            let mut received = vec![0; data.len()];
            for piece in received.chunks_mut(50_000) {
                (&theirs).read_exact(piece).unwrap();
                std::thread::sleep(Duration::from_micros(200));
            }
            received
        });
        let (mut writes, mut start) = (Vec::new(), 0);
        while start < data.len() {
            let longest = [100, 1000, 100_000][next() as usize % 3];
            let end = data.len().min(start + 1 + next() as usize % longest);
            writes.push((Request::write(&ours, &data[start..end]).start(), end - start));
            start = end;
            if next() % 4 == 0 {
                // Then the next may find that all others are done.
                assert_eq!(writes.last().unwrap().0.wait(), Ok(writes.last().unwrap().1));
            }
        }
        assert!(received.join().unwrap() == data);
        assert!(writes.iter().all(|(write, length)| write.wait() == Ok(*length)));
    });
}

both_engines!(writes_of_several_threads_stay_whole);
fn writes_of_several_threads_stay_whole() {
    const RECORDS: usize = 200;
    let (ours, mut theirs) = pair();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let ours = &ours;
            scope.spawn(move || {
                let record = |number: usize| {
                    let length = 1 + number * 37 % 60 * (number % 3 * 300);
                    let head = u32::try_from(length).unwrap().to_le_bytes();
                    [&head[..], &[thread], &vec![number.to_le_bytes()[0]; length]].concat()
                };
                let writes: Vec<_> = (0..RECORDS).map(|number| Request::write(ours, &record(number)).start()).collect();
                assert!(aio::wait_all(&writes).iter().all(Result::is_ok));
            });
        }
        let mut numbers = [0u8; 4];
        for _ in 0..4 * RECORDS {
            let (mut length, mut thread) = ([0; 4], [0]);
            theirs.read_exact(&mut length).unwrap();
            theirs.read_exact(&mut thread).unwrap();
            let mut body = vec![0; u32::from_le_bytes(length) as usize];
            theirs.read_exact(&mut body).unwrap();
            let number = &mut numbers[usize::from(thread[0])];
            assert!(body.iter().all(|byte| byte == number), "record {number} of thread {}", thread[0]);
            *number = number.wrapping_add(1);
        }
    });
}

both_engines!(a_large_write_is_whole);
fn a_large_write_is_whole() {
    let length = 64 << 20;
    let data = pattern(length);
    let (blocking, nonblocking) = (tcp_pair(), tcp_pair());
    set_nonblocking(&nonblocking.0);
    let (pipe_output, pipe_input) = std::io::pipe().unwrap();
    let pairs: [(OwnedFd, OwnedFd); 3] = [
        (blocking.0.into(), blocking.1.into()),
        (nonblocking.0.into(), nonblocking.1.into()),
        (pipe_input.into(), pipe_output.into()),
    ];
    for (ours, theirs) in pairs {
        let write = Request::write(&ours, &data).start();
        let mut received = vec![0; length];
        std::fs::File::from(theirs).read_exact(&mut received).unwrap();
        assert_eq!(write.wait(), Ok(length));
        assert!(received == data);
    }
}

both_engines!(the_offset_is_ignored);
fn the_offset_is_ignored() {
    for offset in [12345, -1, i64::MAX, i64::MIN] {
        let (ours, mut theirs) = tcp_pair();
        let read = Request::read(&ours, 4).at(offset).start();
        assert_eq!(Request::write(&ours, b"ping").at(offset).start().wait(), Ok(4), "{offset}");
        theirs.read_exact(&mut [0; 4]).unwrap();
        theirs.write_all(b"pong").unwrap();
        assert_eq!(read.wait(), Ok(4), "{offset}");

        let (output, input) = std::io::pipe().unwrap();
        assert_eq!(Request::write(&input, b"ping").at(offset).start().wait(), Ok(4), "{offset}");
        assert_eq!(Request::read(&output, 4).at(offset).start().wait(), Ok(4), "{offset}");
    }
}

both_engines!(the_end_of_a_stream_reads_as_nothing);
fn the_end_of_a_stream_reads_as_nothing() {
    let (ours, theirs) = pair();
    let reads = [Request::read(&ours, 4).start(), Request::read(&ours, 4).start()];
    drop(theirs);
    assert_eq!(aio::wait_all(&reads), [Ok(0), Ok(0)]);

    let (ours, theirs) = tcp_pair();
    let read = Request::read(&ours, 4).start();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read.wait(), Ok(0));

    let (output, input) = std::io::pipe().unwrap();
    let read = Request::read(&output, 4).start();
    drop(input);
    assert_eq!(read.wait(), Ok(0));
}

both_engines!(shutdown_by_ourselves_ends_a_read);
fn shutdown_by_ourselves_ends_a_read() {
    let (ours, _theirs) = pair();
    let read = Request::read(&ours, 4).start();
    ours.shutdown(std::net::Shutdown::Read).unwrap();
    assert_eq!(read.wait(), Ok(0));
}

both_engines!(a_reset_fails_a_read);
fn a_reset_fails_a_read() {
    let (ours, theirs) = tcp_pair();
    let read = Request::read(&ours, 4).start();
    reset_on_close(&theirs);
    drop(theirs);
    assert_eq!(read.wait(), Err(libc::ECONNRESET));
}

both_engines!(nobody_at_the_other_end_is_an_error_and_no_signal);
fn nobody_at_the_other_end_is_an_error_and_no_signal() {
    signals::default_action(libc::SIGPIPE);
    let (ours, theirs) = pair();
    drop(theirs);
    assert_eq!(Request::write(&ours, b"x").start().wait(), Err(libc::EPIPE));
    let (output, input) = std::io::pipe().unwrap();
    drop(output);
    assert_eq!(Request::write(&input, b"x").start().wait(), Err(libc::EPIPE));
    // One that was waiting for room.
    let (output, input) = std::io::pipe().unwrap();
    let write = Request::write(&input, &vec![0; 1 << 20]).start();
    std::thread::sleep(WHILE);
    assert!(write.in_flight());
    drop(output);
    let result = write.wait();
    assert!(result == Err(libc::EPIPE) || result.is_ok_and(|written| written < 1 << 20), "{result:?}");
}

both_engines!(datagrams_keep_their_bounds);
fn datagrams_keep_their_bounds() {
    for kind in [libc::SOCK_DGRAM, libc::SOCK_SEQPACKET] {
        let (ours, theirs) = unix_pair(kind);
        let reads = [Request::read(&ours, 100).start(), Request::read(&ours, 100).start()];
        let writes = [Request::write(&theirs, b"first").start(), Request::write(&theirs, b"the second").start()];
        assert_eq!(aio::wait_all(&writes), [Ok(5), Ok(10)]);
        assert_eq!(aio::wait_all(&reads), [Ok(5), Ok(10)]);
        assert_eq!(&reads[1].data()[..10], b"the second");
    }
    let (ours, theirs) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    theirs.connect(ours.local_addr().unwrap()).unwrap();
    let read = Request::read(&ours, 3).start();
    assert_eq!(Request::write(&theirs, b"cut short").start().wait(), Ok(9));
    assert_eq!(read.wait(), Ok(3));
    let read = Request::read(&ours, 100).start();
    assert_eq!(Request::write(&theirs, b"").start().wait(), Ok(0));
    assert_eq!(read.wait(), Ok(0), "an empty datagram");
}

both_engines!(a_socket_that_is_not_connected_fails);
fn a_socket_that_is_not_connected_fails() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(Request::read(&listener, 1).start().wait(), Err(libc::ENOTCONN));
    let write = Request::write(&listener, b"x").start().wait();
    assert!(matches!(write, Err(libc::ENOTCONN | libc::EPIPE)), "{write:?}");
}

both_engines!(a_terminal_is_read_and_written);
fn a_terminal_is_read_and_written() {
    let (master, slave) = terminal();
    let read = Request::read(&slave, 100).start();
    std::thread::sleep(WHILE);
    assert!(read.in_flight());
    assert_eq!(Request::write(&slave, b"prompt").start().wait(), Ok(6));
    assert_eq!(Request::read(&master, 100).start().wait(), Ok(6));
    assert_eq!(Request::write(&master, b"typed").start().wait(), Ok(5));
    assert_eq!(read.wait(), Ok(5));
}

both_engines!(thousands_of_pending_reads_hold_up_nothing);
/// 10,000, or as many as the limit of descriptors lets be.
fn thousands_of_pending_reads_hold_up_nothing() {
    let room = descriptors::raise_limit().min(10_200) - 200;
    let sockets: Vec<_> = (0..room / 2)
        .flat_map(|_| {
            let (a, b) = pair();
            [a, b]
        })
        .collect();
    let mut reads: Vec<_> = sockets.iter().map(|socket| Request::read(socket, 8).start()).collect();
    assert!(reads.len() >= 1000, "{} descriptors are too few", descriptors::raise_limit());

    let file = tempfile::tempfile().unwrap();
    assert_eq!(Request::write(&file, b"content").start().wait(), Ok(7));
    assert_eq!(Request::read(&file, 7).start().wait(), Ok(7));
    let (ours, theirs) = pair();
    let read = Request::read(&ours, 4).start();
    assert_eq!(Request::write(&theirs, b"data").start().wait(), Ok(4));
    assert_eq!(read.wait(), Ok(4));
    assert!(reads.iter().all(Request::in_flight));
    let threads = descriptors::threads();
    assert!(threads.len() < 20, "{} threads", threads.len());

    // Each is answered by its own.
    for (number, socket) in (0u64..).zip(&sockets) {
        (&mut &*socket).write_all(&number.to_le_bytes()).unwrap();
    }
    for (number, read) in (0u64..).zip(&reads) {
        assert_eq!(read.wait(), Ok(8));
        assert_eq!(read.data(), (number ^ 1).to_le_bytes());
    }
    // And again, with what is now there before it is asked for.
    for socket in &sockets {
        (&mut &*socket).write_all(b"again...").unwrap();
    }
    for read in &mut reads {
        read.submit().unwrap();
    }
    assert!(aio::wait_all(&reads).iter().all(|&result| result == Ok(8)));
}

plain_libc!(the_pool_starves_at_the_21st_connection);
/// Why the library is there: the pool has 20 threads, and 20 silent peers take all of them.
fn the_pool_starves_at_the_21st_connection() {
    let pairs: Vec<_> = (0..21).map(|_| pair()).collect();
    let reads: Vec<_> = pairs.iter().map(|(ours, _)| Request::read(ours, 1).start()).collect();
    (&pairs[19].1).write_all(b"x").unwrap();
    assert_eq!(reads[19].wait(), Ok(1));
    // The 21st read has got the place that became free; another 21st is nobody's.
    let file = tempfile::tempfile().unwrap();
    let write = Request::write(&file, b"x").start();
    std::thread::sleep(Duration::from_millis(300));
    assert!(write.in_flight());
    (&pairs[0].1).write_all(b"x").unwrap();
    assert_eq!(write.wait(), Ok(1));
}

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

both_engines!(a_sync_of_a_socket_with_a_read_under_way_fails_as_fsync_does);
fn a_sync_of_a_socket_with_a_read_under_way_fails_as_fsync_does() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    // The library has known it as a socket, and as idle, before.
    theirs.write_all(b"x").unwrap();
    assert_eq!(Request::read(&ours, 1).start().wait(), Ok(1));
    let read = Request::read(&ours, 1).start();
    // fsync(2): EINVAL for what does not support synchronisation.
    assert_eq!(Request::sync(&ours).fsync(libc::O_SYNC), Err(libc::EINVAL));
    theirs.write_all(b"y").unwrap();
    assert_eq!(read.wait(), Ok(1));
}

both_engines!(an_error_queue_that_nobody_reads);
/// Such a socket tells poll(2) of an error all the time, which is none of a read's: it waits, and can be canceled.
fn an_error_queue_that_nobody_reads() {
    let [ours, theirs] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    ours.connect(theirs.local_addr().unwrap()).unwrap();
    theirs.connect(ours.local_addr().unwrap()).unwrap();
    // SOF_TIMESTAMPING_TX_SOFTWARE, _SOFTWARE and _OPT_TSONLY (linux/net_tstamp.h).
    let flags: libc::c_int = 1 << 1 | 1 << 4 | 1 << 11;
    set_option(&ours, libc::SO_TIMESTAMPING, flags);
    ours.send(b"x").unwrap();
    let read = Request::read(&ours, 10).start();
    let begun = used_time();
    std::thread::sleep(Duration::from_secs(1));
    assert!(used_time() - begun < Duration::from_millis(30), "it is waited for in a loop");
    theirs.send(b"hello").unwrap();
    assert_eq!(read.wait(), Ok(5));
    let read = Request::read(&ours, 10).start();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(read.cancel(), Ok(libc::AIO_CANCELED));
    assert_eq!(read.wait(), Err(libc::ECANCELED));
}

/// Processor time of this process.
fn used_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the struct.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}
