//! Causes of a connection of QUIC.

use taut_event::{Direction as Way, Holder};

use super::Logged;
use crate::engine::{Breakdown, Certainty, Evidence, Found, Verdict, VerdictOn, is_enough};
use crate::words;

/// The causes with the holders whose time they are.
pub(crate) const CAUSES: [(&str, &[Holder]); 8] = [
    ("receive_window", &[Holder::ReceiveWindow]),
    ("loss", &[Holder::LossRecovery, Holder::TailLossProbe]),
    ("handshake_repeated", &[Holder::Handshake]),
    ("path_queue", &[Holder::PathQueue]),
    ("slow_start", &[Holder::SlowStart]),
    ("congestion_window", &[Holder::CongestionWindow, Holder::Pacing]),
    ("peer_turn", &[Holder::PeerTurn]),
    ("sending_program", &[Holder::SendingProgram]),
];

/// What a program does is no fault of the path, and comes behind those.
const PROGRAMS: [&str; 2] = ["peer_turn", "sending_program"];
const METRICS: &str = "log the metrics of recovery (recovery:metrics_updated)";

/// What each cause comes to: what was found first, worst first.
pub(super) fn verdicts(logged: &Logged, way: Way) -> Vec<VerdictOn> {
    let judge = |(cause, holders): (&str, &[Holder])| VerdictOn {
        cause: cause.to_owned(),
        verdict: judge(logged, way, cause, holders),
    };
    let mut all: Vec<VerdictOn> = CAUSES.into_iter().map(judge).collect();
    all.sort_by_key(|on| match &on.verdict {
        Verdict::Found(found) => {
            (u8::from(PROGRAMS.contains(&on.cause.as_str())), std::cmp::Reverse(found.cost.held_ns))
        }
        Verdict::Unknown { .. } => (2, std::cmp::Reverse(0)),
        Verdict::Clear => (3, std::cmp::Reverse(0)),
    });
    all
}

fn judge(logged: &Logged, way: Way, cause: &str, holders: &[Holder]) -> Verdict {
    let breakdown = &logged.halves[way.index()].breakdown;
    // A handshake takes its time; what counts is what of it was said again.
    if cause == "handshake_repeated" && (way == Way::Backward || logged.sender.handshake_repeats == 0) {
        return if logged.sender.has_recovery || way == Way::Backward || logged.is_open {
            Verdict::Clear
        } else {
            unknown("what was lost of the handshake", METRICS)
        };
    }
    let cost = breakdown.cost(holders, breakdown.total_ns());
    let longest = breakdown.longest(holders).map_or(0, |episode| episode.length());
    if !is_enough(&cost, longest) {
        return absent(logged, way, cause);
    }
    let (summary, text, certainty, remedy) = said(logged, way, cause);
    let evidence = text.map(|text| Evidence { text, frames: None });
    Verdict::Found(Found {
        summary,
        side: holders.first().map_or_else(String::new, |holder| holder.side().to_string()),
        certainty,
        cost,
        evidence: [longest_seen(breakdown, holders)].into_iter().chain(evidence).collect(),
        remedy: remedy.to_owned(),
    })
}

/// The numbers of events are not those of packets, so they stand in words.
fn longest_seen(breakdown: &Breakdown, holders: &[Holder]) -> Evidence {
    let text = breakdown.longest(holders).map_or_else(String::new, |episode| {
        let (time, (from, to)) = (words::time(episode.length()), episode.places);
        format!("Longest: {time}, from event {from} of the log to event {to}.")
    });
    Evidence { text, frames: None }
}

fn unknown(missing: &str, ask: &str) -> Verdict {
    Verdict::Unknown { missing: missing.to_owned(), ask: ask.to_owned() }
}

