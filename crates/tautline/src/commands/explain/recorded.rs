//! What `taut trace --events` wrote, explained by the same ledger as the trace itself.

use anyhow::Context;
use taut_capture::Recorded;
use taut_explain::trace::Trace;
use taut_record::{Ended, FORMAT_VERSION};
use taut_report::{ExplainedTrace, TraceDocument, TraceFacts};

/// Explains it.
pub(super) fn explain(
    file: String,
    recorded: Recorded<'_>,
    mut trace: Trace,
    tick: impl FnMut(),
    remark: impl Fn(&taut_capture::Ending) -> Option<String>,
) -> anyhow::Result<ExplainedTrace> {
    let end = recorded.read(&mut trace, tick).with_context(|| file.clone())?;
    if let Some(found) = end.facts.as_deref().and_then(TraceFacts::newer_format) {
        anyhow::bail!(
            "{file} has format version {found}, but this Tautline reads up to {FORMAT_VERSION}: use a newer one"
        );
    }
    let facts = end.facts.as_deref().and_then(TraceFacts::from_json);
    let mut remarks: Vec<String> = remark(&end.ending).into_iter().collect();
    if facts.is_none() {
        remarks.push("The file does not tell what was traced and what was lost.".to_owned());
    } else if end.at.is_none() {
        remarks.push("What is said of records and losses is up to a second older than the last event.".to_owned());
    }
    if end.is_full {
        remarks.push("The trace saw more than the file has room for; what came after that is not in it.".to_owned());
    }
    // Of events that are not all there the time after the last one is not known.
    let until = end.at.filter(|_| !end.is_full).unwrap_or_default();
    let mut result = trace.finish(until);
    for direction in &mut result.worst {
        direction.program = direction.thread.and_then(|thread| end.programs.get(&thread).cloned());
    }
    let facts = facts.unwrap_or_else(|| TraceFacts {
        format_version: FORMAT_VERSION,
        command: "trace".to_owned(),
        command_line: "taut trace".to_owned(),
        ended: Ended::Interrupted,
        traced: "a trace".to_owned(),
        records: 0,
        lost_records: 0,
        missing_hooks: Vec::new(),
        remarks: Vec::new(),
        trial: None,
    });
    Ok(ExplainedTrace { file, bytes: end.bytes, remarks, trace: TraceDocument { facts, result } })
}
