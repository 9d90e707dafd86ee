//! One direction of a link: what was sent, sent again, and who had the data between two data PDUs.

use taut_air::Phy;
use taut_event::{Holder, LeHeader, LePdu};

use super::events::{Closed, phy};
use crate::engine::{Breakdown, Episode};

/// A time, and the packet that it is of.
type Seen = (u64, u64);

/// One direction of a link.
#[derive(Clone, Debug, Default)]
pub(super) struct Half {
    pub(super) breakdown: Breakdown,
    pub(super) tally: Tally,
    pub(super) begin: Option<u64>,
    /// Up to where time is booked: the end of the last data PDU, or of its answer.
    booked: Option<Seen>,
    /// The newest PDU.
    last: Option<Last>,
    since: Since,
    /// Events in a row in which the peripheral was not seen.
    unheard: u64,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) bytes: u64,
    /// PDUs with a payload, control too; repetitions not counted.
    pub(super) data_pdus: u64,
    pub(super) control_pdus: u64,
    pub(super) empty_pdus: u64,
    pub(super) repeated: u64,
    /// Sent again after events in which the peripheral need not have listened.
    pub(super) skipped: u64,
    /// So many it might skip then.
    pub(super) may_skip: u16,
    /// Sent again after events in which nobody knows whether it need have listened.
    pub(super) unclear: u64,
    /// The answer to a data PDU asked for it once more.
    pub(super) refused: u64,
    pub(super) wrong_crc: u64,
    /// Numbers show that PDUs were not seen.
    pub(super) lost_by_sniffer: u64,
    /// Data PDUs that go on with an L2CAP PDU.
    pub(super) continuations: u64,
    pub(super) longest: u8,
    /// Time on air of data PDUs, repetitions not counted.
    pub(super) air_ns: u64,
    /// The same, were all on LE 2M.
    pub(super) fastest_ns: u64,
    /// Data PDUs, as `Phy::ALL` has the PHYs.
    by_phy: [u64; 4],
    pub(super) first_place: u64,
    pub(super) last_place: u64,
    /// Events with data, the most data PDUs of one, and how often an event with so many ended with room for more and
    /// without the mark of more data.
    pub(super) events: u64,
    pub(super) at_most: u64,
    pub(super) times_at_most: u64,
}

impl Tally {
    /// Data PDUs on LE 1M, LE 2M and LE Coded.
    pub(super) const fn on_phys(&self) -> [u64; 3] {
        let [slow, fast, s2, s8] = self.by_phy;
        [slow, fast, s2 + s8]
    }

    /// The PHY of most data PDUs.
    pub(super) fn phy(&self) -> Phy {
        let by_phy = Phy::ALL.into_iter().zip(self.by_phy);
        by_phy.max_by_key(|&(_, count)| count).map(|(phy, _)| phy).unwrap_or_default()
    }
}

/// A PDU of this direction.
#[derive(Clone, Copy, Debug)]
struct Last {
    sn: bool,
    length: u8,
    hash: u32,
    /// The number of the newest PDU that acknowledged it.
    acknowledged_by: Option<bool>,
    /// The one after it, which was not seen, was acknowledged too.
    is_passed: bool,
}

impl Last {
    /// A PDU of the other direction tells which number it waits for (Core Specification, Vol 6, Part B, section 4.5.9).
    fn answered(&mut self, header: LeHeader) {
        if header.nesn == self.sn {
            self.is_passed |= self.acknowledged_by.is_some();
        } else {
            self.acknowledged_by = Some(header.sn);
        }
    }

    /// Whether its sender would send it again: it does so if the acknowledgement did not get there.
    fn is_open(&self, header: LeHeader) -> bool {
        !self.is_passed && self.acknowledged_by.is_none_or(|sn| sn == header.nesn)
    }
}

/// What happened since the last data PDU.
#[derive(Clone, Copy, Debug, Default)]
struct Since {
    /// The last data PDU told of more.
    md: bool,
    /// Events ended.
    crossed: bool,
    /// The event of the last data PDU ended with time left.
    has_room: bool,
    /// Something may not have been seen.
    hole: bool,
    /// Events in which the peripheral was not seen.
    silent: bool,
    /// Up to here the controller had nothing: an empty PDU went.
    idle_to: Option<Seen>,
    awaits_answer: bool,
    /// Data PDUs in the event that goes on.
    in_event: u64,
}

/// What was agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    pub(super) latency: Option<u16>,
}

impl Half {
    /// A connection event is over.
    pub(super) fn crossed(&mut self, closed: Closed, is_peripherals: bool) {
        let Closed { has_room, is_silent, is_unseen } = closed;
        if !self.since.crossed {
            self.since.has_room = has_room;
        }
        self.since.crossed = true;
        self.since.silent |= is_silent && is_peripherals;
        self.unheard = if is_silent && !is_peripherals { self.unheard + 1 } else { 0 };
        self.since.hole |= is_unseen;
        self.since.awaits_answer = false;
        let in_event = std::mem::take(&mut self.since.in_event);
        if in_event == 0 {
            return;
        }
        let tally = &mut self.tally;
        tally.events += 1;
        // With more data told, or no room, it is known why the event ended.
        if in_event > tally.at_most {
            (tally.at_most, tally.times_at_most) = (in_event, 0);
        }
        tally.times_at_most += u64::from(in_event == tally.at_most && has_room && !self.since.md);
    }

    /// A PDU of the link may not have been seen.
    pub(super) const fn hole(&mut self) {
        self.since.hole = true;
    }

    /// Whether what this end sends now shows that its last PDU was acknowledged.
    pub(super) fn was_acknowledged(&self, header: LeHeader) -> bool {
        self.last.is_some_and(|last| last.sn != header.sn)
    }

