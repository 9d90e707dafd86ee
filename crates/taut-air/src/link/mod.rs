//! One connection as one controller sees it (Core Specification, Vol 6, Part B, 4.5): anchors and connection events,
//! acknowledgement, more data, instants, supervision. It does not know of HCI, nor of other links.

mod clock;
mod control;
mod encrypting;
mod encryption;
mod event;
mod procedure;
mod queue;
mod state;
mod terms;

use alloc::boxed::Box;

use taut_time::Instant;

use crate::cipher::Key;
use crate::pdu::{Header, Llid, Pdu};
use crate::time::{US, after, before, span};

use crate::role::Role;
pub(crate) use clock::{Clock, Timing};
pub(crate) use encryption::KeyChoice;
pub use event::CloseReason;
use event::Event;
pub(crate) use event::{Timer, Wanted};
pub(crate) use queue::Delivered;
use queue::{Acknowledged, InFlight};
pub(crate) use state::Link;
use state::Phase;
pub(crate) use terms::{Hold, Opened, Settings, ToSend, Update};
pub use terms::{PduKind, Pickup, Reception};

impl Link {
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
                        encrypting::acknowledged(self, control.as_slice().first());
                        delivered.terminated = control::acknowledged(control);
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

    /// A new PDU that isn't empty has come: what it says. `None` when its MIC is wrong, or when it
    /// can't come at this stage of an encryption procedure (5.1.3.1): the connection is over.
    pub(crate) fn open(&mut self, pdu: &Pdu) -> Option<Opened> {
        let clear = if self.encryption.receives() { Some(self.encryption.open(self.role, pdu)?) } else { None };
        let plain = clear.as_ref().unwrap_or(pdu);
        let header = Header::parse(plain.header());
        let may_come = header.is_some_and(|header| self.encryption.may_come(header.llid, plain.payload()));
        may_come.then_some(clear.map_or(Opened::AsItIs, Opened::Clear))
    }

    /// The central's host wants the link encrypted, or encrypted anew. `false` while such a procedure runs.
    pub(crate) fn encrypt(&mut self, choice: KeyChoice) -> bool {
        encrypting::begin(self, choice)
    }

    /// The peripheral's host has the key, or none. `false` when it was not asked.
    pub(crate) fn give_key(&mut self, key: Option<Key>) -> bool {
        encrypting::give_key(self, key)
    }

    /// A control payload came in; the answer is queued.
    pub(crate) fn controlled(&mut self, payload: &[u8]) -> Option<Update> {
        control::received(self, payload)
    }

    /// Begins a procedure of the central or of either side.
    pub(crate) fn request(&mut self, wanted: Wanted) {
        control::request(self, wanted);
    }

    /// The connection ends without a further packet.
    pub(crate) const fn end(&mut self) {
        self.phase = Phase::Gone;
    }
}
