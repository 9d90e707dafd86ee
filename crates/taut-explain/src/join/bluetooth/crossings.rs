//! What one file has of links of Bluetooth, in bounded memory.

use std::collections::VecDeque;

use taut_event::{Direction, LePdu};
use taut_time::Instant;

use super::air::{AirLink, OnAir};
use super::host::{Content, HostWay};
use super::pdu::{MOST_AIR_PDUS, MOST_LINKS, MOST_PDUS, Pdu};

/// So many packets in a controller are remembered.
const MOST_IN_CONTROLLER: usize = 4096;

/// Flows of the air have numbers of their own.
const AIR: u64 = 1 << 63;

/// A link at one place.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// Of the air: what only a sniffer has.
    pub(super) air: Option<Box<AirLink>>,
    /// Whether the log's host is its central.
    pub(super) is_central: Option<bool>,
    /// Its adapter and handle, or the number of its flow.
    pub(super) key: u64,
    pub(super) is_classic: bool,
    /// Of a host's log the peer's address; of the air that of central and peripheral. Last byte first.
    pub(super) peer: Option<[u8; 6]>,
    pub(super) ends: Option<[[u8; 6]; 2]>,
    /// Its begin was seen.
    pub(super) from_start: bool,
    /// What it carried: sent and received by the log's host; of the air what the central and the peripheral sent.
    pub(super) ways: [Vec<Pdu>; 2],
    pub(super) under_way: [HostWay; 2],
    /// Packets that the controller has; of those that end a PDU, its number.
    pub(super) in_controller: VecDeque<Option<u32>>,
    /// What the controller has is not known.
    pub(super) is_adrift: bool,
}

impl Link {
    pub(super) const fn is_air(&self) -> bool {
        self.air.is_some()
    }

    /// Of a host's log, the adapter and the handle.
    pub(super) const fn host(&self) -> HostLink {
        ((self.key >> 16) as u16, self.key as u16)
    }
}

/// The links of one file, the first 131,072 L2CAP PDUs of them.
#[derive(Debug, Default)]
pub struct Crossings {
    pub(super) links: Vec<Link>,
    /// Which links are there, by adapter and handle, or by number of the flow.
    pub(super) open: Vec<(u64, usize)>,
    pub(super) kept: usize,
    pub(super) kept_on_air: usize,
    /// PDUs, or packets of links, that were not kept.
    pub(super) beyond: u64,
    /// Packets of links without a time.
    pub(super) timeless: u64,
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

    /// Moves all times of a host's log.
    pub(super) fn shift(&mut self, by_ns: i64) {
        let known = |at: &&mut u64| **at > 0;
        for pdu in self.links.iter_mut().flat_map(|link| &mut link.ways).flatten() {
            let times = [&mut pdu.begin, &mut pdu.last, &mut pdu.end, &mut pdu.done];
            times.into_iter().filter(known).for_each(|at| *at = at.wrapping_add_signed(by_ns));
        }
    }

    pub(super) fn opened(&mut self, key: u64, link: Link) -> Option<usize> {
        self.over(key);
        if self.links.len() == MOST_LINKS {
            self.beyond += 1;
            return None;
        }
        self.links.push(Link { key, ..link });
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
    /// Packets of the log were lost.
    pub(super) fn lost(&mut self) {
        self.under_way = [true; 2].map(|has_hole| HostWay { has_hole, ..HostWay::default() });
        self.in_controller.clear();
        self.is_adrift = true;
    }

    /// Nothing more comes. So many PDUs became whole by that.
    fn finish(&mut self) -> usize {
        self.under_way = Default::default();
        self.in_controller = VecDeque::new();
        let before = self.ways[0].len() + self.ways[1].len();
        if let Some(mut air) = self.air.take() {
            air.finish(&mut self.ways);
            self.air = Some(air);
        }
        self.ways[0].len() + self.ways[1].len() - before
    }
}

/// Which link it is: its adapter and its handle.
pub type HostLink = (u16, u16);

pub(super) const fn key((adapter, handle): (u16, u16)) -> u64 {
    (adapter as u64) << 16 | handle as u64
}

impl Crossings {
    /// The host's log has a link's begin. `is_central` is `None` on BR/EDR; addresses have their last byte first.
    pub fn connected(&mut self, link: HostLink, is_central: Option<bool>, peer: [u8; 6]) {
        let is_classic = is_central.is_none();
        let new = Link { is_central, is_classic, peer: Some(peer), from_start: true, ..Link::default() };
        self.opened(key(link), new);
    }

    /// The link is over.
    pub fn disconnected(&mut self, link: HostLink) {
        self.over(key(link));
    }

