//! What was measured, made readable.
//!
//! - [`Document`]: a recording with its findings, the one JSON object of `--json`, and its schema.
//! - [`ExplainDocument`]: what captures came to, as text and as JSON.
//! - [`SocketsDocument`]: sockets of a host and who holds their data, likewise.
//! - [`TraceDocument`]: what a live trace came to, likewise.
//! - [`CheckDocument`]: what a gate checked, as text, JSON, JUnit and annotations.
//! - [`MeshDocument`]: what a mesh of hosts came to, as text, JSON and a page; [`MeshCheckDocument`]: what one would.
//! - [`WatchDocument`]: what the connections of a host lost in an interval, likewise.
//! - [`figures`]: what the intervals of a run without an end came to, for the tools that collect them.
//! - [`table`]: text for a terminal.
//! - [`html`]: one self-contained page with charts.
//! - [`perfetto`]: timelines for the Perfetto trace viewer; [`explained_trace`]: explained captures for it;
//!   [`traced_trace`]: live traces.
//! - [`capture`]: packets of a simulated radio for Wireshark and btmon.
//! - [`compare`]: two documents held against each other.
//! - [`units`]: times, rates and shares in words.
//!
//! Text and HTML are made from the same sheets of cells, so each figure is put into words in one place.

pub mod capture;
mod checked;
pub mod compare;
mod difference;
mod document;
mod explained;
mod explained_air;
mod explained_bluetooth;
mod explained_datagrams;
mod explained_file;
mod explained_gatt;
mod explained_joined;
mod explained_lost;
mod explained_model;
mod explained_over_all;
mod explained_recorded;
mod explained_timeline;
mod explained_times;
pub mod explained_trace;
pub mod figures;
mod found;
pub mod html;
mod lane;
mod lines;
mod mesh_words;
mod meshed;
pub mod perfetto;
mod prose;
mod sheet;
mod sockets;
mod stages;
pub mod table;
mod traced;
mod traced_live;
pub mod traced_trace;
mod traced_worst;
mod trial;
pub mod units;
mod watch_metrics;
mod watched;

#[cfg(test)]
#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

pub use checked::{Check, CheckCause, CheckDocument, CheckKind, CheckOutcome};
pub use difference::{CauseChange, Change, Difference, HeldIn, HolderChange};
pub use document::{Document, Error, ExplainedAgain};
pub use explained::ExplainDocument;
pub use explained_file::ExplainedFile;
pub use explained_recorded::ExplainedTrace;
pub use lines::{paragraph, within};
pub use meshed::{MeshCheckDocument, MeshDocument};
pub use sockets::{HeldTime, SocketRow, SocketsDocument, Suspicion};
pub use traced::{TraceDocument, TraceFacts};
pub use traced_live::traced_so_far;
pub use trial::{TRIAL_PAIRS, Trial, TrialOutcome, TrialPair, TrialSlice, Tried, trial_outcome};
pub use watch_metrics::WatchMetrics;
pub use watched::{EndedLoss, WatchDocument, summary as watch_summary};

/// JSON Schema of all that `--json` prints: a recording with its findings, explained captures, sockets, a
/// trace, an interval of a watch, a gate, or a mesh; and of a line of `--jsonl`.
pub fn schema() -> serde_json::Value {
    #[derive(schemars::JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its schema is wanted")]
    enum Any {
        Document(Box<Document>),
        Explained(Box<ExplainDocument>),
        Sockets(Box<SocketsDocument>),
        Traced(Box<TraceDocument>),
        Watched(Box<WatchDocument>),
        Checked(Box<CheckDocument>),
        Mesh(Box<MeshDocument>),
        MeshCheck(Box<MeshCheckDocument>),
        Interval(Box<figures::IntervalDocument>),
        RouteInterval(Box<figures::RouteIntervalDocument>),
        PipeInterval(Box<figures::PipeIntervalDocument>),
        AgentInterval(Box<figures::AgentIntervalDocument>),
    }
    schemars::schema_for!(Any).to_value()
}
