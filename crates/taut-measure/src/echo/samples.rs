use taut_time::{Duration, Instant};

use crate::recording::Round;
use crate::stats::{Distribution, ExceedanceCounter};

/// What one round of one subject gave.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    /// Actual sending to reply.
    pub(super) service: Distribution,
    /// Intended sending to reply.
    pub(super) response: Distribution,
    /// Intended to actual sending.
    pub(super) lateness: Distribution,
    pub(super) exceed: ExceedanceCounter,
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) late_replies: u64,
    /// Planned by an open loop and never sent, since the sender was too far behind.
    pub(super) unsent: u64,
}

/// One message under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) sequence: u64,
    pub(super) intended: Instant,
    pub(super) sent: Instant,
}

impl Samples {
    pub(super) fn new(limits: &[Duration]) -> Self {
        Self {
            service: Distribution::new(),
            response: Distribution::new(),
            lateness: Distribution::new(),
            exceed: ExceedanceCounter::new(limits),
            sent: 0,
            lost: 0,
            late_replies: 0,
            unsent: 0,
        }
    }

    /// A reply came.
    #[inline]
    pub(super) fn replied(&mut self, flight: Flight, at: Instant, open_loop: bool) {
        let service = at.saturating_since(flight.sent);
        self.service.record(service);
        if open_loop {
            let response = at.saturating_since(flight.intended);
            self.response.record(response);
            self.exceed.record(response);
        } else {
            self.exceed.record(service);
        }
    }

    /// No reply came in time.
    pub(super) fn lose(&mut self, messages: u64) {
        self.lost += messages;
        self.exceed.record_lost(messages);
    }

    /// The sender gave up on messages of its plan: they are later than any limit.
    pub(super) fn give_up_sending(&mut self, messages: u64) {
        self.unsent += messages;
        self.exceed.record_lost(messages);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.service.add(&other.service);
        self.response.add(&other.response);
        self.lateness.add(&other.lateness);
        self.exceed.add(&other.exceed);
        self.sent += other.sent;
        self.lost += other.lost;
        self.late_replies += other.late_replies;
        self.unsent += other.unsent;
    }

    /// The times that the reader is after: response in an open loop, service in a closed one.
    pub(super) fn main(&self) -> &Distribution {
        if self.response.count() > 0 { &self.response } else { &self.service }
    }

    pub(super) fn round(&self) -> Round {
        Round {
            p50_ns: self.main().quantile(0.5),
            p99_ns: self.main().quantile(0.99),
            max_ns: self.main().quantile(1.0),
            sent: self.sent,
            lost: self.lost,
        }
    }
}
