use super::terms::{ToSend, Update};

/// Why a connection event ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CloseReason {
    /// Neither side had more data (MD).
    MdCleared,
    /// No further exchange would have ended before the next anchor.
    NoTime,
    /// The controller's longest event was over.
    EventLength,
    /// The controller sends no more packets than that in one event.
    PacketLimit,
    /// The controller's transmit descriptors were used up; further data waited behind them.
    Descriptors,
    /// Two packets in a row with a wrong CRC.
    CrcErrors,
    /// The other side didn't answer.
    NoAnswer,
    /// The peripheral didn't hear the event's first packet.
    NoSync,
    /// Another link needed the radio.
    OtherLink,
}

impl CloseReason {
    /// Name for reports: `md_cleared`, `no_time`, …
    pub const fn name(self) -> &'static str {
        match self {
            Self::MdCleared => "md_cleared",
            Self::NoTime => "no_time",
            Self::EventLength => "event_length",
            Self::PacketLimit => "packet_limit",
            Self::Descriptors => "descriptors",
            Self::CrcErrors => "crc_errors",
            Self::NoAnswer => "no_answer",
            Self::NoSync => "no_sync",
            Self::OtherLink => "other_link",
        }
    }
}

/// What a side remembers of the connection event that is going on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Event {
    /// Packets that this side sent.
    pub(crate) sent: u32,
    /// Data PDUs that this side sent, repetitions not counted.
    pub(crate) data_sent: u16,
    /// MD of the last packet that this side sent.
    pub(crate) own_md: bool,
    /// MD of the last one received.
    pub(crate) peer_md: bool,
    /// Wrong CRCs in a row.
    pub(crate) errors: u8,
    /// The last packet sent was not acknowledged, or one received was wrong.
    pub(crate) failed: bool,
    /// Why this side won't go on although it has data.
    pub(crate) stop: Option<CloseReason>,
}

/// What a link does when its timer runs out or a packet has come in.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "made and consumed in place, once a packet")]
pub(crate) enum Timer {
    Nothing,
    Send(ToSend),
    Closed { counter: u16, reason: CloseReason, packets: u32, update: Option<Update> },
}

/// A procedure that the host asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    Length { octets: u16 },
    Features,
    Phy { tx: u8, rx: u8, s2: bool },
    Connection { interval: u16, latency: u16, timeout: u16 },
    Terminate { reason: u8 },
}
