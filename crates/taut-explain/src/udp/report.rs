//! From a flow's state to the report of one direction.

use taut_event::{Direction as Way, FlowKey, Holder};

use super::half::Half;
use super::streams::Stream;
use super::turns::Rhythm;
use super::{Datagrams, verdict};
use crate::engine::{Breakdown, DatagramFacts, Direction, QuicFacts, StreamFacts, Timed, TimesOf, held};

/// The report of a direction in which datagrams went, with its breakdown and its weight among others.
pub(crate) fn direction(flow: &Datagrams, way: Way, start: u64) -> Option<(Direction, &Breakdown, u64)> {
    let half = &flow.halves[way.index()];
    let tally = &half.tally;
    let FlowKey::Udp(first, second) = flow.flow.key else { return None };
    if tally.datagrams == 0 {
        return None;
    }
    let (from, to) = if way == Way::Forward { (first, second) } else { (second, first) };
    let breakdown = &half.breakdown;
    let spun = half.spin.round_trip();
    let quic = flow.quic.map(|quic| QuicFacts {
        version: quic_version(quic.version),
        connection_id: quic.id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect(),
        spin_rtt_ns: spun,
        spin_changes: half.spin.changes(),
        log: None,
    });
    let facts = DatagramFacts {
        protocol: if quic.is_some() { "quic" } else { "udp" }.to_owned(),
        bits_per_second: rate(tally.bytes, breakdown.total_ns()),
        fragmented: tally.fragmented,
        repeated: tally.repeated,
        answers: tally.answers.count(),
        median_answer_ns: tally.answers.median(),
        longest_answer_ns: Some(tally.answers.max()).filter(|_| tally.answers.count() > 0),
        quic,
        dns: None,
        streams: streams(half),
    };
    let report = Direction {
        from: from.to_string(),
        to: to.to_string(),
        bytes: tally.bytes,
        segments: tally.datagrams,
        begin_ns: half.begin.unwrap_or(start).saturating_sub(start),
        span_ns: breakdown.total_ns(),
        frames: [tally.first_place, tally.last_place],
        mss_bytes: tally.largest,
        repeated_segments: tally.repeated,
        breakdown: held(breakdown, start),
        verdicts: verdict::verdicts(flow, way),
        remarks: remarks(flow, way),
        datagrams: Some(facts),
        picture: None,
        ..Direction::default()
    };
    let (told, _) = half.streams();
    let gaps: u64 = told.iter().filter(|stream| !stream.is_even()).map(|stream| stream.gap_ns).sum();
    Some((report, breakdown, breakdown.ns(Holder::Unanswered) + unanswered_opening(flow, way) + gaps))
}

fn streams(half: &Half) -> Vec<StreamFacts> {
    let of = |stream: &&Stream| {
        let jitter = stream.jitter();
        StreamFacts {
            protocol: if stream.is_rtp() { "rtp" } else { "tautline" }.to_owned(),
            id: if stream.is_rtp() { format!("{:#010x}", stream.id) } else { format!("{:016x}", stream.id) },
            payload_type: stream.payload_type,
            frames: stream.frames(),
            packets: stream.packets,
            expected_packets: stream.expected(),
            lost_packets: stream.lost(),
            gaps: stream.gaps,
            most_lost_in_a_row: stream.most_in_a_row,
            longest_gap_ns: stream.longest.map_or(0, |gap| gap.length()),
            longest_gap_frames: stream.longest.map(|gap| gap.places.into()),
            duplicates: stream.duplicates,
            overtaken: stream.overtaken,
            restarts: stream.restarts,
            clock_hz: jitter.map(|jitter| jitter.clock_hz),
            jitter_ns: jitter.map(|jitter| jitter.last),
            most_jitter_ns: jitter.map(|jitter| jitter.most),
        }
    };
    half.streams().0.iter().map(of).collect()
}

/// How long the peer's answers took, the way there and back included. Who sends by a clock has none. The end with the
/// lower port is taken for the server: what passes before the other one asks again is nobody's answer.
pub(crate) fn times(flow: &Datagrams, way: Way) -> Vec<Timed<'_>> {
    let half = &flow.halves[way.index()];
    let FlowKey::Udp(first, second) = flow.flow.key else { return Vec::new() };
    let asks = if first.port == second.port { Way::Forward } else { Way::BOTH[usize::from(first.port < second.port)] };
    let unanswered = if half.knows_repeats { half.tally.repeated } else { 0 };
    if flow.quic.is_some() || half.tally.answers.count() + unanswered == 0 {
        return Vec::new();
    }
    let spread = match half.rhythm {
        Rhythm::Waits => Some(&half.tally.answers),
        Rhythm::OwnClock => return Vec::new(),
        Rhythm::NotKnown => None,
    };
    vec![Timed { of: TimesOf::Turn, spread, unanswered, is_judged: way == asks }]
}

/// Time of an opening that nobody answered.
fn unanswered_opening(flow: &Datagrams, way: Way) -> u64 {
    if flow.is_opening_unanswered(way) { flow.halves[way.index()].breakdown.ns(Holder::Handshake) } else { 0 }
}

pub(crate) fn rate(bytes: u64, ns: u64) -> u64 {
    let bits = u128::from(bytes) * 8_000_000_000;
    u64::try_from(bits.checked_div(ns.into()).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// RFC 9000, RFC 9369 and the drafts by their names.
pub(crate) fn quic_version(version: u32) -> String {
    match version {
        1 => "1".to_owned(),
        0x6b33_43cf => "2".to_owned(),
        draft if draft >> 8 == 0x00ff_0000 => format!("draft {}", draft & 0xff),
        other => format!("{other:#010x}"),
    }
}

/// What a capture of UDP does not show, and what follows from that.
fn remarks(flow: &Datagrams, way: Way) -> Vec<String> {
    let mut remarks = Vec::new();
    let half = &flow.halves[way.index()];
    if flow.quic.is_some() {
        remarks.push(
            "QUIC encrypts its acknowledgements and windows: who held the data after the handshake is not known. A qlog \
             of one of the ends has it."
                .to_owned(),
        );
    }
    let other = &flow.halves[way.reverse().index()];
    if other.tally.datagrams == 0 {
        remarks.push(
            "Nothing came the other way, or the capture lacks it: whether an answer was waited for is not known."
                .to_owned(),
        );
    }
    let (told, beyond) = half.streams();
    if beyond > 0 && !told.is_empty() {
        remarks.push(format!("{beyond} packets are of streams beyond the first eight of this direction."));
    }
    if half.tally.fragmented > 0 {
        remarks.push(format!(
            "{} datagrams came in fragments of IP: one that is lost loses the whole datagram.",
            half.tally.fragmented
        ));
    }
    remarks
}
