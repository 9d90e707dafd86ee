//! What an agent does while a plan is in force.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, RwLock};
use tokio::task::{JoinHandle, spawn_blocking, spawn_local, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::lease::{self, Lease, PROLONG};
use super::measure::Measurement;
use super::message::{Found, Member, Orders, Report, Task, unix_ns, written};
use super::own::Own;
use super::store::{LEASE_AGE, Store};
use super::tally::AgentTally;
use super::unsent::Unsent;
use super::until::Until;
use crate::spread;
use crate::task;

/// Nothing is repeated more often, whatever a plan says.
const LEAST_EVERY: Duration = Duration::from_secs(1);
/// The first measurements of all agents are spread over so much, or over `every` if that is less.
const SPREAD: Duration = Duration::from_secs(60);
/// The same where each is done once.
const SPREAD_ONCE: Duration = Duration::from_millis(500);
/// From an attempt for which something was not free to the next one, and as much again by chance.
const TRY_AGAIN: Duration = Duration::from_millis(300);
/// The same where the server is away.
const AWAY: Duration = Duration::from_secs(1);
/// For so long it is not asked again where a peer is.
const KNOWN: Duration = Duration::from_secs(60);
/// Between two looks whether there is room for what measured nothing.
const ROOM: Duration = Duration::from_millis(20);
/// For telling why nothing is done of a plan that is none.
const REFUSING: Duration = Duration::from_secs(600);

/// An agent, as far as its parts share it.
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) name: String,
    pub(super) epoch: u64,
    pub(super) own: Own,
    pub(super) taut: String,
    pub(super) seq: Cell<u64>,
    pub(super) unsent: RefCell<Unsent>,
    /// There is something to send.
    pub(super) more: Notify,
    pub(super) tally: Arc<AgentTally>,
}

impl Shared {
    fn report(&self, before: u64, plan: &str, found: Found, times: [u64; 2]) {
        self.seq.set(self.seq.get() + 1);
        let [begin_unix_ns, end_unix_ns] = times;
        let report = Report::new(&self.name, self.epoch, self.seq.get(), before, plan, found);
        let report = Report { begin_unix_ns, end_unix_ns, ..report };
        let report = fitting(&report, self.store.longest_report()).unwrap_or(report);
        self.unsent.borrow_mut().push(report);
        self.tally.queue(&self.unsent.borrow());
        self.more.notify_one();
    }
}

/// What stands for a result that is longer than the server takes, which would be in the way of all others for ever.
pub(super) fn fitting(report: &Report, most: usize) -> Option<Report> {
    let bytes = written(report).len();
    let why = || format!("its result is {bytes} bytes, and the NATS server takes {most}");
    (bytes > most).then(|| Report { found: report.found.clone().failed(why()), ..report.clone() })
}

/// A plan in force. It is over when it is closed.
pub(super) struct InForce {
    doing: Rc<Doing>,
    workers: Vec<JoinHandle<()>>,
    /// When it is over by itself.
    pub(super) until: Option<Instant>,
}

struct Doing {
    shared: Rc<Shared>,
    orders: Orders,
    before: u64,
    waiting: RefCell<BinaryHeap<Reverse<(Instant, usize)>>>,
    changed: Notify,
    over: Until,
    /// What is alone here has all of it.
    here: RwLock<()>,
    peers: RefCell<HashMap<String, (Member, Instant)>>,
    /// Addresses that are being asked, where a limit is for each of them.
    asked: RefCell<HashSet<String>>,
    /// Since when it can't be known who has a lease.
    away: Cell<Option<Instant>>,
    /// Different each time, for what is tried again.
    count: Cell<u64>,
    /// Why nothing is done of it.
    refused: Option<String>,
}

/// What becomes of a task.
enum Next {
    Done,
    Later(Duration),
}

/// Why the leases of a measurement did not hold.
struct Lost {
    why: String,
    /// Not only might somebody else have them.
    has_other: bool,
}

/// An address that is asked by one measurement at a time, as long as this is there.
struct Asking<'a> {
    asked: &'a RefCell<HashSet<String>>,
    address: String,
}

impl<'a> Asking<'a> {
    /// `None` where it is asked already.
    fn begin(asked: &'a RefCell<HashSet<String>>, address: &str) -> Option<Self> {
        let address = address.to_owned();
        let is_first = asked.borrow_mut().insert(address.clone());
        // One that is made and not given away would end what the first one has begun.
        if is_first { Some(Self { asked, address }) } else { None }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.asked.borrow_mut().remove(&self.address);
    }
}

