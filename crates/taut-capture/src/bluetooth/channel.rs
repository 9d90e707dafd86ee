//! An L2CAP channel as its ACL packets pass.

use taut_event::{Acl, Channel as Kind, FlowId, L2cap, Turn};
use taut_time::ByteRange;

use super::att::Attributes;
use super::rfcomm::Connection;

/// The SPSM of enhanced ATT bearers (Assigned Numbers, section 2.5).
const EATT: u16 = 0x27;

/// A channel that is followed.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) flow: FlowId,
    pub(super) adapter: u16,
    pub(super) handle: u16,
    pub(super) kind: Kind,
    /// Its identifier at the receiver of each direction; `None`: not seen.
    pub(super) cids: [Option<u16>; 2],
    /// Bytes that the SDU under way still lacks, by direction.
    sdu_left: [usize; 2],
    /// Whether an SDU's length was not kept, by direction: where SDUs end is not known from then on.
    is_endless: [bool; 2],
    /// Whether PDUs were lost, by direction: where an SDU begins is not known until one shows that it is a whole one.
    is_adrift: [bool; 2],
    /// Bytes of the program so far, by direction.
    position: [u64; 2],
    /// Number of its last packet.
    pub(super) last: u64,
    /// Of RFCOMM: what is multiplexed on it.
    pub(super) connections: Vec<Connection>,
    /// The longest SDU by direction; 0: not known.
    pub(super) mtu: [u16; 2],
    /// Of BR/EDR: whether its receiver's wish was agreed to, and whether all that was told.
    pub(super) is_agreed: [bool; 2],
    pub(super) is_told: bool,
    /// Whether it does not retransmit.
    pub(super) is_basic: bool,
    /// Of media: the endpoints of its stream.
    pub(super) stream: Option<[u8; 2]>,
    /// Of a bearer of the attribute protocol, and where its PDU begins in the packet that came last.
    attributes: Attributes,
    att_at: Option<usize>,
}

/// A part of a PDU, without its L2CAP header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) bytes: &'a [u8],
    /// So many of them were kept.
    pub(super) kept: usize,
    /// With the header.
    pub(super) length: u16,
    pub(super) begins: bool,
    /// Bytes of the PDU that are still to come.
    pub(super) left: usize,
}

impl Part<'_> {
    /// Whether it begins an SDU that is in one PDU, by what the first two bytes say: in the middle of one they are
    /// any two.
    fn begins_whole_sdu(&self) -> bool {
        let said = self.bytes.first_chunk::<2>().filter(|two| self.begins && self.kept >= two.len());
        said.is_some_and(|two| usize::from(u16::from_le_bytes(*two)) + two.len() == self.bytes.len() + self.left)
    }
}

impl Channel {
    pub(super) const fn new(flow: FlowId, adapter: u16, handle: u16, kind: Kind, cids: [Option<u16>; 2]) -> Self {
        Self {
            flow,
            adapter,
            handle,
            kind,
            cids,
            sdu_left: [0; 2],
            is_endless: [false; 2],
            is_adrift: [false; 2],
            position: [0; 2],
            last: 0,
            connections: Vec::new(),
            mtu: [0; 2],
            is_agreed: [false; 2],
            is_told: false,
            is_basic: true,
            stream: None,
            attributes: Attributes::NEW,
            att_at: None,
        }
    }

    /// Packets of it are not in the log.
    pub(super) fn lost(&mut self) {
        (self.sdu_left, self.is_adrift) = ([0; 2], [true; 2]);
        for above in &mut self.connections {
            above.stops = [[false; 2]; 2];
            if above.is_opening {
                above.has_credits = None;
            }
        }
    }

