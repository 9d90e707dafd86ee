//! What downloads, as on a machine that has nothing yet: a warm cache hides what is missing from it.
//!
//! Cargo and the project have empty caches of their own, which are removed afterwards; the user's are not touched.
//! Only where the user's has no kernels at all yet, the lab fetches them there: that is the same, and fetches once.
//! In CI all other tests come next, the lab's own among them, so that it runs here only where the fetch failed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use super::binaries::{self, For};
use super::job::{Job, Work};
use super::kind::Kind;
use super::pool::{self, Limits};
use super::summary::Summary;
use super::times::Times;
use crate::guard::{self, Guard};
use crate::{lab, packages, shell};

/// A test that has the lab fetch all its kernels.
const FETCHES: &str = "xtask::lab a_command_runs_on_each_kernel";

/// Runs the tests that download. What they download comes while the others are built, which takes the cores and not the
/// network.
///
/// # Errors
/// There is no room for the caches, or the tests can't be built.
pub(super) fn run(summary: &mut Summary) -> Result<()> {
    let new = tempfile::Builder::new().prefix("taut-as-new-").tempdir().context("cannot create empty caches")?;
    let cache = lab::has_stock_kernels().then(|| new.path().join("cache"));
    let _guard = Guard::start(new.path())?;
    let times = Times::of(new.path(), &[]);
    let cargo = with_cargo(new.path())?;
    println!("building the tests");
    let (built, is_fetched) = thread::scope(|scope| {
        let built = scope.spawn(|| binaries::built(false, For::This));
        let fetched = scope.spawn(|| fetch(cache.as_deref()));
        pool::run(vec![cargo], &times, Limits::ALONE, |finished| summary.add(finished))?;
        let built = built.join().unwrap_or_else(|_| bail!("the build of the tests panicked"))?;
        anyhow::Ok((built, fetched.join().unwrap_or(false)))
    })?;
    if is_fetched && cache.is_none() && shell::in_ci() {
        return Ok(());
    }
    let fetches = built.jobs.into_iter().find(|job| job.name == FETCHES);
    let fetches = fetches.with_context(|| format!("there is no test {FETCHES}"))?;
    let fetches = with_cache(fetches, cache.as_deref());
    pool::run(vec![fetches], &times, Limits::ALONE, |finished| summary.add(finished))
}

/// What the lab's test begins with, begun earlier and in the same cache. If it fails, the test does it again, and says
/// so. Whether it succeeded.
fn fetch(cache: Option<&Path>) -> bool {
    let mut command = Command::new("/proc/self/exe");
    settle(command.args(["lab", "fetch"]).stdin(Stdio::null()), cache);
    // All the other tests come next there, and in the cache that had nothing yet they find what they need. Modules they
    // build themselves, from what is there then.
    if cache.is_none() && shell::in_ci() {
        command.args(["--workshops", "--l2cat"]);
    }
    guard::mark(&mut command);
    let is_fetched = command.status().is_ok_and(|status| status.success());
    if !is_fetched {
        eprintln!("the lab's kernels can't be fetched ahead of its test");
    }
    // What is missing then is told by those who need it.
    if shell::in_ci() {
        packages::ensure(packages::TESTS);
    }
    is_fetched
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

/// The same test with an empty cache of the project, if there is one for it.
fn with_cache(mut job: Job, cache: Option<&Path>) -> Job {
    if let Work::Test(command) = &mut job.work {
        settle(command, cache);
    }
    job
}

/// Has a command of the lab's fetch into that cache. `taut` for the guests is built as ever, by the user's cargo.
fn settle(command: &mut Command, cache: Option<&Path>) {
    let Some(cache) = cache else { return };
    command.env("XDG_CACHE_HOME", cache);
    if let Some(home) = user_home() {
        command.env("CARGO_HOME", home);
    }
}

/// Cargo's home (The Cargo Book, Cargo Home).
fn user_home() -> Option<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set("CARGO_HOME").or_else(|| set("HOME").map(|home| home.join(".cargo")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
        let Work::Test(command) = with_cache(job, Some(Path::new("/new/cache"))).work else { panic!("a test") };
        assert_eq!(settings(&command)["XDG_CACHE_HOME"], "/new/cache");
        let job = Job { name: FETCHES.to_owned(), kind: Kind::Guest, work: Work::Test(Command::new("true")) };
        let Work::Test(command) = with_cache(job, None).work else { panic!("a test") };
        assert!(settings(&command).is_empty());
    }
}
