//! Which settings shorten a path? Each is tried in turn with the base, round by round, with new links
//! each time; what stands out is measured again, since of many that do nothing one stands out by chance.

mod candidate;
mod plan;
pub mod radio;
mod setting;
mod trial;

use taut_link::Result;
use taut_time::Timeline;

use crate::interrupt::Interrupt;
use candidate::Candidates;
pub use plan::{TunePlan, TuneWorkload};
use taut_record::{Ended, TcpFacts, TuneRow};
use trial::Trial;

/// What came of it.
#[derive(Debug)]
pub struct TuneOutcome {
    /// A row for each setting; the base is the first.
    pub rows: Vec<TuneRow>,
    /// Events of the base, for the explainer.
    pub base_timelines: Vec<Timeline>,
    /// The base's TCP connection.
    pub base_tcp: Option<TcpFacts>,
    /// How it ended.
    pub ended: Ended,
}

/// Trials of the base with the observer, for the explainer. They count for nothing.
const OBSERVED: usize = 3;

/// Tries every setting that this endpoint can have: all in turn with the base, and once more in fresh
/// rounds what stood out. A setting that fails is out, with the reason; a base that fails ends it.
///
/// # Errors
/// The base itself can't be measured.
pub fn run(plan: &TunePlan, interrupt: &Interrupt, progress: &mut dyn FnMut(usize, usize)) -> Result<TuneOutcome> {
    let base = setting::base(plan);
    // What is compared is measured alike, so the timeline comes from trials of its own.
    let observed = (0..if plan.workload.has_timeline() { OBSERVED } else { 1 })
        .map(|_| trial::run(plan, &base, true, interrupt))
        .collect::<Result<Vec<Trial>>>()?;
    let cut_short = observed.iter().map(|trial| &trial.ended).find(|ended| **ended != Ended::Complete).cloned();
    let in_force = observed.last().map(|trial| trial.options.clone()).unwrap_or_default();
    let mut candidates = Candidates::new(plan, &in_force);
    let (ended, rows) = match cut_short {
        Some(ended) => (ended, Vec::new()),
        None => (candidates.measure(plan, interrupt, progress), candidates.rows(plan)),
    };
    Ok(TuneOutcome {
        rows,
        base_tcp: observed.last().and_then(|trial| trial.tcp),
        base_timelines: observed.into_iter().filter_map(|trial| trial.timeline).collect(),
        ended,
    })
}
