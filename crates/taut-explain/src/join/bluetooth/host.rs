//! What a host's log has of its links.

use super::pdu::{Hash, Pdu};

/// Length and channel, before each L2CAP PDU.
const HEADER: usize = 4;
/// An L2CAP PDU of which more is to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished {
    pdu: Pdu,
    hash: Hash,
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
    /// A packet; the PDU that it ends.
    pub(super) fn part(&mut self, (at, frame): (u64, u64), begins: bool, kept: &[u8], length: usize) -> Option<Pdu> {
        let before = self.unfinished.take();
        if begins {
            self.has_hole |= before.is_some();
        }
        let mut pdu = match (begins, before, kept) {
            (true, _, &[low, high, ..]) => Unfinished {
                pdu: Pdu {
                    begin: at,
                    frames: [frame; 2],
                    length: u32::from(u16::from_le_bytes([low, high])) + HEADER as u32,
                    is_after_hole: std::mem::take(&mut self.has_hole),
                    ..Pdu::default()
                },
                hash: Hash::NEW,
                is_cut: false,
                left: usize::from(u16::from_le_bytes([low, high])) + HEADER,
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
        pdu.is_cut |= kept.len() < length;
        pdu.hash.add(kept);
        (pdu.pdu.last, pdu.pdu.end, pdu.pdu.frames[1]) = (at, at, frame);
        if left > 0 {
            self.unfinished = Some(pdu);
            return None;
        }
        pdu.pdu.hash = if pdu.is_cut { 0 } else { pdu.hash.value() };
        Some(pdu.pdu)
    }
}
