use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::Summary;

/// What the tool and the host cost by themselves.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct FloorRow {
    /// What was measured.
    pub what: String,
    /// Its times.
    pub ns: Summary,
    /// What it means for the figures of the other commands.
    pub meaning: String,
}
