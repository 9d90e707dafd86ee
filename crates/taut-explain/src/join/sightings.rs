//! What one file has of the connections, packet by packet, in bounded memory.

use std::collections::HashMap;

use taut_event::{Address, SegmentFlags, TimestampOption};
use taut_time::Instant;

/// So many segments of a file are kept; of 32 bytes each, that is 16 MiB.
pub const MOST_SIGHTINGS: usize = 1 << 19;

/// A segment of TCP, as it stands in one file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sighting {
    /// When, on the clock of that file.
    pub at: Instant,
    /// Number of the packet in its file, from 1.
    pub frame: u64,
    /// Its sender.
    pub from: Address,
    /// Its receiver.
    pub to: Address,
    /// Number of its first byte, or of its SYN.
    pub sequence: u32,
    /// The next byte that its sender waits for.
    pub acknowledgement: u32,
    /// Its flags.
    pub flags: SegmentFlags,
    /// Bytes of payload.
    pub payload: u32,
    /// As in the header, without scale.
    pub window: u16,
    /// Identification of the IPv4 header.
    pub identification: Option<u16>,
    /// The timestamps option.
    pub timestamps: Option<TimestampOption>,
}

/// The segments of one file, the first [`MOST_SIGHTINGS`] of them.
#[derive(Debug, Default)]
pub struct Sightings {
    flows: HashMap<(Address, Address), u32>,
    pub(super) ends: Vec<(Address, Address)>,
    pub(super) seen: Vec<Seen>,
    /// Segments that were not kept.
    pub(super) beyond: u64,
    pub(super) resolution_ns: u64,
}

/// What is kept of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) at: u64,
    pub(super) frame: u64,
    /// What it has alike at both places, as one number.
    pub(super) mark: u64,
    pub(super) flow: u32,
    /// Whether it goes from the first of the flow's ends, which is the smaller one.
    pub(super) is_from_first: bool,
    /// A host that sends it again gives it another identification.
    pub(super) has_identification: bool,
}

impl Sightings {
    /// None so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a packet, in the order of the file.
    pub fn add(&mut self, sighting: &Sighting) {
        if self.seen.len() >= MOST_SIGHTINGS {
            self.beyond += 1;
            return;
        }
        let is_from_first = sighting.from <= sighting.to;
        let ends = if is_from_first { (sighting.from, sighting.to) } else { (sighting.to, sighting.from) };
        let next = self.ends.len() as u32;
        let flow = *self.flows.entry(ends).or_insert(next);
        if flow == next {
            self.ends.push(ends);
        }
        self.seen.push(Seen {
            at: sighting.at.as_nanos(),
            frame: sighting.frame,
            mark: mark(sighting),
            flow,
            is_from_first,
            has_identification: sighting.identification.is_some_and(|number| number != 0),
        });
    }

    /// The smallest step of the file's clock, in nanoseconds.
    pub const fn set_resolution(&mut self, ns: u64) {
        self.resolution_ns = ns;
    }

    /// The same file with some of its packets only.
    #[cfg(test)]
    pub(super) fn only(&self, which: impl Fn(usize, &Seen) -> bool) -> Self {
        let kept = self.seen.iter().enumerate().filter(|(number, seen)| which(*number, seen));
        let seen = kept.map(|(_, seen)| *seen).collect();
        Self { flows: self.flows.clone(), ends: self.ends.clone(), seen, ..*self }
    }

    pub(super) fn flow_between(&self, ends: &(Address, Address)) -> Option<u32> {
        self.flows.get(ends).copied()
    }
}

pub(super) const fn mix(sum: u64, word: u64) -> u64 {
    let product = (sum.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

/// What a packet has alike at both places. A device that cuts a segment up or puts several together keeps all of
/// this of the first one; so neither the length is in it, nor flags of the last. Addresses aren't either: a
/// translator changes them.
fn mark(sighting: &Sighting) -> u64 {
    let Sighting { flags, payload, timestamps, .. } = *sighting;
    let has_data = payload > 0;
    let kept = SegmentFlags::SYN | SegmentFlags::RST | if has_data { 0 } else { SegmentFlags::FIN };
    let stamps = timestamps.map_or(0, |stamps| u64::from(stamps.value) << 32 | u64::from(stamps.echo));
    let rest = u64::from(sighting.identification.unwrap_or(0)) << 32
        | u64::from(sighting.window) << 16
        | u64::from(flags.0 & kept) << 8
        | u64::from(timestamps.is_some()) << 1
        | u64::from(has_data);
    let numbers = u64::from(sighting.sequence) << 32 | u64::from(sighting.acknowledgement);
    [numbers, stamps, rest].into_iter().fold(1, mix)
}
