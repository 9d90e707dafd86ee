//! What each cause's remedy gives, found by running it: limits that hold one another (a window, an interval and
//! buffers at once) have no formula.

use taut_air::Simulation;

use super::facts::Facts;
use super::fit;
use super::gains::{Fitted, Gains, Remedied};
use super::replay::replay;
use crate::air::{Run, Suspect, suspects};

/// What the remedies give; `None` where no scenario shows what the log shows.
pub(super) fn gains(facts: &Facts<'_>) -> Option<Gains> {
    let standing: Vec<_> = fit::fit(facts)
        .into_iter()
        .map(|fitted| {
            let remedied = remedied(facts, &fitted);
            (fitted, remedied)
        })
        .collect();
    (!standing.is_empty()).then_some(Gains { standing })
}

/// Runs the remedies of all that may bind a scenario; of each the change that gives most.
fn remedied(facts: &Facts<'_>, fitted: &Fitted) -> Vec<Remedied> {
    let duration = fit::duration(facts);
    let Some((_, outcome)) = replay(&fitted.scenario, facts.way, &facts.link, 1, duration) else { return Vec::new() };
    let all = suspects(Run { scenario: &fitted.scenario, outcome: &outcome });
    let best = |suspect: Suspect| {
        let tried = suspect.trials.into_iter().filter_map(|change| {
            let mut scenario = fitted.scenario.clone();
            change.iter().try_for_each(|(name, value)| scenario.set(name, value)).ok()?;
            let bps = Simulation::new(&scenario, 1).ok()?.run(duration, &mut ()).throughput_bps;
            Some(Remedied { cause: suspect.cause, change, bps })
        });
        tried.max_by(|a, b| a.bps.total_cmp(&b.bps))
    };
    all.into_iter().filter_map(best).collect()
}
