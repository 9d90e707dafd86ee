use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether something that Tautline needs works here.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct CheckRow {
    /// What was tried.
    pub what: String,
    /// Whether it works.
    pub works: bool,
    /// What of Tautline needs it.
    pub needed_for: String,
    /// What was found.
    pub found: String,
    /// What to do about it when it does not work.
    pub remedy: Option<String>,
}
