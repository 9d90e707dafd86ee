//! What one file has of links of Bluetooth, in bounded memory.

use std::collections::VecDeque;

use super::air::AirLink;
use super::host::Unfinished;

/// So many L2CAP PDUs of a file are kept, of 96 bytes each.
pub(super) const MOST_PDUS: usize = 1 << 17;
/// So many PDUs on the air, of 16 bytes each.
pub(super) const MOST_AIR_PDUS: usize = 1 << 19;
/// So many links are followed, those that are over too.
pub(super) const MOST_LINKS: usize = 64;

/// An L2CAP PDU as it passed one place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pdu {
    /// Its first part was handed over, or began on the air.
    pub(super) begin: u64,
    /// Its last part was.
    pub(super) last: u64,
    /// Its last part was there: it had come to the host, or ended on the air when the receiver took it. Where that is
    /// not known, when it first ended there.
    pub(super) end: u64,
    /// The controller was through with it, or the answer that acknowledged its last part ended; 0: not known.
    pub(super) done: u64,
    /// The packets of its first and its last part.
    pub(super) frames: [u64; 2],
    /// The packet that told that it was through.
    pub(super) done_frame: u64,
    /// Of all its bytes, with the header of L2CAP; 0: they are not known.
    pub(super) hash: u64,
    /// Bytes, with the header of L2CAP.
    pub(super) length: u32,
    /// Parts that were sent again on the air.
    pub(super) repeats: u32,
    /// Another one may have passed unseen before it.
    pub(super) is_after_hole: bool,
}

/// A link at one place.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// Of the air: what only a sniffer has.
    pub(super) air: Option<Box<AirLink>>,
    /// Whether the log's host is its central.
    pub(super) is_central: Option<bool>,
    pub(super) is_classic: bool,
    /// Of a host's log the peer's address; of the air that of central and peripheral. Last byte first.
    pub(super) peer: Option<[u8; 6]>,
    pub(super) ends: Option<[[u8; 6]; 2]>,
    /// Its begin was seen.
    pub(super) from_start: bool,
    /// What it carried: sent and received by the log's host; of the air what the central and the peripheral sent.
    pub(super) ways: [Vec<Pdu>; 2],
    pub(super) unfinished: [Option<Unfinished>; 2],
    /// Something may have passed unseen.
    pub(super) has_hole: [bool; 2],
    /// Packets that the controller has; of those that end a PDU, its number.
    pub(super) in_controller: VecDeque<Option<u32>>,
    /// What the controller has is not known.
    pub(super) is_adrift: bool,
}

impl Link {
    pub(super) const fn is_air(&self) -> bool {
        self.air.is_some()
    }
}

/// The links of one file, the first [`MOST_PDUS`] L2CAP PDUs of them.
#[derive(Debug, Default)]
pub struct Crossings {
    pub(super) links: Vec<Link>,
    /// Which links are there, by adapter and handle, or by number of the flow.
    pub(super) open: Vec<(u64, usize)>,
    pub(super) kept: usize,
    pub(super) kept_on_air: usize,
    /// PDUs, or packets of links, that were not kept.
    pub(super) beyond: u64,
    pub(super) resolution_ns: u64,
}

impl Crossings {
    /// None so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is a link.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// The smallest step of the file's clock, in nanoseconds.
    pub const fn set_resolution(&mut self, ns: u64) {
        self.resolution_ns = ns;
    }

    /// Nothing more comes.
    pub fn finish(&mut self) {
        for link in &mut self.links {
            self.kept += link.finish();
        }
        self.open.clear();
    }

    pub(super) fn opened(&mut self, key: u64, link: Link) -> Option<usize> {
        self.over(key);
        if self.links.len() == MOST_LINKS {
            self.beyond += 1;
            return None;
        }
        self.links.push(link);
        self.open.push((key, self.links.len() - 1));
        Some(self.links.len() - 1)
    }

    pub(super) fn find(&self, key: u64) -> Option<usize> {
        self.open.iter().find(|(known, _)| *known == key).map(|(_, index)| *index)
    }

    pub(super) fn over(&mut self, key: u64) {
        if let Some(place) = self.open.iter().position(|(known, _)| *known == key) {
            let (_, index) = self.open.remove(place);
            self.kept += self.links[index].finish();
        }
    }
}

impl Link {
    /// Nothing more comes. So many PDUs became whole by that.
    fn finish(&mut self) -> usize {
        self.unfinished = [None; 2];
        self.in_controller = VecDeque::new();
        let before = self.ways[0].len() + self.ways[1].len();
        if let Some(mut air) = self.air.take() {
            air.finish(&mut self.ways);
            self.air = Some(air);
        }
        self.ways[0].len() + self.ways[1].len() - before
    }
}

/// Of bytes that come in parts: the same however they are cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(u64);

impl Hash {
    pub(super) const NEW: Self = Self(0xcbf2_9ce4_8422_2325);

    /// FNV-1a (Fowler, Noll, Vo), of 64 bits.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    }

    /// Never 0.
    pub(super) const fn value(self) -> u64 {
        if self.0 == 0 { 1 } else { self.0 }
    }
}
