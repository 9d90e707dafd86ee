//! Submission and its errors, `aio_error` and `aio_return`, and what the library does to the process.

mod support;

use std::io::{Read, Seek, Write};
use std::os::unix::net::UnixStream;

use support::aio::{self, Request};
use support::descriptors::{self, Unopened};
use support::{both_engines, process, signals};

both_engines!(names);
/// Every name comes from the library, those for large files and the older ones as well.
fn names() {
    let names = [
        c"aio_read",
        c"aio_write",
        c"aio_fsync",
        c"aio_error",
        c"aio_return",
        c"aio_cancel",
        c"aio_suspend",
        c"lio_listio",
        c"aio_init",
        c"aio_read64",
        c"aio_write64",
        c"aio_fsync64",
        c"aio_error64",
        c"aio_return64",
        c"aio_cancel64",
        c"aio_suspend64",
        c"lio_listio64",
        c"aio_waitcomplete",
        c"tautaio_completion_fd",
    ];
    let library = support::library();
    for name in names {
        assert_eq!(process::provider_of(name).as_deref(), library.to_str(), "{name:?}");
    }
    start_engine();
}

both_engines!(a_file_is_read_and_written_at_the_offset);
fn a_file_is_read_and_written_at_the_offset() {
    let mut file = tempfile::tempfile().unwrap();
    let write = Request::write(&file, b"over there").at(4096).start();
    assert_eq!(write.wait(), Ok(10));
    let read = Request::read(&file, 100).at(4101).start();
    assert_eq!(read.wait(), Ok(5));
    assert_eq!(&read.data()[..5], b"there");
    assert_eq!(file.stream_position().unwrap(), 0, "the file's own position does not move");
    assert_eq!(file.metadata().unwrap().len(), 4106);
}

both_engines!(at_the_end_of_a_file_nothing_is_read);
fn at_the_end_of_a_file_nothing_is_read() {
    let file = tempfile::tempfile().unwrap();
    assert_eq!(Request::read(&file, 10).start().wait(), Ok(0));
    assert_eq!(Request::read(&file, 10).at(1 << 40).start().wait(), Ok(0));
    assert_eq!(Request::read(&file, 0).start().wait(), Ok(0));
}

both_engines!(a_priority_outside_the_limits_is_refused);
fn a_priority_outside_the_limits_is_refused() {
    let file = tempfile::tempfile().unwrap();
    for priority in [-1, 21, i32::MIN, i32::MAX] {
        let mut request = Request::read(&file, 1);
        request.block_mut().aio_reqprio = priority;
        assert_eq!(request.submit(), Err(libc::EINVAL), "{priority}");
    }
    for priority in [0, 1, 20] {
        let mut request = Request::write(&file, b"x");
        request.block_mut().aio_reqprio = priority;
        assert_eq!(request.submit(), Ok(()), "{priority}");
        assert_eq!(request.wait(), Ok(1));
    }
}

both_engines!(a_negative_size_is_refused);
fn a_negative_size_is_refused() {
    let file = tempfile::tempfile().unwrap();
    for length in [usize::MAX, 1 << 63, (1 << 63) + 1] {
        for mut request in [Request::read(&file, 1), Request::write(&file, b"x")] {
            request.block_mut().aio_nbytes = length;
            assert_eq!(request.submit(), Err(libc::EINVAL), "{length:#x}");
        }
    }
    assert_eq!(file.metadata().unwrap().len(), 0);
    start_engine();
}

both_engines!(an_unknown_notification_is_refused);
fn an_unknown_notification_is_refused() {
    let file = tempfile::tempfile().unwrap();
    for notify in [-1, 3, 5, 77] {
        let mut request = Request::read(&file, 1).notify(aio::event(notify));
        assert_eq!(request.submit(), Err(libc::EINVAL), "sigev_notify {notify}");
    }
    for signal in [-1, 65, 1000] {
        for event in [aio::by_signal(signal, 0), aio::by_signal_to(signals::thread_id(), signal, 0)] {
            let mut request = Request::read(&file, 1).notify(event);
            assert_eq!(request.submit(), Err(libc::EINVAL), "signal {signal}");
        }
    }
    start_engine();
}

both_engines!(a_huge_transfer_is_cut);
/// As write(2) does: /dev/null looks at no byte of the buffer.
fn a_huge_transfer_is_cut() {
    let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
    let mut request = Request::write(&null, b"");
    for length in [0x7fff_f000, 0x7fff_f001, 3 << 30, (1 << 32) + 1, usize::try_from(isize::MAX).unwrap()] {
        request.block_mut().aio_nbytes = length;
        assert_eq!(request.submit(), Ok(()), "{length:#x}");
        assert_eq!(request.wait(), Ok(0x7fff_f000), "{length:#x}");
    }
}

