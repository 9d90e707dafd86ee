use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// On which processors the two ends of a link ran. A message between two processors of one host has to wake the other
/// one up, which may take ten times as long as all else: figures of two placements are of two different things.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Placement {
    /// How the two ends stand to each other.
    pub kind: PlacementKind,
    /// Processor of this end; absent where it was left to the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<usize>,
    /// Processor of the peer; absent where that was not placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_core: Option<usize>,
    /// Why the peer is not placed, where it should have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_free: Option<String>,
}

/// How the two ends of a link stand to each other.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementKind {
    /// Where the system puts them, which may change from one moment to the next.
    #[default]
    Free,
    /// Both on one processor.
    SameCore,
    /// Each on a processor of its own.
    TwoCores,
}

impl PlacementKind {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "not placed",
            Self::SameCore => "same core",
            Self::TwoCores => "two cores",
        }
    }
}
