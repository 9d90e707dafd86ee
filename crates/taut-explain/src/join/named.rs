//! Packets that became of something, by their numbers in both files.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// So many frames are named of each kind.
const MOST_NAMED: usize = 8;

/// Segments, with the first of them by name.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Lost {
    /// So many.
    pub segments: u64,
    /// The first eight.
    pub first: Vec<Frames>,
}

/// A segment in both files.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Frames {
    /// Its number in the file from the place nearer to its sender; absent if that file lacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_frame: Option<u64>,
    /// Its number in the other file; absent if it did not come there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_frame: Option<u64>,
}

/// The places of the files between which both are known to have captured: numbers of sightings.
pub(super) struct Windows {
    pub(super) near: Range<u32>,
    pub(super) far: Range<u32>,
}

impl Lost {
    /// Connections come one after another, and the first frames are those of the file.
    pub(super) fn add(&mut self, frames: Frames) {
        self.segments += 1;
        let place = self.first.partition_point(|one| *one < frames);
        self.first.insert(place, frames);
        self.first.truncate(MOST_NAMED);
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        other.first.iter().for_each(|&frames| self.add(frames));
        self.segments += other.segments - other.first.len() as u64;
    }
}
