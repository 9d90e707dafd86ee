//! A mesh without an engine: `taut` is started over there by a command of the user, and the documents gathered here.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::far::Via;
use crate::figure::Measured;
use crate::host::Host;
use crate::judge::judge;
use crate::outcome::{Explained, HostOutcome, MeshOutcome, Reached, WorkOutcome};
use crate::pairs::Pair;
use crate::plan::Plan;
use crate::process::{Running, Waited};
use crate::reply::{PERIODS, cut, document, explained, listening, period};
use crate::schedule::{Alone, Job, Limits, Schedule};
use crate::task::{LOOK, MARGIN, MOST_EXPLAINED, NO_DOCUMENT};
use crate::work::Transport;
use crate::{blank, task};

/// A server whose stdin is closed from the beginning has ended by then.
const SETTLED: Duration = Duration::from_secs(1);
/// Between two looks at how much the servers print.
const WATCH: Duration = Duration::from_millis(100);
/// Servers that are ended at once.
const ENDED_AT_ONCE: usize = 64;

const INTERRUPTED: &str = "interrupted";
/// Code 0 is no failure that a server would speak of.
const NO_STDIN: &str = "it ended with code 0, as it does at the end of its stdin, which --via has to pass on: \
`kubectl exec -i`, `docker exec -i`, ssh(1) without -n";

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
    /// A host by its name, and the process group here of what was started for it and could not be ended.
    Left(String, u32),
    /// Something that the user has to know, in a sentence.
    Said(String),
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
    let there = there.as_slice();
    let mut outcome = MeshOutcome { works: mesh.nothing_yet(pairs, &hosts), hosts, results: None };
    thread::scope(|scope| {
        // It is over when this end of the channel is gone, however that came.
        let (over, is_over) = mpsc::channel::<()>();
        scope.spawn(move || {
            while is_over.recv_timeout(WATCH) == Err(RecvTimeoutError::Timeout) {
                servers(there).for_each(|(_, server)| lock(server).end_if_too_loud());
            }
        });
        mesh.measure(there, &mut outcome);
        judge(plan, &mut outcome);
        mesh.explain(there, &mut outcome);
        drop(over);
    });
    mesh.end_servers(there);
    outcome
}

