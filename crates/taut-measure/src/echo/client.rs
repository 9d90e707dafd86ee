//! The client of an echo workload, without I/O and clock: which message is sent when, and what becomes of each.
//!
//! A driver asks [`EchoClient::poll`] what to do, tells it what was written ([`EchoClient::wrote`]) and what came back
//! ([`EchoClient::handle`]), and asks again when [`EchoClient::deadline`] has come, at the latest. All drivers count
//! alike: warm-up, time-outs, late replies, duplicates, losses and what was never sent are decided here and nowhere
//! else.

use taut_link::{Error, Link, Numbering};
use taut_time::{Duration, Framing, Instant};

use super::copies::{Copies, FILLER};
use super::flights::Flights;
use super::plan::EchoPlan;
use super::samples::{Flight, Samples};
use super::stray::Strays;

/// Exchanges before each round that do not count: they bring caches, congestion window and ACK behaviour into their
/// steady state. At most this many for each link, in at most this time.
pub(super) const WARM_UP_MESSAGES: u64 = 32;
const WARM_UP_TIME: Duration = Duration::from_millis(50);
/// Beyond the time-out, how long half a message of an open loop may wait for room: the link is lost with it.
const STUCK: Duration = Duration::from_secs(5);

/// The messages of one round over one or several links.
#[derive(Debug)]
pub(super) struct EchoClient<'a> {
    plan: &'a EchoPlan,
    flows: Vec<Flow>,
    message: Vec<u8>,
    /// Messages of this part of the round, and when no more of them are begun.
    count: u64,
    end: Instant,
    /// When this part began.
    since: Instant,
    begun: u64,
    /// When the next message of the open loop is due.
    next_due: Instant,
    /// Where the closed loop looks first for a link that waits for nothing.
    next_flow: usize,
    /// The message that is being written, if one is.
    writing: Writing,
    is_writing: bool,
    /// Messages under way, over all links.
    under_way: usize,
    /// No message under way is overdue before then.
    overdue_from: Instant,
    /// After an interrupt, when nothing is waited for any more.
    give_up_at: Option<Instant>,
    samples: Samples,
    /// What is counted into after the warm-up. It is large, and made beforehand: the schedule begins with that.
    to_count: Samples,
}

/// One link with its messages under way.
#[derive(Debug)]
struct Flow {
    numbering: Numbering,
    next_sequence: u64,
    flights: Flights,
    /// Bytes of the oldest reply under way that have arrived (streams).
    arrived: usize,
    strays: Strays,
    copies: Copies,
    /// Messages written so far: one that found no room in time is none of them.
    written: u64,
}

/// A message that is being written.
#[derive(Clone, Copy, Debug)]
struct Writing {
    flow: usize,
    flight: Flight,
    written: usize,
    /// When it was begun, or found room last.
    progress: Instant,
    has_progress: bool,
}

/// What a driver does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// Writes what is left of a message ([`EchoClient::unwritten`]) to the link of that index, and asks again.
    Write {
        flow: usize,
        /// Nobody has been asked to write of it before.
        is_new: bool,
    },
    /// Reads what comes, no longer than to the deadline, and asks again.
    Wait,
    /// Ends: everything is sent, and answered or lost.
    Done,
    /// Ends: half a message has found no room on this link for so long, and nothing can be sent after it.
    Stuck { flow: usize, waited: Duration },
}

/// The error of a link on which half a message is stuck ([`Step::Stuck`]).
pub(super) fn stuck(link: &Link, waited: Duration) -> Error {
    let after_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    Error::Silent { endpoint: link.endpoint().to_string(), to: "what was sent: it reads nothing", after_ms }
}

/// The error of a link whose peer is no echo server ([`EchoClient::handle`]).
pub(super) fn no_echo(link: &Link, what: String) -> Error {
    Error::NoEcho { endpoint: link.endpoint().to_string(), what }
}

impl<'a> EchoClient<'a> {
    /// A client for links that number their messages so. Nothing is sent before [`Self::warm_up`] or [`Self::count`].
    pub(super) fn new(plan: &'a EchoPlan, links: impl IntoIterator<Item = Numbering>) -> Self {
        let flow = |numbering: Numbering| Flow {
            numbering,
            next_sequence: 0,
            flights: Flights::default(),
            arrived: 0,
            strays: Strays::default(),
            copies: Copies::new(numbering.is_plain(), plan.message_bytes),
            written: 0,
        };
        let start = Instant::from_nanos(0);
        Self {
            plan,
            flows: links.into_iter().map(flow).collect(),
            message: vec![FILLER; plan.message_bytes],
            count: 0,
            end: start,
            since: start,
            begun: 0,
            next_due: start,
            next_flow: 0,
            writing: Writing {
                flow: 0,
                flight: Flight { sequence: 0, intended: start, sent: start },
                written: 0,
                progress: start,
                has_progress: false,
            },
            is_writing: false,
            under_way: 0,
            overdue_from: start,
            give_up_at: None,
            samples: Samples::new(plan),
            to_count: Samples::new(plan),
        }
    }

