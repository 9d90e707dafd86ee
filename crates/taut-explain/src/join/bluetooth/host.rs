//! What a host's log has of its links.

use taut_event::ByteSum;

use super::pdu::Pdu;

/// Length and channel, before each L2CAP PDU.
const HEADER: u32 = 4;

/// What a packet has of a PDU.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    /// Its bytes, as far as they were kept.
    Bytes(&'a [u8]),
    /// How long the PDU is that it begins, with the header of L2CAP, and the sum of the PDU's bytes so far; 0 where
    /// that is not known.
    Sum { pdu: u32, sum: u64 },
}

impl Content<'_> {
    /// Bytes of the PDU that it begins, with the header.
    fn pdu(self) -> Option<u32> {
        match self {
            Content::Bytes(&[low, high, ..]) => Some(u32::from(u16::from_le_bytes([low, high])) + HEADER),
            Content::Bytes(_) => None,
            Content::Sum { pdu, .. } => Some(pdu).filter(|pdu| *pdu > 0),
        }
    }
}

/// An L2CAP PDU of which more is to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished {
    pdu: Pdu,
    hash: ByteSum,
    is_cut: bool,
    left: usize,
}

/// What one direction of a link has under way.
#[derive(Debug, Default)]
pub(super) struct HostWay {
    pub(super) unfinished: Option<Unfinished>,
    /// Something may have passed unseen.
    pub(super) has_hole: bool,
}

impl HostWay {
    /// A packet with so many bytes of data; the PDU that it ends.
    pub(super) fn part(
        &mut self,
        (at, frame): (u64, u64),
        begins: bool,
        content: Content<'_>,
        length: usize,
    ) -> Option<Pdu> {
        let before = self.unfinished.take();
        if begins {
            self.has_hole |= before.is_some();
        }
        let mut pdu = match (begins, before, content.pdu()) {
            (true, _, Some(whole)) => Unfinished {
                pdu: Pdu {
                    begin: at,
                    frames: [frame; 2],
                    length: whole,
                    is_after_hole: std::mem::take(&mut self.has_hole),
                    ..Pdu::default()
                },
                hash: ByteSum::NEW,
                is_cut: false,
                left: whole as usize,
            },
            (false, Some(before), _) => before,
            _ => {
                self.has_hole = true;
                return None;
            }
        };
        let Some(left) = pdu.left.checked_sub(length) else {
            self.has_hole = true;
            return None;
        };
        pdu.left = left;
        match content {
            Content::Bytes(kept) => {
                pdu.is_cut |= kept.len() < length;
                pdu.hash.add(kept);
            }
            Content::Sum { sum, .. } => {
                pdu.is_cut |= sum == 0;
                pdu.hash = ByteSum::of_value(sum);
            }
        }
        (pdu.pdu.last, pdu.pdu.end, pdu.pdu.frames[1]) = (at, at, frame);
        if left > 0 {
            self.unfinished = Some(pdu);
            return None;
        }
        pdu.pdu.hash = if pdu.is_cut { 0 } else { pdu.hash.value() };
        Some(pdu.pdu)
    }
}
