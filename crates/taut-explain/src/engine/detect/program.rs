use taut_event::{Coverage, Holder, Kind};

use super::facts::{Detector, Facts, no_acks, seen, text};
use crate::engine::{Certainty, Found, Verdict};
use crate::tcp::{Lack, Silence};
use crate::{quanta, words};

pub(super) const CAUSE_PEER: &str = "peer_turn";
pub(super) const CAUSE_SENDING: &str = "sending_program";

/// The sender waited for an answer.
pub(super) struct PeerTurn;

impl Detector for PeerTurn {
    fn cause(&self) -> &'static str {
        CAUSE_PEER
    }

    fn holders(&self) -> &'static [Holder] {
        &[Holder::PeerTurn]
    }

    fn rests_on_acks(&self) -> bool {
        false
    }

    fn needs(&self) -> Coverage {
        Coverage::of(&[Kind::Segments])
    }

    fn found(&self, facts: &Facts<'_>) -> Verdict {
        let answers = &facts.other().tally.answers;
        // An answer that this direction did not wait for is no time of its own; and on a path that
        // is longer than it seemed some seem to take no time.
        let longest = facts.half.breakdown.longest(self.holders()).map_or(0, |episode| episode.length());
        let waited = answers.median().filter(|&median| (1..=longest).contains(&median));
        // A server's turn comes when it is asked, and that is no answer of the client's.
        let asks = !facts.connection.has_handshake() || facts.connection.asks(facts.way);
        let peer = if asks { "the peer" } else { "the client" };
        let took = waited.map(|median| format!("{peer} took {} (median)", words::time(median)));
        let summary = match (facts.half.silence.as_deref(), took) {
            (Some(Silence::Unanswered(silence)), took) => format!(
                "The peer acknowledged the last data and did not answer: {}, up to the end of the connection{}",
                words::time(silence.length()),
                took.map_or_else(String::new, |took| format!("; before, {took}"))
            ),
            (_, took) => {
                let what = if asks { "the peer's answers" } else { "what the client sends next" };
                format!("The sender waited for {what}{}", took.map_or_else(String::new, |took| format!("; {took}")))
            }
        };
        let mut evidence = vec![facts.longest_seen(self.holders())];
        if answers.count() > 0 && (1..=longest).contains(&answers.max()) {
            evidence.push(text(format!(
                "{} {}, {} at most, less the way there and back of {}.",
                answers.count(),
                match (asks, answers.count()) {
                    (true, 1) => "answer",
                    (true, _) => "answers",
                    (false, 1) => "time",
                    (false, _) => "times",
                },
                words::time(answers.max()),
                words::time(facts.connection.round_trip())
            )));
            if let Some(timer) = quanta::of_answers(answers) {
                evidence.push(text(format!(
                    "Half of them take as long as {timer}. A timer of the peer's program may be as long: that can't be \
                     told here; a capture of what the peer waits for tells."
                )));
            }
        }
        let remedy = match asks {
            true => "Look at the peer's program, or ask for several things at once instead of one after another.",
            false => {
                "Nothing at this end. Look at what the client does until it sends again, or let it ask for several \
                      things at once."
            }
        };
        Verdict::Found(Found { summary, evidence, remedy: remedy.to_owned(), ..seen(facts, self, Certainty::Seen) })
    }
}

/// Says that a layer holds what the peer sends, for so long in all: then it is no program that takes its time.
pub(super) fn point_to(found: &mut Found, holder: Holder, ns: u64) {
    found.evidence.push(text(format!("Of what the peer sends, {holder} held data for {} in all.", words::time(ns))));
    found.remedy = format!("Look at the other direction: {holder} is told there, with what to change.");
}

/// The sender had nothing to send.
pub(super) struct SendingProgram;

impl Detector for SendingProgram {
    fn cause(&self) -> &'static str {
        CAUSE_SENDING
    }

    fn holders(&self) -> &'static [Holder] {
        &[Holder::SendingProgram]
    }

    fn needs(&self) -> Coverage {
        Coverage::of(&[Kind::Segments])
    }

    fn found(&self, facts: &Facts<'_>) -> Verdict {
        if facts.half.lack != Lack::Nothing {
            return no_acks();
        }
        Verdict::Found(Found {
            summary: "The sending program wrote nothing, though all layers below would have taken it".to_owned(),
            evidence: vec![facts.longest_seen(self.holders())],
            remedy: "Nothing in the network helps; look at what the sending program does meanwhile.".to_owned(),
            ..seen(facts, self, Certainty::Consistent)
        })
    }
}
