use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::comparison::Verdict;
use crate::placement::Placement;

/// One setting, tried in turn with the base.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct TuneRow {
    /// The peer.
    pub endpoint: String,
    /// The command that repeats this row.
    pub command: String,
    /// Workload that was shortened or not: `echo`, `write-write-read`, `pace` or `stream`.
    pub measured: String,
    /// Name of the setting; `base` is the endpoint as it is.
    pub setting: String,
    /// Where it is set: `this socket`, `the peer's socket`, `the program`, `the host`.
    pub place: String,
    /// Median time (of the round trip, of the delivery, or of 1 MiB of the stream).
    pub p50_ns: Option<u64>,
    /// 99th percentile of it, the median over the rounds; absent where a round has too few of them.
    pub p99_ns: Option<u64>,
    /// Share of the messages that were lost in these rounds, from 0 to 1. The figures above are of
    /// all messages, and absent where they fall on a lost one.
    #[serde(default)]
    pub lost_share: f64,
    /// Median with the setting over median without, round by round; below 1 means shorter. The median over the rounds.
    pub p50_ratio: Option<f64>,
    /// Interval of that ratio across rounds.
    pub p50_ratio_ci: Option<(f64, f64)>,
    /// Probability with which such an interval covers the ratio; absent in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ratio_level: Option<f64>,
    /// The same for the 99th percentile.
    pub p99_ratio: Option<f64>,
    /// Ratio in the screening, of a setting that stood out in it and was measured again: everything
    /// else in this row is of the fresh rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screening_ratio: Option<f64>,
    /// Median of the base in the same rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_p50_ns: Option<u64>,
    /// What can be said.
    pub verdict: Verdict,
    /// Rounds that a verdict takes, where there were fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_needed: Option<usize>,
    /// Why it could not be tried, or not be compared.
    pub why_not: Option<String>,
    /// The line of code, or the command, that puts it in force.
    pub apply: Option<String>,
    /// Throughput in bits per second, where that was measured. The median over the rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_bps: Option<f64>,
    /// Options in force and what was negotiated in the last round, where that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// On which processors both ends ran, in all trials of the table: its verdicts hold for that.
    /// Absent over Bluetooth and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
}
