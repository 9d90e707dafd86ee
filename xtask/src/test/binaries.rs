//! The test binaries of the workspace and the tests in each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::arm;
use super::job::{Job, Work};
use super::kind::Kind;
use crate::shell;

/// A binary of tests.
#[derive(Debug, Eq, PartialEq)]
struct Binary {
    /// `tautline::pace`; of a library the package alone, of a program `tautline::bin/taut`.
    name: String,
    executable: PathBuf,
    /// Of its package, where it runs.
    directory: PathBuf,
}

/// For which machine tests are built.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum For {
    This,
    /// Run by an emulator.
    Arm,
    /// Run here: those in guests of the other machine, and no others.
    ArmGuests,
}

/// The tests in guests of the other machine.
const ARM_GUESTS: &str = "lab_arm";

impl For {
    /// Runs one of its programs.
    fn command(self, program: &Path) -> Command {
        match self {
            Self::This | Self::ArmGuests => Command::new(program),
            Self::Arm => arm::command(program),
        }
    }
}

/// What was built.
#[derive(Default)]
pub(super) struct Built {
    pub(super) jobs: Vec<Job>,
    /// The programs of tests, by the names of their binaries: also those without tests for this machine.
    programs: Vec<(String, PathBuf)>,
}

/// The file that names programs of tests, in the directory of a run: a line for each, its name and its place.
const PROGRAMS: &str = "programs";

impl Built {
    /// Has tests that bring one of the programs into a guest find it in the directory of the run, without asking cargo.
    ///
    /// # Errors
    /// The file can't be written.
    pub(super) fn name_programs(&self, directory: &Path) -> Result<()> {
        let line = |(name, place): &(String, PathBuf)| format!("{name} {}\n", place.display());
        let file = directory.join(PROGRAMS);
        fs::write(&file, self.programs.iter().map(line).collect::<String>())
            .with_context(|| format!("cannot write {}", file.display()))
    }
}

/// Builds all tests; gives a job for each, and for this machine one for those in the documentation. `long`: in their
/// long form.
///
/// # Errors
/// They can't be built, or a binary does not name its tests.
pub(super) fn built(long: bool, machine: For) -> Result<Built> {
    let mut build = cargo_test();
    match machine {
        For::This => {}
        For::Arm => arm::build(&mut build)?,
        For::ArmGuests => {
            build.args(["--test", ARM_GUESTS]);
        }
    }
    build.args(["--no-run", "--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let output = build.output().context("cannot run cargo test")?;
    anyhow::ensure!(output.status.success(), "the tests do not build");
    let Built { mut jobs, mut programs } = Built::default();
    if machine == For::This {
        let mut documentation = cargo_test();
        documentation.arg("--doc");
        let work = Work::Command(documentation);
        jobs.push(Job { name: "documentation".to_owned(), kind: Kind::Host, work });
    }
    for binary in binaries(&String::from_utf8_lossy(&output.stdout)) {
        let list = shell::output(machine.command(&binary.executable).args(["--list", "--format", "terse"]))?;
        jobs.extend(
            list.lines().filter_map(|line| line.strip_suffix(": test")).map(|test| binary.job(test, long, machine)),
        );
        programs.push((binary.name, binary.executable));
    }
    Ok(Built { jobs, programs })
}

/// `cargo test` of the whole workspace: for a part, features differ and all is built again.
fn cargo_test() -> Command {
    let mut command = shell::cargo();
    command.args(["test", "--workspace", "--locked"]);
    command
}

/// From the messages of cargo (The Cargo Book, External Tools, Artifact Messages).
fn binaries(messages: &str) -> Vec<Binary> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut binaries: Vec<Binary> = messages.filter_map(|message| binary(&message)).collect();
    binaries.sort_by(|one, other| one.name.cmp(&other.name));
    binaries
}

fn binary(message: &Value) -> Option<Binary> {
    let executable = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?.into();
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = directory.file_name()?.to_string_lossy().into_owned();
    let target = message["target"]["name"].as_str()?;
    let name = match message["target"]["kind"][0].as_str()? {
        "test" => format!("{package}::{target}"),
        "bin" | "example" | "bench" => format!("{package}::{}/{target}", message["target"]["kind"][0].as_str()?),
        _ => package,
    };
    Some(Binary { name, executable, directory })
}

impl Binary {
    fn job(&self, test: &str, long: bool, machine: For) -> Job {
        let mut command = shell::without_package(machine.command(&self.executable));
        command.args(["--exact", test]).current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        command.env("RUST_TEST_THREADS", "1").env_remove("TAUT_TEST_LONG");
        if long {
            command.env("TAUT_TEST_LONG", "1");
        }
        let name = format!("{} {test}", self.name);
        Job { kind: Kind::of(&name), name, work: Work::Test(command) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn binaries_are_named_by_package_and_target() {
        let message = |kind: &str, name: &str, test: bool, executable: Value| {
            json!({
                "reason": "compiler-artifact", "manifest_path": "/r/crates/tautline/Cargo.toml", "executable": executable,
                "target": {"kind": [kind], "name": name}, "profile": {"test": test},
            })
            .to_string()
        };
        let messages = [
            message("test", "pace", true, json!("/t/pace-1")),
            message("bin", "taut", true, json!("/t/taut-1")),
            message("lib", "tautline", true, json!("/t/tautline-1")),
            message("bin", "taut", false, json!("/t/taut")),
            message("lib", "tautline", false, Value::Null),
            "no message".to_owned(),
        ];
        let found = binaries(&messages.join("\n"));
        let names: Vec<&str> = found.iter().map(|binary| binary.name.as_str()).collect();
        assert_eq!(names, ["tautline", "tautline::bin/taut", "tautline::pace"]);
        assert_eq!(found[2].directory, Path::new("/r/crates/tautline"));
        assert_eq!(found[2].job("stalls::one", false, For::This).name, "tautline::pace stalls::one");
    }
}
