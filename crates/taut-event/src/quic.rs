//! What an end of a connection of QUIC logs of itself (qlog).

use crate::Address;

/// Something that an end logged. The event's direction is that of the data it is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Quic {
    /// Whether the end that logs is the client.
    Role {
        /// It is.
        is_client: bool,
    },
    /// Addresses of the end that logs, and of the other one.
    Ends(Address, Address),
    /// The version of QUIC.
    Version(u32),
    /// A packet was sent, or received. The event's bytes are its stream data and datagrams.
    Packet(QuicPacket),
    /// Packets of this direction were acknowledged, those of application data only.
    Acknowledged {
        /// Number of the first one.
        from: u64,
        /// That of the last one.
        to: u64,
    },
    /// The sender took a packet for lost.
    Lost {
        /// Its number.
        number: u64,
        /// Whether it was one of application data; else it was one of the handshake.
        is_application: bool,
    },
    /// The sender waited so long for an acknowledgement that it sends a probe (PTO; RFC 9002, section 6.2).
    TimerExpired,
    /// The sender of this direction says that it has more than the receiver allows (RFC 9000, section 4.1).
    Blocked {
        /// The stream, or `None` for the connection.
        stream: Option<u64>,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The receiver of this direction allows so much.
    Allowed {
        /// The stream, or `None` for the connection.
        stream: Option<u64>,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A figure of the sender's recovery (RFC 9002, sections 5 and 7).
    Metric(QuicMetric, u64),
    /// The sender's congestion control is in another state.
    Congestion(QuicCongestion),
    /// The log ends here.
    Ended,
}

/// A packet of QUIC.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QuicPacket {
    /// Its number, in its space.
    pub number: u64,
    /// Bytes of it; 0 where the log does not say.
    pub length: u32,
    /// 0-RTT or 1-RTT; else it belongs to the handshake.
    pub is_application: bool,
    /// The peer has to acknowledge it.
    pub is_ack_eliciting: bool,
    /// It was sent since no acknowledgement came.
    pub is_probe: bool,
    /// The log tells its frames.
    pub has_frames: bool,
    /// It has data of a stream that both ends write to, or a datagram, so it may be a question or an answer.
    pub takes_turn: bool,
}

/// What a figure is of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QuicMetric {
    /// Bytes in flight.
    InFlight,
    /// Congestion window, in bytes.
    Window,
    /// Smoothed round trip, in nanoseconds.
    SmoothedRtt,
    /// Newest round trip, in nanoseconds.
    LatestRtt,
    /// Least round trip, in nanoseconds.
    LeastRtt,
    /// Rate at which the sender spaces its packets, in bits per second.
    PacingRate,
}

/// State of the congestion control.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QuicCongestion {
    /// The window doubles each round trip.
    SlowStart,
    /// Another one.
    Other,
}
