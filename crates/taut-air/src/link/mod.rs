//! One connection as one controller sees it (Core Specification, Vol 6, Part B, 4.5): anchors and connection events,
//! acknowledgement, more data, instants, supervision. It does not know of HCI, nor of other links.

mod clock;
mod encryption;
mod event;
mod procedure;
mod queue;

use alloc::boxed::Box;

use taut_time::Instant;

use crate::cipher::Key;
use crate::pdu::control::Control;
use crate::pdu::{Header, Llid, Pdu};
use crate::phy::{MIN_LENGTH, Phy};
use crate::rng::Random;
use crate::time::{NEVER, Nanos, US, after, before, span};

pub(crate) use clock::{Clock, Timing};
use encryption::Encryption;
pub(crate) use encryption::KeyChoice;
pub use event::CloseReason;
use event::Event;
pub(crate) use event::{Timer, Wanted};
use procedure::Procedures;
pub(crate) use procedure::Update;
pub(crate) use queue::Delivered;
use queue::{Acknowledged, InFlight, Queue};

/// Which side of a connection.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Role {
    /// Sets the anchors and speaks first in every connection event.
    #[default]
    Central,
    /// Follows.
    Peripheral,
}

impl Role {
    /// The other side.
    pub const fn other(self) -> Self {
        match self {
            Self::Central => Self::Peripheral,
            Self::Peripheral => Self::Central,
        }
    }

    /// `central` or `peripheral`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Central => "central",
            Self::Peripheral => "peripheral",
        }
    }
}

/// What a data PDU is for, as far as the link layer can tell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PduKind {
    /// ADV_IND or CONNECT_IND.
    Advertising,
    /// A data PDU without payload: a poll, or an acknowledgement.
    Empty,
    /// Link layer control.
    Control,
    /// Part of an L2CAP PDU.
    Data,
}

/// When the link layer notices packets that its host sends down while a connection event is open.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Pickup {
    /// At once: they can still go in that event.
    #[default]
    AtOnce,
    /// At once while more than one packet waits. The last one's header, with MD, is fixed when the one before it goes out: what
    /// comes after that is noticed when an event has closed and all before it is acknowledged.
    AfterAck,
}

/// What a controller fixes for its links.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Settings {
    pub(crate) ifs: Nanos,
    pub(crate) mic: bool,
    /// Time kept free before the next anchor.
    pub(crate) margin: Nanos,
    /// Longest connection event.
    pub(crate) event_length: Nanos,
    /// Most data PDUs that this side sends in an event.
    pub(crate) packets_per_event: u16,
    /// Transmit descriptors; 0 for as many as there are packets.
    pub(crate) tx_slots: u16,
    pub(crate) pickup: Pickup,
    /// Longest payload that this side takes and sends.
    pub(crate) max_length: u16,
    /// PHYs that this side can do, or that its host wants.
    pub(crate) phys: u8,
    /// FeatureSet, 4.6.
    pub(crate) features: [u8; 8],
    /// LE Coded is sent with S=2.
    pub(crate) s2: bool,
    /// Units of connection intervals.
    pub(crate) unit: Nanos,
}

/// What came of a packet on its way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reception {
    /// Received, CRC right.
    Received,
    /// Its access address was found, its CRC is wrong.
    CrcError,
    /// The receiver did not find it: bits of the access address were wrong, or it wasn't listening.
    Missed,
}

/// A data PDU to be sent now.
#[derive(Clone, Debug)]
pub(crate) struct ToSend {
    /// As it is on the air.
    pub(crate) pdu: Pdu,
    /// What it says, when that is in cipher text.
    pub(crate) clear: Option<Box<Pdu>>,
    pub(crate) kind: PduKind,
    pub(crate) retransmission: bool,
    pub(crate) duration: Nanos,
}

/// What a received PDU says.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "made and consumed in place, once a packet")]
pub(crate) enum Opened {
    /// It came in clear text.
    AsItIs,
    /// This.
    Clear(Pdu),
}

/// Why data waits in the controller while the air is free.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Hold {
    EventClosed,
    DoesNotFit,
    Controller,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Until the next event.
    Asleep { wake: Instant },
    /// The peripheral listens for the event's first packet.
    Window { until: Instant },
    /// Listens for the answer to what it sent.
    Answer { until: Instant },
    /// A packet is coming in.
    Receiving,
    /// Sends when the inter frame space is over.
    Pause { at: Instant },
    /// Its last packet of the event is on the air.
    LastPacket { end: Instant },
    /// The connection is gone.
    Gone,
}

