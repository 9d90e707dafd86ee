//! What programs do that they should not, and what they may although it looks odd.
#![expect(unsafe_code, reason = "null pointers")]

mod support;

use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;

use support::aio::{self, Request, errno, set_errno};
use support::both_engines;

both_engines!(null_is_refused);
fn null_is_refused() {
    let null = ptr::null_mut();
    let calls: [(&str, &dyn Fn() -> isize); 8] = [
        // SAFETY: null is what is tested, here and below.
        ("aio_read", &|| unsafe { libc::aio_read(null) } as isize),
        // SAFETY: as above.
        ("aio_write", &|| unsafe { libc::aio_write(null) } as isize),
        // SAFETY: as above.
        ("aio_fsync", &|| unsafe { libc::aio_fsync(libc::O_SYNC, null) } as isize),
        // SAFETY: as above.
        ("aio_error", &|| unsafe { libc::aio_error(null) } as isize),
        // SAFETY: as above.
        ("aio_return", &|| unsafe { libc::aio_return(null) }),
        // SAFETY: as above.
        ("aio_suspend", &|| unsafe { libc::aio_suspend(ptr::null(), 1, ptr::null()) } as isize),
        // SAFETY: as above.
        ("lio_listio", &|| unsafe { libc::lio_listio(libc::LIO_WAIT, ptr::null(), 1, ptr::null_mut()) } as isize),
        // SAFETY: as above.
        ("lio_listio", &|| unsafe { libc::lio_listio(libc::LIO_NOWAIT, ptr::null(), 1, ptr::null_mut()) } as isize),
    ];
    for (name, call) in calls {
        set_errno(0);
        assert_eq!(call(), -1, "{name}");
        assert_eq!(errno(), libc::EINVAL, "{name}");
    }
    use_it();
}

both_engines!(a_bad_buffer_fails_the_operation);
fn a_bad_buffer_fails_the_operation() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[0; 100]).unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&[0; 100]).unwrap();
    let (pipe_output, pipe_input) = std::io::pipe().unwrap();
    (&pipe_input).write_all(&[0; 100]).unwrap();
    for address in [0, 1, usize::MAX - 4096, 1 << 63] {
        let requests = [
            Request::read(&file, 100),
            Request::write(&file, &[0; 100]),
            Request::read(&ours, 100),
            Request::write(&ours, &[0; 100]),
            Request::read(&pipe_output, 100),
            Request::write(&pipe_input, &[0; 100]),
        ];
        for (number, mut request) in requests.into_iter().enumerate() {
            request.block_mut().aio_buf = ptr::without_provenance_mut(address);
            request.submit().unwrap();
            assert_eq!(request.wait(), Err(libc::EFAULT), "{number} at {address:#x}");
        }
    }
    use_it();
}

both_engines!(what_can_never_be_read_is_not_waited_for);
/// An eventfd gives eight bytes or none.
fn what_can_never_be_read_is_not_waited_for() {
    // SAFETY: no memory is passed; the descriptor is nobody else's.
    let counter = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, 0)) };
    assert_eq!(Request::read(&counter, 4).start().wait(), Err(libc::EINVAL));
    use_it();
}

both_engines!(private_words_need_no_initialisation);
/// POSIX asks for no memset.
fn private_words_need_no_initialisation() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    for garbage in [0xff, 0xa5, 0x01, 0x73, 0x80] {
        let mut read = Request::read(&ours, 1);
        read.fill_private(garbage);
        read.submit().unwrap();
        theirs.write_all(&[garbage]).unwrap();
        assert_eq!(read.wait(), Ok(1), "{garbage:#x}");
        assert_eq!(read.data(), [garbage]);
    }
}

both_engines!(a_copy_of_one_in_flight_is_another_request);
fn a_copy_of_one_in_flight_is_another_request() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let first = Request::read(&ours, 1).start();
    let mut second = Request::read(&ours, 1);
    let buffer = second.block_mut().aio_buf;
    second.copy_from(&first);
    second.block_mut().aio_buf = buffer;
    assert_eq!(second.submit(), Ok(()));
    theirs.write_all(b"12").unwrap();
    assert_eq!(aio::wait_all([&first, &second]), [Ok(1), Ok(1)]);
    assert_eq!((first.data(), second.data()), (&b"1"[..], &b"2"[..]));
}

both_engines!(memory_taken_back_too_early_is_left_alone);
/// The aiocb is gone while its operation is in flight; its bytes are somebody else's by now.
fn memory_taken_back_too_early_is_left_alone() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut lost: Vec<_> = (0..20).map(|_| Request::read(&ours, 1).start()).collect();
    let last = Request::read(&ours, 1).start();
    // Until the library has taken it in, the aiocb itself is the way there.
    use_it();
    for (byte, request) in (100u8..).zip(&mut lost) {
        request.overwrite_in_flight(byte);
    }
    theirs.write_all(&[7; 21]).unwrap();
    assert_eq!(last.wait(), Ok(1), "those behind them go on");
    for (byte, request) in (100u8..).zip(&mut lost) {
        assert!(request.is_overwritten_with(byte), "the library wrote into memory that is not its own");
        request.overwrite_in_flight(0);
    }
}

both_engines!(memory_taken_back_too_early_and_used_again);
fn memory_taken_back_too_early_and_used_again() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let (others, mut others_peer) = UnixStream::pair().unwrap();
    let mut request = Request::read(&ours, 1).start();
    let fresh = Request::read(&others, 1);
    use_it();
    request.overwrite_in_flight(0);
    request.copy_from(&fresh);
    request.submit().unwrap();
    // The forgotten one ends first, and is not mistaken for the new one.
    theirs.write_all(b"x").unwrap();
    let behind = Request::read(&ours, 1).start();
    theirs.write_all(b"y").unwrap();
    assert_eq!(behind.wait(), Ok(1));
    assert!(request.in_flight());
    others_peer.write_all(b"z").unwrap();
    assert_eq!(request.wait(), Ok(1));
    // Its buffer is that of `fresh`.
    drop(fresh);
}

both_engines!(results_that_nobody_collects);
/// No aio_return ever: the library keeps nothing of them that grows.
fn results_that_nobody_collects() {
    let file = tempfile::tempfile().unwrap();
    let mut requests: Vec<_> = (0..100).map(|i| Request::write(&file, b"x").at(i)).collect();
    let mut turn = || {
        for request in &mut requests {
            request.submit().unwrap();
        }
        for request in &requests {
            support::descriptors::eventually("it is done", || !request.in_flight());
        }
    };
    (0..20).for_each(|_| turn());
    let before = resident_kib();
    // More than any queue of them holds.
    (0..1000).for_each(|_| turn());
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB more after 100,000 requests");
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn use_it() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1).start();
    theirs.write_all(b"x").unwrap();
    assert_eq!(read.wait(), Ok(1));
    let write = Request::write(&ours, b"y").start();
    theirs.read_exact(&mut [0]).unwrap();
    assert_eq!(write.wait(), Ok(1));
}
