use std::collections::VecDeque;

use rustix::io::Errno;
use taut_link::{Error, Result, Session, clock};
use taut_time::{Duration, Framing, Instant};

use super::copies::{Copies, FILLER};
use super::samples::{Flight, Samples};
use super::stray::Strays;
use crate::engine::{Engine, EngineKind};
use crate::interrupt::Interrupt;

/// Beyond the time-out, how long half a message may wait for room.
const STUCK: Duration = Duration::from_secs(5);

/// Open loop, or a closed loop over several links, driven by one thread: a slow reply never keeps the next message.
pub(super) struct EventLoop<'a> {
    flows: Vec<Flow<'a>>,
    engine: Box<dyn Engine + 'a>,
    ready: Vec<usize>,
    message: Vec<u8>,
    buffer: Vec<u8>,
    timeout: Duration,
    /// Time between messages of the open loop; `None` for a closed one.
    period: Option<Duration>,
    /// The message that found no room, and how much of it has been written.
    blocked: Option<Blocked>,
}

/// One link with the messages under way on it.
struct Flow<'a> {
    session: &'a Session,
    framing: Framing,
    next_sequence: u64,
    flights: VecDeque<Flight>,
    /// Bytes of the first reply under way that have arrived (streams).
    arrived: usize,
    strays: Strays,
    copies: Copies,
    /// Messages written so far: one that found no room in time is none of them.
    written: u64,
}

#[derive(Clone, Copy)]
struct Blocked {
    flow: usize,
    written: usize,
    flight: Flight,
}

impl<'a> EventLoop<'a> {
    pub(super) fn new(
        sessions: &'a [Session],
        engine: EngineKind,
        message_bytes: usize,
        plain: bool,
        timeout: Duration,
        period: Option<Duration>,
    ) -> Result<Self> {
        let mut links = Vec::with_capacity(sessions.len());
        for session in sessions {
            session.link().set_nonblocking(true)?;
            links.push(session.link());
        }
        let built = engine.build(&links).map_err(|error| {
            Error::Unavailable(format!("the engine {engine} can't be set up on this host: {error}"))
        })?;
        let flow = |session: &'a Session| Flow {
            session,
            framing: session.link().endpoint().framing(),
            next_sequence: 0,
            flights: VecDeque::new(),
            arrived: 0,
            strays: Strays::default(),
            copies: Copies::new(plain, message_bytes),
            written: 0,
        };
        Ok(Self {
            flows: sessions.iter().map(flow).collect(),
            engine: built,
            ready: Vec::with_capacity(sessions.len()),
            message: vec![FILLER; message_bytes],
            buffer: vec![0; message_bytes.max(64 * 1024)],
            timeout,
            period,
            blocked: None,
        })
    }

    /// What was sent so far was the warm-up.
    pub(super) fn begin_counting(&mut self) {
        self.flows.iter_mut().for_each(|flow| flow.strays.begin_counting(flow.next_sequence));
    }

    /// Sends until there are `count` messages or it is `end`, and waits for the replies under way, after an
    /// interrupt not for long. What an open loop has not sent of its `count` by then counts as unsent.
    pub(super) fn run(&mut self, samples: &mut Samples, count: u64, end: Instant, interrupt: &Interrupt) -> Result<()> {
        let began = clock::now();
        let mut begun = 0;
        let mut next_sweep = began;
        let mut give_up_at = None;
        loop {
            let now = clock::now();
            let stop = interrupt.is_set();
            let sending = begun < count && now < end && !stop;
            if self.blocked.is_none() && sending {
                begun += self.begin_due(samples, began, begun, count, now)?;
            } else if let Some(blocked) = self.blocked.take() {
                self.write(samples, blocked)?;
            }
            if now >= next_sweep {
                self.give_up(samples, now);
                next_sweep = now + (self.timeout / 16).max(Duration::from_micros(100));
            }
            let more = begun < count && clock::now() < end && !stop;
            let pending = self.blocked.is_some() || self.flows.iter().any(|flow| !flow.flights.is_empty());
            if stop && give_up_at.is_none() {
                give_up_at = Some(now + samples.patience(self.timeout));
            }
            if !more && (!pending || give_up_at.is_some_and(|at| now >= at)) {
                if self.period.is_some() && !stop {
                    samples.give_up_sending(count - begun);
                }
                return Ok(());
            }
            let next_send = match self.period {
                Some(period) if more && self.blocked.is_none() => Some(intended(began, period, begun)),
                _ => None,
            };
            let until = [next_send, give_up_at].into_iter().flatten().fold(next_sweep, Instant::min);
            self.wait(until)?;
            self.receive(samples)?;
        }
    }

    /// Begins the messages that are due (in a closed loop, one for each idle link), and says how many.
    fn begin_due(
        &mut self,
        samples: &mut Samples,
        began: Instant,
        begun: u64,
        count: u64,
        now: Instant,
    ) -> Result<u64> {
        let mut new = 0;
        if let Some(period) = self.period {
            while begun + new < count && self.blocked.is_none() {
                let at = intended(began, period, begun + new);
                if at > now {
                    break;
                }
                let flow = ((begun + new) % self.flows.len() as u64) as usize;
                self.begin(samples, flow, Some(at))?;
                new += 1;
            }
        } else {
            for flow in 0..self.flows.len() {
                if begun + new < count && self.blocked.is_none() && self.flows[flow].flights.is_empty() {
                    self.begin(samples, flow, None)?;
                    new += 1;
                }
            }
        }
        Ok(new)
    }

    fn begin(&mut self, samples: &mut Samples, flow: usize, intended: Option<Instant>) -> Result<()> {
        let sequence = self.flows[flow].next_sequence;
        self.flows[flow].next_sequence += 1;
        let sent = clock::now();
        let flight = Flight { sequence, intended: intended.unwrap_or(sent), sent };
        if intended.is_some() {
            samples.sent_late_by(sent.saturating_since(flight.intended));
        }
        samples.sent += 1;
        self.write(samples, Blocked { flow, written: 0, flight })
    }

    /// Writes what is left of a message; it stays in `blocked` when there is no room.
    fn write(&mut self, samples: &mut Samples, mut blocked: Blocked) -> Result<()> {
        let flow = &mut self.flows[blocked.flow];
        flow.copies.mark(&mut self.message, flow.written);
        flow.session.mark(&mut self.message, blocked.flight.sequence);
        let waited = clock::now().saturating_since(blocked.flight.sent);
        if waited > self.timeout && blocked.written == 0 {
            samples.lose(1);
            return Ok(());
        }
        // Half a message can't be taken back, so a peer that reads no more ends the link.
        if waited > self.timeout + STUCK {
            let endpoint = flow.session.link().endpoint().to_string();
            let after_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            return Err(Error::Silent { endpoint, to: "what was sent: it reads nothing", after_ms });
        }
        while blocked.written < self.message.len() {
            match flow.session.link().send(&self.message[blocked.written..]) {
                Ok(sent) => blocked.written += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.blocked = Some(blocked);
                    return Ok(());
                }
                Err(errno) => return Err(flow.session.link().error("send on", errno)),
            }
        }
        flow.flights.push_back(blocked.flight);
        flow.written += 1;
        Ok(())
    }

    fn wait(&mut self, until: Instant) -> Result<()> {
        let writer = self.blocked.map(|blocked| blocked.flow);
        self.engine.wait(Some(until), writer, &mut self.ready).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            self.flows[0].session.link().error("wait on", errno)
        })
    }

    fn receive(&mut self, samples: &mut Samples) -> Result<()> {
        for &index in &self.ready {
            let flow = &mut self.flows[index];
            loop {
                match flow.session.link().receive(&mut self.buffer) {
                    Ok(0) if flow.framing == Framing::Stream => {
                        let endpoint = flow.session.link().endpoint().to_string();
                        return Err(Error::Closed { endpoint, when: "before all replies came" });
                    }
                    Ok(bytes) => {
                        let at = clock::now();
                        let short = flow.take(&self.buffer[..bytes], at, self.message.len(), self.timeout, samples)?;
                        if short && bytes < self.buffer.len() {
                            self.engine.drained(index);
                            break;
                        }
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => {
                        self.engine.drained(index);
                        break;
                    }
                    Err(errno) => return Err(flow.session.link().error("receive on", errno)),
                }
            }
        }
        Ok(())
    }

    /// Counts messages whose reply has not come in time as lost.
    fn give_up(&mut self, samples: &mut Samples, now: Instant) {
        for flow in &mut self.flows {
            while flow.flights.front().is_some_and(|flight| now.saturating_since(flight.sent) > self.timeout) {
                let Some(flight) = flow.flights.pop_front() else { break };
                match flow.framing {
                    Framing::Stream => flow.strays.lost_bytes(self.message.len() - std::mem::take(&mut flow.arrived)),
                    Framing::Datagram => flow.strays.lost_datagram(flight.sequence),
                }
                samples.lose(1);
            }
        }
    }
}