/// A connection.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) role: Role,
    pub(crate) handle: u16,
    pub(crate) access_address: u32,
    pub(crate) crc_init: u32,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) phy: [Phy; 2],
    /// Longest payload that may be sent.
    pub(crate) tx_length: usize,
    phase: Phase,
    event: Event,
    queue: Queue,
    procedures: Procedures,
    encryption: Encryption,
    sn: bool,
    nesn: bool,
    hold: Option<Hold>,
    last_valid: Instant,
    heard_any: bool,
    /// LL_TERMINATE_IND came, with this reason: one more packet acknowledges it.
    leaving: Option<u8>,
}

impl Link {
    pub(crate) fn new(
        role: Role,
        handle: u16,
        access_address: u32,
        crc_init: u32,
        settings: Settings,
        clock: Clock,
        random: Random,
    ) -> Self {
        let (wake, now) = (clock.wake(role), clock.created());
        Self {
            role,
            handle,
            access_address,
            crc_init,
            settings,
            clock,
            phy: [Phy::Le1M; 2],
            tx_length: MIN_LENGTH,
            phase: Phase::Asleep { wake },
            event: Event::default(),
            queue: Queue::default(),
            procedures: Procedures::default(),
            encryption: Encryption::new(random),
            sn: false,
            nesn: false,
            hold: None,
            last_valid: now,
            heard_any: false,
            leaving: None,
        }
    }

    /// When something is due.
    pub(crate) const fn due(&self) -> Instant {
        match self.phase {
            Phase::Asleep { wake } => wake,
            Phase::Window { until } | Phase::Answer { until } => until,
            Phase::Pause { at } => at,
            Phase::LastPacket { end } => end,
            Phase::Receiving | Phase::Gone => NEVER,
        }
    }

