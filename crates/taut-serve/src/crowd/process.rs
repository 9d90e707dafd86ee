//! A crowd host seen from the one who started it.

use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::{fs, os::unix::process::CommandExt};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use taut_link::wire::Usage;
use taut_link::{Endpoint, Error, Interrupt, Result, clock, process};
use taut_time::Duration;

use super::host::HostOrder;

/// The program that works as a crowd host (it calls [`super::run`]), with the arguments that make it one. Those
/// of the order come after them, in the form `--engine NAME --connections N --listen ENDPOINT [--from IP] [--cpu N]`.
#[derive(Clone, Debug)]
pub struct HostProgram {
    /// The file.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
}

/// A running crowd host. Killed when dropped, however busy it is.
#[derive(Debug)]
pub struct HostProcess {
    child: Child,
    stdout: ChildStdout,
    said: Vec<u8>,
    endpoint: Endpoint,
}

/// A host that could not start working.
#[derive(Debug)]
pub struct HostFailure {
    /// The system's error number, 0 when there is none.
    pub number: u32,
    /// What it said.
    pub text: String,
}

/// Longest wait for a host to listen.
const LISTENS: Duration = Duration::from_secs(10);
/// Longest wait for a host to have its engine ready once it has its links: a thread for each of 10,000 takes seconds.
const READY: Duration = Duration::from_secs(50);
/// How often a wait looks at the interrupt.
const LOOK_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

impl HostProcess {
    /// Starts a host and waits until it listens, for 10 s at most and no longer than the user wants.
    ///
    /// # Errors
    /// The program can't be started, can't listen, or does something else.
    pub fn start(
        program: &HostProgram,
        order: &HostOrder,
        interrupt: &Interrupt,
    ) -> std::result::Result<Self, HostFailure> {
        let mut command = Command::new(&program.program);
        command.args(&program.arguments);
        command.args(["--engine", order.engine.name(), "--connections", &order.connections.to_string()]);
        command.args(["--listen", &order.listen.to_string()]);
        if let Some(from) = order.from {
            command.args(["--from", &from.to_string()]);
        }
        if let Some(core) = order.core {
            command.args(["--cpu", &core.to_string()]);
        }
        // It ends with its stdin, at our death too. A group of its own, so that Ctrl-C is for us alone to heed.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|error| HostFailure {
            number: error.raw_os_error().map_or(0, i32::unsigned_abs),
            text: format!("start {}: {error}", program.program.display()),
        })?;
        let Some(stdout) = child.stdout.take() else {
            return Err(HostFailure { number: 0, text: "the crowd host has no stdout".to_owned() });
        };
        let mut host = Self { child, stdout, said: Vec::new(), endpoint: order.listen.clone() };
        let line = host.line(LISTENS, interrupt)?;
        let listening = line.strip_prefix("listening ").and_then(|text| text.parse().ok());
        host.endpoint = listening.ok_or_else(|| HostFailure::of(&line))?;
        Ok(host)
    }

    /// Where it takes its links.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Waits until it has all its links and its engine waits for them, for 50 s at most.
    ///
    /// # Errors
    /// Its engine can't be set up, or not all links came.
    pub fn wait_ready(&mut self, interrupt: &Interrupt) -> std::result::Result<(), HostFailure> {
        let line = self.line(READY, interrupt)?;
        if line == "ready" { Ok(()) } else { Err(HostFailure::of(&line)) }
    }

    /// CPU time, threads and memory that it uses by now.
    ///
    /// # Errors
    /// It is gone.
    pub fn usage(&self) -> Result<Usage> {
        let pid = self.child.id();
        let gone = |error| Error::Host { what: "the crowd host is gone".to_owned(), error };
        let cpu = process::cpu_time(pid).map_err(gone)?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(gone)?;
        // A process that has died and not been waited for has no memory.
        let rss_kib = figure(&status, "VmRSS:").ok_or_else(|| gone(Errno::SRCH.into()))?;
        let threads = u32::try_from(figure(&status, "Threads:").unwrap_or(0)).unwrap_or(u32::MAX);
        Ok(Usage { cpu, threads, rss_bytes: rss_kib * 1024 })
    }

    /// The next line of its stdout.
    fn line(&mut self, at_most: Duration, interrupt: &Interrupt) -> std::result::Result<String, HostFailure> {
        let deadline = clock::now() + at_most;
        loop {
            if let Some(end) = self.said.iter().position(|&byte| byte == b'\n') {
                let line = self.said.drain(..=end).collect::<Vec<_>>();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if interrupt.is_set() || clock::now() > deadline {
                return Err(HostFailure { number: 0, text: "the crowd host says nothing".to_owned() });
            }
            let mut fds = [PollFd::new(&self.stdout, PollFlags::IN)];
            if !matches!(poll(&mut fds, Some(&LOOK_PERIOD)), Ok(1)) {
                continue;
            }
            let mut bytes = [0; 512];
            match self.stdout.read(&mut bytes) {
                Ok(length) if length > 0 => self.said.extend_from_slice(&bytes[..length]),
                _ => return Err(HostFailure { number: 0, text: "the crowd host ended at once".to_owned() }),
            }
        }
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        // It may have gone by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.endpoint.remove_socket_file();
    }
}

impl HostFailure {
    /// From a line that a host said instead of what was expected.
    fn of(line: &str) -> Self {
        let told = line.strip_prefix("error ").and_then(|rest| rest.split_once(' '));
        match told.and_then(|(number, text)| Some((number.parse().ok()?, text))) {
            Some((number, text)) => Self { number, text: text.to_owned() },
            None => Self { number: 0, text: format!("the crowd host said `{line}`") },
        }
    }
}

impl From<HostFailure> for Error {
    fn from(failure: HostFailure) -> Self {
        Self::Unavailable(failure.text)
    }
}

/// A figure of /proc/PID/status, which stands after its name.
fn figure(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_its_number_and_its_words() {
        let failure = HostFailure::of("error 1 the engine uring can't be used: Operation not permitted");
        assert_eq!((failure.number, failure.text.starts_with("the engine uring")), (1, true));
        assert_eq!(HostFailure::of("what?").number, 0);
    }

    #[test]
    fn figures_of_a_process_are_read_by_name() {
        let status = "Name:\tx\nVmRSS:\t    1234 kB\nThreads:\t2\n";
        assert_eq!((figure(status, "VmRSS:"), figure(status, "Threads:")), (Some(1234), Some(2)));
        assert_eq!(figure(status, "VmSwap:"), None);
    }

    #[test]
    fn a_program_that_is_no_host_is_told_by_what_it_does() {
        let order = HostOrder {
            engine: super::super::kind::CrowdEngine::Epoll,
            connections: 1,
            listen: "tcp://127.0.0.1:0".parse().unwrap(),
            from: None,
            core: None,
        };
        let start = |program: &str, arguments: &[&str]| {
            let arguments = arguments.iter().map(OsString::from).collect();
            let program = HostProgram { program: program.into(), arguments };
            HostProcess::start(&program, &order, &Interrupt::default()).unwrap_err().text
        };
        assert_eq!(start("/bin/true", &[]), "the crowd host ended at once");
        assert_eq!(start("/bin/sh", &["-c", "echo hello"]), "the crowd host said `hello`");
        assert!(start("/no/such/file", &[]).starts_with("start /no/such/file: "));
    }
}
