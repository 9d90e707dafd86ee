use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A setting of the host, judged by what its connections and its kernel's counters showed.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct SettingRow {
    /// As sysctl(8) has it: `net.core.somaxconn`.
    pub name: String,
    /// Its value, as the kernel prints it.
    pub value: String,
    /// What can be said of it.
    pub verdict: SettingVerdict,
    /// What was seen, in a sentence.
    pub found: String,
    /// What to change, where it costs; what would tell, where that is not known.
    pub remedy: Option<String>,
}

/// What can be said of a setting.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingVerdict {
    /// Connections lost time or packets at this limit.
    Costs,
    /// They reached no such limit.
    Clear,
    /// What was seen does not decide it.
    Unknown,
}
