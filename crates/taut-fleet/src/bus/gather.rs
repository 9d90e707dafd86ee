//! One run of a mesh of agents: gives them the plan, gathers what they find, and takes the plan away again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

use super::account::Account;
use super::agent::connect;
use super::lease::{Lease, PROLONG};
use super::message::{Found, Member, Orders, Report, Task, unix_ns, written};
use super::servers::Servers;
use super::store::{LEASE_AGE, Store};
use crate::blank;
use crate::error::Error;
use crate::host::Host;
use crate::judge::judge;
use crate::outcome::{Explained, HostOutcome, MeshOutcome, Reached};
use crate::pairs::{Pair, choose};
use crate::plan::Plan;
use crate::reply::period;
use crate::run::Progress;
use crate::task::{LOOK, MARGIN, MOST_EXPLAINED};
use crate::work::Work;

/// How a mesh of agents is run.
#[derive(Clone, Copy, Debug)]
pub struct GatherSettings<'a> {
    /// Where the agents are.
    pub on: &'a Servers,
    /// Whether all pairs are meant even of many hosts.
    pub all: bool,
    /// How long the agents measure as often as each work says; without it, each pair is measured once.
    pub time: Option<Duration>,
    /// Where all results are kept, a line each; it has to be there.
    pub out: Option<&'a Path>,
    /// Set when the user has no patience: the plan is taken back, and what was measured is returned.
    pub stop: &'a AtomicBool,
}

/// For a server to be reached.
const REACHED: Duration = Duration::from_secs(20);
/// For what agents that were told to end say last.
const CLOSING: Duration = Duration::from_secs(10);
/// The same where the user has no patience.
const HURRIED: Duration = Duration::from_secs(2);
/// Between two looks at what is new.
const AGAIN: Duration = Duration::from_millis(100);
/// From an attempt to read that failed to the next.
const AWAY: Duration = Duration::from_millis(500);
/// Agents end by themselves so much after who gathers should have told them.
const LEFT: Duration = Duration::from_secs(60);
/// The lease of who gives orders.
const ORDERING: &str = "orders";
/// In the directory of results.
const KEPT: &str = "results.jsonl";

type Tell<'a> = dyn Fn(&Progress) + 'a;

/// Runs a plan, given as TOML, on agents.
///
/// # Errors
/// Where the plan makes no sense, no server answers, or somebody else runs a plan on these agents.
pub fn gather(plan: &str, settings: GatherSettings<'_>, tell: &Tell<'_>) -> Result<MeshOutcome, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(format!("no runtime: {error}")))?;
    LocalSet::new().block_on(&runtime, run(plan, settings, tell))
}

async fn run(text: &str, settings: GatherSettings<'_>, tell: &Tell<'_>) -> Result<MeshOutcome, Error> {
    let (events, _) = mpsc::channel(1);
    let say = |text: &str| tell(&Progress::Said(text.to_owned()));
    let found = timeout(REACHED, connect(settings.on, "taut mesh run", &events, settings.stop, &say)).await;
    let Some((client, store)) =
        found.map_err(|_| Error::new(format!("{} was not to be had within {REACHED:?}", settings.on)))??
    else {
        return Err(Error::new("interrupted"));
    };
    let holder =
        written(&serde_json::json!({ "holder": "taut mesh run", "number": unix_ns(), "of": std::process::id() }));
    let Some(lease) = Lease::take(&store, &[ORDERING.to_owned()], holder).await? else {
        let text = "one runs at a time; after one that was killed, wait for";
        return Err(Error::new(format!(
            "another `taut mesh run` is under way on {}: {text} {LEASE_AGE:?}",
            settings.on
        )));
    };
    let mut gathering = match Gathering::new(text, settings, tell, store).await {
        Ok(gathering) => gathering,
        Err(error) => {
            lease.give_back().await;
            return Err(error);
        }
    };
    let lease = gathering.all(lease).await;
    gathering.withdraw().await;
    if let Some(lease) = lease {
        lease.give_back().await;
    }
    // What is on its way to the server gets there.
    let _ = timeout(HURRIED, client.flush()).await;
    gathering.done()
}

/// What is waited for: a work of a pair, or a look into it.
type Wanted = (usize, usize, bool);

