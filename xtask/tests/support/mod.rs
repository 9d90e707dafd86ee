//! The lab as a test sees it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// `cargo xtask lab`, with a directory for all that a test makes.
pub(crate) struct Lab {
    directory: TempDir,
}

impl Lab {
    /// The lab with everything fetched and built; `None`, loudly, where it can't be had.
    pub(crate) fn ready(test: &str) -> Option<Self> {
        static FETCHED: OnceLock<Result<(), String>> = OnceLock::new();
        Self::fetched(test, &FETCHED, &["fetch"])
    }

    /// The same with the modules of this repository built.
    pub(crate) fn with_modules(test: &str) -> Option<Self> {
        static FETCHED: OnceLock<Result<(), String>> = OnceLock::new();
        Self::fetched(test, &FETCHED, &["fetch", "--modules"])
    }

    /// The same with the debug kernel, where `cargo xtask lab debug-kernel` has built it: that is
    /// nothing for a test to do.
    pub(crate) fn with_debug_kernel(test: &str) -> Option<Self> {
        static FETCHED: OnceLock<Result<(), String>> = OnceLock::new();
        Self::fetched(test, &FETCHED, &["fetch", "--kernel", DEBUG_KERNEL, "--modules"])
    }

    /// The same with one kernel alone, which is not among those that are always fetched.
    pub(crate) fn with_kernel(test: &str, kernel: &str) -> Option<Self> {
        static FETCHED: OnceLock<Result<(), String>> = OnceLock::new();
        Self::fetched(test, &FETCHED, &["fetch", "--kernel", kernel])
    }

    fn fetched(test: &str, fetched: &OnceLock<Result<(), String>>, how: &[&str]) -> Option<Self> {
        let lab = Self { directory: tempfile::tempdir().unwrap() };
        // Another test of the same run may have seen to it.
        let seen = run_directory().map(|run| run.join(format!("{}.seen", how.join(""))));
        let fetched = fetched.get_or_init(|| {
            if seen.as_ref().is_some_and(|seen| seen.exists()) {
                return Ok(());
            }
            let output = lab.command(how).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            match output.status.code() {
                Some(77) => Err(stderr),
                _ => {
                    assert!(output.status.success(), "lab fetch: {stderr}");
                    if let Some(seen) = &seen {
                        fs::write(seen, "").unwrap();
                    }
                    Ok(())
                }
            }
        });
        match fetched {
            Ok(()) => Some(lab),
            Err(why) => {
                note_skipped(test, why.trim().lines().last().unwrap_or("the lab can't be had"));
                None
            }
        }
    }

    /// `cargo xtask lab` with arguments; its temporary files are the test's.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("lab").args(arguments).env("TMPDIR", self.directory.path());
        command
    }

    /// A path in the test's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file into the test's directory.
    pub(crate) fn file(&self, name: &str, contents: &[u8]) -> PathBuf {
        fs::write(self.path(name), contents).unwrap();
        self.path(name)
    }

    /// Virtual machines of this test that run now.
    pub(crate) fn guests(&self) -> usize {
        let works_here = |process: &fs::DirEntry| {
            let is_qemu = fs::read_to_string(process.path().join("comm")).is_ok_and(|name| name.starts_with("qemu"));
            is_qemu && fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(self.directory.path()))
        };
        fs::read_dir("/proc").unwrap().flatten().filter(works_here).count()
    }

    /// No virtual machine, and no temporary file of one.
    pub(crate) fn assert_nothing_is_left(&self) {
        assert_eq!(self.guests(), 0);
        let names = fs::read_dir(self.directory.path()).unwrap().flatten().map(|entry| entry.file_name());
        let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("taut-lab-")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// The kernel that finds faults.
pub(crate) const DEBUG_KERNEL: &str = "6.12-debug";

/// What a kernel says when something went wrong.
pub(crate) const COMPLAINTS: &str = "WARNING|BUG|Oops|Call Trace|\\bstall|leak|deadlock|scheduling while atomic|Unbalanced|KASAN|\
                                     possible circular|possible recursive|Invalid wait context|UBSAN|ODEBUG|sleeping function|INFO:";

/// Cargo as `cargo xtask test` runs it: without what cargo or that says of this package. Build scripts that watch it
/// (ring's) would have `taut` built again under the tests that run it. Who builds a part says `--workspace`, or else
/// features differ and what it needs is built again.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    let ours = |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(ours)) {
        cargo.env_remove(name);
    }
    cargo
}

/// A program of tests with that name, built as `cargo xtask test` builds all of them. A run of that has named them.
pub(crate) fn test_program(name: &str) -> PathBuf {
    if let Some(place) = named_program(name) {
        return place;
    }
    let mut build = cargo();
    build.args(["test", "--locked", "--workspace", "--test", name, "--no-run", "--message-format", "json"]);
    let output = build.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let built = messages.filter(|message| message["target"]["name"] == name);
    built.filter_map(|message| Some(message["executable"].as_str()?.into())).next_back().expect("the tests' program")
}

/// What a run of `cargo xtask test` keeps for its tests in guests (docs/lab.md).
fn run_directory() -> Option<PathBuf> {
    std::env::var_os("TAUT_LAB_ONCE").map(PathBuf::from)
}

/// The program of `PACKAGE::NAME` in the run's directory.
fn named_program(name: &str) -> Option<PathBuf> {
    let programs = fs::read_to_string(run_directory()?.join("programs")).ok()?;
    let end = format!("::{name}");
    let (_, place) = programs.lines().filter_map(|line| line.split_once(' ')).find(|(of, _)| of.ends_with(&end))?;
    Some(place.into())
}

/// What btmon can't make sense of in a capture.
pub(crate) fn complaints(capture: &Path) -> Vec<String> {
    let output = Command::new("btmon").arg("--read").arg(capture).output().unwrap();
    let listing = String::from_utf8_lossy(&output.stdout);
    assert!(listing.contains("ACL Data"), "{listing}");
    let complains = |line: &&str| {
        let lower = line.to_lowercase();
        let words = ["invalid", "malformed", "not enough", "unknown", "unexpected", "incorrect"];
        let of_names = ["company", "manufacturer", "vendor"].iter().any(|word| lower.contains(word));
        words.iter().any(|word| lower.contains(word)) && !of_names
    };
    listing.lines().filter(complains).map(str::to_owned).collect()
}

/// Notes loudly that a test can't run here.
pub(crate) fn note_skipped(test: &str, reason: &str) {
    eprintln!("SKIPPED: {test}: {reason}");
    if let Some(path) = std::env::var_os("TAUT_SKIP_LOG") {
        let mut log = OpenOptions::new().create(true).append(true).open(path).unwrap();
        // One write, so that lines of tests that run at once do not mix.
        log.write_all(format!("xtask {test}: {reason}\n").as_bytes()).unwrap();
    }
}
