//! What is wanted of a packet's headers, and why it may not be had.

use taut_event::{Datagram, SackBlock, TimestampOption};

use crate::ends::Ends;

/// Why a packet is not followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Skipped {
    /// Its link type is not read.
    UnknownLink,
    /// It is not TCP over IP.
    NotTcp,
    /// A fragment of a datagram, other than its first.
    Fragment,
    /// So little of it was kept that its TCP header is not whole.
    Cut,
    /// A length in a header can't be.
    Malformed,
    /// Address and port are the same at both ends, so nothing tells one direction from the other.
    ToItself,
}

/// The TCP header of a packet, with what is needed of the headers before it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TcpPacket<'a> {
    /// Between whom.
    pub ends: Ends<'a>,
    /// Number of its first byte, or of its SYN.
    pub sequence: u32,
    /// The next byte that its sender waits for.
    pub acknowledgement: u32,
    /// FIN, SYN, RST, PSH, ACK and so on, as the bits of the header.
    pub flags: u8,
    /// As in the header, without scale.
    pub window: u16,
    /// Bytes of payload, as it was on the wire.
    pub payload: u32,
    /// Identification of the IPv4 header.
    pub identification: Option<u16>,
    /// Option: the largest segment; 0 where it is absent.
    pub mss: u16,
    /// Option: the scale of the window.
    pub window_scale: Option<u8>,
    /// Option: timestamps.
    pub timestamps: Option<TimestampOption>,
    /// Option: end of the highest range acknowledged selectively.
    pub sacked_to: Option<u32>,
    /// Option: the first block acknowledged selectively.
    pub sack: Option<SackBlock>,
    /// Option: its sender understands selective acknowledgements.
    pub permits_sack: bool,
    /// Option: it is one of several connections that carry one stream (MPTCP).
    pub is_subflow: bool,
    /// The capture kept less than the options: what is absent may have been there.
    pub options_are_cut: bool,
}

/// A datagram of UDP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UdpPacket<'a> {
    /// Between whom.
    pub ends: Ends<'a>,
    /// Bytes of payload, as it was on the wire.
    pub payload: u32,
    /// What was kept of it.
    pub kept: &'a [u8],
    /// Identification of the IPv4 header.
    pub identification: Option<u16>,
    /// What can be read of it.
    pub seen: Datagram,
}
