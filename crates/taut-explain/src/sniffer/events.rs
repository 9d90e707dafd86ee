//! Connection events: how many exchanges each had, and who ended it although there was more to send.

use taut_air::Phy;
use taut_event::{Direction as Way, LePdu};

use crate::tcp::Sample;

/// The inter frame space, in nanoseconds.
pub(super) const IFS_NS: u64 = 150_000;

/// The connection events of a link.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    /// Events of which a PDU was seen.
    pub(super) seen: u64,
    /// Events between those, of which none was.
    pub(super) unseen: u64,
    /// Events in which the peripheral was not seen to answer.
    pub(super) silent: u64,
    /// Exchanges of an event, of one PDU each way.
    pub(super) exchanges: Sample,
    /// Of those in which a side had told of more data.
    pub(super) ended: Ended,
    now: Option<Now>,
}

/// How events ended in which a side had told of more data and there was time for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended {
    /// The central did not go on.
    pub(super) by_central: u64,
    /// The peripheral was not seen to answer.
    pub(super) by_peripheral: u64,
    /// The last PDU had a wrong CRC.
    pub(super) by_crc: u64,
    /// No time was left.
    pub(super) full: u64,
}

/// The event that is going on.
#[derive(Clone, Copy, Debug)]
struct Now {
    /// End of its last PDU, that PDU's direction, and whether its CRC was right.
    last: (u64, Way, bool),
    /// Whether the last PDU of each side told of more data.
    md: [bool; 2],
    pdus: [u64; 2],
    /// Of each side.
    longest_ns: [u64; 2],
    phys: [Option<Phy>; 2],
}

/// What became of an event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Closed {
    /// Another exchange of the same length would have ended before the next anchor.
    pub(super) has_room: bool,
    /// The peripheral was not seen in it.
    pub(super) is_silent: bool,
    /// Events behind it may not have been seen.
    pub(super) is_unseen: bool,
}

impl Now {
    /// What a side sends in another exchange: without more data an empty PDU.
    fn needs_ns(&self, side: usize) -> u64 {
        // A side that was not seen is taken to have the other's PHY.
        let phy = self.phys[side].or(self.phys[1 - side]).unwrap_or_default();
        if self.md[side] { self.longest_ns[side] } else { phy.air_time(0, false) }
    }
}

/// On which PHY a PDU was. Its length tells the coding of LE Coded.
pub(super) fn phy(pdu: &LePdu) -> Phy {
    let is_s2 = |length: u8| Phy::CodedS2.air_time(length.into(), false) == u64::from(pdu.air_ns);
    match pdu.phy {
        2 => Phy::Le2M,
        3 if pdu.header.is_some_and(|header| is_s2(header.length)) => Phy::CodedS2,
        3 => Phy::CodedS8,
        _ => Phy::Le1M,
    }
}

impl Events {
    pub(super) fn pdu(&mut self, at: u64, way: Way, pdu: &LePdu) {
        if self.now.is_none() {
            self.seen += 1;
        }
        let end = at.saturating_add(pdu.air_ns.into());
        let none = Now { last: (end, way, true), md: [false; 2], pdus: [0; 2], longest_ns: [0; 2], phys: [None; 2] };
        let now = self.now.get_or_insert(none);
        now.last = (end, way, pdu.header.is_some());
        now.pdus[way.index()] += 1;
        now.phys[way.index()] = Some(phy(pdu));
        let longest = &mut now.longest_ns[way.index()];
        *longest = (*longest).max(pdu.air_ns.into());
        if let Some(header) = pdu.header {
            now.md[way.index()] = header.md;
        }
    }

    /// The event is over; the next one that was seen begins at `next`, behind others that were not.
    pub(super) fn close(&mut self, next: u64, interval_ns: u64, unseen: u16) -> Closed {
        let Some(now) = self.now.take() else { return Closed::default() };
        self.unseen += u64::from(unseen);
        self.exchanges.add(now.pdus[0].max(now.pdus[1]));
        let is_silent = now.pdus[Way::Backward.index()] == 0;
        self.silent += u64::from(is_silent);
        let (end, way, is_right) = now.last;
        // Of the first anchor behind it, and not of one that was seen later.
        let next = next.saturating_sub(u64::from(unseen).saturating_mul(interval_ns));
        let needs = 3 * IFS_NS + now.needs_ns(0) + now.needs_ns(1);
        // Without an interval there is no first anchor behind it.
        let is_known = interval_ns > 0;
        let has_room = is_known && next.saturating_sub(end) >= needs;
        if now.md != [false; 2] && is_known {
            let count = match (has_room, is_right, way) {
                (false, ..) => &mut self.ended.full,
                (true, false, _) => &mut self.ended.by_crc,
                (true, true, Way::Backward) => &mut self.ended.by_central,
                (true, true, Way::Forward) => &mut self.ended.by_peripheral,
            };
            *count += 1;
        }
        Closed { has_room, is_silent, is_unseen: unseen > 0 || !is_known }
    }
}
