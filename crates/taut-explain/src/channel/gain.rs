//! What each cause's remedy gives, found by running it: limits that hold one another (a window, an interval and
//! buffers at once) have no formula.

use taut_air::Simulation;
use taut_event::Holder;

use super::facts::Facts;
use super::fit;
use super::gains::{Fitted, Gains, Remedied};
use super::replay::replay;
use crate::air::{Run, Suspect, suspects};

/// Cause of the simulator: the sender's controller has too few buffers.
const BUFFERS: &str = "buffers";
/// Part of the time in which buffers held the data that is worth a try.
const LEAST_FULL: f64 = 0.02;

/// What the remedies give; `None` where no scenario shows what the log shows.
pub(super) fn gains(facts: &Facts<'_>) -> Option<Gains> {
    let standing: Vec<_> = fit::fit(facts)
        .into_iter()
        .map(|mut fitted| {
            let remedied = remedied(facts, &mut fitted);
            (fitted, remedied)
        })
        .collect();
    (!standing.is_empty()).then(|| Gains { standing, is_sent_here: facts.half.is_sent_here() })
}

/// Runs the remedies of all that may bind a scenario; of each the change that gives most.
fn remedied(facts: &Facts<'_>, fitted: &mut Fitted) -> Vec<Remedied> {
    let duration = fit::told_duration(facts);
    let Some((_, outcome)) = replay(&fitted.scenario, facts.way, &facts.link, fit::SEED, duration) else {
        return Vec::new();
    };
    fitted.bps = outcome.throughput_bps;
    let all = suspects(Run { scenario: &fitted.scenario, outcome: &outcome });
    let mut all: Vec<_> = all.into_iter().map(|Suspect { cause, trials, .. }| (cause, trials)).collect();
    // Buffers that are filled again too late for the event are its early end to the simulator. The log shows that they
    // were all taken: what more of them give is tried as well.
    let is_full = facts.ns(Holder::ControllerBuffers) >= LEAST_FULL * facts.whole_ns as f64;
    if is_full && all.iter().all(|&(cause, _)| cause != BUFFERS) {
        let many = [("sender.acl_buffers", "16"), ("sender.tx_slots", "0")];
        all.push((BUFFERS, vec![many.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()]));
    }
    let best = |(cause, trials): (&'static str, Vec<Vec<(String, String)>>)| {
        let tried = trials.into_iter().filter_map(|change| {
            let mut scenario = fitted.scenario.clone();
            change.iter().try_for_each(|(name, value)| scenario.set(name, value)).ok()?;
            let bps = Simulation::new(&scenario, fit::SEED).ok()?.run(duration, &mut ()).throughput_bps;
            Some(Remedied { cause, change, bps })
        });
        tried.max_by(|a, b| a.bps.total_cmp(&b.bps))
    };
    all.into_iter().filter_map(best).collect()
}
