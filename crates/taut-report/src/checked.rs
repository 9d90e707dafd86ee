use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_record::Ended;

use crate::lines::{line_to, wrap};
use crate::units;

/// What a gate checked: the one JSON object of `taut check`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct CheckDocument {
    /// Version of this form.
    pub format_version: u32,
    /// `check`.
    pub command: String,
    /// The command line, ready to be pasted.
    pub command_line: String,
    /// The file that says what is checked.
    pub file: String,
    /// How it ended. What could not be checked at all is here, and its checks are missing below.
    pub ended: Ended,
    /// How long it took.
    pub duration_ns: u64,
    /// All that was checked, in the order of the file.
    pub checks: Vec<Check>,
    /// What was found meanwhile, whether it is forbidden or not; what takes most first.
    pub causes: Vec<CheckCause>,
    /// What could not be seen, and what was measured again, a sentence each.
    pub remarks: Vec<String>,
}

/// One thing that was checked.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Check {
    /// What kind of thing.
    pub kind: CheckKind,
    /// The limit as it was written, the cause, or the figure.
    pub name: String,
    /// What came of it.
    pub outcome: CheckOutcome,
    /// The figures behind that, in a sentence; empty where all is well.
    pub detail: String,
}

/// What is checked.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckKind {
    /// A limit on a figure.
    Limit,
    /// A cause that must not be found.
    Finding,
    /// A figure beside that of an older recording.
    Baseline,
    /// A command that has to succeed.
    Command,
}

impl CheckKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Finding => "finding",
            Self::Baseline => "baseline",
            Self::Command => "command",
        }
    }
}

/// What came of a check.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// It holds.
    Passed,
    /// It does not.
    Failed,
    /// What was seen can't tell.
    Unknown,
}

/// What holds the data.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CheckCause {
    /// Short name of the cause.
    pub cause: String,
    /// What saw it: `trace`, `sockets` or `workload`.
    pub seen_by: String,
    /// Where: the direction of a connection, or the workload with its endpoint.
    pub on: String,
    /// The largest share that it has, from 0 to 1: of a direction's time, or of a workload's messages.
    pub share: f64,
    /// The cause in a sentence.
    pub summary: String,
    /// What was seen, a sentence each.
    pub evidence: Vec<String>,
    /// What to change.
    pub remedy: String,
}

impl CheckDocument {
    /// Whether any check failed.
    pub fn has_failed(&self) -> bool {
        self.count(CheckOutcome::Failed) > 0
    }

    fn count(&self, outcome: CheckOutcome) -> usize {
        self.checks.iter().filter(|check| check.outcome == outcome).count()
    }

    /// Why nothing more was checked, if so.
    fn error(&self) -> Option<&str> {
        match &self.ended {
            Ended::Complete => None,
            Ended::Interrupted => Some("interrupted"),
            Ended::PeerGone(why) | Ended::Failed(why) => Some(why),
        }
    }

    /// The document as one JSON object, indented, with a newline at the end.
    pub fn to_json(&self) -> String {
        // Keys are strings and nothing else can fail, so an error would be a bug of ours.
        let mut json = serde_json::to_string_pretty(self).expect("a document is always JSON");
        json.push('\n');
        json
    }

    /// A line for each check, then what was found, in lines of at most 100 columns.
    pub fn to_text(&self) -> String {
        let mut lines = Vec::new();
        for check in &self.checks {
            let (word, kind) = (word(check.outcome), check.kind.name());
            let detail = if check.detail.is_empty() { String::new() } else { format!(": {}", check.detail) };
            let folded = wrap(&" ".repeat(8), &format!("{kind} {}{detail}", check.name));
            lines.extend(folded.into_iter().enumerate().map(|(i, line)| match i {
                0 => format!("{word:<8}{}", line.trim_start()),
                _ => line,
            }));
        }
        for cause in &self.causes {
            lines.extend(hanging(&cause.in_words()));
            lines.extend(cause.evidence.iter().flat_map(|evidence| wrap("    ", evidence)));
            lines.extend(wrap("  ", &format!("CHANGE {}", cause.remedy)));
        }
        lines.extend(self.remarks.iter().flat_map(|remark| wrap("", remark)));
        if let Some(error) = self.error() {
            lines.extend(format!("NOT CHECKED: {error}").lines().flat_map(|line| wrap("", line)));
        }
        lines.extend(wrap("", &self.in_short()));
        let mut text = String::new();
        lines.iter().for_each(|line| line_to(&mut text, line));
        text
    }

    fn in_short(&self) -> String {
        let [passed, failed, unknown] =
            [CheckOutcome::Passed, CheckOutcome::Failed, CheckOutcome::Unknown].map(|outcome| self.count(outcome));
        let unknown = if unknown == 0 { String::new() } else { format!(", {unknown} can't be told") };
        format!("{}: {passed} passed, {failed} failed{unknown}", self.file)
    }