both_engines!(a_bad_descriptor_fails_the_operation);
/// As with glibc the call succeeds and the operation fails.
fn a_bad_descriptor_fails_the_operation() {
    for fd in [-1, 9999, i32::MAX, i32::MIN] {
        for mut request in [Request::read(&Unopened(fd), 1), Request::write(&Unopened(fd), b"x")] {
            assert_eq!(request.submit(), Ok(()), "{fd}");
            assert_eq!(request.wait(), Err(libc::EBADF), "{fd}");
        }
    }
}

both_engines!(the_wrong_access_mode_fails_the_operation);
fn the_wrong_access_mode_fails_the_operation() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let reader = std::fs::File::open(file.path()).unwrap();
    let writer = std::fs::File::options().write(true).open(file.path()).unwrap();
    assert_eq!(Request::write(&reader, b"x").start().wait(), Err(libc::EBADF));
    assert_eq!(Request::read(&writer, 1).start().wait(), Err(libc::EBADF));
    let (reader, writer) = std::io::pipe().unwrap();
    assert_eq!(Request::write(&reader, b"x").start().wait(), Err(libc::EBADF));
    assert_eq!(Request::read(&writer, 1).start().wait(), Err(libc::EBADF));
}

both_engines!(a_negative_offset_fails_the_operation);
fn a_negative_offset_fails_the_operation() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"content").unwrap();
    for offset in [-1, -2, i64::MIN] {
        assert_eq!(Request::read(&file, 1).at(offset).start().wait(), Err(libc::EINVAL), "{offset}");
        assert_eq!(Request::write(&file, b"x").at(offset).start().wait(), Err(libc::EINVAL), "{offset}");
    }
    assert_eq!(file.stream_position().unwrap(), 7, "-1 does not mean the current position");
    assert_eq!(file.metadata().unwrap().len(), 7);
}

both_engines!(a_directory_is_not_read);
fn a_directory_is_not_read() {
    let directory = std::fs::File::open("/").unwrap();
    assert_eq!(Request::read(&directory, 1).start().wait(), Err(libc::EISDIR));
}

both_engines!(a_full_device_fails_the_write);
fn a_full_device_fails_the_write() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(Request::write(&full, b"x").start().wait(), Err(libc::ENOSPC));
}

both_engines!(the_limit_of_file_sizes_fails_the_write);
/// The signal of the limit hits a thread of the library, which blocks it.
fn the_limit_of_file_sizes_fails_the_write() {
    let file = tempfile::tempfile().unwrap();
    signals::default_action(libc::SIGXFSZ);
    descriptors::set_limit(libc::RLIMIT_FSIZE, 4096);
    let write = Request::write(&file, b"x").at(4096).start();
    let result = write.wait();
    // What this process writes to stderr may go to a file.
    descriptors::set_limit(libc::RLIMIT_FSIZE, libc::RLIM_INFINITY);
    assert_eq!(result, Err(libc::EFBIG));
}

both_engines!(nothing_submitted_is_no_error);
fn nothing_submitted_is_no_error() {
    let request = Request::nop();
    assert_eq!(request.error(), 0);
    assert_eq!(request.aio_return(), Ok(0));
    start_engine();
}

both_engines!(in_flight_there_is_no_result_yet);
fn in_flight_there_is_no_result_yet() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 4).start();
    assert_eq!(read.error(), libc::EINPROGRESS);
    assert_eq!(read.aio_return(), Err(libc::EINVAL));
    assert_eq!(read.error(), libc::EINPROGRESS, "asking changes nothing");
    theirs.write_all(b"data").unwrap();
    assert_eq!(read.wait(), Ok(4));
    assert_eq!(read.data(), b"data");
}

both_engines!(the_result_can_be_had_twice);
fn the_result_can_be_had_twice() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"content").unwrap();
    let read = Request::read(&file, 7).start();
    assert_eq!(read.wait(), Ok(7));
    for _ in 0..3 {
        assert_eq!(read.aio_return(), Ok(7));
        assert_eq!(read.error(), 0);
    }
    let bad = Request::read(&Unopened(-1), 7).start();
    assert_eq!(bad.wait(), Err(libc::EBADF));
    for _ in 0..3 {
        assert!(bad.aio_return().is_err());
        assert_eq!(bad.error(), libc::EBADF);
    }
}

