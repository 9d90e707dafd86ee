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
    /// Whether the log is that of the sender.
    pub(super) is_sent_here: bool,
}

/// The cause of a log that a cause of the simulator counts as. A host's log has no air: early ends of events and
/// repeats are one to it; a short SDU at the end of a block costs credits; and the driver is the host.
fn in_log(cause: &str, is_sent_here: bool) -> &str {
    match cause {
        "event_length" | "loss" => "controller",
        "buffers" if is_sent_here => "controller_buffers",
        "buffers" => "controller",
        "block_boundary" => "credit_window",
        "wake_up" | "host_transport" => "sending_program",
        same => same,
    }
}

impl Gains {
    /// The part of the time, 0 to 1, that is saved when a cause is gone: the mean of all scenarios, in which
    /// each counts by how near it is. Distances are squares of differences, so that is by its likelihood.
    pub(super) fn saved(&self, cause: &str) -> f64 {
        let nearest = self.standing.first().map_or(0.0, |(fitted, _)| fitted.distance);
        let weighed = self.standing.iter().map(|(fitted, remedied)| {
            let rates = remedied.iter().filter(|of| in_log(of.cause, self.is_sent_here) == cause).map(|of| of.bps);
            let saved = 1.0 - fitted.bps / rates.fold(fitted.bps, f64::max).max(1.0);
            let weight = ((nearest - fitted.distance) / 2.0).exp();
            (weight * saved, weight)
        });
        let (saved, weights) = weighed.fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        saved / f64::max(weights, f64::MIN_POSITIVE)
    }

    /// Whether the nearest scenario shows so nearly what the log shows that what its remedies give is enough.
    pub(super) fn is_near(&self) -> bool {
        const NEAR: f64 = 100.0;
        self.standing.first().is_some_and(|(fitted, _)| fitted.distance <= NEAR)
    }

    /// Whether the nearest scenario hardly differs from the log, and no other remedy gives more than that of `cause`:
    /// then it stands even if the formulas leave it no time.
    pub(super) fn is_close_and_most(&self, cause: &str) -> bool {
        const CLOSE: f64 = 40.0;
        let is_close = self.standing.first().is_some_and(|(fitted, _)| fitted.distance <= CLOSE);
        let mut all = self.standing.iter().flat_map(|(_, remedied)| remedied);
        is_close && all.all(|of| self.saved(in_log(of.cause, self.is_sent_here)) <= self.saved(cause))
    }

    /// How much the log's own evidence counts beside the scenarios, 0 to 1: the more, the less they show what it shows.
    pub(super) fn doubt(&self) -> f64 {
        const LEAST: f64 = 0.0;
        /// At this distance the scenarios count for nothing.
        const FAR: f64 = 300.0;
        let distance = self.standing.first().map_or(FAR, |(fitted, _)| fitted.distance);
        (LEAST + (1.0 - LEAST) * distance / FAR).min(1.0)
    }

    /// What relieves a cause most in the nearest scenario: the change, and the rates with it and without.
    pub(super) fn remedy(&self, cause: &str) -> Option<(String, [f64; 2])> {
        let (fitted, remedied) = self.standing.first()?;
        let of_cause = remedied.iter().filter(|of| in_log(of.cause, self.is_sent_here) == cause && of.bps > fitted.bps);
        let best = of_cause.max_by(|a, b| a.bps.total_cmp(&b.bps))?;
        let words: Vec<String> = best.change.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Some((words.join(" "), [best.bps, fitted.bps]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(distance: f64, cause: &'static str, bps: f64) -> (Fitted, Vec<Remedied>) {
        let fitted = Fitted { scenario: Scenario::default(), bps: 100.0, rate: 100.0, distance };
        (fitted, vec![Remedied { cause, change: Vec::new(), bps }])
    }

    #[test]
    fn the_nearest_scenario_counts_most() {
        let all = vec![standing(1.0, "phy", 200.0), standing(5.0, "length", 200.0)];
        let gains = Gains { standing: all, is_sent_here: true };
        let [phy, length] = ["phy", "length"].map(|cause| gains.saved(cause));
        assert!(phy > 0.43 && length < 0.07 && (phy + length - 0.5).abs() < 1e-9, "{phy} {length}");
    }

    #[test]
    fn only_the_most_of_a_close_scenario_stands_alone() {
        let is = |distance, cause| {
            let (fitted, mut remedied) = standing(distance, "loss", 200.0);
            remedied.push(Remedied { cause: "phy", change: Vec::new(), bps: 150.0 });
            Gains { standing: vec![(fitted, remedied)], is_sent_here: true }.is_close_and_most(cause)
        };
        assert!(is(20.0, "controller") && !is(20.0, "phy") && !is(60.0, "controller"));
    }

    #[test]
    fn buffers_of_the_other_host_are_its_controller() {
        let of = |is_sent_here| Gains { standing: vec![standing(1.0, "buffers", 200.0)], is_sent_here };
        let saved = |is_sent_here, cause| (of(is_sent_here).saved(cause) * 100.0).round();
        assert_eq!((saved(true, "controller_buffers"), saved(true, "controller")), (50.0, 0.0));
        assert_eq!((saved(false, "controller_buffers"), saved(false, "controller")), (0.0, 50.0));
    }
}
