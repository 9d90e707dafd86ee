//! How a machine is started from one that has booted already, or made so that it can be saved.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;

use super::image;
use super::qmp::Monitor;

/// For all that is saved or loaded. A machine that hangs takes longer; one that gets a hundredth of a core does not.
pub(super) const TIME: Duration = Duration::from_secs(600);

/// How QEMU calls the state of a machine that has stopped itself.
pub(super) const STOPPED: &str = "guest-panicked";

/// What a machine has that is to be saved, or started from what was saved.
pub(super) fn devices(command: &mut Command, start: Option<&Start<'_>>) {
    command.args(["-device", "pvpanic", "-action", "panic=pause"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.args(["-chardev", "stdio,id=qmp,signal=off", "-mon", "chardev=qmp,mode=control"]);
    if let Some(start) = start {
        let state = image::words(&[start.state.display().to_string()]);
        command.arg("-incoming").arg(format!("exec:exec cat{state}"));
        command.args(["-fw_cfg", &format!("name=opt/taut/command,file={COMMAND}")]);
    }
}

/// The command's file, in the directory of the machine.
pub(super) const COMMAND: &str = "command";

/// From where a machine starts that has booted.
#[derive(Clone, Copy)]
pub(super) struct Start<'a> {
    /// Of [`super::booted::ensure`].
    pub(super) state: &'a Path,
    /// A shell's script, which is the command.
    pub(super) command: &'a str,
}

/// Has a machine go on that was started from what was saved.
///
/// # Errors
/// It does not load.
pub(super) fn go_on(monitor: &mut Monitor) -> Result<()> {
    let status = monitor.status("query-status", &["inmigrate"])?;
    if status != STOPPED {
        bail!("it is {status}");
    }
    monitor.ask("cont", &json!({})).map(drop)
}
