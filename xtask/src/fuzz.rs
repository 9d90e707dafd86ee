//! `cargo xtask fuzz`: the fuzz targets, each for a while.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{shell, tools};

/// Which targets to run, and for how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this target.
    target: Option<String>,
    /// Time for each target.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    time: Duration,
}

/// Runs the targets one after another, all of them even when one finds something.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let targets = targets()?;
    let chosen = match &args.target {
        None => targets,
        Some(name) if targets.contains(name) => vec![name.clone()],
        Some(name) => bail!("there is no fuzz target `{name}`; there are: {}", targets.join(", ")),
    };
    let path = ready()?;
    let mut found = Vec::new();
    for target in &chosen {
        println!("==> {target}");
        if let Err(error) = shell::run(&mut fuzz(target, args.time, &path)) {
            eprintln!("{error:#}");
            found.push(target.as_str());
        }
    }
    if found.is_empty() {
        println!("nothing found in: {}", chosen.join(", "));
        return Ok(ExitCode::SUCCESS);
    }
    println!("FAILED: {} (inputs under fuzz/artifacts)", found.join(", "));
    Ok(ExitCode::FAILURE)
}

fn fuzz(target: &str, time: Duration, path: &OsString) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "fuzz", "run", target, "--"]);
    // 0 would be without end.
    command.arg(format!("-max_total_time={}", time.as_secs().max(1)));
    // The outer cargo and toolchain are not the nightly ones.
    command.env("PATH", path).env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command.current_dir(shell::root()).stdin(Stdio::null());
    command
}

/// The targets are the files in `fuzz/fuzz_targets`.
fn targets() -> Result<Vec<String>> {
    let directory = shell::root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// The `PATH` with cargo-fuzz in it; an error that says what to install when something is missing.
fn ready() -> Result<OsString> {
    let cache = tools::cache()?;
    let tools = cache.join("bin");
    let mut lines = Vec::new();
    if !shell::succeeds(Command::new("rustup").args(["run", "nightly", "rustc", "--version"])) {
        lines.push("rustup toolchain install nightly --profile minimal".to_owned());
    }
    if !tools.join("cargo-fuzz").is_file() && shell::find("cargo-fuzz").is_none() {
        lines.push(format!("cargo install --locked cargo-fuzz --root {}", cache.display()));
    }
    // libFuzzer is C++.
    if shell::find("c++").is_none() {
        lines.push("sudo apt-get install -y --no-install-recommends g++".to_owned());
    }
    if !lines.is_empty() {
        bail!("fuzzing needs more than there is; run:\n  {}", lines.join("\n  "));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths(std::iter::once(tools).chain(env::split_paths(&path)))?)
}
