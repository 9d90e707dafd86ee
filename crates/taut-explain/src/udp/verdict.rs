//! Causes of a flow of UDP.

use taut_event::{Direction as Way, Holder};

use super::Datagrams;
use super::half::Half;
use super::turns::Rhythm;
use crate::engine::{Certainty, Evidence, Found, Verdict, VerdictOn, is_enough};
use crate::words;

/// The causes with the holders whose time they are.
pub(crate) const CAUSES: [(&str, &[Holder]); 4] = [
    ("handshake_repeated", &[Holder::Handshake]),
    ("udp_no_answer", &[Holder::Unanswered]),
    ("peer_turn", &[Holder::PeerTurn]),
    ("sending_program", &[Holder::SendingProgram]),
];

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
    let mut all: Vec<VerdictOn> = CAUSES
        .iter()
        .map(|(cause, holders)| VerdictOn { cause: (*cause).to_owned(), verdict: judge(cause, holders) })
        .collect();
    all.sort_by_key(|on| match on.verdict {
        Verdict::Found(_) => 0,
        Verdict::Unknown { .. } => 1,
        Verdict::Clear => 2,
    });
    all
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
                "{} times nothing came back until the sender sent the same datagram once more: it or its answer was \
                 lost, or the peer did not answer",
                tally.repeated
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
