//! Regular files: parallel operations, appending, synchronising.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use support::aio::{self, Request};
use support::both_engines;
use support::descriptors::Unopened;
use support::fuse::{Held, SlowFile};
use support::process::skip_here;

const BLOCK: usize = 4096;

both_engines!(blocks_arrive_where_they_belong);
fn blocks_arrive_where_they_belong() {
    let file = tempfile::tempfile().unwrap();
    let content = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().repeat(BLOCK / 8);
    let place = |i: u64| i64::try_from(i * BLOCK as u64).unwrap();
    let writes: Vec<_> = (0..256).map(|i| Request::write(&file, &content(i)).at(place(i)).start()).collect();
    assert!(aio::wait_all(&writes).iter().all(|&result| result == Ok(BLOCK)));
    for i in 0..256 {
        let mut block = [0; BLOCK];
        file.read_exact_at(&mut block, i * BLOCK as u64).unwrap();
        assert_eq!(block[..], content(i));
    }
    let reads: Vec<_> = (0..256).rev().map(|i| Request::read(&file, BLOCK).at(place(i)).start()).collect();
    for (i, read) in (0..256).rev().zip(&reads) {
        assert_eq!(read.wait(), Ok(BLOCK));
        assert_eq!(read.data(), content(i));
    }
}

both_engines!(direct_io_works);
fn direct_io_works() {
    // Not in /tmp, which may be a file system that knows no O_DIRECT.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    let options = || File::options().read(true).write(true).create(true).clone();
    let file = match options().custom_flags(libc::O_DIRECT).open(&path) {
        Ok(file) => file,
        Err(error) => return skip_here(&format!("O_DIRECT: {error}")),
    };
    let mut writes: Vec<_> =
        (0..16u8).map(|i| Request::write_aligned(&file, &[i; BLOCK]).at(i64::from(i) * BLOCK as i64)).collect();
    for write in &mut writes {
        write.submit().unwrap();
    }
    assert!(aio::wait_all(&writes).iter().all(|&result| result == Ok(BLOCK)));
    let content = std::fs::read(&path).unwrap();
    assert!(content.chunks(BLOCK).enumerate().all(|(i, block)| block.iter().all(|&byte| usize::from(byte) == i)));
    assert_eq!(content.len(), 16 * BLOCK);
    // The kernel's refusal of an odd offset comes through.
    assert_eq!(Request::write_aligned(&file, &[0; BLOCK]).at(1).start().wait(), Err(libc::EINVAL));
}

both_engines!(operations_on_one_file_run_in_parallel);
/// The first of them is held in the kernel, and the others are done meanwhile.
fn operations_on_one_file_run_in_parallel() {
    let Some(slow) = slow_file(1 << 20) else { return };
    let file = File::options().read(true).write(true).open(slow.path()).unwrap();
    let first = Request::read(&file, 10).at(0).start();
    let held = slow.expect(Held::Read);
    let second = Request::write(&file, b"x").at(8192).start();
    let third = Request::read(&file, 10).at(4096).start();
    for _ in 0..2 {
        let request = slow.next(aio::PATIENCE).expect("both others reach the file system");
        slow.release(request);
    }
    assert_eq!(second.wait(), Ok(1));
    assert_eq!(third.wait(), Ok(10));
    assert!(first.in_flight());
    slow.release(held);
    assert_eq!(first.wait(), Ok(10));
    assert_eq!(first.data(), b"rrrrrrrrrr");
}

both_engines!(a_slow_file_holds_up_no_socket);
/// Sockets have nothing to do with what a file system takes its time for.
fn a_slow_file_holds_up_no_socket() {
    check_that_sockets_go_on(SlowFile::mount(1 << 20));
}

both_engines!(a_file_system_that_blocks_holds_up_no_socket);
/// The kernel has io_uring wait for such a one within the submitting system call.
fn a_file_system_that_blocks_holds_up_no_socket() {
    check_that_sockets_go_on(SlowFile::mount_blocking(1 << 20));
}

fn check_that_sockets_go_on(slow: Result<SlowFile, String>) {
    let slow = match slow {
        Ok(slow) => slow,
        Err(reason) => return skip_here(&reason),
    };
    let file = File::open(slow.path()).unwrap();
    let read = Request::read(&file, 10).start();
    let held = slow.expect(Held::Read);
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    for _ in 0..100 {
        let answer = Request::read(&ours, 1).start();
        theirs.write_all(b"x").unwrap();
        assert_eq!(answer.wait(), Ok(1));
    }
    assert!(read.in_flight());
    slow.release(held);
    assert_eq!(read.wait(), Ok(10));
}

