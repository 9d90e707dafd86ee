//! What a host's log has of its links.

use taut_time::Instant;

use super::crossings::{Crossings, Hash, Link, MOST_PDUS, Pdu};

/// Length and channel, before each L2CAP PDU.
const HEADER: usize = 4;
/// So many packets in a controller are remembered.
const MOST_IN_CONTROLLER: usize = 4096;

/// An L2CAP PDU of which more is to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished {
    pdu: Pdu,
    hash: Hash,
    is_cut: bool,
    left: usize,
}

const fn key((adapter, handle): (u16, u16)) -> u64 {
    (adapter as u64) << 16 | handle as u64
}

/// Which link it is: its adapter and its handle.
pub type HostLink = (u16, u16);

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
            let link = &mut self.links[index];
            link.has_hole = [true; 2];
            link.unfinished = [None; 2];
            link.in_controller.clear();
            link.is_adrift = true;
        }
    }

    /// An ACL packet of `length` bytes, of which `kept` were, in the order of the file.
    pub fn acl(
        &mut self,
        (at, frame): (Instant, u64),
        link: HostLink,
        is_received: bool,
        begins: bool,
        kept: &[u8],
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
        let whole = link.part((at.as_nanos(), frame), way, begins, kept, length);
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

impl Link {
    /// A packet; the PDU that it ends.
    fn part(&mut self, (at, frame): (u64, u64), way: usize, begins: bool, kept: &[u8], length: usize) -> Option<Pdu> {
        let before = self.unfinished[way].take();
        if begins {
            self.has_hole[way] |= before.is_some();
        }
        let mut pdu = match (begins, before, kept) {
            (true, _, &[low, high, ..]) => Unfinished {
                pdu: Pdu {
                    begin: at,
                    frames: [frame; 2],
                    length: u32::from(u16::from_le_bytes([low, high])) + HEADER as u32,
                    is_after_hole: std::mem::take(&mut self.has_hole[way]),
                    ..Pdu::default()
                },
                hash: Hash::NEW,
                is_cut: false,
                left: usize::from(u16::from_le_bytes([low, high])) + HEADER,
            },
            (false, Some(before), _) => before,
            _ => {
                self.has_hole[way] = true;
                return None;
            }
        };
        let Some(left) = pdu.left.checked_sub(length) else {
            self.has_hole[way] = true;
            return None;
        };
        pdu.left = left;
        pdu.is_cut |= kept.len() < length;
        pdu.hash.add(kept);
        (pdu.pdu.last, pdu.pdu.end, pdu.pdu.frames[1]) = (at, at, frame);
        if left > 0 {
            self.unfinished[way] = Some(pdu);
            return None;
        }
        pdu.pdu.hash = if pdu.is_cut { 0 } else { pdu.hash.value() };
        Some(pdu.pdu)
    }
}
