//! An agent: says that it is there, does what its orders say within its own limits, and hands over what it finds.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::{Client, Event, Subscriber};
use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, LocalSet, spawn_blocking, spawn_local};
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};

use super::greeting::sound;
use super::message::{Member, Orders, check_labels, unix_ns, written};
use super::orders::{InForce, Shared, fitting};
use super::own::Own;
use super::servers::Servers;
use super::store::{Changed, Store};
use super::tally::AgentTally;
use super::unsent::{MOST_UNSENT, Unsent};
use super::until::Until;
use crate::error::Error;
use crate::host::Host;
use crate::process::{Running, Waited};
use crate::reply::listening;
use crate::work::Transport;
use crate::{spread, task};

/// What an agent is.
#[derive(Debug)]
pub struct AgentSettings<'a> {
    /// Where it gets its orders.
    pub on: &'a Servers,
    /// Its name, its address for the others, and its labels.
    pub host: Host,
    /// Where its server listens; 0 for ports that are free.
    pub port: u16,
    /// What it does not do, whatever its orders say.
    pub own: Own,
    /// The program that measures and answers.
    pub taut: &'a str,
    /// Its version.
    pub version: &'a str,
    /// Where results are kept until they are sent, for the next start.
    pub state: Option<&'a Path>,
    /// Where it counts what it does.
    pub tally: &'a Arc<AgentTally>,
    /// Set when it is to end.
    pub stop: &'a AtomicBool,
}

/// Why an agent ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AgentEnded {
    /// It was told to.
    Stopped,
    /// Another agent of its name has begun, in these words. Starting this one again would end that one.
    Replaced(String),
}

/// How often it says that it is there.
const BEAT: Duration = Duration::from_secs(30);
/// From one attempt to reach a server or to start its own to the next.
const AGAIN: Duration = Duration::from_secs(2);
/// How often it looks whether it is to end, and whether its server has.
const LOOK: Duration = Duration::from_millis(500);
/// Between two looks at its orders, however many hints come.
const LEAST_BETWEEN: Duration = Duration::from_millis(200);
/// For its server to listen.
const START: Duration = Duration::from_secs(20);
/// At its end, to send what it has.
const LAST: Duration = Duration::from_secs(3);
/// Events that wait to be told.
const MOST_EVENTS: usize = 16;

type Tell<'a> = dyn Fn(&str) + 'a;

/// Runs an agent until it is stopped. What it has to say comes in sentences.
///
/// # Errors
/// Where its server can't listen, or its state can't be read or is another agent's. A NATS server that is not there is
/// waited for.
pub fn agent(settings: AgentSettings<'_>, tell: &Tell<'_>) -> Result<AgentEnded, Error> {
    check_labels(&settings.host.labels)?;
    let unsent = Unsent::open(settings.state)?;
    let server = serve(&settings, settings.stop)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::new(format!("no runtime: {error}")))?;
    let done = LocalSet::new().block_on(&runtime, live(&settings, tell, unsent, server));
    // What waits in a thread has been told to end.
    runtime.shutdown_timeout(LAST);
    done
}

/// Its server, and where that listens.
struct Serving {
    running: Running,
    ports: Vec<(Transport, u16)>,
}

fn serve(settings: &AgentSettings<'_>, stop: &AtomicBool) -> Result<Serving, Error> {
    start(settings.taut, SocketAddr::new(settings.host.listen, settings.port), stop)
}

fn start(taut: &str, at: SocketAddr, stop: &AtomicBool) -> Result<Serving, Error> {
    let words = task::server(&[Transport::Udp, Transport::Tcp], at);
    let words: Vec<String> = [taut.to_owned()].into_iter().chain(words).collect();
    let wrong = |why: &dyn std::fmt::Display| Error::new(format!("no server at {at}: {why}"));
    let mut running = Running::start(&words, Stdio::piped()).map_err(|error| wrong(&error))?;
    match running.wait_for_line(START, stop, listening).map_err(|error| wrong(&error))? {
        Waited::Done(Some(ports)) => Ok(Serving { running, ports }),
        Waited::Done(None) => Err(wrong(&running.last_words())),
        Waited::TooLong => Err(wrong(&format!("it does not listen within {START:?}"))),
        Waited::Stopped => Err(wrong(&"interrupted")),
    }
}