    /// The peripheral did answer where it was not seen to.
    pub(super) const fn was_heard(&mut self) {
        self.since.hole |= self.since.silent;
        (self.since.silent, self.unheard) = (false, 0);
    }

    /// A PDU of the other direction ended.
    pub(super) fn answered(&mut self, end: Seen, header: Option<LeHeader>, in_same_event: bool) {
        self.unheard = 0;
        if let (Some(header), Some(last)) = (header, &mut self.last) {
            last.answered(header);
        }
        if !in_same_event || !std::mem::take(&mut self.since.awaits_answer) {
            return;
        }
        let is_refused = header.zip(self.last).is_some_and(|(header, last)| header.nesn == last.sn);
        self.tally.refused += u64::from(is_refused);
        self.book(Holder::Air, end);
    }

    /// A PDU of this direction.
    pub(super) fn own(&mut self, begin: Seen, end: Seen, pdu: &LePdu, bytes: u64, past: Past) {
        let Some(header) = pdu.header else {
            self.tally.wrong_crc += 1;
            // It may have been data that the receiver got.
            self.since.hole = true;
            return;
        };
        let (sn, length, hash) = (header.sn, header.length, pdu.hash);
        let this = Last { sn, length, hash, acknowledged_by: None, is_passed: false };
        let before = self.last.replace(this).filter(|before| before.sn == sn);
        let is_same = before.is_some_and(|it| (it.length, it.hash) == (length, hash) && it.is_open(header));
        // A number that did not change: one with the other number was not seen. Empty ones may be given up for data.
        let is_gap = before.is_some_and(|before| !is_same && before.length > 0);
        self.tally.lost_by_sniffer += u64::from(is_gap);
        self.since.hole |= is_gap;
        // Behind a hole it may as well be another one that is alike, and is counted neither as that nor as this.
        let is_repeat = is_same && !self.since.hole;
        if header.length == 0 {
            self.tally.empty_pdus += 1;
            if self.since.hole {
                self.gap(begin, past);
                self.since.hole = false;
            }
            self.since.idle_to = Some(begin);
            self.since.silent = false;
            return;
        }
        self.begin.get_or_insert(begin.0);
        if self.booked.is_none() {
            self.booked = Some(begin);
            self.tally.first_place = begin.1;
        }
        self.tally.last_place = begin.1;
        if is_repeat {
            self.again(begin, end, past);
        } else {
            self.gap(begin, past);
            self.book(Holder::Air, end);
            if !is_same {
                self.count(&header, pdu, bytes);
            }
        }
        let in_event = self.since.in_event + u64::from(!is_same);
        self.since = Since { md: header.md, awaits_answer: true, in_event, ..Since::default() };
    }

    /// The same PDU once more.
    fn again(&mut self, begin: Seen, end: Seen, past: Past) {
        let tally = &mut self.tally;
        let (count, until, itself) = match past.latency {
            // The peripheral need not have listened.
            Some(latency) if (1..=latency.into()).contains(&self.unheard) => {
                tally.may_skip = latency;
                (&mut tally.skipped, Holder::ConnectionInterval, Holder::Air)
            }
            None if self.unheard > 0 => (&mut tally.unclear, Holder::NotKnown, Holder::NotKnown),
            // What was in between was not for want of data.
            _ => (&mut tally.repeated, Holder::LossRecovery, Holder::LossRecovery),
        };
        *count += 1;
        self.book(until, begin);
        self.book(itself, end);
    }

    fn count(&mut self, header: &LeHeader, pdu: &LePdu, bytes: u64) {
        let tally = &mut self.tally;
        tally.bytes = tally.bytes.saturating_add(bytes);
        tally.data_pdus += 1;
        tally.control_pdus += u64::from(header.is_control);
        tally.continuations += u64::from(header.continues);
        if !header.is_control {
            tally.longest = tally.longest.max(header.length);
        }
        tally.air_ns = tally.air_ns.saturating_add(pdu.air_ns.into());
        tally.fastest_ns = tally.fastest_ns.saturating_add(Phy::Le2M.air_time(header.length.into(), false));
        let on = Phy::ALL.iter().position(|&other| other == phy(pdu)).unwrap_or_default();
        tally.by_phy[on] += 1;
    }

    /// Books the time in which no data of this direction was on the air.
    fn gap(&mut self, to: Seen, past: Past) {
        let since = self.since;
        if let Some(idle_to) = since.idle_to {
            self.book(Holder::SendingHost, idle_to);
        }
        let holder = match since {
            Since { hole: true, .. } => Holder::NotKnown,
            Since { silent: true, .. } => match past.latency {
                // It had to listen, and got nothing or was not heard.
                Some(0) => Holder::LossRecovery,
                Some(_) => Holder::SendingHost,
                None => Holder::NotKnown,
            },
            Since { idle_to: Some(_), .. } => Holder::SendingHost,
            Since { crossed: false, .. } => Holder::Air,
            Since { md: true, has_room: true, .. } => Holder::ClosedEvent,
            Since { md: true, has_room: false, .. } => Holder::Air,
            Since { md: false, .. } => Holder::SendingHost,
        };
        self.book(holder, to);
    }

    /// Books what is not booked yet, up to then.
    fn book(&mut self, holder: Holder, to: Seen) {
        if let Some(from) = self.booked.filter(|from| from.0 < to.0) {
            self.breakdown.book(holder, Episode { from: from.0, to: to.0, places: (from.1, to.1) });
            self.booked = Some(to);
        }
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self) {
        self.crossed(Closed::default(), false);
        self.breakdown.close();
    }
}
