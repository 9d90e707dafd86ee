use std::sync::Barrier;
use std::thread;

use taut_link::wire::Work;
use taut_link::{Endpoint, Error, Request, Result, Session, SocketOption, affinity, clock};
use taut_time::{Duration, Framing, Timeline};

use super::client::WARM_UP_MESSAGES;
use super::copies::NUMBER_BYTES;
use super::event_loop::EventLoop;
use super::ping_pong::PingPong;
use super::plan::{EchoPlan, EchoSubject, EchoTimes, RunLength};
use super::samples::{Sampled, Samples};
use crate::interrupt::Interrupt;
use crate::tcp_facts::tcp_facts;
use crate::verdict::compare;
use taut_record::stats::{Interval, Quantile, interval, median};
use taut_record::{EchoRow, LossComparison, ObserverCost, PlacementKind, TcpFacts};

/// A subject with what has been measured of it.
pub(super) struct Target<'a> {
    plan: &'a EchoPlan,
    subject: &'a EchoSubject,
    sampled: Sampled,
    /// Medians of the rounds that were observed and don't count, beside those that do.
    observed: Vec<(u64, u64)>,
    options: Vec<String>,
    nagle: Option<bool>,
    /// Whether the peer was in every round where it was asked to be.
    is_placed: bool,
    tcp: Option<TcpFacts>,
    timeline: Option<Timeline>,
}

impl<'a> Target<'a> {
    pub(super) fn new(plan: &'a EchoPlan, subject: &'a EchoSubject) -> Self {
        Self {
            plan,
            subject,
            sampled: Sampled::new(plan),
            observed: Vec::new(),
            options: Vec::new(),
            nagle: None,
            is_placed: true,
            tcp: None,
            timeline: None,
        }
    }

    pub(super) const fn has_samples(&self) -> bool {
        !self.sampled.is_empty()
    }

    /// Messages sent in all rounds.
    pub(super) fn sent(&self) -> u64 {
        self.sampled.sent()
    }

    pub(super) fn take_timeline(&mut self) -> Option<Timeline> {
        self.timeline.take()
    }

    pub(super) fn into_times(self) -> EchoTimes {
        self.sampled.into_times()
    }

    /// Measures one round over new links, and where the subject is observed one more that does not
    /// count. What was measured before an error or an interrupt is kept as a partial round.
    pub(super) fn run_round(&mut self, round: usize, interrupt: &Interrupt) -> Result<()> {
        if !self.subject.observe {
            return self.count_round(round, interrupt);
        }
        // Once before and once after, so that what the first of them leaves behind is not taken for
        // the observer's cost.
        let first = round % 2 == 1;
        let mut observed = if first { self.observed_p50(round, interrupt)? } else { None };
        self.count_round(round, interrupt)?;
        if !first && !interrupt.is_set() {
            observed = self.observed_p50(round, interrupt)?;
        }
        let counted = self.sampled.medians().last().copied().flatten().and_then(Quantile::time);
        self.observed.extend(observed.zip(counted).filter(|_| !interrupt.is_set()));
        Ok(())
    }

    fn count_round(&mut self, round: usize, interrupt: &Interrupt) -> Result<()> {
        let mut samples = Samples::new(self.plan);
        let result = self.measure(round, false, &mut samples, interrupt);
        samples.complete = result.is_ok() && !interrupt.is_set();
        samples.lose_under_way();
        self.sampled.add(&samples);
        result
    }

    fn observed_p50(&mut self, round: usize, interrupt: &Interrupt) -> Result<Option<u64>> {
        let mut samples = Samples::new(self.plan);
        self.measure(round, true, &mut samples, interrupt)?;
        Ok(samples.main().quantile(0.5).and_then(Quantile::time))
    }

    fn measure(&mut self, round: usize, observe: bool, samples: &mut Samples, interrupt: &Interrupt) -> Result<()> {
        let _placed = affinity::on_core(self.subject.spot.core)?;
        let sessions = (0..self.plan.connections).map(|_| self.open(interrupt)).collect::<Result<Vec<_>>>()?;
        self.is_placed &= self.subject.spot.is_met(&sessions);
        if let Some(session) = sessions.first() {
            self.nagle = session.link().endpoint().acknowledges().then(|| session.link().holds_small_writes());
        }
        let result = self.exchange(&sessions, round, observe, samples, interrupt);
        // What a radio link came to is known at the end.
        if let Some(session) = sessions.first() {
            self.options = SocketOption::in_force(session.link());
        }
        self.tcp = sessions.first().and_then(|session| session.link().tcp_info()).map(tcp_facts);
        result
    }