    /// Whether PDUs before it are missing, though nothing says so: its SDU would end before it does, or would be longer
    /// than the channel takes.
    pub(super) fn lacks_before(&self, way: usize, part: &Part<'_>) -> bool {
        let is_followed = !self.is_adrift[way] && !self.is_endless[way] && part.begins && part.kept >= 2;
        if !matches!(self.kind, Kind::CreditBased(_)) || !is_followed {
            return false;
        }
        let said = part.bytes.first_chunk().map_or(0, |two| u16::from_le_bytes(*two));
        match self.sdu_left[way] {
            0 => self.mtu[way] > 0 && said > self.mtu[way],
            left => part.bytes.len() + part.left > left,
        }
    }

    /// The packet, and which bytes of the program are in it.
    pub(super) fn packet(&mut self, way: usize, part: &Part<'_>) -> (Acl, ByteRange) {
        let mut length = part.bytes.len();
        let is_att = matches!(self.kind, Kind::Att | Kind::CreditBased(EATT));
        // Where the packet's opcode stands, if it is of ATT.
        let mut opcode_at = (is_att && part.begins).then_some(0);
        let mut ends_sdu = part.left == 0;
        let is_credit_based = matches!(self.kind, Kind::CreditBased(_));
        self.is_adrift[way] &= is_credit_based && !part.begins_whole_sdu();
        if self.is_adrift[way] {
            (opcode_at, ends_sdu) = (None, false);
        } else if is_credit_based {
            let left = &mut self.sdu_left[way];
            if part.begins && *left == 0 {
                // The first PDU of an SDU begins with the SDU's length (Core Specification, Vol 3, Part A,
                // section 3.4.3).
                if let Some(two) = part.bytes.first_chunk::<2>() {
                    opcode_at = opcode_at.map(|_| two.len());
                    self.is_endless[way] |= part.kept < two.len();
                    *left = u16::from_le_bytes(*two).into();
                    length -= two.len();
                }
            }
            // The rest of an SDU has no opcode.
            opcode_at = opcode_at.filter(|&at| at > 0);
            *left = left.saturating_sub(length);
            ends_sdu &= *left == 0 && !self.is_endless[way];
        }
        self.att_at = opcode_at;
        let begin = self.position[way];
        self.position[way] += length as u64;
        let turn = match opcode_at.map(|at| (at, part.bytes.get(at))) {
            Some((at, Some(_))) if part.kept <= at => Turn::NotKnown,
            Some((_, Some(&opcode))) => turn(opcode),
            _ => Turn::Free,
        };
        let acl = Acl { length: part.length, begins_pdu: part.begins, ends_sdu, turn };
        (acl, ByteRange::new(begin, self.position[way]))
    }
}

impl Channel {
    /// What the packet that came last tells of attributes, if it begins a PDU of theirs.
    pub(super) fn attributes(&mut self, way: usize, part: &Part<'_>, mut tell: impl FnMut(L2cap)) {
        let Some(at) = self.att_at.take() else { return };
        let Some(kept) = part.bytes.get(at..part.kept.min(part.bytes.len())) else { return };
        // On a credit-based channel it is an SDU, of which more PDUs may follow.
        let left = if matches!(self.kind, Kind::CreditBased(_)) { self.sdu_left[way] } else { part.left };
        let whole = part.bytes.len() - at + left;
        let att = self.attributes.read(way, kept, whole, |one| tell(L2cap::Characteristic(one)));
        if let Some(att) = att {
            tell(L2cap::Att(att));
        }
    }
}

/// Requests and indications wait for what comes after them in the same transaction (Vol 3, Part F, section 3.3).
const fn turn(opcode: u8) -> Turn {
    match opcode {
        0x02 | 0x04 | 0x06 | 0x08 | 0x0a | 0x0c | 0x0e | 0x10 | 0x12 | 0x16 | 0x18 | 0x20 => Turn::Asks,
        0x01 | 0x03 | 0x05 | 0x07 | 0x09 | 0x0b | 0x0d | 0x0f | 0x11 | 0x13 | 0x17 | 0x19 | 0x21 => Turn::Answers,
        0x1d => Turn::Indicates,
        0x1e => Turn::Confirms,
        _ => Turn::Free,
    }
}
