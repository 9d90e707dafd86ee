//! Detectors: from what was booked and counted to what is wrong. A cause is one file, or one
//! struct in the file of its kind, and one line in [`ALL`].

mod congestion;
mod loss;
mod nagle;
mod program;
mod window;

use taut_event::{Coverage, Direction as Way, Holder, Kind};

use super::breakdown::Episode;
use super::{Certainty, Cost, Evidence, Found, Verdict, VerdictOn};
use crate::tcp::{Connection, Half, Tally};
use crate::words;

/// Less is no finding.
const LEAST_SHARE: f64 = 0.01;
/// What has less does not come before a program's own time.
const LEADING_SHARE: f64 = 0.05;
/// Fewer stretches are chance.
const LEAST_EPISODES: u64 = 3;
/// A single stretch as long as this is told whatever its share.
const STALL_NS: u64 = 200_000_000;
/// Of a capture that lacks more than this of what was acknowledged, losses can't be told.
const MOST_UNSEEN: f64 = 0.001;

/// What may be the matter with a direction.
trait Detector: Sync {
    /// Short name, the same in all versions.
    fn cause(&self) -> &'static str;
    /// Who holds the data when it is there.
    fn holders(&self) -> &'static [Holder];
    /// Kinds of events without which it can't say that it is not there.
    fn needs(&self) -> Coverage;
    /// What it says when enough time was held.
    fn found(&self, facts: &Facts<'_>) -> Verdict;
}

const ALL: [&dyn Detector; 13] = [
    &nagle::NagleDelayedAck,
    &nagle::Cork,
    &window::ReceiveWindow,
    &window::ReceivingProgram,
    &window::SendBuffer,
    &loss::Loss,
    &loss::Opening,
    &congestion::PathQueue,
    &congestion::AfterIdle,
    &congestion::SlowStart,
    &congestion::CongestionWindow,
    &program::PeerTurn,
    &program::SendingProgram,
];

/// The causes that can be found, with the holders whose time they are.
pub fn causes() -> impl Iterator<Item = (&'static str, &'static [Holder])> {
    let own = ALL.iter().map(|detector| (detector.cause(), detector.holders()));
    // Both know the turns of programs, by the same names.
    let is_known = |cause: &str| ALL.iter().any(|detector| detector.cause() == cause);
    own.chain(crate::channel::CAUSES.into_iter().filter(move |(cause, _)| !is_known(cause)))
}

/// What the detectors look at.
struct Facts<'a> {
    connection: &'a Connection,
    way: Way,
    half: &'a Half,
    whole_ns: u64,
}

impl<'a> Facts<'a> {
    fn tally(&self) -> &'a Tally {
        &self.half.tally
    }

    fn other(&self) -> &'a Half {
        &self.connection.halves[self.way.reverse().index()]
    }

    fn cost(&self, holders: &[Holder]) -> Cost {
        let cells = || holders.iter().filter_map(|&holder| self.half.breakdown.get(holder));
        let held_ns = cells().map(|cell| cell.ns).sum();
        Cost {
            held_ns,
            between_ns: [held_ns; 2],
            share: if self.whole_ns == 0 { 0.0 } else { held_ns as f64 / self.whole_ns as f64 },
            episodes: cells().map(|cell| cell.episodes).sum(),
        }
    }

    fn longest(&self, holders: &[Holder]) -> Option<Episode> {
        let cells = holders.iter().filter_map(|&holder| self.half.breakdown.get(holder));
        cells.filter_map(|cell| cell.worst.first()).max_by_key(|episode| episode.length()).copied()
    }

    /// The longest stretch, as something to look at.
    fn longest_seen(&self, holders: &[Holder]) -> Evidence {
        let longest = self.longest(holders);
        let text = longest.map_or_else(String::new, |episode| format!("Longest: {}.", words::time(episode.length())));
        Evidence { text, frames: longest.map(|episode| episode.places.into()) }
    }

    /// The least round trip, of path and host.
    fn round_trip(&self) -> u64 {
        self.tally().least_round_trip.unwrap_or(u64::MAX).min(self.connection.round_trip())
    }
}

/// Whether the capture lacks so much of a direction that losses can't be told.
pub(super) fn is_incomplete(connection: &Connection, way: Way) -> bool {
    let unseen = connection.unseen_bytes(way.index());
    let all = connection.halves[way.index()].tally.bytes + unseen;
    unseen > 0 && unseen as f64 > MOST_UNSEEN * all as f64
}

/// What each detector says, what was found first.
pub(super) fn verdicts(connection: &Connection, way: Way) -> Vec<VerdictOn> {
    let half = &connection.halves[way.index()];
    let facts = Facts { connection, way, half, whole_ns: half.breakdown.total_ns() };
    let mut verdicts: Vec<VerdictOn> = ALL
        .iter()
        .map(|detector| VerdictOn { cause: detector.cause().to_owned(), verdict: judge(*detector, &facts) })
        .collect();
    verdicts.sort_by_key(|on| match &on.verdict {
        Verdict::Found(found) => {
            // What a program does is no fault of the path; but a small fault does not come before it.
            let is_a_program = [program::CAUSE_SENDING, program::CAUSE_PEER].contains(&on.cause.as_str());
            (u8::from(is_a_program || found.cost.share < LEADING_SHARE), std::cmp::Reverse(found.cost.held_ns))
        }
        Verdict::Unknown { .. } => (2, std::cmp::Reverse(0)),
        Verdict::Clear => (3, std::cmp::Reverse(0)),
    });
    verdicts
}

fn judge(detector: &dyn Detector, facts: &Facts<'_>) -> Verdict {
    if facts.tally().acks == 0 {
        return Verdict::Unknown {
            missing: "acknowledgements".to_owned(),
            ask: "capture where both directions pass".to_owned(),
        };
    }
    let cost = facts.cost(detector.holders());
    let longest = facts.longest(detector.holders()).map_or(0, |episode| episode.length());
    if is_enough(&cost, longest) {
        return detector.found(facts);
    }
    let mut coverage = facts.connection.flow.coverage;
    if facts.connection.has_handshake() {
        coverage = coverage.and(Coverage::of(&[Kind::Handshake]));
    }
    let lacks = coverage.lacks(detector.needs());
    if lacks.is_empty() {
        return Verdict::Clear;
    }
    Verdict::Unknown { missing: lacks.to_string(), ask: "capture from before the connection opens".to_owned() }
}

/// Whether so much was held that it counts, the longest stretch being `longest_ns`.
pub(crate) fn is_enough(cost: &Cost, longest_ns: u64) -> bool {
    // Windows and losses hold in one long stretch as well as in many short ones.
    let is_often = cost.share >= LEAST_SHARE && (cost.episodes >= LEAST_EPISODES || cost.share >= 0.05);
    cost.held_ns > 0 && (is_often || longest_ns >= STALL_NS)
}

/// A finding whose cost is the time of its holders.
fn seen(facts: &Facts<'_>, detector: &dyn Detector, certainty: Certainty) -> Found {
    Found {
        summary: String::new(),
        side: detector.holders()[0].side().to_string(),
        certainty,
        cost: facts.cost(detector.holders()),
        evidence: Vec::new(),
        remedy: String::new(),
    }
}

fn text(text: String) -> Evidence {
    Evidence { text, frames: None }
}
