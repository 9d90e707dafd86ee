use taut_event::{Coverage, Holder, Kind};

use super::facts::{Detector, Facts, seen, text};
use crate::engine::{Certainty, Found, Verdict};
use crate::{quanta, words};

/// Small writes held by Nagle's algorithm (RFC 896) until the receiver acknowledged.
pub(super) struct NagleDelayedAck;

impl Detector for NagleDelayedAck {
    fn cause(&self) -> &'static str {
        "nagle_delayed_ack"
    }

    fn holders(&self) -> &'static [Holder] {
        &[Holder::Nagle]
    }

    fn needs(&self) -> Coverage {
        Coverage::of(&[Kind::Segments])
    }

    fn found(&self, facts: &Facts<'_>) -> Verdict {
        let tally = facts.tally();
        let mut found = seen(facts, self, Certainty::Consistent);
        let most = found.cost.held_ns + tally.nagle_doubt_ns;
        found.cost.between_ns = [found.cost.held_ns.saturating_sub(tally.nagle_doubt_ns), most];
        let gap = tally.nagle_gaps.median().unwrap_or_default();
        found.summary = format!(
            "The sender's Nagle algorithm held small writes until the receiver acknowledged: {} each (median)",
            words::time(gap)
        );
        let share = words::share(tally.nagle_gaps.count() as f64 / tally.small_segments.max(1) as f64);
        found.evidence.push(facts.longest_seen(self.holders()));
        found.evidence.push(text(format!(
            "{} of {} small segments ({share}) left just when an ACK without data came.",
            tally.nagle_gaps.count(),
            tally.small_segments
        )));
        if let (Some(answer), Some(quarters)) = (tally.nagle_answers.median(), tally.nagle_answers.quarters()) {
            // By the way that is known in the end: of a connection that began earlier the first answer is all there is.
            let way = facts.connection.to_receiver(facts.way.index());
            let delay = answer.saturating_sub(way);
            let whose = match quanta::ack_timer(quarters.map(|answer| answer.saturating_sub(way))) {
                Some(timer) => format!(", {timer}"),
                None if delay < 5_000_000 => ": the receiver did not wait, the path is what takes long".to_owned(),
                None => ", by a timer or a late reader".to_owned(),
            };
            found.evidence.push(text(format!("The receiver's ACKs came {} late{whose}.", words::time(delay))));
        }
        if tally.nagle_doubt_ns > 0 {
            found.evidence.push(text(format!(
                "When the writes were made is not in a capture: the algorithm held {} to {}.",
                words::time(found.cost.between_ns[0]),
                words::time(most)
            )));
        }
        found.remedy = "On the sender: set TCP_NODELAY, or hand over each message with one write. \
                        (On the receiver, TCP_QUICKACK after each read shortens it.)"
            .to_owned();
        Verdict::Found(found)
    }
}

/// A rest of a write that was kept back for 200 ms.
pub(super) struct Cork;

impl Detector for Cork {
    fn cause(&self) -> &'static str {
        "cork"
    }

    fn holders(&self) -> &'static [Holder] {
        &[Holder::Cork]
    }

    fn needs(&self) -> Coverage {
        Coverage::of(&[Kind::Segments])
    }

    fn found(&self, facts: &Facts<'_>) -> Verdict {
        let found = seen(facts, self, Certainty::Consistent);
        Verdict::Found(Found {
            summary: "The sending socket kept the rest of a write back for 200 ms, as TCP_CORK or MSG_MORE make it"
                .to_owned(),
            evidence: vec![
                facts.longest_seen(self.holders()),
                text(format!("{} times a small segment followed a full one after 200 ms.", found.cost.episodes)),
            ],
            remedy: "On the sender: clear TCP_CORK, or leave MSG_MORE out, at the end of each message.".to_owned(),
            ..found
        })
    }
}
