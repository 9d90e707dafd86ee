//! Which engine the library takes, and what it says about it.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use support::aio::{Request, cancel_all, timespec_of, waitcomplete};
use support::descriptors;
use support::process::{is_epoll, skip_here};
use support::restrict::{forbid_handles, forbid_io_uring, forbid_locked_memory, forbid_statx, forbid_threads};
use support::{Library, Run, both_engines};

/// `TAUTAIO_LOG=info` is set in all of them.
fn log_of(output: &str) -> Vec<&str> {
    output.split("tautaio: ").skip(1).map(|line| line.lines().next().unwrap_or_default()).collect()
}

#[test]
fn io_uring_where_it_can_be_had() {
    if let Some(reason) = Library::Uring.refused() {
        return support::skip(concat!(module_path!(), "::io_uring_where_it_can_be_had"), &reason);
    }
    let test = concat!(module_path!(), "::io_uring_where_it_can_be_had");
    let Some(output) = Run::new(test, Library::Auto).body(use_everything) else { return };
    assert_eq!(log_of(&output), ["engine io_uring"]);
}

/// As containers' default filters do it.
#[test]
fn epoll_where_a_filter_forbids_io_uring() {
    let test = concat!(module_path!(), "::epoll_where_a_filter_forbids_io_uring");
    let body = || {
        forbid_io_uring(libc::EPERM);
        use_everything();
    };
    let Some(output) = Run::new(test, Library::Auto).body(body) else { return };
    assert_refused(&output, "Operation not permitted (os error 1)");
}

#[test]
fn epoll_where_the_kernel_knows_no_io_uring() {
    let test = concat!(module_path!(), "::epoll_where_the_kernel_knows_no_io_uring");
    let body = || {
        forbid_io_uring(libc::ENOSYS);
        use_everything();
    };
    let Some(output) = Run::new(test, Library::Auto).body(body) else { return };
    assert_refused(&output, "Function not implemented (os error 38)");
}

/// Since Linux 6.14 ring memory counts as locked.
#[test]
fn epoll_where_no_memory_may_be_locked() {
    let test = concat!(module_path!(), "::epoll_where_no_memory_may_be_locked");
    let body = || {
        forbid_locked_memory();
        if support::process::uring_refused().is_none() {
            return skip_here("this kernel counts no ring memory against RLIMIT_MEMLOCK");
        }
        use_everything();
    };
    let Some(output) = Run::new(test, Library::Auto).body(body) else { return };
    assert_refused(&output, "Cannot allocate memory (os error 12)");
}

fn assert_refused(output: &str, why: &str) {
    let log = log_of(output);
    assert_eq!(log, [format!("engine epoll (io_uring refused: {why})")], "{output}");
}

/// Whoever insists gets errors and no other engine.
#[test]
fn none_where_io_uring_is_insisted_on() {
    let test = concat!(module_path!(), "::none_where_io_uring_is_insisted_on");
    let body = || {
        forbid_io_uring(libc::EPERM);
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut read = Request::read(&ours, 1);
        for _ in 0..3 {
            assert_eq!(read.submit(), Err(libc::EAGAIN));
            assert_ne!(read.error(), libc::EINPROGRESS);
        }
        let mut write = Request::write(&ours, b"x");
        assert_eq!(write.submit(), Err(libc::EAGAIN));
        assert_eq!(cancel_all(&ours), Ok(libc::AIO_ALLDONE));
        drop(ours);
    };
    let run = Run::new(test, Library::Auto).environment(&[("TAUTAIO_ENGINE", "uring")]);
    let Some(output) = run.body(body) else { return };
    let log = log_of(&output);
    assert!(!log.is_empty(), "{output}");
    assert!(log.iter().all(|line| line.contains("io_uring") && line.contains("Operation not permitted")), "{output}");
}

both_engines!(it_starts_later_when_there_are_descriptors_again);
fn it_starts_later_when_there_are_descriptors_again() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut read = Request::read(&ours, 1);
    // What the library opens gets the lowest numbers: none, or too few of them. A ring is one, epoll needs two.
    let needed = if is_epoll() { 2 } else { 1 };
    for few in 0..needed {
        let lowest = descriptors::lowest_unopened();
        descriptors::set_limit(libc::RLIMIT_NOFILE, lowest + few);
        assert_eq!(read.submit(), Err(libc::EAGAIN), "{few}");
        assert_ne!(read.error(), libc::EINPROGRESS);
        assert_eq!(waitcomplete(Some(timespec_of(Duration::ZERO))), Err(libc::EAGAIN));
        assert_eq!(descriptors::lowest_unopened(), lowest, "what was opened is closed again");
    }
    descriptors::raise_limit();
    read.submit().unwrap();
    theirs.write_all(b"x").unwrap();
    assert_eq!(read.wait(), Ok(1));
}

