//! From a connection's state to the report of one direction.

use taut_event::{Direction as Way, FlowKey, Holder};

use super::breakdown::Breakdown;
use super::detect;
use super::times::{Timed, TimesOf};
use super::{Direction, Held, Stall};
use crate::tcp::{Connection, Half, Lack, Silence};
use crate::words;

/// Time that could be had back. Congestion control has its reasons, so its time counts half, and so
/// does an answer that never came: it may not have been due.
pub(super) fn weight(half: &Half) -> u64 {
    let breakdown = &half.breakdown;
    let unanswered = match half.silence.as_deref() {
        Some(Silence::Unanswered(silence)) => silence.length() / 2,
        Some(Silence::Unclear(_)) | None => 0,
    };
    let weigh = |holder: &Holder| match holder {
        Holder::SendingProgram | Holder::PeerTurn | Holder::Delivery | Holder::NotKnown => 0,
        Holder::CongestionWindow | Holder::SlowStart | Holder::Pacing | Holder::PathQueue | Holder::Handshake => {
            breakdown.ns(*holder) / 2
        }
        _ => breakdown.ns(*holder),
    };
    Holder::ALL.iter().map(weigh).sum::<u64>() + unanswered
}

/// The report of a direction in which data went, with its breakdown.
pub(super) fn direction(connection: &Connection, way: Way, start: u64) -> Option<(Direction, &Breakdown)> {
    let half = &connection.halves[way.index()];
    let tally = &half.tally;
    if tally.segments == 0 {
        return None;
    }
    let breakdown = &half.breakdown;
    let (first, second) = match connection.flow.key {
        FlowKey::Tcp(first, second) => (first.to_string(), second.to_string()),
        // Those have a report of their own.
        FlowKey::L2cap(_)
        | FlowKey::Le(_)
        | FlowKey::Link(_)
        | FlowKey::Udp(..)
        | FlowKey::Dns(_)
        | FlowKey::Quic(_)
        | FlowKey::Local(_) => return None,
        FlowKey::Socket(cookie) => (format!("socket {cookie}"), "its peer".to_owned()),
    };
    let (from, to) = if way == Way::Forward { (first, second) } else { (second, first) };
    let report = Direction {
        from,
        to,
        bytes: tally.bytes,
        segments: tally.segments,
        begin_ns: half.span_start.unwrap_or(start).saturating_sub(start),
        span_ns: breakdown.total_ns(),
        frames: [tally.first_place, tally.last_place],
        vantage: connection.knows_loops().then(|| connection.position(way.index())),
        min_rtt_ns: if connection.knows_loops() {
            tally.least_round_trip.unwrap_or_else(|| connection.round_trip()).min(connection.round_trip())
        } else {
            0
        },
        median_rtt_ns: tally.round_trips.median(),
        mss_bytes: half.agreed_mss(),
        largest_window_bytes: Some(tally.largest_window).filter(|&window| window > 0),
        peak_flight_bytes: tally.peak_flight,
        repeated_segments: tally.repeated_segments,
        breakdown: held(breakdown, start),
        verdicts: detect::verdicts(connection, way),
        remarks: remarks(connection, way),
        times: Vec::new(),
        channel: None,
        datagrams: None,
        air: None,
        picture: None,
        model: None,
    };
    Some((report, breakdown))
}

/// How long the peer's answers to a direction and its round trips took.
pub(super) fn times(connection: &Connection, way: Way) -> Vec<Timed<'_>> {
    let (half, peer) = (&connection.halves[way.index()], &connection.halves[way.reverse().index()]);
    let unanswered = u64::from(matches!(half.silence.as_deref(), Some(Silence::Unanswered(_))));
    let mut timed = Vec::new();
    if peer.tally.answers.count() + unanswered > 0 {
        // Else the way to the peer is in its times.
        let is_known = connection.knows_sender(way.reverse().index());
        let spread = is_known.then_some(&peer.tally.answers);
        timed.push(Timed { of: TimesOf::Turn, spread, unanswered, is_judged: connection.asks(way) });
    }
    if half.tally.round_trips.count() > 0 {
        timed.push(Timed { of: TimesOf::Rtt, spread: Some(&half.tally.round_trips), unanswered: 0, is_judged: true });
    }
    timed
}

