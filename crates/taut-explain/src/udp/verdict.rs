//! Causes of a flow of UDP.

use taut_event::{Direction as Way, Holder, Side};

use super::Datagrams;
use super::half::Half;
use super::streams::{LEAST_PACKETS, Stream};
use super::turns::Rhythm;
use crate::engine::{Certainty, Cost, Evidence, Found, Verdict, VerdictOn, is_enough};
use crate::words;

/// The causes with the holders whose time they are.
pub(crate) const CAUSES: [(&str, &[Holder]); 5] = [
    (STREAM_LOSS, &[]),
    ("handshake_repeated", &[Holder::Handshake]),
    ("udp_no_answer", &[Holder::Unanswered]),
    ("peer_turn", &[Holder::PeerTurn]),
    ("sending_program", &[Holder::SendingProgram]),
];

/// Of streams of numbered packets; the time is that of their gaps, which are in other holders' as well.
const STREAM_LOSS: &str = "stream_loss";
/// Fewer missing packets are no finding, but in one long gap.
const LEAST_SHARE: f64 = 0.01;
const LEAST_GAPS: u64 = 3;
/// A gap that is heard and seen.
const LONG_NS: u64 = 200_000_000;

const FULL: &str = "capture where both directions pass, and keep the payload";

/// What each cause comes to, what was found first.
pub(super) fn verdicts(flow: &Datagrams, way: Way) -> Vec<VerdictOn> {
    let half = &flow.halves[way.index()];
    let judge = |cause: &str, holders: &[Holder]| {
        let is_handshake = cause == "handshake_repeated";
        if is_handshake && !flow.is_opening_unanswered(way) {
            return Verdict::Clear;
        }
        if flow.quic.is_some() && !is_handshake {
            return unknown("what QUIC encrypts", "take a qlog of one of the ends");
        }
        let cost = half.breakdown.cost(holders, half.breakdown.total_ns());
        let longest = half.breakdown.longest(holders).map_or(0, |episode| episode.length());
        if !is_enough(&cost, longest) {
            return absent(half, cause);
        }
        let (summary, evidence, certainty, remedy) = said(half, cause);
        Verdict::Found(Found {
            summary,
            side: holders.first().map_or_else(String::new, |holder| holder.side().to_string()),
            certainty,
            cost,
            evidence: [vec![half.breakdown.longest_seen(holders)], evidence].concat(),
            remedy: remedy.to_owned(),
        })
    };
    let named = |cause: &str, verdict: Verdict| VerdictOn { cause: cause.to_owned(), verdict };
    let of_streams = stream_loss(half).map(|verdict| named(STREAM_LOSS, verdict));
    let of_turns = CAUSES.iter().filter(|(cause, _)| *cause != STREAM_LOSS);
    let of_turns = of_turns.map(|(cause, holders)| named(cause, judge(cause, holders)));
    let mut all: Vec<VerdictOn> = of_streams.into_iter().chain(of_turns).collect();
    all.sort_by_key(|on| match on.verdict {
        Verdict::Found(_) => 0,
        Verdict::Unknown { .. } => 1,
        Verdict::Clear => 2,
    });
    all
}

/// What is missing of the streams of numbered packets, if there are such.
fn stream_loss(half: &Half) -> Option<Verdict> {
    let (streams, beyond) = half.streams();
    if streams.is_empty() {
        return None;
    }
    let restarts = streams.iter().map(|stream| stream.restarts).fold(0, u64::saturating_add);
    // What is missing of a counter that may not step by one is not known to be lost.
    let (even, streams): (Vec<&Stream>, Vec<&Stream>) = streams.into_iter().partition(|stream| stream.is_even());
    let sum = |of: fn(&Stream) -> u64| streams.iter().map(|stream| of(stream)).fold(0, u64::saturating_add);
    let (lost, expected, gaps) = (sum(Stream::lost), sum(Stream::expected), sum(|stream| stream.gaps));
    let share = lost as f64 / expected.max(1) as f64;
    let longest = streams.iter().filter_map(|stream| stream.longest).max_by_key(|gap| gap.length());
    let is_long = longest.is_some_and(|gap| gap.length() >= LONG_NS);
    if !(is_long || share >= LEAST_SHARE && gaps >= LEAST_GAPS) {
        return Some(match (even.is_empty(), beyond >= LEAST_PACKETS, restarts > 0) {
            (false, ..) => not_by_one(&even),
            (_, true, _) => unknown(
                &format!("the numbers of {beyond} packets, of streams beyond the first eight"),
                "cut these streams out of the capture (in Wireshark by rtp.ssrc), each eight into a file of its own",
            ),
            (.., true) => unknown(
                &format!("how much is missing where numbers began anew ({restarts} ×): a long outage looks the same"),
                "capture at the sender too, and name both files: there a stream that runs on has no new start",
            ),
            _ => Verdict::Clear,
        });
    }
    let held_ns = sum(|stream| stream.gap_ns);
    let row = streams.iter().map(|stream| stream.most_in_a_row).max().unwrap_or(0);
    let gap = longest.map(|gap| Evidence {
        text: format!("Longest gap: {}.", words::time(gap.length())),
        frames: Some(gap.places.into()),
    });
    let left_out = (!even.is_empty()).then(|| {
        text(format!("Not among them: {} streams with equal gaps at every turn, which may be no losses.", even.len()))
    });
    let counted = text(format!("{gaps} gaps, of {row} packets in a row at most; what came late is not among them."));
    Some(Verdict::Found(Found {
        summary: format!(
            "{lost} of {expected} packets ({:.2} %) of {} are missing by their numbers: lost before the place of the \
             capture, never sent, or not captured",
            share * 100.0,
            if streams[0].is_rtp() { "streams of RTP" } else { "Tautline's own streams" }
        ),
        side: Side::Path.to_string(),
        certainty: Certainty::Seen,
        cost: Cost {
            held_ns,
            between_ns: [held_ns; 2],
            share: (held_ns as f64 / half.breakdown.total_ns().max(1) as f64).min(1.0),
            episodes: gaps,
        },
        evidence: gap.into_iter().chain([counted]).chain(left_out).collect(),
        remedy: "Find where they are lost: capture at the sender too, and name both files. Less queue or more rate on \
                 the path, wired instead of radio, or redundancy of the codec (FEC, RED, NACK) help."
            .to_owned(),
    }))
}

