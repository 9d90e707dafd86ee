//! One run of a mesh of agents: gives them the plan, gathers what they find, and takes the plan away again.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::datetime::DateTime;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

use super::agent::connect;
use super::assemble::assemble;
use super::board::{Board, Wanted};
use super::lease::{Lease, PROLONG};
use super::message::{LEFT, Orders, Report, Task, unix_ns, written};
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

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// What was measured.
    pub outcome: MeshOutcome,
    /// Why that is not all, or not kept.
    pub failed: Option<Error>,
}

/// For a server to be reached.
const REACHED: Duration = Duration::from_secs(20);
/// For what agents that were told to end say last, since the last that came.
const CLOSING: Duration = Duration::from_secs(10);
/// The same where the user has no patience.
const HURRIED: Duration = Duration::from_secs(2);
/// For all that they say last.
const MOST_CLOSING: Duration = Duration::from_secs(600);
/// For orders to be given, if the server goes away then.
const GIVEN: Duration = Duration::from_secs(60);
/// A server that does not come back for so long is waited for no more.
const MOST_AWAY: Duration = Duration::from_secs(600);
/// Between two looks at what is new.
const AGAIN: Duration = Duration::from_millis(100);
/// From an attempt to read that failed to the next.
const AWAY: Duration = Duration::from_millis(500);
/// The lease of who gives orders.
const ORDERING: &str = "orders";
/// In the directory of results.
const KEPT: &str = "results.jsonl";

type Tell<'a> = dyn Fn(&Progress) + 'a;

/// Runs a plan, given as TOML, on agents.
///
/// # Errors
/// Where the plan makes no sense, no server answers, or somebody else runs a plan on these agents. What goes wrong
/// after the first result stands beside what was measured.
pub fn gather(plan: &str, settings: GatherSettings<'_>, tell: &Tell<'_>) -> Result<Gathered, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(format!("no runtime: {error}")))?;
    LocalSet::new().block_on(&runtime, run(plan, settings, tell))
}

async fn run(text: &str, settings: GatherSettings<'_>, tell: &Tell<'_>) -> Result<Gathered, Error> {
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
    // All that is waited for from here on may take longer than its age.
    let lease = lease.keep();
    let mut gathering = match Gathering::new(text, settings, tell, store, lease.lost()).await {
        Ok(gathering) => gathering,
        Err(error) => {
            lease.give_back().await;
            return Err(error);
        }
    };
    gathering.all().await;
    gathering.withdraw().await;
    lease.give_back().await;
    // What is on its way to the server gets there.
    let _ = timeout(HURRIED, client.flush()).await;
    gathering.done()
}

/// What was read.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Read {
    Nothing,
    /// What is none of this run's.
    Other,
    Ours,
}

struct Gathering<'a> {
    settings: GatherSettings<'a>,
    tell: &'a Tell<'a>,
    store: Store,
    plan: Plan,
    board: Board,
    /// Runs of ours, newest last, with the agents that have orders of it.
    runs: Vec<(String, BTreeSet<String>)>,
    /// Agents that have orders.
    ordered: BTreeSet<String>,
    wanted: HashSet<Wanted>,
    /// The number of the next result, and since when they are counted.
    next: u64,
    counted_since: DateTime,
    began_unix_ns: u64,
    lines: Option<BufWriter<File>>,
    /// Which life each agent was in when the hosts were assembled.
    epochs: HashMap<String, u64>,
    /// Set when somebody else has the lease of who gives orders.
    lost: Rc<Cell<bool>>,
    /// Why it ends early.
    failed: Option<Error>,
    /// Why results are not kept.
    unkept: Option<Error>,
}

