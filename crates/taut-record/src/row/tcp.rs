use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the kernel told of a TCP connection (`TCP_INFO`).
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct TcpFacts {
    /// Largest segment.
    pub mss_bytes: u32,
    /// Smoothed round trip.
    pub smoothed_rtt_ns: u64,
    /// Least round trip.
    pub min_rtt_ns: u64,
    /// Congestion window.
    pub congestion_window_segments: u32,
    /// Segments sent again.
    pub retransmitted_segments: u32,
    /// Segments with data sent.
    pub data_segments_out: u32,
    /// Time in which data was outstanding.
    pub busy_ns: u64,
    /// Of that, limited by the peer's receive window.
    pub receive_window_limited_ns: u64,
    /// Of that, limited by the local send buffer.
    pub send_buffer_limited_ns: u64,
    /// Delivery rate as the kernel estimates it.
    pub delivery_rate_bps: u64,
}
