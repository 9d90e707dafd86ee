//! How far paging and inquiry are, on both sides.

use alloc::vec::Vec;

use taut_time::Instant;

use crate::bredr::SLOT;
use crate::pdu::advertising::Address;
use crate::rng::Random;
use crate::time::{NEVER, Nanos};

/// Channels of a train.
pub(super) const TRAIN: u64 = 16;
/// Unit of inquiry lengths: 1.28 s.
pub(super) const INQUIRY_UNIT: Nanos = 2048 * SLOT;

/// A train of ID packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Train {
    pub(super) next: Instant,
    pub(super) count: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Paging {
    Train(Train),
    /// An answer is coming in, for a train or for FHS.
    Hearing {
        fhs: Option<(Instant, u8)>,
        train: Train,
    },
    Fhs {
        at: Instant,
        tries: u8,
        train: Train,
    },
    /// FHS went out then; its answer begins until then.
    Answer {
        sent: Instant,
        until: Instant,
        tries: u8,
        train: Train,
    },
}

/// Looks for a device to connect to.
#[derive(Clone, Debug)]
pub(super) struct Pager {
    pub(super) target: Address,
    pub(super) deadline: Instant,
    pub(super) paging: Paging,
    pub(super) lt_addr: u8,
}

impl Pager {
    pub(super) const fn due(&self) -> Instant {
        match self.paging {
            Paging::Train(train) => train.next,
            Paging::Fhs { at, .. } => at,
            Paging::Answer { until, .. } => until,
            Paging::Hearing { .. } => NEVER,
        }
    }

    pub(super) const fn is_busy(&self) -> bool {
        !matches!(self.paging, Paging::Train(_))
    }
}

/// Looks for all devices.
#[derive(Clone, Debug)]
pub(super) struct Inquirer {
    pub(super) until: Instant,
    pub(super) train: Train,
    pub(super) hearing: bool,
    pub(super) most: u8,
    pub(super) found: Vec<Address>,
}

impl Inquirer {
    pub(super) fn due(&self) -> Instant {
        if self.hearing { NEVER } else { self.train.next.min(self.until) }
    }

    pub(super) const fn is_busy(&self) -> bool {
        self.hearing
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scanning {
    Idle,
    /// An ID packet is coming in, of a page or an inquiry.
    Hearing {
        inquiry: bool,
    },
    /// Answers a page then.
    Respond {
        at: Instant,
        channel: u8,
    },
    /// Waits for FHS until then.
    Fhs {
        until: Instant,
    },
    HearingFhs,
    /// Acknowledges it then, and belongs to that central.
    Ack {
        at: Instant,
        channel: u8,
        central: Address,
        lt_addr: u8,
        origin: Instant,
    },
    /// Answers an inquiry then.
    Found {
        at: Instant,
        channel: u8,
    },
    Sending {
        end: Instant,
    },
}

/// Listens for pages and inquiries.
#[derive(Clone, Debug)]
pub(super) struct Scanner {
    pub(super) random: Random,
    /// Where in its interval the clock of this device began.
    pub(super) phase: Nanos,
    pub(super) scanning: Scanning,
    /// Has heard an inquiry, and answers the next one after that time.
    pub(super) backoff: Option<Instant>,
}

impl Scanner {
    pub(super) fn new(mut random: Random) -> Self {
        let phase = random.below(INQUIRY_UNIT);
        Self { random, phase, scanning: Scanning::Idle, backoff: None }
    }

    pub(super) fn reset(mut self) -> Self {
        (self.scanning, self.backoff) = (Scanning::Idle, None);
        self
    }

    pub(super) const fn due(&self) -> Instant {
        match self.scanning {
            Scanning::Respond { at, .. } | Scanning::Ack { at, .. } | Scanning::Found { at, .. } => at,
            Scanning::Fhs { until } => until,
            Scanning::Sending { end } => end,
            Scanning::Idle | Scanning::Hearing { .. } | Scanning::HearingFhs => NEVER,
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.scanning != Scanning::Idle
    }

    /// Whether it listens at `now`, in windows of `[interval, window]` slots, and to which of a train's channels.
    pub(super) fn listens(&self, now: Instant, [interval, window]: [u16; 2]) -> Option<u64> {
        let clock = now.as_nanos().wrapping_add(self.phase);
        let within = clock % (Nanos::from(interval.max(1)) * SLOT);
        (within < Nanos::from(window) * SLOT).then_some(clock / INQUIRY_UNIT % TRAIN)
    }
}
