//! Stretches of one holder, by the kernel's own state and by a capture, and which of them the other has, too.

use std::io::Write;
use std::ops::RangeInclusive;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use taut_event::Holder;

use super::traffic::{Sample, Traffic, group, holders, receiver};
use crate::support;

/// One stretch in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Episode {
    pub(crate) group: &'static str,
    from: u64,
    to: u64,
    /// Of a gap that Nagle's algorithm held in part: when the write came is not in a capture, but estimated. What is
    /// before that is no episode of its own.
    is_estimate: bool,
}

/// Shorter ones the kernel's state, read each millisecond, does not tell.
const LEAST_NS: u64 = 5_000_000;
/// By so much two may have the same one at another time.
const SLACK_NS: u64 = 5_000_000;

impl Episode {
    fn goes_on_in(&self, next: Self) -> bool {
        (self.group, self.is_estimate) == (next.group, next.is_estimate) && next.from <= self.to
    }
}

/// Parts of the same holder that follow each other, put together.
fn together(parts: impl Iterator<Item = Episode>) -> Vec<Episode> {
    let mut episodes: Vec<Episode> = Vec::new();
    for part in parts {
        match episodes.last_mut() {
            Some(last) if last.goes_on_in(part) => last.to = last.to.max(part.to),
            _ => episodes.push(part),
        }
    }
    episodes
}

pub(crate) fn by_kernel(samples: &[Sample], traffic: &Traffic) -> Vec<Episode> {
    let (now, since) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
    let at = |sample: &Sample| (since - (now - sample.0)).as_nanos() as u64;
    let pairs = samples.windows(2).zip(holders(samples, traffic));
    together(pairs.map(|(pair, group)| Episode { group, from: at(&pair[0]), to: at(&pair[1]), is_estimate: false }))
}

/// When the first packet of TCP passed, from where on times are told.
fn begin(capture: &[u8]) -> u64 {
    let mut place = 24;
    loop {
        let word = |at: usize| u32::from_le_bytes(capture[place + at..place + at + 4].try_into().unwrap());
        let packet = &capture[place + 16..];
        if packet[0] >> 4 == 4 && packet[9] == 6 {
            return u64::from(word(0)) * 1_000_000_000 + u64::from(word(4));
        }
        place += 16 + word(8) as usize;
    }
}

/// What is drawn of a capture.
pub(crate) fn by_capture(capture: &[u8]) -> Vec<Episode> {
    let begin = begin(capture);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(capture).unwrap();
    let picture = tempfile::NamedTempFile::new().unwrap();
    let line = format!("explain {} --perfetto {}", file.path().display(), picture.path().display());
    let document = support::run_json(&line);
    let directions = document["files"][0]["worst"].as_array().unwrap();
    let track = directions.iter().position(|direction| direction["to"] == receiver()).unwrap() + 1;
    let trace: Value = serde_json::from_reader(picture.reopen().unwrap()).unwrap();
    let slices = trace["traceEvents"].as_array().unwrap().iter();
    let slices: Vec<_> = slices.filter(|event| event["ph"] == "X" && event["tid"] == track).collect();
    let is_gap = |one: &Value, other: Option<&&Value>| {
        other.is_some_and(|other| one["args"]["wireshark"] == other["args"]["wireshark"])
    };
    together(slices.iter().enumerate().filter_map(|(number, slice)| {
        let holder = Holder::ALL.into_iter().find(|holder| slice["name"] == holder.to_string()).unwrap();
        let ns = |key: &str| (slice[key].as_f64().unwrap() * 1000.0).round() as u64;
        let from = begin + ns("ts");
        // Two parts of one gap, which the same packets end.
        let before = number.checked_sub(1).and_then(|before| slices.get(before));
        let is_estimate = match holder {
            Holder::Nagle => is_gap(slice, before),
            _ => {
                slices.get(number + 1).is_some_and(|next| next["name"] == Holder::Nagle.to_string())
                    && is_gap(slice, slices.get(number + 1))
            }
        };
        Some(Episode { group: group(holder)?, from, to: from + ns("dur"), is_estimate })
    }))
}

/// Of the episodes of a group, how many there are, and how many of them `other` has, too: for at least a part of
/// their time, or at all where that is estimated. They are later by so much than there.
pub(crate) fn shared(of: &[Episode], other: &[Episode], group: &str, part: f64, late: RangeInclusive<i64>) -> [u32; 2] {
    let own = |episode: &&Episode| episode.group == group;
    let mut count = [0; 2];
    let is_counted = |one: &&Episode| one.to - one.from >= LEAST_NS && !(one.is_estimate && group != "nagle");
    for one in of.iter().filter(own).filter(is_counted) {
        let from = one.from.saturating_add_signed(-late.end()) - SLACK_NS;
        let to = one.to.saturating_add_signed(-late.start()) + SLACK_NS;
        let both: u64 =
            other.iter().filter(own).map(|other| other.to.min(to).saturating_sub(other.from.max(from))).sum();
        count[0] += 1;
        let least = if one.is_estimate { 0.0 } else { part * (one.to - one.from) as f64 };
        count[1] += u32::from(both > 0 && both as f64 >= least);
    }
    count
}