/// Waits so long, or until it is stopped.
async fn pause(time: Duration, stop: &AtomicBool) {
    let _ = timeout(time, stopped(stop)).await;
}

/// Waits until it is stopped.
async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        sleep(LOOK).await;
    }
}

/// Connects, however long that takes; `None` where it is stopped before.
pub(super) async fn connect(
    on: &Servers,
    name: &str,
    events: &mpsc::Sender<Event>,
    stop: &AtomicBool,
    tell: &Tell<'_>,
) -> Result<Option<(Client, Store)>, Error> {
    let mut told = String::new();
    while !stop.load(Ordering::Relaxed) {
        let events = events.clone();
        let options = on.options(name)?.event_callback(move |event| {
            // Who is told nothing for so long need not know all; each attempt in vain is an event, too.
            if matches!(event, Event::Connected | Event::Disconnected) {
                let _ = events.try_send(event);
            }
            std::future::ready(())
        });
        let attempt = async {
            match sound(on.addresses()).await {
                Ok(addresses) => match options.connect(addresses.as_slice()).await {
                    Ok(client) => Store::open(client.clone()).await.map(|store| (client, store)),
                    Err(error) => Err(Error::new(format!("no NATS server at {on}: {}", causes(&error)))),
                },
                Err(error) => Err(Error::new(format!("no NATS server at {on}: {error}"))),
            }
        };
        // One that is silent has so long for each step that nobody would wait for that.
        let found = tokio::select! {
            found = attempt => found,
            () = stopped(stop) => break,
        };
        let why = match found {
            Ok(found) => return Ok(Some(found)),
            Err(error) => error.to_string(),
        };
        if told != why {
            tell(&format!("{why}; trying again every {AGAIN:?}"));
            told = why;
        }
        pause(AGAIN, stop).await;
    }
    Ok(None)
}

/// An error with what caused it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

async fn live(
    settings: &AgentSettings<'_>,
    tell: &Tell<'_>,
    unsent: Unsent,
    server: Serving,
) -> Result<AgentEnded, Error> {
    let (sender, events) = mpsc::channel(MOST_EVENTS);
    let name = settings.host.name.clone();
    let connected = connect(settings.on, &name, &sender, settings.stop, tell).await?;
    let Some((client, store)) = connected else { return Ok(AgentEnded::Stopped) };
    // The client has the last one: when that is gone, so is what keeps the connection.
    drop(sender);
    // A clock that was set back does not make this the earlier life.
    let other = store.member(&name).await.ok().flatten().map_or(0, |(member, _)| member.epoch);
    let shared = Rc::new(Shared {
        store,
        name: name.clone(),
        epoch: unix_ns().max(other.saturating_add(1)),
        own: settings.own.clone(),
        taut: settings.taut.to_owned(),
        seq: Cell::new(0),
        unsent: RefCell::new(unsent),
        more: Notify::new(),
        tally: Arc::clone(settings.tally),
    });
    shared.tally.connected(true);
    // An earlier life may have left some.
    shared.tally.queue(&shared.unsent.borrow());
    let hints = shared.store.hints(&name).await?;
    let at = settings.host.address.as_str();
    tell(&format!("agent {name} at {at} {} is on {}", ports(&server.ports), settings.on));
    let sending = spawn_local(send(Rc::clone(&shared)));
    let mut life = Life {
        settings,
        tell,
        shared,
        client,
        server,
        restart: None,
        ending: Until::default(),
        revision: None,
        orders_at: None,
        in_force: None,
    };
    let ended = life.run(hints, events).await;
    life.end().await;
    sending.abort();
    ended
}

fn ports(ports: &[(Transport, u16)]) -> String {
    ports.iter().map(|(transport, port)| format!("{} {port}", transport.name())).collect::<Vec<_>>().join(", ")
}

