use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::exit::Code;

/// Becomes a program of `taut check`, which ends with it, even when that is killed
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    parent: i32,
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How this program is made the server's beginning.
pub(crate) fn arguments() -> Vec<OsString> {
    vec!["check-server".into(), "--parent".into(), std::process::id().to_string().into(), "--".into()]
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("tie it to taut check")?;
    // It may have ended before.
    anyhow::ensure!(getppid().map(Pid::as_raw_pid) == Some(args.parent), "taut check has ended");
    let (program, arguments) = args.command.split_first().context("no command")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("{} can't be started", program.to_string_lossy()))
}