impl InForce {
    /// Begins what is to be done, or only says of each task why it is refused.
    pub(super) fn begin(shared: &Rc<Shared>, mut orders: Orders, refused: Option<String>) -> Self {
        let now = Instant::now();
        // Why is said once.
        orders.once |= refused.is_some();
        let left = if refused.is_some() { REFUSING } else { orders.left(unix_ns() / 1_000_000_000) };
        let until = now.checked_add(left);
        let due = |(number, task): (usize, &Task)| {
            let (text, over) = if orders.once {
                (shared.name.clone(), SPREAD_ONCE)
            } else {
                (
                    format!("{} {} {}", shared.name, task.peer, task.work),
                    orders.works[task.work].every.min(SPREAD).min(orders.half()),
                )
            };
            let share = spread::hash(&text) as f64 / u64::MAX as f64;
            Reverse((now + over.mul_f64(share), number))
        };
        let waiting: BinaryHeap<_> = orders.tasks.iter().enumerate().map(due).collect();
        let workers = orders.per_host.min(shared.own.at_once).max(1).min(waiting.len());
        let before = shared.seq.get();
        shared.unsent.borrow_mut().begin(&shared.name, shared.epoch, before, &orders.plan);
        let doing = Rc::new(Doing {
            shared: Rc::clone(shared),
            before,
            orders,
            waiting: RefCell::new(waiting),
            changed: Notify::new(),
            over: Until::default(),
            here: RwLock::new(()),
            peers: RefCell::default(),
            asked: RefCell::default(),
            away: Cell::new(None),
            count: Cell::new(0),
            refused,
        });
        let workers = (0..workers).map(|_| spawn_local(Rc::clone(&doing).work())).collect();
        Self { doing, workers, until }
    }

    /// Says that the server is there: from its next absence on leases are not known again.
    pub(super) fn is_back(&self) {
        self.doing.away.set(None);
    }

    /// Ends what is being measured, and says that nothing more comes.
    pub(super) async fn close(self) {
        self.doing.over.set();
        for worker in self.workers {
            // One that panicked has ended as well.
            let _ = worker.await;
        }
        let now = unix_ns();
        self.doing.shared.report(self.doing.before, &self.doing.orders.plan, Found::Closed, [now, now]);
    }
}

impl Doing {
    async fn work(self: Rc<Self>) {
        while let Some((due, number)) = self.next().await {
            let next = self.one(number).await;
            // Tasks that take no time, such as those that are refused, leave the agent time for all else. Those that
            // wait for their first turn keep their order, which they would not if this stood before it.
            yield_now().await;
            let again = match next {
                Next::Later(after) => Instant::now() + after,
                Next::Done if self.orders.once => continue,
                Next::Done => {
                    let every = self.orders.works[self.orders.tasks[number].work].every.max(LEAST_EVERY);
                    // What is late leaves out what it missed.
                    (due + every).max(Instant::now())
                }
            };
            self.waiting.borrow_mut().push(Reverse((again, number)));
            self.changed.notify_waiters();
        }
    }

    /// The next task, when it is due; `None` when it is over.
    async fn next(&self) -> Option<(Instant, usize)> {
        while !self.over.is_set() {
            let changed = self.changed.notified();
            let first = self.waiting.borrow().peek().map(|Reverse((due, _))| *due);
            match first {
                Some(due) if due <= Instant::now() => {
                    return self.waiting.borrow_mut().pop().map(|Reverse(found)| found);
                }
                Some(due) => tokio::select! {
                    () = sleep_until(due) => {}
                    () = changed => {}
                    () = self.over.reached() => {}
                },
                None => tokio::select! {
                    () = changed => {}
                    () = self.over.reached() => {}
                },
            }
        }
        None
    }

    /// Says what came of a task that measured nothing. That is as well said later, so no result is dropped for it.
    async fn say(&self, found: Found, begin: u64) -> Next {
        while !self.shared.unsent.borrow().has_room() {
            if self.over.is_set() {
                return Next::Done;
            }
            if self.shared.store.is_away() {
                return Next::Later(AWAY);
            }
            sleep(ROOM).await;
        }
        self.shared.tally.not_begun(&found);
        self.shared.report(self.before, &self.orders.plan, found, [begin, unix_ns()]);
        Next::Done
    }

