//! One round: threads that take turns at episodes, disturbed by signals, forks and each other,
//! until so many requests were submitted; then everything is wound up and counted.

use std::ffi::c_int;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::append::Append;
use super::crowd::Crowd;
use super::file::File;
use super::ledger::{self, Notify, Ticket};
use super::lost::Lost;
use super::memory::Block;
use super::message::Messages;
use super::operation::{ListTicket, Operation};
use super::race::Race;
use super::random::Random;
use super::stream::Stream;
use super::{Config, cancellation, disturb, leap, raised, takers};

/// No request completes for so long: something is lost. Sanitizers and a busy machine take their time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who takes the results.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reap {
    /// The owner, by `aio_error` and `aio_return`.
    Return,
    /// Threads in `aio_waitcomplete`.
    Wait,
    /// Both, racing. Requests then stay until the round is over.
    Mixed,
}

/// Some requests on something, with a model of what they must do.
pub(crate) trait Episode: Send {
    /// One thing at random.
    fn step(&mut self, context: &mut Context<'_>);
    /// Whether there is nothing more to be done but to [wind up](Self::wind_up).
    fn is_over(&self) -> bool;
    /// Comes to the end at once.
    fn wind_up(&mut self, context: &mut Context<'_>);
    /// What is in flight.
    fn describe(&self) -> String;
}

/// What an episode's thread knows.
pub(crate) struct Context<'a> {
    pub(crate) random: Random,
    pub(crate) reap: Reap,
    pub(crate) directory: &'a Path,
    pub(crate) submitted: &'a AtomicU64,
    pub(crate) completed: &'a AtomicU64,
    /// Requests that were taken and must stay.
    pub(crate) kept: Vec<(Block, Ticket)>,
    /// Lists whose notification is to come, with the requests that it looks at.
    pub(crate) watched: Vec<(Arc<ListTicket>, Option<Block>)>,
    /// This thread, for signals; none when it ends before they come.
    thread: Option<c_int>,
    /// Percent of requests that notify.
    notifies: usize,
    /// Whether signals may have handlers.
    handlers: bool,
    is_stuck: &'a AtomicBool,
}

impl<'a> Context<'a> {
    /// For a thread that ends before its requests do.
    pub(crate) fn of_short_life(&mut self) -> Self {
        Self {
            random: Random::new(self.random.next(), 0),
            kept: Vec::new(),
            watched: Vec::new(),
            thread: None,
            ..*self
        }
    }

    /// Takes over what such a thread has left.
    pub(crate) fn take_over(&mut self, other: Self) {
        self.kept.extend(other.kept);
        self.watched.extend(other.watched);
    }

    /// How the next request notifies.
    pub(crate) fn notify(&mut self) -> Notify {
        if !self.random.percent(self.notifies) {
            return Notify::Nothing;
        }
        match (self.random.below(100), self.thread) {
            (0..40, _) if self.handlers => Notify::Handler,
            (75..97, Some(thread)) if self.handlers => Notify::Thread(thread),
            (0..97, _) => Notify::Waited,
            // Its thread has no signals blocked, so it may get those that are waited for.
            _ if !self.handlers => Notify::Waited,
            _ => Notify::Function,
        }
    }

    /// Releases what a notification looked at.
    fn forget_notified(&mut self) {
        self.watched.retain(|(list, _)| !list.ticket.is_notified());
    }

