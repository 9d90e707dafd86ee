mod child;
mod judge;
mod look;
mod plan;
mod server;

use std::path::PathBuf;

use anyhow::Context;
use taut_link::{Endpoint, Error, clock};
use taut_measure::Interrupt;
use taut_record::{Ended, FORMAT_VERSION};
use taut_report::{Check, CheckDocument, CheckKind, CheckOutcome, Document};

use crate::exit::{self, Code};
use crate::{input, output, run};
use child::Running;
use look::Seen;
use plan::{Plan, Workload};
use server::Started;

/// A gate for builds: start a server, measure it, and fail with the cause when it is slower than it may be
///
/// The file says in TOML what is started, what is measured and what must hold: limits, causes that must not be found,
/// an older recording to compare with. A limit is missed where all of the interval across rounds lies beyond it; what
/// is missed is measured again, and both must agree. Causes come from a look of its own, by the kernel's events as
/// root and from samples otherwise, so the figures are of an unobserved server.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut check taut.toml                           code 3 when something does not hold
  taut check taut.toml --junit report.xml --github
  taut check taut.toml -- ./server --port 7900   this server instead of the one in the file
  taut check taut.toml --record before.json      keep what was measured, as a baseline

docs/check.md has a file to begin with.")]
pub(crate) struct Args {
    /// What to check, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write a JUnit report
    #[arg(long, value_name = "FILE", value_parser = output::out_file())]
    junit: Option<PathBuf>,
    /// Print annotations for a build on GitHub (::error …) after the text
    #[arg(long, conflicts_with = "json")]
    github: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Write what was measured, a recording for the baseline and taut report
    #[arg(long, value_name = "FILE", value_parser = output::out_file())]
    record: Option<PathBuf>,
    /// The server to start instead of [server] command, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What is known so far; printed however it ends.
#[derive(Default)]
struct Outcome {
    checks: Vec<Check>,
    seen: Seen,
    remarks: Vec<String>,
    measured: Option<Document>,
    is_missing: bool,
}

/// `cli` is the whole of `taut`.
pub(crate) fn run(args: Args, cli: clap::Command) -> anyhow::Result<Code> {
    let text = match input::text_of(&args.file) {
        Ok(text) => text,
        Err(error) => return Err(Error::Input(format!("cannot read {}: {error}", args.file.display())).into()),
    };
    let plan = plan::parse(&args.file, &text, &args.command, &cli).map_err(Error::Input)?;
    let baseline = plan.baseline.as_ref().map(Document::read).transpose();
    let baseline = baseline.map_err(|error| Error::Input(format!("[baseline]: {error}")))?;
    if let (Some(baseline), Some(workload)) = (&baseline, &plan.workload)
        && baseline.recording.command != workload.command()
    {
        let text = format!("[baseline]: a recording of `taut {}`", baseline.recording.command);
        return Err(Error::Input(format!("{text}, and [workload] is `taut {}`", workload.command())).into());
    }
    // That the older recording is written anew may be meant.
    output::spare(&[&args.file], &[("--junit", args.junit.as_deref()), ("--record", args.record.as_deref())])?;
    let interrupt = run::interrupt_on_signals()?;
    let began = clock::now();
    let mut outcome = Outcome::default();
    let ended = match outcome.go(&plan, baseline.as_ref(), &interrupt) {
        Ok(true) => Ended::Complete,
        Ok(false) => Ended::Interrupted,
        Err(error) => Ended::Failed(format!("{error:#}")),
    };
    let has_failed = has_failed(&outcome.checks);
    judge::fail_unknown(&plan, &mut outcome.checks);
    let document = CheckDocument {
        format_version: FORMAT_VERSION,
        command: "check".to_owned(),
        command_line: run::command_line(),
        file: output::shown(&args.file),
        ended,
        duration_ns: u64::try_from(clock::now().saturating_since(began).as_nanos()).unwrap_or(u64::MAX),
        checks: std::mem::take(&mut outcome.checks),
        causes: std::mem::take(&mut outcome.seen.causes),
        remarks: std::mem::take(&mut outcome.remarks),
    };
    let mut text =
        if args.json { output::printable_json(&document.to_json()) } else { output::fitted(|| document.to_text()) };
    if args.github {
        text.push_str(&document.to_github());
    }
    let printed = output::print(&text);
    // Whatever can't be written, all else is.
    let mut is_told = true;
    if let Some(path) = &args.junit {
        is_told &= output::is_done(output::write_file(path, &document.to_junit()));
    }
    if let (Some(path), Some(measured)) = (&args.record, &outcome.measured) {
        is_told &= output::is_done(output::write_file(path, &measured.to_json()));
    }
    let code = match &document.ended {
        Ended::Interrupted => Code::Interrupted,
        Ended::PeerGone(_) | Ended::Failed(_) => Code::Failed,
        Ended::Complete if has_failed => Code::ThresholdMissed,
        Ended::Complete if outcome.is_missing => Code::Missing,
        Ended::Complete if document.has_failed() => Code::ThresholdMissed,
        Ended::Complete if is_told => Code::Ok,
        Ended::Complete => Code::Failed,
    };
    match printed {
        // Who reads along may have seen enough; the gate is as red as before.
        Err(error) if !exit::is_broken_pipe(&error) => Err(error),
        _ => Ok(code),
    }
}

impl Outcome {
    /// All of it; false where the user ended it.
    fn go(&mut self, plan: &Plan, baseline: Option<&Document>, interrupt: &Interrupt) -> anyhow::Result<bool> {
        let endpoint = plan.workload.as_ref().and_then(|workload| workload.endpoints.first());
        let endpoint = endpoint.and_then(|text| text.parse::<Endpoint>().ok()).map(|endpoint| endpoint.to_string());
        let mut server = None;
        if let Some(wanted) = &plan.server {
            server = Started::start(wanted, endpoint.as_deref().unwrap_or_default(), interrupt)?;
            if server.is_none() {
                return Ok(false);
            }
        }
        let work = self.work(plan, baseline, interrupt);
        // Its end is the reason why nothing comes back.
        server.as_mut().map_or(Ok(()), Started::still_runs)?;
        work
    }

