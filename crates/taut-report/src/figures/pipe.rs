use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::family::{Family, Kind, Sample, Unit, Value};

/// What pipes carried in one interval: an object a line of `taut pipe --jsonl`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PipeIntervalDocument {
    /// Version of this form.
    pub format_version: u32,
    /// `pipe`.
    pub command: String,
    /// Number of the interval, from 0.
    pub interval: u64,
    /// Its begin by the wall clock, in nanoseconds since 1970-01-01 UTC.
    pub began_unix_ns: u64,
    /// How long it took, by a clock that nobody sets.
    pub duration_ns: u64,
    /// Lines before this one that could not be written.
    pub lines_lost: u64,
    /// Pipes open at its end.
    pub pipes_open: u64,
    /// Pipes that ended in it.
    pub pipes_ended: u64,
    /// Of these, those of which something went wrong.
    pub pipes_failed: u64,
    /// What was carried in it.
    pub a_to_b: WayCounts,
    /// What was carried in it the other way.
    pub b_to_a: WayCounts,
}

/// What was carried one way.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct WayCounts {
    /// Bytes given to the kernel of the end that they go to.
    pub bytes: u64,
    /// Messages given on; 0 between streams.
    pub messages: u64,
    /// Messages that had no room, or were too long for the link.
    pub lost_messages: u64,
    /// Bytes that pipes left when they ended.
    pub undelivered_bytes: u64,
    /// Bytes of which it was not known when their pipe ended that the other side had got them.
    pub unconfirmed_bytes: u64,
}

/// What pipes carried since they began.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PipeCounts {
    /// Pipes that are open.
    pub open: u64,
    /// Pipes that have ended.
    pub ended: u64,
    /// Of these, those of which something went wrong.
    pub failed: u64,
    /// From a to b, and from b to a.
    pub ways: [WayCounts; 2],
}

impl PipeIntervalDocument {
    /// One JSON object in one line.
    pub fn to_json(&self) -> String {
        // Keys are strings and nothing else can fail, so an error would be a bug of ours.
        serde_json::to_string(self).expect("an interval is JSON") + "\n"
    }
}

impl PipeCounts {
    /// What was added since an earlier count, beside the pipes that are open now.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let way = |at: usize| {
            let (now, before) = (&self.ways[at], &before.ways[at]);
            WayCounts {
                bytes: now.bytes.saturating_sub(before.bytes),
                messages: now.messages.saturating_sub(before.messages),
                lost_messages: now.lost_messages.saturating_sub(before.lost_messages),
                undelivered_bytes: now.undelivered_bytes.saturating_sub(before.undelivered_bytes),
                unconfirmed_bytes: now.unconfirmed_bytes.saturating_sub(before.unconfirmed_bytes),
            }
        };
        Self {
            open: self.open,
            ended: self.ended.saturating_sub(before.ended),
            failed: self.failed.saturating_sub(before.failed),
            ways: [way(0), way(1)],
        }
    }

    /// The sums.
    pub fn families(&self) -> Vec<Family<'static>> {
        type Count = fn(&WayCounts) -> u64;
        use Kind::{Counter, Gauge};
        let mut families = vec![
            Family::plain("pipes_open", "Pipes that are open.", Gauge, Unit::Plain, self.open as f64),
            Family::plain("pipes_ended", "Pipes that have ended.", Counter, Unit::Plain, self.ended as f64),
            Family::plain("pipes_failed", "Of these, those that failed.", Counter, Unit::Plain, self.failed as f64),
        ];
        let all: [(&'static str, &str, Unit, Count); 5] = [
            ("pipe", "Bytes given on.", Unit::Bytes, |way| way.bytes),
            ("pipe_messages", "Messages given on.", Unit::Plain, |way| way.messages),
            ("pipe_lost_messages", "Messages that were lost.", Unit::Plain, |way| way.lost_messages),
            ("pipe_undelivered", "Bytes that pipes left when they ended.", Unit::Bytes, |way| way.undelivered_bytes),
            ("pipe_unconfirmed", "Bytes not confirmed when their pipe ended.", Unit::Bytes, |way| {
                way.unconfirmed_bytes
            }),
        ];
        families.extend(all.map(|(name, help, unit, count)| {
            let sample = |(way, counts): (&str, &WayCounts)| Sample {
                labels: vec![("way", way.to_owned())],
                value: Value::Number(count(counts) as f64),
            };
            let samples = ["a_to_b", "b_to_a"].into_iter().zip(&self.ways).map(sample).collect();
            Family { name, help: help.to_owned(), kind: Counter, unit, samples }
        }));
        families
    }
}
