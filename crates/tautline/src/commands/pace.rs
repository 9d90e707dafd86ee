use std::path::PathBuf;

use taut_link::wire::{AckPolicy, Work};
use taut_link::{Error, SocketOption, foreign};
use taut_measure::Interrupt;
use taut_measure::echo;
use taut_measure::pace::{self, PaceOutcome, PacePlan, PeerKind};
use taut_measure::placement::{self, Spot};
use taut_record::{Ended, Row};
use taut_report::Document;
use taut_report::figures::IntervalRow;
use taut_time::{Duration, Timeline};

use crate::assertion::ThresholdArgs;
use crate::destination::{Destination, refuse_in_virtual_time};
use crate::exit::Code;
use crate::figures::{self, IntervalArgs, Measured, each_in_turn, refuse_slower};
use crate::link_args::LinkArgs;
use crate::output::{self, OutputArgs};
use crate::run::{self, Run};
use crate::{findings, input};

/// Periodic sending: does each message leave and arrive on time, and if not, who held it?
///
/// Sends on an absolute schedule and tells of each message when it was intended, sent, left the host (from the kernel's
/// timestamps), was acknowledged and arrived, and how the gaps between arrivals vary (jitter). A plain Linux reader
/// acknowledges at once and so hides Nagle's algorithm: --peer-ack and --emulate-delack choose other receivers.
///
/// A receiver on this host has two rows: both ends on one processor, and each on one of its own.
/// They share --time, half of it each.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut pace tcp://10.0.0.2:9100 --size 128 --period 10ms
  taut pace tcp://127.0.0.1:9100 --nagle on --peer-ack delayed
  taut pace 'air:paper-000?ci=15ms'                                  over a simulated Bluetooth LE link, in virtual time
  taut pace --emulate-delack 56ms --nagle on --perfetto trace.json   needs root: a namespace and a TUN device")]
