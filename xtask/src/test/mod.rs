//! `cargo xtask test`: sets up what the tests need, runs them and counts honestly.
//!
//! Every test is a process of its own: so its time is known, what it says is shown apart, and several can run at once.
//!
//! - [`binaries`]: builds the tests and asks each binary for theirs. [`kind`]: what a test needs of the machine.
//! - [`job`]: one test, or one command with tests of its own. [`pool`]: several at once, and by
//!   themselves those that measure time.
//! - [`times`]: what each took before, here or on another machine, by which they are put in order.
//! - [`summary`]: the slowest, what was left out, what was skipped, what failed and how to repeat it, and the counts.
//! - [`arm`]: the same as built for aarch64, run by an emulator.
//! - [`as_new`]: what downloads, as on a machine that has nothing yet. [`busy`]: a busy loop on each core.
//!
//! A test that can't run here returns early, which libtest counts as passed. It says so by appending the line
//! `test name: reason` to the file that the environment variable `TAUT_SKIP_LOG` names; a test that runs in its short
//! form appends a line to that of `TAUT_SHORT_LOG`.

mod arm;
mod as_new;
mod binaries;
mod busy;
mod job;
mod kind;
mod pool;
mod summary;
mod times;

use std::fs;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::guard::Guard;
use crate::{apart, lab, packages, shell};
use binaries::For;
use busy::Busy;
use job::Finished;
pub(crate) use job::{Job, Work};
pub(crate) use kind::Kind;
use pool::Limits;
use summary::Summary;
use times::Times;

/// Which tests to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What one runs before each commit: no guest, browser, model checker, sanitizer or bench, and
    /// the short forms of tests.
    #[arg(long)]
    quick: bool,
    /// Only tests whose name (`tautline::pace the_finding…`) contains this; may be given several times.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// With a busy loop on each core, all tests of this kernel but those that need a quiet machine.
    #[arg(long)]
    busy: bool,
    /// Built for aarch64 and run by QEMU's user mode: the quick tests that need neither a guest nor a quiet machine.
    /// And those on a kernel of that machine.
    #[arg(long, conflicts_with_all = ["quick", "busy", "as_new"])]
    arm: bool,
    /// What downloads, with empty caches of its own: as on a machine that has nothing yet.
    #[arg(long, conflicts_with_all = ["quick", "busy", "only", "filter"])]
    as_new: bool,
    /// Runs nothing, and has machines on which nothing ran yet go by what the tests took here: writes the rows of a
    /// second or more to xtask/test-times.json.
    #[arg(long, conflicts_with_all = ["quick", "busy", "arm", "as_new", "only", "filter"])]
    times: bool,
    /// As `--only`.
    #[arg(hide = true)]
    filter: Vec<String>,
}

