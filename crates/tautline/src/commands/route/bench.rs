use taut_link::affinity;
use taut_measure::route::{self, RouteCase, RouteSetting, RouteTimes};
use taut_measure::{Interrupt, turns};
use taut_record::stats::{Distribution, usual_rounds};
use taut_record::{Ended, FloorRow, Row};
use taut_report::Document;
use taut_route::bench::gpio::{self, Figure, GpioMeasured, GpioPath, GpioPlan, Simulation};
use taut_route::bench::{AttachPoint, Bench, EVERY, KernelPath, Path, Plan, Start, WHEN};
use taut_time::Duration;

use crate::exit::Code;
use crate::input;
use crate::output::OutputArgs;
use crate::run::{self, Run};

/// From a sensor to its last sink: everything opened for each event, kept open, and in the kernel
///
/// The published experiment's three ways. Over UDP, between network namespaces joined by a virtual
/// cable: the sensor spins, in SCHED_FIFO, so that neither its own waking up nor what would preempt
/// it is in a figure; its sending and receiving is in all of them. On GPIO lines, where the simulated
/// chip is (cargo xtask lab): turns of read, decide and write, and from edge to edge as the chip
/// stamps them. Rounds are interleaved, and each has new sockets, lines or programs. Needs root.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to measure over
    #[arg(long, value_enum, default_value = "all")]
    over: Over,
    /// Numbers of sinks, over UDP
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,4", value_parser = sinks)]
    sinks: Vec<usize>,
    /// Only these paths, over UDP; one that is named twice is measured twice [default: all]
    #[arg(long, value_name = "PATH,…", value_delimiter = ',')]
    path: Vec<String>,
    /// Other routes on the same device, over UDP: each path in the kernel once more with these; 0 leaves that out
    #[arg(long, value_name = "N", default_value = "99", value_parser = clap::value_parser!(u16).range(0..=999))]
    others: u16,
    /// Independent repetitions [default: as many as verdicts on all paths take, 10 for twelve]
    #[arg(long, value_name = "N", value_parser = input::count)]
    rounds: Option<usize>,
    /// Events of each path in each round, over UDP
    #[arg(long, value_name = "N", default_value = "2000", value_parser = input::count)]
    events: usize,
    /// Time from a notification to the next event, over UDP
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = input::duration)]
    gap: Duration,
    /// After which silence an event counts as lost, over UDP
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = input::positive_duration)]
    timeout: Duration,
    /// Edges of each path in each round, on GPIO lines; every second one passes
    #[arg(long, value_name = "N", default_value = "2000", value_parser = edges)]
    edges: usize,
    /// Time from one edge to the next
    #[arg(long, value_name = "TIME", default_value = "200us", value_parser = period)]
    period: Duration,
    /// Samples of a loop in each round, each of 16 turns
    #[arg(long, value_name = "N", default_value = "200", value_parser = input::count)]
    samples: usize,
    /// SCHED_FIFO priority of the thread under test
    #[arg(long, value_name = "1-99", value_parser = clap::value_parser!(u8).range(1..=99))]
    fifo: Option<u8>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Over {
    /// Both; what can't be had here is skipped with a line on stderr
    All,
    /// UDP between network namespaces
    Udp,
    /// GPIO lines of the simulated chip
    Gpio,
}

fn sinks(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|sinks| (1..=64).contains(sinks)).ok_or_else(|| format!("`{text}`: from 1 to 64"))
}

fn edges(text: &str) -> Result<usize, String> {
    let is_good = |edges: &usize| (10..=1_000_000).contains(edges);
    text.parse().ok().filter(is_good).ok_or_else(|| format!("`{text}`: from 10 to 1000000"))
}

fn period(text: &str) -> Result<Duration, String> {
    let period = input::positive_duration(text)?;
    let range = Duration::from_micros(1)..=Duration::from_secs(1);
    range.contains(&period).then_some(period).ok_or_else(|| format!("`{text}`: from 1us to 1s"))
}

pub(super) fn run(args: &Args) -> anyhow::Result<Code> {
    let run = Run::start("route bench")?;
    let (sensor_core, route_core) = cores();
    let plan =
        Plan { events: args.events, gap: args.gap, timeout: args.timeout, sensor_core, route_core, fifo: args.fifo };
    let gpio_plan =
        GpioPlan { samples: args.samples, edges: args.edges, period: args.period, fifo: args.fifo, core: route_core };
    let (command, mut rows, mut ended) = (run::command_line(), Vec::new(), Ended::Complete);
    let is_all = args.over == Over::All;
    if args.over != Over::Gpio {
        let mut progress = run.progress("direct path over UDP", 0, 2);
        (rows, ended) = udp_rows(&plan, &args.paths(), args.rounds, &command, &run.interrupt, &mut progress)?;
    }
    if args.over != Over::Udp && ended == Ended::Complete {
        let mut progress = run.progress("direct path on GPIO lines", 1, 2);
        match gpio_rows(&gpio_plan, args.rounds, &command, &run.interrupt, &mut progress) {
            Ok((more, end)) => {
                rows.extend(more);
                ended = end;
            }
            Err(error) if is_all && is_unavailable(&error) => eprintln!("taut: GPIO lines skipped: {error:#}"),
            Err(error) => return Err(error),
        }
    }
    args.output.emit(&Document::new(run.finish(ended, rows), Vec::new()))
}