impl<'a> Gathering<'a> {
    async fn new(
        text: &str,
        settings: GatherSettings<'a>,
        tell: &'a Tell<'a>,
        store: Store,
        lost: Rc<Cell<bool>>,
    ) -> Result<Self, Error> {
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
        let began_unix_ns = unix_ns();
        let lines = settings.out.map(|out| {
            let path = out.join(KEPT);
            let file = File::create_new(&path).map_err(|error| Error::new(format!("{}: {error}", path.display())))?;
            Ok(BufWriter::new(file))
        });
        let newest = store.newest_report().await?;
        Ok(Self {
            board: Board::new(MeshOutcome { hosts, works, results: None }, &pairs, began_unix_ns),
            next: newest.number + 1,
            counted_since: newest.counted_since,
            lines: lines.transpose()?,
            settings,
            tell,
            store,
            plan,
            runs: Vec::new(),
            ordered: BTreeSet::new(),
            wanted: HashSet::new(),
            began_unix_ns,
            epochs: members.into_iter().map(|(name, member)| (name, member.epoch)).collect(),
            lost,
            failed: None,
            unkept: None,
        })
    }

    fn is_stopped(&self) -> bool {
        self.settings.stop.load(Ordering::Relaxed) || self.failed.is_some() || self.lost.get()
    }

    fn say(&self, text: impl Into<String>) {
        (self.tell)(&Progress::Said(text.into()));
    }

    /// The measurements, then the looks.
    async fn all(&mut self) {
        let mut tasks = Vec::new();
        for number in 0..self.plan.work.len() {
            for (at, pair) in self.board.outcome.works[number].pairs.iter().enumerate() {
                let ends = [pair.near, pair.far];
                if ends.iter().all(|&host| self.board.outcome.hosts[host].failed.is_none()) {
                    tasks.push((number, at, None));
                }
            }
        }
        let repeat = self.settings.time;
        let longest = self.plan.work.iter().map(Work::longest).max().unwrap_or_default();
        self.part(tasks, repeat, longest).await;
        if self.is_stopped() {
            return;
        }
        judge(&self.plan, &mut self.board.outcome);
        let mut looks = Vec::new();
        for (number, _) in self.plan.work.iter().enumerate().filter(|(_, work)| work.explain) {
            let work = &self.board.outcome.works[number];
            looks.extend(
                work.worst().into_iter().take(MOST_EXPLAINED).map(|at| (number, at, Some(period(&work.pairs[at])))),
            );
        }
        self.part(looks, None, LOOK).await;
    }

    /// Gives orders for tasks, and waits until all have a result, the time is over or nothing comes any more.
    async fn part(&mut self, tasks: Vec<(usize, usize, Option<Duration>)>, time: Option<Duration>, longest: Duration) {
        if tasks.is_empty() {
            return;
        }
        let silence = longest + MARGIN + self.plan.patience + LEASE_AGE;
        match self.give(&tasks, time).await {
            Ok(()) => self.read(&tasks, time, silence).await,
            Err(error) => self.failed = Some(error),
        }
        if self.lost.get() {
            self.failed = Some(Error::new("another `taut mesh run` has begun on these agents"));
        }
        for (work, at, look) in std::mem::take(&mut self.wanted) {
            let why = match (&self.failed, time) {
                (Some(error), _) => format!("no result came before the run failed: {error}"),
                (None, Some(time)) => format!("no result came within {time:?}"),
                (None, None) => format!("no result came, and for {silence:?} none of any pair"),
            };
            let pair = &mut self.board.outcome.works[work].pairs[at];
            match (look, self.settings.stop.load(Ordering::Relaxed)) {
                (false, true) => pair.reached = Reached::NotRun("interrupted".to_owned()),
                (false, false) => pair.reached = Reached::Failed(why),
                (true, _) => pair.explained = Some(Explained { failed: Some(why), ..Explained::default() }),
            }
        }
    }

