//! What is read out of recordings of `taut`.

use serde_json::Value;

/// In bits per second; not a number where there is none.
pub(super) fn throughput(document: &Value) -> f64 {
    document["results"][0]["throughput_bps"].as_f64().unwrap_or(f64::NAN)
}
