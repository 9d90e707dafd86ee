//! Machines in virtual time that have booted already: saved once, then started from there, each a copy of its own.
//!
//! A machine without a command stops itself when it has booted, by a write to QEMU's device pvpanic:
//! at an instruction, so that its state is the same however busy the host is. It is saved as it would
//! be to migrate. One that starts from there finds its command in QEMU's firmware configuration
//! device, which is read as synchronously, and so runs that start from one state are equal again.

use std::env;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use serde_json::json;

use super::image;
use super::machine::{Guest, Plan, Sink};
use super::resume::STOPPED;

/// The variable that names a directory for saved machines. Without it every machine boots.
pub(crate) const DIRECTORY: &str = "TAUT_LAB_BOOTED";

/// Where a booted machine is saved, when machines are to be.
///
/// Only those in virtual time: what takes longest to boot, and has no clock that would be late.
pub(super) fn directory(icount: Option<u8>) -> Option<PathBuf> {
    env::var_os(DIRECTORY).map(PathBuf::from).filter(|_| icount.is_some())
}

/// The state of the machine, which has booted into an image without a command; made now when it is not there.
///
/// # Errors
/// It can't be made.
pub(super) fn ensure(plan: &Plan<'_>, directory: &Path) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (plan.kernel, plan.image, plan.memory, plan.cpus, plan.icount).hash(&mut hasher);
    let name = format!("{:016x}", hasher.finish());
    let state = directory.join(&name);
    // Another process may be at it.
    let lock = File::create(directory.join(format!("{name}.lock")))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    if !state.exists() {
        let making = tempfile::Builder::new().prefix("making-").tempdir_in(directory)?;
        let saved = save(plan, making.path()).context("cannot save a machine that has booted")?;
        fs::rename(saved, &state)?;
    }
    Ok(state)
}

fn save(plan: &Plan<'_>, making: &Path) -> Result<PathBuf> {
    let mut guest = Guest::start(plan, Sink::Hidden)?;
    let mut monitor = guest.take_monitor()?;
    let status = monitor
        .status("query-status", &["running", "prelaunch"])
        .with_context(|| format!("it does not boot{}", guest.said()))?;
    if status != STOPPED {
        bail!("it is {status}");
    }
    let state = making.join("state");
    let place = image::words(&[state.display().to_string()]);
    // Its usual bound is that of a network which others use.
    monitor.ask("migrate-set-parameters", &json!({ "max-bandwidth": 1_u64 << 40 }))?;
    monitor.ask("migrate", &json!({ "uri": format!("exec:cat >{place}") }))?;
    let status = monitor.status("query-migrate", &["setup", "active", "device"])?;
    if status != "completed" {
        bail!("saving it: {status}");
    }
    Ok(state)
}
