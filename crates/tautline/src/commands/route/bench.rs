use taut_measure::recording::{Ended, RouteRow, Row};
use taut_measure::route::{self, RouteCase, RouteSetting};
use taut_measure::stats::Distribution;
use taut_measure::{Interrupt, placement};
use taut_report::Document;
use taut_route::bench::{Bench, Path, Plan, WHEN};
use taut_time::Duration;

use crate::exit::Code;
use crate::input;
use crate::output::OutputArgs;
use crate::run::{self, Run};

/// From a sensor's datagram to its last sink: everything opened for each event, kept open, and in the kernel
///
/// The published experiment's three ways over UDP, between network namespaces joined by a virtual cable. The sensor spins, so
/// that its own waking up is in no figure; its sending and receiving is in all of them. Rounds are interleaved, and each has
/// new sockets or a new program. Needs root.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Numbers of sinks
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,4", value_parser = sinks)]
    sinks: Vec<usize>,
    /// Independent repetitions
    #[arg(long, value_name = "N", default_value = "5", value_parser = input::count)]
    rounds: usize,
    /// Events of each path in each round
    #[arg(long, value_name = "N", default_value = "2000", value_parser = input::count)]
    events: usize,
    /// Time from a notification to the next event
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = input::duration)]
    gap: Duration,
    /// After which silence an event counts as lost
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = input::positive_duration)]
    timeout: Duration,
    #[command(flatten)]
    output: OutputArgs,
}

fn sinks(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|sinks| (1..=64).contains(sinks)).ok_or_else(|| format!("`{text}`: from 1 to 64"))
}

pub(super) fn run(args: &Args) -> anyhow::Result<Code> {
    let run = Run::start("route bench")?;
    let (sensor_core, route_core) = cores();
    let plan = Plan { events: args.events, gap: args.gap, timeout: args.timeout, sensor_core, route_core };
    let (rows, ended) = {
        let mut progress = run.progress("direct path", 0, 1);
        rows(&plan, &args.sinks, args.rounds, &run::command_line(), &run.interrupt, &mut progress)?
    };
    let rows = rows.into_iter().map(|row| Row::Route(Box::new(row))).collect();
    args.output.emit(&Document { recording: run.finish(ended, rows), findings: Vec::new() })
}

/// A processor for the sensor and one for user space, where there are two.
pub(crate) fn cores() -> (Option<usize>, Option<usize>) {
    match placement::allowed_cores()[..] {
        [first, second, ..] => (Some(first), Some(second)),
        _ => (None, None),
    }
}

/// Measures all paths, interleaved round by round, each round beginning with another one.
pub(crate) fn rows(
    plan: &Plan,
    sinks: &[usize],
    rounds: usize,
    command: &str,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(usize, usize),
) -> anyhow::Result<(Vec<RouteRow>, Ended)> {
    let bench = Bench::set_up()?;
    let paths: Vec<(Path, usize)> =
        sinks.iter().flat_map(|&sinks| Path::all(sinks).iter().map(move |&path| (path, sinks))).collect();
    let mut cases: Vec<RouteCase> =
        paths.iter().map(|(path, sinks)| RouteCase { path: path.name(), sinks: *sinks, rounds: Vec::new() }).collect();
    let mut ended = Ended::Complete;
    for round in 0..rounds {
        if interrupt.is_set() {
            ended = Ended::Interrupted;
            break;
        }
        progress(round, rounds);
        for turn in 0..paths.len() {
            let index = (round + turn) % paths.len();
            let (path, sinks) = paths[index];
            let measured = bench.measure(path, sinks, plan)?;
            let mut times = Distribution::new();
            measured.edge_to_edge_ns.iter().for_each(|&ns| times.record_ns(ns));
            cases[index].rounds.push((times, measured.sent, measured.lost));
        }
    }
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let setting = RouteSetting {
        over: "UDP over a veth pair".to_owned(),
        when: WHEN.to_owned(),
        command: command.to_owned(),
        timeout_ns: nanos(plan.timeout),
        gap_ns: nanos(plan.gap),
        sensor_core: plan.sensor_core,
        route_core: plan.route_core,
    };
    Ok((route::rows(&cases, &setting), ended))
}
