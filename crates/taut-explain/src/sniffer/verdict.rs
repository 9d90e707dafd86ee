//! Causes of what a sniffer saw of a link.

use taut_event::{Direction as Way, Holder};

use super::Sniffed;
use super::events::{Events, IFS_NS};
use super::half::Half;
use crate::channel::{LISTENS, SKIPPED};
use crate::engine::{Certainty, Cost, Evidence, Found, Verdict, VerdictOn, is_enough};
use crate::words;

/// The causes that no other kind of capture has, with the holders whose time they are.
pub(crate) const CAUSES: [(&str, &[Holder]); 2] =
    [("event_closed_early", &[Holder::ClosedEvent]), ("sending_host", &[Holder::SendingHost])];

/// All, in the order in which a report has them.
const ALL: [(&str, &[Holder]); 6] = [
    CAUSES[0],
    ("loss", &[Holder::LossRecovery]),
    ("interval_quantisation", &[Holder::ConnectionInterval]),
    ("phy", &[Holder::Air]),
    ("length", &[Holder::Air]),
    CAUSES[1],
];

/// A link that has less to do is not held up by its PHY, or by the length of its PDUs.
const BUSY: f64 = 0.3;
/// Longest payload without the data length extension, with the MIC of an encrypted link and without.
const SHORT: [u8; 2] = [27, 31];
/// So many events that end alike are no chance.
const LEAST_EVENTS: u64 = 8;

/// With fewer data PDUs there is nothing to speed up.
const LEAST_DATA: u64 = 8;

/// What helps where a peripheral was not seen to answer.
const DEAF: &str = "On the peripheral: look at what keeps its radio (other links, flash writes), or at the way to it: \
                    it did not answer, or the sniffer did not hear it. A sniffer nearer to the peripheral tells which.";
/// What helps a link that is busy on LE 1M, and on LE Coded.
const FASTER: &str = "LE 2M, if both ends support it: half the time on air for each PDU.";
const UNCODED: &str = "LE 2M or LE 1M, if both ends are near enough to each other: a fraction of the time on air for \
                       each PDU.";
const HOST_LOG: &str = "log at the sending host as well (`btmon -w FILE`) and explain that";

/// What each cause comes to, what was found first.
pub(super) fn verdicts(link: &Sniffed, way: Way) -> Vec<VerdictOn> {
    let mut all: Vec<VerdictOn> = ALL
        .iter()
        .map(|(cause, holders)| VerdictOn { cause: (*cause).to_owned(), verdict: judge(link, way, cause, holders) })
        .collect();
    all.sort_by_key(|on| match &on.verdict {
        Verdict::Found(found) => (0, std::cmp::Reverse(found.cost.held_ns)),
        Verdict::Unknown { .. } => (1, std::cmp::Reverse(0)),
        Verdict::Clear => (2, std::cmp::Reverse(0)),
    });
    all
}

fn judge(link: &Sniffed, way: Way, cause: &str, holders: &[Holder]) -> Verdict {
    let half = &link.halves[way.index()];
    let cost = half.breakdown.cost(holders, half.breakdown.total_ns());
    let is_held = is_held(half, holders);
    let said = match cause {
        "event_closed_early" if is_held => closed(link),
        "event_closed_early" => return always_as_many(half),
        "loss" if is_held => loss(link, half),
        "loss" => return unclear(half),
        "interval_quantisation" if is_held => skipped(half),
        "phy" | "length" => return shorter(link, half, cause),
        "sending_host" if is_held => {
            let share = words::share(cost.share);
            let missing = format!(
                "why the sender's controller had nothing to send for {share} of the time (no mark of more data, or an \
                 empty PDU): its program, its credits, or data that came too late for the event"
            );
            return Verdict::Unknown { missing, ask: HOST_LOG.to_owned() };
        }
        _ => return Verdict::Clear,
    };
    let (summary, certainty, evidence, remedy) = said;
    Verdict::Found(Found {
        summary,
        side: holders.first().map_or_else(String::new, |holder| holder.side().to_string()),
        certainty,
        cost,
        evidence: [vec![half.breakdown.longest_seen(holders)], evidence].concat(),
        remedy: remedy.to_owned(),
    })
}

/// Whether these held enough of the time to be told.
fn is_held(half: &Half, holders: &[Holder]) -> bool {
    let longest = half.breakdown.longest(holders).map_or(0, |episode| episode.length());
    is_enough(&half.breakdown.cost(holders, half.breakdown.total_ns()), longest)
}

