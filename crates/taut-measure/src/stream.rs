//! Throughput: as many bytes as the path takes.

mod progress;
#[cfg(test)]
mod tests;

use std::thread;

use rustix::io::Errno;
use taut_link::wire::{AckPolicy, CONTROL_BYTES, Totals, Work};
use taut_link::{Endpoint, Error, Request, Result, Session, SocketOption, affinity, clock};
use taut_time::{Duration, Framing, Instant};

use crate::interrupt::Interrupt;
use crate::placement::Spot;
use crate::tcp_facts::tcp_facts;
use crate::{rounds, standstill};
use progress::{Course, LOOK, Progress, Steady, counted};
use taut_record::stats::{Interval, interval, median};
use taut_record::{Coarse, Counted, Ended, StreamRound, StreamRow, TcpFacts};

/// What to send and for how long.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// The peer.
    pub endpoint: Endpoint,
    /// Which way.
    pub direction: Direction,
    /// Links open at once.
    pub connections: usize,
    /// Bytes of one write.
    pub block_bytes: usize,
    /// Time of sending, over all rounds.
    pub time: Duration,
    /// Independent repetitions, each with new links.
    pub rounds: usize,
    /// Options of the socket.
    pub options: Vec<SocketOption>,
    /// How the peer should acknowledge.
    pub acks: AckPolicy,
    /// Any server that reads will do; what its kernel acknowledges counts, or what this host's takes where nothing is.
    pub plain: bool,
    /// Where both ends are put.
    pub spot: Spot,
    /// The command that repeats the row.
    pub command: String,
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Direction {
    /// To the peer.
    #[default]
    Up,
    /// From the peer.
    Down,
    /// Both at once.
    Both,
}

impl Direction {
    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Both => "both",
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct StreamOutcome {
    /// The figures.
    pub row: StreamRow,
    /// How it ended.
    pub ended: Ended,
}

/// What all links gave in one round.
struct Round {
    flows: Vec<Flow>,
    /// Whether it came to its end.
    complete: bool,
    /// Whether the peer was where it was asked to be.
    is_placed: bool,
}

/// What one link gave in one round.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    sent: u64,
    /// Sent on a link that broke before the peer had told what arrived, or not acknowledged by a plain one.
    unconfirmed: u64,
    /// Arrived at the peer, or with its kernel.
    up: u64,
    /// Arrived here.
    down: u64,
    /// Of all that arrived, what was there at the first time: the duration is from there on.
    at_first: u64,
    duration: Duration,
    peer_cpu: Option<Duration>,
    tcp: Option<TcpFacts>,
    /// Of a plain peer that takes much at a time: how far it has come, for the next round to go on from there.
    goes_on: Option<Course>,
    /// How coarse the progress of a plain peer was.
    coarse: Option<Coarse>,
}

impl Flow {
    /// Bits per second of this link alone.
    fn rate_bps(&self) -> f64 {
        let seconds = self.duration.as_secs_f64();
        let bytes = (self.up + self.down).saturating_sub(self.at_first);
        if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
    }
}

/// Sends and receives as fast as it goes, round by round.
///
/// # Errors
/// The peer can't be reached or refuses. A peer that goes away later ends the run, and what there is is returned.
pub fn run(plan: &StreamPlan, interrupt: &Interrupt, progress: &mut dyn FnMut(usize, usize)) -> Result<StreamOutcome> {
    if plan.plain && plan.direction != Direction::Up {
        return Err(Error::Input("a plain server can only be sent to: leave --plain out, or measure `up`".into()));
    }
    let (mut options, mut kept) = (Vec::new(), Vec::new());
    let cpu_before = clock::process_cpu();
    let (rounds, ended) =
        rounds::run(plan.rounds, interrupt, progress, || run_round(plan, &mut kept, &mut options, interrupt))?;
    let cpu = clock::process_cpu().saturating_sub(cpu_before);
    Ok(StreamOutcome { row: row(plan, &rounds, options, cpu), ended })
}

