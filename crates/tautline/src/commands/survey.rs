use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use taut_explain::Finding;
use taut_link::wire::{AckPolicy, Work};
use taut_link::{Endpoint, Listener, clock};
use taut_measure::Interrupt;
use taut_measure::echo::{self, EchoPlan, EchoSubject, RunLength, WriteStyle};
use taut_measure::engine::EngineKind;
use taut_measure::placement::{self, Spot};
use taut_measure::settings::{self, Counters};
use taut_measure::stream::{self, Direction, StreamPlan};
use taut_record::stats::usual_rounds;
use taut_record::{Ended, Row};
use taut_report::{Document, table};
use taut_time::Duration;

use super::doctor;
use super::stream::{default_block, work};
use crate::exit::Code;
use crate::host_watch::HostWatch;
use crate::kept::Kept;
use crate::local_server::LocalServer;
use crate::output::{self, OutputArgs};
use crate::run::Run;
use crate::{findings, input};

/// This host in half a minute: what its live connections lose and to what, its settings, its paths
///
/// Looks at all TCP connections for 5 s, as `taut watch` does, and judges the host's settings by what they lost. Then
/// it measures round trips, frames at 60 a second and throughput over every local transport, against a server of its
/// own. Prints the answer on one screen, worst first, and keeps the recording for `taut report`. Needs no right; the
/// options of other users' programs take root.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo taut survey                    the answer: what to change, and where the full report lies
  sudo taut survey --full             all tables as well
  taut survey --html survey.html      the full report as a page
  taut survey --json > before.json    for `taut report before.json after.json`

