//! Who holds the data meanwhile: a look by the kernel's events, or without the rights by samples.

use std::time::Duration;

use taut_event::{Direction, Holder};
use taut_explain::trace::{self, TracedDirection};
use taut_explain::{CauseIn, Verdict};
use taut_measure::Interrupt;
use taut_report::{Check, CheckCause, CheckKind, CheckOutcome, SocketsDocument, TraceDocument, units};

use super::child::Running;
use super::judge;
use super::plan::Workload;
use crate::cause_limit::CauseLimit;
use crate::exit::Code;

/// Before samples: connections are open, and their first acknowledgements were prompt.
const LEAD: Duration = Duration::from_millis(400);
/// A trace lasts so much longer than the work, at most.
const MOST_BEYOND: Duration = Duration::from_secs(120);
/// Of evidence, in words.
const EVIDENCE: usize = 3;

/// What a look saw.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) causes: Vec<CheckCause>,
    /// Of each cause, in how many directions it can't be told.
    counts: Vec<CauseIn>,
    /// Causes that can't be told in a direction, with the largest share of it that each may have.
    bounds: Vec<(String, f64)>,
    /// Why nothing can be told, if so.
    pub(super) blind: Option<String>,
    pub(super) remarks: Vec<String>,
    /// A command was traced, and it failed.
    pub(super) command_failed: bool,
    /// The right for it is missing.
    pub(super) is_missing: bool,
}

impl Seen {
    fn blind(why: impl Into<String>) -> Self {
        Self { blind: Some(why.into()), ..Self::default() }
    }

    fn of_trace(document: &TraceDocument) -> Self {
        let mut seen = Self { counts: document.result.causes.clone(), ..Self::default() };
        if document.result.directions == 0 {
            seen.blind = Some("no data over TCP was seen".to_owned());
        }
        for direction in &document.result.worst {
            let program = direction.program.as_deref().map_or_else(String::new, |program| format!(" of {program}"));
            for on in &direction.verdicts {
                if matches!(on.verdict, Verdict::Unknown { .. }) {
                    seen.bounds.push((on.cause.clone(), most(direction, &on.cause)));
                }
                let Verdict::Found(found) = &on.verdict else { continue };
                let whose = if direction.is_outgoing { format!("sent{program}") } else { format!("received{program}") };
                seen.add(CheckCause {
                    cause: on.cause.clone(),
                    seen_by: "trace".to_owned(),
                    on: format!("{} > {}, {whose}", direction.from, direction.to),
                    share: found.cost.share,
                    summary: found.summary.clone(),
                    evidence: found.evidence.iter().take(EVIDENCE).map(|evidence| evidence.text.clone()).collect(),
                    remedy: found.remedy.clone(),
                });
            }
        }
        seen
    }

    fn of_samples(document: &SocketsDocument) -> Self {
        let mut seen = Self::default();
        if document.sockets.is_empty() || !document.is_enough {
            seen.blind = Some("the connections were seen too seldom".to_owned());
        }
        for row in &document.sockets {
            for suspicion in &row.suspicions {
                let program = row.program.as_deref().map_or_else(String::new, |program| format!(", {program}"));
                let share = suspicion.time_ns as f64 / row.span_ns.max(1) as f64;
                seen.add(CheckCause {
                    cause: suspicion.cause.clone(),
                    seen_by: "sockets".to_owned(),
                    on: format!("{} > {}{program}", row.local, row.peer),
                    share,
                    summary: suspicion.summary.clone(),
                    evidence: vec![format!(
                        "{} of {} by {} samples.",
                        units::time(suspicion.time_ns),
                        units::time(row.span_ns),
                        row.samples
                    )],
                    remedy: suspicion.remedy.clone(),
                });
            }
            // The two causes that hang on an option of the socket.
            if row.is_held && row.state == "established" && row.nodelay.is_none() {
                for cause in ["nagle_delayed_ack", "cork"] {
                    seen.counts.push(CauseIn { cause: cause.to_owned(), found: 0, unknown: 1, largest_share: 0.0 });
                }
            }
        }
        seen.remarks.extend(document.remarks.iter().cloned());
        seen
    }

    /// Of each cause the place that it takes most in.
    pub(super) fn add(&mut self, cause: CheckCause) {
        match self.causes.iter_mut().find(|other| other.cause == cause.cause) {
            Some(other) if other.share < cause.share => *other = cause,
            Some(_) => {}
            None => self.causes.push(cause),
        }
        self.causes.sort_by(|a, b| b.share.total_cmp(&a.share));
    }

    /// Of what can't be told: whether it could take more than it may.
    fn within(&self, limit: &CauseLimit, counted: &CauseIn) -> (CheckOutcome, String) {
        let bounds: Vec<f64> =
            self.bounds.iter().filter(|(cause, _)| *cause == limit.cause).map(|&(_, most)| most).collect();
        let most = bounds.iter().copied().fold(0.0, f64::max);
        let unbounded = counted.unknown.saturating_sub(bounds.len() as u64);
        if unbounded > 0 {
            return (
                CheckOutcome::Unknown,
                format!("whether it is there can't be told of {unbounded} of the directions"),
            );
        }
        let text = format!("events were missed, so it may have up to {}", units::share(most));
        (if most <= limit.share { CheckOutcome::Passed } else { CheckOutcome::Unknown }, text)
    }

    /// What stands after this one, which is the second look: what was found then as well. Where it saw nothing, what
    /// the first one found stands.
    pub(super) fn second(&self, first: Vec<Check>, forbidden: &[CauseLimit]) -> Vec<Check> {
        let failed = self.command_failed.then_some("the command failed then");
        let Some(why) = failed.or(self.blind.as_deref()) else { return judge::both(first, &self.checks(forbidden)) };
        let stands = |check: Check| match check.outcome {
            CheckOutcome::Failed => {
                Check { detail: format!("{}; a second look saw nothing: {why}", check.detail), ..check }
            }
            _ => check,
        };
        first.into_iter().map(stands).collect()
    }

