//! A mesh without an engine: `taut` is started over there by a command of the user, and the documents gathered here.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;
use taut_record::{Ended, FORMAT_VERSION, Recording};

use crate::far::Via;
use crate::figure::Measured;
use crate::host::Host;
use crate::judge::judge;
use crate::outcome::{Explained, Explanation, HostOutcome, MeshOutcome, PairOutcome, Reached, WorkOutcome};
use crate::pairs::Pair;
use crate::plan::{Kind, Plan, Transport, Work};
use crate::process::{Running, Waited};
use crate::schedule::{Alone, Job, Limits, Schedule};

/// Pairs of one work that are looked into, the worst ones.
const MOST_EXPLAINED: usize = 8;
/// How long a look takes.
const LOOK: Duration = Duration::from_secs(3);
/// Shortest and longest time between two messages of a look.
const PERIODS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
/// Handshakes and time-outs of a measurement, beyond what it is meant to take.
const MARGIN: Duration = Duration::from_secs(10);

/// The two last layers of a message, where they can't be told apart.
const UNTOLD: &str = "medium or peer program";
/// Lines of a command's output that are tried as the beginning of its document.
const MOST_BEGINS: usize = 100;

/// How a mesh is run.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// How commands get to hosts.
    pub via: &'a Via,
    /// The program over there.
    pub taut: &'a str,
    /// Where the documents of all pairs are kept; it has to be there.
    pub out: Option<&'a Path>,
    /// Set when the user has no patience: what runs over there is ended, and what was measured is returned.
    pub stop: &'a AtomicBool,
}

/// How far it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Progress {
    /// Hosts that have answered or failed, of how many.
    Hosts(usize, usize),
    /// Pairs of all works that are over, of how many.
    Pairs(usize, usize),
    /// Looks into pairs that are over, of how many.
    Explained(usize, usize),
    /// A host by its name, and why nothing can be measured there.
    Unreachable(String, String),
}

type Tell<'a> = dyn Fn(&Progress) + Sync + 'a;

/// A host that answered: its server, and where it listens.
struct There {
    server: Option<Mutex<Running>>,
    /// The ports of UDP and TCP.
    ports: Vec<(Transport, u16)>,
}

/// What is known of a host, and where it is reached if it is.
type Greeted = (HostOutcome, Option<There>);

/// Measures all pairs once, and looks into those that are beyond a threshold. A host that can't be reached and a pair
/// that fails are part of what is returned, and stop nothing else.
pub fn run(plan: &Plan, pairs: &[Pair], settings: Settings<'_>, tell: &Tell<'_>) -> MeshOutcome {
    let began = Instant::now();
    let mesh = Mesh { plan, settings, tell, began };
    let (hosts, there): (Vec<HostOutcome>, Vec<Option<There>>) = mesh.greet(pairs).into_iter().unzip();
    let mut outcome = MeshOutcome { works: mesh.nothing_yet(pairs, &hosts), hosts };
    mesh.measure(&there, &mut outcome);
    judge(plan, &mut outcome);
    mesh.explain(&there, &mut outcome);
    // All are told to end before the first is waited for.
    let servers = || there.iter().flatten().filter_map(|there| there.server.as_ref());
    servers().for_each(|server| lock(server).close_stdin());
    outcome
}

struct Mesh<'a> {
    plan: &'a Plan,
    settings: Settings<'a>,
    tell: &'a Tell<'a>,
    began: Instant,
}

