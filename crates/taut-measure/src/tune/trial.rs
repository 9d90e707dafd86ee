use taut_link::Result;
use taut_time::{Duration, Timeline};

use super::plan::{TunePlan, TuneWorkload};
use super::setting::Setting;
use crate::echo::{self, EchoPlan, EchoSubject, RunLength};
use crate::interrupt::Interrupt;
use crate::pace::{self, PacePlan, PeerKind};
use crate::placement::Spot;
use crate::stream::{self, Direction, StreamPlan};
use taut_record::stats::{Losses, Percentile, Quantile, Summary};
use taut_record::{Ended, Placement, TcpFacts};

/// What one setting gave in one round.
pub(super) struct Trial {
    pub(super) figures: Figures,
    pub(super) timeline: Option<Timeline>,
    pub(super) tcp: Option<TcpFacts>,
    /// Options in force, as the kernel has them.
    pub(super) options: Vec<String>,
    /// Anything but complete: the figures are not those of a whole trial.
    pub(super) ended: Ended,
}

/// The times that are compared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) p50: Option<Quantile>,
    /// Absent where there are too few messages for one.
    pub(super) p99: Option<Quantile>,
    pub(super) losses: Losses,
    /// The peer was not where it should have been.
    pub(super) moved: bool,
}

impl Figures {
    fn of(times: Option<&Summary>, moved: bool) -> Self {
        let at = |percentile| times.and_then(|times| times.percentile(percentile));
        let losses = times.map_or_else(Losses::default, Summary::losses);
        Self { p50: at(Percentile::P50), p99: at(Percentile::P99), losses, moved }
    }
}

/// Where both ends are in a trial.
fn spot(plan: &TunePlan, setting: &Setting) -> Spot {
    setting.core.map_or_else(|| plan.spot.clone(), |core| Spot::free(Some(core)))
}

fn moved(spot: &Spot, found: Option<&Placement>) -> bool {
    found.is_some_and(|found| found.kind != spot.kind)
}

/// Runs the workload once with a setting.
pub(super) fn run(plan: &TunePlan, setting: &Setting, observe: bool, interrupt: &Interrupt) -> Result<Trial> {
    match plan.workload {
        TuneWorkload::Echo { bytes } => run_echo(plan, setting, bytes, observe, interrupt),
        TuneWorkload::WriteWriteRead { first, rest } => run_echo(plan, setting, first + rest, observe, interrupt),
        TuneWorkload::Pace { bytes, period } => run_pace(plan, setting, bytes, period, interrupt),
        TuneWorkload::Stream { block } => run_stream(plan, setting, block, interrupt),
    }
}

fn run_echo(plan: &TunePlan, setting: &Setting, bytes: usize, observe: bool, interrupt: &Interrupt) -> Result<Trial> {
    let echo_plan = EchoPlan {
        rounds: 1,
        limit: RunLength::Time(plan.time),
        rate_hz: None,
        timeout: Duration::from_secs(1),
        exceed: Vec::new(),
        message_bytes: bytes,
        connections: 1,
        plain: plan.plain,
    };
    let spot = spot(plan, setting);
    let subject = EchoSubject {
        endpoint: plan.endpoint.clone(),
        engine: setting.engine,
        options: setting.options.clone(),
        acks: setting.acks,
        writes: setting.writes,
        spot: spot.clone(),
        observe,
        command: plan.command.clone(),
    };
    let mut outcome = echo::run(&echo_plan, &[subject], interrupt, &mut |_, _| {})?;
    let row = outcome.rows.swap_remove(0);
    let moved = moved(&spot, row.as_ref().and_then(|row| row.placement.as_ref()));
    let figures = Figures::of(row.as_ref().and_then(|row| row.rtt_ns.as_ref()), moved);
    let (tcp, options) = row.map_or_else(Default::default, |row| (row.tcp, row.options));
    Ok(Trial { figures, timeline: outcome.timelines.swap_remove(0), tcp, options, ended: outcome.ended })
}

fn run_pace(
    plan: &TunePlan,
    setting: &Setting,
    bytes: usize,
    period: Duration,
    interrupt: &Interrupt,
) -> Result<Trial> {
    let spot = spot(plan, setting);
    let pace_plan = PacePlan {
        peer: PeerKind::Server { endpoint: plan.endpoint.clone(), acks: setting.acks },
        message_bytes: bytes,
        period,
        time: plan.time,
        rounds: 1,
        options: setting.options.clone(),
        exceed: Vec::new(),
        spot: spot.clone(),
        fifo: false,
        command: plan.command.clone(),
    };
    let mut outcome = pace::run(&pace_plan, interrupt, &mut |_, _| {})?;
    let moved = moved(&spot, outcome.row.placement.as_ref());
    let figures = Figures::of(outcome.row.delivery_ns.as_ref(), moved);
    let (tcp, options) = (outcome.row.tcp, outcome.row.options);
    Ok(Trial { figures, timeline: outcome.timelines.pop(), tcp, options, ended: outcome.ended })
}

fn run_stream(plan: &TunePlan, setting: &Setting, block: usize, interrupt: &Interrupt) -> Result<Trial> {
    let spot = spot(plan, setting);
    let stream_plan = StreamPlan {
        endpoint: plan.endpoint.clone(),
        direction: Direction::Up,
        connections: 1,
        block_bytes: block,
        time: plan.time,
        rounds: 1,
        options: setting.options.clone(),
        acks: setting.acks,
        plain: plan.plain,
        spot: spot.clone(),
        command: plan.command.clone(),
    };
    let outcome = stream::run(&stream_plan, interrupt, &mut |_, _| {})?;
    let time = mebibyte_at(outcome.row.throughput_bps);
    let moved = moved(&spot, outcome.row.placement.as_ref());
    let figures = Figures { p50: Some(time), moved, ..Figures::default() };
    let (tcp, options) = (outcome.row.tcp, outcome.row.options);
    Ok(Trial { figures, timeline: None, tcp, options, ended: outcome.ended })
}

/// How long a mebibyte takes at a rate in bit/s. At none it never comes, which is longer than any other time: a setting
/// that stalls in some rounds is judged by these too.
fn mebibyte_at(rate_bps: f64) -> Quantile {
    const MEBIBYTE_BITS: f64 = 8.0 * 1024.0 * 1024.0;
    if rate_bps > 0.0 { Quantile::Time((MEBIBYTE_BITS / rate_bps * 1e9) as u64) } else { Quantile::Lost }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_nothing_takes_longest() {
        assert_eq!(mebibyte_at(8.0 * 1024.0 * 1024.0), Quantile::Time(1_000_000_000));
        assert_eq!(mebibyte_at(0.0), Quantile::Lost);
    }
}
