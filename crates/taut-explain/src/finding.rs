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
    /// Share of the messages (or writes) concerned, 0 to 1; of a radio link, share of the time.
    pub share: f64,
    /// What one message concerned loses, median; of a radio link, what an SDU loses on average.
    pub cost_ns: u64,
    /// What was seen, a sentence each, with figures.
    pub evidence: Vec<String>,
    /// What to do about it.
    pub remedy: String,
    /// What the remedy gave when it was run; absent where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
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