/// Sends what there is in its order, one after another.
async fn send(shared: Rc<Shared>) {
    loop {
        let first = shared.unsent.borrow().first().map(|report| {
            // It may be another server than when it was made.
            let fits = fitting(report, shared.store.longest_report());
            (report.agent.clone(), report.id(), written(fits.as_ref().unwrap_or(report)))
        });
        let Some((agent, id, bytes)) = first else {
            shared.more.notified().await;
            continue;
        };
        match shared.store.report(&agent, &id, bytes).await {
            Ok(()) => {
                if shared.unsent.borrow_mut().sent(&id) {
                    shared.tally.taken();
                }
                shared.tally.queue(&shared.unsent.borrow());
            }
            Err(_) => sleep(AGAIN / 2).await,
        }
    }
}

struct Life<'a> {
    settings: &'a AgentSettings<'a>,
    tell: &'a Tell<'a>,
    shared: Rc<Shared>,
    client: Client,
    server: Serving,
    /// Of a server that has ended.
    restart: Option<Restart>,
    /// Set at its end.
    ending: Until,
    /// Of what it says of itself.
    revision: Option<u64>,
    /// Of its orders.
    orders_at: Option<u64>,
    in_force: Option<InForce>,
}

/// How far the next start of a server is.
enum Restart {
    At(Instant),
    Begun(JoinHandle<Result<Serving, Error>>),
}

