use std::fmt;
use std::thread;

use taut_link::wire::Work;
use taut_link::{Error, Request, Result, Session, SocketOption, clock};
use taut_time::{Duration, Instant, Timeline};

use super::event_loop::EventLoop;
use super::ping_pong::PingPong;
use super::samples::Samples;
use super::{EchoPlan, EchoSubject, Limit, verdict};
use crate::interrupt::Interrupt;
use crate::placement;
use crate::recording::{Comparison, EchoRow, TcpFacts};
use crate::stats::{Distribution, ratio_across};

/// How a message is handed to the kernel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WriteStyle {
    /// With one call.
    #[default]
    One,
    /// With two calls, `first` bytes and the rest: the write-write-read case.
    Two {
        /// Bytes of the first call.
        first: usize,
    },
    /// With two calls between `TCP_CORK` on and off.
    Corked {
        /// Bytes of the first call.
        first: usize,
    },
    /// With one writev of two pieces.
    Vectored {
        /// Bytes of the first piece.
        first: usize,
    },
}

impl fmt::Display for WriteStyle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "write",
            Self::Two { .. } => "write-write",
            Self::Corked { .. } => "cork",
            Self::Vectored { .. } => "writev",
        })
    }
}

/// Exchanges before each round that do not count: they bring caches, congestion window and ACK behaviour into their
/// steady state. At most this many, in at most this time.
const WARM_UP_MESSAGES: u64 = 32;
const WARM_UP_TIME: Duration = Duration::from_millis(50);

/// A subject with what has been measured of it.
pub(super) struct Target<'a> {
    plan: &'a EchoPlan,
    subject: &'a EchoSubject,
    rounds: Vec<Samples>,
    options: Vec<String>,
    nagle: Option<bool>,
    tcp: Option<TcpFacts>,
    timeline: Option<Timeline>,
}

impl<'a> Target<'a> {
    pub(super) const fn new(plan: &'a EchoPlan, subject: &'a EchoSubject) -> Self {
        Self { plan, subject, rounds: Vec::new(), options: Vec::new(), nagle: None, tcp: None, timeline: None }
    }

    pub(super) fn has_samples(&self) -> bool {
        self.rounds.iter().any(|round| round.sent > 0)
    }

    pub(super) fn take_timeline(&mut self) -> Option<Timeline> {
        self.timeline.take()
    }

    /// Measures one round over new links. What was measured before an error is kept.
    pub(super) fn run_round(&mut self, round: usize, interrupt: &Interrupt) -> Result<()> {
        let _placed = placement::on_core(self.subject.core)?;
        let sessions = (0..self.plan.connections).map(|_| self.open()).collect::<Result<Vec<_>>>()?;
        if let Some(session) = sessions.first() {
            self.nagle = session.link().endpoint().acknowledges().then(|| session.link().holds_small_writes());
        }
        let mut samples = Samples::new(&self.plan.exceed);
        let result = self.exchange(&sessions, round, &mut samples, interrupt);
        // What a radio link came to is known at the end.
        if let Some(session) = sessions.first() {
            self.options = SocketOption::in_force(session.link());
        }
        self.tcp = sessions.first().and_then(|session| session.link().tcp_info()).map(TcpFacts::from);
        self.rounds.push(samples);
        result
    }

    fn open(&self) -> Result<Session> {
        Session::open(&Request {
            endpoint: self.subject.endpoint.clone(),
            work: Work::Echo,
            acks: self.subject.acks,
            message_bytes: self.plan.message_bytes,
            duration: match self.plan.limit {
                Limit::Time(time) => time,
                Limit::Count(_) => Duration::ZERO,
            },
            options: self.subject.options.clone(),
            plain: self.plan.plain,
            timeout: self.plan.timeout.max(Duration::from_secs(2)),
        })
    }

    fn exchange(
        &mut self,
        sessions: &[Session],
        round: usize,
        samples: &mut Samples,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let EchoPlan { rate_hz, connections, message_bytes, timeout, .. } = *self.plan;
        let engine = self.subject.engine;
        match rate_hz {
            None if connections == 1 => self.ping_pong(&sessions[0], round, samples, interrupt),
            None if engine.blocks() => self.thread_for_each(sessions, round, samples, interrupt),
            Some(_) if engine.blocks() => Err(Error::Input(
                "an open loop must wait for time and replies at once: take the engine epoll, poll, spin or tokio"
                    .into(),
            )),
            _ => {
                let period = rate_hz.map(|rate| Duration::from_secs_f64(1.0 / rate));
                let mut events = EventLoop::new(sessions, engine, message_bytes, timeout, period)?;
                let now = clock::now();
                let (count, end) = self.share_of(round, now);
                match (rate_hz, self.plan.limit) {
                    // The plan of an open loop is a number of messages, and a late one is sent late; but a sender that
                    // falls behind for good must end.
                    (Some(rate), Limit::Time(_)) => {
                        let planned = end.saturating_since(now).as_secs_f64() * rate;
                        events.run(samples, (planned.round() as u64).max(1), end + timeout, interrupt)
                    }
                    _ => events.run(samples, count, end, interrupt),
                }
            }
        }
    }

