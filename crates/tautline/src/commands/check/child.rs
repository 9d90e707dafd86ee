//! A `taut` that measures or traces for the gate, with its output in files: nobody has to read along.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use taut_measure::Interrupt;
use tempfile::NamedTempFile;

use crate::commands::check_server;

/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(10);
/// From the wish that it ends to its end by force.
const GRACE: Duration = Duration::from_secs(2);
/// The most that is read back of what a program says.
const MOST_TOLD: u64 = 64 << 10;

/// Ends with the value, and so does whatever it has started: it has a process group of its own. So a Ctrl-C on the
/// terminal comes to it once, from the gate.
pub(super) struct Running {
    child: Child,
    stdout: NamedTempFile,
    stderr: NamedTempFile,
}

/// How it ended.
pub(super) struct Done {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Running {
    /// Starts `taut` with these arguments.
    pub(super) fn start(arguments: &[String]) -> anyhow::Result<Self> {
        let (stdout, stderr) = (NamedTempFile::new()?, NamedTempFile::new()?);
        let taut = std::env::current_exe().context("find the program itself")?;
        let mut command = Command::new(&taut);
        command.args(check_server::arguments()).arg(&taut).args(arguments);
        command.process_group(0).stdin(Stdio::null()).stdout(stdout.reopen()?).stderr(stderr.reopen()?);
        Ok(Self { child: command.spawn().context("start taut")?, stdout, stderr })
    }

    /// Waits for its end; `None` where the user has no patience.
    pub(super) fn wait(mut self, interrupt: &Interrupt) -> anyhow::Result<Option<Done>> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                let stdout = fs::read_to_string(self.stdout.path()).context("read what taut printed")?;
                return Ok(Some(Done { status, stdout, stderr: end_of(self.stderr.path()) }));
            }
            if interrupt.is_set() {
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether it still runs when it has said this on stderr; false where it ended without.
    pub(super) fn has_said(&mut self, what: &str, interrupt: &Interrupt) -> anyhow::Result<bool> {
        loop {
            let has_ended = self.child.try_wait()?.is_some();
            if !has_ended && end_of(self.stderr.path()).contains(what) {
                return Ok(true);
            }
            if has_ended || interrupt.is_set() {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// As Ctrl-C does.
    pub(super) fn interrupt(&self) -> anyhow::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::INT)?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let end = Instant::now() + GRACE;
        let is_there = matches!(self.child.try_wait(), Ok(None));
        if is_there && self.interrupt().is_ok() {
            while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK);
            }
        }
        // A trace leaves what it has started; who came to an end may have left something on purpose.
        if is_there {
            end_group(&mut self.child, GRACE);
        }
        let _ = self.child.wait();
    }
}

/// Ends the group of a child, of which any may have ended: by force after so long.
pub(super) fn end_group(child: &mut Child, grace: Duration) {
    let group = Pid::from_child(child);
    let _ = kill_process_group(group, Signal::TERM);
    let end = Instant::now() + grace;
    // Its children have that time, too: nobody has the group's number while one of it is there.
    while Instant::now() < end && (matches!(child.try_wait(), Ok(None)) || test_kill_process_group(group).is_ok()) {
        std::thread::sleep(LOOK);
    }
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

/// What a program has written so far from there on, as far as `most` bytes.
pub(super) fn from(path: &Path, at: u64, most: u64) -> Vec<u8> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(at))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    // What can't be read was not written.
    read().unwrap_or_default()
}

/// The end of what a program has written so far.
pub(super) fn end_of(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(MOST_TOLD)))?;
        let mut bytes = Vec::new();
        file.take(MOST_TOLD).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}