#[test]
fn nothing_is_said_unasked() {
    let test = concat!(module_path!(), "::nothing_is_said_unasked");
    let run = Run::new(test, Library::Auto).environment(&[("TAUTAIO_LOG", "")]);
    let Some(output) = run.body(use_everything) else { return };
    assert_eq!(log_of(&output), [""; 0]);
}

both_engines!(an_unknown_wish_is_no_obstacle with [("TAUTAIO_CANCEL", "something")]);
fn an_unknown_wish_is_no_obstacle() {
    use_everything();
}

// Where no thread can be made for what takes the kernel long, files are worked on all the same.
both_engines!(files_where_there_can_be_no_more_threads);
fn files_where_there_can_be_no_more_threads() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; 4096]).unwrap();
    // The library's own thread is there, and nothing else yet.
    let (ours, _theirs) = UnixStream::pair().unwrap();
    assert_eq!(Request::write(&ours, b"x").start().wait(), Ok(1));
    if !forbid_threads() {
        return skip_here("root is bound by no limit of threads and may not become another user");
    }
    for turn in 0..20 {
        let mut sync = Request::sync(&file);
        sync.fsync(libc::O_SYNC).unwrap();
        let write = Request::write(&file, &[turn; 512]).start();
        let read = Request::read(&file, 4096).start();
        assert_eq!(sync.wait(), Ok(0), "turn {turn}");
        assert_eq!(write.wait(), Ok(512), "turn {turn}");
        assert_eq!(read.wait(), Ok(4096), "turn {turn}");
    }
}

both_engines!(the_thread_does_not_interrupt_the_program);
fn the_thread_does_not_interrupt_the_program() {
    use_everything();
    assert_eq!(policy_of_the_thread(), libc::SCHED_BATCH);
}

both_engines!(the_thread_is_scheduled_as_any_when_asked with [("TAUTAIO_SCHED", "other")]);
fn the_thread_is_scheduled_as_any_when_asked() {
    use_everything();
    assert_eq!(policy_of_the_thread(), libc::SCHED_OTHER);
}

/// How the library's own thread is scheduled: field 41 of /proc/PID/task/TID/stat (proc_pid_stat(5)).
fn policy_of_the_thread() -> libc::c_int {
    let stat = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap())
        .find(|stat| stat.contains("(tautaio)"))
        .expect("a thread of that name");
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(41 - 3).unwrap().parse().unwrap()
}

fn use_everything() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let read = Request::read(&ours, 4).start();
    assert_eq!(Request::write(&ours, b"ping").start().wait(), Ok(4));
    theirs.read_exact(&mut [0; 4]).unwrap();
    theirs.write_all(b"pong").unwrap();
    assert_eq!(read.wait(), Ok(4));
    let blocked = Request::read(&ours, 1).start();
    assert_eq!(blocked.cancel(), Ok(libc::AIO_CANCELED));
    let (output, input) = std::io::pipe().unwrap();
    let read = Request::read(&output, 4).start();
    assert_eq!(Request::write(&input, b"pipe").start().wait(), Ok(4));
    assert_eq!(read.wait(), Ok(4));
    let file = tempfile::tempfile().unwrap();
    let writes: Vec<_> = (0..64).map(|i| Request::write(&file, b"x").at(i).start()).collect();
    let mut sync = Request::sync(&file);
    sync.fsync(libc::O_DSYNC).unwrap();
    assert_eq!(sync.wait(), Ok(0));
    assert!(writes.iter().all(|write| write.result() == Ok(1)));
}

/// Filters that are older than statx(2) refuse it with an error of their own.
#[test]
fn files_are_told_apart_without_statx() {
    let test = concat!(module_path!(), "::files_are_told_apart_without_statx");
    let body = || {
        forbid_statx(libc::EPERM);
        use_everything();
    };
    Run::new(test, Library::Auto).body(body);
}

both_engines!(a_filter_may_come_later);
/// It is this thread's alone (seccomp(2)): the library's is not refused what tells files apart, and knows them all the
/// same.
fn a_filter_may_come_later() {
    use_everything();
    forbid_handles(libc::EPERM);
    use_everything();
    forbid_statx(libc::EPERM);
    use_everything();
}
