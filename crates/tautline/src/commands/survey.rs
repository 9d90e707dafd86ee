use std::path::Path;

use anyhow::Context;
use taut_explain::Finding;
use taut_link::foreign::ForeignHost;
use taut_link::wire::{AckPolicy, Work};
use taut_link::{Endpoint, Listener, SocketOption, descriptors, foreign};
use taut_measure::Interrupt;
use taut_measure::air::{self, Excerpt};
use taut_measure::crowd::{self, CrowdPlan};
use taut_measure::echo::{self, EchoPlan, EchoSubject, RunLength, WriteStyle};
use taut_measure::engine::EngineKind;
use taut_measure::pace::{self, PacePlan, PeerKind};
use taut_measure::placement::{self, Spot};
use taut_measure::stream::{self, Direction, StreamPlan};
use taut_measure::tune::{self, TunePlan, TuneWorkload};
use taut_record::stats::usual_rounds;
use taut_record::{CheckRow, Ended, PlacementKind, Row};
use taut_report::Document;
use taut_route::bench::Plan as RoutePlan;
use taut_route::bench::gpio::{self, GpioPlan, Simulation};
use taut_serve::crowd::CrowdEngine;
use taut_time::Duration;

use super::crowd::{own_server, two_cores};
use super::doctor;
use super::route::bench::{self, Paths};
use super::stream::{default_block, work};
use crate::exit::Code;
use crate::kept::Kept;
use crate::local_server::LocalServer;
use crate::output::OutputArgs;
use crate::run::Run;
use crate::{findings, scenario};

/// Every path inside this machine, one report: how long data takes, where the time goes, what shortens it
///
/// Runs doctor, round trips over every local transport, periodic sending with and without Nagle's algorithm, the
/// write-write-read case with the settings that cure it, throughput, a server with many connections of which few are
/// active, and a Bluetooth LE link in virtual time, in about a minute. Starts its own servers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let mut run = Run::start("survey")?;
    // First, while the process has one thread: without root its namespace can only be made then.
    let mut survey = Survey {
        interrupt: run.interrupt.clone(),
        progress: Box::new(|_, _| {}),
        rows: doctor::rows(),
        findings: Vec::new(),
        kept: Kept::default(),
        failed: Vec::new(),
    };
    let directory = tempfile::tempdir().context("make a directory for the local sockets")?;
    let server = LocalServer::start(&local_endpoints(directory.path()))?;
    let mut steps: Vec<(&str, Step)> = vec![
        ("round trips", Survey::round_trips),
        ("60 frames a second", Survey::frames),
        ("pacing, Linux peer", Survey::pacing),
        ("throughput", Survey::throughput),
        ("write-write-read", Survey::write_write_read),
        ("many connections", Survey::crowd),
        ("direct path", Survey::direct_path),
        ("radio in virtual time", Survey::air),
    ];
    if ForeignHost::start(foreign::AckTimer::after(FOREIGN_DELAY)).is_ok() {
        steps.insert(3, ("pacing, foreign peer", Survey::foreign_pacing));
    }
    let of = steps.len();
    for (done, (name, step)) in steps.into_iter().enumerate() {
        if run.interrupt.is_set() {
            break;
        }
        survey.progress = Box::new(run.progress(name, done, of));
        // What was measured before is worth the more when a step fails.
        if let Err(error) = step(&mut survey, &server.endpoints) {
            survey.failed.push(format!("{name}: {error:#}"));
        }
    }
    let Survey { rows, findings, kept, failed, .. } = survey;
    run.kept = kept;
    let ended = match () {
        () if run.interrupt.is_set() => Ended::Interrupted,
        () if failed.is_empty() => Ended::Complete,
        () => Ended::Failed(failed.join("; ")),
    };
    args.output.emit(&Document::new(run.finish(ended, rows), findings))
}

/// The ACK delay that explains the figures of the published experiment.
const FOREIGN_DELAY: Duration = Duration::from_millis(56);
const ROUNDS: usize = 5;
/// Where more rounds only make each of them shorter: so many that two surveys can be held against
/// each other, figure by figure.
const MANY_ROUNDS: usize = 8;
/// Virtual time of each link.
const AIR_TIME: Duration = Duration::from_secs(10);

type Step = fn(&mut Survey, &[Endpoint]) -> anyhow::Result<()>;

/// What has been measured so far.
struct Survey {
    interrupt: Interrupt,
    progress: Box<dyn FnMut(usize, usize)>,
    rows: Vec<Row>,
    findings: Vec<Finding>,
    kept: Kept,
    /// Steps that could not be measured, or not in whole, and why.
    failed: Vec<String>,
}