struct Gathering<'a> {
    settings: GatherSettings<'a>,
    tell: &'a Tell<'a>,
    store: Store,
    plan: Plan,
    outcome: MeshOutcome,
    /// The hosts by name.
    numbers: HashMap<String, usize>,
    /// The pairs of each work, by their ends.
    places: HashMap<Pair, usize>,
    /// Runs of ours, newest last, with the agents that have orders of it.
    runs: Vec<(String, BTreeSet<String>)>,
    /// Agents that have orders.
    ordered: BTreeSet<String>,
    wanted: HashSet<Wanted>,
    account: Account,
    /// The number of the next result.
    next: u64,
    began_unix_ns: u64,
    lines: Option<BufWriter<File>>,
    failed: Option<Error>,
}

impl<'a> Gathering<'a> {
    async fn new(text: &str, settings: GatherSettings<'a>, tell: &'a Tell<'a>, store: Store) -> Result<Self, Error> {
        let (plan, members) = assemble(text, &store, settings.stop, tell).await?;
        let pairs = choose(&plan, settings.all)?;
        let host = |host: &Host| HostOutcome {
            name: host.name.clone(),
            address: host.address.clone(),
            rack: host.rack.clone(),
            version: members.get(&host.name).map(|member| member.taut.clone()),
            failed: (!members.contains_key(&host.name)).then(|| "no agent of that name is there".to_owned()),
        };
        let hosts: Vec<HostOutcome> = plan.hosts.iter().map(host).collect();
        for (number, host) in hosts.iter().enumerate() {
            if let Some(why) = &host.failed {
                tell(&Progress::Unreachable(host.name.clone(), why.clone()));
            }
            tell(&Progress::Hosts(number + 1, hosts.len()));
        }
        let why = |pair: &Pair| {
            let failed = [pair.near, pair.far].into_iter().find(|&host| hosts[host].failed.is_some());
            failed.map_or_else(|| "no result came".to_owned(), |host| format!("{} is not there", hosts[host].name))
        };
        let works = blank::works(&plan, &pairs, &why);
        let lines = settings.out.map(|out| {
            let path = out.join(KEPT);
            let file = File::create_new(&path).map_err(|error| Error::new(format!("{}: {error}", path.display())))?;
            Ok(BufWriter::new(file))
        });
        Ok(Self {
            numbers: plan.hosts.iter().enumerate().map(|(number, host)| (host.name.clone(), number)).collect(),
            places: pairs.iter().enumerate().map(|(at, pair)| (*pair, at)).collect(),
            outcome: MeshOutcome { hosts, works, results: None },
            next: store.newest_report().await? + 1,
            lines: lines.transpose()?,
            settings,
            tell,
            store,
            plan,
            runs: Vec::new(),
            ordered: BTreeSet::new(),
            wanted: HashSet::new(),
            account: Account::default(),
            began_unix_ns: unix_ns(),
            failed: None,
        })
    }

    fn is_stopped(&self) -> bool {
        self.settings.stop.load(Ordering::Relaxed) || self.failed.is_some()
    }

    /// The measurements, then the looks. Returns the lease as long as it is held.
    async fn all(&mut self, lease: Lease) -> Option<Lease> {
        let mut tasks = Vec::new();
        for number in 0..self.plan.work.len() {
            for (at, pair) in self.outcome.works[number].pairs.iter().enumerate() {
                let ends = [pair.near, pair.far];
                if ends.iter().all(|&host| self.outcome.hosts[host].failed.is_none()) {
                    tasks.push((number, at, None));
                }
            }
        }
        let repeat = self.settings.time;
        let longest = self.plan.work.iter().map(Work::longest).max().unwrap_or_default();
        let lease = self.part(tasks, repeat, longest, lease).await?;
        judge(&self.plan, &mut self.outcome);
        if self.is_stopped() {
            return Some(lease);
        }
        let mut looks = Vec::new();
        for (number, _) in self.plan.work.iter().enumerate().filter(|(_, work)| work.explain) {
            let work = &self.outcome.works[number];
            looks.extend(
                work.worst().into_iter().take(MOST_EXPLAINED).map(|at| (number, at, Some(period(&work.pairs[at])))),
            );
        }
        if looks.is_empty() {
            return Some(lease);
        }
        self.part(looks, None, LOOK, lease).await
    }