`taut demo` stages what can be found; `taut demo nagle` and others repeat published experiments.")]
pub(crate) struct Args {
    /// Print all tables instead of the answer
    #[arg(long, conflicts_with = "json")]
    full: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// How long the connections are looked at.
const LOOK: Duration = Duration::from_secs(5);
/// Looks at the suspicious ones take at most this part of a processor, and all together three of them.
const MOST_WORK: u32 = 20;
/// A loss counts from this share of a connection's time on, as in `taut watch`.
const THRESHOLD: f64 = 0.05;
/// Of each transport.
const ROUND_TRIPS: Duration = Duration::from_secs(1);
const FRAMES: Duration = Duration::from_secs(3);
const THROUGHPUT: Duration = Duration::from_millis(1500);
/// What doctor takes, about.
const DOCTOR: Duration = Duration::from_secs(3);
/// So many that two surveys can be held against each other, figure by figure.
const MANY_ROUNDS: usize = 8;

type Step = fn(&mut Survey, &[Endpoint]) -> anyhow::Result<()>;

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let mut run = Run::start("survey")?;
    let directory = tempfile::tempdir().context("make a directory for the local sockets")?;
    let wanted = local_endpoints(directory.path());
    let echoes = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
    let steps: [(&str, Duration, Step); 5] = [
        // First, while the process has one thread: without root its namespace can only be made then.
        ("what works here", DOCTOR, Survey::doctor),
        // Before there are connections of our own.
        ("live connections", LOOK, Survey::live),
        ("round trips", ROUND_TRIPS * echoes, Survey::round_trips),
        ("60 frames a second", FRAMES * 2, Survey::frames),
        ("throughput", THROUGHPUT * 3, Survey::throughput),
    ];
    let all = steps.iter().fold(Duration::ZERO, |sum, (_, time, _)| sum + *time);
    let mut survey = Survey {
        interrupt: run.interrupt.clone(),
        progress: Box::new(|_, _| {}),
        rows: Vec::new(),
        findings: Vec::new(),
        kept: Kept::default(),
        failed: Vec::new(),
    };
    let (mut before, mut server) = (Duration::ZERO, None);
    for (index, (name, time, step)) in steps.into_iter().enumerate() {
        if run.interrupt.is_set() {
            break;
        }
        survey.progress = Box::new(run.progress_in_time(name, before, time, all));
        before += time;
        if index == OWN_TRAFFIC {
            server = LocalServer::start(&wanted).map_err(|error| survey.failed.push(format!("{error:#}"))).ok();
        }
        // What was measured before is worth the more when a step fails.
        let endpoints: &[Endpoint] = match &server {
            Some(server) => &server.endpoints,
            None if index >= OWN_TRAFFIC => break,
            None => &[],
        };
        if let Err(error) = step(&mut survey, endpoints) {
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
    let document = Document::new(run.finish(ended, rows), findings);
    let kept = if args.output.json { None } else { Some(keep(&document)) };
    args.output.emit_as(&document, || match (args.full, kept) {
        (true, _) | (_, None) => table::render(&document, output::style()),
        (false, Some(kept)) => table::brief(&document, output::style(), &report(kept, args.output.html.as_deref())),
    })
}

/// The steps from here on need the server.
const OWN_TRAFFIC: usize = 2;

/// Where the full report lies.
fn report(kept: anyhow::Result<PathBuf>, html: Option<&Path>) -> String {
    let page = html.map_or_else(String::new, |path| format!("{}; ", output::shown(path)));
    let text = kept.map_or_else(
        |error| format!("not kept ({}): taut survey --full", output::message(&error)),
        |path| input::shell_line(["taut".to_owned(), "report".to_owned(), path.display().to_string()]),
    );
    page + &text
}

/// Keeps the recording, in the place of the last one: $XDG_STATE_HOME/taut/survey.json (XDG Base Directory
/// Specification). A part of one takes no whole one's place.
fn keep(document: &Document) -> anyhow::Result<PathBuf> {
    let of = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = of("XDG_STATE_HOME").or_else(|| Some(of("HOME")?.join(".local/state")));
    let directory = state.context("neither HOME nor XDG_STATE_HOME is set")?.join("taut");
    fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
    let mut file = tempfile::NamedTempFile::new_in(&directory).context("write a file there")?;
    file.write_all(document.to_json().as_bytes()).context("write the recording")?;
    let is_part = document.recording.ended != Ended::Complete;
    let path = directory.join(if is_part { "survey-partial.json" } else { "survey.json" });
    file.persist(&path).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

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
    fn doctor(&mut self, _: &[Endpoint]) -> anyhow::Result<()> {
        self.rows.extend(doctor::rows());
        Ok(())
    }

    /// What the live connections of this host lose, and the settings that bear on it.
    fn live(&mut self, _: &[Endpoint]) -> anyhow::Result<()> {
        let before = Counters::read();
        let mut watch = HostWatch::begin(None, MOST_WORK, THRESHOLD)?;
        let end = watch.from() + LOOK;
        loop {
            let now = clock::now();
            watch.look(now)?;
            let is_over = now >= end && watch.is_enough();
            if is_over || self.interrupt.is_set() {
                break;
            }
            (self.progress)(now.saturating_since(watch.from()).as_millis() as usize, LOOK.as_millis() as usize);
            let due = watch.due();
            clock::sleep_until(if watch.is_enough() { due.min(end) } else { due });
        }
        let row = watch.interval(clock::now())?.row;
        let settings = settings::judge(&row, before, Counters::read());
        self.findings.extend(findings::of_watch(&row));
        self.rows.push(Row::Watch(Box::new(row)));
        self.rows.extend(settings.into_iter().map(Row::Setting));
        Ok(())
    }

    /// A closed loop over every transport.
    fn round_trips(&mut self, endpoints: &[Endpoint]) -> anyhow::Result<()> {
        let list: Vec<String> = endpoints.iter().map(Endpoint::to_string).collect();
        let command = repeat(endpoints, &format!("echo {} --size 32 --time 1s", list.join(" ")));
        self.echo(endpoints, ROUND_TRIPS, None, EngineKind::Blocking, &command)
    }

    /// At 60 per second, how many frames come late?
    fn frames(&mut self, endpoints: &[Endpoint]) -> anyhow::Result<()> {
        let both = &endpoints[..2];
        let command = repeat(both, &format!("echo {} {} --size 32 --rate 60 --time 3s", both[0], both[1]));
        self.echo(both, FRAMES, Some(60.0), EngineKind::Epoll, &command)
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
                format!("stream {endpoint} --direction {} --time 1500ms --rounds {MANY_ROUNDS}", direction.name());
            let spots = placement::of_peers(None, None, &[endpoint], work(direction), false, &self.interrupt)?;
            let spots = spots.into_iter().next().unwrap_or_default();
            let of = spots.len() as u32;
            for spot in spots {
                let plan = StreamPlan {
                    endpoint: endpoint.clone(),
                    direction,
                    connections: 1,
                    block_bytes: default_block(endpoint),
                    time: THROUGHPUT / of,
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
}

/// A step that ended early for another reason than that the user wants so has failed.
fn whole(ended: Ended) -> anyhow::Result<()> {
    match ended {
        Ended::Complete | Ended::Interrupted => Ok(()),
        Ended::PeerGone(why) | Ended::Failed(why) => Err(anyhow::Error::msg(why)),
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