both_engines!(appending_keeps_the_order);
fn appending_keeps_the_order() {
    let mut path = tempfile::NamedTempFile::new().unwrap();
    let file = File::options().append(true).open(path.path()).unwrap();
    let record = |i: u32| format!("{i:08}\n").repeat(1 + i as usize % 7 * 50).into_bytes();
    let records: Vec<_> = (0..500).map(record).collect();
    // The offset of an appending write means nothing, not even one that can't be.
    let offsets = [0, -1, i64::MAX, i64::MIN].into_iter().cycle();
    let start = |(record, offset): (&Vec<u8>, i64)| Request::write(&file, record).at(offset).start();
    let writes: Vec<_> = records.iter().zip(offsets).map(start).collect();
    for (write, record) in writes.iter().zip(&records) {
        assert_eq!(write.wait(), Ok(record.len()));
    }
    let mut content = Vec::new();
    path.read_to_end(&mut content).unwrap();
    assert!(content == records.concat());
}

both_engines!(appending_is_one_by_one);
fn appending_is_one_by_one() {
    let Some(slow) = slow_file(0) else { return };
    let file = File::options().read(true).append(true).open(slow.path()).unwrap();
    let writes = [&b"first"[..], b"second", b"third"].map(|data| Request::write(&file, data).start());
    let mut size = 0;
    for write in &writes {
        let held = slow.expect(Held::Write);
        assert_eq!(held.offset, size);
        slow.expect_none();
        assert!(write.in_flight());
        slow.release(held);
        size += write.wait().unwrap() as u64;
    }
    assert_eq!(size, 16);
}

both_engines!(a_sync_completes_after_what_was_queued_before);
fn a_sync_completes_after_what_was_queued_before() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = File::create(directory.path().join("file")).unwrap();
    for operation in [libc::O_SYNC, libc::O_DSYNC] {
        for _ in 0..20 {
            let writes: Vec<_> =
                (0..32).map(|i| Request::write(&file, &[1; 4 * BLOCK]).at(i * 4 * BLOCK as i64).start()).collect();
            let mut sync = Request::sync(&file);
            sync.fsync(operation).unwrap();
            assert_eq!(sync.wait(), Ok(0));
            assert!(writes.iter().all(|write| write.result() == Ok(4 * BLOCK)), "one is done after the sync");
        }
    }
}

both_engines!(a_sync_waits_for_a_held_write);
fn a_sync_waits_for_a_held_write() {
    let Some(slow) = slow_file(1 << 20) else { return };
    let file = File::options().read(true).write(true).open(slow.path()).unwrap();
    let write = Request::write(&file, b"x").start();
    let held = slow.expect(Held::Write);
    let mut sync = Request::sync(&file);
    sync.fsync(libc::O_SYNC).unwrap();
    slow.expect_none();
    assert!(sync.in_flight());
    slow.release(held);
    assert_eq!(write.wait(), Ok(1));
    let held = slow.expect(Held::Sync);
    assert!(sync.in_flight());
    slow.release(held);
    assert_eq!(sync.wait(), Ok(0));
}

both_engines!(operations_after_a_sync_are_done_too);
fn operations_after_a_sync_are_done_too() {
    let Some(slow) = slow_file(1 << 20) else { return };
    let file = File::options().read(true).write(true).open(slow.path()).unwrap();
    let mut first = Request::sync(&file);
    first.fsync(libc::O_SYNC).unwrap();
    let write = Request::write(&file, b"x").start();
    let mut second = Request::sync(&file);
    second.fsync(libc::O_DSYNC).unwrap();
    let mut seen = Vec::new();
    while [&first, &write, &second].iter().any(|request| request.in_flight()) {
        if let Some(held) = slow.next(std::time::Duration::from_millis(5)) {
            // A sync whose predecessors are not done must not be among them.
            seen.push(held.what);
            slow.release(held);
        }
    }
    assert_eq!(aio::wait_all([&first, &write, &second]), [Ok(0), Ok(1), Ok(0)]);
    assert_eq!(seen.iter().filter(|&&what| what == Held::Sync).count(), 2);
    assert_eq!(seen.last(), Some(&Held::Sync));
}

both_engines!(a_sync_that_makes_no_sense_is_refused);
fn a_sync_that_makes_no_sense_is_refused() {
    let named = tempfile::NamedTempFile::new().unwrap();
    let mut sync = Request::sync(named.as_file());
    for operation in [0, 77, -1, libc::O_APPEND] {
        assert_eq!(sync.fsync(operation), Err(libc::EINVAL), "{operation}");
    }
    for fd in [-1, 9999] {
        assert_eq!(Request::sync(&Unopened(fd)).fsync(libc::O_SYNC), Err(libc::EBADF), "{fd}");
    }
    assert_eq!(sync.fsync(libc::O_SYNC), Ok(()));
    assert_eq!(sync.wait(), Ok(0));
}

fn slow_file(size: u64) -> Option<SlowFile> {
    SlowFile::mount(size).map_err(|reason| skip_here(&reason)).ok()
}