/// All links of a round, and what went wrong with the first that broke: what there was of it
/// counts. `kept` are links that go on from the round before, and then from this one.
fn run_round(
    plan: &StreamPlan,
    kept: &mut Vec<(Session, Option<Course>)>,
    options: &mut Vec<String>,
    interrupt: &Interrupt,
) -> Result<(Round, Option<Error>)> {
    let time = plan.time / u32::try_from(plan.rounds.max(1)).unwrap_or(u32::MAX);
    let mut links = std::mem::take(kept);
    if links.is_empty() {
        links = (0..plan.connections).map(|_| Ok((open(plan, time, interrupt)?, None))).collect::<Result<_>>()?;
    }
    let is_placed = plan.spot.is_met(links.iter().map(|(session, _)| session));
    let flows = thread::scope(|scope| {
        let flows: Vec<_> = links
            .iter()
            .map(|(session, course)| {
                scope.spawn(move || {
                    let _placed = affinity::on_core(plan.spot.core)?;
                    flow(plan, session, *course, time, interrupt)
                })
            })
            .collect();
        let ended = flows.into_iter().map(|flow| flow.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.collect::<Result<Vec<_>>>()
    })?;
    // What a radio link came to is known at the end.
    if let Some((session, _)) = links.first() {
        *options = SocketOption::in_force(session.link());
    }
    let mut broken = None;
    let flows: Vec<Flow> = flows
        .into_iter()
        .map(|(flow, error)| {
            broken = broken.take().or(error);
            flow
        })
        .collect();
    // New links would only fill the peer's buffers once more.
    if broken.is_none() && flows.iter().any(|flow| flow.coarse.is_some()) {
        *kept = links.into_iter().zip(&flows).map(|((session, _), flow)| (session, flow.goes_on)).collect();
    }
    let complete = broken.is_none() && !interrupt.is_set();
    Ok((Round { flows, complete, is_placed }, broken))
}

fn open(plan: &StreamPlan, time: Duration, interrupt: &Interrupt) -> Result<Session> {
    let request = Request {
        endpoint: plan.endpoint.clone(),
        work: match plan.direction {
            Direction::Up => Work::Sink,
            Direction::Down => Work::Source,
            Direction::Both => Work::Duplex,
        },
        acks: plan.acks,
        message_bytes: plan.block_bytes,
        duration: time,
        options: plan.options.clone(),
        plain: plan.plain,
        timeout: Duration::from_secs(5),
        core: plan.spot.peer_core,
    };
    Session::open_unless(&request, interrupt)
}

/// One link: sends, receives, or both on two threads. A link that breaks hands over what there was beside its error.
fn flow(
    plan: &StreamPlan,
    session: &Session,
    course: Option<Course>,
    time: Duration,
    interrupt: &Interrupt,
) -> Result<(Flow, Option<Error>)> {
    let link = session.link();
    link.set_nonblocking(false)?;
    // Of a plain peer there is only what the socket tells meanwhile.
    link.set_send_timeout(Some(if plan.plain { LOOK } else { Duration::from_millis(500) }))?;
    link.set_receive_timeout(Some(LOOK_PERIOD))?;
    match plan.direction {
        Direction::Up if plan.plain => {
            let Sent { bytes: sent, steady, goes_on, error, .. } = send(plan, session, course, time, interrupt);
            let tcp = link.tcp_info().map(tcp_facts);
            if error.is_some() {
                return Ok((Flow { unconfirmed: sent, tcp, ..Flow::default() }, error));
            }
            let up = steady.total;
            let at_first = up.saturating_sub(steady.bytes);
            // All of the link that is still on its way, of the rounds before, too.
            let unconfirmed = goes_on.sent.saturating_sub(goes_on.counted);
            let flow = Flow { sent: up, unconfirmed, up, at_first, duration: steady.time, tcp, ..Flow::default() };
            Ok((Flow { goes_on: Some(goes_on), coarse: steady.coarse, ..flow }, None))
        }
        Direction::Up => {
            let began = clock::now();
            let Sent { bytes: sent, took, error, .. } = send(plan, session, None, time, interrupt);
            let tcp = link.tcp_info().map(tcp_facts);
            // A broken link has no report: what arrived is not known.
            let broken = |error| (Flow { unconfirmed: sent, tcp, ..Flow::default() }, Some(error));
            if let Some(error) = error {
                return Ok(broken(error));
            }
            let report = session.finish(sent).and_then(|report| {
                let (summary, _) = report
                    .ok_or_else(|| Error::Closed { endpoint: link.endpoint().to_string(), when: "without a report" })?;
                believable(session, &summary, sent, began).map(|()| summary)
            });
            Ok(match report {
                Err(error) => broken(error),
                Ok(summary) => {
                    let flow = Flow {
                        sent,
                        up: summary.bytes,
                        at_first: mean_read(&summary),
                        // What came no more was sent all the same.
                        duration: arrival_time(&summary).max(took),
                        peer_cpu: Some(summary.cpu),
                        tcp,
                        ..Flow::default()
                    };
                    (flow, None)
                }
            })
        }
        Direction::Down => {
            session.end_sending()?;
            let (received, error) = receive(plan, session, time, interrupt);
            let tcp = link.tcp_info().map(tcp_facts);
            let Received { bytes, at_first, duration, summary } = received;
            let peer_cpu = summary.map(|summary| summary.cpu);
            Ok((Flow { down: bytes, at_first, duration, peer_cpu, tcp, ..Flow::default() }, error))
        }
        Direction::Both => thread::scope(|scope| {
            let began = clock::now();
            let sender = scope.spawn(|| {
                let Sent { bytes: sent, took, error, .. } = send(plan, session, None, time, interrupt);
                (sent, took, error.or_else(|| session.end_sending().err()))
            });
            let (received, error) = receive(plan, session, time, interrupt);
            let (sent, took, not_sent) = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let tcp = link.tcp_info().map(tcp_facts);
            let Received { bytes: down, at_first, duration, summary } = received;
            let alone = Flow { unconfirmed: sent, down, at_first, duration, tcp, ..Flow::default() };
            let Some(summary) = summary else { return Ok((alone, error.or(not_sent))) };
            if let Err(error) = believable(session, &summary, sent, began) {
                return Ok((alone, Some(error)));
            }
            let duration = duration.max(arrival_time(&summary)).max(took);
            let at_first = at_first + mean_read(&summary);
            let (up, peer_cpu) = (summary.bytes, Some(summary.cpu));
            Ok((Flow { sent, up, down, at_first, duration, peer_cpu, tcp, ..Flow::default() }, error.or(not_sent)))
        }),
    }
}

/// Bytes that the first read brought, as far as the summary tells.
const fn mean_read(summary: &Totals) -> u64 {
    if summary.messages > 1 { summary.bytes / summary.messages } else { 0 }
}

fn arrival_time(summary: &Totals) -> Duration {
    Duration::from_nanos(summary.last_ns.saturating_sub(summary.first_ns))
}

/// Holds what the peer says of its arrivals against what is known here: no more can have come than was sent, nor over a
/// longer time than has passed since `began`, as far as the two clocks may run apart (`MAXFREQ`, adjtimex(2)).
fn believable(session: &Session, summary: &Totals, sent: u64, began: Instant) -> Result<()> {
    let passed = clock::now().saturating_since(began);
    let what = if summary.bytes > sent {
        format!("the peer says that {} bytes arrived, and {sent} were sent", summary.bytes)
    } else if arrival_time(summary) > passed + passed / 2000 + Duration::from_millis(1) {
        let (said, passed) = (arrival_time(summary).as_millis(), passed.as_millis());
        format!("the peer says that bytes arrived over {said} ms, and {passed} ms have passed")
    } else {
        return Ok(());
    };
    Err(Error::Protocol { endpoint: session.link().endpoint().to_string(), what })
}

/// What came of sending.
struct Sent {
    /// Bytes that this host's kernel took.
    bytes: u64,
    /// How long that took.
    took: Duration,
    /// What was made of it, as far as the socket tells.
    steady: Steady,
    /// How far the link has come.
    goes_on: Course,
    /// Why it ended before its time.
    error: Option<Error>,
}

/// Sends for that long, on a link that is new or has come that far.
fn send(plan: &StreamPlan, session: &Session, course: Option<Course>, time: Duration, interrupt: &Interrupt) -> Sent {
    let link = session.link();
    let mut block = vec![0x5A; plan.block_bytes];
    let datagrams = link.endpoint().framing() == Framing::Datagram;
    let patience = Patience::of(session, false, plan.block_bytes);
    let began = clock::now();
    let end = began + time;
    let mut progress = match course {
        Some(course) => Progress::going_on(course, time),
        None => Progress::new(Course::begin(link, plan.plain, began), time),
    };
    let (mut sent, mut sequence) = (0, 0);
    let (mut last_progress, mut next_look) = (began, began);
    let error = loop {
        let now = clock::now();
        if now >= next_look {
            progress.look(link, now, sent);
            next_look = now + LOOK;
        }
        if now >= end || interrupt.is_set() {
            break None;
        }
        if datagrams {
            session.mark(&mut block, sequence);
            sequence += 1;
        }
        match link.send(&block) {
            Ok(bytes) => {
                sent += bytes as u64;
                last_progress = now;
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::NOBUFS) => {
                if let Err(error) = patience.check(session, last_progress) {
                    break Some(error);
                }
            }
            Err(errno) => break Some(link.error("send on", errno)),
        }
    };
    let ended = clock::now();
    progress.look(link, ended, sent);
    let (took, steady) = (ended.saturating_since(began), progress.steady(ended));
    Sent { bytes: sent, took, steady, goes_on: progress.course(sent), error }
}

/// What a stream brought.
struct Received {
    bytes: u64,
    /// Of these, what was there at the first time.
    at_first: u64,
    /// From the first to the last, and to the end of waiting for more where it broke off.
    duration: Duration,
    summary: Option<Totals>,
}

/// Receives until the peer ends the stream; its summary is the last frame's length of it. Also
/// tells why it ended without.
fn receive(plan: &StreamPlan, session: &Session, time: Duration, interrupt: &Interrupt) -> (Received, Option<Error>) {
    let link = session.link();
    let patience = Patience::of(session, true, plan.block_bytes);
    let ends_with_link = link.endpoint().closes_by_halves();
    // Small enough to stay in the second-level cache beside the kernel's copy of it: larger ones were slower.
    let mut buffer = vec![0; 64 * 1024];
    let mut tail: Vec<u8> = Vec::with_capacity(2 * CONTROL_BYTES);
    let (mut total, mut at_first, mut first, mut last) = (0u64, 0, None, Instant::default());
    let (mut broken, mut is_closed) = (None, false);
    let mut last_progress = clock::now();
    let allowed = time + patience.time.max(Duration::from_secs(10));
    let give_up = last_progress + allowed;
    let mut is_interrupted = false;
    loop {
        match link.receive(&mut buffer) {
            Ok(0) => {
                // Where halves can be closed the summary precedes it.
                is_closed = true;
                break;
            }
            Ok(bytes) => {
                last = clock::now();
                last_progress = last;
                if first.is_none() {
                    (first, at_first) = (Some(last), bytes as u64);
                }
                total += bytes as u64;
                tail.extend_from_slice(&buffer[bytes.saturating_sub(CONTROL_BYTES)..bytes]);
                tail.drain(..tail.len().saturating_sub(CONTROL_BYTES));
                let has_ended = !ends_with_link && session.summary_in(&tail).is_some();
                if has_ended {
                    break;
                }
                if last > give_up {
                    let what = format!("its stream does not end, {} ms after it began", allowed.as_millis());
                    broken = Some(Error::Protocol { endpoint: link.endpoint().to_string(), what });
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => broken = patience.check(session, last_progress).err(),
            Err(errno) => broken = Some(link.error("receive on", errno)),
        }
        is_interrupted = interrupt.is_set();
        if broken.is_some() || is_interrupted {
            break;
        }
    }
    let summary = session.summary_in(&tail);
    if summary.is_some() {
        total -= CONTROL_BYTES as u64;
    }
    // The silence at the end of what broke off is time in which nothing came.
    let until =
        if broken.is_some() || is_interrupted || (is_closed && summary.is_none()) { clock::now() } else { last };
    let duration = first.map_or(Duration::ZERO, |first| until.saturating_since(first));
    // A stream that came with one read has no rate of its own.
    let at_first = if at_first < total { at_first } else { 0 };
    if is_closed && summary.is_none() {
        broken = Some(Error::Closed { endpoint: link.endpoint().to_string(), when: "before the end of the stream" });
    }
    (Received { bytes: total, at_first, duration, summary }, broken)
}

/// How often one who waits looks at the user's wish to stop.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// How long a stream may stand still.
struct Patience {
    time: Duration,
    why: &'static str,
}

impl Patience {
    fn of(session: &Session, down: bool, block_bytes: usize) -> Self {
        match standstill::expected(session.link(), down, block_bytes) {
            Some(time) => Self { time, why: standstill::WHY },
            None => Self { time: Duration::from_secs(10), why: "the stream: nothing moves" },
        }
    }

    fn check(&self, session: &Session, last_progress: Instant) -> Result<()> {
        if clock::now().saturating_since(last_progress) < self.time {
            return Ok(());
        }
        let endpoint = session.link().endpoint().to_string();
        Err(Error::Silent { endpoint, to: self.why, after_ms: self.time.as_millis() as u64 })
    }
}

fn row(plan: &StreamPlan, rounds: &[Round], options: Vec<String>, cpu: Duration) -> StreamRow {
    let by_round: Vec<StreamRound> = rounds
        .iter()
        .map(|Round { flows, complete, .. }| {
            let bytes: u64 = flows.iter().map(|flow| flow.up + flow.down).sum();
            let duration = flows.iter().map(|flow| flow.duration).max().unwrap_or_default();
            let seconds = duration.as_secs_f64();
            let in_time = bytes - flows.iter().map(|flow| flow.at_first).sum::<u64>().min(bytes);
            let throughput_bps = match seconds {
                // Each link has a time of its own.
                _ if plan.plain => flows.iter().map(Flow::rate_bps).sum(),
                seconds if seconds > 0.0 => in_time as f64 * 8.0 / seconds,
                _ => 0.0,
            };
            let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            StreamRound { throughput_bps, bytes, duration_ns, complete: *complete }
        })
        .collect();
    // A round that broke before anything was known to have arrived has no rate.
    let known = |round: &&StreamRound| round.duration_ns > 0 || round.bytes > 0;
    let whole = |round: &&StreamRound| round.complete && known(round);
    let rates: Vec<f64> = by_round.iter().filter(whole).map(|round| round.throughput_bps).collect();
    // Where no round is whole, what there is of one is all that is known.
    let partial: Vec<f64> = by_round.iter().filter(known).map(|round| round.throughput_bps).collect();
    let flows = || rounds.iter().flat_map(|round| &round.flows);
    // What is on its way in a link that goes on is told by the round that goes on with it.
    let unconfirmed = |(at, round): (usize, &Round)| -> u64 {
        let is_last = at + 1 == rounds.len() || rounds[at].flows.iter().all(|flow| flow.coarse.is_none());
        if is_last { round.flows.iter().map(|flow| flow.unconfirmed).sum() } else { 0 }
    };
    let bytes: u64 = flows().map(|flow| flow.up + flow.down).sum();
    let sent: u64 = flows().map(|flow| flow.sent).sum();
    let up: u64 = flows().map(|flow| flow.up).sum();
    let peer_cpu: Option<Duration> = flows().map(|flow| flow.peer_cpu).sum();
    let cpu_seconds = (cpu + peer_cpu.unwrap_or_default()).as_secs_f64();
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    StreamRow {
        endpoint: plan.endpoint.to_string(),
        transport: plan.endpoint.transport().to_owned(),
        command: plan.command.clone(),
        direction: plan.direction.name().to_owned(),
        connections: plan.connections,
        block_bytes: plan.block_bytes as u64,
        throughput_bps: median(&rates).or_else(|| median(&partial)).unwrap_or(0.0),
        throughput_bps_ci: interval(&rates).map(Interval::ends),
        throughput_bps_ci_level: interval(&rates).map(|interval| interval.level),
        bytes,
        counted: if plan.plain { counted(&plan.endpoint) } else { Counted::Received },
        lost_bytes: sent.saturating_sub(up),
        unconfirmed_bytes: rounds.iter().enumerate().map(unconfirmed).sum(),
        coarse: flows().filter_map(|flow| flow.coarse).reduce(Coarse::coarser),
        cpu_ns: nanos(cpu),
        peer_cpu_ns: peer_cpu.map(nanos),
        bytes_per_cpu_second: if cpu_seconds > 0.0 { bytes as f64 / cpu_seconds } else { 0.0 },
        rounds: by_round,
        placement: Some(plan.spot.told(rounds.iter().all(|round| round.is_placed))),
        tcp: rounds.last().and_then(|round| round.flows.first()).and_then(|flow| flow.tcp),
        options,
    }
}
