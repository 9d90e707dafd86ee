//! A `taut` that measures or traces for the gate, with its output in files: nobody has to read along.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use taut_measure::Interrupt;
use tempfile::NamedTempFile;

use crate::commands::check_server;

/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(10);
/// From the wish that it ends to its end by force.
const GRACE: Duration = Duration::from_secs(2);
/// The most that is read back of what a program says.
const MOST_TOLD: u64 = 64 << 10;

/// Ends with the value.
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
        command.stdin(Stdio::null()).stdout(stdout.reopen()?).stderr(stderr.reopen()?);
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
        // A trace ends what it has started, if it may.
        let end = Instant::now() + GRACE;
        if matches!(self.child.try_wait(), Ok(None)) && self.interrupt().is_ok() {
            while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK);
            }
        }
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