    fn open(&self, interrupt: &Interrupt) -> Result<Session> {
        // A page has until then to be heard, twice its default time-out (Core Specification, Vol 4, Part E, 6.6).
        let pages = matches!(self.subject.endpoint, Endpoint::L2cap(_) | Endpoint::Rfcomm(_));
        let least = Duration::from_secs(if pages { 10 } else { 2 });
        let request = Request {
            endpoint: self.subject.endpoint.clone(),
            work: Work::Echo,
            acks: self.subject.acks,
            message_bytes: self.plan.message_bytes,
            duration: match self.plan.limit {
                RunLength::Time(time) => time,
                RunLength::Count(_) => Duration::ZERO,
            },
            options: self.subject.options.clone(),
            plain: self.plan.plain,
            timeout: self.plan.timeout.max(least),
            core: self.subject.spot.peer_core,
        };
        Session::open_unless(&request, interrupt)
    }

    fn exchange(
        &mut self,
        sessions: &[Session],
        round: usize,
        observe: bool,
        samples: &mut Samples,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let EchoPlan { rate_hz, connections, .. } = *self.plan;
        let engine = self.subject.engine;
        match rate_hz {
            None if connections == 1 => self.ping_pong(&sessions[0], round, observe, samples, interrupt),
            None if engine.blocks() => self.thread_for_each(sessions, round, samples, interrupt),
            Some(_) if engine.blocks() => Err(Error::Input(
                "an open loop must wait for time and replies at once: take the engine epoll, poll, spin or tokio"
                    .into(),
            )),
            _ => {
                let links: Vec<_> = sessions.iter().map(|session| (session.link(), session.numbering())).collect();
                let mut events = EventLoop::new(self.plan, &links, engine, interrupt)?;
                events.warm_up()?;
                let now = clock::now();
                let (messages, end) = self.plan.share_of(round, now);
                let result = events.count(messages, end, now);
                *samples = events.into_samples();
                result
            }
        }
    }

    fn ping_pong(
        &mut self,
        session: &Session,
        round: usize,
        observe: bool,
        samples: &mut Samples,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let EchoSubject { engine, writes, .. } = *self.subject;
        let mut loop_ = PingPong::new(self.plan, session.link(), session.numbering(), engine, writes, interrupt)?;
        loop_.warm_up()?;
        if observe {
            loop_.observe();
        }
        let now = clock::now();
        let (messages, end) = self.plan.share_of(round, now);
        let result = loop_.count(messages, end, now);
        let observer = loop_.observer.take();
        *samples = loop_.into_samples();
        if let Some(mut observer) = observer {
            observer.drain(session.link())?;
            self.timeline = Some(observer.into_timeline());
        }
        result
    }

