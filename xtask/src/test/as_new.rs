//! What downloads, as on a machine that has nothing yet: a warm cache hides what is missing from it.
//!
//! Cargo and the project have empty caches of their own, which are removed afterwards; the user's are not touched.
//! Only where the user's has no kernels at all yet, the lab fetches them there: that is the same, and fetches once.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::binaries::{self, For};
use super::job::{Job, Work};
use super::kind::Kind;
use super::pool::{self, Limits};
use super::summary::Summary;
use super::times::Times;
use crate::guard::Guard;
use crate::lab;
use crate::shell;

/// A test that has the lab fetch all its kernels.
const FETCHES: &str = "xtask::lab a_command_runs_on_each_kernel";

/// Runs the tests that download.
///
/// # Errors
/// There is no room for the caches, or the tests can't be built.
pub(super) fn run(summary: &mut Summary) -> Result<()> {
    println!("building the tests");
    let fetches = binaries::jobs(false, For::This)?.into_iter().find(|job| job.name == FETCHES);
    let fetches = fetches.with_context(|| format!("there is no test {FETCHES}"))?;
    let new = tempfile::Builder::new().prefix("taut-as-new-").tempdir().context("cannot create empty caches")?;
    let fetches = if lab::has_stock_kernels() { with_cache(fetches, new.path()) } else { fetches };
    let jobs = vec![with_cargo(new.path())?, fetches];
    let _guard = Guard::start(new.path())?;
    // Each waits for its downloads, and they share nothing.
    let both = Limits { jobs: jobs.len(), guests: 1, load: f64::INFINITY };
    pool::run(jobs, &Times::of(new.path(), &[]), both, |finished| summary.add(finished))
}

/// nix's tests, which are built by cargo from what the test itself was built from. Cargo has fetched nothing else:
/// neither for the rest of the workspace nor for other systems.
fn with_cargo(new: &Path) -> Result<Job> {
    let home = new.join("cargo");
    fs::create_dir(&home)?;
    // Where packages come from is the user's choice, not a cache.
    for name in ["config.toml", "config"] {
        if let Some(config) = user_home().map(|user| user.join(name)).filter(|config| config.is_file()) {
            fs::copy(&config, home.join(name)).with_context(|| format!("cannot copy {}", config.display()))?;
        }
    }
    let mut command = shell::cargo();
    command.args(["test", "--locked", "--package", "tautaio", "--test", "nix_suite", "--target-dir"]);
    command.arg(new.join("target")).env("CARGO_HOME", home).env("XDG_CACHE_HOME", new.join("cache"));
    Ok(Job { name: "tautaio::nix_suite".to_owned(), kind: Kind::Host, work: Work::Command(command) })
}

/// The same test with an empty cache of the project. `taut` for the guests is built as ever, by the user's cargo.
fn with_cache(mut job: Job, new: &Path) -> Job {
    if let Work::Test(command) = &mut job.work {
        command.env("XDG_CACHE_HOME", new.join("cache"));
        if let Some(home) = user_home() {
            command.env("CARGO_HOME", home);
        }
    }
    job
}

/// Cargo's home (The Cargo Book, Cargo Home).
fn user_home() -> Option<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set("CARGO_HOME").or_else(|| set("HOME").map(|home| home.join(".cargo")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::process::Command;

    use super::*;

    fn settings(command: &Command) -> BTreeMap<String, String> {
        let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
        command.get_envs().filter_map(|(name, value)| Some((text(name), text(value?)))).collect()
    }

    #[test]
    fn nothing_of_the_users_is_at_hand() {
        let new = tempfile::tempdir().unwrap();
        let path = |name: &str| new.path().join(name).to_string_lossy().into_owned();
        let Work::Command(command) = with_cargo(new.path()).unwrap().work else { panic!("a command") };
        let settings = settings(&command);
        assert_eq!(settings["CARGO_HOME"], path("cargo"));
        assert_eq!(settings["XDG_CACHE_HOME"], path("cache"));
        assert!(command.get_args().any(|argument| *argument == *path("target")));
        let there = fs::read_dir(path("cargo")).unwrap().flatten().map(|entry| entry.file_name());
        assert!(there.into_iter().all(|name| name.to_string_lossy().starts_with("config")));
    }

    #[test]
    fn the_lab_gets_an_empty_cache() {
        let job = Job { name: FETCHES.to_owned(), kind: Kind::Guest, work: Work::Test(Command::new("true")) };
        let Work::Test(command) = with_cache(job, Path::new("/new")).work else { panic!("a test") };
        assert_eq!(settings(&command)["XDG_CACHE_HOME"], "/new/cache");
    }
}
