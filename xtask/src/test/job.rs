//! What runs at a time: a test, or a command with tests of its own; and what became of it.

use std::cell::Cell;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;

use super::kind::Kind;
use crate::stress::{ENGINES, NOT_HERE, Program, Sanitizer};
use crate::{guard, lab, shell};

/// Something to run.
pub(crate) struct Job {
    /// `tautline::pace the_finding_stands`: binary and test.
    pub(crate) name: String,
    /// What it needs of the machine.
    pub(crate) kind: Kind,
    /// How it is run.
    pub(crate) work: Work,
}

/// How a job is run.
pub(crate) enum Work {
    /// A binary of libtest's with the one test.
    Test(Command),
    /// A command that prints what libtest prints.
    Command(Command),
    /// The stress under a sanitizer, each engine for so long; it is built first.
    Stress(Sanitizer, Duration),
}

/// A test that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// As the job's; of a command with several tests the test's besides.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) verdict: Verdict,
    /// From its start to its end; of the whole job, when that has several tests.
    pub(crate) time: Duration,
    /// Of the processors, with all that it waited for. That of a whole job stands with its first test.
    pub(crate) cpu: Duration,
    /// Whether it ran in its short form.
    pub(crate) is_short: bool,
    /// What it printed, shown when it failed.
    pub(crate) output: String,
}

/// How a test ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    /// It can't run here, and why.
    Skipped(String),
}

impl Job {
    /// Whether a pattern is a part of its name, or the name of a test in it.
    pub(super) fn is_meant_by(&self, pattern: &str) -> bool {
        let has_tests = !matches!(self.work, Work::Test(_));
        self.name.contains(pattern) || (has_tests && pattern.starts_with(&self.name))
    }

    /// Has a test of guests start them from machines that have booted already, which are made once
    /// for all of this run and kept in a directory, as is what else the lab does once for a run.
    pub(super) fn share(&mut self, directory: &Path) {
        if let Work::Test(command) = &mut self.work {
            command.env(lab::BOOTED, directory).env(lab::ONCE, directory);
        }
    }

    /// Has a test take only what nobody else wants of the processors, with all that it starts (SCHED_IDLE of sched(7)).
    pub(super) fn yield_processors(&mut self) {
        let Work::Test(command) = &mut self.work else { return };
        let mut yielding = Command::new("chrt");
        yielding.args(["--idle", "0"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => yielding.env(name, value),
                None => yielding.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            yielding.current_dir(directory);
        }
        *command = yielding;
    }

    /// Runs it.
    ///
    /// # Errors
    /// It can't be started.
    pub(super) fn run(self) -> Result<Vec<Finished>> {
        let begin = Instant::now();
        let Self { name, kind, work } = self;
        let notes = Notes::new()?;
        let finished = |name: String, verdict, output| Finished {
            name,
            kind,
            verdict,
            time: begin.elapsed(),
            cpu: notes.cpu.take(),
            is_short: notes.is_short(),
            output,
        };
        Ok(match work {
            Work::Test(mut command) => {
                let (ended_well, output) = notes.run(&mut command)?;
                let verdict = match (ended_well, notes.skipped()) {
                    (true, Some(reason)) => Verdict::Skipped(reason),
                    (true, None) => one(&output),
                    (false, _) => Verdict::Failed,
                };
                vec![finished(name, verdict, output)]
            }
            Work::Command(mut command) => {
                let (ended_well, output) = notes.run(&mut command)?;
                let mut all: Vec<Finished> = tests(&output)
                    .into_iter()
                    .map(|(test, verdict)| finished(format!("{name} {test}"), verdict, String::new()))
                    .collect();
                let failures = all.iter_mut().filter(|test| test.verdict == Verdict::Failed);
                if !ended_well && failures.map(|test| test.output.clone_from(&output)).count() == 0 {
                    all.push(finished(name, Verdict::Failed, output));
                }
                all
            }
            Work::Stress(sanitizer, time) => {
                if !sanitizer.is_there() {
                    let reason = "this Rust has no such sanitizer for this machine".to_owned();
                    return Ok(vec![finished(name, Verdict::Skipped(reason), String::new())]);
                }
                let program = Program::sanitized(sanitizer)?;
                let mut all = Vec::new();
                for engine in ENGINES {
                    let mut command = program.command(engine);
                    command.env("TAUT_STRESS_SECONDS", time.as_secs().to_string()).env_remove("TAUTAIO_LOG");
                    let (code, output) = notes.code(&mut command)?;
                    let verdict = match code {
                        Some(0) => Verdict::Passed,
                        Some(NOT_HERE) => Verdict::Skipped("the engine can't be had here".to_owned()),
                        _ => Verdict::Failed,
                    };
                    all.push(finished(format!("{name}::{}", engine.name()), verdict, output));
                }
                all
            }
        })
    }
}

/// How the only test of a binary that ended well did, from the last line of libtest: what programs
/// that it started print may stand within the line of the test itself.
fn one(output: &str) -> Verdict {
    let result = output.lines().rev().find_map(|line| line.strip_prefix("test result: ok. "));
    let counts = |what: &str| result.is_some_and(|result| result.contains(what));
    if counts("1 passed;") {
        Verdict::Passed
    } else if counts("1 ignored;") {
        tests(output).into_iter().next().map_or_else(|| Verdict::Skipped("ignored".to_owned()), |(_, verdict)| verdict)
    } else {
        // It says nothing of the test, or that it has none by this name: nothing has run.
        Verdict::Failed
    }
}

/// The tests that libtest names in its output, and how they ended.
fn tests(output: &str) -> Vec<(String, Verdict)> {
    let of_line = |line: &str| {
        let (name, end) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let verdict = match end.split_once(',').unwrap_or((end, "")) {
            ("ok", _) => Verdict::Passed,
            ("FAILED", _) => Verdict::Failed,
            ("ignored", reason) => Verdict::Skipped(format!("ignored {}", reason.trim()).trim_end().to_owned()),
            _ => return None,
        };
        Some((name.to_owned(), verdict))
    };
    output.lines().filter_map(of_line).collect()
}

/// Processor time of a process and of those that it has waited for: utime, stime, cutime and cstime
/// of proc_pid_stat(5).
fn cpu_time(process: Pid) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The second field is a name in parentheses, with anything in it.
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
    let ticks = fields.map(str::parse::<u64>).sum::<Result<u64, _>>().ok()?;
    Some(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).ok()?)
}

