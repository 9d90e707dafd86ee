//! What the parts of a link share: what a controller fixes for it, what a PDU is for, what came of one.

use alloc::boxed::Box;

use crate::pdu::Pdu;
use crate::time::Nanos;

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
    /// At once while more than one packet waits. The last one's header, with MD, is fixed when the one before it
    /// goes out: what comes after that is noticed when an event has closed and all before it is acknowledged.
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

/// What a procedure changed, for the host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Update {
    Connection,
    Length {
        tx: u16,
        rx: u16,
    },
    Phy,
    /// The peer's FeatureSet, or that it has no such procedure.
    Features(Option<[u8; 8]>),
    /// The peer asks for encryption with the key that goes by these.
    KeyWanted {
        random: [u8; 8],
        diversifier: u16,
    },
    /// An encryption procedure of either kind is over.
    Encryption {
        status: u8,
        is_refresh: bool,
    },
    /// The peer ended the connection.
    Terminated(u8),
    /// The supervision timeout ran out.
    Lost,
    /// Nothing was heard of the peer from the beginning.
    NeverThere,
}