    /// Reads what comes of tasks until that is all, the time is over, or nothing has come for so long.
    async fn read(&mut self, tasks: &[(usize, usize, Option<Duration>)], time: Option<Duration>, silence: Duration) {
        let is_look = tasks.iter().any(|(_, _, look)| look.is_some());
        let began = Instant::now();
        let (mut heard, mut answered, mut counted, mut is_away) = (began, began, began, false);
        let mut told = None;
        while !self.is_stopped() && time.map_or(!self.wanted.is_empty(), |time| began.elapsed() < time) {
            if !is_away && counted.elapsed() >= PROLONG {
                counted = Instant::now();
                self.count_again().await;
            }
            let read = match self.read_one().await {
                Ok(read) => read,
                Err(error) => {
                    if !is_away {
                        self.say(format!("the NATS server is away ({error}); the agents measure on"));
                    }
                    is_away = true;
                    heard = Instant::now();
                    if time.is_none() && answered.elapsed() >= MOST_AWAY {
                        self.failed = Some(Error::new(format!("the NATS server was away for {MOST_AWAY:?}: {error}")));
                    }
                    sleep(AWAY).await;
                    self.reopen().await;
                    continue;
                }
            };
            answered = Instant::now();
            if is_away {
                is_away = false;
                self.say("the NATS server is back");
            }
            match read {
                Read::Ours => heard = Instant::now(),
                _ if time.is_none() && heard.elapsed() >= silence => return,
                Read::Other => {}
                Read::Nothing => sleep(AGAIN).await,
            }
            let (all, done) = (tasks.len(), tasks.len() - self.wanted.len());
            if told.replace(done) != Some(done) {
                (self.tell)(&if is_look { Progress::Explained(done, all) } else { Progress::Pairs(done, all) });
            }
        }
    }

    /// A server that has lost its disk has none of what we need, and counts results from 1 again.
    async fn reopen(&mut self) {
        if self.store.is_away() {
            return;
        }
        if let Ok(store) = Store::open(self.store.client.clone()).await {
            self.store = store;
            self.count_again().await;
        }
    }

    /// Reads from the first result on where they are counted anew, also if there are more by now than we have read.
    /// What is read twice counts once.
    async fn count_again(&mut self) {
        if !self.store.is_away()
            && let Ok(newest) = self.store.newest_report().await
            && (newest.counted_since != self.counted_since || newest.number + 1 < self.next)
        {
            (self.next, self.counted_since) = (1, newest.counted_since);
            self.say("the NATS server has lost what it had; what agents have not sent before is read");
        }
    }

