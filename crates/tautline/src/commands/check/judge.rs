//! From a recording to what holds and what does not.

use std::collections::HashMap;

use serde_json::Value;
use taut_explain::Finding;
use taut_record::stats::interval;
use taut_record::{PaceRow, PlacementKind, Row};
use taut_report::{Check, CheckCause, CheckKind, CheckOutcome, Document, compare, table::Style, units};

use super::plan::{OnUnknown, Plan};
use crate::assertion::{Judged, Threshold};

/// Holds what was measured against the limits, and against the baseline if there is one.
pub(super) fn limits(plan: &Plan, measured: &Document, baseline: Option<&Document>) -> Vec<Check> {
    let mut checks = Vec::new();
    let rows = &measured.recording.results;
    let engine = |row: &Row| if let Row::Echo(row) = row { Some(row.engine.clone()) } else { None };
    let one_engine = rows.windows(2).all(|rows| engine(&rows[0]) == engine(&rows[1]));
    for assertion in &plan.assert {
        for row in rows {
            let Some((mut on, judged)) = judged(row) else { continue };
            if let Some(engine) = engine(row).filter(|_| !one_engine) {
                on = format!("{on}, {engine}");
            }
            // The limit stands in the check's name, and so does the row where there are several.
            let (name, row) = match rows.len() {
                1 => (assertion.to_string(), format!("{on}: ")),
                _ => (format!("{assertion}, {on}"), String::new()),
            };
            let short = |text: String| text.replacen(&format!("{on}: `{assertion}` does not hold: "), &row, 1);
            checks.push(match assertion.judge(&on, judged) {
                Threshold::Holds => check(CheckKind::Limit, name, CheckOutcome::Passed, ""),
                Threshold::Unsure(text) | Threshold::TooFew(text) => {
                    check(CheckKind::Limit, name, CheckOutcome::Unknown, &short(text))
                }
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

/// Each figure that the older recording has as well, as `taut report` compares them; and those that it alone has.
fn beside(before: &Document, after: &Document) -> Vec<Check> {
    let compared = |after: &Document| Compared::of(&compare::render_comparison(before, after, Style::default()).json);
    let Compared(rows) = compared(after);
    let mut checks = Vec::new();
    for (row, figures) in &rows {
        checks.extend(figures.iter().map(|(name, json)| figure(format!("{row}: {name}"), json)));
    }
    if checks.is_empty() {
        let text = "the baseline has nothing that was measured in the same way now";
        return vec![check(CheckKind::Baseline, "rows".to_owned(), CheckOutcome::Failed, text)];
    }
    let Compared(all) = compared(before);
    for (row, figures) in all {
        let Some((_, now)) = rows.iter().find(|(other, _)| *other == row) else { continue };
        for (name, _) in figures.iter().filter(|(name, _)| now.iter().all(|(other, _)| other != name)) {
            let name = format!("{row}: {name}");
            checks.push(check(CheckKind::Baseline, name, CheckOutcome::Unknown, "there is no such figure now"));
        }
    }
    checks
}

/// Rows of a comparison by what was measured, with their figures by name.
struct Compared(Vec<(String, Vec<(String, Value)>)>);

impl Compared {
    fn of(json: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let figures = |row: &Value| {
            let figures = row["figures"].as_array().into_iter().flatten();
            figures.map(|figure| (text(&figure["figure"]), figure.clone())).collect()
        };
        let rows = json["results"].as_array().into_iter().flatten();
        Self(rows.map(|row| (text(&row["measured"]), figures(row))).collect())
    }
}

/// What a comparison says of one figure.
fn figure(name: String, json: &Value) -> Check {
    let (verdict, is_rate) = (json["verdict"].as_str().unwrap_or_default(), json["unit"] == "bps");
    let (outcome, detail) = match (verdict, is_rate) {
        ("more", false) | ("less", true) => {
            let detail = match json["ratio"].as_f64() {
                Some(ratio) => format!("it is {} times what it was", units::number(ratio)),
                None => format!("it was {} and is {}", json["before"], json["after"]),
            };
            (CheckOutcome::Failed, detail)
        }
        ("less" | "more" | "cannot_tell_apart", _) => (CheckOutcome::Passed, String::new()),
        ("losses_differ", _) => (CheckOutcome::Unknown, "the losses differ".to_owned()),
        _ => (CheckOutcome::Unknown, "there are too few rounds for a verdict".to_owned()),
    };
    check(CheckKind::Baseline, name, outcome, &detail)
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

/// Only what both measurements call failed is. Rows of one name stand in the same order in both.
pub(super) fn both(first: Vec<Check>, second: &[Check]) -> Vec<Check> {
    let mut met: HashMap<(CheckKind, String), usize> = HashMap::new();
    let agree = |mut check: Check| {
        let before = met.entry((check.kind, check.name.clone())).or_default();
        let same = second.iter().filter(|other| (other.kind, &other.name) == (check.kind, &check.name));
        let other = same.clone().nth(std::mem::replace(before, *before + 1));
        if check.outcome != CheckOutcome::Failed {
            return check;
        }
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

/// What can't be told fails, too, where the plan says so.
pub(super) fn fail_unknown(plan: &Plan, checks: &mut [Check]) {
    if plan.unknown == OnUnknown::Fail {
        for check in checks.iter_mut().filter(|check| check.outcome == CheckOutcome::Unknown) {
            check.outcome = CheckOutcome::Failed;
            let why = if check.detail.is_empty() { "" } else { ": " };
            check.detail = format!("it can't be told{why}{}", check.detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_name_are_compared_with_their_like() {
        let row = |outcome| check(CheckKind::Baseline, "p50".to_owned(), outcome, "");
        let (passed, failed) = (|| row(CheckOutcome::Passed), || row(CheckOutcome::Failed));
        let outcomes = |checks: Vec<Check>| checks.into_iter().map(|check| check.outcome).collect::<Vec<_>>();
        let again = both(vec![passed(), failed()], &[passed(), failed()]);
        assert_eq!(outcomes(again), [CheckOutcome::Passed, CheckOutcome::Failed]);
        let again = both(vec![passed(), failed()], &[failed(), passed()]);
        assert_eq!(outcomes(again), [CheckOutcome::Passed, CheckOutcome::Unknown]);
    }

    #[test]
    fn a_figure_without_a_ratio_is_told_with_both_values() {
        let json = serde_json::json!({"verdict": "more", "unit": "ratio", "before": 0.0, "after": 0.5});
        let lost = figure("lost".to_owned(), &json);
        assert_eq!((lost.outcome, lost.detail.as_str()), (CheckOutcome::Failed, "it was 0.0 and is 0.5"));
    }
}
