use taut_time::Instant;

use crate::bredr::Packet;
use crate::host::Blocked;
use crate::l2cap::ChannelParameters;
use crate::ledger::Category;
use crate::link::{CloseReason, Reception};
use crate::phy::Phy;
use crate::role::Role;
use crate::time::Nanos;

/// Sees all that happens in a simulation. `()` sees nothing and costs nothing.
pub trait Observer {
    /// Whether events are to be made at all.
    const ACTIVE: bool = true;

    /// Takes an event. Events come in the order of their `at`, but for [`Happening::Span`], which
    /// comes when it is over.
    fn event(&mut self, event: &AirEvent<'_>);
}

impl Observer for () {
    const ACTIVE: bool = false;

    fn event(&mut self, _: &AirEvent<'_>) {}
}

impl<F: FnMut(&AirEvent<'_>)> Observer for F {
    fn event(&mut self, event: &AirEvent<'_>) {
        self(event);
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub struct AirEvent<'a> {
    /// When: of a PDU its start, of a span its beginning, of all else the time itself.
    pub at: Instant,
    /// Link, from 0: its peripheral's number.
    pub link: u16,
    /// What.
    pub what: Happening<'a>,
}

/// What happened. `side` is the machine that it happened on.
#[derive(Clone, Copy, Debug)]
pub enum Happening<'a> {
    /// All channels are open; what follows counts in the [`Outcome`](super::Outcome).
    MeasurementBegins,
    /// A connection event begins with the central's first packet.
    EventBegins {
        /// The event's number.
        counter: u16,
        /// Data channel, 0 to 36.
        channel: u8,
    },
    /// It is over.
    EventEnds {
        /// The event's number.
        counter: u16,
        /// Why it ended. When a side had data that it would not send, that side's reason.
        reason: CloseReason,
        /// Data PDUs in it, of both sides, empty ones not counted.
        data_pdus: u32,
        /// Until the next anchor.
        unused: Nanos,
    },
    /// A PDU was on the air. Comes when it has ended.
    Pdu {
        /// Side that sent it.
        from: Role,
        /// Time on air.
        duration: Nanos,
        /// Physical layer.
        phy: Phy,
        /// Access address.
        access_address: u32,
        /// Initial value of the CRC, 24 bits.
        crc_init: u32,
        /// Channel index, 0 to 39.
        channel: u8,
        /// Number of the connection event; 0 for advertising.
        counter: u16,
        /// Header and payload, without MIC and CRC, in clear text.
        bytes: &'a [u8],
        /// The same in cipher text, with the MIC, as they were on the air; `None` for what was in clear text there.
        sealed: Option<&'a [u8]>,
        /// Whether a MIC follows on the air.
        mic: bool,
        /// Sequence number, next expected sequence number, more data; all false for advertising.
        sn: bool,
        /// See `sn`.
        nesn: bool,
        /// See `sn`.
        md: bool,
        /// Sent before.
        retransmission: bool,
        /// What came of it.
        reception: Reception,
        /// What it was for.
        purpose: Purpose,
    },
    /// A packet of BR/EDR was on the air. Comes when it has ended.
    Baseband {
        /// The packet.
        packet: &'a Packet,
        /// What came of it: of one without payload, missed or received.
        reception: Reception,
    },
    /// What the air was used for, or who kept it idle, until another category began.
    Span {
        /// What for.
        category: Category,
        /// How long.
        duration: Nanos,
    },
    /// An HCI packet left one end of the host transport.
    HciSent {
        /// Machine.
        side: Role,
        /// From the controller to the host.
        to_host: bool,
        /// The packet, H4 indicator first.
        bytes: &'a [u8],
    },
    /// It arrived at the other end.
    HciArrived {
        /// Machine.
        side: Role,
        /// From the controller to the host.
        to_host: bool,
        /// The packet, H4 indicator first.
        bytes: &'a [u8],
    },
    /// A channel is open.
    ChannelOpen {
        /// Machine.
        side: Role,
        /// What was agreed.
        parameters: ChannelParameters,
    },
    /// A link is gone.
    Disconnected {
        /// Machine.
        side: Role,
        /// HCI error code.
        reason: u8,
    },
    /// The program's `send` took an SDU.
    SduWritten {
        /// Machine.
        side: Role,
        /// Number of the SDU in its direction, from 0.
        sequence: u64,
        /// Bytes.
        bytes: usize,
        /// PDUs that it was cut into.
        pdus: usize,
    },
    /// An SDU is whole at the receiver.
    SduComplete {
        /// Machine.
        side: Role,
        /// Number of the SDU.
        sequence: u64,
        /// Bytes.
        bytes: usize,
    },
    /// The program has read it.
    SduRead {
        /// Machine.
        side: Role,
        /// Number of the SDU.
        sequence: u64,
        /// Bytes.
        bytes: usize,
        /// Since the `send` that took it.
        latency: Nanos,
    },
    /// The program could not send.
    Blocked {
        /// Machine.
        side: Role,
        /// Why.
        why: Blocked,
    },
    /// The socket is ready again.
    Writable {
        /// Machine.
        side: Role,
    },
    /// Credits were given back.
    CreditsGranted {
        /// Machine that gives them.
        side: Role,
        /// How many.
        credits: u16,
    },
    /// Credits have come to the stack that may use them.
    CreditsReceived {
        /// Machine that got them.
        side: Role,
        /// How many.
        credits: u16,
        /// How many it has now.
        total: u32,
    },
    /// The host knows of completed packets.
    CompletedPackets {
        /// Machine.
        side: Role,
        /// How many.
        packets: u16,
        /// Buffers free in the controller, as far as the host knows.
        free: u16,
    },
}

/// What a PDU was for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// Setting up the link.
    Advertising,
    /// A poll or an acknowledgement.
    Empty,
    /// Link layer control.
    Control,
    /// L2CAP signalling.
    Signalling,
    /// Part of an SDU: so many bytes of it.
    Payload(usize),
}

pub(super) const fn is_active<O: Observer>(_: &O) -> bool {
    O::ACTIVE
}