pub(crate) struct Args {
    /// The receiver: `taut serve`, with --plain any server that reads, or a simulated link (air:SCENARIO)
    #[arg(value_name = "ENDPOINT", required_unless_present = "foreign_peer", conflicts_with = "foreign_peer")]
    endpoint: Option<Destination>,
    /// Bytes of one message
    #[arg(long, value_name = "SIZE", default_value = "128", value_parser = input::size)]
    size: usize,
    /// Time between messages
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = input::positive_duration)]
    period: Duration,
    /// Time of sending, over all rounds
    #[arg(long, value_name = "TIME", default_value = "10s", conflicts_with = "every",
          value_parser = input::positive_duration)]
    time: Duration,
    /// Independent repetitions, each with a new link
    #[arg(long, value_name = "N", default_value = "5", conflicts_with = "every", value_parser = input::count)]
    rounds: usize,
    /// Nagle's algorithm: off is the option nodelay [default: as the system has it, on]
    #[arg(long, value_name = "on|off", value_parser = input::switch)]
    nagle: Option<bool>,
    /// Send to a built-in peer unlike Linux, which acknowledges after this time
    #[arg(long = "emulate-delack", alias = "foreign-peer", value_name = "TIME", value_parser = input::duration)]
    foreign_peer: Option<Duration>,
    /// Round that peer's delay up to the next tick of this length
    #[arg(long = "delack-tick", alias = "foreign-tick", value_name = "TIME", requires = "foreign_peer",
          value_parser = input::positive_duration)]
    foreign_tick: Option<Duration>,
    /// Send under SCHED_FIFO (needs CAP_SYS_NICE)
    #[arg(long)]
    fifo: bool,
    /// Write the timeline of every message for ui.perfetto.dev
    #[arg(long, value_name = "FILE", value_parser = output::out_file())]
    perfetto: Option<PathBuf>,
    #[command(flatten)]
    thresholds: ThresholdArgs,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    intervals: IntervalArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let mut plan = args.plan()?;
    let every = args.intervals.interval(&[
        ("--perfetto", args.perfetto.is_some()),
        ("--assert", args.thresholds.asserts()),
        ("--json", args.output.json),
        ("--html", args.output.html.is_some()),
    ])?;
    if let PeerKind::Server { endpoint, .. } | PeerKind::Plain(endpoint) = &plan.peer {
        run::warn_of_open_logins([endpoint]);
    }
    if let Some(every) = every {
        return run_intervals(&args, &plan, every);
    }
    // Leaves no thread behind: without root the foreign peer's namespace can only be made by a process with one.
    let mut run = Run::start("pace")?;
    args.link.heed_stdin(&run.interrupt);
    let spots = args.spots(&plan, &run.interrupt)?;
    let of = spots.len();
    plan.time /= of as u32;
    let (mut outcomes, mut ended): (Vec<PaceOutcome>, _) = (Vec::new(), Ended::Complete);
    for (done, spot) in spots.into_iter().enumerate() {
        plan.spot = spot;
        let mut progress = run.progress("pace", done, of);
        match pace::run(&plan, &run.interrupt, &mut progress) {
            // One that was left before its first round has nothing to tell.
            Ok(outcome) if outcome.ended == Ended::Interrupted && outcome.row.rounds.is_empty() => {
                ended = outcome.ended
            }
            Ok(outcome) => outcomes.push(outcome),
            Err(error) if outcomes.is_empty() => return Err(error.into()),
            Err(error) => ended = Ended::PeerGone(error.to_string()),
        }
        if let Some(end) = outcomes.last().map(|outcome| &outcome.ended).filter(|end| **end != Ended::Complete) {
            ended = end.clone();
        }
        if ended != Ended::Complete {
            break;
        }
    }
    if let Some(path) = &args.perfetto {
        let named = |outcome: &'_ PaceOutcome| {
            let place = outcome.row.placement.as_ref().filter(|_| of > 1);
            let place = place.map_or_else(String::new, |placement| format!("{}, ", placement.kind.name()));
            (0..outcome.timelines.len()).map(move |round| format!("{place}round {}", round + 1)).collect::<Vec<_>>()
        };
        let timelines: Vec<(String, &Timeline)> =
            outcomes.iter().flat_map(|outcome| named(outcome).into_iter().zip(&outcome.timelines)).collect();
        output::write_perfetto(path, &timelines)?;
    }
    // Virtual time observes for nothing.
    let is_live = args.endpoint.as_ref().is_none_or(|place| place.endpoint().is_some());
    let cost = if is_live { echo::observer_cost(&run.interrupt).unwrap_or_default() } else { None };
    let (mut rows, mut findings, mut missed) = (Vec::new(), Vec::new(), false);
    for mut outcome in outcomes {
        outcome.row.observer = cost;
        let found = findings::of_pace(&mut outcome, rows.len(), &mut run.kept);
        // What the one shows the other shows again.
        if findings.is_empty() {
            findings = found;
        }
        let row = outcome.row;
        missed |= args.thresholds.are_missed(&row.endpoint, row.delivery_ns.as_ref(), row.lost, row.messages);
        rows.push(Row::Pace(Box::new(row)));
    }
    let code = args.output.emit(&Document::new(run.finish(ended, rows), findings))?;
    Ok(if code == Code::Ok && missed { Code::ThresholdMissed } else { code })
}

/// A round over each placement in each interval, which they share.
fn run_intervals(args: &Args, plan: &PacePlan, every: Duration) -> anyhow::Result<Code> {
    let interrupt = run::interrupt_on_signals()?;
    let plans: Vec<PacePlan> =
        args.spots(plan, &interrupt)?.into_iter().map(|spot| PacePlan { spot, ..plan.clone() }).collect();
    refuse_slower(plan.period, every, plans.len())?;
    let endpoint = match &plan.peer {
        PeerKind::Server { endpoint, .. } | PeerKind::Plain(endpoint) => endpoint.to_string(),
        PeerKind::Foreign(_) | PeerKind::Simulated(_) => String::new(),
    };
    let not_measured = |plan: &PacePlan| IntervalRow {
        endpoint: endpoint.clone(),
        placement: Some(plan.spot.kind),
        messages: Some(0),
        ..IntervalRow::default()
    };
    let rows: Vec<IntervalRow> = plans.iter().map(not_measured).collect();
    let mut measure = |number, time: Duration| {
        let share = time / plans.len() as u32;
        each_in_turn(number, &rows, &interrupt, |at| {
            let rounds = pace::least_rounds(share, plan.period);
            let part = PacePlan { time: share, rounds, ..plans[at].clone() };
            let outcome = pace::run(&part, &interrupt, &mut |_, _| {})?;
            let measured = Measured {
                row: outcome.row.into(),
                round_trips: None,
                responses: None,
                deliveries: Some(outcome.deliveries),
            };
            Ok((measured, outcome.ended))
        })
    };
    figures::run("pace", &args.intervals, every, &interrupt, &rows, &mut measure)
}