    async fn one(&self, at: usize) -> Next {
        let (shared, task) = (&*self.shared, &self.orders.tasks[at]);
        let work = &self.orders.works[task.work];
        let period = task.look_us.map(Duration::from_micros);
        let (number, peer, look) = (task.work, task.peer.clone(), period.is_some());
        let begin = unix_ns();
        let rate = period.map(|period| 1.0 / period.as_secs_f64());
        if let Some(why) = self.refused.clone().or_else(|| shared.own.refuses(work, rate, minutes(begin))) {
            return self.say(Found::Refused { work: number, peer, look, why }, begin).await;
        }
        let member = match self.peer(&peer).await {
            Ok(Some(member)) => member,
            Ok(None) => {
                let why = format!("no agent called {peer} is there");
                return self.say(Found::Failed { work: number, peer, look, why }, begin).await;
            }
            Err(()) => return Next::Later(AWAY),
        };
        if !shared.own.may_ask(&member.address) {
            let why = format!("its address {} is in none of the networks that this agent asks", member.address);
            return self.say(Found::Refused { work: number, peer, look, why }, begin).await;
        }
        let Some(port) = member.port(work.transport) else {
            let why = format!("its server does not listen on {}", work.transport.name());
            return self.say(Found::Failed { work: number, peer, look, why }, begin).await;
        };
        // So much to one peer is not so much from each of several works.
        let _asking = match shared.own.max_rate.map(|_| Asking::begin(&self.asked, &member.address)) {
            Some(None) => return Next::Later(self.some_time()),
            Some(asking) => asking,
            None => None,
        };
        let is_alone = look || work.alone_on_host || work.alone_in_rack;
        let mut lease = None;
        if is_alone {
            match Lease::take(&shared.store, &self.keys(task), self.holder(at)).await {
                Ok(Some(taken)) => lease = Some(taken),
                Ok(None) => return Next::Later(self.some_time()),
                Err(_) => return Next::Later(AWAY),
            }
        } else if self.orders.has_leases {
            match self.is_leased(task).await {
                Ok(false) => {}
                Ok(true) => return Next::Later(self.some_time()),
                Err(()) => return Next::Later(AWAY),
            }
        }
        let measurement = Measurement {
            taut: shared.taut.clone(),
            number,
            work: work.clone(),
            peer: peer.clone(),
            endpoint: task::endpoint(work.transport, &member.address, port),
            period,
            most: shared.own.max_time,
            patience: self.orders.patience(),
        };
        let is_begun = Cell::new(false);
        let found = self.measured(measurement, is_alone, lease.as_mut(), &is_begun).await;
        if let Some(lease) = lease {
            lease.give_back().await;
        }
        match (is_begun.get(), found.as_ref().map(|(found, _)| found)) {
            (true, found) => shared.tally.ended(work, found),
            (false, Some(found)) => shared.tally.not_begun(found),
            (false, None) => {}
        }
        // Without one the plan is over.
        if let Some((found, times)) = found {
            if matches!(found, Found::Failed { .. }) {
                // It may be elsewhere now.
                self.peers.borrow_mut().remove(&peer);
            }
            shared.report(self.before, &self.orders.plan, found, times);
        }
        Next::Done
    }

    /// Measures while nothing that is alone does so here, and as long as its leases hold.
    async fn measured(
        &self,
        measurement: Measurement,
        is_alone: bool,
        lease: Option<&mut Lease>,
        is_begun: &Cell<bool>,
    ) -> Option<(Found, [u64; 2])> {
        let stop = Until::default();
        let stopped = stop.clone();
        let (work, peer, look) = (measurement.number, measurement.peer.clone(), measurement.period.is_some());
        let (deadline, of) = (lease.as_ref().map(|lease| lease.deadline()), peer.clone());
        let measured = async {
            let (_alone, _beside) =
                if is_alone { (Some(self.here.write().await), None) } else { (None, Some(self.here.read().await)) };
            if stopped.is_set() {
                return None;
            }
            let begin = unix_ns();
            // It may have waited for long.
            if let Some(why) = self.shared.own.rests(minutes(begin)) {
                return Some((Found::Refused { work, peer: of.clone(), look, why }, [begin, begin]));
            }
            is_begun.set(true);
            self.shared.tally.begun();
            let found = spawn_blocking(move || measurement.run(stopped.flag(), deadline.as_ref())).await;
            let found = found.unwrap_or_else(|error| {
                let why = format!("what waited for it has ended: {error}");
                Some(Found::Failed { work, peer: of.clone(), look, why })
            });
            found.map(|found| (found, [begin, unix_ns()]))
        };
        tokio::pin!(measured);
        let lost = tokio::select! {
            found = &mut measured => return found,
            lost = kept(lease) => Some(lost),
            () = self.over.reached() => None,
        };
        let begin = unix_ns();
        stop.set();
        let found = measured.await;
        match (found, lost) {
            // It was not alone.
            (Some((found, times)), Some(Lost { why, has_other: true })) => Some((found.failed(why), times)),
            // It was over in time all the same.
            (Some(found), _) => Some(found),
            (None, None) => None,
            (None, Some(Lost { why, .. })) => Some((Found::Failed { work, peer, look, why }, [begin, unix_ns()])),
        }
    }

