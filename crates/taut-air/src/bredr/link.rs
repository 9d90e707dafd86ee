//! An ACL link as one controller sees it (Core Specification, Vol 2, Part B, 7.6 and 8.6): turns on the
//! slot grid, the ARQ scheme, polls, flushing, supervision. It knows nothing of HCI, nor of other links.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use taut_time::Instant;

use super::{Body, Llid, Packet, PacketType, Rate, SLOT, hop};
use crate::pdu::advertising::Address;
use crate::role::Role;
use crate::time::{NEVER, Nanos, US, after, span};

/// What a controller fixes for its links.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Settings {
    /// Packets that it sends when the peer can take them.
    pub(crate) rate: Rate,
    /// Most slots of one, 1, 3 or 5.
    pub(crate) slots: u8,
    /// Longest time between two polls of a central.
    pub(crate) t_poll: Nanos,
    /// Time after data during which a central polls at every turn.
    pub(crate) active: Nanos,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Idle,
    /// On the air with a packet that isn't answered.
    Sending {
        end: Instant,
    },
    /// The central listens for the answer.
    Answer {
        until: Instant,
    },
    /// A packet is coming in.
    Receiving,
    /// The peripheral answers at that time.
    Respond {
        at: Instant,
    },
    Gone,
}

/// An HCI packet on its way to the air.
#[derive(Clone, Debug)]
struct Queued {
    data: Vec<u8>,
    offset: usize,
    /// Begins an L2CAP PDU.
    start: bool,
    flushable: bool,
    at: Instant,
}

/// A data packet that is not acknowledged.
#[derive(Clone, Debug)]
struct Flight {
    kind: PacketType,
    llid: Llid,
    bytes: Vec<u8>,
}

/// The end of a link, of which LMP_detach tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Leaving {
    reason: u8,
    /// It is over then.
    until: Instant,
    /// Both sides know of it.
    is_mutual: bool,
    /// This side has told, and has heard that the other knows: it says no more.
    is_silent: bool,
}

/// A link.
#[derive(Clone, Debug)]
pub(crate) struct Acl {
    pub(crate) role: Role,
    pub(crate) handle: u16,
    /// Whose piconet it is.
    pub(crate) central: Address,
    pub(crate) peer: Address,
    pub(crate) lt_addr: u8,
    /// Supervision timeout (7.7.1), 20 s unless the host says otherwise.
    pub(crate) supervision: Nanos,
    /// After this time a flushable packet is given up; 0 for never.
    pub(crate) flush: Nanos,
    settings: Settings,
    /// Packets that the peer takes: all have DM and DH of one slot.
    rate: Rate,
    slots: u8,
    /// Slot 0, the central's.
    origin: Instant,
    phase: Phase,
    /// When the last turn was over.
    earliest: Instant,
    /// Since when there is something to send.
    ready: Instant,
    last_data: Instant,
    last_heard: Instant,
    heard_any: bool,
    next_poll: Instant,
    arqn: bool,
    owes_ack: bool,
    seqn: bool,
    seen: Option<bool>,
    in_flight: Option<Flight>,
    lmp: VecDeque<Vec<u8>>,
    packets: VecDeque<Queued>,
    /// What comes of the PDU that was given up is given up, too.
    flushing: bool,
    leaving: Option<Leaving>,
}

/// What a link does when its time has come.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    Nothing,
    Send(Packet),
    /// It ended after LMP_detach.
    Left {
        reason: u8,
        /// Whether the peer knows of it.
        is_mutual: bool,
    },
    /// Nothing was heard for the supervision timeout.
    Lost,
    /// Nothing was heard since it began.
    NeverThere,
}

/// What came in.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) llid: Llid,
    pub(crate) bytes: Vec<u8>,
}

/// What came of a packet of the peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    pub(crate) delivered: Option<Delivered>,
    /// An HCI packet of ours is through.
    pub(crate) completed: bool,
    /// A PDU of our link manager is through.
    pub(crate) lmp: Option<Vec<u8>>,
}

/// The central's turns begin every other slot.
const TURN: Nanos = 2 * SLOT;
/// Uncertainty of the beginning of an answer (2.2.5), and the access code, after which it is known to be one.
const ANSWER_WINDOW: Nanos = 10 * US + 72 * US;
/// newconnectionTO (8.3.2): 32 slots.
const NEW_CONNECTION: Nanos = 32 * SLOT;
/// Default of the supervision timeout (Vol 4, Part E, 6.21).
const SUPERVISION: Nanos = 0x7d00 * SLOT;
/// T_poll that the initiator of LMP_detach waits for its acknowledgement, and a central that hears
/// it stays (Vol 2, Part C, 4.1.2).
const LONG_LEAVE: Nanos = 6;
/// T_poll that the initiator waits from the acknowledgement on, and a peripheral that hears it stays.
const SHORT_LEAVE: Nanos = 3;