    /// Gives orders for tasks, and waits until all have a result, the time is over or nothing comes any more.
    async fn part(
        &mut self,
        tasks: Vec<(usize, usize, Option<Duration>)>,
        time: Option<Duration>,
        longest: Duration,
        mut lease: Lease,
    ) -> Option<Lease> {
        if let Err(error) = self.give(&tasks, time).await {
            self.failed = Some(error);
            return Some(lease);
        }
        let silence = longest + MARGIN + self.plan.patience + LEASE_AGE;
        let began = Instant::now();
        let (mut heard, mut prolonged, mut is_away) = (began, began, false);
        let (all, mut told) = (tasks.len(), None);
        loop {
            if self.is_stopped() || self.wanted.is_empty() && time.is_none() {
                break;
            }
            if time.is_some_and(|time| began.elapsed() >= time) {
                break;
            }
            if prolonged.elapsed() >= PROLONG {
                prolonged = Instant::now();
                if let Ok(false) = lease.prolong().await {
                    self.failed = Some(Error::new("another `taut mesh run` has begun on these agents"));
                    return None;
                }
            }
            match self.read_one().await {
                Ok(true) => heard = Instant::now(),
                Ok(false) if time.is_none() && heard.elapsed() >= silence => break,
                Ok(false) => sleep(AGAIN).await,
                Err(error) => {
                    if !is_away {
                        (self.tell)(&Progress::Said(format!(
                            "the NATS server is away ({error}); the agents measure on"
                        )));
                    }
                    is_away = true;
                    heard = Instant::now();
                    sleep(AWAY).await;
                    continue;
                }
            }
            if is_away {
                is_away = false;
                (self.tell)(&Progress::Said("the NATS server is back".to_owned()));
            }
            let done = all - self.wanted.len();
            if told.replace(done) == Some(done) {
                continue;
            }
            (self.tell)(&if tasks.iter().any(|(_, _, look)| look.is_some()) {
                Progress::Explained(done, all)
            } else {
                Progress::Pairs(done, all)
            });
        }
        for (work, at, look) in std::mem::take(&mut self.wanted) {
            let why = match time {
                Some(time) => format!("no result came within {time:?}"),
                None => format!("no result came, and for {silence:?} none of any pair"),
            };
            let pair = &mut self.outcome.works[work].pairs[at];
            match (look, self.settings.stop.load(Ordering::Relaxed)) {
                (false, true) => pair.reached = Reached::NotRun("interrupted".to_owned()),
                (false, false) => pair.reached = Reached::Failed(why),
                (true, _) => pair.explained = Some(Explained { failed: Some(why), ..Explained::default() }),
            }
        }
        Some(lease)
    }

    /// Writes what each agent has to do.
    async fn give(&mut self, tasks: &[(usize, usize, Option<Duration>)], time: Option<Duration>) -> Result<(), Error> {
        let run = format!("{}-{}-{}", self.began_unix_ns, std::process::id(), self.runs.len() + 1);
        let is_look = tasks.iter().any(|(_, _, look)| look.is_some());
        let in_racks = is_look || self.plan.work.iter().any(|work| work.alone_in_rack);
        let mut orders: BTreeMap<usize, Orders> = BTreeMap::new();
        for &(work, at, look) in tasks {
            let pair = &self.outcome.works[work].pairs[at];
            let racks = [pair.near, pair.far].map(|host| self.outcome.hosts[host].rack.clone());
            let task = Task {
                work,
                peer: self.outcome.hosts[pair.far].name.clone(),
                racks: racks.into_iter().flatten().filter(|_| in_racks).collect(),
                look_us: look.map(|period| u64::try_from(period.as_micros()).unwrap_or(u64::MAX)),
            };
            let of_host = orders.entry(pair.near).or_insert_with(|| Orders {
                once: time.is_none(),
                has_leases: is_look || self.plan.work.iter().any(|work| work.alone_on_host || work.alone_in_rack),
                ..Orders::new(run.clone(), self.plan.patience, self.plan.per_host, self.plan.work.clone())
            });
            if let Some(time) = time {
                of_host.seconds = time.saturating_add(LEFT).as_secs();
            }
            of_host.tasks.push(task);
            self.wanted.insert((work, at, look.is_some()));
        }
        let orders: BTreeMap<String, Orders> =
            orders.into_iter().map(|(host, orders)| (self.outcome.hosts[host].name.clone(), orders)).collect();
        // Who has nothing to do any more is told so.
        let idle: Vec<String> = self.ordered.iter().filter(|name| !orders.contains_key(*name)).cloned().collect();
        for name in idle {
            self.store.order(&name, None).await?;
        }
        self.runs.push((run, orders.keys().cloned().collect()));
        for (name, orders) in &orders {
            self.ordered.insert(name.clone());
            self.store.order(name, Some(orders)).await?;
        }
        Ok(())
    }