/// Summary, certainty, evidence and remedy of what was found.
type Said = (String, Certainty, Vec<Evidence>, &'static str);

fn closed(link: &Sniffed) -> Said {
    let ended = &link.events.ended;
    let early = ended.by_central + ended.by_peripheral + ended.by_crc;
    let summary = format!(
        "{early} of {} connection events were over although more data was told of (MD) and there was time for it",
        link.events.seen
    );
    let who = text(format!(
        "The central did not go on {}; the peripheral was not seen to answer {}; {} the last PDU had a wrong CRC.",
        words::times(ended.by_central),
        words::times(ended.by_peripheral),
        words::times(ended.by_crc)
    ));
    let remedy = if ended.by_central >= ended.by_peripheral.max(ended.by_crc) {
        "On the central: a longer connection event (its controller's limit of packets or of time in an event), or fewer \
         other links and scans beside this one."
    } else if ended.by_peripheral >= ended.by_crc {
        DEAF
    } else {
        "Fewer errors on the way: less distance, another place of the antennas, a channel map without the bad channels."
    };
    (summary, Certainty::Seen, vec![who], remedy)
}

/// Controllers that send no more than so many PDUs in an event do not mark that there is more.
fn always_as_many(half: &Half) -> Verdict {
    let tally = &half.tally;
    let is_alike = tally.times_at_most >= LEAST_EVENTS && 2 * tally.times_at_most > tally.events;
    if !is_alike {
        return Verdict::Clear;
    }
    let missing = format!(
        "whether the controller had more to send: {} of {} events with data had exactly {} PDU{}, time for more, and no \
         mark of more data (MD), as of a controller with a limit of its own",
        tally.times_at_most,
        tally.events,
        tally.at_most,
        if tally.at_most == 1 { "" } else { "s" }
    );
    Verdict::Unknown { missing, ask: HOST_LOG.to_owned() }
}

fn loss(link: &Sniffed, half: &Half) -> Said {
    let tally = &half.tally;
    let Events { silent, seen, .. } = link.events;
    let unanswered = format!("In {silent} of {seen} events the peripheral was not seen to answer");
    if tally.repeated == 0 {
        return (unanswered, Certainty::Consistent, Vec::new(), DEAF);
    }
    let whole = tally.data_pdus + tally.repeated;
    let share = words::share(tally.repeated as f64 / whole.max(1) as f64);
    let summary = format!("{} of {whole} data PDUs ({share}) were sent again", tally.repeated);
    let mut evidence = vec![text(format!(
        "{} the receiver answered and asked for the same PDU once more (NESN): it got it wrong, or had no room for it, \
         which the air does not tell.",
        words::times(tally.refused)
    ))];
    if silent > 0 {
        evidence.push(text(format!("{unanswered}.")));
    }
    if tally.wrong_crc > 0 {
        evidence.push(text(format!("The sniffer itself got {} PDUs with a wrong CRC.", tally.wrong_crc)));
    }
    let remedy = "Less distance or a better place of the antennas; a channel map without the channels that Wi-Fi uses \
                  there; LE Coded where range matters and rate does not.";
    (summary, Certainty::Seen, evidence, remedy)
}

/// Without the latency nobody knows what a PDU that was sent again waited for.
fn unclear(half: &Half) -> Verdict {
    let tally = &half.tally;
    if tally.unclear < LEAST_EVENTS || !is_held(half, &[Holder::NotKnown]) {
        return Verdict::Clear;
    }
    let missing = format!(
        "whether {} PDUs that were sent again after events without an answer were lost, or the peripheral skipped those \
         events: its latency is not known",
        tally.unclear
    );
    unknown(&missing, "capture from the link's begin, of an encrypted link with the key, and nearer to both ends")
}

fn skipped(half: &Half) -> Said {
    let latency = half.tally.may_skip;
    let evidence = vec![text(format!(
        "{} PDUs were sent again to a peripheral that may skip {latency} events in a row.",
        half.tally.skipped
    ))];
    (SKIPPED.to_owned(), Certainty::Consistent, evidence, LISTENS)
}

/// What shorter time on air would save, where the link has much to do.
fn shorter(link: &Sniffed, half: &Half, cause: &str) -> Verdict {
    let tally = &half.tally;
    let whole = half.breakdown.total_ns();
    let share = half.breakdown.ns(Holder::Air) as f64 / whole.max(1) as f64;
    let [slow, fast, coded] = tally.on_phys();
    if share < BUSY || tally.data_pdus - tally.control_pdus < LEAST_DATA {
        return Verdict::Clear;
    }
    let (held_ns, summary, remedy) = if cause == "phy" {
        if !link.link.tells_phy {
            let missing = "on which PHY the PDUs were: this form of capture does not tell";
            return unknown(missing, "capture with link type 256 or 272");
        }
        if slow + coded <= fast {
            return Verdict::Clear;
        }
        let name = if slow >= coded { "LE 1M" } else { "LE Coded" };
        let summary = format!("The link is on the air for {} of the time, on {name}", words::share(share));
        // A clock that was set back leaves PDUs without time in the breakdown.
        let air = tally.air_ns.min(half.breakdown.ns(Holder::Air)) as f64;
        let ratio = tally.fastest_ns as f64 / tally.air_ns.max(1) as f64;
        ((air * (1.0 - ratio)) as u64, summary, if slow >= coded { FASTER } else { UNCODED })
    } else {
        if tally.continuations == 0 || !SHORT.contains(&tally.longest) {
            return Verdict::Clear;
        }
        let phy = tally.phy();
        let exchange = |length: usize| (phy.air_time(length, false) + phy.air_time(0, false) + 2 * IFS_NS) as f64;
        let ratio = (exchange(251) / 251.0) / (exchange(27) / 27.0);
        let air = half.breakdown.ns(Holder::Air) as f64;
        let summary = format!(
            "Data PDUs are {} bytes at most, and {} of {} go on with an L2CAP PDU that did not fit in one",
            tally.longest, tally.continuations, tally.data_pdus
        );
        let remedy = "Data length extension (251 bytes), which one end has to ask for; both have to support it.";
        ((air * (1.0 - ratio)) as u64, summary, remedy)
    };
    let share = held_ns as f64 / whole.max(1) as f64;
    Verdict::Found(Found {
        summary,
        side: Holder::Air.side().to_string(),
        certainty: Certainty::Consistent,
        cost: Cost { held_ns, between_ns: [0, held_ns], share, episodes: tally.data_pdus },
        evidence: vec![half.breakdown.longest_seen(&[Holder::Air])],
        remedy: remedy.to_owned(),
    })
}

fn unknown(missing: &str, ask: &str) -> Verdict {
    Verdict::Unknown { missing: missing.to_owned(), ask: ask.to_owned() }
}

fn text(text: String) -> Evidence {
    Evidence { text, frames: None }
}
