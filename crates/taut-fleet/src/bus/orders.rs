//! What an agent does while a plan is in force.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{Notify, RwLock};
use tokio::task::{JoinHandle, spawn_blocking, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::lease::{self, Lease, PROLONG};
use super::measure::Measurement;
use super::message::{Found, LONGEST_REPORT, Member, Orders, Report, Task, unix_ns, written};
use super::own::Own;
use super::store::Store;
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
}

impl Shared {
    fn report(&self, before: u64, plan: &str, found: Found, times: [u64; 2]) {
        self.seq.set(self.seq.get() + 1);
        let [begin_unix_ns, end_unix_ns] = times;
        let report = Report::new(&self.name, self.epoch, self.seq.get(), before, plan, found);
        let mut report = Report { begin_unix_ns, end_unix_ns, ..report };
        // What the server never takes would be in the way of all others.
        let (bytes, most) = (written(&report).len(), self.store.longest().min(LONGEST_REPORT));
        if bytes > most {
            report.found =
                report.found.failed(format!("its result is {bytes} bytes, and the NATS server takes {most}"));
        }
        self.unsent.borrow_mut().push(report);
        self.more.notify_one();
    }
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
    /// Different each time, for who holds a lease and for what is tried again.
    count: Cell<u64>,
}

/// What becomes of a task.
enum Next {
    Done,
    Later(Duration),
}

impl InForce {
    pub(super) fn begin(shared: &Rc<Shared>, orders: Orders) -> Self {
        let now = Instant::now();
        let until = now.checked_add(Duration::from_secs(orders.seconds));
        let due = |(number, task): (usize, &Task)| {
            let (text, over) = if orders.once {
                (shared.name.clone(), SPREAD_ONCE)
            } else {
                (format!("{} {} {}", shared.name, task.peer, task.work), orders.works[task.work].every.min(SPREAD))
            };
            let share = spread::hash(&text) as f64 / u64::MAX as f64;
            Reverse((now + over.mul_f64(share), number))
        };
        let waiting: BinaryHeap<_> = orders.tasks.iter().enumerate().map(due).collect();
        let workers = orders.per_host.min(shared.own.at_once).max(1).min(waiting.len());
        let doing = Rc::new(Doing {
            shared: Rc::clone(shared),
            before: shared.seq.get(),
            orders,
            waiting: RefCell::new(waiting),
            changed: Notify::new(),
            over: Until::default(),
            here: RwLock::new(()),
            peers: RefCell::default(),
            count: Cell::new(0),
        });
        let workers = (0..workers).map(|_| spawn_local(Rc::clone(&doing).work())).collect();
        Self { doing, workers, until }
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
            let again = match self.one(&self.orders.tasks[number]).await {
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

    fn say(&self, found: Found, begin: u64) -> Next {
        self.shared.report(self.before, &self.orders.plan, found, [begin, unix_ns()]);
        Next::Done
    }

    async fn one(&self, task: &Task) -> Next {
        let shared = &*self.shared;
        let work = &self.orders.works[task.work];
        let period = task.look_us.map(Duration::from_micros);
        let (number, peer, look) = (task.work, task.peer.clone(), period.is_some());
        let begin = unix_ns();
        let minutes = u32::try_from(begin / 60_000_000_000 % 1440).unwrap_or(0);
        if let Some(why) = shared.own.refuses(work, period.map(|period| 1.0 / period.as_secs_f64()), minutes) {
            return self.say(Found::Refused { work: number, peer, look, why }, begin);
        }
        let member = match self.peer(&peer).await {
            Ok(Some(member)) => member,
            Ok(None) => {
                let why = format!("no agent called {peer} is there");
                return self.say(Found::Failed { work: number, peer, look, why }, begin);
            }
            Err(()) => return Next::Later(AWAY),
        };
        if !shared.own.may_ask(&member.address) {
            let why = format!("its address {} is in none of the networks that this agent asks", member.address);
            return self.say(Found::Refused { work: number, peer, look, why }, begin);
        }
        let Some(port) = member.port(work.transport) else {
            let why = format!("its server does not listen on {}", work.transport.name());
            return self.say(Found::Failed { work: number, peer, look, why }, begin);
        };
        let is_alone = look || work.alone_on_host || work.alone_in_rack;
        let mut lease = None;
        if is_alone {
            match Lease::take(&shared.store, &self.keys(task), self.holder()).await {
                Ok(Some(taken)) => lease = Some(taken),
                Ok(None) => return Next::Later(self.some_time()),
                Err(_) => return Next::Later(AWAY),
            }
        } else if self.orders.has_leases && self.is_leased(task).await {
            return Next::Later(self.some_time());
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
        let found = self.measured(measurement, is_alone, lease.as_mut()).await;
        if let Some(lease) = lease {
            lease.give_back().await;
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
    ) -> Option<(Found, [u64; 2])> {
        let stop = Until::default();
        let stopped = stop.clone();
        let (work, peer, look) = (measurement.number, measurement.peer.clone(), measurement.period.is_some());
        let measured = async {
            let (_alone, _beside) =
                if is_alone { (Some(self.here.write().await), None) } else { (None, Some(self.here.read().await)) };
            if stopped.is_set() {
                return None;
            }
            let begin = unix_ns();
            let found = spawn_blocking(move || measurement.run(stopped.flag())).await.ok().flatten();
            found.map(|found| (found, [begin, unix_ns()]))
        };
        tokio::pin!(measured);
        let lost = tokio::select! {
            found = &mut measured => return found,
            why = kept(lease) => Some(why),
            () = self.over.reached() => None,
        };
        let begin = unix_ns();
        stop.set();
        let found = measured.await;
        match (found, lost) {
            // It was over in time all the same.
            (Some(found), _) => Some(found),
            (None, None) => None,
            (None, Some(why)) => Some((Found::Failed { work, peer, look, why }, [begin, unix_ns()])),
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

    async fn is_leased(&self, task: &Task) -> bool {
        for key in self.keys(task) {
            if let Ok(Some(_)) = self.shared.store.lease(&key).await {
                return true;
            }
        }
        false
    }

    fn number(&self) -> u64 {
        self.count.set(self.count.get() + 1);
        self.count.get()
    }

    fn holder(&self) -> Vec<u8> {
        let Shared { name, epoch, .. } = &*self.shared;
        written(&serde_json::json!({
            "holder": name, "epoch": epoch, "plan": self.orders.plan, "number": self.number(),
        }))
    }

    /// Different for each agent and attempt, so that those who wait for one host don't stay in step.
    fn some_time(&self) -> Duration {
        let share = spread::mix(spread::hash(&self.shared.name) ^ self.number()) as f64 / u64::MAX as f64;
        TRY_AGAIN.mul_f64(1.0 + share)
    }
}

/// Prolongs a lease until that is no longer possible, and says why. Without one it never ends.
async fn kept(lease: Option<&mut Lease>) -> String {
    let Some(lease) = lease else { return std::future::pending().await };
    loop {
        sleep(PROLONG.min(lease.until().saturating_duration_since(Instant::now()))).await;
        let why = match timeout_at(lease.until(), lease.prolong()).await {
            Ok(Ok(true)) => continue,
            Ok(Ok(false)) => return "its lease is another's".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        sleep(AWAY.min(lease.until().saturating_duration_since(Instant::now()))).await;
        if Instant::now() >= lease.until() {
            return format!("its lease could not be prolonged ({why}), so it was ended before others may begin");
        }
    }
}
