//! A datagram of UDP, and what of its payload can be read.

use crate::{Address, ConnectionId};

/// A datagram of UDP passed the vantage point. The event's bytes are its payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Datagram {
    /// Distinguishes payloads: two that are equal have the same one. `None` where the payload is empty or was not kept
    /// whole.
    pub hash: Option<u32>,
    /// The payload's first byte; `None` where it is empty or was not kept.
    pub first: Option<u8>,
    /// It came in several fragments of IP.
    pub is_fragmented: bool,
    /// What could be read of it.
    pub content: Content,
}

/// What the payload of a datagram is, where that can be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Content {
    /// Something else.
    Other,
    /// A question to a server of DNS, or its answer.
    Dns(Dns),
    /// A packet of QUIC with a long header (RFC 8999, section 5.1).
    Quic(QuicLong),
    /// What begins as a numbered packet does. Of RTP that may be chance: only a run of numbers shows it.
    Numbered(Numbered),
}

/// A packet that has a number in its stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Numbered {
    /// The stream: of RTP its SSRC, of Tautline the session.
    pub stream: u64,
    /// Its number; of RTP modulo 2^16.
    pub sequence: u64,
    /// Of RTP (RFC 3550, section 5.1); `None` of Tautline's own data.
    pub rtp: Option<RtpClock>,
}

/// When RTP's data is to be played, and by which clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RtpClock {
    /// In units of the payload's clock, modulo 2^32.
    pub timestamp: u32,
    /// 0 to 127.
    pub payload_type: u8,
}

/// A message of DNS (RFC 1035, section 4.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Dns {
    /// Its transaction.
    pub id: u16,
    /// It is an answer.
    pub is_answer: bool,
    /// The response code of an answer (RFC 1035, section 4.1.1): 0 no error, 2 server failure, 3 no such name.
    pub code: u8,
    /// Distinguishes the names asked for, whatever their case; 0 where the name was not kept whole.
    pub name: u32,
    /// What of the name is asked for: 1 A, 28 AAAA; 0 where that is not known.
    pub kind: u16,
    /// The server's end.
    pub server: Address,
    /// Port of the end that asks.
    pub port: u16,
}

/// The long header of QUIC, of any version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QuicLong {
    /// The version; 0 in a negotiation of versions.
    pub version: u32,
    /// The destination's connection ID.
    pub destination: ConnectionId,
}
