//! Nothing that a run of tests has started outlives it, however it ends: a process of its own watches over it.
//!
//! What the run starts has a mark in its environment, which all that descends from it keeps, in whatever
//! group or session it is. When the run has ended, or was killed, the guard ends what has the mark.

use std::env;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The variable that holds the mark. A run within a run adds its own, so that the outer guard finds it too.
const VARIABLE: &str = "TAUT_TEST_RUN";
/// How often is looked for what has begun meanwhile. A process that is being killed is soon gone.
const LOOKS: u32 = 500;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

static MARK: OnceLock<String> = OnceLock::new();

/// What to watch over.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// In the environment of what is to be ended when standard input ends.
    mark: String,
    /// What is to be removed then.
    directory: PathBuf,
}

/// The guard, as the run has it. Dropped, it does its work, which is waited for.
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts it; from now on [`mark`] marks. It removes the directory when it has ended all processes.
    ///
    /// # Errors
    /// It can't be started.
    pub(crate) fn start(directory: &Path) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mark = MARK.get_or_init(|| format!("{}-{}", std::process::id(), now.as_nanos()));
        // This program, also when a build has put another in its place.
        let mut command = Command::new("/proc/self/exe");
        // Only we hold the other end of its input. A terminal's Ctrl-C is not for it.
        command.arg("guard").arg(mark).arg(directory).stdin(Stdio::piped()).process_group(0);
        Ok(Self(command.spawn().context("cannot start the guard of the run")?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It fails only when it was killed itself.
        let _ = self.0.wait();
    }
}

/// Marks what the command starts as this run's, if there is one.
pub(crate) fn mark(command: &mut Command) {
    if let Some(mark) = MARK.get() {
        let outer = env::var(VARIABLE).unwrap_or_default();
        command.env(VARIABLE, format!("{outer} {mark}"));
    }
}

/// The guard itself.
///
/// # Errors
/// Its input can't be read.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    io::stdin().read_to_end(&mut Vec::new())?;
    for _ in 0..LOOKS {
        if end_marked(&args.mark) == 0 {
            break;
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    if args.directory.is_dir() {
        fs::remove_dir_all(&args.directory).with_context(|| format!("cannot remove {}", args.directory.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends the processes with the mark; how many there were.
fn end_marked(mark: &str) -> usize {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let processes = entries.flatten().filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    processes.filter(|process| *process != rustix::process::getpid() && end(*process, mark).is_some()).count()
}

/// Ends one, if it has the mark. One that has ended has no environment any more.
fn end(process: Pid, mark: &str) -> Option<()> {
    // Held before it is looked at: the number may be another's a moment later.
    let held = pidfd_open(process, PidfdFlags::empty()).ok()?;
    let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())).ok()?;
    let ours = |setting: &[u8]| {
        let value = setting.strip_prefix(VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
        value.is_some_and(|value| value.split(|byte| *byte == b' ').any(|word| word == mark.as_bytes()))
    };
    if !environment.split(|byte| *byte == 0).any(ours) {
        return None;
    }
    pidfd_send_signal(held, Signal::KILL).ok()
}
