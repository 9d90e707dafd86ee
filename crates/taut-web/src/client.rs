use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use taut_link::clock;
use tokio::sync::Notify;

/// What is known of a client while it is connected.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) peer: String,
    /// When it began to be waited for, in nanoseconds of the live clock; 0 while it is being answered.
    waiting_since: AtomicU64,
    /// The last answer's content has been handed over, but may not have left yet.
    pub(crate) answered: AtomicBool,
    /// A part of a head has arrived.
    pub(crate) heard: AtomicBool,
    /// What its bytes were found to be, beyond what the parser says.
    pub(crate) found: Mutex<Option<&'static str>>,
    /// Its place is wanted for another one.
    pub(crate) evicted: Notify,
}

impl Client {
    pub(crate) fn new(peer: String) -> Self {
        Self {
            peer,
            waiting_since: AtomicU64::new(now_ns()),
            answered: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            found: Mutex::default(),
            evicted: Notify::new(),
        }
    }

    /// Since when nothing but its next request has been waited for, in nanoseconds.
    pub(crate) fn waiting_since(&self) -> Option<u64> {
        Some(self.waiting_since.load(Ordering::Relaxed)).filter(|&since| since > 0)
    }

    pub(crate) fn heard(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    pub(crate) fn found(&self, what: &'static str) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
    }

    /// All that was to be sent has left.
    pub(crate) fn flushed(&self) {
        if self.answered.swap(false, Ordering::Relaxed) {
            self.wait();
        }
    }

    /// From now on it is only waited for.
    pub(crate) fn wait(&self) {
        self.waiting_since.store(now_ns(), Ordering::Relaxed);
    }

    pub(crate) fn begin(&self) {
        self.heard.store(false, Ordering::Relaxed);
        self.waiting_since.store(0, Ordering::Relaxed);
    }
}

fn now_ns() -> u64 {
    clock::now().as_nanos().max(1)
}
