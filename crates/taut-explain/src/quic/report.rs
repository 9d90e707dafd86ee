//! From a connection's state to the report of one direction.

use taut_event::{Direction as Way, Holder};

use super::{Logged, verdict};
use crate::engine::{Breakdown, DatagramFacts, Direction, QuicFacts, QuicLogFacts, held};
use crate::udp::{quic_version, rate};

/// The report of a direction in which packets went, with its breakdown and its weight among others.
pub(crate) fn direction(logged: &Logged, way: Way, start: u64) -> Option<(Direction, &Breakdown, u64)> {
    let half = &logged.halves[way.index()];
    if half.packets == 0 {
        return None;
    }
    let breakdown = &half.breakdown;
    let (near, far) = names(logged);
    let is_own = way == Way::Forward;
    let (from, to) = if is_own { (near, far) } else { (far, near) };
    let sender = &logged.sender;
    let own = |value: u64| is_own.then_some(value);
    let facts = QuicLogFacts {
        is_own,
        data_packets: half.data_packets,
        lost_packets: own(sender.lost_packets),
        spurious_losses: own(sender.spurious),
        probes: own(sender.probes),
        blocked: half.blocked,
        largest_congestion_window_bytes: own(sender.largest_window).filter(|window| *window > 0),
    };
    let quic = QuicFacts {
        version: logged.version.map_or_else(String::new, quic_version),
        connection_id: logged.id(),
        spin_rtt_ns: None,
        spin_changes: 0,
        log: Some(facts),
    };
    let datagrams = DatagramFacts {
        protocol: "quic".to_owned(),
        bits_per_second: rate(half.bytes, breakdown.total_ns()),
        fragmented: 0,
        repeated: 0,
        answers: 0,
        median_answer_ns: None,
        longest_answer_ns: None,
        quic: Some(quic),
        dns: None,
        streams: Vec::new(),
    };
    let report = Direction {
        from,
        to,
        bytes: half.bytes,
        segments: half.packets,
        begin_ns: half.begin.unwrap_or(start).saturating_sub(start),
        span_ns: breakdown.total_ns(),
        frames: [half.first_place, half.last_place],
        min_rtt_ns: own(sender.least_rtt.unwrap_or(0)).unwrap_or(0),
        mss_bytes: half.largest,
        peak_flight_bytes: own(sender.peak_flight).unwrap_or(0),
        repeated_segments: own(sender.lost_packets).unwrap_or(0),
        breakdown: held(breakdown, start),
        verdicts: verdict::verdicts(logged, way),
        remarks: remarks(logged, way),
        datagrams: Some(datagrams),
        ..Direction::default()
    };
    let weigh = |holder: &Holder| match holder {
        Holder::ReceiveWindow | Holder::LossRecovery | Holder::TailLossProbe => breakdown.ns(*holder),
        Holder::CongestionWindow | Holder::SlowStart | Holder::Pacing | Holder::PathQueue | Holder::Handshake => {
            breakdown.ns(*holder) / 2
        }
        _ => 0,
    };
    // Of the other end's sending the log has little.
    let weight = Holder::ALL.iter().map(weigh).sum::<u64>() + u64::from(is_own);
    Some((report, breakdown, weight))
}

/// The end that logs, and the other one.
fn names(logged: &Logged) -> (String, String) {
    let role = |is_client: bool| if is_client { "client" } else { "server" };
    let (near, far) = match logged.is_client {
        Some(is_client) => (role(is_client), role(!is_client)),
        None => ("the log's end", "peer"),
    };
    match logged.ends {
        Some((own, other)) => (format!("{own} ({near})"), format!("{other} ({far})")),
        None => (near.to_owned(), far.to_owned()),
    }
}

/// What the log lacks, and what follows from that.
fn remarks(logged: &Logged, way: Way) -> Vec<String> {
    let (half, sender) = (&logged.halves[way.index()], &logged.sender);
    let mut remarks = Vec::new();
    if way == Way::Backward {
        remarks.push(
            "The log is that of the receiver: of the sender it has only the handshake and when it said that it was \
             blocked. A qlog of the other end has the rest."
                .to_owned(),
        );
        return remarks;
    }
    if sender.without_frames > 0 {
        remarks.push(format!(
            "Of {} packets the log does not tell the frames, so nobody can tell which had data.",
            sender.without_frames
        ));
    }
    if sender.window.is_none() {
        remarks.push(
            "The log has no congestion window: what waited for it is not known once two packets are in flight."
                .to_owned(),
        );
    }
    if half.may_be_paced > 0 {
        remarks.push(format!(
            "{} gaps between packets are so short that pacing or the program may be their reason; the log has no rate \
             of pacing.",
            half.may_be_paced
        ));
    }
    if !sender.has_acks && half.data_packets > 0 {
        remarks.push("The log has no acknowledgement of data that this end sent.".to_owned());
    }
    remarks
}