    /// Writes what each agent has to do.
    async fn give(&mut self, tasks: &[(usize, usize, Option<Duration>)], time: Option<Duration>) -> Result<(), Error> {
        let run = format!("{}-{}-{}", self.began_unix_ns, std::process::id(), self.runs.len() + 1);
        let is_look = tasks.iter().any(|(_, _, look)| look.is_some());
        let in_racks = is_look || self.plan.work.iter().any(|work| work.alone_in_rack);
        let mut orders: BTreeMap<usize, Orders> = BTreeMap::new();
        for &(work, at, look) in tasks {
            let pair = &self.board.outcome.works[work].pairs[at];
            let racks = [pair.near, pair.far].map(|host| self.board.outcome.hosts[host].rack.clone());
            let task = Task {
                work,
                peer: self.board.outcome.hosts[pair.far].name.clone(),
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
            orders.into_iter().map(|(host, orders)| (self.board.outcome.hosts[host].name.clone(), orders)).collect();
        for (name, orders) in &orders {
            self.store.takes(name, orders)?;
        }
        let is_first = self.runs.is_empty();
        for name in orders.keys() {
            // Agents may have begun anew meanwhile.
            let epoch = if is_first {
                self.epochs.get(name).copied()
            } else {
                self.store.member(name).await.ok().flatten().map(|(member, _)| member.epoch)
            };
            epoch.into_iter().for_each(|epoch| self.board.account.expect(name, epoch, &run));
        }
        // Who has nothing to do any more is told so.
        let idle: Vec<String> = self.ordered.iter().filter(|name| !orders.contains_key(*name)).cloned().collect();
        let end = Instant::now() + GIVEN;
        for name in idle {
            self.take_back(&name, end).await?;
        }
        self.runs.push((run, orders.keys().cloned().collect()));
        for (name, orders) in &orders {
            self.ordered.insert(name.clone());
            let mut is_told = false;
            while let Err(error) = self.store.order(name, orders).await {
                if self.is_stopped() || Instant::now() >= end {
                    return Err(error);
                }
                if !std::mem::replace(&mut is_told, true) {
                    self.say(format!("the NATS server is away ({error}) while it is told what {name} has to do"));
                }
                sleep(AWAY).await;
            }
        }
        Ok(())
    }

    /// Takes what we gave an agent away, with attempts until then.
    async fn take_back(&self, name: &str, end: Instant) -> Result<(), Error> {
        loop {
            let is_ours = |plan: &str| self.runs.iter().any(|(run, _)| run == plan);
            match self.store.take_back(name, is_ours).await {
                Err(_) if Instant::now() < end => sleep(AWAY).await,
                done => return done,
            }
        }
    }

    /// Reads a result if there is one.
    async fn read_one(&mut self) -> Result<Read, Error> {
        let Some(message) = self.store.report_from(self.next).await? else { return Ok(Read::Nothing) };
        self.next = message.sequence.max(self.next) + 1;
        let Ok(report) = Report::parse(&message.subject, &message.payload) else {
            self.board.account.strange();
            return Ok(Read::Other);
        };
        // What is left of another run is none of ours.
        if !self.runs.iter().any(|(run, _)| *run == report.plan) {
            return Ok(Read::Other);
        }
        if self.board.is_new(&report) {
            if let Some(lines) = &mut self.lines {
                let written = lines.write_all(&written(&report)).and_then(|()| lines.write_all(b"\n"));
                if let Err(error) = written {
                    // What is measured can't be measured again, so all else goes on.
                    self.say(format!("{KEPT}: {error}; no more results are kept there"));
                    (self.lines, self.unkept) = (None, Some(Error::new(format!("{KEPT}: {error}"))));
                }
            }
            if let Some(found) = self.board.enter(report) {
                self.wanted.remove(&found);
            }
        }
        Ok(Read::Ours)
    }

    /// For what is said last, since the last that came and in all.
    fn last_words(&self) -> [Duration; 2] {
        if self.settings.stop.load(Ordering::Relaxed) { [HURRIED, CLOSING] } else { [CLOSING, MOST_CLOSING] }
    }

    /// Takes the plan back, and waits for what the agents say last, as long as something comes.
    async fn withdraw(&mut self) {
        let end = Instant::now() + self.last_words()[0];
        for name in &self.ordered {
            if let Err(error) = self.take_back(name, end).await {
                self.say(format!("the plan of {name} could not be taken back: {error}"));
                break;
            }
        }
        self.count_again().await;
        let (began, mut heard) = (Instant::now(), Instant::now());
        loop {
            let [since_last, in_all] = self.last_words();
            if heard.elapsed() >= since_last || began.elapsed() >= in_all {
                return;
            }
            match self.read_one().await {
                Ok(Read::Ours) => heard = Instant::now(),
                Ok(Read::Other) => {}
                Ok(Read::Nothing)
                    if self.runs.iter().all(|(run, agents)| self.board.account.are_closed(run, agents)) =>
                {
                    return;
                }
                Ok(Read::Nothing) | Err(_) => sleep(AGAIN).await,
            }
        }
    }

    fn done(mut self) -> Result<Gathered, Error> {
        if let Some(error) = self.lines.as_mut().and_then(|lines| lines.flush().err()) {
            self.unkept.get_or_insert_with(|| Error::new(format!("{KEPT}: {error}")));
        }
        let results = self.board.account.results();
        let failed = match self.failed {
            Some(error) if results.taken == 0 => return Err(error),
            failed => failed.or(self.unkept),
        };
        // With what came after it was judged.
        judge(&self.plan, &mut self.board.outcome);
        self.board.outcome.results = Some(results);
        Ok(Gathered { outcome: self.board.outcome, failed })
    }
}
