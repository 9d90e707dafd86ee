//! Random use of all of the interface, by several threads, against a model of what each request must do.
//!
//! - [`round`]: one round with its threads; [`takers`], [`disturb`], [`cancellation`] and [`leap`] are those
//!   that belong to no episode, and [`raised`] is what signal handlers do.
//! - [`stream`], [`message`], [`file`], [`append`], [`race`], [`crowd`], [`lost`]: episodes, each with its model.
//! - [`operation`], [`batch`], [`wait`], [`reuse`]: requests, and calls with what must hold after them.
//! - [`ledger`]: every request's notification; [`memory`]: its memory; [`leak`]: what the process holds.
//!
//! A seed gives every thread's choices. What the threads make of them together is up to the
//! scheduler, so a failure's seed repeats the round but not always the failure.

mod append;
mod batch;
mod cancellation;
mod crowd;
mod descriptor;
mod disturb;
mod fault;
pub(crate) mod ffi;
mod file;
mod leak;
mod leap;
mod ledger;
mod lost;
mod memory;
mod message;
mod operation;
mod race;
mod raised;
mod random;
mod reuse;
mod round;
mod stream;
mod takers;
mod wait;

use std::env;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leak::Holdings;

/// Resident memory may grow by this much after the first rounds, for malloc's arenas.
const MEMORY_KIB: usize = 96 * 1024;
/// Rounds after which memory is compared.
const WARM_UP: u64 = 4;

/// How long, and with what.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) seed: u64,
    pub(crate) time: Option<Duration>,
    pub(crate) operations: Option<u64>,
    /// Kinds of episodes; empty for all.
    pub(crate) kinds: Vec<String>,
    /// What to leave out, as a sanitizer can't stand it: `forks`, `handlers` (of signals), `cancellation` (of threads),
    /// `memory` or `descriptors` (their bounds).
    pub(crate) without: Vec<String>,
    pub(crate) verbose: bool,
}

impl Config {
    /// From `TAUT_SEED` and `TAUT_STRESS_SECONDS`, `_OPERATIONS`, `_ONLY`, `_WITHOUT` and `_VERBOSE`.
    pub(crate) fn from_environment(time: Duration) -> Self {
        let number = |name: &str| {
            let text = env::var(name).ok()?;
            let digits = text.strip_prefix("0x");
            let number = digits.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
            Some(number.unwrap_or_else(|error| panic!("{name}={text}: {error}")))
        };
        let operations = number("TAUT_STRESS_OPERATIONS");
        let seconds = number("TAUT_STRESS_SECONDS").map(Duration::from_secs);
        let list = |name: &str| {
            let text = env::var(name).unwrap_or_default();
            text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        Self {
            #[expect(clippy::cast_possible_truncation, reason = "any number is as good")]
            seed: number("TAUT_SEED").unwrap_or_else(|| random::Random::new(now as u64, 0).next()),
            time: seconds.or_else(|| operations.is_none().then_some(time)),
            operations,
            kinds: list("TAUT_STRESS_ONLY"),
            without: list("TAUT_STRESS_WITHOUT"),
            verbose: env::var_os("TAUT_STRESS_VERBOSE").is_some(),
        }
    }
}

impl Config {
    /// Whether this is not left out.
    fn with(&self, what: &str) -> bool {
        !self.without.iter().any(|without| without == what)
    }
}

/// Locks by trying, which is inlined here: ThreadSanitizer sees nothing of the standard library's
/// own waiting for a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
}

/// Runs rounds until there were enough. Ends the process when anything is wrong.
pub(crate) fn run(config: &Config) {
    println!("stress: TAUT_SEED={:#018x}", config.seed);
    fault::end_on_panic();
    ledger::set_up();
    // Made with the first call, and then it stays.
    assert!(ffi::completion_fd() >= 0, "libtautaio can't start");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let begin = Instant::now();
    let (mut seed, mut operations, mut rounds) = (config.seed, 0, 0);
    let mut holdings = None;
    let mut memory = None;
    let mut told = Instant::now();
    while config.time.is_none_or(|time| begin.elapsed() < time)
        && config.operations.is_none_or(|most| operations < most)
    {
        fault::set_seed(seed);
        operations += round::run(seed, config, directory.path());
        rounds += 1;
        // The library's own thread and descriptors are there after the first.
        match holdings {
            None => holdings = Some(Holdings::now()),
            Some(before) => Holdings::assert_settles_to(before, config.with("descriptors")),
        }
        if rounds == WARM_UP {
            memory = Some(Holdings::now().memory_kib);
        }
        if told.elapsed() > Duration::from_secs(30) {
            told = Instant::now();
            println!("stress: {operations} operations after {} s", begin.elapsed().as_secs());
        }
        seed = random::Random::new(seed, u64::MAX).next();
    }
    if let Some(before) = memory.filter(|_| config.with("memory")) {
        let now = Holdings::now().memory_kib;
        assert!(now < before + MEMORY_KIB, "memory grew from {before} to {now} KiB in {operations} operations");
    }
    println!("stress: {operations} operations in {rounds} rounds, {:.1} s", begin.elapsed().as_secs_f64());
}
