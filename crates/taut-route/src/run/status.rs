//! What can be told of a route at work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use taut_link::broker::WrittenAccount;

use crate::bpf::KernelCounters;
use crate::module::ModuleCounters;

/// A route at work, with its counters.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// The source.
    pub from: String,
    /// The condition.
    pub when: String,
    /// The sinks.
    pub to: Vec<String>,
    /// `xdp-native`, `xdp-generic`, `tc`, `hardirq`, `kthread` or `user`.
    pub runs: String,
    /// The device, in the kernel.
    pub device: Option<String>,
    /// Why there.
    pub why: Vec<String>,
    /// What it lacks for the kernel.
    pub lacks: Vec<String>,
    /// Process that holds it.
    pub pid: u32,
    /// Its counters.
    pub counters: Counters,
}

impl Status {
    /// The same without anything that a terminal would not print as it is: it may come from another process.
    pub(crate) fn printable(mut self) -> Self {
        let Self { name, from, when, to, runs, device, why, lacks, counters, .. } = &mut self;
        let texts = [name, from, when, runs].into_iter().chain(to).chain(device).chain(why).chain(lacks);
        let texts = texts.chain(counters.brokers.iter_mut().flat_map(BrokerSink::texts));
        for text in texts {
            *text = taut_event::printable(&text.replace(['\n', '\t'], " "));
        }
        self
    }
}

/// Counters of a route.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Counters {
    /// Events taken: those evaluated and those too short.
    pub events: u64,
    /// Events that passed.
    pub passed: u64,
    /// Events that did not pass.
    pub dropped: u64,
    /// Events too short for the fields, or lines that are no number.
    pub short: u64,
    /// Events that never reached the route, as far as the kernel tells, and sendings that failed.
    pub lost: u64,
    /// Records of the log that had no room.
    pub log_lost: u64,
    /// Times that too many events came and the kernel module masked the source for a while.
    #[serde(default)]
    pub masked: u64,
    /// Time of events that passed.
    pub latency: Latency,
    /// Sinks that are brokers.
    #[serde(default)]
    pub brokers: Vec<BrokerSink>,
}

/// A sink that is a broker, with what became of its messages.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct BrokerSink {
    /// Its address.
    pub endpoint: String,
    /// How often the connection was made again.
    pub reconnections: u64,
    /// What ended it for good: what passes after that is lost.
    pub error: Option<String>,
    /// Messages that never got into `written`: they found no room on their way, or are longer than a message may be.
    /// They are among the route's `lost` as well.
    #[serde(default)]
    pub not_taken: u64,
    /// The messages; those that were dropped here are among the route's `lost` as well.
    pub written: WrittenAccount,
}

impl BrokerSink {
    /// Whether messages were lost, as far as is known when the route has ended.
    pub fn has_losses(&self) -> bool {
        self.error.is_some() || self.not_taken > 0 || self.written.has_losses()
    }

    fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        let WrittenAccount { topic, readers, .. } = &mut self.written;
        let names = readers.iter_mut().map(|reader| &mut reader.name);
        [&mut self.endpoint, topic].into_iter().chain(&mut self.error).chain(names)
    }
}

/// A histogram of times by powers of two.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Latency {
    /// From where to where.
    pub of: String,
    /// Least time of a class in ns, with the number of events in it; classes without any are left out.
    pub at_least_ns: Vec<(u64, u64)>,
}

/// Counters that a thread of a route writes and others read.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) events: AtomicU64,
    pub(crate) passed: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) short: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) log_lost: AtomicU64,
    histogram: [AtomicU64; 64],
    brokers: Mutex<Vec<BrokerSink>>,
    notes: Mutex<Vec<String>>,
}

/// Notes that are kept until somebody takes them.
const MOST_NOTES: usize = 100;

impl Default for Shared {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        let histogram = [const { AtomicU64::new(0) }; 64];
        let (brokers, notes) = (Mutex::default(), Mutex::default());
        Self {
            events: zero(),
            passed: zero(),
            dropped: zero(),
            short: zero(),
            lost: zero(),
            log_lost: zero(),
            histogram,
            brokers,
            notes,
        }
    }
}

impl Shared {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn record(&self, ns: u64) {
        Self::add(&self.histogram[ns.max(1).ilog2() as usize], 1);
    }

    /// Makes room for what the thread of a broker tells; its number.
    pub(crate) fn add_broker(&self, endpoint: String) -> usize {
        let mut brokers = locked(&self.brokers);
        brokers.push(BrokerSink { endpoint, ..BrokerSink::default() });
        brokers.len() - 1
    }

    /// Changes what is told of a broker.
    pub(crate) fn tell_of_broker(&self, number: usize, change: impl FnOnce(&mut BrokerSink)) {
        if let Some(broker) = locked(&self.brokers).get_mut(number) {
            change(broker);
        }
    }

    /// Keeps something that a user may want to read.
    pub(crate) fn note(&self, note: String) {
        let mut notes = locked(&self.notes);
        if notes.len() < MOST_NOTES {
            notes.push(note);
        }
    }

    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.notes))
    }

    pub(crate) fn counters(&self, of: &str) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            events: read(&self.events),
            passed: read(&self.passed),
            // Not what is left of the events: one that waits for a sink has not passed yet, and is not dropped.
            dropped: read(&self.dropped),
            short: read(&self.short),
            lost: read(&self.lost),
            log_lost: read(&self.log_lost),
            masked: 0,
            latency: Latency::of(of, self.histogram.iter().map(read)),
            brokers: locked(&self.brokers).clone(),
        }
    }
}

/// Nothing is left half done under it, so that it is good also after a panic.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Latency {
    fn of(of: &str, classes: impl Iterator<Item = u64>) -> Self {
        let at_least_ns = classes.enumerate().filter(|(_, count)| *count > 0).map(|(bits, count)| (1 << bits, count));
        Self { of: of.to_owned(), at_least_ns: at_least_ns.collect() }
    }
}

impl From<KernelCounters> for Counters {
    fn from(kernel: KernelCounters) -> Self {
        Self {
            events: kernel.count + kernel.short,
            passed: kernel.passed,
            dropped: kernel.count.saturating_sub(kernel.passed),
            short: kernel.short,
            lost: kernel.failed,
            log_lost: kernel.log_lost,
            masked: 0,
            latency: Latency::of("in the program, to handing over", kernel.histogram.into_iter()),
            brokers: Vec::new(),
        }
    }
}

impl From<ModuleCounters> for Counters {
    fn from(module: ModuleCounters) -> Self {
        Self {
            events: module.events,
            passed: module.passed,
            dropped: module.dropped,
            short: module.short,
            lost: module.lost,
            log_lost: module.log_lost,
            masked: module.masked,
            latency: Latency::of("from the interrupt to the last sink", module.histogram.into_iter()),
            brokers: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_waits_for_a_sink_is_not_among_the_dropped() {
        let shared = Shared::default();
        Shared::add(&shared.events, 3);
        Shared::add(&shared.dropped, 1);
        Shared::add(&shared.passed, 1);
        let Counters { events, passed, dropped, .. } = shared.counters("");
        assert_eq!((events, passed, dropped), (3, 1, 1));
    }
}
