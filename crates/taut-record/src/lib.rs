//! All that one command measured, with the facts of the host: the shape of every `--json`, and what
//! reports are made from; and [`stats`], what its rounds allow to say.
//!
//! Times are in nanoseconds and sizes in bytes; every key says so. A row stands by itself: it carries the command that
//! repeats it.

mod events;
mod host;
mod placement;
mod row;
pub mod stats;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use events::{BadEvent, MOST_EVENTS, Observed, ObservedFraming, ObservedRound};
pub use host::{Floor, HostFacts};
pub use placement::{Placement, PlacementKind};
pub use row::{
    AirChangeRow, AirEventExcerpt, AirExcerpt, AirIdle, AirPdu, AirRow, AirSetting, BrokerHold, CheckRow, Coarse,
    Comparison, Counted, CpuComparison, CrowdRound, CrowdRow, EchoRow, FigureUnit, FloorRow, LossComparison,
    MessageExcerpt, ObserverCost, PaceRound, PaceRow, PublishedFigure, PublishedRow, Round, RouteRow, Row, SettingRow,
    SettingVerdict, Starvation, StreamRound, StreamRow, TcpFacts, TuneRow, Verdict, WatchRow, WatchedCount,
    WatchedLoss, WatchedPlace,
};

/// The value of an option or of something negotiated, from a row's `options`.
pub fn fact<'a>(options: &'a [String], name: &str) -> Option<&'a str> {
    options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
}

/// Version of the shape; a new number means that old readers can't read it.
pub const FORMAT_VERSION: u32 = 3;

/// All that one command measured.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Recording {
    /// Version of this shape.
    pub format_version: u32,
    /// The command: `echo`, `pace`, …
    pub command: String,
    /// The whole command line.
    pub command_line: String,
    /// When it began, in seconds since 1970 UTC.
    pub started_unix_s: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// How it came to its end. Anything but `complete` means that the results are partial.
    pub ended: Ended,
    /// The machine it ran on.
    pub host: HostFacts,
    /// What was measured.
    pub results: Vec<Row>,
    /// What the detectors looked at, so that newer ones can look again; absent from format 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed: Vec<Observed>,
}

/// How a measurement came to its end.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "how", content = "why")]
pub enum Ended {
    /// All that was asked for was done.
    #[default]
    Complete,
    /// The user interrupted it.
    Interrupted,
    /// The peer went away, or broke the protocol.
    PeerGone(String),
    /// A part of it could not be measured; all else was.
    Failed(String),
}