fn is_unavailable(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<taut_link::Error>(), Some(taut_link::Error::Unavailable(_)))
}

/// A processor for the sensor and one for user space, where there are two.
pub(crate) fn cores() -> (Option<usize>, Option<usize>) {
    match affinity::allowed_cores()[..] {
        [first, second, ..] => (Some(first), Some(second)),
        _ => (None, None),
    }
}

/// Which paths over UDP.
pub(crate) struct Paths<'a> {
    /// Numbers of sinks.
    pub(crate) sinks: &'a [usize],
    /// Other routes on the same device.
    pub(crate) others: u16,
    /// Names; none for all.
    pub(crate) names: &'a [String],
}

impl Paths<'_> {
    /// Those that are wanted of those that there are, in the order wanted.
    fn of(&self, here: &[Path]) -> anyhow::Result<Vec<Path>> {
        if self.names.is_empty() {
            return Ok(here.to_vec());
        }
        let find = |name: &String| {
            here.iter().copied().find(|path| path.name() == name).ok_or_else(|| {
                let names: Vec<&str> = here.iter().map(|path| path.name()).collect();
                taut_link::Error::Input(format!("there is no path `{name}` here; there are {}", names.join(", ")))
                    .into()
            })
        };
        self.names.iter().map(find).collect()
    }
}

impl Args {
    fn paths(&self) -> Paths<'_> {
        Paths { sinks: &self.sinks, others: self.others, names: &self.path }
    }
}

/// Measures all paths, interleaved round by round; without a number of rounds as many as verdicts on all of them take.
pub(crate) fn udp_rows(
    plan: &Plan,
    wanted: &Paths<'_>,
    rounds: Option<usize>,
    command: &str,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(usize, usize),
) -> anyhow::Result<(Vec<Row>, Ended)> {
    let bench = Bench::set_up()?;
    let mut places = vec![AttachPoint::XdpNative, AttachPoint::XdpGeneric, AttachPoint::Tc];
    places.retain(|&place| {
        let tried = bench.try_place(place);
        tried.inspect_err(|error| eprintln!("taut: a path over UDP skipped: {error}")).is_ok()
    });
    let is_here = |path: &Path| !matches!(path, Path::Kernel(place) if !places.contains(place));
    let here = |sinks: usize| -> Vec<Path> { Path::all(sinks).iter().copied().filter(is_here).collect() };
    let mut paths: Vec<(Path, usize, u16)> = Vec::new();
    for &sinks in wanted.sinks {
        paths.extend(wanted.of(&here(sinks))?.into_iter().map(|path| (path, sinks, 0)));
    }
    // The same with many routes on the device, where they share a program in front of them.
    let in_kernel =
        wanted.of(&here(1))?.into_iter().filter(|path| matches!(path, Path::Kernel(_)) && wanted.others > 0);
    paths.extend(in_kernel.map(|path| (path, 1, wanted.others)));
    let mut cases: Vec<RouteCase> = paths
        .iter()
        .map(|(path, sinks, others)| RouteCase::new(path.name(), *sinks, 1 + usize::from(*others)))
        .collect();
    let rounds = rounds.unwrap_or_else(|| usual_rounds(route::comparisons(&cases)));
    let (mut ended, mut sensor_fifo) = (Ended::Complete, None);
    for round in 0..rounds {
        if interrupt.is_set() {
            ended = Ended::Interrupted;
            break;
        }
        progress(round, rounds);
        for index in turns(round, paths.len()) {
            let (path, sinks, others) = paths[index];
            let measured = bench.measure(path, sinks, others, plan)?;
            sensor_fifo = measured.sensor_fifo;
            cases[index].add(&measured.edge_to_edge_ns, measured.sent, measured.lost);
        }
    }
    let setting = RouteSetting {
        over: "UDP over a veth pair".to_owned(),
        times: RouteTimes::EdgeToEdge,
        when: WHEN.to_owned(),
        command: command.to_owned(),
        timeout_ns: nanos(plan.timeout),
        gap_ns: nanos(plan.gap),
        sensor_core: plan.sensor_core,
        route_core: plan.route_core,
        sensor_fifo,
        route_fifo: plan.fifo,
    };
    let mut rows: Vec<Row> = route::rows(&cases, &setting).into_iter().map(|row| Row::Route(Box::new(row))).collect();
    let is_started = |place: &AttachPoint| places.contains(place) && wanted.names.is_empty();
    for place in [AttachPoint::XdpGeneric, AttachPoint::Tc].into_iter().filter(is_started) {
        rows.extend(started(&bench, place, plan)?.into_iter().map(|row| Row::Floor(Box::new(row))));
    }
    Ok((rows, ended))
}

