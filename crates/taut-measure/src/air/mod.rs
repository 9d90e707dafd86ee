//! Links in virtual time: runs of `taut-air` made into rows, and the way to their limit. And the
//! same controllers in real time, under kernels ([`LiveRadio`]).

mod excerpt;
mod host;
mod live;
mod plan;
mod row;
mod stream;
mod timeline;
mod tune;

use taut_air::{AirEvent, Observer, Outcome, Simulation};

pub use excerpt::Excerpt;
pub use live::{HostChange, HostNotice, HostPlace, LiveController, LiveError, LiveFigures, LiveRadio, prepare};
pub use plan::AirPlan;
pub use stream::stream;
pub use taut_air::{Scenario, ScenarioError};
pub use timeline::AirTimeline;
pub use tune::{AirTuneOutcome, tune};

use crate::Interrupt;
use taut_record::{AirRow, Ended};

/// What a run gave.
#[derive(Debug)]
pub struct AirOutcome {
    /// Its row; without an excerpt, which is an observer's.
    pub row: AirRow,
    /// The same as the model tells it.
    pub outcome: Outcome,
    /// How it ended.
    pub ended: Ended,
}

/// Runs a plan. Interrupted, it ends within a second of virtual time, with what was measured until then.
///
/// # Errors
///
/// When the scenario's parameters do not fit each other.
pub fn run(plan: &AirPlan, interrupt: &Interrupt, observer: &mut impl Observer) -> Result<AirOutcome, ScenarioError> {
    const SLICE_NS: u64 = 1_000_000_000;
    let mut simulation = Simulation::new(&plan.scenario, plan.seed)?;
    let mut left = plan.time_ns();
    let outcome = loop {
        let slice = left.min(SLICE_NS);
        let outcome = simulation.run(slice, observer);
        left -= slice;
        let is_over = outcome.duration_ns == 0 || outcome.disconnected.is_some();
        if left == 0 || is_over || interrupt.is_set() {
            break outcome;
        }
    };
    let ended = match outcome.disconnected {
        Some(reason) => Ended::PeerGone(format!("the link was lost (HCI error 0x{reason:02x})")),
        None if outcome.duration_ns == 0 => Ended::PeerGone("the channel never came up".to_owned()),
        None if left > 0 => Ended::Interrupted,
        None => Ended::Complete,
    };
    Ok(AirOutcome { row: row::row(plan, &outcome), outcome, ended })
}

/// Two observers that see the same.
#[derive(Debug)]
pub struct Both<A, B>(pub A, pub B);

impl<A: Observer, B: Observer> Observer for Both<&mut A, &mut B> {
    const ACTIVE: bool = A::ACTIVE || B::ACTIVE;

    fn event(&mut self, event: &AirEvent<'_>) {
        self.0.event(event);
        self.1.event(event);
    }
}
