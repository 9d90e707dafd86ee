//! What a link is made of, and what can be asked of it at any time.

use taut_time::Instant;

use super::clock::Clock;
use super::encryption::Encryption;
use super::event::{CloseReason, Event};
use super::procedure::Procedures;
use super::queue::Queue;
use super::terms::{Hold, Pickup, Settings};
use crate::pdu::control::Control;
use crate::phy::{MIN_LENGTH, Phy};
use crate::rng::Random;
use crate::role::Role;
use crate::time::{NEVER, Nanos, after, before};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
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
    pub(super) phase: Phase,
    pub(super) event: Event,
    pub(super) queue: Queue,
    pub(super) procedures: Procedures,
    pub(super) encryption: Encryption,
    pub(super) sn: bool,
    pub(super) nesn: bool,
    pub(super) hold: Option<Hold>,
    pub(super) last_valid: Instant,
    pub(super) heard_any: bool,
    /// LL_TERMINATE_IND came, with this reason: one more packet acknowledges it.
    pub(super) leaving: Option<u8>,
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
    pub(super) fn urgent(&mut self, control: Control) {
        self.queue.urgent(control.to_bytes());
    }

    /// Whether what this side sends carries a MIC.
    pub(super) const fn sends_mic(&self) -> bool {
        self.settings.mic || self.encryption.sends()
    }

    pub(super) fn hold_until(&self, now: Instant, next: Instant, otherwise: Hold) -> Hold {
        let need = self.need(self.queue.next_length(self.tx_length).unwrap_or(0), CloseReason::NoTime);
        if !self.queue.may_send_new(self.settings.tx_slots) {
            Hold::Controller
        } else if after(now, need) > before(next, self.settings.margin) {
            Hold::DoesNotFit
        } else {
            otherwise
        }
    }

    /// Time that must be left to send `payload` bytes: until the last packet of the exchange has ended, and the inter
    /// frame space that keeps it off the next anchor. A peripheral keeps its answer off the next anchor by itself; it
    /// knows nothing of the central's other reasons to stop, so the central allows for its longest answer then.
    pub(super) fn need(&self, payload: usize, late: CloseReason) -> Nanos {
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
}