    /// Reads a result if there is one.
    async fn read_one(&mut self) -> Result<bool, Error> {
        let Some(message) = self.store.report_from(self.next).await? else { return Ok(false) };
        self.next = message.sequence.max(self.next) + 1;
        let Ok(report) = Report::parse(&message.subject, &message.payload) else {
            self.account.strange();
            return Ok(true);
        };
        // What is left of another run is none of ours.
        if !self.runs.iter().any(|(run, _)| *run == report.plan) {
            return Ok(true);
        }
        let Some(&near) = self.numbers.get(&report.agent) else {
            self.account.strange();
            return Ok(true);
        };
        if self.account.take(&report) {
            if let Some(lines) = &mut self.lines {
                let written = lines.write_all(&written(&report)).and_then(|()| lines.write_all(b"\n"));
                if let Err(error) = written {
                    self.failed = Some(Error::new(format!("{KEPT}: {error}")));
                }
            }
            self.apply(near, report);
        }
        Ok(true)
    }

    fn apply(&mut self, near: usize, report: Report) {
        let times = [report.begin_unix_ns, report.end_unix_ns].map(|at| at.saturating_sub(self.began_unix_ns));
        let (work, peer) = match &report.found {
            Found::Measured { work, peer, .. }
            | Found::Explained { work, peer, .. }
            | Found::Failed { work, peer, .. }
            | Found::Refused { work, peer, .. } => (*work, peer),
            Found::Closed => return,
        };
        let at = self.numbers.get(peer).and_then(|&far| self.places.get(&Pair { near, far }).copied());
        let pair = at.and_then(|at| Some((at, self.outcome.works.get_mut(work)?.pairs.get_mut(at)?)));
        let Some((at, pair)) = pair else {
            self.account.strange();
            return;
        };
        let (is_look, failed) = match report.found {
            Found::Measured { measured, .. } => {
                (pair.reached, pair.measured) = (Reached::Measured, Some(measured));
                (false, None)
            }
            Found::Explained { explained, .. } => {
                pair.explained = Some(explained);
                (true, None)
            }
            Found::Failed { look, why, .. } => (look, Some(why)),
            Found::Refused { look, why, .. } => (look, Some(format!("refused there: {why}"))),
            Found::Closed => return,
        };
        match failed {
            Some(why) if is_look => pair.explained = Some(Explained { failed: Some(why), ..Explained::default() }),
            Some(why) => (pair.reached, pair.measured) = (Reached::Failed(why), None),
            None => {}
        }
        if let Some(explained) = pair.explained.as_mut().filter(|_| is_look) {
            [explained.begin_ns, explained.end_ns] = times;
        } else {
            (pair.begin_ns, pair.end_ns) = (Some(times[0]), Some(times[1]));
        }
        self.wanted.remove(&(work, at, is_look));
    }

    /// Takes the plan back, and waits for what the agents say last.
    async fn withdraw(&mut self) {
        for name in &self.ordered {
            if let Err(error) = self.store.order(name, None).await {
                (self.tell)(&Progress::Said(format!("the plan of {name} could not be taken back: {error}")));
                break;
            }
        }
        let limit = if self.settings.stop.load(Ordering::Relaxed) { HURRIED } else { CLOSING };
        let end = Instant::now() + limit;
        while Instant::now() < end {
            match self.read_one().await {
                Ok(true) => {}
                Ok(false) if self.runs.iter().all(|(run, agents)| self.account.are_closed(run, agents)) => break,
                Ok(false) | Err(_) => sleep(AGAIN).await,
            }
        }
    }

    fn done(mut self) -> Result<MeshOutcome, Error> {
        if let Some(lines) = &mut self.lines
            && let Err(error) = lines.flush()
        {
            return Err(Error::new(format!("{KEPT}: {error}")));
        }
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.outcome.results = Some(self.account.results());
        Ok(self.outcome)
    }
}

/// The plan with its hosts, and the agents that are there. Those that are named have some time to come.
async fn assemble(
    text: &str,
    store: &Store,
    stop: &AtomicBool,
    tell: &Tell<'_>,
) -> Result<(Plan, HashMap<String, Member>), Error> {
    let began = Instant::now();
    let mut is_told = false;
    loop {
        let (members, strange) = store.members().await?;
        if strange > 0 && !is_told {
            tell(&Progress::Said(format!("{strange} entries of taut_agents are no agents of this version")));
        }
        is_told = true;
        // What is no host has been told apart when it was read.
        let hosts: Vec<Host> = members.iter().filter_map(|member| member.host().ok()).collect();
        let plan = Plan::parse_among(text, &hosts)?;
        let members: HashMap<String, Member> =
            members.into_iter().map(|member| (member.name.clone(), member)).collect();
        let all_there = plan.hosts.iter().all(|host| members.contains_key(&host.name));
        if all_there || began.elapsed() >= plan.patience || stop.load(Ordering::Relaxed) {
            return Ok((plan, members));
        }
        sleep(AWAY).await;
    }
}