/// One endpoint of every transport that this host offers.
fn local_endpoints(directory: &Path) -> Vec<String> {
    let mut endpoints = vec!["tcp://127.0.0.1:0".to_owned(), "udp://127.0.0.1:0".to_owned()];
    let ipv6 = "tcp://[::1]:0".parse().is_ok_and(|endpoint| Listener::bind(&endpoint).is_ok());
    if ipv6 {
        endpoints.extend(["tcp://[::1]:0".to_owned(), "udp://[::1]:0".to_owned()]);
    }
    endpoints.push(format!("unix:{}", directory.join("stream").display()));
    endpoints.push(format!("unix-dgram:{}", directory.join("datagram").display()));
    endpoints
}

/// The line that repeats a part: against a server of the user's own, in another terminal or in the background.
fn repeat(endpoints: &[Endpoint], command: &str) -> String {
    let list: Vec<String> = endpoints.iter().map(Endpoint::to_string).collect();
    format!("taut serve {0} & taut {command}", list.join(" "))
}

impl Survey {
    /// A closed loop over every transport.
    fn round_trips(&mut self, endpoints: &[Endpoint]) -> anyhow::Result<()> {
        let list: Vec<String> = endpoints.iter().map(Endpoint::to_string).collect();
        let command = repeat(endpoints, &format!("echo {} --size 32 --time 1500ms", list.join(" ")));
        self.echo(endpoints, Duration::from_millis(1500), None, EngineKind::Blocking, &command)
    }

    /// The question of the published wireless benchmark: at 60 per second, how many frames come late?
    fn frames(&mut self, endpoints: &[Endpoint]) -> anyhow::Result<()> {
        let both = &endpoints[..2];
        let command = repeat(both, &format!("echo {} {} --size 32 --rate 60 --time 5s", both[0], both[1]));
        self.echo(both, Duration::from_secs(5), Some(60.0), EngineKind::Epoll, &command)
    }

    fn pacing(&mut self, endpoints: &[Endpoint]) -> anyhow::Result<()> {
        let tcp = &endpoints[..1];
        for (acks, nagle) in [(AckPolicy::System, true), (AckPolicy::Delayed, true), (AckPolicy::Delayed, false)] {
            let nagle_word = if nagle { "on" } else { "off" };
            let spots = placement::of_peers(None, None, &[&tcp[0]], Work::Collect, false, &self.interrupt)?;
            let spot = apart(spots.into_iter().next());
            let arguments = format!(
                "pace {} --nagle {nagle_word} --peer-ack {acks} --time 4s --rounds {MANY_ROUNDS} --place {}",
                tcp[0],
                wish(&spot)
            );
            let peer = PeerKind::Server { endpoint: tcp[0].clone(), acks };
            self.pace(peer, spot, nagle, Duration::from_secs(4), repeat(tcp, &arguments))?;
        }
        Ok(())
    }

    fn foreign_pacing(&mut self, _endpoints: &[Endpoint]) -> anyhow::Result<()> {
        for nagle in [true, false] {
            let spot = apart(placement::of_threads(None, None).ok());
            let command = format!(
                "taut pace --foreign-peer 56ms --nagle {} --time 5s --rounds {MANY_ROUNDS} --place {}",
                if nagle { "on" } else { "off" },
                wish(&spot)
            );
            let peer = PeerKind::Foreign(foreign::AckTimer::after(FOREIGN_DELAY));
            self.pace(peer, spot, nagle, Duration::from_secs(5), command)?;
        }
        Ok(())
    }

    fn throughput(&mut self, endpoints: &[Endpoint]) -> anyhow::Result<()> {
        let unix = endpoints.iter().find(|endpoint| endpoint.transport() == "unix").unwrap_or(&endpoints[0]);
        for (endpoint, direction) in
            [(&endpoints[0], Direction::Up), (&endpoints[0], Direction::Down), (unix, Direction::Up)]
        {
            if self.interrupt.is_set() {
                break;
            }
            let arguments =
                format!("stream {endpoint} --direction {} --time 2500ms --rounds {MANY_ROUNDS}", direction.name());
            let spots = placement::of_peers(None, None, &[endpoint], work(direction), false, &self.interrupt)?;
            let spots = spots.into_iter().next().unwrap_or_default();
            let of = spots.len() as u32;
            for spot in spots {
                let plan = StreamPlan {
                    endpoint: endpoint.clone(),
                    direction,
                    connections: 1,
                    block_bytes: default_block(endpoint),
                    time: Duration::from_millis(2500) / of,
                    rounds: MANY_ROUNDS,
                    options: Vec::new(),
                    acks: AckPolicy::System,
                    plain: false,
                    spot,
                    command: repeat(std::slice::from_ref(endpoint), &arguments),
                };
                let outcome = stream::run(&plan, &self.interrupt, &mut self.progress)?;
                self.rows.push(Row::Stream(Box::new(outcome.row)));
                whole(outcome.ended)?;
            }
        }
        Ok(())
    }