/// Runs the tests; prints `N passed, N failed, N skipped` at the very end, whatever happens.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.times {
        return tell_times();
    }
    let mut summary = Summary::new(repetition(args));
    let outcome = if args.as_new { as_new::run(&mut summary) } else { run_all(args, &mut summary) };
    if let Err(error) = outcome {
        summary.complain(format!("{error:#}"));
    }
    print!("{summary}");
    Ok(if summary.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What tests took here in their last run, below what is built.
const TIMES: &str = "test-times.json";
/// What they took on another machine, for those on which they have not run yet: below the root.
const TOLD: &str = "xtask/test-times.json";

fn tell_times() -> Result<ExitCode> {
    let (rows, count) = Times::of(&shell::target_dir()?.join(TIMES), &[]).told();
    if count == 0 {
        bail!("no test has run here yet: cargo xtask test");
    }
    let place = shell::root().join(TOLD);
    fs::write(&place, rows).with_context(|| format!("cannot write {}", place.display()))?;
    println!("{TOLD} has the times of {count} tests");
    Ok(ExitCode::SUCCESS)
}

/// What repeats a test, but for its name.
fn repetition(args: &Args) -> String {
    let mode = [(args.quick, " --quick"), (args.busy, " --busy"), (args.arm, " --arm")];
    let mode: String = mode.into_iter().filter(|(is_on, _)| *is_on).map(|(_, flag)| flag).collect();
    if args.as_new { "cargo xtask test --as-new".to_owned() } else { format!("cargo xtask test{mode} --only") }
}

fn run_all(args: &Args, summary: &mut Summary) -> Result<()> {
    let missing = packages::ensure(&[packages::TESTS, &lab::PACKAGES].concat());
    let target = shell::target_dir()?;
    fs::create_dir_all(&target)?;
    let scratch = tempfile::Builder::new().prefix("test-run-").tempdir_in(&target)?.keep();
    let _guard = Guard::start(&scratch)?;
    println!("building the tests");
    let mut jobs = Vec::new();
    if args.arm {
        arm::prepare()?;
        jobs.extend(binaries::built(false, For::Arm)?.jobs);
        jobs.extend(binaries::built(true, For::ArmGuests)?.jobs);
    } else {
        jobs.extend(apart::jobs()?);
        let built = binaries::built(!args.quick, For::This)?;
        built.name_programs(&scratch)?;
        jobs.extend(built.jobs);
        kind::check(&jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>())?;
    }
    let mut jobs = chosen(jobs, args, lab::has_debug_kernel(), summary);
    if jobs.is_empty() {
        bail!("no test was left to run");
    }

    for job in jobs.iter_mut().filter(|job| job.kind.has_a_guest()) {
        job.share(&scratch);
    }
    // Those that are quick have other forms, of which only some take another time.
    let [all, quick, arm] = [TIMES, "test-times-quick.json", "test-times-arm.json"].map(|name| target.join(name));
    let told = shell::root().join(TOLD);
    let mut times = match args {
        Args { arm: true, .. } => Times::of(&arm, &[]),
        Args { quick: true, .. } => Times::of(&quick, &[&all, &told]),
        _ => Times::of(&all, &[&told]),
    };
    let (quiet, together): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.kind.needs_quiet());
    let cores = thread::available_parallelism()?.get();
    let leaves_cores = |job: &Job| cores > 1 && kind::is_sparing(&job.name);
    let (sparing, quiet): (Vec<Job>, Vec<Job>) = quiet.into_iter().partition(leaves_cores);
    // On a busy machine they are to hold, too.
    let may_yield = |job: &Job| !args.busy && !sparing.is_empty() && kind::is_yielding(&job.name);
    let (yielding, together): (Vec<Job>, Vec<Job>) = together.into_iter().partition(may_yield);
    let busy = if args.busy { Some(Busy::on_each_core()?) } else { None };
    // One core more than there are, since none of them is busy all the time. Most tests mostly wait, so that it takes
    // several to keep a core busy; bounded, since one that others delay seems to wait too. No more guests than cores:
    // some are pairs of machines in the host's time, whose links end when neither has its turn.
    let beside = Limits { jobs: 4 * cores, guests: cores, load: f64::from(u32::try_from(cores)?) + 1.0 };
    let limits = if args.busy { Limits::BUSY } else { beside };
    pool::run(together, &times, limits, |finished| summary.add(finished))?;
    drop(busy);
    run_beside(sparing, yielding, &times, summary)?;
    let limits = if cores > 1 { Limits::QUIET } else { Limits::ALONE };
    pool::run(quiet, &times, limits, |finished| summary.add(finished))?;
    // What a busy machine needs for them is of no use to another.
    if !args.busy {
        summary.finished.iter().for_each(|finished| times.note(finished));
        times.keep()?;
    }
    if !missing.is_empty() && shell::in_ci() && shell::is_root() {
        summary.complain(format!(
            "in CI nothing may be skipped that can run, but these could not be installed: {}",
            missing.join(", ")
        ));
    }
    Ok(())
}

/// Runs jobs that want cores now and then, one after the other, and beside them some that take what these leave.
fn run_beside(sparing: Vec<Job>, mut yielding: Vec<Job>, times: &Times, summary: &mut Summary) -> Result<()> {
    yielding.iter_mut().for_each(Job::yield_processors);
    let summary = Mutex::new(summary);
    let add = |finished: Finished| summary.lock().unwrap_or_else(PoisonError::into_inner).add(finished);
    thread::scope(|scope| {
        let beside = scope.spawn(|| pool::run(yielding, times, Limits::ALONE, add));
        let ran = pool::run(sparing, times, Limits::ALONE, add);
        // Waited for even if the others failed.
        let beside =
            beside.join().unwrap_or_else(|_| bail!("what ran beside those that need a quiet machine panicked"));
        ran.and(beside)
    })
}

