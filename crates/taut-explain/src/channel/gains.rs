//! What remedies give in the scenarios that show what a log shows.

use taut_air::Scenario;

/// A scenario that was run.
#[derive(Clone, Debug)]
pub(super) struct Fitted {
    pub(super) scenario: Scenario,
    /// Bits a second that its reader got.
    pub(super) bps: f64,
    /// The same as its log has it.
    pub(super) rate: f64,
    pub(super) distance: f64,
}

/// What a remedy gives in one scenario.
#[derive(Clone, Debug)]
pub(super) struct Remedied {
    /// The cause as the simulator calls it.
    pub(super) cause: &'static str,
    /// Parameters with their values.
    pub(super) change: Vec<(String, String)>,
    /// Bits a second with them.
    pub(super) bps: f64,
}

/// A link as it is, and what it carries without each of its limits: in one scenario that shows what the log shows, or
/// in several.
#[derive(Clone, Debug)]
pub(super) struct Gains {
    pub(super) standing: Vec<(Fitted, Vec<Remedied>)>,
}

/// The cause of a log that a cause of the simulator counts as. A host's log has no air: early ends of events and
/// repeats are one to it; a short SDU at the end of a block costs credits; and the driver is the host.
fn in_log(cause: &str) -> &str {
    match cause {
        "event_length" | "loss" => "controller",
        "buffers" => "controller_buffers",
        "block_boundary" => "credit_window",
        "wake_up" | "host_transport" => "sending_program",
        same => same,
    }
}

impl Gains {
    /// The part of the time, 0 to 1, that is saved when a cause is gone: the mean of all scenarios.
    pub(super) fn saved(&self, cause: &str) -> f64 {
        let saved = self.standing.iter().map(|(fitted, remedied)| {
            let rates = remedied.iter().filter(|of| in_log(of.cause) == cause).map(|of| of.bps);
            1.0 - fitted.bps / rates.fold(fitted.bps, f64::max).max(1.0)
        });
        saved.sum::<f64>() / self.standing.len().max(1) as f64
    }

    /// How much the log's own evidence counts beside the scenarios, 0 to 1: the more, the less they show what it shows.
    pub(super) fn doubt(&self) -> f64 {
        const LEAST: f64 = 0.1;
        /// At this distance the scenarios count for nothing.
        const FAR: f64 = 300.0;
        let distance = self.standing.first().map_or(FAR, |(fitted, _)| fitted.distance);
        (LEAST + (1.0 - LEAST) * distance / FAR).min(1.0)
    }

    /// What relieves a cause most in the nearest scenario: the change, and the rates with it and without.
    pub(super) fn remedy(&self, cause: &str) -> Option<(String, [f64; 2])> {
        let (fitted, remedied) = self.standing.first()?;
        let of_cause = remedied.iter().filter(|of| in_log(of.cause) == cause && of.bps > fitted.bps);
        let best = of_cause.max_by(|a, b| a.bps.total_cmp(&b.bps))?;
        let words: Vec<String> = best.change.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Some((words.join(" "), [best.bps, fitted.bps]))
    }
}