    /// Begins the warm-up, whose messages are in no figure.
    pub(super) fn warm_up(&mut self, now: Instant) {
        self.begin_part(WARM_UP_MESSAGES * self.flows.len() as u64, now + WARM_UP_TIME, now);
    }

    /// Begins what counts: so many messages, none of them begun at `end` or later.
    pub(super) fn count(&mut self, messages: u64, end: Instant, now: Instant) {
        // What an interrupted warm-up has left behind is answered to nobody.
        self.under_way = 0;
        self.is_writing = false;
        for flow in &mut self.flows {
            flow.lose_all(self.message.len());
            flow.strays.begin_counting(flow.next_sequence);
        }
        std::mem::swap(&mut self.samples, &mut self.to_count);
        self.begin_part(messages, end, now);
    }

    fn begin_part(&mut self, messages: u64, end: Instant, now: Instant) {
        (self.count, self.end, self.since, self.begun) = (messages, end, now, 0);
        self.next_due = now;
    }

    /// The user wants to stop: nothing more is begun, and what is under way has a while to arrive.
    pub(super) fn stop(&mut self, now: Instant) {
        if self.give_up_at.is_none() {
            self.give_up_at = Some(now + self.samples.patience(self.plan.timeout));
        }
    }

    /// What has become of the messages so far.
    pub(super) fn into_samples(self) -> Samples {
        self.samples
    }

    /// Whether a reply is waited for.
    #[inline]
    pub(super) const fn is_waiting(&self) -> bool {
        self.under_way > 0
    }

    /// What to do now. To be asked again after each step, and when the deadline has come.
    #[inline]
    pub(super) fn poll(&mut self, now: Instant) -> Step {
        self.expire(now);
        if self.is_writing
            && let Some(step) = self.go_on_writing(now)
        {
            return step;
        }
        if self.is_sending(now) {
            if let Some(step) = self.begin(now) {
                return step;
            }
        } else if self.under_way == 0 || self.give_up_at.is_some_and(|at| now >= at) {
            if self.plan.rate_hz.is_some() && self.give_up_at.is_none() {
                self.samples.give_up_sending(self.count - self.begun);
                self.count = self.begun;
            }
            return Step::Done;
        }
        Step::Wait
    }

    /// Whether the next message could be sent at `at`: on an open loop's schedule it was due then.
    #[inline]
    pub(super) fn was_due(&self, at: Instant) -> bool {
        self.plan.rate_hz.is_none() || self.next_due <= at
    }

