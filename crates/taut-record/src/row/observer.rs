use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much longer a round trip takes when the writes are observed: timestamps asked of the kernel,
/// the send queue looked at, the clock read around each call.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct ObserverCost {
    /// Median with the observer less the median without, in ns, measured in turn; the median over the rounds.
    pub p50_ns: i64,
    /// Interval of that across rounds; absent with fewer than five.
    pub p50_ci: Option<(i64, i64)>,
    /// Rounds that were measured both ways.
    pub rounds: usize,
}
