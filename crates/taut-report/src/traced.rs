use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use taut_event::printable;
use taut_explain::Verdict;
use taut_explain::join::HostClock;
use taut_explain::trace::{Traced, TracedDirection};
use taut_record::{Ended, FORMAT_VERSION};

use crate::explained_file::held_by;
use crate::found::{breakdown, finding};
use crate::lines::{cut, fold, line_to, wrap};
use crate::trial::Trial;
use crate::{traced_worst, units};

/// What a live trace came to: the one JSON object of `taut trace`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct TraceDocument {
    /// How it was traced.
    #[serde(flatten)]
    pub facts: TraceFacts,
    /// Who held the data.
    #[serde(flatten)]
    pub result: Traced,
}

/// How something was traced, and what could not be seen of it: all of a trace but its result.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct TraceFacts {
    /// Version of this form.
    pub format_version: u32,
    /// `trace`.
    pub command: String,
    /// The command line, ready to be pasted.
    pub command_line: String,
    /// How it ended.
    pub ended: Ended,
    /// What was traced, in words.
    pub traced: String,
    /// Records that the programs in the kernel wrote and that were read. `null`: a recording that was broken off does
    /// not tell, as for those that were lost.
    pub records: Option<u64>,
    /// Records that found no room. The time around each is booked as not known.
    pub lost_records: Option<u64>,
    /// Tracepoints that this kernel has not.
    pub missing_hooks: Vec<String>,
    /// The host's clocks. Where they stand beside events, these count bytes by TCP's own numbers: a position modulo
    /// 2^32 is a sequence number. Absent in recordings of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<HostClock>,
    /// What could not be seen, a sentence each.
    pub remarks: Vec<String>,
    /// What `--try` came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
}

impl TraceFacts {
    /// The version of what a file says of a trace, if it is newer than what is read here.
    pub fn newer_format(json: &str) -> Option<u64> {
        let value: Value = serde_json::from_str(json).ok()?;
        value.get("format_version")?.as_u64().filter(|&version| version > FORMAT_VERSION.into())
    }

    /// What a file says of a trace: as JSON, its texts as they may be printed. `None` if it does not.
    pub fn from_json(json: &str) -> Option<Self> {
        let mut value: Value = serde_json::from_str(json).ok()?;
        clean(&mut value);
        serde_json::from_value(value).ok()
    }
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) => *text = printable(text),
        Value::Array(all) => all.iter_mut().for_each(clean),
        Value::Object(all) => all.values_mut().for_each(clean),
        _ => {}
    }
}

/// Rows of a breakdown in the short form.
const ROWS: usize = 5;
/// What this first form of the trace does not reach.
pub(crate) const UNSEEN: &str = "Not seen: io_uring, and writes by splice, on anything but TCP.";

impl TraceDocument {
    /// The document as one JSON object, indented, with a newline at the end.
    pub fn to_json(&self) -> String {
        // Keys are strings and nothing else can fail, so an error would be a bug of ours.
        let mut json = serde_json::to_string_pretty(self).expect("a document is always JSON");
        json.push('\n');
        json
    }

    /// The worst direction with its findings, in lines of at most 100 columns; if wanted, all that are kept.
    pub fn to_text(&self, is_full: bool) -> String {
        let mut text = String::new();
        let mut lines = Vec::new();
        if self.facts.ended == Ended::Interrupted {
            lines.push("PARTIAL: interrupted".to_owned());
        }
        lines.extend(wrap("", &self.head()));
        lines.extend(self.nothing().map(str::to_owned));
        let shown = if is_full { self.result.worst.len() } else { 1 };
        for direction in self.result.worst.iter().take(shown) {
            if is_full {
                lines.push(String::new());
            }
            lines.extend(one(direction, is_full));
        }
        if is_full {
            lines.extend(traced_worst::lines(&self.result, self.facts.clock));
        }
        let more = self.result.directions.saturating_sub(shown as u64);
        if more > 0 && !self.result.worst.is_empty() {
            let are = if more == 1 { "direction has" } else { "directions have" };
            let how = if is_full { "--top shows more of them" } else { "--full shows the worst of them" };
            lines.push(format!("{} more {are} data; {how}.", units::count(more)));
        }
        lines.extend(self.facts.trial.iter().flat_map(Trial::lines));
        lines.extend(self.facts.remarks.iter().flat_map(|remark| wrap("", remark)));
        lines.extend(wrap("", UNSEEN));
        lines.iter().for_each(|line| line_to(&mut text, line));
        text
    }