/// Where too little time was held: whether that can be said.
fn absent(logged: &Logged, way: Way, cause: &str) -> Verdict {
    let (half, sender) = (&logged.halves[way.index()], &logged.sender);
    if way == Way::Backward {
        return match cause {
            // Who is blocked should say so, and need not (RFC 9000, section 4.1).
            "receive_window" if half.blocked > 0 => Verdict::Clear,
            _ => unknown("what the other end knew", "take a qlog of the other end"),
        };
    }
    let has_congestion = sender.window.is_some() || sender.was_always_small();
    let programs = half.breakdown.cost(&[Holder::SendingProgram], half.breakdown.total_ns());
    let longest = half.breakdown.longest(&[Holder::SendingProgram]).map_or(0, |episode| episode.length());
    match cause {
        _ if sender.without_frames > 0 => unknown("the frames of packets", "log packets with their frames"),
        "congestion_window" | "path_queue" if !has_congestion => unknown("the congestion window", METRICS),
        "slow_start"
            if !has_congestion || !sender.knows_slow_start && half.breakdown.ns(Holder::CongestionWindow) > 0 =>
        {
            unknown("the state of the congestion control", "log recovery:congestion_state_updated")
        }
        "loss" if !sender.has_recovery && !sender.is_all_there() => unknown("which packets were lost", METRICS),
        "receive_window" if half.blocked == 0 && is_enough(&programs, longest) => unknown(
            "whether this end says when it is blocked, which it need not",
            "compare the data sent with the limits of the peer (MAX_DATA, MAX_STREAM_DATA)",
        ),
        _ => Verdict::Clear,
    }
}

/// Summary, evidence, certainty and remedy of what was found.
fn said(logged: &Logged, way: Way, cause: &str) -> (String, Option<String>, Certainty, &'static str) {
    let (half, sender) = (&logged.halves[way.index()], &logged.sender);
    match cause {
        "receive_window" => (
            "The receiver's flow control held the data: its limit was reached before it allowed more".to_owned(),
            Some(format!(
                "{} the sender said so, {} of the whole connection (DATA_BLOCKED), else of a stream.",
                words::times(half.blocked),
                half.blocked_by_connection
            )),
            Certainty::Seen,
            "On the receiver: larger limits (initial_max_data, initial_max_stream_data) that grow as data is read, or a \
             program that reads sooner.",
        ),
        "loss" => (
            "Lost packets were being made good".to_owned(),
            Some(format!(
                "{} packets with data were taken for lost, {} of them arrived after all (reordered); {} probes were \
                 sent (PTO).",
                sender.lost_packets, sender.spurious, sender.probes
            )),
            Certainty::Seen,
            "Find the drops: a full queue, a policer, a bad link, or the receiving socket's buffer (UDP: SO_RCVBUF). \
             Where most arrived after all, the path reorders: a larger threshold for packets out of order.",
        ),
        "handshake_repeated" => (
            "Packets of the handshake were lost or probed for".to_owned(),
            Some(format!("{} before the connection was open.", words::times(sender.handshake_repeats))),
            Certainty::Seen,
            "A firewall that drops UDP, a server that is busy, or a certificate chain that is larger than the server may \
             send before it knows the client's address.",
        ),
        "path_queue" => (
            "The congestion window was full, most of it standing in a queue of the path".to_owned(),
            rtt(logged),
            Certainty::Seen,
            "A shorter queue (fq_codel, CAKE) at the bottleneck, or a congestion control that keeps queues short (BBR).",
        ),
        "slow_start" => (
            "The congestion window was full while it still grew from its beginning".to_owned(),
            window(logged),
            Certainty::Seen,
            "Reuse connections, or a larger initial window.",
        ),
        "congestion_window" => (
            "The congestion window was full, or packets were spaced by it".to_owned(),
            window(logged),
            Certainty::Seen,
            "Nothing, if the path is full. Else look for losses that made the window small.",
        ),
        "peer_turn" => (
            "This end sent nothing until data of the peer had come".to_owned(),
            None,
            Certainty::Consistent,
            "Look at the peer's program and the path to it, or ask for several things at once.",
        ),
        _ => (
            "There was room, and the sending program handed nothing over".to_owned(),
            None,
            Certainty::Consistent,
            "Look at what the sending program does meanwhile.",
        ),
    }
}

fn window(logged: &Logged) -> Option<String> {
    let window = logged.sender.largest_window;
    (window > 0).then(|| format!("The window was {} at most.", words::bytes(window)))
}

fn rtt(logged: &Logged) -> Option<String> {
    logged.sender.least_rtt.map(|ns| format!("The least round trip was {}.", words::time(ns)))
}
