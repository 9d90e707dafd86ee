//! What a sniffer's capture has of its links: L2CAP PDUs with their repetitions and acknowledgements, and each PDU on
//! the air.

use taut_event::{ByteSum, LeHeader, LePdu};

use super::pdu::Pdu;

/// Length and channel, before each L2CAP PDU.
const HEADER: u32 = 4;
/// Behind each PDU that is encrypted (Core Specification, Vol 6, Part B, section 2.4).
const MIC: usize = 4;

/// A PDU on the air.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) at: u64,
    pub(super) air_ns: u32,
    pub(super) marks: u16,
}

/// Marks of a PDU on the air.
impl Slot {
    /// The peripheral sent it.
    pub(super) const BACKWARD: u16 = 1;
    /// It carries a part of an L2CAP PDU.
    pub(super) const DATA: u16 = 2;
    /// It was sent before.
    pub(super) const REPEAT: u16 = 4;
    /// It is the first of its connection event.
    pub(super) const BEGINS: u16 = 8;
    /// Something may have passed unseen before it.
    pub(super) const HOLE: u16 = 16;
    /// It acknowledges what the other side sent last.
    pub(super) const ACKNOWLEDGES: u16 = 32;

    pub(super) const fn has(&self, mark: u16) -> bool {
        self.marks & mark != 0
    }

    pub(super) const fn end(&self) -> u64 {
        self.at.saturating_add(self.air_ns as u64)
    }
}

/// A link on the air.
#[derive(Debug, Default)]
pub(super) struct AirLink {
    pub(super) slots: Vec<Slot>,
    /// Their packets.
    frames: Vec<u32>,
    sides: [Side; 2],
    pub(super) is_encrypted: bool,
}

/// What one side sends.
#[derive(Clone, Debug, Default)]
struct Side {
    /// The newest PDU whose CRC was right.
    last: Option<(LeHeader, u32)>,
    /// So many PDUs since that may have passed unseen.
    unseen: u32,
    has_hole: bool,
    current: Option<Part>,
    whole: Option<Whole>,
}

/// The PDU that waits for its acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Part {
    begin: u64,
    end: u64,
    acknowledged: u64,
    /// The packet that acknowledged it.
    acknowledged_by: u64,
    /// The answer asked for it once more.
    is_refused: bool,
    /// An answer was not seen.
    is_unsure: bool,
    sn: bool,
    repeats: u32,
    frame: u64,
    continues: bool,
    /// It carries data, and not control.
    is_data: bool,
    is_encrypted: bool,
    is_after_hole: bool,
    length: u32,
    /// The first two bytes, that of L2CAP's length in a PDU that begins one.
    first: Option<u16>,
}

/// An L2CAP PDU whose parts are gathered.
#[derive(Clone, Copy, Debug)]
struct Whole {
    pdu: Pdu,
    parts: u32,
    told: Option<u16>,
    /// With and without what may be a MIC at the end of each part.
    hashes: [ByteSum; 2],
    is_cut: bool,
    /// What stands there is cipher text.
    is_sealed: bool,
    is_deciphered: bool,
}

/// The payload of a PDU on the air.
#[derive(Clone, Copy, Debug)]
pub struct OnAir<'a> {
    /// As far as it was kept.
    pub payload: &'a [u8],
    /// It was encrypted, and deciphered by the sniffer.
    pub is_deciphered: bool,
}

impl AirLink {
    pub(super) fn pdu(
        &mut self,
        (at, frame): (u64, u64),
        way: usize,
        pdu: &LePdu,
        on_air: OnAir<'_>,
        ways: &mut [Vec<Pdu>; 2],
    ) {
        let end = at.saturating_add(pdu.air_ns.into());
        let is_gap = pdu.is_after_hole || pdu.unseen_events > 0;
        if is_gap {
            self.sides.iter_mut().for_each(|side| side.unseen(2));
        }
        let mut slot = Slot { at, air_ns: pdu.air_ns, marks: if way == 1 { Slot::BACKWARD } else { 0 } };
        slot.marks |= if pdu.begins_event { Slot::BEGINS } else { 0 };
        slot.marks |= if is_gap { Slot::HOLE } else { 0 };
        let Some(header) = pdu.header else {
            // It may have been anything, an acknowledgement too.
            self.sides[way].unseen(1);
            self.sides[1 - way].is_unsure();
            slot.marks |= Slot::HOLE;
            self.push(slot, frame);
            return;
        };
        if self.sides[1 - way].answered((end, frame), header.nesn) {
            slot.marks |= Slot::ACKNOWLEDGES;
        }
        let side = &mut self.sides[way];
        let before = side.last.replace((header, pdu.hash)).filter(|(before, _)| before.sn == header.sn);
        let is_repeat = before.is_some_and(|(before, hash)| (before.length, hash) == (header.length, pdu.hash));
        let unseen = std::mem::take(&mut side.unseen);
        // The next number after one PDU that was not read: that was this one, or the one before.
        let is_lost = unseen > 1 || unseen == 1 && before.is_some();
        let is_passed_over = before.is_some_and(|(before, _)| !is_repeat && before.length > 0);
        let is_repeat = is_repeat && !is_lost;
        if is_lost || is_passed_over {
            side.lose(&mut ways[way]);
            slot.marks |= Slot::HOLE;
        }
        let is_data = header.length > 0 && !header.is_control;
        slot.marks |= if is_data { Slot::DATA } else { 0 };
        if is_repeat && header.length > 0 {
            slot.marks |= Slot::REPEAT;
            side.repeated(end);
        } else if !is_repeat {
            side.next(&mut ways[way]);
            if header.length > 0 {
                let first = on_air.payload.first_chunk().map(|two| u16::from_le_bytes(*two));
                let part = Part {
                    begin: at,
                    end,
                    acknowledged: 0,
                    acknowledged_by: 0,
                    is_refused: false,
                    is_unsure: false,
                    sn: header.sn,
                    repeats: 0,
                    frame,
                    continues: header.continues,
                    is_data,
                    is_encrypted: self.is_encrypted,
                    is_after_hole: is_data && std::mem::take(&mut side.has_hole),
                    length: header.length.into(),
                    first,
                };
                side.begins(part, on_air, &mut ways[way]);
            }
        }
        self.push(slot, frame);
    }