    /// Where a peer is; an error where that can't be known now.
    async fn peer(&self, name: &str) -> Result<Option<Member>, ()> {
        let known = self.peers.borrow().get(name).cloned();
        if let Some((member, _)) = known.as_ref().filter(|(_, at)| at.elapsed() < KNOWN) {
            return Ok(Some(member.clone()));
        }
        match self.shared.store.member(name).await {
            Ok(Some((member, _))) => {
                self.peers.borrow_mut().insert(name.to_owned(), (member.clone(), Instant::now()));
                Ok(Some(member))
            }
            Ok(None) => Ok(None),
            // Measuring goes on while the server is away.
            Err(_) => known.map(|(member, _)| Some(member)).ok_or(()),
        }
    }

    fn keys(&self, task: &Task) -> Vec<String> {
        lease::keys([&self.shared.name, &task.peer], &task.racks)
    }

    /// Whether somebody is alone at one of its ends; an error where that can't be known now. Leases that nobody can
    /// have prolonged are over.
    async fn is_leased(&self, task: &Task) -> Result<bool, ()> {
        let store = &self.shared.store;
        for key in self.keys(task) {
            let found = if store.is_away() { Err(()) } else { store.lease(&key).await.map_err(drop) };
            match found {
                Ok(found) => {
                    self.away.set(None);
                    if found.is_some() {
                        return Ok(true);
                    }
                }
                Err(()) => {
                    let since = self.away.get().unwrap_or_else(Instant::now);
                    self.away.set(Some(since));
                    return if since.elapsed() < LEASE_AGE { Err(()) } else { Ok(false) };
                }
            }
        }
        Ok(false)
    }

    fn number(&self) -> u64 {
        self.count.set(self.count.get() + 1);
        self.count.get()
    }

    /// The same for each attempt of a task: what an earlier one got without hearing of it is its own.
    fn holder(&self, at: usize) -> Vec<u8> {
        let Shared { name, epoch, .. } = &*self.shared;
        written(&serde_json::json!({
            "holder": name, "epoch": epoch, "plan": self.orders.plan, "task": at,
        }))
    }

    /// Different for each agent and attempt, so that those who wait for one host don't stay in step.
    fn some_time(&self) -> Duration {
        let share = spread::mix(spread::hash(&self.shared.name) ^ self.number()) as f64 / u64::MAX as f64;
        TRY_AGAIN.mul_f64(1.0 + share)
    }
}

/// Prolongs a lease until that is no longer possible, and says why. Without one it never ends.
async fn kept(lease: Option<&mut Lease>) -> Lost {
    let Some(lease) = lease else { return std::future::pending().await };
    let mut wait = PROLONG;
    loop {
        sleep(wait.min(lease.until().saturating_duration_since(Instant::now()))).await;
        let why = match timeout_at(lease.until(), lease.prolong()).await {
            Ok(Ok(true)) => {
                wait = PROLONG;
                continue;
            }
            Ok(Ok(false)) => return Lost { why: "its lease is another's".to_owned(), has_other: true },
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        // As long as there is time, each moment may be the one in which the server is back.
        wait = AWAY;
        if Instant::now() >= lease.until() {
            let why = format!("its lease could not be prolonged ({why}), so it was ended before others may begin");
            return Lost { why, has_other: false };
        }
    }
}

/// Minutes of the day in UTC.
fn minutes(unix_ns: u64) -> u32 {
    u32::try_from(unix_ns / 60_000_000_000 % 1440).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_asked_once_at_a_time() {
        let asked = RefCell::default();
        let first = Asking::begin(&asked, "10.0.0.1");
        assert!(first.is_some() && Asking::begin(&asked, "10.0.0.1").is_none());
        assert!(Asking::begin(&asked, "10.0.0.2").is_some());
        drop(first);
        assert!(Asking::begin(&asked, "10.0.0.1").is_some());
    }

    #[test]
    fn what_the_server_never_takes_is_said_instead() {
        let found = Found::Failed { work: 0, peer: "b".to_owned(), look: false, why: "x".repeat(5000) };
        let report = Report::new("a", 1, 2, 0, "p", found);
        assert!(fitting(&report, 10_000).is_none());
        let fits = fitting(&report, 1000).unwrap();
        assert!(written(&fits).len() < 1000 && fits.id() == report.id());
    }
}
