//! What a controller is told, and what it tells.

use alloc::boxed::Box;
use alloc::vec::Vec;

use taut_time::Instant;

use super::classic::ClassicConfig;
use crate::bredr;
use crate::link::{CloseReason, PduKind, Pickup};
use crate::pdu::Pdu;
use crate::pdu::advertising::Address;
use crate::phy::Phy;
use crate::role::Role;
use crate::time::Nanos;

/// When a controller reports packets that the peer acknowledged (HCI Number Of Completed Packets).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Completion {
    /// Each at once.
    #[default]
    Each,
    /// So many at a time.
    Batch(u16),
    /// All of them when the next connection event begins.
    NextEvent,
}

/// How a controller is made.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerConfig {
    /// Public device address, least significant byte first.
    pub address: Address,
    /// ACL packets that it buffers from the host (LE Read Buffer Size).
    pub acl_buffers: u16,
    /// Bytes of data in each.
    pub acl_size: u16,
    /// When it reports them free again.
    pub completion: Completion,
    /// Most data PDUs that it sends in one connection event; `None` for no limit.
    pub packets_per_event: Option<u16>,
    /// Longest connection event; `None` for no limit but the next anchor.
    pub event_length: Option<Nanos>,
    /// Time that it keeps free before an anchor.
    pub event_margin: Nanos,
    /// Transmit descriptors of the link layer, filled when packets come and, once all of them are free again, when the
    /// event has closed; 0 when there are always enough.
    pub tx_slots: u16,
    /// When its link layer notices packets that come while a connection event is open.
    pub pickup: Pickup,
    /// Longest payload of a data PDU that it can do, 27 to 251.
    pub max_length: u16,
    /// PHY that it asks for by itself on every link that it is the central of; `None` leaves that to its host.
    pub phy: Option<Phy>,
    /// LE Coded is sent with S=2 instead of S=8.
    pub coded_s2: bool,
    /// Inter frame space.
    pub ifs: Nanos,
    /// Links carry a MIC in every PDU that isn't empty, whether their hosts encrypt them or not:
    /// its air time without a cipher.
    pub encrypted: bool,
    /// Error of its sleep clock in ppm, positive when it is fast.
    pub clock_ppm: i32,
    /// Accuracy in ppm that it declares for it.
    pub accuracy_ppm: u16,
    /// Unit of connection intervals: 1.25 ms, or 125 us for shorter ones.
    pub interval_unit: Nanos,
    /// Links that share a central's time: their anchors are spread over the interval.
    pub links: u16,
    /// Its BR/EDR side.
    pub classic: ClassicConfig,
}

/// What a controller takes.
#[derive(Debug)]
pub enum Input<'a> {
    /// An HCI packet from the host.
    Host(Vec<u8>),
    /// A packet begins on the air, now.
    AirStart(&'a Transmission),
    /// It ends, now; it has been received with the right CRC or not.
    AirEnd(&'a Transmission, bool),
    /// A packet of BR/EDR begins on the air, now.
    ClassicStart(&'a bredr::Packet),
    /// It ends, now; its CRC is right or not.
    ClassicEnd(&'a bredr::Packet, bool),
}

/// What a controller gives.
#[derive(Clone, Debug)]
pub enum Output {
    /// An HCI packet for the host.
    Host(Vec<u8>),
    /// A packet that begins on the air now.
    Transmit(Box<Transmission>),
    /// A packet of BR/EDR that begins on the air now.
    TransmitClassic(Box<bredr::Packet>),
    /// A connection event ended.
    EventClosed(EventClosed),
}

/// A connection event as one side saw it.
#[derive(Clone, Copy, Debug)]
pub struct EventClosed {
    /// Connection handle.
    pub handle: u16,
    /// Side.
    pub role: Role,
    /// The event's number.
    pub counter: u16,
    /// Why it ended.
    pub reason: CloseReason,
    /// Packets that this side sent.
    pub packets: u32,
    /// When the next event's anchor is expected.
    pub next_anchor: Instant,
}

/// A packet on the air.
#[derive(Clone, Debug)]
pub struct Transmission {
    /// Access address.
    pub access_address: u32,
    /// Initial value of the CRC, 24 bits.
    pub crc_init: u32,
    /// Channel index, 0 to 39.
    pub channel: u8,
    /// Physical layer.
    pub phy: Phy,
    /// Whether the air time of a MIC counts that isn't there: one of a link in cipher text is part of the PDU.
    pub mic: bool,
    /// First bit.
    pub start: Instant,
    /// End of the last bit.
    pub end: Instant,
    /// Header and payload as they are on the air, with the MIC of a link in cipher text.
    pub pdu: Pdu,
    /// What the sender encrypted, for observers; no receiver looks at it.
    pub clear: Option<Box<Pdu>>,
    /// What it is for.
    pub kind: PduKind,
    /// Sent before.
    pub retransmission: bool,
    /// Connection handle at the sender; 0 for advertising.
    pub handle: u16,
    /// Side that sends.
    pub role: Role,
    /// Number of the connection event.
    pub counter: u16,
}