    /// What blocking calls mean for several links: a thread for each.
    fn thread_for_each(
        &self,
        sessions: &[Session],
        round: usize,
        samples: &mut Samples,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let EchoSubject { engine, writes, .. } = *self.subject;
        let plan = self.plan;
        let links = sessions.len() as u64;
        // All begin together, when the last one is warm.
        let warm = Barrier::new(sessions.len());
        let warm = &warm;
        let results: Vec<(Samples, Result<()>)> = thread::scope(|scope| {
            let threads: Vec<_> = sessions
                .iter()
                .zip(0..)
                .map(|(session, index)| {
                    scope.spawn(move || {
                        let (link, numbering) = (session.link(), session.numbering());
                        let new = PingPong::new(plan, link, numbering, engine, writes, interrupt);
                        let warmed = new.and_then(|mut loop_| loop_.warm_up().map(|()| loop_));
                        warm.wait();
                        let mut loop_ = match warmed {
                            Ok(loop_) => loop_,
                            Err(error) => return (Samples::new(plan), Err(error)),
                        };
                        let now = clock::now();
                        let (messages, end) = plan.share_of(round, now);
                        let each = messages / links + u64::from(index < messages % links);
                        let result = loop_.count(each, end, now);
                        (loop_.into_samples(), result)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let mut outcome = Ok(());
        for (mine, result) in results {
            samples.add(&mine);
            outcome = outcome.and(result);
        }
        outcome
    }

    /// The endpoint, with the engine where that is what sets it apart from others.
    fn name_among(&self, targets: &[Self]) -> String {
        let EchoSubject { endpoint, engine, .. } = self.subject;
        let is_twin = |other: &Self| other.subject.endpoint == *endpoint && other.subject.engine != *engine;
        let mut name = endpoint.to_string();
        if targets.iter().any(is_twin) {
            name += &format!(", {engine} engine");
        }
        if targets.iter().any(|other| other.kind() != self.kind()) {
            name += &format!(", {}", self.kind().name());
        }
        name
    }

    /// How both ends stood to each other.
    fn kind(&self) -> PlacementKind {
        self.subject.spot.told(self.is_placed).kind
    }

    fn row(&self) -> Option<EchoRow> {
        if !self.has_samples() {
            return None;
        }
        Some(self.sampled.enter(EchoRow {
            endpoint: self.subject.endpoint.to_string(),
            transport: self.subject.endpoint.transport().to_owned(),
            command: self.subject.command.clone(),
            engine: self.subject.engine.to_string(),
            engine_wait_ns: None,
            message_bytes: self.plan.message_bytes as u64,
            writes: self.subject.writes.to_string(),
            connections: self.plan.connections,
            rate_hz: self.plan.rate_hz,
            timeout_ns: u64::try_from(self.plan.timeout.as_nanos()).unwrap_or(u64::MAX),
            observer: self.observer_cost(),
            nagle: self.nagle,
            placement: Some(self.subject.spot.told(self.is_placed)),
            tcp: self.tcp,
            options: self.options.clone(),
            numbers: self.numbers(),
            peer_acks: if self.plan.plain { "its own way".to_owned() } else { self.subject.acks.to_string() },
            ..EchoRow::default()
        }))
    }

    /// How many numbers the messages have room for, where those of a link may be more. Each round has new links.
    fn numbers(&self) -> Option<u64> {
        let EchoPlan { plain, message_bytes, connections, .. } = *self.plan;
        let is_short = plain && message_bytes < NUMBER_BYTES && self.subject.endpoint.framing() == Framing::Datagram;
        let numbers = 1_u64.checked_shl(8 * message_bytes as u32).filter(|_| is_short)?;
        let warm_up = WARM_UP_MESSAGES * connections as u64;
        (self.sampled.most_sent() + warm_up > numbers).then_some(numbers)
    }

    /// How much longer a round trip takes with the observer, in rounds taken in turn.
    fn observer_cost(&self) -> Option<ObserverCost> {
        let cost: Vec<f64> = self.observed.iter().map(|&(with, without)| with as f64 - without as f64).collect();
        Some(ObserverCost {
            p50_ns: median(&cost)? as i64,
            p50_ci: interval(&cost).map(|Interval { low, high, .. }| (low as i64, high as i64)),
            rounds: cost.len(),
        })
    }
}

/// The rows of all targets, each compared with the first of the same kind of placement.
pub(super) fn rows(targets: &[Target<'_>]) -> Vec<Option<EchoRow>> {
    let mut rows: Vec<Option<EchoRow>> = targets.iter().map(Target::row).collect();
    let base = |at: usize| targets[..at].iter().find(|before| before.kind() == targets[at].kind());
    let others = (0..targets.len()).filter(|&at| base(at).is_some()).count();
    for (at, (target, row)) in targets.iter().zip(&mut rows).enumerate() {
        let (Some(row), Some(base)) = (row, base(at).filter(|base| base.has_samples())) else { continue };
        let with = base.name_among(targets);
        row.loss_compared = LossComparison::of(target.sampled.losses(), base.sampled.losses(), others, &with);
        let compared = compare(target.sampled.medians(), base.sampled.medians(), others);
        row.compared = compared.map(|compared| compared.with(with.clone()).beside(row.loss_compared.as_ref()));
    }
    rows
}
