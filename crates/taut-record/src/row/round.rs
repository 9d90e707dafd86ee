use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::usual::{is_true, yes};
use crate::stats::{Distribution, Quantile};

/// One independent repetition; of the response time in an open loop. Its figures are of all
/// messages: null where they fall on a lost one, or nothing was sent.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Round {
    /// Median.
    pub p50_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// Longest.
    pub max_ns: Option<u64>,
    /// Messages sent.
    pub sent: u64,
    /// Messages lost.
    pub lost: u64,
    /// Whether the round came to its end. One that the user or the peer cut short is counted in
    /// `sent` and `lost`, and is in no interval and no comparison.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub complete: bool,
}

impl Round {
    /// A whole round with these times.
    pub fn of(times: &Distribution, sent: u64, lost: u64) -> Self {
        let at = |q| times.quantile(q).and_then(Quantile::time);
        Self { p50_ns: at(0.5), p99_ns: at(0.99), max_ns: at(1.0), sent, lost, complete: true }
    }
}
