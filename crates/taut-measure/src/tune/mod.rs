//! Which settings shorten a path? Each is tried in turn with the base, round by round, with new links
//! each time; what stands out is measured again, since of many that do nothing one stands out by chance.

mod candidate;
pub mod radio;
mod setting;
mod trial;

use taut_link::wire::AckPolicy;
use taut_link::{Endpoint, Result};
use taut_time::{Duration, Timeline};

use crate::interrupt::Interrupt;
use crate::placement::Spot;
use crate::recording::{Ended, TcpFacts, TuneRow};
use candidate::Candidates;
use trial::Trial;

/// What to shorten, and how hard to try.
#[derive(Clone, Debug)]
pub struct TunePlan {
    /// The peer.
    pub endpoint: Endpoint,
    /// What the user cares about.
    pub workload: TuneWorkload,
    /// How the peer acknowledges in the base.
    pub acks: AckPolicy,
    /// Any server that echoes will do.
    pub plain: bool,
    /// Where both ends are put. Where the peer is placed the processor is no setting to be tried.
    pub spot: Spot,
    /// Independent repetitions of each setting in the screening, and again of each that stands out in it.
    pub rounds: usize,
    /// Time of one setting in one round.
    pub time: Duration,
    /// The command that repeats the table.
    pub command: String,
}

/// The workloads that can be tuned.
#[derive(Clone, Copy, Debug)]
pub enum TuneWorkload {
    /// Round trip of one message; its size.
    Echo {
        /// Bytes of a message.
        bytes: usize,
    },
    /// Round trip of a message that is written with two calls.
    WriteWriteRead {
        /// Bytes of the first call.
        first: usize,
        /// Bytes of the second call.
        rest: usize,
    },
    /// Delivery of messages sent on a schedule.
    Pace {
        /// Bytes of a message.
        bytes: usize,
        /// Time between them.
        period: Duration,
    },
    /// Time that 1 MiB of a stream takes.
    Stream {
        /// Bytes of one write.
        block: usize,
    },
}

impl TuneWorkload {
    /// Name on the command line.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Echo { .. } => "echo",
            Self::WriteWriteRead { .. } => "write-write-read",
            Self::Pace { .. } => "pace",
            Self::Stream { .. } => "stream",
        }
    }

    /// Whether the messages' writes can be observed.
    const fn has_timeline(&self) -> bool {
        !matches!(self, Self::Stream { .. })
    }
}

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
