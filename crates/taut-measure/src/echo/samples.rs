use taut_time::{Duration, Instant};

use super::plan::{EchoPlan, EchoTimes};
use taut_record::stats::{Distribution, ExceedanceCounter, Losses, Quantile, Rounds};
use taut_record::{EchoRow, Round};

/// After an interrupt, the least time that replies under way get.
const PATIENCE: Duration = Duration::from_secs(1);

/// What one round of one subject gave.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    open_loop: bool,
    /// Actual sending to reply.
    service: Distribution,
    /// Intended sending to reply; open loop only.
    response: Distribution,
    /// Intended to actual sending; open loop only.
    lateness: Distribution,
    exceed: ExceedanceCounter,
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) late_replies: u64,
    pub(super) duplicates: u64,
    /// Planned by an open loop and never sent, since the sender was too far behind.
    pub(super) unsent: u64,
    /// Whether the round came to its end.
    pub(super) complete: bool,
}

/// One message under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) sequence: u64,
    pub(super) intended: Instant,
    pub(super) sent: Instant,
}

impl Samples {
    pub(super) fn new(plan: &EchoPlan) -> Self {
        Self {
            open_loop: plan.rate_hz.is_some(),
            service: Distribution::new(),
            response: Distribution::new(),
            lateness: Distribution::new(),
            exceed: ExceedanceCounter::new(&plan.exceed),
            sent: 0,
            lost: 0,
            late_replies: 0,
            duplicates: 0,
            unsent: 0,
            complete: true,
        }
    }

    /// An open loop sent a message so long after it was due.
    #[inline]
    pub(super) fn sent_late_by(&mut self, time: Duration) {
        self.lateness.record(time);
    }

    /// A reply came to a message that nobody has given up yet.
    #[inline]
    pub(super) fn answered(&mut self, flight: Flight, at: Instant, timeout: Duration) {
        let service = at.saturating_since(flight.sent);
        if service > timeout {
            return self.replied_late();
        }
        self.service.record(service);
        if self.open_loop {
            let response = at.saturating_since(flight.intended);
            self.response.record(response);
            self.exceed.record(response);
        } else {
            self.exceed.record(service);
        }
    }

    /// A reply came after the time-out, and nobody had given up yet.
    fn replied_late(&mut self) {
        self.lose(1);
        self.late_replies += 1;
    }

    /// No reply came in time: later than any limit.
    pub(super) fn lose(&mut self, messages: u64) {
        self.lost += messages;
        self.service.record_lost(messages);
        if self.open_loop {
            self.response.record_lost(messages);
        }
        self.exceed.record_lost(messages);
    }

    /// Nobody waits any more, since the peer failed or the user interrupts: what has no reply by now never gets one.
    pub(super) fn lose_under_way(&mut self) {
        self.lose(self.sent.saturating_sub(self.service.messages()));
    }

    /// How long replies under way are waited for after an interrupt: what comes at all has come by
    /// then, and what is lost is lost to a stall and not to the interrupt.
    pub(super) fn patience(&self, timeout: Duration) -> Duration {
        let usual = self.service.quantile(0.5).and_then(Quantile::time).unwrap_or_default();
        timeout.min(PATIENCE.max(Duration::from_nanos(usual) * 2))
    }

    /// The sender gave up on messages of its plan: they are later than any limit, and have no service time.
    pub(super) fn give_up_sending(&mut self, messages: u64) {
        self.unsent += messages;
        self.lateness.record_lost(messages);
        self.response.record_lost(messages);
        self.exceed.record_lost(messages);
    }

    /// Adds what another thread measured of the same round.
    pub(super) fn add(&mut self, other: &Self) {
        self.service.add(&other.service);
        self.response.add(&other.response);
        self.lateness.add(&other.lateness);
        self.exceed.add(&other.exceed);
        self.sent += other.sent;
        self.lost += other.lost;
        self.late_replies += other.late_replies;
        self.duplicates += other.duplicates;
        self.unsent += other.unsent;
    }

    /// The times that the reader is after: response in an open loop, service in a closed one.
    pub(super) const fn main(&self) -> &Distribution {
        if self.open_loop { &self.response } else { &self.service }
    }

    fn round(&self) -> Round {
        Round { complete: self.complete, ..Round::of(self.main(), self.sent, self.lost) }
    }
}

/// All rounds of one subject: pooled, and of each its figures.
#[derive(Clone, Debug)]
pub(super) struct Sampled {
    open_loop: bool,
    service: Rounds,
    response: Rounds,
    lateness: Rounds,
    exceed: ExceedanceCounter,
    sent: u64,
    lost: u64,
    late_replies: u64,
    duplicates: u64,
    unsent: u64,
    rounds: Vec<Round>,
    medians: Vec<Option<Quantile>>,
}

impl Sampled {
    pub(super) fn new(plan: &EchoPlan) -> Self {
        Self {
            open_loop: plan.rate_hz.is_some(),
            service: Rounds::new(),
            response: Rounds::new(),
            lateness: Rounds::new(),
            exceed: ExceedanceCounter::new(&plan.exceed),
            sent: 0,
            lost: 0,
            late_replies: 0,
            duplicates: 0,
            unsent: 0,
            rounds: Vec::new(),
            medians: Vec::new(),
        }
    }

    /// Adds a round; of one that was cut short only what it has in messages.
    pub(super) fn add(&mut self, round: &Samples) {
        let add = if round.complete { Rounds::add } else { Rounds::add_partial };
        add(&mut self.service, &round.service);
        add(&mut self.response, &round.response);
        add(&mut self.lateness, &round.lateness);
        self.exceed.add(&round.exceed);
        self.sent += round.sent;
        self.lost += round.lost;
        self.late_replies += round.late_replies;
        self.duplicates += round.duplicates;
        self.unsent += round.unsent;
        self.rounds.push(round.round());
        self.medians.push(round.main().quantile(0.5).filter(|_| round.complete));
    }

    /// Messages sent in all rounds.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Messages sent in the round that had most.
    pub(super) fn most_sent(&self) -> u64 {
        self.rounds.iter().map(|round| round.sent).max().unwrap_or(0)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.sent == 0
    }

    /// The times that the reader is after.
    const fn main(&self) -> &Rounds {
        if self.open_loop { &self.response } else { &self.service }
    }

    /// The median of each round, `None` for one that was cut short or has no messages.
    pub(super) fn medians(&self) -> &[Option<Quantile>] {
        &self.medians
    }

    /// Messages that never came, those never sent included.
    pub(super) const fn losses(&self) -> Losses {
        Losses { lost: self.lost + self.unsent, messages: self.sent + self.unsent }
    }

    /// All round trips and all response times.
    pub(super) fn into_times(self) -> EchoTimes {
        EchoTimes { round_trip: self.service.into_pooled(), response: self.response.into_pooled() }
    }

    /// Enters all figures into a row.
    pub(super) fn enter(&self, row: EchoRow) -> EchoRow {
        EchoRow {
            rtt_ns: self.service.summary(),
            response_ns: self.response.summary(),
            send_lateness_ns: self.lateness.summary(),
            sent: self.sent,
            lost: self.lost,
            late_replies: self.late_replies,
            duplicates: self.duplicates,
            unsent: self.unsent,
            exceed: self.exceed.table(),
            curve: self.main().pooled().curve(),
            rounds: self.rounds.clone(),
            ..row
        }
    }
}