    /// Whether what is forbidden was found.
    pub(super) fn checks(&self, forbidden: &[CauseLimit]) -> Vec<Check> {
        let check = |limit: &CauseLimit| {
            let most = limit.share * 100.0;
            let cause = self.causes.iter().find(|found| found.cause == limit.cause);
            let unknown = self.counts.iter().find(|counted| counted.cause == limit.cause && counted.unknown > 0);
            let (outcome, detail) = match (cause, &self.blind, unknown) {
                (Some(found), ..) if found.share > limit.share => {
                    let share = units::share(found.share);
                    let text = format!("it has {share} of {}, at most {most} % is allowed", found.on);
                    (CheckOutcome::Failed, text)
                }
                (None, Some(blind), _) => (CheckOutcome::Unknown, blind.clone()),
                (_, _, Some(counted)) => self.within(limit, counted),
                _ => (CheckOutcome::Passed, String::new()),
            };
            Check { kind: CheckKind::Finding, name: limit.cause.clone(), outcome, detail }
        };
        forbidden.iter().map(check).collect()
    }
}

/// The largest share that a cause may have of a direction: what its holders have, and what is not known.
fn most(direction: &TracedDirection, cause: &str) -> f64 {
    let way = if direction.is_outgoing { Direction::Forward } else { Direction::Backward };
    let holders: Vec<&str> = trace::holders(way, cause).chain([Holder::NotKnown.name()]).collect();
    direction.breakdown.iter().filter(|held| holders.contains(&held.holder.as_str())).map(|held| held.share).sum()
}

/// The same work once more, while somebody looks; `None` where the user has no patience.
pub(super) fn at_workload(workload: &Workload, time: Duration, interrupt: &Interrupt) -> anyhow::Result<Option<Seen>> {
    let Some(port) = workload.tcp_port() else {
        return Ok(Some(Seen::blind("only connections of TCP can be looked at from outside")));
    };
    let words = |line: &[&str]| line.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let port = port.to_string();
    // Should nobody be left to end it: where `taut` has capabilities by its file, it does not end with the gate.
    let at_most = format!("{}s", (time + MOST_BEYOND).as_secs());
    let mut trace = Running::start(&words(&["trace", "--port", &port, "--for", &at_most, "--top", "200", "--json"]))?;
    if !trace.has_said("Ctrl-C ends it", interrupt)? {
        if interrupt.is_set() {
            return Ok(None);
        }
        return by_samples(workload, time, &port, interrupt);
    }
    let work = Running::start(&workload.look_line(time))?;
    let Some(work) = work.wait(interrupt)? else { return Ok(None) };
    trace.interrupt()?;
    let Some(traced) = trace.wait(interrupt)? else { return Ok(None) };
    if !work.status.success() {
        return Ok(Some(Seen::blind(format!("the workload failed while it was traced: {}", work.stderr.trim()))));
    }
    // It was interrupted before its time, as it should be.
    if !traced.status.success() && traced.status.code() != Some(Code::Interrupted as i32) {
        return Ok(Some(Seen::blind(format!("the trace failed: {}", traced.stderr.trim()))));
    }
    let document: TraceDocument = serde_json::from_str(&traced.stdout)?;
    Ok(Some(Seen::of_trace(&document)))
}

fn by_samples(workload: &Workload, time: Duration, port: &str, interrupt: &Interrupt) -> anyhow::Result<Option<Seen>> {
    let work = Running::start(&workload.look_line(time + 2 * LEAD))?;
    std::thread::sleep(LEAD);
    let time = format!("{}ms", time.as_millis());
    let line = ["sockets", "--port", port, "--time", &time, "--all", "--json"].map(str::to_owned);
    let Some(sampled) = Running::start(&line)?.wait(interrupt)? else { return Ok(None) };
    let Some(work) = work.wait(interrupt)? else { return Ok(None) };
    if !work.status.success() || !sampled.status.success() {
        let why = if work.status.success() { sampled.stderr } else { work.stderr };
        return Ok(Some(Seen::blind(format!("the look at the connections failed: {}", why.trim()))));
    }
    let mut seen = Seen::of_samples(&serde_json::from_str(&sampled.stdout)?);
    let text = "The causes are from samples; as root they are from the kernel's events, which miss nothing.";
    seen.remarks.push(text.to_owned());
    Ok(Some(seen))
}

/// Runs a command under a trace; `None` where the user has no patience.
pub(super) fn at_command(command: &[String], interrupt: &Interrupt) -> anyhow::Result<Option<Seen>> {
    let line = ["trace", "--top", "200", "--json", "--"].into_iter().map(str::to_owned);
    let Some(done) = Running::start(&line.chain(command.iter().cloned()).collect::<Vec<_>>())?.wait(interrupt)? else {
        return Ok(None);
    };
    if done.status.code() == Some(Code::Missing as i32) {
        return Ok(Some(Seen { is_missing: true, ..Seen::blind(done.stderr.trim()) }));
    }
    anyhow::ensure!(done.status.success(), "{}", done.stderr.trim().trim_start_matches("taut: "));
    let document: TraceDocument = serde_json::from_str(&done.stdout)?;
    let mut seen = Seen::of_trace(&document);
    let ended = document.facts.remarks.iter().find(|remark| remark.starts_with("The command ended with"));
    seen.command_failed = ended.is_some();
    seen.remarks.extend(ended.cloned());
    Ok(Some(seen))
}