/// What a job writes: its output, and the files in which it notes what it could not do.
struct Notes {
    directory: TempDir,
    /// Of the processors, for what has run and was not asked for yet.
    cpu: Cell<Duration>,
}

impl Notes {
    fn new() -> Result<Self> {
        let directory =
            tempfile::Builder::new().prefix("taut-test-").tempdir().context("cannot create a directory for notes")?;
        Ok(Self { directory, cpu: Cell::default() })
    }

    fn run(&self, command: &mut Command) -> Result<(bool, String)> {
        self.code(command).map(|(code, output)| (code == Some(0), output))
    }

    /// Runs it to its end; its exit code and what it printed. The output goes to a file: a pipe
    /// would be waited for until the last process that holds it, and tests leave some.
    fn code(&self, command: &mut Command) -> Result<(Option<i32>, String)> {
        let path = self.directory.path().join("output");
        let output = File::create(&path)?;
        command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(File::options().append(true).open(&path)?);
        command.env("TAUT_SKIP_LOG", self.skip_log()).env("TAUT_SHORT_LOG", self.directory.path().join("short"));
        guard::mark(command);
        let mut child = command.spawn().with_context(|| format!("cannot run `{}`", shell::line(command)))?;
        let process = Pid::from_child(&child);
        // Ended, but still there to be asked.
        retry_on_intr(|| waitid(WaitId::Pid(process), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT))?;
        self.cpu.set(self.cpu.get() + cpu_time(process).unwrap_or_default());
        let status = child.wait()?;
        let mut text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        if !status.success() {
            text += &format!("\n({status})\n");
        }
        Ok((status.code(), text))
    }

    fn skip_log(&self) -> std::path::PathBuf {
        self.directory.path().join("skipped")
    }

