//! Round trips: each message comes back from the peer.
//!
//! In a closed loop a link's next message waits for the reply to the one before; in an open loop
//! ([`EchoPlan::rate_hz`]) messages leave on an absolute schedule, whatever comes back. Only an open loop shows
//! what a stalled peer does to those who send on a schedule (coordinated omission); it reports both the time
//! from the intended sending (response time) and from the actual one (service time), and its own lateness.

mod broker;
mod client;
#[cfg(test)]
mod client_tests;
mod copies;
mod cost;
mod event_loop;
mod flights;
#[cfg(test)]
mod odd_peers;
#[cfg(test)]
mod parity;
mod ping_pong;
mod plan;
mod samples;
mod simulated;
mod stray;
mod target;

use std::ops::Range;

use taut_link::{Error, Fault};
use taut_time::Timeline;

use crate::engine::{EngineKind, overhead};
use crate::interrupt::Interrupt;
use crate::rounds::turns;
pub use broker::BrokerTrial;
pub use cost::observer_cost;
pub use plan::{EchoPlan, EchoSubject, EchoTimes, RunLength, WriteStyle};
pub use simulated::run_simulated;
use target::Target;
use taut_record::{EchoRow, Ended};

/// What came of it.
#[derive(Debug)]
pub struct EchoOutcome {
    /// A row for each subject, in the order given; a subject of which nothing was measured has none.
    pub rows: Vec<Option<EchoRow>>,
    /// All times of each subject.
    pub times: Vec<EchoTimes>,
    /// Events of the last round of each subject that was observed.
    pub timelines: Vec<Option<Timeline>>,
    /// How it ended.
    pub ended: Ended,
}

/// How many of these subjects are held against another one: all but the first of each kind of placement.
pub fn comparisons(subjects: &[EchoSubject]) -> usize {
    let is_first = |at: usize| subjects[..at].iter().all(|before| before.spot.kind != subjects[at].spot.kind);
    (0..subjects.len()).filter(|&at| !is_first(at)).count()
}

/// Measures all subjects, interleaved round by round, and compares each with the first of the same
/// kind of placement. A subject that fails is out, and the others go on; what was measured of it
/// stays, and how it failed is how the run ended.
///
/// A subject that is observed is measured once more in each round, with the observer, and that does not
/// count: what is compared is measured alike, and the difference of the two is what the observer costs.
///
/// # Errors
/// Nothing at all could be measured, or the plan makes no sense.
pub fn run(
    plan: &EchoPlan,
    subjects: &[EchoSubject],
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(usize, usize),
) -> taut_link::Result<EchoOutcome> {
    run_rounds(plan, subjects, 0..plan.rounds, interrupt, progress)
}

/// Measures one round, the one with this number of a run that has no end. The number decides who begins.
///
/// # Errors
/// As [`run`].
pub fn run_round(
    plan: &EchoPlan,
    subjects: &[EchoSubject],
    number: usize,
    interrupt: &Interrupt,
) -> taut_link::Result<EchoOutcome> {
    run_rounds(plan, subjects, number..number + 1, interrupt, &mut |_, _| {})
}

fn run_rounds(
    plan: &EchoPlan,
    subjects: &[EchoSubject],
    rounds: Range<usize>,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(usize, usize),
) -> taut_link::Result<EchoOutcome> {
    let mut targets: Vec<Target<'_>> = subjects.iter().map(|subject| Target::new(plan, subject)).collect();
    let steps = plan.rounds * targets.len();
    let mut failed: Vec<(usize, usize, Error)> = Vec::new();
    let first = rounds.start;
    'rounds: for round in rounds {
        for (step, turn) in turns(round, targets.len()).enumerate() {
            if interrupt.is_set() {
                break 'rounds;
            }
            if failed.iter().any(|(out, ..)| *out == turn) {
                continue;
            }
            progress(round * targets.len() + step, steps);
            match targets[turn].run_round(round, interrupt) {
                Ok(()) => {}
                Err(Error::Interrupted { .. }) => break 'rounds,
                // Wrong for all rounds to come, and found out before anything is lost by saying so.
                Err(error) if round == first && error.fault() == Fault::Input => return Err(error),
                Err(error) => failed.push((turn, round, error)),
            }
        }
    }
    if !targets.iter().any(Target::has_samples) && !failed.is_empty() {
        // That of the first subject, in whatever order they took their turns.
        failed.sort_by_key(|(turn, ..)| *turn);
        return Err(failed.swap_remove(0).2);
    }
    let ended = if interrupt.is_set() { Ended::Interrupted } else { how_it_ended(plan, &targets, &failed) };
    let timelines = targets.iter_mut().map(Target::take_timeline).collect();
    let rows = target::rows(&targets);
    let times = targets.into_iter().map(Target::into_times).collect();
    Ok(EchoOutcome { rows, times, timelines, ended })
}

/// Measures what each row's engine costs by itself, and enters it.
pub fn tell_engine_costs(outcome: &mut EchoOutcome) {
    const WAITS: u32 = 1000;
    for row in outcome.rows.iter_mut().flatten() {
        let kind = row.engine.parse::<EngineKind>();
        row.engine_wait_ns = kind.ok().and_then(|kind| overhead::of(kind, WAITS).ok()?.quantile(0.5)?.time());
    }
}

/// Which subjects failed, after what, in their order.
fn how_it_ended(plan: &EchoPlan, targets: &[Target<'_>], failed: &[(usize, usize, Error)]) -> Ended {
    let mut failed: Vec<&(usize, usize, Error)> = failed.iter().collect();
    failed.sort_by_key(|(turn, ..)| *turn);
    let say = |(turn, round, error): &&(usize, usize, Error)| {
        let sent = targets[*turn].sent();
        let when = match sent {
            0 => "before its first message".to_owned(),
            1 => "after 1 message".to_owned(),
            sent => format!("after {sent} messages"),
        };
        // A plan of one round is a part of another one, which has its own number.
        let round = if plan.rounds > 1 { format!("round {}, ", round + 1) } else { String::new() };
        format!("{error} ({round}{when})")
    };
    let why: Vec<String> = failed.iter().map(say).collect();
    // One that is there and does something else has not gone.
    let is_peer = |(turn, _, error): &&(usize, usize, Error)| {
        error.fault() == Fault::Peer && !matches!(error, Error::NoEcho { .. }) && targets[*turn].has_samples()
    };
    match failed.len() {
        0 => Ended::Complete,
        _ if failed.iter().all(is_peer) => Ended::PeerGone(why.join("; ")),
        _ => Ended::Failed(why.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use taut_time::Duration;

    use super::*;

    /// A closed loop of one round.
    pub(super) fn plan() -> EchoPlan {
        EchoPlan {
            rounds: 1,
            limit: RunLength::Count(1),
            rate_hz: None,
            timeout: Duration::from_secs(1),
            exceed: Vec::new(),
            message_bytes: 32,
            connections: 1,
            plain: true,
        }
    }
}