impl Flow<'_> {
    /// Takes in what arrived; says whether the kernel is likely to have nothing more (streams).
    fn take(
        &mut self,
        bytes: &[u8],
        at: Instant,
        message: usize,
        timeout: Duration,
        samples: &mut Samples,
    ) -> Result<bool> {
        let answered = |flight: Flight, samples: &mut Samples| {
            let in_time = at.saturating_since(flight.sent) <= timeout;
            if in_time { samples.replied(flight, at) } else { samples.replied_late() }
        };
        match self.framing {
            Framing::Stream => {
                self.copies.stream(bytes, self.session.link())?;
                self.arrived += self.strays.bytes(bytes.len(), samples);
                while self.arrived >= message {
                    self.arrived -= message;
                    if let Some(flight) = self.flights.pop_front() {
                        answered(flight, samples);
                    }
                }
                Ok(true)
            }
            Framing::Datagram => {
                let expected = self.flights.front().map_or(self.next_sequence, |flight| flight.sequence);
                let found = self.session.sequence(bytes, expected);
                let found = self.copies.datagram(bytes, found, self.next_sequence, self.session.link())?;
                if let Some(sequence) = found {
                    let position = self.flights.binary_search_by_key(&sequence, |flight| flight.sequence);
                    match position.ok().and_then(|position| self.flights.remove(position)) {
                        Some(flight) => answered(flight, samples),
                        None => self.strays.datagram(sequence, samples),
                    }
                }
                Ok(false)
            }
        }
    }
}

fn intended(began: Instant, period: Duration, index: u64) -> Instant {
    let nanos = (period.as_nanos() as u64).saturating_mul(index);
    Instant::from_nanos(began.as_nanos().saturating_add(nanos))
}
