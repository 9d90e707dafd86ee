use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};

use crate::crowd::process::HostProgram;
use crate::ending::Ending;
use crate::faults::Faults;
use crate::limits::{Limits, Slots};

/// How a server behaves.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// What it grants.
    pub limits: Limits,
    /// How it is made slow on purpose.
    pub faults: Faults,
    /// What works as a crowd host for a client; `None` refuses crowds.
    pub crowd_host: Option<HostProgram>,
    /// Clients can't change how links are received.
    pub fixed: bool,
}

/// What all threads of a server share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: ServerConfig,
    pub(super) slots: Slots,
    pub(super) ending: Ending,
    pub(super) has_crowd: AtomicBool,
    pub(super) clients: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) misbehaved: AtomicU64,
    pub(super) bytes_in: AtomicU64,
    pub(super) datagrams_dropped: AtomicU64,
    pub(super) last_link: Mutex<Vec<String>>,
    pub(super) notices: Notices,
}

/// What the user of a server should know, until it is taken.
#[derive(Debug, Default)]
pub(super) struct Notices(Mutex<Vec<String>>);

/// Most that are kept for one who takes none.
const MOST_NOTICES: usize = 100;

impl Notices {
    pub(super) fn add(&self, notice: String) {
        let mut notices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() < MOST_NOTICES {
            notices.push(notice);
        }
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shared {
    pub(super) fn is_stopping(&self) -> bool {
        self.ending.flag().is_set()
    }
}
