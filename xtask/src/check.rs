//! `cargo xtask check`: what must hold before anything is tested.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::{house, shell, site, tools};

/// Version of cargo-deny that is built when it is missing.
const CARGO_DENY: &str = "0.20.2";

/// What only a bench needs, in a workspace of its own.
const BROKER_CLIENTS: &str = "xtask/broker-clients/Cargo.toml";

/// What is asked of clippy.
const DENIED: [&str; 2] = ["-D", "warnings"];

/// An example that is documented, too: only where one is do packages have the features that all targets give them.
const EXAMPLE: &str = "fetch";

/// The steps, in their order.
const STEPS: [&str; 5] = ["fmt", "clippy", "house", "deny", "docs"];

/// What to check.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these steps: fmt, clippy, house, deny, docs.
    #[arg(value_name = "STEP", value_parser = STEPS)]
    steps: Vec<String>,
    /// Also check the dependencies for known vulnerabilities; fetches a database over the network.
    #[arg(long)]
    advisories: bool,
}

/// Runs all steps, even after one that failed.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let is_chosen = |name: &str| args.steps.is_empty() || args.steps.iter().any(|step| step == name);
    // Where it has to be built first, that is begun beside the steps before it: they leave a core idle now and then.
    let mut deny = is_chosen("deny").then(|| thread::spawn(|| tools::ensure("cargo-deny", CARGO_DENY)));
    // These keep one core busy, and say nothing before their end.
    let mut rules = is_chosen("house").then(|| thread::spawn(house::check));
    let outcomes = STEPS.into_iter().filter(|name| is_chosen(name)).map(|name| {
        println!("==> {name}");
        let begin = Instant::now();
        let result = match name {
            "fmt" => formatting(),
            "clippy" => lints(),
            "house" => rules.take().map_or(Ok(()), rules_hold),
            "deny" => deny.take().map_or(Ok(()), |tool| dependencies(tool, args.advisories)),
            _ => documentation(is_chosen("clippy")),
        };
        let time = begin.elapsed();
        let ok = match result {
            Ok(()) => true,
            Err(error) => {
                eprintln!("{error:#}");
                false
            }
        };
        println!("<== {name}: {} after {}", word(ok), seconds(time));
        (name, ok, time)
    });
    let outcomes: Vec<_> = outcomes.collect();
    println!("\n{:<8} {:<7} {:>9}", "check", "result", "time");
    for (name, ok, time) in &outcomes {
        println!("{name:<8} {:<7} {:>9}", word(*ok), seconds(*time));
    }
    if !args.advisories && outcomes.iter().any(|(name, ..)| *name == "deny") {
        println!("known vulnerabilities (advisories) were not checked: that needs the network, add --advisories");
    }
    Ok(if outcomes.iter().all(|(_, ok, _)| *ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn formatting() -> Result<()> {
    tools::ensure_component("rustfmt", "fmt")?;
    let workspace = run_shown(shell::cargo().args(["fmt", "--all", "--check"]));
    // Workspaces of their own, so `--all` leaves them out.
    let apart = ["fuzz/Cargo.toml", BROKER_CLIENTS]
        .map(|manifest| run_shown(shell::cargo().args(["fmt", "--manifest-path", manifest, "--check"])));
    apart.into_iter().fold(workspace, Result::and)
}

fn lints() -> Result<()> {
    tools::ensure_component("clippy", "clippy")?;
    run_shown(shell::cargo().args(["clippy", "--workspace", "--all-targets", "--locked", "--"]).args(DENIED))
}

fn rules_hold(checked: JoinHandle<Result<()>>) -> Result<()> {
    checked.join().unwrap_or_else(|_| bail!("the check of the rules panicked"))
}

fn dependencies(tool: JoinHandle<Result<PathBuf>>, advisories: bool) -> Result<()> {
    let deny = tool.join().unwrap_or_else(|_| bail!("the build of cargo-deny panicked"))?;
    let check = |manifest| {
        let mut command = Command::new(&deny);
        command.args(["--locked", "--workspace", "--manifest-path", manifest, "--config", "deny.toml", "check"]);
        if advisories {
            command.arg("advisories");
        }
        run_shown(command.args(["bans", "licenses", "sources"]).current_dir(shell::root()))
    };
    // Both, even after one that failed.
    let (workspace, apart) = (check("Cargo.toml"), check(BROKER_CLIENTS));
    workspace.and(apart)
}

/// The documentation. After the lints it takes what these have read of each crate, where cargo finds that all is as it
/// was for them; else crates are read once more.
fn documentation(after_lints: bool) -> Result<()> {
    let left_out = site::left_out()?;
    ensure!(left_out.is_empty(), "{}", left_out.join("\n"));
    let mut command = shell::cargo();
    command.args(["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"]);
    if let Some(clippy) = clippy().filter(|_| after_lints) {
        command.args(["--lib", "--bins", "--example", EXAMPLE]);
        // As `cargo clippy` has them.
        let arguments = DENIED.map(|word| format!("{word}__CLIPPY_HACKERY__")).concat();
        command.env("RUSTC_WORKSPACE_WRAPPER", clippy).env("CLIPPY_ARGS", arguments);
    }
    run_shown(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// The compiler that `cargo clippy` runs.
fn clippy() -> Option<PathBuf> {
    let sysroot = shell::output(Command::new("rustc").args(["--print", "sysroot"])).ok()?;
    Some(PathBuf::from(sysroot.trim()).join("bin/clippy-driver")).filter(|program| program.is_file())
}

fn run_shown(command: &mut Command) -> Result<()> {
    println!("$ {}", shell::line(command));
    shell::run(command)
}

const fn word(ok: bool) -> &'static str {
    if ok { "ok" } else { "FAILED" }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