impl Acl {
    pub(crate) fn new(
        role: Role,
        handle: u16,
        [central, peer]: [Address; 2],
        lt_addr: u8,
        settings: Settings,
        origin: Instant,
    ) -> Self {
        Self {
            role,
            handle,
            central,
            peer,
            lt_addr,
            supervision: SUPERVISION,
            flush: 0,
            settings,
            rate: if settings.rate == Rate::Dm { Rate::Dm } else { Rate::Dh },
            slots: 1,
            origin,
            phase: Phase::Idle,
            earliest: origin,
            ready: origin,
            last_data: origin,
            last_heard: origin,
            heard_any: false,
            next_poll: origin,
            arqn: false,
            owes_ack: false,
            seqn: false,
            seen: None,
            in_flight: None,
            lmp: VecDeque::new(),
            packets: VecDeque::new(),
            flushing: false,
            leaving: None,
        }
    }

    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Gone)
    }

    /// Whether it has the radio.
    pub(crate) const fn is_busy(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Gone)
    }

    /// Whether what is due next is a turn of the central, for which the radio must be free.
    pub(crate) const fn wants_radio(&self) -> bool {
        matches!((self.role, self.phase), (Role::Central, Phase::Idle))
    }

    /// It is over, with all that is queued.
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Gone;
        self.packets.clear();
        self.lmp.clear();
        self.in_flight = None;
    }

    /// HCI packets that are not through.
    pub(crate) fn packets(&self) -> u16 {
        self.packets.len() as u16
    }

    /// The peer takes packets of so many slots.
    pub(crate) fn peer_slots(&mut self, slots: u8) {
        self.slots = match slots.min(self.settings.slots) {
            0..=2 => 1,
            3..=4 => 3,
            _ => 5,
        };
    }

    /// Both sides use Enhanced Data Rate from now on.
    pub(crate) const fn enhance(&mut self) {
        self.rate = self.settings.rate;
    }

    /// When something is due.
    pub(crate) fn due(&self) -> Instant {
        match self.phase {
            Phase::Sending { end } => end,
            Phase::Answer { until } => until,
            Phase::Respond { at } => at,
            Phase::Receiving | Phase::Gone => NEVER,
            Phase::Idle => match self.role {
                Role::Central => self.next_turn().min(self.ends_at()),
                Role::Peripheral => self.ends_at(),
            },
        }
    }

    fn gives_up_at(&self) -> Instant {
        if self.supervision == 0 && self.heard_any {
            return NEVER;
        }
        after(self.last_heard, if self.heard_any { self.supervision } else { NEW_CONNECTION })
    }

    /// The supervision timeout, or the time after LMP_detach.
    fn ends_at(&self) -> Instant {
        self.gives_up_at().min(self.leaving.map_or(NEVER, |leaving| leaving.until))
    }

    fn is_silent(&self) -> bool {
        self.leaving.is_some_and(|leaving| leaving.is_silent)
    }

    /// The HCI packet that is next: none of a link that ends.
    fn front(&self) -> Option<&Queued> {
        self.packets.front().filter(|_| self.leaving.is_none())
    }

    fn has_something(&self) -> bool {
        self.in_flight.is_some() || !self.lmp.is_empty() || self.front().is_some()
    }

    fn next_turn(&self) -> Instant {
        if self.is_silent() {
            return NEVER;
        }
        let wanted = if self.has_something() {
            self.earliest.max(self.ready)
        } else if self.owes_ack || !self.heard_any || after(self.last_data, self.settings.active) > self.earliest {
            self.earliest
        } else {
            self.earliest.max(self.next_poll)
        };
        self.turn_from(wanted)
    }

    /// The first turn that begins at `from` or later.
    fn turn_from(&self, from: Instant) -> Instant {
        after(self.origin, span(self.origin, from).div_ceil(TURN) * TURN)
    }

    /// The radio is needed elsewhere: no turn before `until`.
    pub(crate) fn defer(&mut self, until: Instant) {
        self.earliest = self.earliest.max(until);
    }

    /// Slots of the packet that the next turn would send.
    pub(crate) fn next_slots(&self) -> u8 {
        match (&self.in_flight, self.lmp.is_empty(), self.front()) {
            (Some(flight), ..) => flight.kind.slots(),
            (None, true, Some(packet)) => self.rate.fit(packet.data.len() - packet.offset, self.slots).slots(),
            _ => 1,
        }
    }

    /// Queues an HCI packet's data. `false` when it is part of a PDU that was given up.
    pub(crate) fn enqueue(&mut self, now: Instant, data: Vec<u8>, start: bool, flushable: bool) -> bool {
        if start {
            self.flushing = false;
        } else if self.flushing {
            return false;
        }
        self.begins(now);
        self.packets.push_back(Queued { data, offset: 0, start, flushable, at: now });
        true
    }

    /// Queues a PDU of the link manager.
    pub(crate) fn manage(&mut self, now: Instant, pdu: Vec<u8>) {
        self.begins(now);
        self.lmp.push_back(pdu);
    }

    fn begins(&mut self, now: Instant) {
        if !self.has_something() {
            self.ready = now;
        }
        self.last_data = now;
    }

    /// Gives up packets that are too old. How many.
    pub(crate) fn flush_expired(&mut self, now: Instant) -> u16 {
        let mut flushed = 0;
        let is_old = |packet: &Queued, flush| packet.flushable && after(packet.at, flush) <= now;
        while self.flush > 0 && self.packets.front().is_some_and(|front| is_old(front, self.flush)) {
            flushed += self.flush_pdu();
        }
        flushed
    }

    /// Gives up all packets. How many.
    pub(crate) fn flush_all(&mut self) -> u16 {
        let mut flushed = 0;
        while !self.packets.is_empty() {
            flushed += self.flush_pdu();
        }
        flushed
    }

    /// Whether its end has come, for which no radio is needed.
    pub(crate) fn ends(&self, now: Instant) -> bool {
        self.ends_at() <= now
    }

    /// Gives up the L2CAP PDU at the front of the queue, and what of it is on the air.
    fn flush_pdu(&mut self) -> u16 {
        if self.in_flight.as_ref().is_some_and(|flight| flight.llid != Llid::Lmp) {
            self.in_flight = None;
        }
        let rest = self.packets.iter().skip(1).position(|packet| packet.start).map(|at| at + 1);
        self.flushing = rest.is_none();
        let count = rest.unwrap_or(self.packets.len());
        self.packets.drain(..count);
        count as u16
    }

    /// What it does now that [`due`](Self::due) has come.
    pub(crate) fn turn(&mut self, now: Instant) -> Turn {
        match self.phase {
            Phase::Idle if self.gives_up_at() <= now => {
                self.phase = Phase::Gone;
                if self.heard_any { Turn::Lost } else { Turn::NeverThere }
            }
            Phase::Idle if self.ends_at() <= now => {
                self.phase = Phase::Gone;
                self.leaving.map_or(Turn::Nothing, |Leaving { reason, is_mutual, .. }| Turn::Left { reason, is_mutual })
            }
            Phase::Idle if self.role == Role::Central && self.next_turn() <= now => self.send(now),
            Phase::Respond { .. } => self.send(now),
            Phase::Sending { .. } => {
                self.phase = Phase::Idle;
                Turn::Nothing
            }
            Phase::Answer { .. } => {
                // 7.6.1: what was not heard is not acknowledged.
                self.arqn = false;
                self.phase = Phase::Idle;
                self.earliest = now;
                Turn::Nothing
            }
            Phase::Idle | Phase::Receiving | Phase::Gone => Turn::Nothing,
        }
    }

    /// A response that was due can't be: the radio is with another link.
    pub(crate) fn skip_response(&mut self) {
        if matches!(self.phase, Phase::Respond { .. }) {
            self.phase = Phase::Idle;
        }
    }

    fn send(&mut self, now: Instant) -> Turn {
        let (kind, body, retransmission) = self.content();
        let slot = span(self.origin, now) / SLOT;
        let end = after(now, kind.air_time(body_length(&body)));
        let is_asking = kind == PacketType::Poll || kind.is_data();
        let packet = Packet {
            access: self.central,
            kind,
            lt_addr: self.lt_addr,
            arqn: self.arqn,
            seqn: self.seqn,
            body,
            channel: hop(self.central, slot),
            start: now,
            end,
            retransmission,
            role: self.role,
            slot,
        };
        self.owes_ack = false;
        self.phase = if self.role == Role::Central && is_asking {
            self.next_poll = after(now, self.settings.t_poll);
            Phase::Answer { until: after(packet.answer_at(), ANSWER_WINDOW) }
        } else {
            Phase::Sending { end }
        };
        Turn::Send(packet)
    }

    /// What goes next: what was not acknowledged, the link manager's, data, or a poll or its answer.
    fn content(&mut self) -> (PacketType, Body, bool) {
        let retransmission = self.in_flight.is_some();
        if self.in_flight.is_none() {
            self.in_flight = self.take();
            if self.in_flight.is_some() {
                self.seqn = !self.seqn;
            }
        }
        match &self.in_flight {
            Some(Flight { kind, llid, bytes }) => {
                (*kind, Body::Data { llid: *llid, bytes: bytes.clone() }, retransmission)
            }
            None => (if self.role == Role::Central { PacketType::Poll } else { PacketType::Null }, Body::Empty, false),
        }
    }

    fn take(&self) -> Option<Flight> {
        if let Some(pdu) = self.lmp.front() {
            return Some(Flight { kind: PacketType::Dm1, llid: Llid::Lmp, bytes: pdu.clone() });
        }
        let packet = self.front()?;
        let left = &packet.data[packet.offset..];
        let kind = self.rate.fit(left.len(), self.slots);
        let llid = if packet.start && packet.offset == 0 { Llid::Start } else { Llid::Continuation };
        Some(Flight { kind, llid, bytes: left[..left.len().min(kind.capacity())].to_vec() })
    }

    /// A packet of this piconet begins on `channel`: whether this side listens to it.
    pub(crate) fn air_start(&mut self, packet: &Packet, radio_is_free: bool) -> bool {
        let is_ours = packet.access == self.central && packet.lt_addr == self.lt_addr && packet.role != self.role;
        let listens = match (self.role, self.phase) {
            (Role::Central, Phase::Answer { .. }) => true,
            (Role::Peripheral, Phase::Idle) => radio_is_free && !self.is_silent(),
            _ => false,
        };
        if is_ours && listens {
            self.phase = Phase::Receiving;
        }
        is_ours && listens
    }

    /// It ended; its header was read, its CRC is right or not.
    pub(crate) fn air_end(&mut self, now: Instant, packet: &Packet, crc_right: bool) -> Received {
        if self.phase != Phase::Receiving {
            return Received::default();
        }
        (self.last_heard, self.heard_any) = (now, true);
        let mut received = Received::default();
        if packet.arqn {
            self.acknowledged(&mut received);
        }
        self.arqn = packet.kind.is_data() && crc_right;
        if self.arqn {
            self.owes_ack = self.role == Role::Central;
            self.last_data = now;
            if self.seen != Some(packet.seqn)
                && let Body::Data { llid, bytes } = &packet.body
            {
                self.seen = Some(packet.seqn);
                received.delivered = Some(Delivered { llid: *llid, bytes: bytes.clone() });
            }
        }
        self.phase = match self.role {
            Role::Central => Phase::Idle,
            Role::Peripheral if packet.kind == PacketType::Null => Phase::Idle,
            Role::Peripheral => Phase::Respond { at: packet.answer_at() },
        };
        self.earliest = packet.answer_at();
        received
    }

    fn acknowledged(&mut self, received: &mut Received) {
        let Some(flight) = self.in_flight.take() else { return };
        if flight.llid == Llid::Lmp {
            received.lmp = self.lmp.pop_front();
            return;
        }
        if let Some(packet) = self.packets.front_mut() {
            packet.offset += flight.bytes.len();
            if packet.offset >= packet.data.len() {
                self.packets.pop_front();
                received.completed = true;
            }
        }
    }

    /// Ends the link with LMP_detach, `pdu`; without an acknowledgement it is dropped. No data goes any more.
    pub(crate) fn detach(&mut self, now: Instant, pdu: Vec<u8>, reason: u8) {
        if self.leaving.is_none() {
            self.manage(now, pdu);
            self.leaves(now, LONG_LEAVE, reason);
        }
    }

    /// The peer has acknowledged LMP_detach. It stays for a while in case that its acknowledgement
    /// is lost, this side until it has certainly gone.
    pub(crate) fn detached(&mut self, now: Instant) {
        let until = self.after_polls(now, SHORT_LEAVE);
        if let Some(leaving) = &mut self.leaving {
            *leaving = Leaving { until, is_mutual: true, is_silent: true, ..*leaving };
        }
    }

    /// The peer has sent LMP_detach. This side stays to acknowledge it again when the peer has not heard that.
    pub(crate) fn leave(&mut self, now: Instant, reason: u8) {
        let polls = if self.role == Role::Central { LONG_LEAVE } else { SHORT_LEAVE };
        self.leaves(now, polls, reason);
        if let Some(leaving) = &mut self.leaving {
            leaving.is_mutual = true;
        }
    }

    /// Why the link ends, if it does.
    pub(crate) fn leaves_for(&self) -> Option<u8> {
        self.leaving.map(|leaving| leaving.reason)
    }

    fn leaves(&mut self, now: Instant, polls: Nanos, reason: u8) {
        let until = self.after_polls(now, polls);
        // Where both sides end it, the first reason and the longer time.
        let leaving = self.leaving.get_or_insert(Leaving { reason, until, is_mutual: false, is_silent: false });
        leaving.until = leaving.until.max(until);
    }

    fn after_polls(&self, now: Instant, polls: Nanos) -> Instant {
        after(now, polls * self.settings.t_poll)
    }
}

const fn body_length(body: &Body) -> usize {
    match body {
        Body::Data { bytes, .. } => bytes.len(),
        Body::Empty | Body::Fhs { .. } => 0,
    }
}

#[cfg(test)]
mod tests;