both_engines!(what_is_in_flight_is_not_submitted_again);
fn what_is_in_flight_is_not_submitted_again() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 4).start();
    for _ in 0..3 {
        assert_eq!(read.submit_again(), Err(libc::EINVAL));
    }
    assert_eq!(aio::listio(libc::LIO_NOWAIT, &[Some(&read)], None), Err(libc::EIO));
    assert!(read.in_flight());
    theirs.write_all(b"once, twice").unwrap();
    assert_eq!(read.wait(), Ok(4));
    assert_eq!(read.data(), b"once");
    let again = Request::read(&ours, 100).start();
    assert_eq!(again.wait(), Ok(7), "it was read once");
}

both_engines!(a_request_is_reused);
/// Again and again, by the same memory.
fn a_request_is_reused() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut read = Request::read(&ours, 1);
    for turn in 0..2000u32 {
        let byte = turn.to_le_bytes()[0];
        read.submit().unwrap();
        theirs.write_all(&[byte]).unwrap();
        assert_eq!(read.wait(), Ok(1));
        assert_eq!(read.data(), [byte]);
    }
}

both_engines!(memory_of_a_finished_request_is_left_alone);
/// The aiocbs are overwritten as soon as they are done, and must stay as they are from then on.
fn memory_of_a_finished_request_is_left_alone() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut dead = Vec::new();
    for _ in 0..500 {
        let mut read = Request::read(&ours, 1).start();
        theirs.write_all(b"x").unwrap();
        assert_eq!(read.wait(), Ok(1));
        read.overwrite(0xa5);
        dead.push(read);
    }
    let live = Request::read(&ours, 1).start();
    theirs.write_all(b"x").unwrap();
    assert_eq!(live.wait(), Ok(1));
    for request in &mut dead {
        assert!(request.is_overwritten_with(0xa5), "the library wrote into freed memory");
        // Its state is asked for when it is dropped.
        request.overwrite(0);
    }
}

both_engines!(the_library_starts_with_the_first_operation);
/// The first operation starts the library's threads, and what starts then is not inherited by programs.
fn the_library_starts_with_the_first_operation() {
    let before = descriptors::threads();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let inheritable = descriptors::inheritable();
    let read = Request::read(&ours, 1).start();
    theirs.write_all(b"x").unwrap();
    assert_eq!(read.wait(), Ok(1));
    let after = descriptors::threads();
    assert_eq!(after.len(), before.len() + process::threads_at_first(), "{after:?}");
    assert_eq!(descriptors::inheritable(), inheritable);
    let mut again = Request::read(&ours, 1);
    for _ in 0..10 {
        again.submit().unwrap();
        theirs.write_all(b"x").unwrap();
        assert_eq!(again.wait(), Ok(1));
    }
    assert_eq!(descriptors::threads().len(), after.len());
}

both_engines!(aio_init_starts_the_library);
fn aio_init_starts_the_library() {
    let before = descriptors::threads().len();
    aio::init(20);
    assert_eq!(descriptors::threads().len(), before + process::threads_at_first());
    aio::init(10_000);
    assert_eq!(descriptors::threads().len(), before + process::threads_at_first());
    start_engine();
}

both_engines!(threads_of_the_library_block_all_signals);
/// They get none of the signals that are for the program.
fn threads_of_the_library_block_all_signals() {
    let ours: Vec<_> = descriptors::threads().into_iter().map(|(thread, _)| thread).collect();
    start_engine();
    let file = tempfile::tempfile().unwrap();
    // File operations may use more threads.
    assert_eq!(Request::write(&file, b"x").start().wait(), Ok(1));
    let theirs: Vec<_> = descriptors::threads().into_iter().filter(|(thread, _)| !ours.contains(thread)).collect();
    assert!(!theirs.is_empty());
    for (thread, name) in theirs {
        let mut status = String::new();
        std::fs::File::open(format!("/proc/self/task/{thread}/status")).unwrap().read_to_string(&mut status).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        // 32 and 33 are glibc's own, SIGKILL and SIGSTOP can't be blocked.
        let open: Vec<_> = (1..=64).filter(|signal| mask >> (signal - 1) & 1 == 0).collect();
        assert!(open.iter().all(|signal| [9, 19, 32, 33].contains(signal)), "{name} takes {open:?}");
    }
}

/// One operation, so that the log says which engine it was.
fn start_engine() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1).start();
    theirs.write_all(b"x").unwrap();
    assert_eq!(read.wait(), Ok(1));
}