    /// The classic stall, and the settings that cure it.
    fn write_write_read(&mut self, endpoints: &[Endpoint]) -> anyhow::Result<()> {
        let tcp = &endpoints[..1];
        let arguments = format!("tune {} --workload write-write-read --rounds {ROUNDS} --time 150ms", tcp[0]);
        let plan = TunePlan {
            endpoint: tcp[0].clone(),
            workload: TuneWorkload::WriteWriteRead { first: 32, rest: 96 },
            acks: AckPolicy::System,
            plain: false,
            spot: Spot::default(),
            rounds: ROUNDS,
            time: Duration::from_millis(150),
            command: repeat(tcp, &arguments),
        };
        let outcome = tune::run(&plan, &self.interrupt, &mut self.progress)?;
        self.findings.extend(findings::of_tune(&outcome, self.rows.len(), &mut self.kept));
        self.rows.extend(outcome.rows.into_iter().map(|row| Row::Tune(Box::new(row))));
        whole(outcome.ended)
    }

    /// The published experiment on network AIO in small: few active among many connections.
    fn crowd(&mut self, _endpoints: &[Endpoint]) -> anyhow::Result<()> {
        const ENGINES: [CrowdEngine; 5] =
            [CrowdEngine::Poll, CrowdEngine::Epoll, CrowdEngine::Uring, CrowdEngine::AioSignal, CrowdEngine::AioWait];
        let (server, spot) = (own_server()?, placement::of_threads(Some(two_cores()), None)?.swap_remove(0));
        let connections = descriptors::most_connections().min(1000);
        let active = connections.min(10);
        let names = ENGINES.map(CrowdEngine::name).join(",");
        let mut plan = CrowdPlan {
            server,
            engines: ENGINES.to_vec(),
            connections,
            active: vec![active],
            by_connections: Vec::new(),
            rounds: 0,
            time: Duration::from_millis(60),
            timeout: Duration::from_secs(2),
            spot,
            command: format!("taut crowd --connections {connections} --active {active} --engines {names} --time 60ms"),
        };
        plan.rounds = usual_rounds(plan.comparisons());
        let outcome = crowd::run(&plan, &self.interrupt, &mut self.progress)?;
        self.findings.extend(findings::of_crowd(&outcome.rows));
        self.rows.extend(outcome.rows.into_iter().map(|row| Row::Crowd(Box::new(row))));
        whole(outcome.ended)
    }

    /// The published experiment on a direct path, in small. Only root can lay the virtual cable.
    fn direct_path(&mut self, _endpoints: &[Endpoint]) -> anyhow::Result<()> {
        let (sensor_core, route_core) = bench::cores();
        let (gap, timeout) = (Duration::from_micros(100), Duration::from_millis(20));
        let plan = RoutePlan { events: 500, gap, timeout, sensor_core, route_core, fifo: None };
        let command = "taut route bench --over udp --others 0 --events 500".to_owned();
        match bench::udp_rows(
            &plan,
            &Paths { sinks: &[1, 4], others: 0, names: &[] },
            None,
            &command,
            &self.interrupt,
            &mut self.progress,
        ) {
            Ok((rows, ended)) => {
                self.rows.extend(rows);
                whole(ended)?;
            }
            Err(error) => {
                self.rows.push(Row::Check(CheckRow {
                    what: "direct path in the kernel".to_owned(),
                    works: false,
                    found: format!("{error:#}"),
                    needed_for: "route, route bench".to_owned(),
                    remedy: Some("run as root".to_owned()),
                }));
            }
        }
        self.gpio_path()
    }

    /// The same on GPIO lines. Those of real chips are somebody's: without being told which ones
    /// may be used, none is touched.
    fn gpio_path(&mut self) -> anyhow::Result<()> {
        if Simulation::find().is_ok() {
            let (_, core) = bench::cores();
            let plan = GpioPlan { samples: 50, edges: 500, period: Duration::from_micros(200), fifo: None, core };
            let command = "taut route bench --over gpio --edges 500 --samples 50";
            let (rows, ended) = bench::gpio_rows(&plan, None, command, &self.interrupt, &mut self.progress)?;
            self.rows.extend(rows);
            return whole(ended);
        }
        let chips = gpio::chips();
        if !chips.is_empty() {
            self.rows.push(Row::Check(CheckRow {
                what: "GPIO lines for routes".to_owned(),
                works: true,
                found: format!(
                    "{}; not measured, since lines that something hangs on are not touched",
                    chips.join(", ")
                ),
                needed_for: "route".to_owned(),
                remedy: None,
            }));
        }
        Ok(())
    }