    /// When to ask again, whatever happens or does not. `None`: when something has come.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let due = self.plan.rate_hz.filter(|_| !self.is_writing && self.begun < self.count);
        let due = due.filter(|_| self.give_up_at.is_none()).map(|_| self.next_due);
        let overdue = Some(self.overdue_from).filter(|_| self.under_way > 0);
        let no_room = self.is_writing.then(|| self.writing.progress + self.patience_with(self.writing.written));
        [due, overdue, no_room, self.give_up_at].into_iter().flatten().min()
    }

    /// Counts messages whose reply has not come in time as lost. `poll` does so too; this is for a driver that has
    /// something to do before the next message.
    #[inline]
    pub(super) fn expire(&mut self, now: Instant) {
        if self.under_way > 0 && now >= self.overdue_from {
            self.lose_overdue(now);
        }
    }

    fn lose_overdue(&mut self, now: Instant) {
        let mut next = Instant::from_nanos(u64::MAX);
        for flow in &mut self.flows {
            while flow.flights.oldest().is_some_and(|flight| now >= flight.sent + self.plan.timeout) {
                flow.lose_first(self.message.len());
                self.under_way -= 1;
                self.samples.lose(1);
            }
            next = flow.flights.oldest().map_or(next, |flight| next.min(flight.sent + self.plan.timeout));
        }
        self.overdue_from = next;
    }

    #[inline]
    fn is_sending(&self, now: Instant) -> bool {
        self.begun < self.count && now < self.end && self.give_up_at.is_none()
    }

    /// With a message that found no room: once more, or no longer.
    fn go_on_writing(&mut self, now: Instant) -> Option<Step> {
        let Writing { flow, written, .. } = self.writing;
        if std::mem::take(&mut self.writing.has_progress) {
            self.writing.progress = now;
        }
        let waited = now.saturating_since(self.writing.progress);
        if waited >= self.patience_with(written) {
            // Half a message can't be taken back, so a peer that reads no more ends the link.
            if written > 0 {
                return Some(Step::Stuck { flow, waited });
            }
            self.is_writing = false;
            self.samples.lose(1);
            return None;
        }
        let is_over = self.give_up_at.is_some_and(|at| now >= at);
        Some(if is_over { Step::Done } else { Step::Write { flow, is_new: false } })
    }

    /// How long a message may wait for room.
    fn patience_with(&self, written: usize) -> Duration {
        self.plan.timeout + if written > 0 && self.plan.rate_hz.is_some() { STUCK } else { Duration::ZERO }
    }

    /// Begins the message that is due, on an open loop's schedule or, in a closed loop, on a link that waits for
    /// nothing.
    #[inline]
    fn begin(&mut self, now: Instant) -> Option<Step> {
        let (index, intended) = match self.plan.rate_hz {
            Some(_) if now < self.next_due => return None,
            Some(_) => ((self.begun % self.flows.len() as u64) as usize, self.next_due),
            None => (self.idle_flow()?, now),
        };
        let flow = &mut self.flows[index];
        let flight = Flight { sequence: flow.next_sequence, intended, sent: now };
        flow.next_sequence += 1;
        flow.copies.mark(&mut self.message, flow.written);
        flow.numbering.mark(&mut self.message, flight.sequence);
        self.samples.sent += 1;
        self.begun += 1;
        if let Some(rate) = self.plan.rate_hz {
            self.samples.sent_late_by(now.saturating_since(intended));
            self.next_due = self.since + Duration::from_secs_f64(self.begun as f64 / rate);
        }
        self.writing = Writing { flow: index, flight, written: 0, progress: now, has_progress: false };
        self.is_writing = true;
        Some(Step::Write { flow: index, is_new: true })
    }

    /// A link of the closed loop that waits for nothing.
    #[inline]
    fn idle_flow(&mut self) -> Option<usize> {
        let links = self.flows.len();
        if self.under_way == links {
            return None;
        }
        let mut flow = self.next_flow;
        while !self.flows[flow].flights.is_empty() {
            flow = if flow + 1 < links { flow + 1 } else { 0 };
        }
        self.next_flow = flow;
        Some(flow)
    }

    /// The message that is being written, and how many of its bytes have been.
    #[inline]
    pub(super) fn unwritten(&self) -> (&[u8], usize) {
        (&self.message, self.writing.written)
    }

    /// The link took so many bytes of the message. Whether that was the last of it.
    #[inline]
    pub(super) fn wrote(&mut self, bytes: usize) -> bool {
        let writing = &mut self.writing;
        writing.written += bytes;
        if writing.written < self.message.len() {
            writing.has_progress = true;
            return false;
        }
        let overdue = writing.flight.sent + self.plan.timeout;
        self.overdue_from = if self.under_way == 0 { overdue } else { overdue.min(self.overdue_from) };
        self.under_way += 1;
        let flow = &mut self.flows[writing.flow];
        flow.flights.push(writing.flight);
        flow.written += 1;
        self.is_writing = false;
        true
    }

    /// Bytes of a stream that are still to come for what has been written, those of lost replies included.
    #[inline]
    pub(super) fn missing_bytes(&self, flow: usize) -> usize {
        let flow = &self.flows[flow];
        (flow.strays.stale_bytes() + flow.flights.len() * self.message.len()).saturating_sub(flow.arrived)
    }

    /// These bytes came at `at`: the next of a stream, or one datagram.
    ///
    /// # Errors
    /// What they are, when they are no echo.
    #[inline]
    pub(super) fn handle(&mut self, flow: usize, bytes: &[u8], at: Instant) -> Result<(), String> {
        let length = self.message.len();
        let (flow, samples, under_way) = (&mut self.flows[flow], &mut self.samples, &mut self.under_way);
        let timeout = self.plan.timeout;
        match flow.numbering.framing() {
            Framing::Stream => {
                flow.copies.stream(bytes)?;
                flow.arrived += flow.strays.bytes(bytes.len(), samples);
                while flow.arrived >= length {
                    flow.arrived -= length;
                    if let Some(flight) = flow.flights.take_oldest() {
                        *under_way -= 1;
                        samples.answered(flight, at, timeout);
                    }
                }
            }
            Framing::Datagram => {
                let expected = flow.flights.oldest().map_or(flow.next_sequence, |flight| flight.sequence);
                let mut number = flow.numbering.number_of(bytes, expected);
                if flow.numbering.is_plain() {
                    number = Some(flow.copies.datagram(bytes, number, flow.next_sequence)?);
                }
                let Some(number) = number else { return Ok(()) };
                match flow.flights.take(number) {
                    Some(flight) => {
                        *under_way -= 1;
                        samples.answered(flight, at, timeout);
                    }
                    None => flow.strays.datagram(number, samples),
                }
            }
        }
        Ok(())
    }
}

impl Flow {
    /// Nobody waits for the oldest reply under way any more.
    fn lose_first(&mut self, message_bytes: usize) {
        let Some(flight) = self.flights.take_oldest() else { return };
        match self.numbering.framing() {
            Framing::Stream => self.strays.lost_bytes(message_bytes - std::mem::take(&mut self.arrived)),
            Framing::Datagram => self.strays.lost_datagram(flight.sequence),
        }
    }

    fn lose_all(&mut self, message_bytes: usize) {
        while !self.flights.is_empty() {
            self.lose_first(message_bytes);
        }
    }
}