    fn ping_pong(
        &mut self,
        session: &Session,
        round: usize,
        samples: &mut Samples,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let EchoSubject { engine, writes, observe, .. } = *self.subject;
        let EchoPlan { message_bytes, timeout, ref exceed, .. } = *self.plan;
        let mut loop_ = PingPong::new(session, engine, writes, message_bytes, timeout, observe, interrupt)?;
        let mut warm_up = Samples::new(exceed);
        loop_.run(&mut warm_up, WARM_UP_MESSAGES, clock::now() + WARM_UP_TIME)?;
        let (count, end) = self.share_of(round, clock::now());
        let result = loop_.run(samples, count, end);
        if let Some(mut observer) = loop_.observer.take() {
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
        let EchoPlan { message_bytes, timeout, ref exceed, .. } = *self.plan;
        let (count, end) = self.share_of(round, clock::now());
        let links = sessions.len() as u64;
        let results: Vec<(Samples, Result<()>)> = thread::scope(|scope| {
            let threads: Vec<_> = sessions
                .iter()
                .zip(0..)
                .map(|(session, index)| {
                    let each = count / links + u64::from(index < count % links);
                    scope.spawn(move || {
                        let mut mine = Samples::new(exceed);
                        let result = PingPong::new(session, engine, writes, message_bytes, timeout, false, interrupt)
                            .and_then(|mut loop_| loop_.run(&mut mine, each, end));
                        (mine, result)
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

    /// Messages and end of a round that begins now.
    fn share_of(&self, round: usize, now: Instant) -> (u64, Instant) {
        let rounds = self.plan.rounds as u64;
        match self.plan.limit {
            Limit::Count(count) => {
                (count / rounds + u64::from((round as u64) < count % rounds), Instant::from_nanos(u64::MAX))
            }
            Limit::Time(time) => (u64::MAX, now + time / u32::try_from(rounds).unwrap_or(1)),
        }
    }

    fn row(&self) -> Option<EchoRow> {
        if !self.has_samples() {
            return None;
        }
        let mut all = Samples::new(&self.plan.exceed);
        self.rounds.iter().for_each(|round| all.add(round));
        let by_round = |part: fn(&Samples) -> &Distribution| -> Vec<Distribution> {
            self.rounds.iter().map(|round| part(round).clone()).collect()
        };
        Some(EchoRow {
            endpoint: self.subject.endpoint.to_string(),
            transport: self.subject.endpoint.transport().to_owned(),
            command: self.subject.command.clone(),
            engine: self.subject.engine.to_string(),
            message_bytes: self.plan.message_bytes as u64,
            writes: self.subject.writes.to_string(),
            connections: self.plan.connections,
            rate_hz: self.plan.rate_hz,
            rtt_ns: all.service.summary(&by_round(|samples| &samples.service)),
            response_ns: all.response.summary(&by_round(|samples| &samples.response)),
            send_lateness_ns: all.lateness.summary(&by_round(|samples| &samples.lateness)),
            sent: all.sent,
            lost: all.lost,
            late_replies: all.late_replies,
            unsent: all.unsent,
            timeout_ns: u64::try_from(self.plan.timeout.as_nanos()).unwrap_or(u64::MAX),
            exceed: all.exceed.table(),
            curve: all.main().curve(),
            rounds: self.rounds.iter().map(Samples::round).collect(),
            compared: None,
            nagle: self.nagle,
            tcp: self.tcp,
            options: self.options.clone(),
            peer_acks: if self.plan.plain { "its own way".to_owned() } else { self.subject.acks.to_string() },
        })
    }
}

/// The rows of all targets, each compared with the first.
pub(super) fn rows(targets: &[Target<'_>]) -> Vec<Option<EchoRow>> {
    let mut rows: Vec<Option<EchoRow>> = targets.iter().map(Target::row).collect();
    let medians = |row: &EchoRow| row.rounds.iter().map(|round| round.p50_ns).collect::<Vec<_>>();
    let Some(Some(base)) = rows.first().cloned() else { return rows };
    for row in rows.iter_mut().skip(1).flatten() {
        row.compared = ratio_across(&medians(row), &medians(&base)).map(|(p50_ratio, p50_ratio_ci)| Comparison {
            with: base.endpoint.clone(),
            p50_ratio,
            p50_ratio_ci,
            verdict: verdict(p50_ratio_ci),
        });
    }
    rows
}
