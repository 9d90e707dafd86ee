use std::path::PathBuf;

use taut_link::wire::Work;
use taut_link::{Endpoint, Error};
use taut_measure::Interrupt;
use taut_measure::echo::{self, EchoPlan, EchoSubject, RunLength, WriteStyle};
use taut_measure::engine::EngineKind;
use taut_measure::placement::{self, Spot, Wish};
use taut_record::stats::usual_rounds;
use taut_record::{EchoRow, Ended, Row};
use taut_report::Document;
use taut_report::figures::IntervalRow;
use taut_time::{Duration, Timeline};

use crate::assertion::ThresholdArgs;
use crate::destination::{Destination, refuse_in_virtual_time};
use crate::exit::Code;
use crate::figures::{self, IntervalArgs, Measured, refuse_slower};
use crate::link_args::LinkArgs;
use crate::output::{self, OutputArgs};
use crate::run::{self, Run};
use crate::{findings, input, scenario};

/// Round-trip latency; several endpoints are measured in turn and compared
///
/// Without --rate each message waits for the reply before (closed loop). With --rate messages leave on an absolute
/// schedule, whatever comes back (open loop): then response times count from the intended sending, so a stalled peer
/// shows (no coordinated omission). Round trips are round trips, never halved. A lost message is later than every time,
/// in each percentile too.
///
/// On one host a round trip takes as long as waking up the other end, which depends on whether that has a processor of
/// its own. So both ends are placed, first on one processor and then on two, in rows that are held against their like
/// only. Both rows share the endpoint's --time: they cost no more time than one, and each has about half the messages.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut echo tcp://127.0.0.1:9100 udp://127.0.0.1:9100 unix:/run/taut.sock
  taut echo udp://10.0.0.2:9100 --rate 60 --time 60s     at 60 per second, how many frames come late?
  taut echo tcp://10.0.0.2:7 --plain --assert 'p99<2ms'  any echo server; exit code 3 when it is slower
  taut echo tcp://127.0.0.1:9100 --engine blocking,epoll,tokio
  taut echo 127.0.0.1 'mqtt://127.0.0.1/taut?qos=1'      what does the broker cost? (taut serve at the same topic)
  taut echo 127.0.0.1 --every 10s --prometheus 9466      on and on; docs/figures.md
  taut echo 'air:paper-000?ci=15ms' air:paper-000        over simulated Bluetooth LE links, in virtual time")]