impl Mesh<'_> {
    fn since(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn is_stopped(&self) -> bool {
        self.settings.stop.load(Ordering::Relaxed)
    }

    fn line(&self, host: &Host, arguments: impl IntoIterator<Item = String>) -> Vec<String> {
        let command: Vec<String> = [self.settings.taut.to_owned()].into_iter().chain(arguments).collect();
        self.settings.via.line(&host.name, &command)
    }

    /// Asks every host for its version, and starts a server where one is needed.
    fn greet(&self, pairs: &[Pair]) -> Vec<Greeted> {
        let hosts = &self.plan.hosts;
        let asks: HashSet<usize> = pairs.iter().map(|pair| pair.near).collect();
        let answers: HashSet<usize> = pairs.iter().map(|pair| pair.far).collect();
        let greeted: Vec<Mutex<Option<Greeted>>> = hosts.iter().map(|_| Mutex::new(None)).collect();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..self.plan.at_once.min(hosts.len()) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(host) = hosts.get(number) else { break };
                        let is_needed = asks.contains(&number) || answers.contains(&number);
                        let found = self.greet_one(host, is_needed, answers.contains(&number));
                        if let Some(why) = &found.0.failed {
                            (self.tell)(&Progress::Unreachable(host.name.clone(), why.clone()));
                        }
                        *lock(&greeted[number]) = Some(found);
                        (self.tell)(&Progress::Hosts(done.fetch_add(1, Ordering::Relaxed) + 1, hosts.len()));
                    }
                });
            }
        });
        let missing = |host: &Host| (HostOutcome { name: host.name.clone(), ..HostOutcome::default() }, None);
        let each = greeted.into_iter().zip(hosts);
        each.map(|(found, host)| {
            found.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_else(|| missing(host))
        })
        .collect()
    }

    fn greet_one(&self, host: &Host, is_needed: bool, answers: bool) -> Greeted {
        let mut outcome = HostOutcome {
            name: host.name.clone(),
            address: host.address.clone(),
            rack: host.rack.clone(),
            version: None,
            failed: None,
        };
        if self.is_stopped() || !is_needed {
            return (outcome, None);
        }
        match self.ask(self.line(host, ["--version".to_owned()]), self.plan.patience) {
            Err(why) => outcome.failed = Some(why),
            Ok(text) => match text.lines().find_map(|line| line.strip_prefix("taut ")) {
                Some(version) => outcome.version = Some(version.trim().to_owned()),
                None => outcome.failed = Some(format!("`{} --version` said no version", self.settings.taut)),
            },
        }
        if outcome.failed.is_some() || self.is_stopped() {
            return (outcome, None);
        }
        if !answers {
            return (outcome, Some(There { server: None, ports: Vec::new() }));
        }
        match self.serve(host) {
            Ok(there) => (outcome, Some(there)),
            Err(why) => {
                outcome.failed = Some(format!("no server: {why}"));
                (outcome, None)
            }
        }
    }

    fn serve(&self, host: &Host) -> Result<There, String> {
        let wanted: Vec<Transport> =
            [Transport::Udp, Transport::Tcp].into_iter().filter(|one| self.uses(*one)).collect();
        let at = SocketAddr::new(host.listen, self.plan.port);
        let endpoints = wanted.iter().map(|transport| format!("{}://{at}", transport.name()));
        let arguments = ["serve", "--json", "--while-stdin-open"].map(str::to_owned).into_iter().chain(endpoints);
        let mut server =
            Running::start(&self.line(host, arguments), Stdio::piped()).map_err(|error| error.to_string())?;
        let waited = server.wait_for_line(self.plan.patience, self.settings.stop, listening);
        match waited.map_err(|error| error.to_string())? {
            Waited::Done(Some(ports)) => Ok(There { server: Some(Mutex::new(server)), ports }),
            Waited::Done(None) => Err(server.last_words()),
            Waited::TooLong => Err(format!("it did not listen within {:?}", self.plan.patience)),
            Waited::Stopped => Err("interrupted".to_owned()),
        }
    }

    /// Whether any work goes over it; a look into a pair takes the same.
    fn uses(&self, transport: Transport) -> bool {
        self.plan.work.iter().any(|work| work.transport == transport)
    }

    /// What a command prints, if it ends well and in time. One that ends with a document and a code is no failure of
    /// the command.
    fn ask(&self, words: Vec<String>, limit: Duration) -> Result<String, String> {
        let running = Running::start(&words, Stdio::null())
            .map_err(|error| format!("{}: {error}", words.first().map_or("", String::as_str)))?;
        match running.wait(limit, self.settings.stop).map_err(|error| error.to_string())? {
            Waited::Done(done) if done.status.success() || document(&done.stdout).is_some() => Ok(done.stdout),
            Waited::Done(done) => Err(done.last_words),
            Waited::TooLong => Err(format!("no answer within {limit:?}")),
            Waited::Stopped => Err("interrupted".to_owned()),
        }
    }

    fn nothing_yet(&self, pairs: &[Pair], hosts: &[HostOutcome]) -> Vec<WorkOutcome> {
        let why = |pair: &Pair| {
            let failed = [pair.near, pair.far].into_iter().find(|&host| hosts[host].failed.is_some());
            failed.map_or_else(|| "interrupted".to_owned(), |host| format!("{} is not there", hosts[host].name))
        };
        let pair = |pair: &Pair| PairOutcome {
            near: pair.near,
            far: pair.far,
            begin_ns: None,
            end_ns: None,
            reached: Reached::NotRun(why(pair)),
            measured: None,
            misses: Vec::new(),
            times_usual: None,
            explained: None,
        };
        let work = |work: &Work| WorkOutcome {
            work: work.kind.name().to_owned(),
            transport: work.transport.name().to_owned(),
            warn: work.warn.as_ref().map(ToString::to_string),
            alone_on_host: work.alone_on_host,
            alone_in_rack: work.alone_in_rack,
            figure: work.figure(),
            usual: Vec::new(),
            pairs: pairs.iter().map(pair).collect(),
        };
        self.plan.work.iter().map(work).collect()
    }

    /// All works of all pairs whose hosts are there.
    fn measure(&self, there: &[Option<There>], outcome: &mut MeshOutcome) {
        let mut jobs = Vec::new();
        for (number, work) in self.plan.work.iter().enumerate() {
            let alone = Alone { on_host: work.alone_on_host, in_rack: work.alone_in_rack };
            let pairs = outcome.works[number].pairs.iter().map(|pair| Pair { near: pair.near, far: pair.far });
            let reachable = pairs.filter(|pair| there[pair.near].is_some() && there[pair.far].is_some());
            jobs.extend(reachable.map(|pair| Job { work: number, pair, alone }));
        }
        let tell = |done, of| (self.tell)(&Progress::Pairs(done, of));
        let found = self.each(jobs, &tell, &|job| {
            let begin = self.since();
            let result = self.measure_one(job, there);
            (begin, self.since(), result)
        });
        for (job, (begin, end, result)) in found {
            let of = outcome.works[job.work].pairs.iter_mut();
            let Some(pair) = of.into_iter().find(|pair| (pair.near, pair.far) == (job.pair.near, job.pair.far)) else {
                continue;
            };
            (pair.begin_ns, pair.end_ns) = (Some(begin), Some(end));
            match result {
                Ok(measured) => (pair.reached, pair.measured) = (Reached::Measured, Some(measured)),
                Err(_) if self.is_stopped() => {}
                Err(why) => pair.reached = Reached::Failed(why),
            }
        }
    }

    /// Does jobs by the schedule, as many at once as may be, until all are done or the user has no patience.
    fn each<T: Send>(
        &self,
        jobs: Vec<Job>,
        tell: &(dyn Fn(usize, usize) + Sync),
        one: &(dyn Fn(&Job) -> T + Sync),
    ) -> Vec<(Job, T)> {
        let all = jobs.len();
        let limits = Limits { at_once: self.plan.at_once, per_host: self.plan.per_host };
        let schedule = Mutex::new(Schedule::new(jobs, self.plan.racks(), limits));
        let changed = Condvar::new();
        let found = Mutex::new(Vec::new());
        let next = || {
            let mut schedule = lock(&schedule);
            loop {
                if self.is_stopped() {
                    schedule.stop();
                }
                if schedule.is_over() {
                    return None;
                }
                if let Some(job) = schedule.take() {
                    return Some(job);
                }
                schedule = changed.wait(schedule).unwrap_or_else(PoisonError::into_inner);
            }
        };
        thread::scope(|scope| {
            for _ in 0..self.plan.at_once.min(all) {
                scope.spawn(|| {
                    while let Some(job) = next() {
                        let result = one(&job);
                        let done = {
                            let mut found = lock(&found);
                            found.push((job, result));
                            found.len()
                        };
                        lock(&schedule).give_back(&job);
                        changed.notify_all();
                        tell(done, all);
                    }
                    changed.notify_all();
                });
            }
        });
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn measure_one(&self, job: &Job, there: &[Option<There>]) -> Result<Measured, String> {
        let work = &self.plan.work[job.work];
        let mut arguments = vec![work.kind.name().to_owned(), self.endpoint(job, there)?];
        let mut option = |text: String| arguments.push(text);
        let mut slack = MARGIN;
        match work.kind {
            Kind::Echo { messages, size, rate, timeout } => {
                option(format!("--count={messages}"));
                option(format!("--size={size}"));
                option(format!("--timeout={}us", timeout.as_micros().max(1)));
                rate.into_iter().for_each(|rate| option(format!("--rate={rate}")));
                // One in ten may be lost before the pair takes too long.
                slack += timeout.saturating_mul(u32::try_from(messages / 10 + 1).unwrap_or(u32::MAX));
            }
            Kind::Stream { time } => option(format!("--time={}us", time.as_micros().max(1))),
        }
        ["--rounds=1", "--place=free", "--json"].into_iter().for_each(|text| option(text.to_owned()));
        let limit = work.expected() + slack + self.plan.patience;
        let text = self.ask(self.line(&self.plan.hosts[job.pair.near], arguments), limit);
        let text = text.map_err(|why| self.with_the_server(why, job, there))?;
        self.keep(work.kind.name(), job, &text);
        let recording = recording(&text)?;
        match &recording.ended {
            Ended::Complete => Measured::of(&recording),
            Ended::Interrupted => Err("it was interrupted over there".to_owned()),
            Ended::PeerGone(why) | Ended::Failed(why) => Err(self.with_the_server(why.clone(), job, there)),
        }
    }

    /// Where the far host of a job listens for it.
    fn endpoint(&self, job: &Job, there: &[Option<There>]) -> Result<String, String> {
        let transport = self.plan.work[job.work].transport;
        let ports = there[job.pair.far].iter().flat_map(|there| &there.ports);
        let port = ports.into_iter().find(|(one, _)| *one == transport).map(|(_, port)| *port);
        let port = port.ok_or("its server does not listen there")?;
        let address = &self.plan.hosts[job.pair.far].address;
        Ok(match address.parse::<IpAddr>() {
            Ok(address) => format!("{}://{}", transport.name(), SocketAddr::new(address, port)),
            Err(_) => format!("{}://{address}:{port}", transport.name()),
        })
    }

    /// Why a measurement failed, with the end of the server if that is why.
    fn with_the_server(&self, why: String, job: &Job, there: &[Option<There>]) -> String {
        let server = there[job.pair.far].as_ref().and_then(|there| there.server.as_ref());
        let name = &self.plan.hosts[job.pair.far].name;
        match server.and_then(|server| lock(server).end()) {
            Some(end) => format!("{why}; the server on {name} has ended: {end}"),
            None => why,
        }
    }

    /// Keeps a document; the mesh goes on without it if that fails, which the caller sees when it writes its own.
    fn keep(&self, what: &str, job: &Job, text: &str) {
        let Some(out) = self.settings.out else { return };
        let Job { work, pair: Pair { near, far }, .. } = job;
        let _ = fs::write(out.join(format!("{what}-{}-{near}-{far}.json", work + 1)), text);
    }

    /// Looks into the worst pairs of the works that ask for it, no more than one in a rack at a time.
    fn explain(&self, there: &[Option<There>], outcome: &mut MeshOutcome) {
        let alone = Alone { on_host: true, in_rack: true };
        let (mut jobs, mut periods) = (Vec::new(), HashMap::new());
        for (number, _) in self.plan.work.iter().enumerate().filter(|(_, work)| work.explain) {
            let work = &outcome.works[number];
            let worst = work.worst().into_iter().take(MOST_EXPLAINED).map(|at| &work.pairs[at]);
            for outcome in worst {
                let pair = Pair { near: outcome.near, far: outcome.far };
                jobs.push(Job { work: number, pair, alone });
                periods.insert((number, pair), period(outcome));
            }
        }
        let tell = |done, of| (self.tell)(&Progress::Explained(done, of));
        let found = self.each(jobs, &tell, &|job| {
            let begin_ns = self.since();
            let period = periods.get(&(job.work, job.pair)).copied().unwrap_or(PERIODS[0]);
            let explained = self
                .explain_one(job, period, there)
                .unwrap_or_else(|why| Explained { failed: Some(why), ..Explained::default() });
            Explained { begin_ns, end_ns: self.since(), ..explained }
        });
        for (job, explained) in found {
            let pairs = &mut outcome.works[job.work].pairs;
            let pair = pairs.iter_mut().find(|pair| (pair.near, pair.far) == (job.pair.near, job.pair.far));
            pair.into_iter().for_each(|pair| pair.explained = Some(explained.clone()));
        }
    }

    fn explain_one(&self, job: &Job, period: Duration, there: &[Option<There>]) -> Result<Explained, String> {
        let arguments = ["pace".to_owned(), self.endpoint(job, there)?].into_iter().chain([
            format!("--time={}s", LOOK.as_secs()),
            format!("--period={}us", period.as_micros()),
            "--rounds=1".to_owned(),
            "--place=free".to_owned(),
            "--json".to_owned(),
        ]);
        let line = self.line(&self.plan.hosts[job.pair.near], arguments);
        let text = self.ask(line, LOOK + MARGIN + self.plan.patience)?;
        self.keep("pace", job, &text);
        explained(&text)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ports of the line that a server begins with.
fn listening(line: &str) -> Option<Vec<(Transport, u16)>> {
    let value: Value = serde_json::from_str(line).ok()?;
    let port = |endpoint: &Value| {
        let (transport, rest) = endpoint.as_str()?.split_once("://")?;
        let transport = [Transport::Tcp, Transport::Udp].into_iter().find(|one| one.name() == transport)?;
        Some((transport, rest.rsplit_once(':')?.1.parse().ok()?))
    };
    value["listening"].as_array().map(|endpoints| endpoints.iter().filter_map(port).collect())
}

/// The one JSON object in what a command printed. Shells over there may greet before it.
fn document(text: &str) -> Option<Value> {
    let begins = text.match_indices('{').map(|(at, _)| at).filter(|&at| at == 0 || text[..at].ends_with('\n'));
    let read = |at: usize| serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>().next()?.ok();
    begins.take(MOST_BEGINS).filter_map(read).find(|value| value.get("format_version").is_some())
}

fn recording(text: &str) -> Result<Recording, String> {
    let value = document(text).ok_or("it printed no document")?;
    let version = value["format_version"].as_u64().unwrap_or(0);
    if version > u64::from(FORMAT_VERSION) {
        return Err(format!("its document has format {version}, and this taut reads up to {FORMAT_VERSION}"));
    }
    serde_json::from_value(value).map_err(|error| format!("its document can't be read: {error}"))
}

/// Two round trips, so that no message waits for the acknowledgement of the one before unless that is late.
fn period(pair: &PairOutcome) -> Duration {
    let times = pair.measured.as_ref().and_then(|measured| measured.rtt_ns.as_ref());
    let two = times.and_then(|times| times.p50.time()).map_or(0, |ns| ns.saturating_mul(2));
    Duration::from_nanos(two).clamp(PERIODS[0], PERIODS[1])
}

fn explained(text: &str) -> Result<Explained, String> {
    let recording = recording(text)?;
    let Some(taut_record::Row::Pace(row)) = recording.results.first() else {
        return Err(match recording.ended {
            Ended::PeerGone(why) | Ended::Failed(why) => why,
            _ => "it has no results".to_owned(),
        });
    };
    let mut layers: Vec<(&str, u64)> = row.ledger_ns.iter().map(|(name, ns)| (name.as_str(), *ns)).collect();
    // Where the peer's kernel does not tell when a message came, all until it was read is booked on the last layer.
    if row.excerpt.iter().all(|message| message.received.is_none()) {
        layers.iter_mut().filter(|(name, _)| *name == "peer program").for_each(|(name, _)| *name = UNTOLD);
    }
    let whole: u64 = layers.iter().map(|(_, ns)| ns).sum();
    let longest = layers.iter().max_by_key(|(_, ns)| ns).filter(|_| whole > 0);
    let value = document(text).unwrap_or_default();
    let findings = value["findings"].as_array().into_iter().flatten();
    Ok(Explained {
        layer: longest.map(|(name, _)| (*name).to_owned()),
        layer_share: longest.map_or(0.0, |(_, ns)| *ns as f64 / whole as f64),
        delivery_p50_ns: row.delivery_ns.as_ref().and_then(|times| times.p50.time()),
        messages: row.messages,
        lost: row.lost,
        findings: findings.filter_map(Explanation::read).collect(),
        ..Explained::default()
    })
}

impl Explanation {
    fn read(finding: &Value) -> Option<Self> {
        let text = |key: &str| Some(finding.get(key)?.as_str()?.to_owned());
        Some(Self { cause: text("cause")?, summary: text("summary")?, remedy: text("remedy")? })
    }
}
