use taut_link::TcpInfo;
use taut_record::TcpFacts;
use taut_time::Duration;

/// What a kernel tells of a connection, as a recording has it.
pub(crate) fn tcp_facts(info: TcpInfo) -> TcpFacts {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    TcpFacts {
        mss_bytes: info.send_mss_bytes,
        smoothed_rtt_ns: nanos(info.smoothed_rtt),
        min_rtt_ns: nanos(info.min_rtt),
        congestion_window_segments: info.congestion_window_segments,
        retransmitted_segments: info.retransmitted_segments,
        data_segments_out: info.data_segments_out,
        busy_ns: nanos(info.busy_time),
        receive_window_limited_ns: nanos(info.receive_window_limited),
        send_buffer_limited_ns: nanos(info.send_buffer_limited),
        delivery_rate_bps: info.delivery_rate_bytes_per_second.saturating_mul(8),
    }
}
