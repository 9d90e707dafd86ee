//! What a detector is, and what it looks at.

use taut_event::{Coverage, Direction as Way, Holder};

use crate::engine::{Certainty, Cost, Evidence, Found, Verdict};
use crate::tcp::{Connection, Half, Tally};

/// Of a capture that lacks more than this of what was acknowledged, losses can't be told.
const MOST_UNSEEN: f64 = 0.001;

/// What may be the matter with a direction.
pub(super) trait Detector: Sync {
    /// Short name, the same in all versions.
    fn cause(&self) -> &'static str;
    /// Who holds the data when it is there.
    fn holders(&self) -> &'static [Holder];
    /// Whether it is recognised by acknowledgements without data.
    fn rests_on_acks(&self) -> bool {
        true
    }
    /// Kinds of events without which it can't say that it is not there.
    fn needs(&self) -> Coverage;
    /// What it says when enough time was held.
    fn found(&self, facts: &Facts<'_>) -> Verdict;
}

/// What the detectors look at.
pub(super) struct Facts<'a> {
    pub(super) connection: &'a Connection,
    pub(super) way: Way,
    pub(super) half: &'a Half,
    pub(super) whole_ns: u64,
}

impl<'a> Facts<'a> {
    pub(super) fn tally(&self) -> &'a Tally {
        &self.half.tally
    }

    pub(super) fn other(&self) -> &'a Half {
        &self.connection.halves[self.way.reverse().index()]
    }

    pub(super) fn cost(&self, holders: &[Holder]) -> Cost {
        self.half.breakdown.cost(holders, self.whole_ns)
    }

    /// The longest stretch, as something to look at.
    pub(super) fn longest_seen(&self, holders: &[Holder]) -> Evidence {
        self.half.breakdown.longest_seen(holders)
    }

    /// Whether it was captured far from either end, as titles have it.
    pub(super) fn is_between(&self) -> bool {
        let position = self.connection.position(self.way.index());
        self.connection.knows_loops() && position > 0.25 && position < 0.75 && self.round_trip() >= 500_000
    }

    /// The least round trip, of path and host.
    pub(super) fn round_trip(&self) -> u64 {
        self.tally().least_round_trip.unwrap_or(u64::MAX).min(self.connection.round_trip())
    }
}

/// That acknowledgements are missing.
pub(super) fn no_acks() -> Verdict {
    Verdict::Unknown {
        missing: "acknowledgements that the capture left out".to_owned(),
        ask: "capture without a filter on flags or lengths".to_owned(),
    }
}

/// Whether the capture lacks so much of a direction that losses can't be told.
pub(in crate::engine) fn is_incomplete(connection: &Connection, way: Way) -> bool {
    let unseen = connection.unseen_bytes(way.index());
    let all = connection.halves[way.index()].tally.bytes + unseen;
    unseen > 0 && unseen as f64 > MOST_UNSEEN * all as f64
}

/// A finding whose cost is the time of its holders.
pub(super) fn seen(facts: &Facts<'_>, detector: &dyn Detector, certainty: Certainty) -> Found {
    Found {
        summary: String::new(),
        side: detector.holders()[0].side().to_string(),
        certainty,
        cost: facts.cost(detector.holders()),
        evidence: Vec::new(),
        remedy: String::new(),
    }
}

pub(super) fn text(text: String) -> Evidence {
    Evidence { text, frames: None }
}