/// What each holder had, longest first; times from the beginning of the capture.
pub(crate) fn held(breakdown: &Breakdown, start: u64) -> Vec<Held> {
    let whole = breakdown.total_ns();
    let share = |ns: u64| if whole == 0 { 0.0 } else { ns as f64 / whole as f64 };
    let mut held: Vec<Held> = Holder::ALL
        .into_iter()
        .filter_map(|holder| {
            let cell = breakdown.get(holder).filter(|cell| cell.ns > 0)?;
            let stall = |episode: &super::Episode| Stall {
                begin_ns: episode.from.saturating_sub(start),
                held_ns: episode.length(),
                frames: episode.places.into(),
            };
            Some(Held {
                holder: holder.name().to_owned(),
                side: holder.side().to_string(),
                held_ns: cell.ns,
                share: share(cell.ns),
                episodes: cell.episodes,
                longest: cell.worst.iter().map(stall).collect(),
            })
        })
        .collect();
    held.sort_by_key(|held| std::cmp::Reverse(held.held_ns));
    held
}

/// What the capture lacks, and what follows from that.
fn remarks(connection: &Connection, way: Way) -> Vec<String> {
    let half = &connection.halves[way.index()];
    let mut remarks = Vec::new();
    match half.lack {
        Lack::Nothing => {}
        Lack::All => {
            remarks.push(
                "Only one direction of this connection is in the capture: without acknowledgements nobody \
                 can tell who waited for what. Capture where both directions pass."
                    .to_owned(),
            );
            return remarks;
        }
        Lack::Some => remarks.push(
            "Acknowledgements are missing from the capture, as a filter on flags or lengths leaves them out: \
             what let the sender go on can't be told. Capture all packets of the connection."
                .to_owned(),
        ),
    }
    if !connection.has_handshake() {
        let scale = match half.scale.learned() {
            Some(bits) => {
                format!(" Receive windows are taken to be scaled by {bits} bits: what was in flight needs no more.")
            }
            None if half.tally.largest_window == 0 => " Receive windows are not known but for closed ones.".to_owned(),
            None => String::new(),
        };
        let place = if connection.knows_sender(way.index()) {
            "where on the path it was taken is estimated"
        } else {
            "how far from the sender it was taken can't be told, nor what the sender knew when it sent"
        };
        remarks.push(format!("The connection was opened before the capture: {place}.{scale}"));
    }
    let unseen = connection.unseen_bytes(way.index());
    if unseen > 0 {
        let share = words::share(unseen as f64 / (half.tally.bytes + unseen).max(1) as f64);
        let verdict = if detect::is_incomplete(connection, way) {
            " Too much to tell lost packets from packets not captured."
        } else {
            ""
        };
        remarks.push(format!("The capture lacks {unseen} bytes ({share}) that the receiver acknowledged.{verdict}"));
    }
    if !connection.has_timestamps && connection.position(way.index()) > 0.25 {
        remarks.push(
            "Seen away from the sender and without TCP timestamps: what the sender knew is estimated \
             from one round trip."
                .to_owned(),
        );
    }
    if half.tally.reordered > 0 {
        remarks.push(format!("{} segments came out of order.", half.tally.reordered));
    }
    if connection.is_subflow {
        remarks.push(
            "It is one of the connections of MPTCP: what seems to be a program's turn may be data that went over \
             another one."
                .to_owned(),
        );
    }
    if let Some(silence) = half.silence.as_deref() {
        remarks.push(told(silence, connection.halves[way.reverse().index()].tally.segments > 0));
    }
    if connection.was_reset {
        remarks.push("The connection was reset (RST).".to_owned());
    }
    remarks
}

/// How a direction ended that waited, or seemed to.
fn told(silence: &Silence, has_answers: bool) -> String {
    let never = if has_answers { "" } else { " The peer sent no data at all, so its direction has no report." };
    match silence {
        Silence::Unanswered(silence) => format!(
            "After its last data was acknowledged nothing came for {}, up to the end of the connection.{never}",
            words::time(silence.length())
        ),
        Silence::Unclear(silence) => format!(
            "After its last data nothing came for {}, up to the end of the connection; whether an answer was due \
             the packets don't tell, so that time is not in the breakdown.{never}",
            words::time(silence.length())
        ),
    }
}
