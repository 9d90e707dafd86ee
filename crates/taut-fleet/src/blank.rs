//! An outcome in which nothing has been measured yet.

use crate::outcome::{PairOutcome, Reached, WorkOutcome};
use crate::pairs::Pair;
use crate::plan::Plan;
use crate::work::Work;

/// The works of a plan, with why each pair is not measured if that stays so.
pub(crate) fn works(plan: &Plan, pairs: &[Pair], why: &dyn Fn(&Pair) -> String) -> Vec<WorkOutcome> {
    let pair = |pair: &Pair| PairOutcome {
        near: pair.near,
        far: pair.far,
        begin_ns: None,
        end_ns: None,
        reached: Reached::NotRun(why(pair)),
        measured: None,
        misses: Vec::new(),
        times_usual: None,
        explained: None,
        failures: None,
    };
    let work = |work: &Work| WorkOutcome {
        work: work.kind.name().to_owned(),
        transport: work.transport.name().to_owned(),
        warn: work.warn.as_ref().map(ToString::to_string),
        alone_on_host: work.alone_on_host,
        alone_in_rack: work.alone_in_rack,
        figure: work.figure(),
        usual: Vec::new(),
        pairs: pairs.iter().map(pair).collect(),
    };
    plan.work.iter().map(work).collect()
}
