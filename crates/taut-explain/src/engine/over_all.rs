//! What stands out over all directions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::times::TimesOverAll;

/// What one holder had at most, each figure from the direction that has most of it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct MostHeld {
    /// Who: `receive_window`.
    pub holder: String,
    /// Largest share of one direction's time, 0 to 1.
    pub share: f64,
    /// In which direction that was.
    pub share_direction: String,
    /// Longest time in one direction.
    pub held_ns: u64,
    /// In which direction that was.
    pub held_direction: String,
    /// Longest single stretch.
    pub longest_ns: u64,
    /// In which direction that was.
    pub longest_direction: String,
}

/// A single stretch of 200 ms or more.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct LongStall {
    /// Who had the data: `retransmission_timeout`.
    pub holder: String,
    /// From whom to whom.
    pub direction: String,
    /// From the beginning of the capture.
    pub begin_ns: u64,
    /// How long.
    pub held_ns: u64,
    /// The packet before, and the one that ended it.
    pub frames: [u64; 2],
    /// The timer that lasts as long, if one of this holder does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<String>,
}

/// What all directions between two hosts came to.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HostPair {
    /// Their addresses, sorted.
    pub hosts: [String; 2],
    /// Directions with data between them.
    pub directions: u64,
    /// Time of all causes that were found, by cause, longest first and the turns of programs last.
    pub causes: Vec<CauseTime>,
    /// The direction to look at first: that in which most time could be had back.
    pub first: String,
    /// First and last packet with its data.
    pub first_frames: [u64; 2],
}

/// The time that a cause has, summed over directions. Times of directions that went on together add up.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CauseTime {
    /// Short name of the cause.
    pub cause: String,
    /// For how long.
    pub held_ns: u64,
    /// In how many directions it was found.
    pub directions: u64,
}

/// What stands out over all directions.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct OverAll {
    /// What each holder had at most.
    pub most_held: Vec<MostHeld>,
    /// Time of the causes that were found, longest first and the turns of programs last.
    pub causes: Vec<CauseTime>,
    /// Pairs of hosts, the ten with the longest time of causes first.
    pub pairs: Vec<HostPair>,
    /// Directions between pairs that are not told apart, since there are too many.
    pub other_directions: u64,
    /// The ten longest stretches of 200 ms and more, of each direction at most three of each holder. Those of the
    /// sending program, of delivery and of nobody known are not among them.
    pub long_stalls: Vec<LongStall>,
    /// How long answers, round trips and packets in a controller took.
    #[serde(default)]
    pub times: Vec<TimesOverAll>,
}
