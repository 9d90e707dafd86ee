//! The server under test, from its start to its end.

use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use taut_event::printable;
use taut_link::Link;
use taut_measure::Interrupt;
use tempfile::NamedTempFile;

use super::child::{end_group, end_of, from};
use super::plan::Server;
use crate::commands::check_server;
use crate::input;

/// Between two looks whether it is ready.
const LOOK: Duration = Duration::from_millis(20);
/// For a connection.
const PATIENCE: Duration = Duration::from_millis(200);
/// From the wish that it ends to its end by force.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of what it writes that are looked at in one look: whoever writes more is read later.
const MOST_READ: u64 = 4 << 20;
/// Of what it wrote, when it is to blame.
const LINES_TOLD: usize = 10;

/// A server in a process group of its own, which ends with the value; should `taut` be killed, the kernel ends it.
pub(super) struct Started {
    child: Child,
    output: NamedTempFile,
    /// Bytes of its output in which the line was looked for.
    looked_to: u64,
    name: String,
}

impl Started {
    /// Starts it and waits until it is ready; `None` where the user has no patience.
    pub(super) fn start(server: &Server, endpoint: &str, interrupt: &Interrupt) -> anyhow::Result<Option<Self>> {
        // Else that one would be measured.
        ensure!(!takes_a_call(endpoint), "something listens at {endpoint} before the server is started: end it");
        let output = NamedTempFile::new().context("make a file for what the server writes")?;
        let mut command = Command::new(std::env::current_exe().context("find the program itself")?);
        command.args(check_server::arguments()).args(&server.command).process_group(0);
        command.stdin(Stdio::null()).stdout(output.reopen()?).stderr(output.reopen()?);
        let child = command.spawn().context("start the server")?;
        let mut started = Self { child, output, looked_to: 0, name: input::shell_line(&server.command) };
        let end = Instant::now() + server.ready_within;
        loop {
            started.still_runs()?;
            let is_ready = match &server.ready_line {
                Some(line) => started.has_written(line),
                None => takes_a_call(endpoint),
            };
            if is_ready {
                return Ok(Some(started));
            }
            if interrupt.is_set() {
                return Ok(None);
            }
            if Instant::now() >= end {
                let what = server.ready_line.as_ref().map_or_else(
                    || format!("takes no connection at {endpoint}"),
                    |line| format!("has not written `{line}`"),
                );
                bail!("the server {what} after {:?}{}", server.ready_within, started.told());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// An error with its last words if it has ended.
    pub(super) fn still_runs(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the server (`{}`) has ended with {status}{}", self.name, self.told()),
        }
    }

    /// Whether this is in what it has written since the last look, or a little before.
    fn has_written(&mut self, line: &str) -> bool {
        let begin = self.looked_to.saturating_sub(line.len() as u64);
        let text = from(self.output.path(), begin, line.len() as u64 + MOST_READ);
        self.looked_to = begin + text.len() as u64;
        String::from_utf8_lossy(&text).contains(line)
    }

    fn told(&self) -> String {
        let text = end_of(self.output.path());
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES_TOLD)..];
        // What it says may mean something to a terminal, or at the begin of a line to who runs builds.
        let last: String = last.iter().map(|line| format!("\n  | {}", printable(line))).collect();
        if last.is_empty() { "; it wrote nothing".to_owned() } else { format!("; it wrote:{last}") }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        end_group(&mut self.child, GRACE);
    }
}

/// Whether a connection can be opened: of TCP and Unix endpoints only.
fn takes_a_call(endpoint: &str) -> bool {
    if let Some(address) = endpoint.strip_prefix("tcp://") {
        let known = address.to_socket_addrs().into_iter().flatten();
        // One whose queue is full answers late, and the user may want to end it meanwhile.
        return known.into_iter().any(|address| TcpStream::connect_timeout(&address, PATIENCE).is_ok());
    }
    let Some(Ok(endpoint)) = endpoint.starts_with("unix:").then(|| endpoint.parse()) else { return false };
    match Link::connect(&endpoint, PATIENCE) {
        // Its queue is full: somebody listens.
        Err(taut_link::Error::Io { error, .. }) => error.kind() == ErrorKind::TimedOut,
        connected => connected.is_ok(),
    }
}
