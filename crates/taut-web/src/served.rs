use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::log::Log;

/// What a server has done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Served {
    /// Connections that were accepted.
    pub connections: u64,
    /// Those of them that were refused, all places being taken by clients in the midst of an answer.
    pub refused: u64,
    /// Those that had waited the longest for a request when another client wanted the place.
    pub evicted: u64,
    /// Those that were dropped since they kept no time: a request that did not become whole, a
    /// connection grown too old.
    pub timed_out: u64,
    /// Those that were dropped since they took nothing.
    pub stalled: u64,
    /// Those that were dropped since what came was no request, or one that was too large.
    pub malformed: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// The same by status.
    pub by_status: BTreeMap<u16, u64>,
    /// Bytes of content that were handed over to links, without heads.
    pub bytes_out: u64,
    /// Lines of the log that nobody read in time.
    pub log_lines_lost: u64,
}

/// The same while it goes on.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) stalled: AtomicU64,
    pub(crate) malformed: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    by_status: Mutex<BTreeMap<u16, u64>>,
}

impl Counts {
    pub(crate) fn answered(&self, status: u16) {
        *self.by_status.lock().unwrap_or_else(PoisonError::into_inner).entry(status).or_default() += 1;
    }

    pub(crate) fn served(&self, log: &Log) -> Served {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let by_status = self.by_status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Served {
            connections: of(&self.connections),
            refused: of(&self.refused),
            evicted: of(&self.evicted),
            timed_out: of(&self.timed_out),
            stalled: of(&self.stalled),
            malformed: of(&self.malformed),
            requests: by_status.values().sum(),
            by_status,
            bytes_out: of(&self.bytes_out),
            log_lines_lost: log.lost(),
        }
    }
}
