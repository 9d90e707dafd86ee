//! Which settings shorten a path? Each is tried in turn with the base, round by round, with new links each time.

pub mod radio;
mod setting;
mod trial;

use taut_link::wire::AckPolicy;
use taut_link::{Endpoint, Result};
use taut_time::{Duration, Timeline};

use crate::echo::verdict;
use crate::interrupt::Interrupt;
use crate::recording::{Ended, TcpFacts, TuneRow, Verdict};
use crate::stats::{median, ratio_across};
use setting::Setting;
use trial::Figures;

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
    /// Independent repetitions of each setting; with fewer than [`LEAST_ROUNDS`](crate::stats::LEAST_ROUNDS) nothing can be told apart.
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

/// Tries every setting that this endpoint can have.
///
/// # Errors
/// The base itself can't be measured.
pub fn run(plan: &TunePlan, interrupt: &Interrupt, progress: &mut dyn FnMut(usize, usize)) -> Result<TuneOutcome> {
    let settings = setting::all(plan);
    let mut tried: Vec<Tried> = settings.into_iter().map(Tried::new).collect();
    let mut base_timelines = Vec::new();
    let mut base_tcp = None;
    let mut ended = Ended::Complete;
    let steps = tried.len() * plan.rounds;
    'rounds: for round in 0..plan.rounds {
        for step in 0..tried.len() {
            progress(round * tried.len() + step, steps);
            if interrupt.is_set() {
                ended = Ended::Interrupted;
                break 'rounds;
            }
            let index = (step + round) % tried.len();
            let is_base = index == 0;
            let one = &mut tried[index];
            if one.why_not.is_some() {
                continue;
            }
            match trial::run(plan, &one.setting, is_base, interrupt) {
                Ok(trial) => {
                    one.rounds.push(trial.figures);
                    if is_base {
                        base_timelines.extend(trial.timeline);
                        base_tcp = trial.tcp.or(base_tcp);
                    }
                }
                Err(error) if is_base && one.rounds.is_empty() => return Err(error),
                // A setting that the kernel or the peer refuses is a result too; a peer that is gone ends the run.
                Err(error) if error.is_peer_gone() && !one.rounds.is_empty() => {
                    ended = Ended::PeerGone(error.to_string());
                    break 'rounds;
                }
                Err(error) => one.why_not = Some(error.to_string()),
            }
        }
    }
    let base: Vec<Figures> = tried[0].rounds.clone();
    let rows = tried.iter().enumerate().map(|(index, one)| one.row(plan, &base, index == 0)).collect();
    Ok(TuneOutcome { rows, base_timelines, base_tcp, ended })
}

/// A setting with what it gave.
struct Tried {
    setting: Setting,
    rounds: Vec<Figures>,
    why_not: Option<String>,
}

impl Tried {
    const fn new(setting: Setting) -> Self {
        Self { setting, rounds: Vec::new(), why_not: None }
    }

    fn row(&self, plan: &TunePlan, base: &[Figures], is_base: bool) -> TuneRow {
        let p50 = |rounds: &[Figures]| rounds.iter().map(|round| round.p50_ns).collect::<Vec<_>>();
        let p99 = |rounds: &[Figures]| rounds.iter().map(|round| round.p99_ns).collect::<Vec<_>>();
        let middle = |values: Vec<Option<u64>>| {
            median(&values.into_iter().flatten().map(|ns| ns as f64).collect::<Vec<_>>()).map(|ns| ns as u64)
        };
        let ratio = ratio_across(&p50(&self.rounds), &p50(base));
        let verdict = match (&self.why_not, ratio) {
            (Some(_), _) => Verdict::NotAvailable,
            (None, Some((_, interval))) if !is_base => verdict(interval),
            (None, _) => Verdict::CannotTellApart,
        };
        TuneRow {
            endpoint: plan.endpoint.to_string(),
            command: plan.command.clone(),
            measured: plan.workload.name().to_owned(),
            setting: self.setting.name.clone(),
            place: self.setting.place.to_owned(),
            p50_ns: middle(p50(&self.rounds)),
            p99_ns: middle(p99(&self.rounds)),
            p50_ratio: ratio.map(|(ratio, _)| ratio),
            p50_ratio_ci: ratio.map(|(_, interval)| interval),
            p99_ratio: ratio_across(&p99(&self.rounds), &p99(base)).map(|(ratio, _)| ratio),
            verdict,
            why_not: self.why_not.clone(),
            apply: self.setting.apply.clone(),
            throughput_bps: None,
            options: Vec::new(),
        }
    }
}
