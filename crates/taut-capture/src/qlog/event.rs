//! From an event of the log to those of this project.

use serde_json::Value;
use taut_event::{Address, Direction, Quic, QuicCongestion, QuicMetric, QuicPacket};

/// No packet acknowledges more ranges; further ones are left out.
const MOST_RANGES: usize = 4096;

/// Takes what is told, with the bytes of data it is about.
pub(super) type Tell<'t> = dyn FnMut(Direction, Quic, u64) + 't;

/// A number that may stand in a string, as 64-bit numbers do in older logs.
pub(super) fn real(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|number: &f64| number.is_finite())
}

/// The same, of what is counted.
fn whole(value: &Value) -> Option<u64> {
    // A figure may have been computed in floating point.
    value.as_u64().or_else(|| real(value).filter(|number| *number >= 0.0).map(|number| number as u64))
}

/// A time in milliseconds as nanoseconds.
fn nanos(value: &Value) -> Option<u64> {
    real(value).filter(|ms| *ms >= 0.0).map(|ms| (ms * 1e6) as u64)
}

/// What an event of this name tells, without the namespace in front.
pub(super) fn events(name: &str, data: &Value, tell: &mut Tell<'_>) {
    let own = Direction::Forward;
    match name {
        "packet_sent" => packet(Direction::Forward, data, tell),
        "packet_received" => packet(Direction::Backward, data, tell),
        "packet_lost" => {
            // aioquic has no header around type and number.
            let header = if data["header"].is_object() { &data["header"] } else { data };
            // Probes of the path's MTU are meant to be lost.
            let is_meant = data["is_mtu_probe_packet"].as_bool() == Some(true);
            if let (Some(number), false) = (whole(&header["packet_number"]), is_meant) {
                let is_application = is_application(header);
                tell(own, Quic::Lost { number, is_application }, 0);
            }
        }
        "packets_acked" if data["packet_number_space"] == "application_data" => {
            let numbers = data["packet_numbers"].as_array();
            for number in numbers.into_iter().flatten().take(MOST_RANGES).filter_map(whole) {
                tell(own, Quic::Acknowledged { from: number, to: number }, 0);
            }
        }
        "metrics_updated" | "recovery_metrics_updated" => metrics(data, tell),
        "congestion_state_updated" => {
            let is_slow = data["new"] == "slow_start";
            let state = if is_slow { QuicCongestion::SlowStart } else { QuicCongestion::Other };
            tell(own, Quic::Congestion(state), 0);
        }
        "loss_timer_updated" if data["event_type"] == "expired" && data["timer_type"] == "pto" => {
            tell(own, Quic::TimerExpired, 0);
        }
        "connection_started" => {
            let end = |host: &Value, port: &Value| {
                Some(Address { ip: host.as_str()?.parse().ok()?, port: u16::try_from(whole(port)?).ok()? })
            };
            let nested = |side: &str| {
                let side = &data[side];
                end(&side["ip_v4"], &side["port_v4"]).or_else(|| end(&side["ip_v6"], &side["port_v6"]))
            };
            let near = end(&data["src_ip"], &data["src_port"]).or_else(|| nested("local"));
            let far = end(&data["dst_ip"], &data["dst_port"]).or_else(|| nested("remote"));
            if let (Some(near), Some(far)) = (near, far) {
                tell(own, Quic::Ends(near, far), 0);
            }
        }
        _ => {}
    }
}

fn metrics(data: &Value, tell: &mut Tell<'_>) {
    let counts = [
        ("bytes_in_flight", QuicMetric::InFlight),
        ("congestion_window", QuicMetric::Window),
        // As aioquic calls it.
        ("cwnd", QuicMetric::Window),
        ("pacing_rate", QuicMetric::PacingRate),
    ];
    let times = [
        ("smoothed_rtt", QuicMetric::SmoothedRtt),
        ("latest_rtt", QuicMetric::LatestRtt),
        ("min_rtt", QuicMetric::LeastRtt),
    ];
    let counts = counts.into_iter().map(|(name, metric)| (metric, whole(&data[name])));
    let times = times.into_iter().map(|(name, metric)| (metric, nanos(&data[name])));
    for (metric, value) in counts.chain(times) {
        if let Some(value) = value {
            tell(Direction::Forward, Quic::Metric(metric, value), 0);
        }
    }
}