/// From text to a program in the kernel, and at work on a device.
fn started(bench: &Bench, place: AttachPoint, plan: &Plan) -> anyhow::Result<Vec<FloorRow>> {
    let starts = bench.starts(place, STARTS, plan)?;
    let row = |until: &str, meaning: &str, ns: &dyn Fn(&Start) -> Option<u64>| {
        let mut times = Distribution::new();
        starts.iter().filter_map(ns).for_each(|ns| times.record_ns(ns));
        let what = format!("from a condition of 20 terms to its program {until} ({})", place.name());
        times.summary().map(|ns| FloorRow { what, ns, meaning: meaning.to_owned() })
    };
    let loaded = row("in the kernel", "once for a route: parsing, generating, the verifier, compiling", &|start| {
        Some(start.loaded_ns)
    });
    let meaning = format!("the same and the first of the datagrams that come every {EVERY:?} all the while");
    let first = row("taking a datagram", &meaning, &|start| start.first_event_ns);
    let meaning = "the same and attaching, in which the kernel waits until all processors have seen the change";
    let at_work = row("at work", meaning, &|start| Some(start.at_work_ns));
    Ok([loaded, first, at_work].into_iter().flatten().collect())
}

/// How often a program is started to tell how long that takes.
const STARTS: usize = 50;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Measures turns and edges on the lines of the simulated chip, interleaved as [`udp_rows`] does.
pub(crate) fn gpio_rows(
    plan: &GpioPlan,
    rounds: Option<usize>,
    command: &str,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(usize, usize),
) -> anyhow::Result<(Vec<Row>, Ended)> {
    let simulation = Simulation::find()?;
    let (mut rows, mut ended) = (Vec::new(), Ended::Complete);
    let missing = KernelPath::missing();
    if let Some(missing) = &missing {
        eprintln!("taut: the kernel's paths on GPIO lines skipped: {missing}");
    }
    for (part, figure) in [Figure::Loop, Figure::EdgeToEdge].into_iter().enumerate() {
        let can_run = |path: &&GpioPath| missing.is_none() || !matches!(path, GpioPath::Kernel(_));
        let paths: Vec<GpioPath> = GpioPath::all(figure).iter().filter(can_run).copied().collect();
        let mut cases: Vec<RouteCase> = paths.iter().map(|path| RouteCase::new(path.name(), 1, 1)).collect();
        let rounds = rounds.unwrap_or_else(|| usual_rounds(route::comparisons(&cases)));
        for round in 0..rounds {
            if interrupt.is_set() {
                ended = Ended::Interrupted;
                break;
            }
            progress(part * rounds + round, 2 * rounds);
            for index in turns(round, paths.len()) {
                let GpioMeasured { ns, sent, lost, reported_lost } = match figure {
                    Figure::Loop => gpio::turns(paths[index], &gpio::line(gpio::IN), &gpio::line(gpio::OUT), plan)?,
                    Figure::EdgeToEdge => simulation.edge_to_edge(paths[index], plan)?,
                };
                let case = &mut cases[index];
                case.add(&ns, sent, lost);
                if let Some(lost) = reported_lost {
                    case.reported_lost = Some(case.reported_lost.unwrap_or(0) + lost);
                }
            }
        }
        let (times, gap_ns) = match figure {
            Figure::Loop => (RouteTimes::Loop, 0),
            Figure::EdgeToEdge => (RouteTimes::EdgeToEdge, nanos(plan.period)),
        };
        let setting = RouteSetting {
            over: "GPIO lines of a simulated chip".to_owned(),
            times,
            when: WHEN.to_owned(),
            command: command.to_owned(),
            timeout_ns: gap_ns,
            gap_ns,
            sensor_core: None,
            route_core: plan.core,
            sensor_fifo: None,
            route_fifo: plan.fifo,
        };
        rows.extend(route::rows(&cases, &setting).into_iter().map(|row| Row::Route(Box::new(row))));
    }
    Ok((rows, ended))
}
