use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::crowd::process::HostProgram;
use crate::faults::Faults;
use crate::limits::{Limits, Slots};
use taut_link::Interrupt;

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
    pub(super) stop: Interrupt,
    pub(super) has_crowd: AtomicBool,
    pub(super) clients: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) misbehaved: AtomicU64,
    pub(super) bytes_in: AtomicU64,
    pub(super) datagrams_dropped: AtomicU64,
    pub(super) last_link: Mutex<Vec<String>>,
}

impl Shared {
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_set()
    }
}