fn is_application(header: &Value) -> bool {
    let kind = header["packet_type"].as_str().or_else(|| header["type"].as_str());
    matches!(kind, Some("1RTT" | "0RTT" | "onertt" | "zerortt"))
}

fn packet(way: Direction, data: &Value, tell: &mut Tell<'_>) {
    let header = &data["header"];
    let frames = data["frames"].as_array();
    let length = whole(&data["raw"]["length"]).or_else(|| whole(&header["packet_size"])).unwrap_or(0);
    let is_probe = data["is_pto_probe_packet"].as_bool() == Some(true)
        || matches!(data["trigger"].as_str(), Some("pto_probe" | "retransmit_timeout"));
    let mut packet = QuicPacket {
        number: whole(&header["packet_number"]).unwrap_or(0),
        length: u32::try_from(length).unwrap_or(u32::MAX),
        is_application: is_application(header),
        is_probe,
        has_frames: frames.is_some(),
        ..QuicPacket::default()
    };
    let mut bytes = 0_u64;
    for frame in frames.into_iter().flatten() {
        let kind = frame["frame_type"].as_str().unwrap_or_default();
        packet.is_ack_eliciting |= !matches!(kind, "ack" | "padding" | "connection_close" | "");
        if matches!(kind, "stream" | "datagram") {
            let length = whole(&frame["length"]).or_else(|| whole(&frame["raw"]["length"]));
            bytes = bytes.saturating_add(length.unwrap_or(0));
            // Streams that one end alone writes to carry settings and the like (RFC 9000, section 2.1).
            packet.takes_turn |= whole(&frame["stream_id"]).is_none_or(|stream| stream & 2 == 0);
        }
    }
    // No stream is longer (RFC 9000, section 4.5), so no packet's data is.
    tell(way, Quic::Packet(packet), bytes.min(1 << 32));
    let version = header["version"].as_str().and_then(|version| u32::from_str_radix(version, 16).ok());
    if let Some(version) = version.filter(|version| *version != 0) {
        tell(way, Quic::Version(version), 0);
    }
    for frame in frames.into_iter().flatten() {
        tell_frame(way, frame, packet.is_application, tell);
    }
}

fn tell_frame(way: Direction, frame: &Value, is_application: bool, tell: &mut Tell<'_>) {
    let stream = || whole(&frame["stream_id"]);
    let limit = |name: &str| whole(&frame[name]);
    match frame["frame_type"].as_str().unwrap_or_default() {
        "ack" if is_application => {
            for range in frame["acked_ranges"].as_array().into_iter().flatten().take(MOST_RANGES) {
                let from = whole(&range[0]);
                let to = whole(&range[1]).or(from);
                if let (Some(from), Some(to)) = (from, to) {
                    tell(way.reverse(), Quic::Acknowledged { from: from.min(to), to: from.max(to) }, 0);
                }
            }
        }
        "data_blocked" => {
            if let Some(limit) = limit("limit") {
                tell(way, Quic::Blocked { stream: None, limit }, 0);
            }
        }
        "stream_data_blocked" => {
            if let (Some(stream), Some(limit)) = (stream(), limit("limit")) {
                tell(way, Quic::Blocked { stream: Some(stream), limit }, 0);
            }
        }
        "max_data" => {
            if let Some(limit) = limit("maximum") {
                tell(way.reverse(), Quic::Allowed { stream: None, limit }, 0);
            }
        }
        "max_stream_data" => {
            if let (Some(stream), Some(limit)) = (stream(), limit("maximum")) {
                tell(way.reverse(), Quic::Allowed { stream: Some(stream), limit }, 0);
            }
        }
        _ => {}
    }
}
