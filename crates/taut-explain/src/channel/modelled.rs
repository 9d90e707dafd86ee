//! From the scenarios that show what a log shows to what is told of them.

use taut_event::Direction as Way;

use super::facts::Facts;
use super::gains::{Fitted, Gains, Remedied};
use super::{Channel, fit, known};
use crate::engine::{LinkModel, ModelledLink, ModelledRemedy};

/// Of a remedy that gives less than this nothing is told.
const LEAST_GAIN: f64 = 1.01;

/// What is told of a direction.
pub(super) fn modelled(channel: &Channel, way: Way, is_modelled: bool, gains: Option<&Gains>) -> LinkModel {
    let facts = Facts::new(channel, way);
    let why_not = match gains {
        Some(_) => None,
        None if channel.half(way).tally.is_blind => {
            Some("the log lacks Number Of Completed Packets: log all events of the controller")
        }
        None if !is_modelled => Some("only the first 16 directions with data are modelled"),
        None => Some(known::lacks(&facts).unwrap_or("no simulated link carries the log's rate to within 15 %")),
    };
    LinkModel {
        measured_bps: facts.rate() as u64,
        why_not: why_not.map(str::to_owned),
        seed: fit::SEED,
        duration_ns: if gains.is_some() { fit::told_duration(&facts) } else { 0 },
        scenarios: gains.iter().flat_map(|gains| &gains.standing).map(link).collect(),
    }
}

fn link((fitted, remedied): &(Fitted, Vec<Remedied>)) -> ModelledLink {
    let mut remedies: Vec<&Remedied> = remedied.iter().filter(|of| of.bps > fitted.bps * LEAST_GAIN).collect();
    remedies.sort_by(|a, b| b.bps.total_cmp(&a.bps));
    let told = |of: &Remedied| ModelledRemedy {
        cause: of.cause.to_owned(),
        set: of.change.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        program_bps: of.bps as u64,
    };
    ModelledLink {
        toml: fitted.scenario.to_toml(),
        log_bps: fitted.rate as u64,
        program_bps: fitted.bps as u64,
        distance: fitted.distance,
        remedies: remedies.into_iter().map(told).collect(),
    }
}
