use taut_link::wire::Work;
use taut_link::{Endpoint, Error};
use taut_measure::air::{self, AirPlan};
use taut_measure::placement::{self, Spot, Wish};
use taut_measure::stream::{self, Direction, StreamPlan};
use taut_record::{Ended, Row};
use taut_report::Document;
use taut_report::figures::IntervalRow;
use taut_time::{Duration, Framing};

use crate::destination::{Destination, refuse_in_virtual_time};
use crate::exit::Code;
use crate::figures::{self, IntervalArgs, Measured, each_in_turn};
use crate::link_args::LinkArgs;
use crate::output::OutputArgs;
use crate::run::{self, Run};
use crate::{findings, input, scenario};

/// Throughput, with what it costs in CPU time
///
/// Counts what arrives at the receiver, not what the sender could get rid of. With --plain the receiver tells
/// nothing: then what its kernel acknowledges counts (TCP), or what this host's socket takes (all else), and
/// the rate is that of progress once the buffers on the way are full: a peer that never reads has none.
///
/// Where the peer is a `taut serve` on this host, one link has two rows: both ends on one
/// processor, and each on one of its own. They share --time, half of it each.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut stream tcp://10.0.0.2:9100 --time 10s --connections 4
  taut stream tcp://10.0.0.2:9100 --direction both
  taut stream 'air:paper-000?ci=15ms'                over a simulated Bluetooth LE link, in virtual time")]
pub(crate) struct Args {
    /// The peer: `taut serve`, with --plain any server that reads, or a simulated link (air:SCENARIO)
    #[arg(value_name = "ENDPOINT")]
    endpoint: Destination,
    /// Time of sending, over all rounds
    #[arg(long, value_name = "TIME", default_value = "5s", conflicts_with = "every",
          value_parser = input::positive_duration)]
    time: Duration,
    /// Independent repetitions, each with new links
    #[arg(long, value_name = "N", default_value = "5", conflicts_with = "every", value_parser = input::count)]
    rounds: usize,
    /// Links open at once
    #[arg(long, value_name = "N", default_value = "1", value_parser = input::count)]
    connections: usize,
    /// Which way: up (to the peer), down, both
    #[arg(long, value_name = "WAY", default_value = "up", value_parser = direction)]
    direction: Direction,
    /// Bytes of one write [default: 128KiB, 1400 for datagrams, or the block of the scenario]
    #[arg(long, value_name = "SIZE", value_parser = input::size)]
    block: Option<usize>,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    intervals: IntervalArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let every = args.intervals.interval(&[("--json", args.output.json), ("--html", args.output.html.is_some())])?;
    if let Some(air) = args.endpoint.air()? {
        return run_over_air(args, &air);
    }
    let Some(endpoint) = args.endpoint.endpoint().cloned() else {
        return Err(Error::Input("name an endpoint".into()).into());
    };
    run::warn_of_open_logins([&endpoint]);
    // Many links are there to use all processors.
    let wish = args.link.place.or_else(|| (args.connections > 1).then_some(Wish::Free));
    let mut plan = StreamPlan {
        block_bytes: args.block.unwrap_or_else(|| default_block(&endpoint)),
        endpoint,
        direction: args.direction,
        connections: args.connections,
        time: args.time,
        rounds: args.rounds,
        options: args.link.opt.clone(),
        acks: args.link.peer_ack,
        plain: args.link.plain,
        spot: Spot::default(),
        command: run::command_line(),
    };
    if let Some(every) = every {
        return run_intervals(&args.intervals, &plan, (wish, args.link.cpu), every);
    }
    let run = Run::start("stream")?;
    args.link.heed_stdin(&run.interrupt);
    let spots =
        placement::of_peers(wish, args.link.cpu, &[&plan.endpoint], work(plan.direction), plan.plain, &run.interrupt)?;
    let spots = spots.into_iter().next().unwrap_or_default();
    let of = spots.len();
    plan.time /= of as u32;
    let (mut rows, mut findings, mut ended) = (Vec::new(), Vec::new(), Ended::Complete);
    for (done, spot) in spots.into_iter().enumerate() {
        plan.spot = spot;
        let mut progress = run.progress("stream", done, of);
        let outcome = match stream::run(&plan, &run.interrupt, &mut progress) {
            Ok(outcome) => outcome,
            Err(error) if rows.is_empty() => return Err(error.into()),
            Err(error) => {
                ended = Ended::PeerGone(error.to_string());
                break;
            }
        };
        // One that was left before its first round has no rate.
        if outcome.ended == Ended::Interrupted && outcome.row.rounds.is_empty() {
            ended = outcome.ended;
            break;
        }
        // What the one shows the other shows again.
        if findings.is_empty() {
            findings = findings::of_stream(&outcome.row, &outcome.ended);
        }
        rows.push(Row::Stream(Box::new(outcome.row)));
        ended = outcome.ended;
        if ended != Ended::Complete {
            break;
        }
    }
    args.output.emit(&Document::new(run.finish(ended, rows), findings))
}

