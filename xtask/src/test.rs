//! `cargo xtask test`: sets up what the tests need, runs all of them and counts honestly.
//!
//! A test that can't run here returns early, which libtest counts as passed. It says so by appending the line
//! `test name: reason` to the file that the environment variable `TAUT_SKIP_LOG` names.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

use crate::packages::{
    self, BLUEZ, BLUEZ_TEST_TOOLS, CHROMIUM, CHROMIUM_DRIVER, CURL, DBUS, FIO, IPROUTE, MANDOC, PERF, SOCAT, STRESS_NG,
    SYSTEMD, TSHARK,
};
use crate::{apart, lab, shell};

/// Which tests to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Shorten the tests that take long by nature.
    #[arg(long)]
    quick: bool,
    /// Only tests whose name contains this.
    filter: Option<String>,
}

/// Runs the tests; prints `N passed, N failed, N skipped` at the very end, whatever happens.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (counts, ok) = match run_all(args) {
        Ok((counts, complaint)) => {
            if let Some(complaint) = &complaint {
                println!("\nFAILED: {complaint}");
            }
            (counts, complaint.is_none())
        }
        Err(error) => {
            println!("\nFAILED: {error:#}");
            (Counts::default(), false)
        }
    };
    println!("\n{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What came out, and what is wrong with it.
fn run_all(args: &Args) -> Result<(Counts, Option<String>)> {
    let mut wanted = vec![&BLUEZ, &BLUEZ_TEST_TOOLS, &SOCAT, &CHROMIUM, &CHROMIUM_DRIVER, &IPROUTE, &MANDOC];
    wanted.extend([&FIO, &STRESS_NG, &PERF, &TSHARK, &CURL, &SYSTEMD, &DBUS]);
    let missing = packages::ensure(&[wanted.as_slice(), &lab::PACKAGES].concat());
    println!("building the tests");
    for part in &PARTS {
        shell::run(part.command(args).arg("--no-run")).context("the tests do not build")?;
    }

    let skip_log = tempfile::Builder::new().prefix("taut-skip-").tempfile().context("cannot create the skip log")?;
    let (mut results, mut success) = (Results::default(), true);
    for part in &PARTS {
        let (of_part, went_well) = stream(part.command(args).env("TAUT_SKIP_LOG", skip_log.path()))?;
        results.add(of_part);
        success &= went_well;
    }
    success &= apart::run(args.quick, args.filter.as_deref(), &mut results)?;
    let skipped = results.skipped(&fs::read_to_string(skip_log.path()).context("cannot read the skip log")?);
    let counts = results.counts(skipped.len(), success);
    report_skipped(&skipped);

    let complaint = if counts.failed > 0 {
        Some(format!("{} failed", plural(counts.failed)))
    } else if !success {
        Some("cargo test failed".to_owned())
    } else if counts.passed == 0 {
        Some("nothing ran".to_owned())
    } else if !missing.is_empty() && shell::in_ci() && shell::is_root() {
        Some(format!(
            "in CI nothing may be skipped that can run, but these could not be installed: {}",
            missing.join(", ")
        ))
    } else {
        None
    };
    Ok((counts, complaint))
}

/// Tests that run one after another, or some at a time.
struct Part {
    /// What cargo is to test. The whole workspace is named each time, or features differ and all is built again.
    targets: &'static [&'static str],
    at_once: &'static str,
}

/// Tests measure time, so none runs beside another. A guest of the lab takes one core and has a time of its own.
const PARTS: [Part; 2] = [
    Part { targets: &["--exclude", "xtask"], at_once: "1" },
    Part { targets: &["--bin", "xtask", "--test", "lab*"], at_once: "2" },
];

impl Part {
    fn command(&self, args: &Args) -> Command {
        let mut command = shell::cargo();
        command.args(["test", "--workspace", "--locked", "--no-fail-fast"]).args(self.targets).args(&args.filter);
        // Tests measure time: `taut` is optimised.
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("RUST_TEST_THREADS", self.at_once);
        command.env_remove("TAUT_TEST_LONG");
        if !args.quick {
            command.env("TAUT_TEST_LONG", "1");
        }
        command
    }
}

/// Runs the tests, shows their output as it comes and reads the results from it.
pub(crate) fn stream(command: &mut Command) -> Result<(Results, bool)> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run cargo test")?;
    let mut stdout = child.stdout.take().context("cargo test has no output")?;
    let mut results = Results::default();
    let mut line = Vec::new();
    let mut chunk = [0; 8192];
    loop {
        let length = match stdout.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("cannot read the output of cargo test"),
        };
        let mut shown = io::stdout().lock();
        shown.write_all(&chunk[..length])?;
        shown.flush()?;
        for byte in &chunk[..length] {
            if *byte == b'\n' {
                results.line(&String::from_utf8_lossy(&line));
                line.clear();
            } else {
                line.push(*byte);
            }
        }
    }
    results.line(&String::from_utf8_lossy(&line));
    Ok((results, child.wait()?.success()))
}

