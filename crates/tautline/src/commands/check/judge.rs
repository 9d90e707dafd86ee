//! From a recording to what holds and what does not.

use taut_explain::Finding;
use taut_record::stats::interval;
use taut_record::{PaceRow, PlacementKind, Row};
use taut_report::{Check, CheckCause, CheckDocument, CheckKind, CheckOutcome, Document, compare, table::Style, units};

use super::plan::{OnUnknown, Plan};
use crate::assertion::{Judged, Threshold};

/// Holds what was measured against the limits, and against the baseline if there is one.
pub(super) fn limits(plan: &Plan, measured: &Document, baseline: Option<&Document>) -> Vec<Check> {
    let mut checks = Vec::new();
    let rows = &measured.recording.results;
    for assertion in &plan.assert {
        for row in rows {
            let Some((on, judged)) = judged(row) else { continue };
            // The limit stands in the check's name, and so does the row where there are several.
            let (name, row) = match rows.len() {
                1 => (assertion.to_string(), format!("{on}: ")),
                _ => (format!("{assertion}, {on}"), String::new()),
            };
            let short = |text: String| text.replacen(&format!("{on}: `{assertion}` does not hold: "), &row, 1);
            checks.push(match assertion.judge(&on, judged) {
                Threshold::Holds => check(CheckKind::Limit, name, CheckOutcome::Passed, ""),
                Threshold::Unsure(text) => check(CheckKind::Limit, name, CheckOutcome::Unknown, &short(text)),
                Threshold::Missed(text) => check(CheckKind::Limit, name, CheckOutcome::Failed, &short(text)),
            });
        }
    }
    if let Some(least) = plan.least_throughput {
        checks.extend(rows.iter().filter_map(|row| throughput(row, least, rows.len() > 1)));
    }
    checks.extend(baseline.into_iter().flat_map(|before| beside(before, measured)));
    checks
}

fn check(kind: CheckKind, name: String, outcome: CheckOutcome, detail: &str) -> Check {
    Check { kind, name, outcome, detail: detail.to_owned() }
}

/// What limits on times are on, and where they were taken.
fn judged(row: &Row) -> Option<(String, Judged<'_>)> {
    let place = |kind: Option<PlacementKind>| {
        kind.filter(|kind| *kind != PlacementKind::Free).map_or_else(String::new, |kind| format!(", {}", kind.name()))
    };
    match row {
        Row::Echo(row) => {
            let on = format!("{}{}", row.endpoint, place(row.placement.as_ref().map(|placed| placed.kind)));
            let whole = row.rounds.iter().filter(|round| round.complete);
            // What falls on a lost message has no time.
            let longest: Vec<f64> = whole.map(|round| round.max_ns.map_or(f64::INFINITY, |ns| ns as f64)).collect();
            let times = row.response_ns.as_ref().or(row.rtt_ns.as_ref());
            let (lost, sent) = (row.losses().lost, row.losses().messages);
            Some((on, Judged { times, longest: interval(&longest).map(|across| across.ends()), lost, sent }))
        }
        Row::Pace(row) => {
            let PaceRow { endpoint, delivery_ns, lost, messages, placement, .. } = &**row;
            let on = format!("{endpoint}{}", place(placement.as_ref().map(|placed| placed.kind)));
            Some((on, Judged { times: delivery_ns.as_ref(), longest: None, lost: *lost, sent: *messages }))
        }
        _ => None,
    }
}

/// Missed where the whole interval across rounds lies below.
fn throughput(row: &Row, least: f64, one_of_several: bool) -> Option<Check> {
    let Row::Stream(row) = row else { return None };
    let kind = row.placement.as_ref().map(|placed| placed.kind.name()).filter(|_| one_of_several);
    let name =
        format!("throughput>={}{}", units::bit_rate(least), kind.map_or_else(String::new, |kind| format!(", {kind}")));
    let found = format!("{}: it is {}", row.endpoint, units::bit_rate(row.throughput_bps));
    if row.throughput_bps >= least {
        return Some(check(CheckKind::Limit, name, CheckOutcome::Passed, ""));
    }
    Some(match row.throughput_bps_ci {
        Some((_, high)) if high >= least => {
            let text = format!("{found}; but the rounds reach {}", units::bit_rate(high));
            check(CheckKind::Limit, name, CheckOutcome::Unknown, &text)
        }
        _ => check(CheckKind::Limit, name, CheckOutcome::Failed, &found),
    })
}

/// Each figure that the older recording has as well, as `taut report` compares them.
fn beside(before: &Document, after: &Document) -> Vec<Check> {
    let json = compare::render_comparison(before, after, Style::default()).json;
    let mut checks = Vec::new();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    for row in json["results"].as_array().into_iter().flatten() {
        for figure in row["figures"].as_array().into_iter().flatten() {
            let name = format!("{}: {}", text(&row["measured"]), text(&figure["figure"]));
            let is_rate = figure["unit"] == "bps";
            let ratio =
                figure["ratio"].as_f64().map_or_else(String::new, |ratio| format!("{} times ", units::number(ratio)));
            let (outcome, detail) = match (figure["verdict"].as_str().unwrap_or_default(), is_rate) {
                ("more", false) | ("less", true) => (CheckOutcome::Failed, format!("it is {ratio}what it was")),
                ("less" | "more" | "cannot_tell_apart", _) => (CheckOutcome::Passed, String::new()),
                ("losses_differ", _) => (CheckOutcome::Unknown, "the losses differ".to_owned()),
                _ => (CheckOutcome::Unknown, "there are too few rounds for a verdict".to_owned()),
            };
            checks.push(check(CheckKind::Baseline, name, outcome, &detail));
        }
    }
    if checks.is_empty() {
        let text = "the baseline has nothing that was measured in the same way now";
        checks.push(check(CheckKind::Baseline, "rows".to_owned(), CheckOutcome::Failed, text));
    }
    checks
}

/// What the workload itself found.
pub(super) fn of_workload(findings: &[Finding]) -> Vec<CheckCause> {
    let cause = |finding: &Finding| CheckCause {
        cause: finding.cause.clone(),
        seen_by: "workload".to_owned(),
        on: finding.on.clone(),
        share: finding.share,
        summary: finding.summary.clone(),
        evidence: finding.evidence.clone(),
        remedy: finding.remedy.clone(),
    };
    findings.iter().map(cause).collect()
}

/// Only what both measurements call failed is.
pub(super) fn both(first: Vec<Check>, second: &[Check]) -> Vec<Check> {
    let agree = |mut check: Check| {
        if check.outcome != CheckOutcome::Failed {
            return check;
        }
        let other = second.iter().find(|other| (other.kind, &other.name) == (check.kind, &check.name));
        match other.map(|other| other.outcome) {
            Some(CheckOutcome::Failed) => check.detail.push_str(", and so it was when measured again"),
            _ => {
                check.outcome = CheckOutcome::Unknown;
                check.detail.push_str("; measured again it was not so");
            }
        }
        check
    };
    first.into_iter().map(agree).collect()
}

/// Whether the gate is shut.
pub(super) fn is_red(plan: &Plan, document: &CheckDocument) -> bool {
    let unknown = |check: &Check| check.outcome == CheckOutcome::Unknown;
    document.has_failed() || plan.unknown == OnUnknown::Fail && document.checks.iter().any(unknown)
}