/// A round over each placement in each interval, which they share.
fn run_intervals(
    args: &IntervalArgs,
    plan: &StreamPlan,
    (wish, core): (Option<Wish>, Option<usize>),
    every: Duration,
) -> anyhow::Result<Code> {
    let interrupt = run::interrupt_on_signals()?;
    let spots = placement::of_peers(wish, core, &[&plan.endpoint], work(plan.direction), plan.plain, &interrupt)?;
    let spots = spots.into_iter().next().unwrap_or_default();
    let plans: Vec<StreamPlan> = spots.into_iter().map(|spot| StreamPlan { spot, rounds: 1, ..plan.clone() }).collect();
    let not_measured = |plan: &StreamPlan| IntervalRow {
        endpoint: plan.endpoint.to_string(),
        placement: Some(plan.spot.kind),
        bytes: Some(0),
        ..IntervalRow::default()
    };
    let rows: Vec<IntervalRow> = plans.iter().map(not_measured).collect();
    let mut measure = |number, time: Duration| {
        let share = time / plans.len() as u32;
        each_in_turn(number, &rows, &interrupt, |at| {
            let outcome = stream::run(&StreamPlan { time: share, ..plans[at].clone() }, &interrupt, &mut |_, _| {})?;
            Ok((Measured::without_times(outcome.row.into()), outcome.ended))
        })
    };
    figures::run("stream", args, every, &interrupt, &rows, &mut measure)
}

fn run_over_air(args: Args, plan: &AirPlan) -> anyhow::Result<Code> {
    refuse_in_virtual_time(&[
        ("--connections", args.connections > 1),
        ("--plain", args.link.plain),
        ("--opt", !args.link.opt.is_empty()),
        ("--cpu", args.link.cpu.is_some()),
        ("--place", args.link.place.is_some()),
        ("--every", args.intervals.every.is_some()),
    ])?;
    let run = Run::start("stream")?;
    let block = args.block.unwrap_or_else(|| plan.scenario.side(plan.scenario.sender).host.block as usize);
    let times = (args.time, args.rounds);
    let streamed = air::stream(plan, args.direction, block, times, &run::command_line(), &run.interrupt);
    let (row, ended) = streamed.map_err(|error| scenario::wrong(&plan.file, &error))?;
    let recording = run.finish(ended, vec![Row::Stream(Box::new(row))]);
    args.output.emit(&Document::new(recording, Vec::new()))
}

/// What the server is asked for.
pub(crate) const fn work(direction: Direction) -> Work {
    match direction {
        Direction::Up => Work::Sink,
        Direction::Down => Work::Source,
        Direction::Both => Work::Duplex,
    }
}

/// A write that amortises the call on a stream; a datagram that no Ethernet has to cut on the others.
pub(crate) fn default_block(endpoint: &Endpoint) -> usize {
    match endpoint.framing() {
        Framing::Stream => 128 * 1024,
        Framing::Datagram => 1400,
    }
}

fn direction(text: &str) -> Result<Direction, String> {
    [Direction::Up, Direction::Down, Direction::Both]
        .into_iter()
        .find(|direction| direction.name() == text)
        .ok_or_else(|| format!("`{text}`: up, down or both"))
}
