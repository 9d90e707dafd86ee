//! Detectors: from what was booked and counted to what is wrong. A cause is one file, or one
//! struct in the file of its kind, and one line in [`ALL`].

mod congestion;
mod enough;
mod facts;
mod loss;
mod nagle;
mod program;
mod window;

use taut_event::{Coverage, Direction as Way, Holder, Kind};

pub(crate) use self::enough::is_enough;
pub(super) use self::facts::is_incomplete;
use self::facts::{Detector, Facts, no_acks};
use super::{Verdict, VerdictOn};
use crate::tcp::{Connection, Lack};

/// What has less does not come before a program's own time.
const LEADING_SHARE: f64 = 0.05;
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
    let others = crate::channel::CAUSES.into_iter().chain(crate::udp::CAUSES).chain(crate::dns::CAUSES);
    // Those of BR/EDR have but one name of their own.
    let classic = crate::channel::CLASSIC_CAUSES.into_iter().filter(|(cause, _)| *cause == "rfcomm_credits");
    let others = others.chain(classic).chain(crate::sniffer::CAUSES).chain(crate::quic::CAUSES);
    own.chain(others.filter(move |(cause, _)| !is_known(cause)))
}

/// Whether a cause is what a program does, in its turn or the peer's.
pub(super) fn is_a_program(cause: &str) -> bool {
    [program::CAUSE_SENDING, program::CAUSE_PEER].contains(&cause)
}

/// What each detector says, what was found first.
pub(super) fn verdicts(connection: &Connection, way: Way) -> Vec<VerdictOn> {
    let half = &connection.halves[way.index()];
    let facts = Facts { connection, way, half, whole_ns: half.breakdown.total_ns() };
    let mut verdicts: Vec<VerdictOn> = ALL
        .iter()
        .map(|detector| VerdictOn { cause: detector.cause().to_owned(), verdict: judge(*detector, &facts) })
        .collect();
    let waits = verdicts.iter_mut().find(|on| on.cause == program::CAUSE_PEER);
    if let Some(VerdictOn { verdict: Verdict::Found(found), .. }) = waits
        && let Some((holder, ns)) = held_at_peer(&facts)
        && ns.saturating_mul(2) >= found.cost.held_ns
    {
        program::point_to(found, holder, ns);
    }
    verdicts.sort_by_key(|on| match &on.verdict {
        Verdict::Found(found) => {
            // What a program does is no fault of the path; but a small fault does not come before it.
            (
                u8::from(is_a_program(&on.cause) || found.cost.share < LEADING_SHARE),
                std::cmp::Reverse(found.cost.held_ns),
            )
        }
        Verdict::Unknown { .. } => (2, std::cmp::Reverse(0)),
        Verdict::Clear => (3, std::cmp::Reverse(0)),
    });
    verdicts
}

/// What was found to hold most of what the peer sends, where that is no program.
fn held_at_peer(facts: &Facts<'_>) -> Option<(Holder, u64)> {
    let half = facts.other();
    let whole_ns = half.breakdown.total_ns();
    let other = Facts { connection: facts.connection, way: facts.way.reverse(), half, whole_ns };
    let layers = ALL.iter().filter(|one| !is_a_program(one.cause()) && one.holders()[0] != Holder::Handshake);
    let found = layers.filter_map(|&one| match judge(one, &other) {
        Verdict::Found(found) => Some((one.holders()[0], found.cost.held_ns)),
        _ => None,
    });
    found.max_by_key(|(_, ns)| *ns)
}

fn judge(detector: &dyn Detector, facts: &Facts<'_>) -> Verdict {
    if facts.half.lack == Lack::All {
        return Verdict::Unknown {
            missing: "acknowledgements".to_owned(),
            ask: "capture where both directions pass".to_owned(),
        };
    }
    let cost = facts.cost(detector.holders());
    let longest = facts.half.breakdown.longest(detector.holders()).map_or(0, |episode| episode.length());
    if is_enough(&cost, longest) {
        return detector.found(facts);
    }
    if facts.half.lack != Lack::Nothing && detector.rests_on_acks() {
        return no_acks();
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