/// The servers, with the numbers of their hosts.
fn servers(there: &[Option<There>]) -> impl Iterator<Item = (usize, &Mutex<Running>)> {
    there.iter().enumerate().filter_map(|(host, there)| Some((host, there.as_ref()?.server.as_ref()?)))
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
        let mut greeted: Vec<Greeted> = each
            .map(|(found, host)| {
                found.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_else(|| missing(host))
            })
            .collect();
        self.settle(&mut greeted);
        greeted
    }

    /// Names the hosts whose servers end as soon as they listen, which they do without a stdin.
    fn settle(&self, greeted: &mut [Greeted]) {
        let is_served = |(_, there): &Greeted| there.as_ref().is_some_and(|there| there.server.is_some());
        if greeted.iter().any(is_served) && !self.is_stopped() {
            thread::sleep(SETTLED);
        }
        for (outcome, there) in greeted {
            let server = there.as_ref().and_then(|there| there.server.as_ref());
            let Some(end) = server.and_then(|server| end_of(&mut lock(server))) else { continue };
            let why = format!("no server: {end}");
            (self.tell)(&Progress::Unreachable(outcome.name.clone(), why.clone()));
            (outcome.failed, *there) = (Some(why), None);
        }
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
        match self.ask(host, ["--version".to_owned()], self.plan.patience) {
            Err(why) => outcome.failed = Some(why),
            Ok(text) => match text.lines().find_map(|line| line.strip_prefix("taut ")) {
                Some(version) => outcome.version = Some(cut(version.trim())),
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
        let arguments = task::server(&wanted, SocketAddr::new(host.listen, self.plan.port));
        let mut server =
            Running::start(&self.line(host, arguments), Stdio::piped()).map_err(|error| error.to_string())?;
        let waited = server.wait_for_line(self.plan.patience, self.settings.stop, listening);
        let why = match waited {
            Ok(Waited::Done(Some(ports))) => return Ok(There { server: Some(Mutex::new(server)), ports }),
            Ok(Waited::Done(None)) => end_of(&mut server).unwrap_or_default(),
            Ok(Waited::TooLong) => format!("it did not listen within {:?}", self.plan.patience),
            Ok(Waited::Stopped) => INTERRUPTED.to_owned(),
            Err(error) => error.to_string(),
        };
        self.finish(host, &mut server);
        Err(why)
    }

    /// Ends a command, and says so where that is not in our power.
    fn finish(&self, host: &Host, running: &mut Running) {
        if !running.finish() {
            (self.tell)(&Progress::Left(host.name.clone(), running.group()));
        }
    }

    fn end_servers(&self, there: &[Option<There>]) {
        // All are told to end before the first is waited for.
        servers(there).for_each(|(_, server)| lock(server).close_stdin());
        let servers: Vec<(usize, &Mutex<Running>)> = servers(there).collect();
        for some in servers.chunks(ENDED_AT_ONCE) {
            thread::scope(|scope| {
                for &(host, server) in some {
                    scope.spawn(move || self.finish(&self.plan.hosts[host], &mut lock(server)));
                }
            });
        }
    }

    /// Whether any work goes over it; a look into a pair takes the same.
    fn uses(&self, transport: Transport) -> bool {
        self.plan.work.iter().any(|work| work.transport == transport)
    }

    /// What a command prints, if it ends well and in time. One that ends with a document and a code is no failure of
    /// the command.
    fn ask(&self, host: &Host, arguments: impl IntoIterator<Item = String>, limit: Duration) -> Result<String, String> {
        let words = self.line(host, arguments);
        let mut running = Running::start(&words, Stdio::null())
            .map_err(|error| format!("{}: {error}", words.first().map_or("", String::as_str)))?;
        let why = match running.wait(limit, self.settings.stop) {
            Ok(Waited::Done(done)) if done.status.success() || document(&done.stdout).is_some() => {
                return Ok(done.stdout);
            }
            Ok(Waited::Done(done)) => done.last_words,
            Ok(Waited::TooLong) => format!("no answer within {limit:?}"),
            Ok(Waited::Stopped) => INTERRUPTED.to_owned(),
            Err(error) => error.to_string(),
        };
        self.finish(host, &mut running);
        Err(why)
    }

    fn nothing_yet(&self, pairs: &[Pair], hosts: &[HostOutcome]) -> Vec<WorkOutcome> {
        let why = |pair: &Pair| {
            let failed = [pair.near, pair.far].into_iter().find(|&host| hosts[host].failed.is_some());
            failed.map_or_else(|| INTERRUPTED.to_owned(), |host| format!("{} is not there", hosts[host].name))
        };
        blank::works(self.plan, pairs, &why)
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
            // What failed before the user lost patience has failed.
            let result = self.measure_one(job, there).map_err(|why| (!self.is_stopped()).then_some(why));
            (begin, self.since(), result)
        });
        // The pairs of each work are the same, in the same order.
        let pairs = outcome.works.first().into_iter().flat_map(|work| work.pairs.iter().enumerate());
        let places: HashMap<Pair, usize> =
            pairs.map(|(at, pair)| (Pair { near: pair.near, far: pair.far }, at)).collect();
        for (job, (begin, end, result)) in found {
            let Some(&at) = places.get(&job.pair) else { continue };
            let pair = &mut outcome.works[job.work].pairs[at];
            (pair.begin_ns, pair.end_ns) = (Some(begin), Some(end));
            match result {
                Ok(measured) => (pair.reached, pair.measured) = (Reached::Measured, Some(measured)),
                Err(None) => {}
                Err(Some(why)) => pair.reached = Reached::Failed(why),
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
                    // There may be another one, whose taker passes that on in turn: not all wake up for each.
                    changed.notify_one();
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
                        changed.notify_one();
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
        let arguments = task::measure(work, self.endpoint(job, there)?);
        let limit = work.longest() + MARGIN + self.plan.patience;
        let text = self.ask(&self.plan.hosts[job.pair.near], arguments, limit);
        let text = text.map_err(|why| self.with_the_server(why, job, there))?;
        let document = document(&text).ok_or(NO_DOCUMENT)?;
        self.keep(work.kind.name(), job, document.text);
        task::measured(&document.value).map_err(|why| self.with_the_server(why, job, there))
    }

    /// Where the far host of a job listens for it.
    fn endpoint(&self, job: &Job, there: &[Option<There>]) -> Result<String, String> {
        let transport = self.plan.work[job.work].transport;
        let ports = there[job.pair.far].iter().flat_map(|there| &there.ports);
        let port = ports.into_iter().find(|(one, _)| *one == transport).map(|(_, port)| *port);
        let port = port.ok_or("its server does not listen there")?;
        Ok(task::endpoint(transport, &self.plan.hosts[job.pair.far].address, port))
    }

    /// Why a measurement failed, with the end of the server if that is why.
    fn with_the_server(&self, why: String, job: &Job, there: &[Option<There>]) -> String {
        let server = there[job.pair.far].as_ref().and_then(|there| there.server.as_ref());
        let name = &self.plan.hosts[job.pair.far].name;
        match server.and_then(|server| end_of(&mut lock(server))) {
            Some(end) => format!("{why}; the server on {name} has ended: {end}"),
            None => why,
        }
    }

    /// Keeps a document; the mesh goes on without it if that fails, which the caller sees when it writes its own.
    fn keep(&self, what: &str, job: &Job, text: &str) {
        let Some(out) = self.settings.out else { return };
        let Job { work, pair: Pair { near, far }, .. } = job;
        let _ = fs::write(out.join(format!("{what}-{}-{near}-{far}.json", work + 1)), format!("{text}\n"));
    }

    /// Looks into the worst pairs of the works that ask for it, no more than one in a rack at a time.
    fn explain(&self, there: &[Option<There>], outcome: &mut MeshOutcome) {
        let alone = Alone { on_host: true, in_rack: true };
        let (mut jobs, mut looked_into) = (Vec::new(), HashMap::new());
        for (number, _) in self.plan.work.iter().enumerate().filter(|(_, work)| work.explain) {
            let work = &outcome.works[number];
            for at in work.worst().into_iter().take(MOST_EXPLAINED) {
                let outcome = &work.pairs[at];
                let pair = Pair { near: outcome.near, far: outcome.far };
                jobs.push(Job { work: number, pair, alone });
                looked_into.insert((number, pair), (at, period(outcome)));
            }
        }
        let tell = |done, of| (self.tell)(&Progress::Explained(done, of));
        let found = self.each(jobs, &tell, &|job| {
            let begin_ns = self.since();
            let period = looked_into.get(&(job.work, job.pair)).map_or(PERIODS[0], |(_, period)| *period);
            let explained = self
                .explain_one(job, period, there)
                .unwrap_or_else(|why| Explained { failed: Some(why), ..Explained::default() });
            Explained { begin_ns, end_ns: self.since(), ..explained }
        });
        for (job, explained) in found {
            let Some((at, _)) = looked_into.get(&(job.work, job.pair)) else { continue };
            outcome.works[job.work].pairs[*at].explained = Some(explained);
        }
    }

    fn explain_one(&self, job: &Job, period: Duration, there: &[Option<There>]) -> Result<Explained, String> {
        let arguments = task::look(period, self.endpoint(job, there)?);
        let host = &self.plan.hosts[job.pair.near];
        let text = self.ask(host, arguments, LOOK + MARGIN + self.plan.patience)?;
        let document = document(&text).ok_or(NO_DOCUMENT)?;
        self.keep("pace", job, document.text);
        explained(&document.value)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a server ended, if it has.
fn end_of(server: &mut Running) -> Option<String> {
    server.end().map(|end| end.err().unwrap_or_else(|| NO_STDIN.to_owned()))
}