pub(crate) struct Args {
    /// The peers: `taut serve`, with --plain any echo server, or simulated links (air:SCENARIO)
    #[arg(required = true, value_name = "ENDPOINT")]
    endpoints: Vec<Destination>,
    /// Bytes of one message [default: 32, or 128 for write-write-read]
    #[arg(long, value_name = "SIZE", value_parser = input::size)]
    size: Option<usize>,
    /// Messages for each row, over all rounds
    #[arg(long, value_name = "N", conflicts_with = "time", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Time for each endpoint, over all rounds
    #[arg(long, value_name = "TIME", default_value = "5s", conflicts_with = "every",
          value_parser = input::positive_duration)]
    time: Duration,
    /// Messages per second (open loop)
    #[arg(long, value_name = "HZ", value_parser = input::rate)]
    rate: Option<f64>,
    /// Links open at once
    #[arg(long, value_name = "N", default_value = "1", value_parser = input::count)]
    connections: usize,
    /// Independent repetitions, each with new links [default: 5, and when N others are compared
    /// with the first, as many as a verdict takes: 7 for one, 9 for five]
    #[arg(long, value_name = "N", value_parser = input::count)]
    rounds: Option<usize>,
    /// After which a message counts as lost
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = input::positive_duration)]
    timeout: Duration,
    /// How the process waits: blocking, spin, poll, epoll, tokio [default: blocking, or epoll in an open loop]
    #[arg(long, value_name = "ENGINE,…", value_delimiter = ',')]
    engine: Vec<EngineKind>,
    /// What is written: `echo`, or `write-write-read` (a message with two calls)
    #[arg(long, value_name = "NAME", default_value = "echo", value_parser = ["echo", "write-write-read"])]
    workload: String,
    /// Bytes of the first of two writes
    #[arg(long, value_name = "SIZE", default_value = "32", value_parser = input::size)]
    split: usize,
    /// Join the two writes: `cork` or `writev`
    #[arg(long, value_name = "HOW", value_parser = ["cork", "writev"])]
    join: Option<String>,
    /// Write the writes' timeline for ui.perfetto.dev (closed loop, one connection, blocking)
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
    let mut plan = args.plan();
    let every = args.intervals.interval(&[
        ("--count", args.count.is_some()),
        ("--rounds", args.rounds.is_some()),
        ("--perfetto", args.perfetto.is_some()),
        ("--assert", args.thresholds.asserts()),
        ("--json", args.output.json),
        ("--html", args.output.html.is_some()),
    ])?;
    if args.endpoints.iter().any(|place| place.endpoint().is_none()) {
        return run_over_air(&args, &plan);
    }
    run::warn_of_open_logins(args.endpoints.iter().filter_map(Destination::endpoint));
    if let Some(every) = every {
        return run_intervals(&args, plan, every);
    }
    let mut run = Run::start("echo")?;
    args.link.heed_stdin(&run.interrupt);
    let spots = args.spots(&run.interrupt)?;
    let subjects = args.subjects(&spots)?;
    plan.rounds = args.rounds.unwrap_or_else(|| usual_rounds(echo::comparisons(&subjects)));
    if let RunLength::Time(time) = &mut plan.limit {
        *time /= spots.iter().map(Vec::len).max().unwrap_or(1) as u32;
    }
    let mut progress = run.progress("echo", 0, 1);
    let mut outcome = match echo::run(&plan, &subjects, &run.interrupt, &mut progress) {
        Ok(outcome) => outcome,
        Err(error) => return args.output.emit_nothing_measured(run, error),
    };
    echo::tell_engine_costs(&mut outcome);
    if let Some(path) = &args.perfetto {
        let timelines: Vec<(String, &Timeline)> = subjects
            .iter()
            .zip(&outcome.timelines)
            .filter_map(|(subject, timeline)| {
                Some((format!("echo {}, {}", subject.endpoint, subject.spot.kind.name()), timeline.as_ref()?))
            })
            .collect();
        output::write_perfetto(path, &timelines)?;
    }
    let mut findings = findings::of_echo(&outcome, 0, &mut run.kept);
    if outcome.ended == Ended::Complete {
        findings.extend(findings::of_brokers(&plan, &subjects, &outcome, &run.interrupt));
    }
    let missed = outcome.rows.iter().flatten().fold(false, |missed, row| {
        let times = row.response_ns.as_ref().or(row.rtt_ns.as_ref());
        args.thresholds.are_missed(&placed(row), times, row.losses().lost, row.losses().messages) || missed
    });
    let silent = outcome.ended == Ended::Complete && outcome.rows.iter().flatten().all(|row| row.sent == row.lost);
    let rows = outcome.rows.into_iter().flatten().map(|row| Row::Echo(Box::new(row))).collect();
    let document = Document::new(run.finish(outcome.ended, rows), findings);
    let code = args.output.emit(&document)?;
    Ok(match code {
        Code::Ok if missed => Code::ThresholdMissed,
        Code::Ok if silent => {
            anstream::eprintln!("taut: nothing came back; is it an echo server?");
            Code::Failed
        }
        code => code,
    })
}

/// A round of all subjects in each interval, which they share.
fn run_intervals(args: &Args, mut plan: EchoPlan, every: Duration) -> anyhow::Result<Code> {
    let interrupt = run::interrupt_on_signals()?;
    let spots = args.spots(&interrupt)?;
    let mut subjects = args.subjects(&spots)?;
    // Timelines are not kept.
    subjects.iter_mut().for_each(|subject| subject.observe = false);
    if let Some(rate) = plan.rate_hz {
        refuse_slower(Duration::from_secs_f64(1.0 / rate), every, subjects.len())?;
    }
    plan.rounds = 1;
    let rows: Vec<IntervalRow> = subjects.iter().map(not_measured).collect();
    let mut measure = |number, time: Duration| {
        plan.limit = RunLength::Time(time / subjects.len() as u32);
        let outcome = echo::run_round(&plan, &subjects, number, &interrupt)?;
        let measured = outcome.rows.into_iter().zip(outcome.times).zip(&rows).map(|((row, times), nothing)| Measured {
            row: row.map_or_else(|| nothing.clone(), IntervalRow::from),
            round_trips: Some(times.round_trip),
            responses: Some(times.response),
            deliveries: None,
        });
        Ok((measured.collect(), outcome.ended))
    };
    figures::run("echo", &args.intervals, every, &interrupt, &rows, &mut measure)
}

/// Which of an endpoint's rows it is.
fn placed(row: &EchoRow) -> String {
    let placement = row.placement.as_ref().map(|placement| placement.kind.name()).filter(|name| !name.is_empty());
    placement.map_or_else(|| row.endpoint.clone(), |name| format!("{}, {name}", row.endpoint))
}

fn not_measured(subject: &EchoSubject) -> IntervalRow {
    IntervalRow {
        endpoint: subject.endpoint.to_string(),
        engine: Some(subject.engine.to_string()),
        placement: Some(subject.spot.kind),
        messages: Some(0),
        lost: Some(0),
        ..IntervalRow::default()
    }
}