fn report_skipped(skipped: &BTreeMap<String, String>) {
    if skipped.is_empty() {
        return;
    }
    println!("\n==== SKIPPED: {} could not run here ====", plural(skipped.len()));
    for (name, reason) in skipped {
        println!("SKIPPED {name}: {reason}");
    }
}

fn plural(count: usize) -> String {
    if count == 1 { "1 test".to_owned() } else { format!("{count} tests") }
}

/// The closing line.
#[derive(Debug, Default, Eq, PartialEq)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// What libtest printed, summed over all test binaries.
#[derive(Debug, Default)]
pub(crate) struct Results {
    passed: usize,
    failed: usize,
    ignored: BTreeMap<String, String>,
    /// Binaries that began and did not say how they ended.
    unfinished: usize,
}

impl Results {
    /// Adds what came of another run.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.unfinished += other.unfinished;
        self.ignored.extend(other.ignored);
    }

    /// A test that isn't libtest's passed.
    pub(crate) const fn pass(&mut self) {
        self.passed += 1;
    }

    /// Such a test failed.
    pub(crate) const fn fail(&mut self) {
        self.failed += 1;
    }

    /// Such a test can't run here.
    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        self.ignored.insert(name.to_owned(), reason.to_owned());
    }

    fn line(&mut self, line: &str) {
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.unfinished += 1;
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.unfinished = self.unfinished.saturating_sub(1);
            self.passed += number_before(result, " passed;");
            self.failed += number_before(result, " failed;");
        } else if let Some((name, reason)) = line.strip_prefix("test ").and_then(|test| test.split_once(" ... ignored"))
        {
            let reason = reason.trim_start_matches([',', ' ']);
            self.ignored.insert(name.to_owned(), format!("ignored {reason}").trim_end().to_owned());
        }
    }

    /// Tests that were ignored and those that said in the log that they can't run, each once.
    fn skipped(&self, log: &str) -> BTreeMap<String, String> {
        let mut skipped = self.ignored.clone();
        for line in log.lines().map(str::trim).filter(|line| !line.is_empty()) {
            // A name has `::` in it but no `: `.
            let (name, reason) = line.split_once(": ").unwrap_or((line, "no reason given"));
            skipped.insert(name.to_owned(), reason.to_owned());
        }
        skipped
    }

    /// Of all tests; those that skipped themselves are among libtest's passed ones.
    fn counts(&self, skipped: usize, success: bool) -> Counts {
        let passed = self.passed.saturating_sub(skipped.saturating_sub(self.ignored.len()));
        let failed = self.failed + self.unfinished;
        // A binary that died before it said anything is a failure too.
        let failed = if failed == 0 && !success { 1 } else { failed };
        Counts { passed, failed, skipped }
    }
}

fn number_before(text: &str, mark: &str) -> usize {
    let Some((before, _)) = text.split_once(mark) else { return 0 };
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_test_of_this_package_is_left_out() {
        let tests = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap().flatten();
        let files = tests.filter(|entry| entry.path().is_file()).map(|entry| entry.file_name());
        let others: Vec<_> = files.filter(|name| !name.to_string_lossy().starts_with("lab")).collect();
        assert!(others.is_empty(), "PARTS does not name {others:?}");
    }

    fn read(output: &str) -> Results {
        let mut results = Results::default();
        output.lines().for_each(|line| results.line(line));
        results
    }

    const TWO_BINARIES: &str = "
running 3 tests
test a::one ... ok
test a::two ... ok
test a::slow ... ignored, needs a year

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s

running 2 tests
test three ... ok
test four ... FAILED

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.02s
";

    #[test]
    fn results_are_summed_over_binaries() {
        let results = read(TWO_BINARIES);
        let skipped = results.skipped("");
        assert_eq!(skipped["a::slow"], "ignored needs a year");
        assert_eq!(results.counts(skipped.len(), false), Counts { passed: 3, failed: 1, skipped: 1 });
    }

    #[test]
    fn a_test_that_skipped_itself_is_not_passed_and_counts_once() {
        let results = read(TWO_BINARIES);
        let skipped = results.skipped("a::two: no root: here\na::two: no root: here\n\n");
        assert_eq!(skipped["a::two"], "no root: here");
        assert_eq!(results.counts(skipped.len(), false), Counts { passed: 2, failed: 1, skipped: 2 });
    }

    #[test]
    fn what_runs_apart_counts_as_well() {
        let mut results = read(TWO_BINARIES);
        results.add(read("running 1 test\ntest model ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored\n"));
        results.pass();
        results.fail();
        results.skip("sanitizer::thread", "none for this machine");
        let skipped = results.skipped("");
        assert_eq!(skipped["sanitizer::thread"], "none for this machine");
        assert_eq!(results.counts(skipped.len(), false), Counts { passed: 5, failed: 2, skipped: 2 });
    }

    #[test]
    fn a_binary_that_died_is_a_failure() {
        let died = "running 2 tests\ntest one ... ok\n";
        assert_eq!(read(died).counts(0, false), Counts { passed: 0, failed: 1, skipped: 0 });
        assert_eq!(read("").counts(0, false), Counts { passed: 0, failed: 1, skipped: 0 });
    }
}