/// The jobs that the arguments name; what a mode leaves out is noted, and so is what has no debug
/// kernel: no test builds that, so these are not skipped for something that is missing here.
fn chosen(jobs: Vec<Job>, args: &Args, has_debug_kernel: bool, summary: &mut Summary) -> Vec<Job> {
    let patterns: Vec<&String> = args.only.iter().chain(&args.filter).collect();
    let mut chosen = Vec::new();
    for job in jobs {
        if !patterns.is_empty() && !patterns.iter().any(|pattern| job.is_meant_by(pattern)) {
            continue;
        }
        let has_its_kernel = has_debug_kernel || job.kind != Kind::DebugKernel;
        let is_left_out = (args.arm && !job.kind.is_for_arm())
            || (!args.arm && job.kind == Kind::ArmGuest)
            || (args.quick && !job.kind.is_quick())
            || (args.busy && !job.kind.stands_a_busy_machine());
        if is_left_out || !has_its_kernel {
            summary.leave_out(&job);
        } else {
            chosen.push(job);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Cli::try_parse_from(line.split(' ')).unwrap().args
    }

    fn job(name: &str, kind: Kind) -> Job {
        Job { name: name.to_owned(), kind, work: Work::Command(Command::new("true")) }
    }

    /// One that needs a quiet machine.
    const QUIET: &str = "tautline::pace a_veth_pair_behaves_alike";

    fn names(line: &str) -> (Vec<String>, String) {
        let jobs =
            vec![job(QUIET, Kind::of(QUIET)), job("tautline::echo b", Kind::Host), job("xtask::lab c", Kind::Guest)];
        chosen_names(jobs, line, false)
    }

    fn chosen_names(jobs: Vec<Job>, line: &str, has_debug_kernel: bool) -> (Vec<String>, String) {
        let args = args(line);
        let mut summary = Summary::new(repetition(&args));
        let chosen = chosen(jobs, &args, has_debug_kernel, &mut summary);
        (chosen.into_iter().map(|job| job.name).collect(), summary.to_string())
    }

    #[test]
    fn all_run_when_none_is_named() {
        assert_eq!(names("test").0, [QUIET, "tautline::echo b", "xtask::lab c"]);
    }

    #[test]
    fn what_quick_leaves_out_is_said_and_not_counted() {
        let (names, said) = names("test --quick");
        assert_eq!(names, [QUIET, "tautline::echo b"]);
        assert!(said.contains("left out: 1 in a guest of the lab"), "{said}");
        assert!(said.ends_with("0 passed, 0 failed, 0 skipped\n"), "{said}");
    }

    #[test]
    fn a_busy_machine_gets_what_can_stand_it() {
        let (names, said) = names("test --busy");
        assert_eq!(names, ["tautline::echo b"]);
        assert!(said.contains("left out: 1 in a guest of the lab, 1 that needs a quiet machine\n"), "{said}");
        assert!(said.contains("  tautline::pace a_veth_pair_behaves_alike: messages of 10 ms"), "{said}");
    }

    #[test]
    fn what_has_no_debug_kernel_is_said_and_not_counted() {
        let jobs = || vec![job("a", Kind::DebugKernel), job("b", Kind::DebugKernel), job("c", Kind::Guest)];
        assert_eq!(chosen_names(jobs(), "test", true).0, ["a", "b", "c"]);
        let (names, said) = chosen_names(jobs(), "test", false);
        assert_eq!(names, ["c"]);
        assert!(
            said.contains("left out: 2 on the debug kernel, which `cargo xtask lab debug-kernel` builds"),
            "{said}"
        );
        assert!(said.ends_with("0 passed, 0 failed, 0 skipped\n"), "{said}");
    }

    #[test]
    fn several_patterns_choose_by_parts_of_the_name() {
        assert_eq!(names("test --only pace --only lab").0, [QUIET, "xtask::lab c"]);
        assert_eq!(names("test --only tautline::pace").0, [QUIET]);
        assert_eq!(names("test echo").0, ["tautline::echo b"]);
    }
}
