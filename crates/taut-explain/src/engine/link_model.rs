//! What a simulated link that shows what a log shows would carry.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The link of a channel as `taut air` runs it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct LinkModel {
    /// Bits of the program a second since the channel opened, as the log has them.
    pub measured_bps: u64,
    /// Why there is no scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// Where chance begins in each run (`taut air run --seed`).
    pub seed: u64,
    /// Virtual time of each run (`taut air run --time`).
    pub duration_ns: u64,
    /// The scenarios that show what the log shows, the nearest first; several where the log does not tell them apart.
    pub scenarios: Vec<ModelledLink>,
}

/// A scenario that shows what a log shows.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ModelledLink {
    /// The scenario, as `taut air run` takes it.
    pub toml: String,
    /// Bits a second in the log of its run, to be held against the measured ones.
    pub log_bps: u64,
    /// Bits a second that the receiving program got.
    pub program_bps: u64,
    /// How far it is from the log in all figures that are compared; 0 is alike.
    pub distance: f64,
    /// What it carries when one limit is gone, the most first.
    pub remedies: Vec<ModelledRemedy>,
}

/// A limit that is gone.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ModelledRemedy {
    /// The cause, as `taut air run` names it.
    pub cause: String,
    /// What was changed, as `--set` takes it.
    pub set: Vec<String>,
    /// Bits a second that the receiving program gets then.
    pub program_bps: u64,
}