    /// What was traced, in a sentence.
    pub(crate) fn head(&self) -> String {
        let (facts, result) = (&self.facts, &self.result);
        let plural =
            |count: u64, one: &str| format!("{} {one}{}", units::count(count), if count == 1 { "" } else { "s" });
        let records = match facts.records.zip(facts.lost_records) {
            Some((records, 0)) => format!("{}, none lost", plural(records, "record")),
            Some((records, lost)) => format!("{}, {} LOST", plural(records, "record"), units::count(lost)),
            None => "how many records were lost is not told".to_owned(),
        };
        let others = match result.others {
            0 => String::new(),
            1 => " and 1 other socket or pipe".to_owned(),
            others => format!(" and {} other sockets and pipes", units::count(others)),
        };
        format!(
            "{}: {}{others}, {} with data in {}; {records}",
            facts.traced,
            plural(result.connections, "connection"),
            plural(result.directions, "direction"),
            units::time(result.span_ns),
        )
    }

    /// That there is nothing to explain, where that is so.
    pub(crate) fn nothing(&self) -> Option<&'static str> {
        let nothing = "No data over sockets or pipes was seen, so there is nothing to explain.";
        self.result.worst.is_empty().then_some(nothing)
    }
}

/// Whose data went from where to where, and how much of it.
pub(crate) fn title(direction: &TracedDirection) -> String {
    let program = direction.program.as_deref().map_or_else(String::new, |program| format!(", {program}"));
    let verb = if direction.is_outgoing { "sent" } else { "received" };
    format!(
        "{} > {}{program}: {} {verb} in {}",
        direction.from,
        direction.to,
        units::size(direction.bytes),
        units::time(direction.span_ns)
    )
}

/// What is said where nothing was found: of what comes only this end was seen.
pub(crate) const fn nothing_found(direction: &TracedDirection) -> &'static str {
    if direction.is_outgoing {
        "FOUND nothing that holds the data back."
    } else {
        "FOUND nothing at this end that holds the data back."
    }
}

fn one(direction: &TracedDirection, is_full: bool) -> Vec<String> {
    let mut lines = fold(&title(direction));
    lines.extend(breakdown(&direction.breakdown, direction.span_ns, if is_full { usize::MAX } else { ROWS }));
    let mut has_found = false;
    let mut clear = Vec::new();
    for on in &direction.verdicts {
        match &on.verdict {
            Verdict::Found(found) if is_full || !has_found => {
                has_found = true;
                lines.extend(finding(&on.cause, found, usize::MAX));
            }
            Verdict::Found(found) => {
                lines.push(cut(&format!("Also: {} {}.", on.cause, units::share(found.cost.share))));
            }
            Verdict::Unknown { missing, ask } if is_full => {
                lines.extend(wrap("  ", &format!("CAN'T TELL {}: {missing}. To know, {ask}.", on.cause)));
            }
            Verdict::Unknown { .. } => {}
            Verdict::Clear => clear.push(on.cause.as_str()),
        }
    }
    if !has_found {
        lines.push(nothing_found(direction).to_owned());
    }
    if is_full {
        if !clear.is_empty() {
            lines.extend(wrap("  ", &format!("Not there: {}.", clear.join(", "))));
        }
        for held in direction.breakdown.iter().filter(|held| !held.longest.is_empty()) {
            let at = |stall: &taut_explain::Stall| {
                format!("{} ({} after the start)", units::time(stall.held_ns), units::time(stall.begin_ns))
            };
            let stalls: Vec<String> = held.longest.iter().map(at).collect();
            lines.extend(wrap("  ", &format!("Longest, {}: {}.", held_by(held), stalls.join(", "))));
        }
        lines.extend(direction.messages.iter().flat_map(|messages| wrap("  ", &messages.line())));
        if direction.repeated_segments > 0 {
            let needless = match direction.needless_segments {
                0 => String::new(),
                needless => format!(", {} of them needlessly: the peer had them", units::count(needless)),
            };
            lines.push(format!("  {} segments were sent again{needless}.", units::count(direction.repeated_segments)));
        }
    }
    lines.extend(direction.remarks.iter().flat_map(|remark| wrap("  ", remark)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_of_a_trace_does_not_control_the_terminal_and_may_be_anything() {
        let said = r#"{"format_version": 2, "command": "trace", "command_line": "a\u001b[2J", "ended": {"how": "complete"},
            "traced": "b\u0007\u202e", "records": 1, "lost_records": 0, "missing_hooks": ["\n"], "remarks": ["c\r"]}"#;
        let facts = TraceFacts::from_json(said).unwrap();
        let texts = [&facts.command_line, &facts.traced, &facts.missing_hooks[0], &facts.remarks[0]];
        assert_eq!(texts, ["a\\u{1b}[2J", "b\\u{7}\\u{202e}", "\\u{a}", "c\\u{d}"]);
        for said in ["", "{}", "[]", "{\"traced\": 1}", &said.replace("\"records\": 1", "\"records\": -1")] {
            assert!(TraceFacts::from_json(said).is_none(), "{said}");
        }
    }
}