    /// When the radio will be wanted for the next event; `None` while one is open.
    pub(crate) const fn asleep_until(&self) -> Option<Instant> {
        match self.phase {
            Phase::Asleep { wake } => Some(wake),
            _ => None,
        }
    }

    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Gone)
    }

    /// PHY that this side sends on.
    pub(crate) const fn tx_phy(&self) -> Phy {
        self.phy[self.role as usize]
    }

    /// PHY that this side receives on.
    pub(crate) const fn rx_phy(&self) -> Phy {
        self.phy[self.role.other() as usize]
    }

    /// ACL packets not acknowledged.
    pub(crate) fn packets(&self) -> u16 {
        self.queue.packets() as u16
    }

    /// Why data waits while no event is open.
    pub(crate) const fn hold(&self) -> Option<Hold> {
        self.hold
    }

    /// Whether nothing is queued beyond what has been sent and not acknowledged.
    pub(crate) fn has_new_data(&self) -> bool {
        self.queue.has_new()
    }

    /// Why this side would not go on with the last event.
    pub(crate) const fn stop(&self) -> Option<CloseReason> {
        self.event.stop
    }

    /// Number of the current or next event.
    pub(crate) const fn counter(&self) -> u16 {
        self.clock.counter
    }

    /// Queues an ACL packet from the host, H4 header and all.
    pub(crate) fn enqueue(&mut self, now: Instant, packet: alloc::vec::Vec<u8>) {
        let open = !matches!(self.phase, Phase::Asleep { .. });
        let late = open && self.settings.pickup == Pickup::AfterAck && self.queue.unsent() <= 1;
        self.queue.push(packet, self.tx_length, self.settings.tx_slots, late);
        if let Phase::Asleep { wake } = self.phase {
            if self.clock.hurry(now, self.role) {
                self.phase = Phase::Asleep { wake: self.clock.wake(self.role) };
            }
            if self.hold.is_none() {
                self.hold = Some(self.hold_until(now, wake, Hold::EventClosed));
            }
        }
    }

    /// Queues a control PDU.
    pub(crate) fn control(&mut self, control: Control) {
        self.queue.control(control.to_bytes());
    }

    /// Queues a control PDU that no procedure holds back.
    fn urgent(&mut self, control: Control) {
        self.queue.urgent(control.to_bytes());
    }

    /// Whether what this side sends carries a MIC.
    const fn sends_mic(&self) -> bool {
        self.settings.mic || self.encryption.sends()
    }

    fn hold_until(&self, now: Instant, next: Instant, otherwise: Hold) -> Hold {
        let need = self.need(self.queue.next_length(self.tx_length).unwrap_or(0), CloseReason::NoTime);
        if !self.queue.may_send_new(self.settings.tx_slots) {
            Hold::Controller
        } else if after(now, need) > before(next, self.settings.margin) {
            Hold::DoesNotFit
        } else {
            otherwise
        }
    }

    /// Time that must be left to send `payload` bytes: until the last packet of the exchange has ended, and the inter frame
    /// space that keeps it off the next anchor. A peripheral keeps its answer off the next anchor by itself; it knows
    /// nothing of the central's other reasons to stop, so the central allows for its longest answer then.
    fn need(&self, payload: usize, late: CloseReason) -> Nanos {
        let own = self.tx_phy().air_time(payload, self.sends_mic()) + self.settings.ifs;
        let answer = if late == CloseReason::NoTime { 0 } else { self.tx_length };
        match self.role {
            Role::Central => {
                let mic = self.settings.mic || self.encryption.receives();
                own + self.rx_phy().air_time(answer, mic) + self.settings.ifs
            }
            Role::Peripheral => own,
        }
    }

    /// A timer of [`Self::due`] has run out. `limit` is when the radio is wanted by another link.
    pub(crate) fn timer(&mut self, now: Instant, limit: Instant) -> Timer {
        match self.phase {
            Phase::Asleep { .. } => self.begin(now, limit),
            Phase::Window { .. } => self.close(now, CloseReason::NoSync),
            Phase::Answer { .. } => self.close(now, CloseReason::NoAnswer),
            Phase::Pause { .. } => self.send(now, limit),
            Phase::LastPacket { .. } if self.leaving.is_some() => {
                self.phase = Phase::Gone;
                let (counter, packets) = (self.clock.counter, self.event.sent);
                let update = self.leaving.map(Update::Terminated);
                Timer::Closed { counter, reason: CloseReason::MdCleared, packets, update }
            }
            Phase::LastPacket { .. } => {
                let reason = self.event.stop.unwrap_or(CloseReason::MdCleared);
                self.close(now, reason)
            }
            Phase::Receiving | Phase::Gone => Timer::Nothing,
        }
    }

    /// The radio is busy with another link: this event can't be.
    pub(crate) fn skip(&mut self, now: Instant) -> Timer {
        self.event = Event::default();
        self.close(now, CloseReason::OtherLink)
    }

    fn begin(&mut self, now: Instant, limit: Instant) -> Timer {
        self.event = Event::default();
        self.hold = None;
        match self.role {
            Role::Central => {
                self.clock.synchronise(now);
                self.send(now, limit)
            }
            Role::Peripheral => {
                self.phase = Phase::Window { until: self.clock.window_end(self.rx_phy().sync_time()) };
                Timer::Nothing
            }
        }
    }

    /// Until when this event may last: the next anchor, another link's, or the longest event.
    fn limit(&self, other: Instant) -> (Instant, CloseReason) {
        let (next, longest) = (self.clock.next_anchor(), after(self.clock.anchor(), self.settings.event_length));
        let (limit, reason) = if other < next { (other, CloseReason::OtherLink) } else { (next, CloseReason::NoTime) };
        if longest < limit {
            (longest, CloseReason::EventLength)
        } else {
            (before(limit, self.settings.margin), reason)
        }
    }

    /// Picks what to send now.
    fn send(&mut self, now: Instant, other: Instant) -> Timer {
        let (limit, late) = self.limit(other);
        let fits = |link: &Self, payload: usize| after(now, link.need(payload, late)) <= limit;
        let allowed = self.event.data_sent < self.settings.packets_per_event;
        let mut blocked = None;
        let retransmission = self.queue.in_flight() != InFlight::None;
        if !retransmission {
            let slots = self.settings.tx_slots;
            let wanted = self.queue.next_kind();
            let next = match wanted {
                PduKind::Control => PduKind::Control,
                PduKind::Data if !allowed => {
                    blocked = Some(CloseReason::PacketLimit);
                    PduKind::Empty
                }
                PduKind::Data if !self.queue.may_send_new(slots) => {
                    blocked = Some(CloseReason::Descriptors);
                    PduKind::Empty
                }
                PduKind::Data if !fits(self, self.queue.next_length(self.tx_length).unwrap_or(0)) => {
                    blocked = Some(late);
                    PduKind::Empty
                }
                kind => kind,
            };
            self.queue.take(next, self.tx_length);
        }
        let length = self.queue.in_flight_length();
        // A central begins an event at its anchor in any case: that is what keeps the connection.
        let keeps_alive = self.role == Role::Central && self.event.sent == 0;
        if !keeps_alive && !fits(self, length) {
            self.queue.give_back_unsent(retransmission);
            return self.close(now, late);
        }
        let duration = self.tx_phy().air_time(length, self.sends_mic());
        let kind = self.queue.in_flight().kind();
        if kind == PduKind::Data && !retransmission {
            self.event.data_sent += 1;
        }
        self.event.stop = None;
        let md = match blocked {
            Some(reason) => {
                self.event.stop = Some(reason);
                false
            }
            None => self.more(after(now, duration), limit, late),
        };
        self.event.sent += 1;
        self.event.own_md = md;
        let header = Header { llid: Llid::Continuation, nesn: self.nesn, sn: self.sn, md, length: 0 };
        let clear = self.queue.pdu(header);
        let (pdu, clear) = match self.encryption.seal(self.role, &clear, retransmission) {
            Some(sealed) => (sealed, Some(Box::new(clear))),
            None => (clear, None),
        };
        let end = after(now, duration);
        self.phase = if self.leaving.is_some() {
            Phase::LastPacket { end }
        } else if self.role == Role::Central || md || self.event.peer_md || self.event.errors > 0 {
            // Active clocks may be 2 us off in either direction (4.2.1).
            Phase::Answer { until: after(end, self.settings.ifs + 4 * US + self.rx_phy().sync_time()) }
        } else {
            Phase::LastPacket { end }
        };
        Timer::Send(ToSend { pdu, clear, kind, retransmission, duration })
    }

    /// Whether a further packet with something in it could follow the one that ends at `end`.
    fn more(&mut self, end: Instant, limit: Instant, late: CloseReason) -> bool {
        if !self.queue.more() {
            return false;
        }
        let answer = self.rx_phy().air_time(0, false) + 2 * self.settings.ifs;
        let reason = if self.event.data_sent >= self.settings.packets_per_event {
            CloseReason::PacketLimit
        } else if !self.queue.may_send_new(self.settings.tx_slots) {
            CloseReason::Descriptors
        } else if after(end, answer + self.need(self.queue.next_length(self.tx_length).unwrap_or(0), late)) > limit {
            late
        } else {
            return true;
        };
        self.event.stop = Some(reason);
        false
    }

    /// A packet with this link's access address begins at `start`. Whether it is listened to.
    pub(crate) fn air_start(&mut self, start: Instant) -> bool {
        match self.phase {
            Phase::Window { .. } => {
                self.clock.synchronise(start);
                self.phase = Phase::Receiving;
                true
            }
            Phase::Answer { .. } => {
                self.phase = Phase::Receiving;
                true
            }
            _ => false,
        }
    }

    /// The packet that [`Self::air_start`] took ends now.
    pub(crate) fn air_end(&mut self, now: Instant, pdu: &Pdu, crc_right: bool) -> (Timer, Option<Delivered>) {
        if self.phase != Phase::Receiving {
            return (Timer::Nothing, None);
        }
        let header = if crc_right { Header::parse(pdu.header()) } else { None };
        let Some(header) = header else {
            self.event.errors += 1;
            self.event.failed = true;
            // 4.5.6: two in a row close the event.
            let heard = self.role == Role::Peripheral || self.event.own_md || self.event.peer_md;
            let timer =
                if self.event.errors >= 2 || !heard { self.close(now, CloseReason::CrcErrors) } else { self.turn(now) };
            return (timer, None);
        };
        (self.last_valid, self.heard_any) = (now, true);
        self.event.errors = 0;
        self.event.peer_md = header.md;
        let mut delivered = Delivered::default();
        if self.queue.in_flight() != InFlight::None {
            if header.nesn == self.sn {
                self.event.failed = true;
            } else {
                self.sn = !self.sn;
                self.encryption.acknowledged(self.role);
                match self.queue.acknowledged() {
                    Acknowledged::Packet => delivered.completed = true,
                    Acknowledged::Control(control) => {
                        encryption::acknowledged(self, control.as_slice().first());
                        delivered.terminated = procedure::acknowledged(control);
                    }
                    Acknowledged::Part | Acknowledged::Nothing => {}
                }
                self.event.failed = false;
            }
        }
        if header.sn == self.nesn {
            self.nesn = !self.nesn;
            delivered.new = true;
        }
        let go_on = self.role == Role::Peripheral || self.event.own_md || header.md;
        let timer = if go_on {
            self.turn(now)
        } else {
            let reason = self.event.stop.unwrap_or(CloseReason::MdCleared);
            self.close(now, reason)
        };
        (timer, Some(delivered))
    }

    /// Sends after the inter frame space.
    const fn turn(&mut self, now: Instant) -> Timer {
        self.phase = Phase::Pause { at: after(now, self.settings.ifs) };
        Timer::Nothing
    }

    fn close(&mut self, now: Instant, reason: CloseReason) -> Timer {
        if self.event.stop.is_none() && !matches!(reason, CloseReason::MdCleared) {
            self.event.stop = Some(reason);
        }
        let counter = self.clock.counter;
        self.queue.refill(self.settings.tx_slots, self.tx_length);
        let supervision = if self.heard_any { self.clock.timeout } else { 6 * self.clock.interval };
        let update = if span(self.last_valid, now) >= supervision {
            self.phase = Phase::Gone;
            Some(if self.heard_any { Update::Lost } else { Update::NeverThere })
        } else {
            let update = self.advance(now);
            let wake = self.clock.wake(self.role);
            self.phase = Phase::Asleep { wake };
            self.hold = if !self.queue.has_new() {
                None
            } else {
                let otherwise = match reason {
                    CloseReason::NoTime | CloseReason::OtherLink => Hold::DoesNotFit,
                    CloseReason::Descriptors => Hold::Controller,
                    _ => Hold::EventClosed,
                };
                Some(self.hold_until(now, wake, otherwise))
            };
            update
        };
        Timer::Closed { counter, reason, packets: self.event.sent, update }
    }

    /// On to the next event that this side takes part in.
    fn advance(&mut self, now: Instant) -> Option<Update> {
        let mut update = None;
        let mut events = 0;
        loop {
            events += 1;
            self.clock.next();
            if let Some(done) = self.procedures.instant(&mut self.clock, &mut self.phy, self.settings.s2) {
                update = Some(done);
            }
            let may_skip = self.role == Role::Peripheral
                && events <= self.clock.latency
                && !self.event.failed
                && self.queue.is_empty()
                && self.procedures.is_idle()
                && self.encryption.is_idle()
                && self.clock.is_synchronised();
            let past = self.clock.wake(self.role) < now;
            if !may_skip && !past {
                return update;
            }
        }
    }

    /// A new PDU that isn't empty has come: what it says. `None` when its MIC is wrong, or when it can't come at this stage of an
    /// encryption procedure (5.1.3.1): the connection is over.
    pub(crate) fn open(&mut self, pdu: &Pdu) -> Option<Opened> {
        let clear = if self.encryption.receives() { Some(self.encryption.open(self.role, pdu)?) } else { None };
        let plain = clear.as_ref().unwrap_or(pdu);
        let header = Header::parse(plain.header());
        let may_come = header.is_some_and(|header| self.encryption.may_come(header.llid, plain.payload()));
        may_come.then_some(clear.map_or(Opened::AsItIs, Opened::Clear))
    }

    /// The central's host wants the link encrypted, or encrypted anew. `false` while such a procedure runs.
    pub(crate) fn encrypt(&mut self, choice: KeyChoice) -> bool {
        encryption::begin(self, choice)
    }

    /// The peripheral's host has the key, or none. `false` when it was not asked.
    pub(crate) fn give_key(&mut self, key: Option<Key>) -> bool {
        encryption::give_key(self, key)
    }

    /// A control payload came in; the answer is queued.
    pub(crate) fn controlled(&mut self, payload: &[u8]) -> Option<Update> {
        procedure::received(self, payload)
    }

    /// Begins a procedure of the central or of either side.
    pub(crate) fn request(&mut self, wanted: Wanted) {
        procedure::request(self, wanted);
    }

    /// The connection ends without a further packet.
    pub(crate) const fn end(&mut self) {
        self.phase = Phase::Gone;
    }
}
