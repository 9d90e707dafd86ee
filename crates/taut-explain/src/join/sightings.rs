//! What one file has of the connections, packet by packet, in bounded memory.

use std::collections::HashMap;
use std::ops::Range;

use taut_event::{Address, SackBlock, SegmentFlags, TimestampOption};
use taut_time::Instant;

/// So many packets of a file are kept; of 48 bytes each, that is 24 MiB.
pub const MOST_SIGHTINGS: usize = 1 << 19;
/// Copies of a packet in one file come so soon after each other, in nanoseconds.
pub(super) const SOON: u64 = 1_000_000;
/// Datagrams are told by so many bytes of their payload, or by the fewer ones if a file keeps no more.
const TOLD_BY: usize = 48;
const TOLD_BY_AT_LEAST: usize = 16;

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
    /// The first block that it acknowledges selectively.
    pub sack: Option<SackBlock>,
    /// It is a SYN whose sender understands selective acknowledgements.
    pub permits_sack: bool,
}

/// A datagram of UDP, as it stands in one file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DatagramSighting<'a> {
    /// When, on the clock of that file.
    pub at: Instant,
    /// Number of the packet in its file, from 1.
    pub frame: u64,
    /// Its sender.
    pub from: Address,
    /// Its receiver.
    pub to: Address,
    /// Bytes of payload.
    pub payload: u32,
    /// What was kept of the payload.
    pub kept: &'a [u8],
    /// Identification of the IPv4 header.
    pub identification: Option<u16>,
    /// What a question has alike with its answer, and with no other question of the same port.
    pub transaction: Option<u16>,
}

/// The ends of a flow, the smaller one first, and whether it is one of UDP.
pub(super) type FlowEnds = (Address, Address, bool);

/// The packets of one file, the first [`MOST_SIGHTINGS`] of them.
#[derive(Debug, Default)]
pub struct Sightings {
    flows: HashMap<FlowEnds, u32>,
    pub(super) ends: Vec<FlowEnds>,
    pub(super) seen: Vec<Seen>,
    /// Selective acknowledgements with the number of their segment, in order; as many as segments at most.
    pub(super) sacks: Vec<(u32, SackBlock)>,
    /// Transactions of datagrams with the number of their packet, in order.
    pub(super) transactions: Vec<(u32, u16)>,
    /// Packets that were not kept.
    pub(super) beyond: u64,
    /// Datagrams of which the file has too little to tell one from another.
    pub(super) cut: u64,
    /// Some datagrams can be told by the fewer bytes only.
    pub(super) is_short: bool,
    pub(super) resolution_ns: u64,
}

/// What is kept of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) at: u64,
    pub(super) frame: u64,
    /// What it has alike at both places, as one number.
    pub(super) mark: u64,
    pub(super) flow: u32,
    /// Whether it goes from the first of the flow's ends, which is the smaller one.
    pub(super) is_from_first: bool,
    /// Of the IPv4 header, if it has one: a host that sends it again gives it another. 0: none.
    pub(super) identification: u16,
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    /// Of its payload, SYN and FIN.
    pub(super) length: u32,
    pub(super) acknowledges: bool,
    pub(super) permits_sack: bool,
    /// A single byte may ask whether the peer is there, or its window open.
    pub(super) may_be_probe: bool,
    /// It is one of UDP: `sequence` and `acknowledgement` have the mark by the fewer bytes, `length` the payload.
    pub(super) is_datagram: bool,
}

impl Seen {
    /// Its mark, of datagrams by the fewer bytes or by all.
    pub(super) fn mark_by(&self, is_short: bool) -> u64 {
        if self.is_datagram && is_short {
            u64::from(self.sequence) << 32 | u64::from(self.acknowledgement)
        } else {
            self.mark
        }
    }
}

impl Sightings {
    /// None so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a segment, in the order of the file.
    pub fn add(&mut self, sighting: &Sighting) {
        let Some((flow, is_from_first)) = self.flow(sighting.from, sighting.to, false) else { return };
        let (flags, payload) = (sighting.flags, sighting.payload);
        let is_opening = flags.has(SegmentFlags::SYN);
        let ends_it = flags.has(SegmentFlags::FIN);
        if let Some(block) = sighting.sack {
            self.sacks.push((self.seen.len() as u32, block));
        }
        self.seen.push(Seen {
            at: sighting.at.as_nanos(),
            frame: sighting.frame,
            mark: mark(sighting),
            flow,
            is_from_first,
            identification: sighting.identification.unwrap_or(0),
            sequence: sighting.sequence,
            acknowledgement: sighting.acknowledgement,
            length: payload.saturating_add(u32::from(is_opening) + u32::from(ends_it)),
            acknowledges: flags.has(SegmentFlags::ACK),
            permits_sack: is_opening && sighting.permits_sack,
            may_be_probe: payload == 1 && !is_opening && !ends_it,
            is_datagram: false,
        });
    }