    /// The published intervals on the built-in scenario: what a Bluetooth link would give, without one.
    fn air(&mut self, _endpoints: &[Endpoint]) -> anyhow::Result<()> {
        let mut found = Vec::new();
        for ci in ["112.5ms", "50ms", "25ms", "12.5ms", "7.5ms"] {
            let set = [("ci".to_owned(), ci.to_owned())];
            let plan = scenario::plan(scenario::DEFAULT, &set, AIR_TIME, scenario::SEED)?;
            // One picture is enough: that of the shortest interval, in which the published stutter is.
            let mut excerpt = Excerpt::of(24);
            let mut outcome = air::run(&plan, &self.interrupt, &mut excerpt)?;
            if ci == "7.5ms" {
                outcome.row.excerpt = excerpt.finish();
            }
            found.push(findings::of_air(&plan, &outcome, &self.interrupt));
            self.rows.push(Row::Air(Box::new(outcome.row)));
            whole(outcome.ended)?;
        }
        self.findings.extend(findings::most_telling(found));
        Ok(())
    }

    fn echo(
        &mut self,
        endpoints: &[Endpoint],
        time: Duration,
        rate_hz: Option<f64>,
        engine: EngineKind,
        command: &str,
    ) -> anyhow::Result<()> {
        let peers: Vec<&Endpoint> = endpoints.iter().collect();
        let spots = placement::of_peers(None, None, &peers, Work::Echo, false, &self.interrupt)?;
        let of = spots.iter().map(Vec::len).max().unwrap_or(1) as u32;
        let subjects: Vec<EchoSubject> = endpoints
            .iter()
            .zip(spots)
            .flat_map(|(endpoint, spots)| spots.into_iter().map(|spot| subject(endpoint, engine, spot, command)))
            .collect();
        let plan = EchoPlan {
            rounds: usual_rounds(echo::comparisons(&subjects)),
            limit: RunLength::Time(time / of),
            rate_hz,
            timeout: Duration::from_secs(1),
            exceed: late_limits(),
            message_bytes: 32,
            connections: 1,
            plain: false,
        };
        let mut outcome = echo::run(&plan, &subjects, &self.interrupt, &mut self.progress)?;
        echo::tell_engine_costs(&mut outcome);
        self.findings.extend(findings::of_echo(&outcome, self.rows.len(), &mut self.kept));
        self.rows.extend(outcome.rows.into_iter().flatten().map(|row| Row::Echo(Box::new(row))));
        whole(outcome.ended)
    }

    fn pace(&mut self, peer: PeerKind, spot: Spot, nagle: bool, time: Duration, command: String) -> anyhow::Result<()> {
        if self.interrupt.is_set() {
            return Ok(());
        }
        let plan = PacePlan {
            peer,
            message_bytes: 128,
            period: Duration::from_millis(10),
            time,
            rounds: MANY_ROUNDS,
            options: vec![SocketOption::Nodelay(!nagle)],
            exceed: late_limits(),
            spot,
            fifo: false,
            command,
        };
        let mut outcome = pace::run(&plan, &self.interrupt, &mut self.progress)?;
        outcome.row.observer = echo::observer_cost(&self.interrupt).unwrap_or_default();
        self.findings.extend(findings::of_pace(&mut outcome, self.rows.len(), &mut self.kept));
        self.rows.push(Row::Pace(Box::new(outcome.row)));
        whole(outcome.ended)
    }
}

/// A step that ended early for another reason than that the user wants so has failed.
fn whole(ended: Ended) -> anyhow::Result<()> {
    match ended {
        Ended::Complete | Ended::Interrupted => Ok(()),
        Ended::PeerGone(why) | Ended::Failed(why) => Err(anyhow::Error::msg(why)),
    }
}

/// The placement of a step that has one row only: two cores, where they can be had.
fn apart(spots: Option<Vec<Spot>>) -> Spot {
    spots.and_then(|mut spots| spots.pop()).unwrap_or_default()
}

/// As --place has it.
const fn wish(spot: &Spot) -> &'static str {
    match spot.kind {
        PlacementKind::Free => "free",
        PlacementKind::SameCore => "same-core",
        PlacementKind::TwoCores => "two-cores",
    }
}

fn subject(endpoint: &Endpoint, engine: EngineKind, spot: Spot, command: &str) -> EchoSubject {
    EchoSubject {
        endpoint: endpoint.clone(),
        engine,
        options: Vec::new(),
        acks: AckPolicy::System,
        writes: WriteStyle::One,
        spot,
        observe: false,
        command: command.to_owned(),
    }
}

/// One frame at 60 Hz, and the limits of the published table.
fn late_limits() -> Vec<Duration> {
    [16_700, 50_000, 100_000, 200_000, 300_000].map(Duration::from_micros).to_vec()
}