    /// A report in the form of JUnit, with a test case for each check.
    pub fn to_junit(&self) -> String {
        let error = self.error();
        let (failed, unknown) = (self.count(CheckOutcome::Failed), self.count(CheckOutcome::Unknown));
        let (tests, errors) = (self.checks.len() + usize::from(error.is_some()), usize::from(error.is_some()));
        let seconds = self.duration_ns as f64 / 1e9;
        let name = xml(&format!("taut check {}", self.file));
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"{name}\" tests=\"{tests}\" \
             failures=\"{failed}\" errors=\"{errors}\" skipped=\"{unknown}\" time=\"{seconds:.3}\">\n"
        );
        let mut case = |name: &str, inside: &str| {
            let name = xml(name);
            let _ = writeln!(text, "<testcase classname=\"taut.check\" name=\"{name}\">{inside}</testcase>");
        };
        for check in &self.checks {
            let message = xml(&check.detail);
            let inside = match check.outcome {
                CheckOutcome::Passed => String::new(),
                CheckOutcome::Unknown => format!("<skipped message=\"{message}\"/>"),
                CheckOutcome::Failed => {
                    let found = xml(&self.found_in_words().join("\n"));
                    format!("<failure type=\"{}\" message=\"{message}\">{found}</failure>", check.kind.name())
                }
            };
            case(&format!("{} {}", check.kind.name(), check.name), &inside);
        }
        if let Some(error) = error {
            case("run", &format!("<error message=\"{}\"/>", xml(error)));
        }
        text.push_str("</testsuite>\n</testsuites>\n");
        text
    }

    /// Annotations as workflow commands: an error for each check that failed, with the causes; a warning for each that
    /// can't be told.
    pub fn to_github(&self) -> String {
        let mut text = String::new();
        let mut annotate = |level: &str, title: &str, message: &str| {
            let (file, title) = (property(&self.file), property(title));
            let _ = writeln!(text, "::{level} file={file},title={title}::{}", data(message));
        };
        for check in &self.checks {
            let title = format!("taut check: {} {}", check.kind.name(), check.name);
            match check.outcome {
                CheckOutcome::Passed => {}
                CheckOutcome::Unknown => annotate("warning", &title, &check.detail),
                CheckOutcome::Failed => {
                    let lines = [vec![check.detail.clone()], self.found_in_words()].concat();
                    annotate("error", &title, &lines.join("\n"));
                }
            }
        }
        if let Some(error) = self.error() {
            annotate("error", "taut check", error);
        }
        text
    }

    fn found_in_words(&self) -> Vec<String> {
        self.causes.iter().map(|cause| format!("{} CHANGE {}", cause.in_words(), cause.remedy)).collect()
    }
}

impl CheckCause {
    fn in_words(&self) -> String {
        let Self { cause, seen_by, on, summary, .. } = self;
        format!("FOUND {cause} ({}, {on}; seen by {seen_by}): {summary}", units::share(self.share))
    }
}

const fn word(outcome: CheckOutcome) -> &'static str {
    match outcome {
        CheckOutcome::Passed => "ok",
        CheckOutcome::Failed => "FAILED",
        CheckOutcome::Unknown => "unknown",
    }
}

/// Folded, with all lines but the first indented.
fn hanging(text: &str) -> Vec<String> {
    let indented = wrap("  ", text);
    let mut lines = indented.into_iter();
    let first = lines.next().map(|line| line.trim_start().to_owned());
    first.into_iter().chain(lines).collect()
}

/// Text and attribute values of XML 1.0, which has no place for most control characters.
fn xml(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The message of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> CheckDocument {
        let check = |kind, name: &str, outcome, detail: &str| Check {
            kind,
            name: name.to_owned(),
            outcome,
            detail: detail.to_owned(),
        };
        CheckDocument {
            format_version: 2,
            command: "check".to_owned(),
            command_line: "taut check a.toml".to_owned(),
            file: "a,b:c.toml".to_owned(),
            ended: Ended::Complete,
            duration_ns: 1_500_000_000,
            checks: vec![
                check(CheckKind::Limit, "p50<5ms", CheckOutcome::Failed, "it is 41 ms\u{1b}[31m & \"more\""),
                check(CheckKind::Limit, "lost<1%", CheckOutcome::Passed, ""),
                check(CheckKind::Finding, "cork", CheckOutcome::Unknown, "no right"),
            ],
            causes: vec![CheckCause {
                cause: "nagle_delayed_ack".to_owned(),
                seen_by: "trace".to_owned(),
                on: "a > b".to_owned(),
                share: 0.8,
                summary: "Held.".to_owned(),
                evidence: vec!["Seen.".to_owned()],
                remedy: "TCP_NODELAY.".to_owned(),
            }],
            remarks: Vec::new(),
        }
    }

    #[test]
    fn a_junit_report_is_well_formed_whatever_the_texts_hold() {
        let text = document().to_junit();
        assert!(text.contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\" time=\"1.500\""), "{text}");
        assert!(text.contains("name=\"limit p50&lt;5ms\"><failure type=\"limit\" message=\"it is 41 ms\u{fffd}[31m &amp; &quot;more&quot;\">FOUND nagle_delayed_ack"), "{text}");
        assert!(text.contains("<skipped message=\"no right\"/>") && text.matches("<testcase").count() == 3, "{text}");
        let failed = CheckDocument { ended: Ended::Failed("gone".to_owned()), checks: Vec::new(), ..document() };
        assert!(failed.to_junit().contains("tests=\"1\" failures=\"0\" errors=\"1\""), "{}", failed.to_junit());
    }

    #[test]
    fn an_annotation_is_one_line_with_the_cause() {
        let text = document().to_github();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].starts_with("::error file=a%2Cb%3Ac.toml,title=taut check%3A limit p50<5ms::it is 41 ms"));
        assert!(
            lines[0].contains("%0AFOUND nagle_delayed_ack (80.0 %25, a > b; seen by trace): Held. CHANGE TCP_NODELAY."),
            "{text}"
        );
        assert!(lines[1].starts_with("::warning "));
    }

    #[test]
    fn text_says_what_failed_and_why() {
        let text = document().to_text();
        assert!(
            text.starts_with("FAILED  limit p50<5ms: it is 41 ms") && text.contains("\n  CHANGE TCP_NODELAY."),
            "{text}"
        );
        assert!(text.ends_with("a,b:c.toml: 1 passed, 1 failed, 1 can't be told\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100));
    }
}
