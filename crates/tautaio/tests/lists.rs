//! `lio_listio`.

mod support;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::time::Duration;

use libc::{LIO_NOWAIT, LIO_WAIT};
use support::aio::{self, PATIENCE, Request, by_signal, listio, listio_raw};
use support::{both_engines, descriptors, signals};

both_engines!(a_list_is_waited_for);
fn a_list_is_waited_for() {
    let file = tempfile::tempfile().unwrap();
    let writes: Vec<_> = (0..64u8).map(|i| Request::write(&file, &[i; 512]).at(i64::from(i) * 512)).collect();
    assert_eq!(listio(LIO_WAIT, &of(&writes), None), Ok(()));
    assert!(writes.iter().all(|write| write.result() == Ok(512)));
    let reads: Vec<_> = (0..64u8).map(|i| Request::read(&file, 512).at(i64::from(i) * 512)).collect();
    assert_eq!(listio(LIO_WAIT, &of(&reads), None), Ok(()));
    for (i, read) in (0u8..).zip(&reads) {
        assert_eq!(read.result(), Ok(512));
        assert_eq!(read.data(), [i; 512]);
    }
}

both_engines!(a_list_is_not_waited_for);
fn a_list_is_not_waited_for() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let list = [Request::read(&ours, 4), Request::write(&theirs, b"ping"), Request::read(&ours, 4)];
    assert_eq!(listio(LIO_NOWAIT, &of(&list), None), Ok(()));
    assert_eq!(list[0].wait(), Ok(4));
    assert_eq!(list[1].wait(), Ok(4));
    assert!(list[2].in_flight());
    theirs.write_all(b"pong").unwrap();
    assert_eq!(list[2].wait(), Ok(4));
    assert_eq!((list[0].data(), list[2].data()), (&b"ping"[..], &b"pong"[..]));
}

both_engines!(nothing_and_null_are_passed_over);
fn nothing_and_null_are_passed_over() {
    let file = tempfile::tempfile().unwrap();
    for mode in [LIO_WAIT, LIO_NOWAIT] {
        let write = Request::write(&file, b"x");
        let nop = Request::nop();
        assert_eq!(listio(mode, &[None, Some(&nop), Some(&write), None], None), Ok(()));
        assert_eq!(write.wait(), Ok(1));
        assert_eq!(nop.error(), 0);
        assert_eq!(listio(mode, &[None, Some(&nop)], None), Ok(()));
        assert_eq!(listio(mode, &[], None), Ok(()));
        assert_eq!(listio_raw(mode, ptr::null(), 0, None), Ok(()));
    }
}

both_engines!(a_bad_mode_or_length_is_refused);
fn a_bad_mode_or_length_is_refused() {
    let file = tempfile::tempfile().unwrap();
    let write = Request::write(&file, b"x");
    for mode in [-1, 2, 77] {
        assert_eq!(listio(mode, &[Some(&write)], None), Err(libc::EINVAL), "{mode}");
    }
    let list = [write.as_ptr()];
    for mode in [LIO_WAIT, LIO_NOWAIT] {
        for length in [-1, i32::MIN] {
            assert_eq!(listio_raw(mode, list.as_ptr(), length, None), Err(libc::EINVAL), "{length}");
        }
    }
    assert_eq!(listio(LIO_NOWAIT, &[Some(&write)], Some(aio::event(77))), Err(libc::EINVAL));
    assert_eq!(listio(LIO_NOWAIT, &[Some(&write)], Some(by_signal(65, 0))), Err(libc::EINVAL));
    assert_eq!(file.metadata().unwrap().len(), 0, "nothing was submitted");
    assert_eq!(write.start().wait(), Ok(1));
}