    fn work(&mut self, plan: &Plan, baseline: Option<&Document>, interrupt: &Interrupt) -> anyhow::Result<bool> {
        if let Some(workload) = &plan.workload {
            let Some(measured) = measure(workload, interrupt)? else { return Ok(false) };
            let mut checks = judge::limits(plan, &measured, baseline);
            if has_failed(&checks) {
                let Some(again) = measure(workload, interrupt)? else { return Ok(false) };
                checks = judge::both(checks, &judge::limits(plan, &again, baseline));
            }
            self.checks = checks;
            let findings = judge::of_workload(&measured.findings);
            self.measured = Some(measured);
            if plan.trace.is_none() && !plan.forbid.is_empty() || has_failed(&self.checks) {
                let look = || look::at_workload(workload, plan.looking, interrupt);
                let Some(mut seen) = look()? else { return Ok(false) };
                findings.iter().for_each(|cause| seen.add(cause.clone()));
                let mut checks = seen.checks(&plan.forbid);
                if has_failed(&checks) {
                    let Some(mut again) = look()? else { return Ok(false) };
                    findings.into_iter().for_each(|cause| again.add(cause));
                    checks = again.second(checks, &plan.forbid);
                }
                if plan.trace.is_none() {
                    self.checks.extend(checks);
                }
                self.see(seen);
            }
        }
        if let Some(command) = &plan.trace {
            let Some(seen) = look::at_command(command, interrupt)? else { return Ok(false) };
            let outcome = match (seen.is_missing, seen.command_failed) {
                (true, _) => CheckOutcome::Unknown,
                (false, true) => CheckOutcome::Failed,
                (false, false) => CheckOutcome::Passed,
            };
            let name = command.first().cloned().unwrap_or_default();
            self.checks.push(Check { kind: CheckKind::Command, name, outcome, detail: String::new() });
            let mut checks = seen.checks(&plan.forbid);
            if has_failed(&checks) {
                let Some(again) = look::at_command(command, interrupt)? else { return Ok(false) };
                checks = again.second(checks, &plan.forbid);
            }
            self.checks.extend(checks);
            self.is_missing = seen.is_missing;
            self.see(seen);
        }
        Ok(true)
    }

    fn see(&mut self, seen: Seen) {
        self.remarks.extend(seen.remarks);
        seen.causes.into_iter().for_each(|cause| self.seen.add(cause));
    }
}

fn has_failed(checks: &[Check]) -> bool {
    checks.iter().any(|check| check.outcome == CheckOutcome::Failed)
}

/// One measurement; `None` where the user has no patience.
fn measure(workload: &Workload, interrupt: &Interrupt) -> anyhow::Result<Option<Document>> {
    let Some(done) = Running::start(&workload.line())?.wait(interrupt)? else { return Ok(None) };
    let said = done.stderr.trim().trim_start_matches("taut: ").to_owned();
    let document: Document = match serde_json::from_str(&done.stdout) {
        Ok(document) => document,
        Err(_) if !done.status.success() => anyhow::bail!("{said}"),
        Err(error) => return Err(error).context("read the recording of the workload"),
    };
    match &document.recording.ended {
        Ended::Complete if done.status.success() => Ok(Some(document)),
        Ended::Complete => anyhow::bail!("{said}"),
        Ended::Interrupted => Ok(None),
        Ended::PeerGone(why) | Ended::Failed(why) => anyhow::bail!("the workload did not come to its end: {why}"),
    }
}
