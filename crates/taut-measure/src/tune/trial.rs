use taut_link::Result;
use taut_time::{Duration, Timeline};

use super::setting::Setting;
use super::{TunePlan, TuneWorkload};
use crate::echo::{self, EchoPlan, EchoSubject, Limit};
use crate::interrupt::Interrupt;
use crate::pace::{self, PacePlan, PeerKind};
use crate::recording::TcpFacts;
use crate::stream::{self, Direction, StreamPlan};

/// What one setting gave in one round.
pub(super) struct Trial {
    pub(super) figures: Figures,
    pub(super) timeline: Option<Timeline>,
    pub(super) tcp: Option<TcpFacts>,
}

/// The times that are compared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) p50_ns: Option<u64>,
    pub(super) p99_ns: Option<u64>,
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
        limit: Limit::Time(plan.time),
        rate_hz: None,
        timeout: Duration::from_secs(1),
        exceed: Vec::new(),
        message_bytes: bytes,
        connections: 1,
        plain: plan.plain,
    };
    let subject = EchoSubject {
        endpoint: plan.endpoint.clone(),
        engine: setting.engine,
        options: setting.options.clone(),
        acks: setting.acks,
        writes: setting.writes,
        core: setting.core,
        observe,
        command: plan.command.clone(),
    };
    let mut outcome = echo::run(&echo_plan, &[subject], interrupt, &mut |_, _| {})?;
    let row = outcome.rows.swap_remove(0);
    let (rtt, tcp) = row.map_or((None, None), |row| (row.rtt_ns, row.tcp));
    let figures = Figures { p50_ns: rtt.map(|rtt| rtt.p50), p99_ns: rtt.map(|rtt| rtt.p99) };
    Ok(Trial { figures, timeline: outcome.timelines.swap_remove(0), tcp })
}

fn run_pace(
    plan: &TunePlan,
    setting: &Setting,
    bytes: usize,
    period: Duration,
    interrupt: &Interrupt,
) -> Result<Trial> {
    let pace_plan = PacePlan {
        peer: PeerKind::Server { endpoint: plan.endpoint.clone(), acks: setting.acks },
        message_bytes: bytes,
        period,
        time: plan.time,
        rounds: 1,
        options: setting.options.clone(),
        exceed: Vec::new(),
        core: setting.core,
        fifo: false,
        command: plan.command.clone(),
    };
    let mut outcome = pace::run(&pace_plan, interrupt, &mut |_, _| {})?;
    let delivery = outcome.row.delivery_ns;
    let figures = Figures { p50_ns: delivery.map(|times| times.p50), p99_ns: delivery.map(|times| times.p99) };
    Ok(Trial { figures, timeline: outcome.timelines.pop(), tcp: outcome.row.tcp })
}

fn run_stream(plan: &TunePlan, setting: &Setting, block: usize, interrupt: &Interrupt) -> Result<Trial> {
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
        core: setting.core,
        command: plan.command.clone(),
    };
    let outcome = stream::run(&stream_plan, interrupt, &mut |_, _| {})?;
    const MEBIBYTE_BITS: f64 = 8.0 * 1024.0 * 1024.0;
    let rate = outcome.row.throughput_bps;
    let time = (rate > 0.0).then(|| (MEBIBYTE_BITS / rate * 1e9) as u64);
    Ok(Trial { figures: Figures { p50_ns: time, p99_ns: None }, timeline: None, tcp: outcome.row.tcp })
}
