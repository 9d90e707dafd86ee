//! Where the repository is and how programs are run in it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::guard;

/// Exit code of what can't be had on this machine, as tests have it.
pub(crate) const NOT_HERE: u8 = 77;

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    let xtask =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map_or_else(|| xtask.clone(), Path::to_owned)
}

/// `cargo` of the toolchain that runs us, in the root of the repository.
pub(crate) fn cargo() -> Command {
    let mut command = without_package(Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into())));
    command.current_dir(root()).stdin(Stdio::null());
    guard::mark(&mut command);
    command
}

/// The command without what the cargo that runs us says of this package. Build scripts that watch
/// these (ring's) would have their package built again whenever another way leads here.
pub(crate) fn without_package(mut command: Command) -> Command {
    let ours = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(ours)) {
        command.env_remove(name);
    }
    command
}

/// Cargo's target directory.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let text = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata is not JSON")?;
    let directory = metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(directory.into())
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_else(|| command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a command whose output is the user's to see; an error when it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run `{}`", line(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", line(command));
    }
    Ok(())
}

/// Runs a command and gives its standard output; an error with its standard error when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{}`", line(command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}: {}", line(command), output.status, stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a command runs and ends well; nothing is shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// The file that a command's name stands for, searched in `PATH`.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Whether we run as root.
pub(crate) fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| effective_user(&status) == Some(0))
}

/// Whether we run in continuous integration, where nothing may be left out that can run.
pub(crate) fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false" && value != "0")
}

/// Tells what is left out for want of a tool or a right. Continuous integration has both, so there it is an error.
pub(crate) fn left_out(what: &str) -> Result<()> {
    left_out_where(in_ci(), what)
}

fn left_out_where(is_ci: bool, what: &str) -> Result<()> {
    if is_ci {
        bail!("{what}; in continuous integration (CI is set) nothing may be left out");
    }
    println!("{what}");
    Ok(())
}

/// The effective user in proc_pid_status(5): `Uid: real effective saved filesystem`.
fn effective_user(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_fails_in_continuous_integration_alone() {
        let error = left_out_where(true, "not tried: no tool").unwrap_err().to_string();
        assert!(error.starts_with("not tried: no tool; ") && error.contains("CI is set"), "{error}");
        assert!(left_out_where(false, "not tried: no tool").is_ok());
    }

    #[test]
    fn the_effective_user_is_the_second() {
        assert_eq!(effective_user("Name:\tx\nUid:\t1000\t0\t0\t0\n"), Some(0));
        assert_eq!(effective_user("Name:\tx\n"), None);
    }

    #[test]
    fn a_line_names_the_program_without_its_folder() {
        assert_eq!(line(Command::new("/usr/bin/cargo").args(["fmt", "--check"])), "cargo fmt --check");
    }
}