both_engines!(an_unknown_operation_fails_alone);
fn an_unknown_operation_fails_alone() {
    let file = tempfile::tempfile().unwrap();
    for mode in [LIO_WAIT, LIO_NOWAIT] {
        for opcode in [-1, 3, 77] {
            let mut unknown = Request::read(&file, 1);
            unknown.block_mut().aio_lio_opcode = opcode;
            let writes = [Request::write(&file, b"x"), Request::write(&file, b"y").at(1)];
            let list = [Some(&writes[0]), Some(&unknown), Some(&writes[1])];
            assert_eq!(listio(mode, &list, None), Err(libc::EIO), "{opcode}");
            assert_eq!(unknown.error(), libc::EINVAL, "{opcode}");
            assert_eq!(aio::wait_all(&writes), [Ok(1), Ok(1)]);
        }
    }
}

both_engines!(a_refused_entry_fails_alone);
fn a_refused_entry_fails_alone() {
    let file = tempfile::tempfile().unwrap();
    for mode in [LIO_WAIT, LIO_NOWAIT] {
        let mut refused = Request::read(&file, 1);
        refused.block_mut().aio_reqprio = -1;
        let write = Request::write(&file, b"x");
        assert_eq!(listio(mode, &[Some(&refused), Some(&write)], None), Err(libc::EIO));
        assert_eq!(refused.error(), libc::EINVAL);
        assert_eq!(write.wait(), Ok(1));
    }
}

both_engines!(a_failure_fails_the_waited_list);
fn a_failure_fails_the_waited_list() {
    let file = tempfile::tempfile().unwrap();
    let bad = Request::read(&descriptors::Unopened(-1), 1);
    let write = Request::write(&file, b"x");
    assert_eq!(listio(LIO_WAIT, &[Some(&bad), Some(&write)], None), Err(libc::EIO));
    assert_eq!(bad.result(), Err(libc::EBADF));
    assert_eq!(write.result(), Ok(1), "the others are done all the same, and when it returns");
}

both_engines!(a_handler_interrupts_the_wait);
fn a_handler_interrupts_the_wait() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1);
    let signal = signals::realtime(1);
    signals::interrupt_by(signal);
    let result = signals::while_signalled(signal, || listio(LIO_WAIT, &[Some(&read)], None));
    assert_eq!(result, Err(libc::EINTR));
    assert!(read.in_flight(), "the operation goes on");
    theirs.write_all(b"x").unwrap();
    assert_eq!(read.wait(), Ok(1));
}

both_engines!(one_notification_when_all_are_done);
fn one_notification_when_all_are_done() {
    let (of_list, of_each) = (signals::realtime(1), signals::realtime(2));
    signals::block(&[of_list, of_each]);
    let pairs: Vec<_> = (0..10).map(|_| UnixStream::pair().unwrap()).collect();
    let reads: Vec<_> =
        pairs.iter().enumerate().map(|(i, (ours, _))| Request::read(ours, 1).notify(by_signal(of_each, i))).collect();
    assert_eq!(listio(LIO_NOWAIT, &of(&reads), Some(by_signal(of_list, 4711))), Ok(()));
    for (i, (_, theirs)) in pairs.iter().enumerate() {
        assert!(!signals::pending().contains(&of_list), "before {i}");
        (&mut &*theirs).write_all(b"x").unwrap();
        assert_eq!(signals::take(&[of_each], PATIENCE).unwrap().value, i);
    }
    let taken = signals::take(&[of_list], PATIENCE).unwrap();
    assert_eq!((taken.value, taken.code), (4711, libc::SI_ASYNCIO));
    assert!(reads.iter().all(|read| read.result() == Ok(1)), "all are done when it comes");
    assert_eq!(signals::take(&[of_list, of_each], Duration::from_millis(50)), Err(libc::EAGAIN));
}

