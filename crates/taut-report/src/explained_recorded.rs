//! What stands of one recorded trace in the document on captures, and its words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lines::{cut, line_to, wrap};
use crate::traced::TraceDocument;

/// What a trace came to that was recorded by `taut trace --events`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct ExplainedTrace {
    /// Path of the file; `-` for standard input.
    pub file: String,
    /// Bytes read, uncompressed.
    pub bytes: u64,
    /// What of the file could not be read, a sentence each.
    pub remarks: Vec<String>,
    /// The trace, as it printed it, or as this version explains it.
    pub trace: TraceDocument,
}

impl ExplainedTrace {
    /// The file, then what the trace itself prints.
    pub(crate) fn to_text(&self, is_full: bool) -> String {
        let mut text = String::new();
        line_to(&mut text, &cut(&format!("{}: recorded by {}", self.file, self.trace.facts.command_line)));
        text += &self.trace.to_text(is_full);
        self.remarks.iter().flat_map(|remark| wrap("", remark)).for_each(|line| line_to(&mut text, &line));
        text
    }
}