    /// Why the test could not run here, if it said so: `name: reason` a line. A name has `::` in it but no `: `.
    fn skipped(&self) -> Option<String> {
        let text = fs::read_to_string(self.skip_log()).ok()?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut reasons: Vec<&str> = lines.map(|line| line.split_once(": ").map_or(line, |(_, why)| why)).collect();
        reasons.dedup();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    fn is_short(&self) -> bool {
        self.directory.path().join("short").exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> Finished {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let job = Job { name: "a b".to_owned(), kind: Kind::Host, work: Work::Test(command) };
        job.run().unwrap().remove(0)
    }

    const OK: &str = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out'";

    #[test]
    fn a_test_ends_as_libtest_says() {
        assert_eq!(run(OK).verdict, Verdict::Passed);
        assert_eq!(run("echo 'test b ... FAILED'; exit 101").verdict, Verdict::Failed);
        let ignored =
            run("echo 'test b ... ignored, needs a year'; echo 'test result: ok. 0 passed; 0 failed; 1 ignored;'")
                .verdict;
        assert_eq!(ignored, Verdict::Skipped("ignored needs a year".to_owned()));
    }

    #[test]
    fn one_that_died_or_did_not_run_has_failed() {
        assert_eq!(run(&format!("{OK}; kill -9 $$")).verdict, Verdict::Failed);
        assert_eq!(
            run("echo 'test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out'").verdict,
            Verdict::Failed
        );
    }

    #[test]
    fn one_that_could_not_run_is_skipped_and_not_passed() {
        let skip = "echo \"taut x::b: no root: here\" >>$TAUT_SKIP_LOG; ";
        let finished = run(&format!("{skip}{skip}{OK}"));
        assert_eq!(finished.verdict, Verdict::Skipped("no root: here".to_owned()));
        assert_eq!(run(&format!("{skip}echo 'test b ... FAILED'; exit 101")).verdict, Verdict::Failed);
    }

    #[test]
    fn a_short_form_is_noted() {
        assert!(run(&format!("echo >>$TAUT_SHORT_LOG; {OK}")).is_short);
        assert!(!run(OK).is_short);
    }

    #[test]
    fn its_processor_time_is_that_of_its_children_too() {
        // However long it takes to get so much.
        let work = "while read -r line < /proc/$$/stat; set -- $line; [ $((${14}+${15})) -lt 30 ]; do :; done";
        let cpu = run(&format!("sh -c '{}'; {OK}", work.replace('\'', r"'\''"))).cpu;
        assert!(cpu >= Duration::from_millis(300) && cpu < Duration::from_secs(30), "{cpu:?}");
        assert!(run(OK).cpu < Duration::from_millis(300));
    }

    #[test]
    fn one_that_yields_is_the_same_with_another_priority() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // The policy of proc_pid_stat(5), the 41st field; the second one has no space in it here.
        let script = format!("set -- $(cat /proc/$$/stat); echo policy ${{41}} $A $(pwd); {OK}");
        command.args(["-c", &script]).env("A", "b").env_remove("PWD").current_dir(directory.path());
        let mut job = Job { name: "a b".to_owned(), kind: Kind::Guest, work: Work::Test(command) };
        job.yield_processors();
        let Work::Test(mut command) = job.work else { panic!("a test") };
        let output = command.output().unwrap();
        let place = directory.path().canonicalize().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with(&format!("policy 5 b {}\n", place.display())), "{text}");
    }

    #[test]
    fn what_it_left_behind_is_not_waited_for() {
        let finished = run(&format!("sleep 20 & {OK}"));
        assert_eq!(finished.verdict, Verdict::Passed);
        assert!(finished.time < Duration::from_secs(15), "{finished:?}");
    }

    #[test]
    fn a_command_has_several_tests_and_its_own_end() {
        let run = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let job = Job { name: "loom".to_owned(), kind: Kind::Apart, work: Work::Command(command) };
            let finished = job.run().unwrap();
            finished.into_iter().map(|test| (test.name, test.verdict)).collect::<Vec<_>>()
        };
        let one = || ("loom one".to_owned(), Verdict::Passed);
        assert_eq!(run("echo 'test one ... ok'"), [one()]);
        // By its name it is found again.
        let job = Job { name: "loom".to_owned(), kind: Kind::Apart, work: Work::Command(Command::new("true")) };
        assert!(job.is_meant_by("loom one") && job.is_meant_by("oo") && !job.is_meant_by("room"));
        let failed = |name: &str| (name.to_owned(), Verdict::Failed);
        assert_eq!(run("echo 'test one ... ok'; exit 1"), [one(), failed("loom")]);
        let both = "echo 'test one ... ok'; echo 'test two ... FAILED'; exit 101";
        assert_eq!(run(both), [one(), failed("loom two")]);
    }
}