both_engines!(nothing_to_do_is_notified_at_once);
fn nothing_to_do_is_notified_at_once() {
    let signal = signals::realtime(1);
    signals::block(&[signal]);
    let nop = Request::nop();
    for (value, list) in [&[][..], &[None, None], &[Some(&nop)]].into_iter().enumerate() {
        assert_eq!(listio(LIO_NOWAIT, list, Some(by_signal(signal, value))), Ok(()));
        assert_eq!(signals::take(&[signal], PATIENCE).unwrap().value, value);
    }
    assert_eq!(signals::take(&[signal], Duration::from_millis(20)), Err(libc::EAGAIN));
    let file = tempfile::tempfile().unwrap();
    assert_eq!(Request::write(&file, b"x").start().wait(), Ok(1));
}

both_engines!(failures_are_notified_too);
fn failures_are_notified_too() {
    let signal = signals::realtime(1);
    signals::block(&[signal]);
    let bad = Request::read(&descriptors::Unopened(-1), 1);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1);
    // The operation fails later than the call: the call itself may say so or not.
    let result = listio(LIO_NOWAIT, &[Some(&bad), Some(&read)], Some(by_signal(signal, 1)));
    assert!(matches!(result, Ok(()) | Err(libc::EIO)), "{result:?}");
    assert_eq!(signals::take(&[signal], Duration::from_millis(20)), Err(libc::EAGAIN), "one is still in flight");
    theirs.write_all(b"x").unwrap();
    assert_eq!(signals::take(&[signal], PATIENCE).unwrap().value, 1);
    assert_eq!(bad.result(), Err(libc::EBADF));
}

both_engines!(the_sigevent_is_copied);
/// POSIX: the caller's sigevent is no longer needed when the call returns.
fn the_sigevent_is_copied() {
    let signal = signals::realtime(1);
    signals::block(&[signal]);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 1);
    let mut event = Box::new(by_signal(signal, 4711));
    aio::listio_with(LIO_NOWAIT, &read, &mut event).unwrap();
    *event = by_signal(signals::realtime(5), 0);
    drop(event);
    theirs.write_all(b"x").unwrap();
    assert_eq!(signals::take(&[signal], PATIENCE).unwrap().value, 4711);
}

both_engines!(a_waited_list_ignores_the_sigevent);
fn a_waited_list_ignores_the_sigevent() {
    let signal = signals::realtime(1);
    signals::block(&[signal]);
    let file = tempfile::tempfile().unwrap();
    let write = Request::write(&file, b"x");
    assert_eq!(listio(LIO_WAIT, &[Some(&write)], Some(by_signal(signal, 1))), Ok(()));
    assert_eq!(signals::take(&[signal], Duration::from_millis(20)), Err(libc::EAGAIN));
}

both_engines!(lists_at_once_and_after_each_other);
fn lists_at_once_and_after_each_other() {
    let signal = signals::realtime(1);
    signals::block(&[signal]);
    let file = tempfile::tempfile().unwrap();
    for turn in 0..50 {
        let lists: Vec<Vec<_>> = (0..8).map(|_| (0..16).map(|_| Request::write(&file, b"x")).collect()).collect();
        for (number, list) in lists.iter().enumerate() {
            assert_eq!(listio(LIO_NOWAIT, &of(list), Some(by_signal(signal, turn * 8 + number))), Ok(()));
        }
        let mut values: Vec<_> = (0..8).map(|_| signals::take(&[signal], PATIENCE).unwrap().value).collect();
        values.sort_unstable();
        assert_eq!(values, (turn * 8..turn * 8 + 8).collect::<Vec<_>>());
        assert!(lists.iter().flatten().all(|write| write.result() == Ok(1)));
    }
}

both_engines!(a_long_list);
fn a_long_list() {
    let file = tempfile::tempfile().unwrap();
    let writes: Vec<_> = (0..10_000).map(|i| Request::write(&file, b"x").at(i)).collect();
    assert_eq!(listio(LIO_WAIT, &of(&writes), None), Ok(()));
    assert!(writes.iter().all(|write| write.result() == Ok(1)));
    assert_eq!(file.metadata().unwrap().len(), 10_000);
}

fn of(requests: &[Request]) -> Vec<Option<&Request>> {
    requests.iter().map(Some).collect()
}