/// Simulated links, one after another: they don't disturb each other, so nothing is interleaved.
fn run_over_air(args: &Args, plan: &EchoPlan) -> anyhow::Result<Code> {
    if args.endpoints.iter().any(|place| place.endpoint().is_some()) {
        let text = "air: endpoints run in virtual time and the others do not: measure them by two commands";
        return Err(Error::Input(text.into()).into());
    }
    refuse_in_virtual_time(&[
        ("--connections", args.connections > 1),
        ("--engine", !args.engine.is_empty()),
        ("--workload write-write-read", args.workload != "echo"),
        ("--perfetto", args.perfetto.is_some()),
        ("--plain", args.link.plain),
        ("--opt", !args.link.opt.is_empty()),
        ("--cpu", args.link.cpu.is_some()),
        ("--place", args.link.place.is_some()),
        ("--every", args.intervals.every.is_some()),
    ])?;
    let run = Run::start("echo")?;
    let (mut rows, mut ended, mut missed) = (Vec::new(), Ended::Complete, false);
    for place in &args.endpoints {
        let Some(air) = place.air()? else { continue };
        let echoed = echo::run_simulated(plan, &air, &run::command_line(), &run.interrupt);
        let (row, end) = echoed.map_err(|error| scenario::wrong(&air.file, &error))?;
        let times = row.response_ns.as_ref().or(row.rtt_ns.as_ref());
        missed |= args.thresholds.are_missed(&row.endpoint, times, row.losses().lost, row.losses().messages);
        rows.push(Row::Echo(Box::new(row)));
        if end != Ended::Complete {
            ended = end;
            break;
        }
    }
    let code = args.output.emit(&Document::new(run.finish(ended, rows), Vec::new()))?;
    Ok(if code == Code::Ok && missed { Code::ThresholdMissed } else { code })
}

impl Args {
    fn plan(&self) -> EchoPlan {
        let two_writes = self.workload == "write-write-read";
        EchoPlan {
            // Simulated links don't scatter, and are not compared.
            rounds: self.rounds.unwrap_or_else(|| usual_rounds(0)),
            limit: self.count.map_or(RunLength::Time(self.time), RunLength::Count),
            rate_hz: self.rate,
            timeout: self.timeout,
            exceed: self.thresholds.exceed.clone(),
            message_bytes: self.size.unwrap_or(if two_writes { 128 } else { 32 }),
            connections: self.connections,
            plain: self.link.plain,
        }
    }

    /// Where both ends of each endpoint's links are put.
    fn spots(&self, interrupt: &Interrupt) -> anyhow::Result<Vec<Vec<Spot>>> {
        let endpoints: Vec<&Endpoint> = self.endpoints.iter().filter_map(Destination::endpoint).collect();
        // Of many links each wants the processors for itself.
        let many = self.connections > 1;
        let wish = self.link.place.or_else(|| many.then_some(Wish::Free));
        Ok(placement::of_peers(wish, self.link.cpu, &endpoints, Work::Echo, self.link.plain, interrupt)?)
    }

    fn subjects(&self, spots: &[Vec<Spot>]) -> anyhow::Result<Vec<EchoSubject>> {
        let two_writes = self.workload == "write-write-read";
        let first = self.split;
        let writes = match (two_writes, self.join.as_deref()) {
            (false, None) => WriteStyle::One,
            (false, Some(_)) => return Err(Error::Input("--join goes with --workload write-write-read".into()).into()),
            (true, None) => WriteStyle::Two { first },
            (true, Some("cork")) => WriteStyle::Corked { first },
            (true, Some(_)) => WriteStyle::Vectored { first },
        };
        if two_writes && (first >= self.plan().message_bytes || self.rate.is_some()) {
            let text = "write-write-read runs in a closed loop, and its first write is shorter than the message";
            return Err(Error::Input(text.into()).into());
        }
        let default_engine = if self.rate.is_some() { EngineKind::Epoll } else { EngineKind::Blocking };
        let engines = if self.engine.is_empty() { vec![default_engine] } else { self.engine.clone() };
        let one_at_a_time = self.rate.is_none() && self.connections == 1;
        let subject = |endpoint: &Endpoint, engine: EngineKind, spot: &Spot| EchoSubject {
            endpoint: endpoint.clone(),
            engine,
            options: self.link.opt.clone(),
            acks: self.link.peer_ack,
            writes,
            spot: spot.clone(),
            // The kernel's reports wake up every engine that waits for the socket, so only a blocking one is observed.
            observe: one_at_a_time && engine.blocks() && (two_writes || self.perfetto.is_some()),
            command: run::command_line(),
        };
        Ok(self
            .endpoints
            .iter()
            .filter_map(Destination::endpoint)
            .zip(spots)
            .flat_map(|(endpoint, spots)| engines.iter().map(move |&engine| (endpoint, engine, spots)))
            .flat_map(|(endpoint, engine, spots)| {
                spots.iter().map(|spot| subject(endpoint, engine, spot)).collect::<Vec<_>>()
            })
            .collect())
    }
}