    /// Called while a request isn't complete: ends the process with its description when nothing moves any more.
    pub(crate) fn is_waiting_for(&self, operation: &Operation) {
        assert!(!self.is_stuck.load(Ordering::Relaxed), "lost: {operation:?}");
    }
}

/// What a round is made of.
#[derive(Debug)]
struct Scenario {
    workers: usize,
    places: usize,
    takers: usize,
    reap: Reap,
    notifies: usize,
    has_noise: bool,
    forks: bool,
    cancels_threads: bool,
    leaps: bool,
    operations: u64,
}

impl Scenario {
    fn new(random: &mut Random, config: &Config) -> Self {
        let reap = match random.below(10) {
            0..6 => Reap::Return,
            6..9 => Reap::Wait,
            _ => Reap::Mixed,
        };
        let workers = random.between(1, 5);
        Self {
            workers,
            places: workers * random.between(1, 4),
            takers: if reap == Reap::Return { 0 } else { random.between(1, 2) },
            reap,
            notifies: *random.pick(&[0, 10, 30, 60, 100]),
            has_noise: config.with("handlers") && random.percent(40),
            forks: config.with("forks") && random.percent(25),
            cancels_threads: config.with("cancellation") && random.percent(30),
            leaps: config.with("handlers") && random.percent(30),
            operations: random.between(500, if reap == Reap::Mixed { 8000 } else { 20_000 }) as u64,
        }
    }
}

/// What the threads of a round share.
struct Shared {
    places: Vec<Mutex<Option<Box<dyn Episode>>>>,
    submitted: AtomicU64,
    completed: AtomicU64,
    is_stuck: AtomicBool,
    /// No new episodes.
    stop: AtomicBool,
    /// Workers that have nothing in flight any more.
    idle: AtomicUsize,
    /// Everything was notified; workers may go.
    over: AtomicBool,
    threads: Vec<AtomicI32>,
}

/// Runs the round of a seed. Gives how many requests it submitted.
pub(crate) fn run(seed: u64, config: &Config, directory: &Path) -> u64 {
    let mut random = Random::new(seed, 0);
    let scenario = Scenario::new(&mut random, config);
    if config.verbose {
        println!("round {seed:#018x}: {scenario:?}");
    }
    let shared = Shared {
        places: (0..scenario.places).map(|_| Mutex::new(None)).collect(),
        submitted: AtomicU64::new(0),
        completed: AtomicU64::new(0),
        is_stuck: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        idle: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        threads: (0..scenario.workers).map(|_| AtomicI32::new(0)).collect(),
    };
    if scenario.has_noise {
        raised::set_up(seed);
    }
    thread::scope(|scope| {
        let (shared, scenario) = (&shared, &scenario);
        let receiver = scope.spawn(|| ledger::receive(&shared.over));
        let takers: Vec<_> = (0..scenario.takers)
            .map(|taker| scope.spawn(move || takers::take(Random::new(seed, 200 + taker as u64))))
            .collect();
        let workers: Vec<_> = (0..scenario.workers)
            .map(|worker| scope.spawn(move || work(shared, scenario, config, directory, seed, worker)))
            .collect();
        let noise = scenario
            .has_noise
            .then(|| scope.spawn(|| disturb::make_noise(Random::new(seed, 100), &shared.threads, &shared.over)));
        let forker =
            scenario.forks.then(|| scope.spawn(|| disturb::fork_now_and_then(Random::new(seed, 101), &shared.stop)));
        let canceller = scenario
            .cancels_threads
            .then(|| scope.spawn(|| cancellation::cancel_now_and_then(Random::new(seed, 102), &shared.stop)));
        let leaper =
            scenario.leaps.then(|| scope.spawn(|| leap::leap_now_and_then(Random::new(seed, 103), &shared.stop)));
        supervise(shared, scenario);
        // Signals are taken until now, as workers are still there.
        shared.over.store(true, Ordering::Release);
        let kept: Vec<_> = workers.into_iter().map(|worker| worker.join().expect("checked by the hook")).collect();
        let last = takers::dismiss(takers.len());
        for taker in takers {
            taker.join().expect("checked by the hook");
        }
        drop(last);
        for other in [Some(receiver), noise, forker, canceller, leaper].into_iter().flatten() {
            other.join().expect("checked by the hook");
        }
        raised::put_away();
        takers::assert_nothing_left();
        for (block, ticket) in kept.into_iter().flatten() {
            drop(block);
            ticket.done(true);
        }
    });
    shared.submitted.into_inner()
}

/// Waits until the round has enough, everything in flight is complete and every notification came.
fn supervise(shared: &Shared, scenario: &Scenario) {
    let mut progress = (0, 0, Instant::now());
    loop {
        thread::sleep(Duration::from_millis(2));
        let submitted = shared.submitted.load(Ordering::Relaxed);
        if submitted >= scenario.operations {
            shared.stop.store(true, Ordering::Release);
        }
        let all_idle = shared.idle.load(Ordering::Acquire) == scenario.workers;
        let outstanding = if all_idle { ledger::outstanding() } else { usize::MAX };
        if outstanding == 0 {
            return;
        }
        let now = (shared.completed.load(Ordering::Relaxed), outstanding);
        if now != (progress.0, progress.1) {
            progress = (now.0, now.1, Instant::now());
        } else if progress.2.elapsed() > PATIENCE {
            give_up(shared, all_idle);
        }
    }
}

fn give_up(shared: &Shared, all_idle: bool) {
    assert!(!all_idle, "lost notifications: {}", ledger::describe_outstanding());
    shared.is_stuck.store(true, Ordering::Relaxed);
    thread::sleep(Duration::from_secs(3));
    for place in &shared.places {
        match place.try_lock() {
            Ok(episode) => eprintln!("{}", episode.as_ref().map_or_else(String::new, |episode| episode.describe())),
            Err(_) => eprintln!("an episode whose thread is in a call"),
        }
    }
    panic!("nothing completed for {PATIENCE:?}, and a thread is in a call that doesn't return");
}

fn work(
    shared: &Shared,
    scenario: &Scenario,
    config: &Config,
    directory: &Path,
    seed: u64,
    worker: usize,
) -> Vec<(Block, Ticket)> {
    ledger::accept_signals();
    let mut context = Context {
        random: Random::new(seed, 1 + worker as u64),
        reap: scenario.reap,
        directory,
        submitted: &shared.submitted,
        completed: &shared.completed,
        kept: Vec::new(),
        watched: Vec::new(),
        thread: Some(disturb::this_thread()),
        notifies: scenario.notifies,
        handlers: config.with("handlers"),
        is_stuck: &shared.is_stuck,
    };
    shared.threads[worker].store(disturb::this_thread(), Ordering::Release);
    while !shared.stop.load(Ordering::Acquire) {
        let place = &shared.places[context.random.below(shared.places.len())];
        // Somebody else's turn.
        let Ok(mut episode) = place.try_lock() else {
            thread::yield_now();
            continue;
        };
        let episode_now = episode.get_or_insert_with(|| begin(&mut context, config));
        for _ in 0..context.random.between(1, 30) {
            episode_now.step(&mut context);
            if episode_now.is_over() {
                episode_now.wind_up(&mut context);
                *episode = None;
                break;
            }
        }
        context.forget_notified();
    }
    for place in &shared.places {
        if let Some(mut episode) = super::lock(place).take() {
            episode.wind_up(&mut context);
        }
    }
    while !context.watched.is_empty() {
        context.forget_notified();
        assert!(!shared.is_stuck.load(Ordering::Relaxed), "lost: the notification of a list");
        super::descriptor::pause(200);
    }
    shared.idle.fetch_add(1, Ordering::AcqRel);
    // Signals for this thread may be on the way.
    while !shared.over.load(Ordering::Acquire) {
        super::descriptor::pause(500);
    }
    context.kept
}

fn begin(context: &mut Context<'_>, config: &Config) -> Box<dyn Episode> {
    let kinds = &config.kinds;
    let kind = if kinds.is_empty() { "" } else { context.random.pick(kinds).as_str() };
    let choice = match kind {
        "stream" => 0,
        "file" => 50,
        "append" => 75,
        "messages" => 85,
        "race" => 92,
        "crowd" => 96,
        "lost" => 99,
        _ => context.random.below(100),
    };
    match choice {
        0..50 => Box::new(Stream::new(context)),
        50..75 => Box::new(File::new(context)),
        75..85 => Box::new(Append::new(context)),
        85..92 => Box::new(Messages::new(context)),
        92..96 => Box::new(Race::new(context)),
        96..98 => Box::new(Crowd::new(context)),
        _ => Box::new(Lost::new(context)),
    }
}