    /// The controller began anew, without links.
    pub fn reset(&mut self, adapter: u16) {
        let of: Vec<u64> =
            self.open.iter().map(|(key, _)| *key).filter(|key| key >> 16 == u64::from(adapter)).collect();
        of.into_iter().for_each(|key| self.over(key));
    }

    /// Packets of the log were lost.
    pub fn lost(&mut self) {
        for &(_, index) in &self.open {
            self.links[index].lost();
        }
    }

    /// A packet of the log has no time, which is as if it had been lost.
    pub fn timeless(&mut self) {
        self.timeless += 1;
        self.lost();
    }

    /// The same of one link.
    pub(super) fn lost_of(&mut self, link: HostLink) {
        if let Some(index) = self.find(key(link)) {
            self.links[index].lost();
        }
    }

    /// An ACL packet of `length` bytes, of which `kept` were, in the order of the file.
    pub fn acl(
        &mut self,
        place: (Instant, u64),
        link: HostLink,
        is_received: bool,
        begins: bool,
        kept: &[u8],
        length: usize,
    ) {
        self.part(place, link, is_received, begins, Content::Bytes(kept), length);
    }

    /// An ACL packet of `length` bytes, in the order of the file.
    pub(super) fn part(
        &mut self,
        (at, frame): (Instant, u64),
        link: HostLink,
        is_received: bool,
        begins: bool,
        content: Content<'_>,
        length: usize,
    ) {
        // What controllers still have when a log begins is not known.
        let new = || Link { is_adrift: true, ..Link::default() };
        let Some(index) = self.find(key(link)).or_else(|| self.opened(key(link), new())) else { return };
        if self.kept >= MOST_PDUS {
            self.beyond += 1;
            return;
        }
        let link = &mut self.links[index];
        let way = usize::from(is_received);
        let whole = link.under_way[way].part((at.as_nanos(), frame), begins, content, length);
        let number = whole.map(|pdu| {
            link.ways[way].push(pdu);
            self.kept += 1;
            link.ways[way].len() as u32 - 1
        });
        if !is_received {
            if link.in_controller.len() == MOST_IN_CONTROLLER {
                link.in_controller.pop_front();
            }
            link.in_controller.push_back(number);
        }
    }

    /// The controller told that it is through with the oldest packets.
    pub fn completed(&mut self, (at, frame): (Instant, u64), link: HostLink, packets: u16) {
        let Some(index) = self.find(key(link)) else { return };
        let link = &mut self.links[index];
        let count = usize::from(packets).min(link.in_controller.len());
        let is_adrift = link.is_adrift;
        for number in link.in_controller.drain(..count).flatten().filter(|_| !is_adrift) {
            let pdu = &mut link.ways[0][number as usize];
            (pdu.done, pdu.done_frame) = (at.as_nanos(), frame);
        }
        // It had packets from before, and has none now.
        link.is_adrift &= usize::from(packets) <= count;
    }
}

impl Crossings {
    /// A sniffer follows a link from now on. The addresses are those of central and peripheral.
    pub fn air_link(&mut self, flow: u32, ends: Option<[[u8; 6]; 2]>) {
        let air = Some(Box::default());
        self.opened(AIR | u64::from(flow), Link { air, ends, from_start: ends.is_some(), ..Link::default() });
    }

    /// Nothing more comes of a link on the air.
    pub fn air_over(&mut self, flow: u32) {
        self.over(AIR | u64::from(flow));
    }

    /// The link is encrypted from now on, or known not to be.
    pub fn air_encrypted(&mut self, flow: u32, is_encrypted: bool) {
        let Some(index) = self.find(AIR | u64::from(flow)) else { return };
        if let Some(air) = &mut self.links[index].air {
            air.is_encrypted = is_encrypted;
        }
    }

    /// A PDU of a link, in the order of the file.
    pub fn air_pdu(&mut self, (at, frame): (Instant, u64), flow: u32, way: Direction, pdu: &LePdu, on_air: OnAir<'_>) {
        let Some(index) = self.find(AIR | u64::from(flow)) else { return };
        if self.kept_on_air >= MOST_AIR_PDUS || self.kept >= MOST_PDUS {
            self.beyond += 1;
            return;
        }
        self.kept_on_air += 1;
        let Link { air, ways, .. } = &mut self.links[index];
        let Some(air) = air else { return };
        let before = ways[0].len() + ways[1].len();
        air.pdu((at.as_nanos(), frame), way.index(), pdu, on_air, ways);
        self.kept += ways[0].len() + ways[1].len() - before;
    }
}