impl Args {
    /// Where both ends are put.
    fn spots(&self, plan: &PacePlan, interrupt: &Interrupt) -> anyhow::Result<Vec<Spot>> {
        let (wish, core) = (self.link.place, self.link.cpu);
        Ok(match &plan.peer {
            PeerKind::Simulated(_) => vec![Spot::default()],
            PeerKind::Foreign(_) => placement::of_threads(wish, core)?,
            PeerKind::Server { endpoint, .. } => {
                of_one(placement::of_peers(wish, core, &[endpoint], Work::Collect, false, interrupt)?)
            }
            PeerKind::Plain(endpoint) => {
                of_one(placement::of_peers(wish, core, &[endpoint], Work::Collect, true, interrupt)?)
            }
        })
    }

    fn plan(&self) -> anyhow::Result<PacePlan> {
        if self.foreign_peer.is_some() && (self.link.plain || self.link.peer_ack != AckPolicy::System) {
            let text = "the peer of --emulate-delack acknowledges after its own time: leave --peer-ack and --plain out";
            return Err(Error::Input(text.into()).into());
        }
        if self.link.plain && self.thresholds.asserts() {
            let text = "--assert is on deliveries and losses, and a plain server does not tell what arrived: \
                leave --plain out and send to `taut serve`, or use taut echo --plain";
            return Err(Error::Input(text.into()).into());
        }
        let peer = match (self.foreign_peer, &self.endpoint) {
            (Some(delay), _) => PeerKind::Foreign(match self.foreign_tick {
                Some(tick) => foreign::AckTimer::on_tick(delay, tick),
                None => foreign::AckTimer::after(delay),
            }),
            (None, Some(place)) => match (place.air()?, place.endpoint()) {
                (Some(air), _) => {
                    refuse_in_virtual_time(&[
                        ("--nagle", self.nagle.is_some()),
                        ("--fifo", self.fifo),
                        ("--plain", self.link.plain),
                        ("--opt", !self.link.opt.is_empty()),
                        ("--cpu", self.link.cpu.is_some()),
                        ("--place", self.link.place.is_some()),
                        ("--every", self.intervals.every.is_some()),
                    ])?;
                    PeerKind::Simulated(Box::new(air))
                }
                (None, Some(endpoint)) if self.link.plain => PeerKind::Plain(endpoint.clone()),
                (None, Some(endpoint)) => PeerKind::Server { endpoint: endpoint.clone(), acks: self.link.peer_ack },
                (None, None) => return Err(Error::Input("name an endpoint".into()).into()),
            },
            (None, None) => return Err(Error::Input("name an endpoint, or --emulate-delack".into()).into()),
        };
        let mut options: Vec<SocketOption> = self.nagle.map(|on| SocketOption::Nodelay(!on)).into_iter().collect();
        options.extend(self.link.opt.iter().cloned());
        Ok(PacePlan {
            peer,
            message_bytes: self.size,
            period: self.period,
            time: self.time,
            rounds: self.rounds,
            options,
            exceed: self.thresholds.exceed.clone(),
            spot: Spot::default(),
            fifo: self.fifo,
            command: run::command_line(),
        })
    }
}

fn of_one(spots: Vec<Vec<Spot>>) -> Vec<Spot> {
    spots.into_iter().next().unwrap_or_default()
}
