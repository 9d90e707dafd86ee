//! What processes that measure together need of one another.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::time::Timespec;
use taut_time::Duration;

use crate::sys;

/// CPU time that another process has used, all its threads, those that ended included.
///
/// # Errors
/// There is no such process.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    // The identifier of the clock holds the pid's bits shifted, so a larger one would mean another
    // process; 0 means ourselves.
    const PID_MAX_LIMIT: i32 = 1 << 22;
    let pid = i32::try_from(pid).ok().filter(|pid| (1..=PID_MAX_LIMIT).contains(pid)).ok_or(Errno::SRCH)?;
    let (seconds, nanos) = sys::cpu_of_process(pid)?;
    Ok(Duration::new(seconds.max(0) as u64, nanos.max(0) as u32))
}

/// Ends this process (by `SIGIO`, whose default it is) when the other end of the pipe on its stdin
/// is closed, as it is when the process that holds it dies. Takes no thread and no turn of an event
/// loop, so that nothing is added to what is measured here.
///
/// # Errors
/// Stdin is no pipe, or its other end is closed already.
pub fn end_with_stdin() -> io::Result<()> {
    let stdin = io::stdin();
    end_with(stdin.as_fd())
}

fn end_with(pipe: BorrowedFd<'_>) -> io::Result<()> {
    // O_ASYNC on a terminal would be set for everybody who shares it.
    if FileType::from_raw_mode(fstat(pipe)?.st_mode) != FileType::Fifo {
        return Err(io::Error::other("stdin is no pipe: this command is started by another one"));
    }
    sys::signal_when_readable(pipe)?;
    // Closed before: then there was no signal.
    let mut fds = [PollFd::from_borrowed_fd(pipe, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if fds[0].revents().contains(PollFlags::HUP) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn the_cpu_time_of_a_process_is_what_it_reads_itself() {
        let before = clock::process_cpu();
        let from_outside = cpu_time(std::process::id()).unwrap();
        let after = clock::process_cpu();
        assert!(before <= from_outside && from_outside <= after, "{before:?} {from_outside:?} {after:?}");
    }

    #[test]
    fn a_process_that_is_not_there_has_none() {
        assert!([0, 1 << 22, i32::MAX as u32, u32::MAX].into_iter().all(|pid| cpu_time(pid).is_err()));
    }

    #[test]
    fn a_pipe_that_is_closed_already_is_an_error_and_so_is_no_pipe() {
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        assert_eq!(end_with(reader.as_fd()).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(end_with(file.as_fd()).unwrap_err().to_string().contains("no pipe"));
    }
}