    fn push(&mut self, slot: Slot, frame: u64) {
        self.slots.push(slot);
        self.frames.push(u32::try_from(frame).unwrap_or(u32::MAX));
    }

    /// Of its PDUs those of some packets, which are in order.
    pub(super) fn slots_of(&self, frames: [u64; 2]) -> &[Slot] {
        let place = |is_before: &dyn Fn(u64) -> bool| self.frames.partition_point(|frame| is_before((*frame).into()));
        let (from, to) = (place(&|frame| frame < frames[0]), place(&|frame| frame <= frames[1]));
        self.slots.get(from..to).unwrap_or_default()
    }

    pub(super) fn finish(&mut self, ways: &mut [Vec<Pdu>; 2]) {
        for (side, way) in self.sides.iter_mut().zip(ways) {
            side.next(way);
            side.close(way);
        }
    }
}

impl Side {
    fn unseen(&mut self, count: u32) {
        self.unseen = self.unseen.saturating_add(count);
        self.is_unsure();
    }

    fn is_unsure(&mut self) {
        if let Some(part) = self.current.as_mut().filter(|part| part.acknowledged == 0) {
            part.is_unsure = true;
        }
    }

    /// A PDU of the other side; whether it acknowledges.
    fn answered(&mut self, (end, frame): (u64, u64), nesn: bool) -> bool {
        let Some(part) = &mut self.current else { return false };
        let acknowledges = nesn != part.sn;
        part.is_refused = !acknowledges;
        if acknowledges && part.acknowledged == 0 {
            (part.acknowledged, part.acknowledged_by) = (end, frame);
        }
        acknowledges
    }

    fn repeated(&mut self, end: u64) {
        let Some(part) = &mut self.current else { return };
        part.repeats += 1;
        if part.is_refused {
            part.end = end;
        }
        // Its sender had not heard the acknowledgement.
        (part.acknowledged, part.is_refused, part.is_unsure) = (0, false, false);
    }

    /// The PDU before is acknowledged.
    fn next(&mut self, to: &mut Vec<Pdu>) {
        let Some(part) = self.current.take().filter(|part| part.is_data) else { return };
        let Some(whole) = &mut self.whole else { return };
        let pdu = &mut whole.pdu;
        (pdu.last, pdu.end, pdu.frames[1]) = (part.begin, part.end, part.frame);
        // In a capture out of order an answer may stand before what it answers: those are not of one exchange.
        let is_known = !part.is_unsure && part.acknowledged >= part.end;
        (pdu.done, pdu.done_frame) = if is_known { (part.acknowledged, part.acknowledged_by) } else { (0, 0) };
        pdu.repeats += part.repeats;
        // In clear text its length tells that it is whole.
        if !whole.is_sealed && whole.told.is_some_and(|told| u32::from(told) + HEADER == pdu.length) {
            self.close(to);
        }
    }

    fn begins(&mut self, part: Part, on_air: OnAir<'_>, to: &mut Vec<Pdu>) {
        if part.is_data {
            if !part.continues {
                self.close(to);
                self.whole = Some(Whole {
                    pdu: Pdu {
                        begin: part.begin,
                        frames: [part.frame; 2],
                        is_after_hole: part.is_after_hole,
                        ..Pdu::default()
                    },
                    parts: 0,
                    told: part.first,
                    hashes: [ByteSum::NEW; 2],
                    is_cut: false,
                    is_sealed: part.is_encrypted && !on_air.is_deciphered,
                    is_deciphered: on_air.is_deciphered,
                });
            }
            match &mut self.whole {
                Some(whole) => {
                    whole.parts += 1;
                    whole.pdu.length += part.length;
                    whole.is_cut |= on_air.payload.len() < part.length as usize;
                    let kept = on_air.payload.len();
                    whole.hashes[0].add(on_air.payload);
                    whole.hashes[1].add(&on_air.payload[..kept.saturating_sub(MIC)]);
                }
                None => self.has_hole = true,
            }
        }
        self.current = Some(part);
    }

    /// What goes on with the PDU was not seen.
    fn lose(&mut self, to: &mut Vec<Pdu>) {
        if let Some(part) = &mut self.current {
            part.is_unsure = true;
        }
        self.next(to);
        // Of cipher text the next one that begins would tell that this one had ended.
        self.whole = None;
        self.has_hole = true;
    }

    fn close(&mut self, to: &mut Vec<Pdu>) {
        let Some(whole) = self.whole.take() else { return };
        let mut pdu = whole.pdu;
        if pdu.last == 0 {
            self.has_hole = true;
            return;
        }
        let mics = whole.parts * MIC as u32;
        let told = whole.told.map(|told| u32::from(told) + HEADER).filter(|_| !whole.is_sealed);
        let bare = pdu.length.saturating_sub(mics);
        let hash = match told {
            Some(told) if told == pdu.length => Some(whole.hashes[0]),
            Some(told) if told == bare && whole.is_deciphered => Some(whole.hashes[1]),
            _ => None,
        };
        // Lengths that do not agree are those of cipher text.
        if told != Some(pdu.length) {
            pdu.length = bare;
        }
        pdu.hash = hash.filter(|_| !whole.is_cut).map_or(0, ByteSum::value);
        to.push(pdu);
    }
}
