//! When the I/O thread itself fails, or the kernel fails it.

mod support;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;

use support::aio::Request;
use support::process::{fork_and_wait, skip_here};
use support::restrict::fail_io_uring_enter;
use support::{Library, Run, only_uring};

/// What the kernel may say for a while.
const PASSING: [i32; 4] = [libc::EBUSY, libc::EAGAIN, libc::ENOMEM, libc::EINTR];

only_uring!(what_the_kernel_has_not_taken_keeps_its_file);
fn what_the_kernel_has_not_taken_keeps_its_file() {
    for errno in PASSING {
        let status = fork_and_wait(|| {
            // Only together with the next wait does it take anything.
            fail_io_uring_enter(errno, false);
            for _ in 0..50 {
                let (ours, mut theirs) = UnixStream::pair().unwrap();
                let read = Request::read(&ours, 1).start();
                let write = Request::write(&ours, b"x").start();
                assert_eq!(write.wait(), Ok(1), "{errno}");
                theirs.write_all(b"x").unwrap();
                assert_eq!(read.wait(), Ok(1), "{errno}");
                let read = Request::read(&ours, 1).start();
                assert_eq!(read.cancel(), Ok(libc::AIO_CANCELED), "{errno}");
            }
        });
        assert!(status.success(), "with errno {errno}: {status}");
    }
}

/// Submits and waits in a child; gives the signal that has ended it.
fn signal_of_a_child(prepare: fn()) -> Option<i32> {
    let status = fork_and_wait(|| {
        prepare();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let write = Request::write(&ours, b"x").start();
        let _ = write.wait();
    });
    status.signal()
}

#[test]
fn a_broken_ring_ends_the_process_with_a_message() {
    let test = concat!(module_path!(), "::a_broken_ring_ends_the_process_with_a_message");
    let body = || assert_eq!(signal_of_a_child(|| fail_io_uring_enter(libc::EBADR, true)), Some(libc::SIGABRT));
    let Some(output) = Run::new(test, Library::Uring).body(body) else { return };
    assert!(output.contains("tautaio: io_uring_enter(2) fails: "), "{output}");
}

fn panic_of(test: &'static str, library: Library) {
    let body = || {
        if !cfg!(debug_assertions) {
            return skip_here("a library as it is shipped panics for nobody");
        }
        assert_eq!(signal_of_a_child(|| {}), Some(libc::SIGABRT));
    };
    let Some(output) = Run::new(test, library).environment(&[("TAUTAIO_PANIC", "1")]).body(body) else { return };
    assert!(output.contains("tautaio: an internal error, told above"), "{output}");
}

#[test]
fn a_panic_of_the_thread_ends_the_process_uring() {
    panic_of(concat!(module_path!(), "::a_panic_of_the_thread_ends_the_process_uring"), Library::Uring);
}

#[test]
fn a_panic_of_the_thread_ends_the_process_epoll() {
    panic_of(concat!(module_path!(), "::a_panic_of_the_thread_ends_the_process_epoll"), Library::Epoll);
}