impl Life<'_> {
    async fn run(&mut self, mut hints: Subscriber, mut events: mpsc::Receiver<Event>) -> Result<AgentEnded, Error> {
        let mut look = interval(LOOK);
        // All agents that start at once say so at once, but not again.
        let offset = BEAT.mul_f64(spread::hash(&self.shared.name) as f64 / u64::MAX as f64);
        let mut next_beat = Instant::now() + offset;
        let (mut read_at, mut is_new, mut is_away) = (Instant::now(), true, false);
        if let Some(why) = self.beat().await {
            return Ok(AgentEnded::Replaced(why));
        }
        loop {
            let over = self.in_force.as_ref().and_then(|in_force| in_force.until);
            let over = async {
                match over {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = look.tick() => {}
                Some(_) = hints.next() => is_new = true,
                () = over => {
                    (self.tell)("the plan is over: its time is up");
                    self.close().await;
                }
                event = events.recv() => match event {
                    None => return Err(Error::new("the client of NATS has broken down: start the agent again")),
                    Some(Event::Disconnected) if !is_away => {
                        is_away = true;
                        self.shared.tally.connected(false);
                        let text = "measuring goes on, and the last results are kept";
                        (self.tell)(&format!("the NATS server is away; {text}, up to {MOST_UNSENT}"));
                    }
                    Some(Event::Connected) if is_away => {
                        (self.tell)(&format!("the NATS server is back; {} results to send", self.shared.unsent.borrow().len()));
                        (is_away, is_new) = (false, true);
                        self.shared.tally.connected(true);
                        self.reopen().await;
                        self.in_force.iter().for_each(InForce::is_back);
                        next_beat = Instant::now();
                    }
                    Some(_) => {}
                },
            }
            if self.settings.stop.load(Ordering::Relaxed) {
                return Ok(AgentEnded::Stopped);
            }
            let is_served = self.watch_server().await;
            if is_served || Instant::now() >= next_beat {
                next_beat = Instant::now() + BEAT;
                if let Some(why) = self.beat().await {
                    return Ok(AgentEnded::Replaced(why));
                }
                is_new = true;
            }
            if is_new && read_at <= Instant::now() {
                is_new = false;
                read_at = Instant::now() + LEAST_BETWEEN;
                self.read_orders().await;
            }
        }
    }

    /// What a server that lost its disk has to be told again.
    async fn reopen(&self) {
        if let Err(error) = Store::open(self.client.clone()).await {
            (self.tell)(&error.to_string());
        }
    }

    /// Says that it is there, and returns why it is to end. That nobody hears it is no reason to.
    async fn beat(&mut self) -> Option<String> {
        let Shared { store, epoch, name, .. } = &*self.shared;
        let member = Member::new(&self.settings.host, &self.server.ports, self.settings.version, *epoch);
        let Ok(told) = store.tell_member(&member, self.revision).await else { return None };
        let told = match told {
            Changed::Done(revision) => Ok(Changed::Done(revision)),
            // Another life of this name, or what it said has aged out.
            Changed::Taken => match store.member(name).await {
                Ok(Some((other, _))) if other.epoch > *epoch => {
                    let text = "each needs a name of its own (--name)";
                    return Some(format!("another agent called {name} has begun: {text}"));
                }
                Ok(Some((other, revision))) if other.epoch == *epoch => {
                    store.tell_member(&member, Some(revision)).await
                }
                _ => store.tell_member(&member, None).await,
            },
        };
        if let Ok(Changed::Done(revision)) = told {
            self.revision = Some(revision);
        }
        None
    }

    async fn read_orders(&mut self) {
        let Ok(found) = self.shared.store.orders(&self.shared.name).await else { return };
        let revision = found.as_ref().map(|value| value.revision);
        if revision == self.orders_at {
            return;
        }
        self.orders_at = revision;
        self.close().await;
        let Some(value) = found else {
            (self.tell)("there is nothing to do");
            return;
        };
        match Orders::parse(&value.bytes) {
            Ok(orders) if orders.is_stale(unix_ns() / 1_000_000_000) => {
                let ago = Duration::from_secs((unix_ns() / 1_000_000_000).saturating_sub(orders.written_unix_s));
                let text = format!("plan {} is of long ago, {ago:?} by this host's clock", orders.plan);
                (self.tell)(&format!("{text}: nobody waits for it, or the clock is wrong"));
                // Who waits for it all the same is told so.
                let why = format!("the plan is {ago:?} old by the clock of this host, which may be wrong");
                self.in_force = Some(InForce::begin(&self.shared, orders, Some(why)));
            }
            Ok(orders) => {
                let (plan, tasks) = (&orders.plan, orders.tasks.len());
                (self.tell)(&format!(
                    "plan {plan}: {tasks} measurements{}",
                    if orders.once { "" } else { " again and again" }
                ));
                self.in_force = Some(InForce::begin(&self.shared, orders, None));
            }
            Err(error) => (self.tell)(&format!("what stands in taut_plan is refused: {error}")),
        }
    }

    async fn close(&mut self) {
        if let Some(in_force) = self.in_force.take() {
            in_force.close().await;
        }
    }

    /// Starts its server again where it has ended, an attempt after another, while all else goes on. Whether it listens
    /// elsewhere now.
    async fn watch_server(&mut self) -> bool {
        match self.restart.take() {
            None => {
                self.server.running.end_if_too_loud();
                if let Some(end) = self.server.running.end() {
                    let why = end.err().unwrap_or_else(|| "with code 0".to_owned());
                    (self.tell)(&format!("its server has ended ({why}), and is started again"));
                    self.restart = Some(Restart::At(Instant::now() + AGAIN));
                }
            }
            Some(Restart::At(at)) if at <= Instant::now() => {
                let at = SocketAddr::new(self.settings.host.listen, self.settings.port);
                let (taut, ending) = (self.settings.taut.to_owned(), self.ending.clone());
                self.restart = Some(Restart::Begun(spawn_blocking(move || start(&taut, at, ending.flag()))));
            }
            Some(Restart::Begun(begun)) if begun.is_finished() => match begun.await {
                Ok(Ok(serving)) => {
                    self.server = serving;
                    return true;
                }
                failed => {
                    if let Ok(Err(error)) = failed {
                        (self.tell)(&error.to_string());
                    }
                    self.restart = Some(Restart::At(Instant::now() + AGAIN));
                }
            },
            waits => self.restart = waits,
        }
        false
    }

    /// Ends what it does, sends what it has, and says that it is gone.
    async fn end(&mut self) {
        self.ending.set();
        self.close().await;
        let all = async {
            while self.shared.unsent.borrow().first().is_some() {
                sleep(LOOK / 25).await;
            }
            // Not that of another life.
            if self.revision.is_some() && self.is_last().await {
                let _ = self.shared.store.remove_member(&self.shared.name).await;
            }
            let _ = self.client.flush().await;
        };
        let _ = timeout(LAST, all).await;
        let left = self.shared.unsent.borrow().len();
        if left > 0 {
            let kept = if self.settings.state.is_some() { "are kept for the next start" } else { "are lost" };
            (self.tell)(&format!("{left} results could not be sent and {kept}"));
        }
    }

    async fn is_last(&self) -> bool {
        let Shared { store, name, epoch, .. } = &*self.shared;
        matches!(store.member(name).await, Ok(Some((member, _))) if member.epoch == *epoch)
    }
}