/// Of streams whose gaps are all alike.
fn not_by_one(even: &[&Stream]) -> Verdict {
    let [lost, expected] = [Stream::lost, Stream::expected]
        .map(|of: fn(&Stream) -> u64| even.iter().map(|stream| of(stream)).fold(0, u64::saturating_add));
    unknown(
        &format!(
            "whether the sender counts by one: {lost} of {expected} numbers are not there, in gaps that are all alike, \
             as where one counter serves several ports or receivers"
        ),
        "capture all that the sender sends, to all ports and hosts, or at the sender too, and name both files",
    )
}

fn unknown(missing: &str, ask: &str) -> Verdict {
    Verdict::Unknown { missing: missing.to_owned(), ask: ask.to_owned() }
}

/// Where too little time was held: whether that can be said.
fn absent(half: &Half, cause: &str) -> Verdict {
    match cause {
        "udp_no_answer" if !half.knows_repeats => {
            unknown("whether what was sent again was due an answer", "look at what the peer should answer")
        }
        "peer_turn" if half.tally.answers.count() == 0 => unknown("anything that came the other way", FULL),
        "peer_turn" if half.rhythm == Rhythm::NotKnown => {
            unknown("whether it waits for answers: they are too few or too even", "capture more of them")
        }
        _ => Verdict::Clear,
    }
}

/// Summary, evidence, certainty and remedy of what was found.
fn said(half: &Half, cause: &str) -> (String, Vec<Evidence>, Certainty, &'static str) {
    let tally = &half.tally;
    let answers = tally.answers.median().map_or_else(Vec::new, |median| {
        let (count, median, max) = (tally.answers.count(), words::time(median), words::time(tally.answers.max()));
        vec![text(format!("{count} times an answer came after {median} (median), {max} at most."))]
    });
    match cause {
        "handshake_repeated" => (
            format!("{} packets that open a connection of QUIC had no answer at all", tally.datagrams),
            Vec::new(),
            Certainty::Seen,
            "A firewall that drops UDP (of HTTP/3 to port 443) is a frequent reason. Capture at the server: does the \
             first packet arrive? Clients fall back to TCP after such a wait.",
        ),
        "udp_no_answer" => (
            format!(
                "{} nothing came back until the sender sent the same datagram once more: it or its answer was \
                 lost, or the peer did not answer",
                words::times(tally.repeated)
            ),
            answers,
            Certainty::Seen,
            "Capture at the peer too: it shows whether the datagram arrives and whether an answer leaves. A shorter \
             time until the second try costs less.",
        ),
        "peer_turn" => (
            "The sender waited for the peer before it sent again: the later the peer, the later the next datagram"
                .to_owned(),
            answers,
            Certainty::Consistent,
            "Look at the peer's program and the path to it, or ask for several things at once.",
        ),
        _ => (
            "The sending program sent nothing; UDP itself holds nothing back".to_owned(),
            Vec::new(),
            Certainty::Consistent,
            "Look at what the sending program does meanwhile. If it did send, the datagrams were lost before the place \
             of the capture.",
        ),
    }
}

fn text(text: String) -> Evidence {
    Evidence { text, frames: None }
}
