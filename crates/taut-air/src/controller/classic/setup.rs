//! How far a connection of BR/EDR is.

use taut_time::Instant;

use crate::time::NEVER;

/// How far a connection is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Setup {
    /// The central has asked, or will when the peripheral is heard.
    Requesting {
        /// Paging goes on until then when the peripheral is never heard.
        until: Instant,
    },
    /// The peripheral waits for the central to ask.
    Waiting,
    /// Its host is asked, until then.
    Asking { until: Instant },
    /// Both agree; each tells the other that it is ready.
    Completing { told: bool, heard: bool },
    /// The host knows.
    Open,
    /// It was refused, with that reason; the central's host hears it when the link has ended.
    Refused(u8),
    /// It was refused, or failed, and the host knows.
    Ending,
}

impl Setup {
    pub(super) const fn due(self) -> Instant {
        match self {
            Self::Asking { until } => until,
            _ => NEVER,
        }
    }
}
