use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a path is slower than it need be: what holds the data, how it was seen, what it costs, and what helps.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Finding {
    /// Short name of the cause, the same in all versions: `nagle_delayed_ack`.
    pub cause: String,
    /// The cause in a sentence.
    pub summary: String,
    /// What it was found on: an endpoint, with the workload.
    pub on: String,
    /// Share that is concerned, 0 to 1: of what, [`share_of`](Self::share_of) says.
    pub share: f64,
    /// What the share is of.
    #[serde(default)]
    pub share_of: Unit,
    /// What one of these loses, median; where the share is of time, what an SDU loses on average; where it is of a
    /// connection's, what all of them lost while they were looked at. 0: not known.
    pub cost_ns: u64,
    /// What was seen, a sentence each, with figures.
    pub evidence: Vec<String>,
    /// What to do about it.
    pub remedy: String,
    /// What the remedy gave when it was run; absent where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

/// What a share is a share of.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Messages of the workload.
    #[default]
    Messages,
    /// Sending calls, of which a message may take several.
    Writes,
    /// SDUs of an L2CAP channel.
    Sdus,
    /// Connections.
    Connections,
    /// The time of the work.
    Time,
    /// The time of the connection that loses most, of those that the finding is on.
    ConnectionTime,
}

impl Unit {
    /// As it stands after "of the" in a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Writes => "writes",
            Self::Sdus => "SDUs",
            Self::Connections => "connections",
            Self::Time => "time",
            Self::ConnectionTime => "worst connection's time",
        }
    }
}

/// A remedy carried out.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Proof {
    /// What was changed.
    pub change: String,
    /// The command that repeats it.
    pub command: String,
    /// Throughput before.
    pub before_bps: f64,
    /// Throughput with the change.
    pub after_bps: f64,
}