    /// Adds a datagram, in the order of the file.
    pub fn add_datagram(&mut self, sighting: &DatagramSighting<'_>) {
        let DatagramSighting { payload, kept, .. } = *sighting;
        let is_kept = |bytes: usize| kept.len() >= bytes.min(payload as usize);
        if !is_kept(TOLD_BY_AT_LEAST) {
            self.cut += 1;
            return;
        }
        let Some((flow, is_from_first)) = self.flow(sighting.from, sighting.to, true) else { return };
        self.is_short |= !is_kept(TOLD_BY);
        if let Some(transaction) = sighting.transaction {
            self.transactions.push((self.seen.len() as u32, transaction));
        }
        let identification = sighting.identification.unwrap_or(0);
        let mark = |bytes: usize| {
            let pieces = kept[..kept.len().min(bytes)].chunks(8);
            let words = pieces.map(|piece| piece.iter().fold(0_u64, |word, &byte| word << 8 | u64::from(byte)));
            words.fold(mix(2, identification.into()), mix)
        };
        let short = mark(TOLD_BY_AT_LEAST);
        self.seen.push(Seen {
            at: sighting.at.as_nanos(),
            frame: sighting.frame,
            mark: mark(TOLD_BY),
            flow,
            is_from_first,
            identification,
            sequence: (short >> 32) as u32,
            acknowledgement: short as u32,
            length: payload,
            acknowledges: false,
            permits_sack: false,
            may_be_probe: false,
            is_datagram: true,
        });
    }

    /// The flow of one more packet, and whether it comes from the first of its ends; none if there are too many.
    fn flow(&mut self, from: Address, to: Address, is_udp: bool) -> Option<(u32, bool)> {
        if self.seen.len() >= MOST_SIGHTINGS {
            self.beyond += 1;
            return None;
        }
        let is_from_first = from <= to;
        let (first, second) = if is_from_first { (from, to) } else { (to, from) };
        let ends = (first, second, is_udp);
        let next = self.ends.len() as u32;
        let flow = *self.flows.entry(ends).or_insert(next);
        if flow == next {
            self.ends.push(ends);
        }
        Some((flow, is_from_first))
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
        let (flows, ends) = (self.flows.clone(), self.ends.clone());
        Self { flows, ends, sacks: Vec::new(), transactions: Vec::new(), seen, ..*self }
    }

    /// Whether the file has most of its packets twice, as a capture of all interfaces does. Where packets have no
    /// identification, this tells copies from repetitions: nobody repeats half of what it sends within [`SOON`].
    pub(super) fn is_doubled(&self) -> bool {
        // An echo is no copy: it goes the other way.
        let place = |seen: &Seen| u64::from(seen.flow) << 1 | u64::from(seen.is_from_first);
        let mut marks: Vec<(u64, u64)> = self.seen.iter().map(|seen| (mix(seen.mark, place(seen)), seen.at)).collect();
        marks.sort_unstable();
        let is_copied = |group: &[(u64, u64)]| group.len() > 1 && group[1].1 - group[0].1 < SOON;
        let (mut copied, mut all) = (0, 0);
        for group in marks.chunk_by(|one, next| one.0 == next.0) {
            all += 1;
            copied += usize::from(is_copied(group));
        }
        2 * copied > all
    }

    pub(super) fn flow_between(&self, ends: &FlowEnds) -> Option<u32> {
        self.flows.get(ends).copied()
    }

    /// All its packets, by number.
    pub(super) fn numbers(&self) -> Range<u32> {
        0..self.seen.len() as u32
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
    // Acknowledgements that differ in nothing else have different blocks.
    let block = sighting.sack.map_or(0, |block| u64::from(block.from) << 32 | u64::from(block.to));
    [numbers, stamps, rest, block].into_iter().fold(1, mix)
}
