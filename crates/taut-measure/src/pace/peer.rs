use taut_link::foreign::{Arrival, ForeignHost};
use taut_link::peer_clock::{Disagreement, PeerClock, arrival};
use taut_link::wire::{AckPolicy, ArrivalRecord, Work};
use taut_link::{Endpoint, Error, Request, Result, Session, clock};
use taut_time::{ByteRange, Duration, Event, Framing, Host, Instant, Layer, Timeline, What};

use super::plan::{PacePlan, PeerKind};
use crate::interrupt::Interrupt;

/// The receiving side, whatever it is.
pub(super) enum Peer {
    Server { endpoint: Endpoint, acks: AckPolicy },
    Plain(Endpoint),
    Foreign { host: ForeignHost, endpoint: Endpoint, delay: Duration },
}

impl Peer {
    pub(super) fn new(kind: &PeerKind) -> Result<Self> {
        Ok(match kind {
            PeerKind::Server { endpoint, acks } => Self::Server { endpoint: endpoint.clone(), acks: *acks },
            PeerKind::Plain(endpoint) => Self::Plain(endpoint.clone()),
            PeerKind::Foreign(policy) => {
                let host = ForeignHost::start(*policy)?;
                let endpoint = host.endpoint();
                Self::Foreign { host, endpoint, delay: policy.delay }
            }
            PeerKind::Simulated(_) => return Err(Error::Input("a simulated peer has no socket".into())),
        })
    }

    pub(super) const fn endpoint(&self) -> &Endpoint {
        match self {
            Self::Server { endpoint, .. } | Self::Plain(endpoint) | Self::Foreign { endpoint, .. } => endpoint,
        }
    }

    /// The peer and how it acknowledges, for the report.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Server { endpoint, acks } if endpoint.acknowledges() => match acks {
                AckPolicy::System => "taut serve, acknowledging as a plain reader".to_owned(),
                AckPolicy::Prompt => "taut serve, acknowledging at once".to_owned(),
                AckPolicy::Delayed => "taut serve, acknowledging by the delayed-ACK timer".to_owned(),
                AckPolicy::DelayedAtMost(micros) => {
                    format!("taut serve, acknowledging by the delayed-ACK timer after at most {micros} µs")
                }
            },
            Self::Server { .. } => "taut serve".to_owned(),
            Self::Plain(_) => "a plain server".to_owned(),
            Self::Foreign { delay, .. } => {
                format!("foreign peer, acknowledging after {} ms", delay.as_secs_f64() * 1e3)
            }
        }
    }

    pub(super) fn open(&self, plan: &PacePlan, interrupt: &Interrupt) -> Result<Session> {
        let request = self.request(plan);
        match self {
            Self::Foreign { host, .. } => host.in_namespace(|| Session::open(&request))?,
            Self::Server { .. } | Self::Plain(_) => Session::open_unless(&request, interrupt),
        }
    }

    fn request(&self, plan: &PacePlan) -> Request {
        let (acks, plain) = match self {
            Self::Server { acks, .. } => (*acks, false),
            Self::Plain(_) | Self::Foreign { .. } => (AckPolicy::System, true),
        };
        Request {
            endpoint: self.endpoint().clone(),
            work: Work::Collect,
            acks,
            message_bytes: plan.message_bytes,
            duration: plan.time,
            options: plan.options.clone(),
            plain,
            timeout: Duration::from_secs(5),
            core: plan.spot.peer_core.filter(|_| matches!(self, Self::Server { .. })),
        }
    }

    /// Ends the work and asks what arrived of these bytes.
    pub(super) fn report(&self, session: &Session, sent: u64) -> Result<Report> {
        match self {
            Self::Plain(_) => Ok(Report::None),
            Self::Foreign { host, .. } => {
                Ok(Report::Here(host.take_arrivals(session.link().local_port().unwrap_or_default())))
            }
            Self::Server { .. } => {
                let Some((summary, records)) = session.finish(sent)? else { return Ok(Report::None) };
                if summary.records_dropped > 0 {
                    return Err(Error::Refused {
                        endpoint: self.endpoint().to_string(),
                        reason: format!("it had no room to note {} of the arrivals", summary.records_dropped),
                    });
                }
                Ok(Report::There(records))
            }
        }
    }

    /// The peer's clock with what it says after the work. The session must be over: there may be no place for two.
    ///
    /// # Errors
    /// [`Error::Clocks`] when that is not the clock of before the work, or was not all the time.
    pub(super) fn clock_after(&self, plan: &PacePlan, clock: PeerClock) -> Result<PeerClock> {
        if clock == PeerClock::Same {
            return Ok(clock);
        }
        let request = Request { acks: AckPolicy::System, ..self.request(plan) };
        let mut readings = (0..ASKED_AGAIN).map(|again| {
            clock::sleep(Duration::from_millis(20) * again);
            Session::read_clock(&request)
        });
        // The server may not have noticed yet that the session is over; another error is no reason to ask again.
        let reading = readings.find(|reading| !matches!(reading, Err(Error::Refused { .. })));
        // Without one the uncertainty says what is not known.
        clock.and_after(reading.and_then(Result::ok)).map_err(|why| self.clocks(why))
    }

    fn clocks(&self, why: Disagreement) -> Error {
        Error::Clocks { endpoint: self.endpoint().to_string(), why }
    }

    /// Adds the arrivals to the timeline, and tells how far their times may be wrong, in ns.
    ///
    /// # Errors
    /// [`Error::Clocks`] when a message would have come before it was sent.
    pub(super) fn place(&self, report: &Report, clock: PeerClock, timeline: &mut Timeline) -> Result<Option<u64>> {
        let event = |at: Instant, layer, what, bytes| Event { at, host: Host::Peer, layer, what, bytes };
        match report {
            Report::None => Ok(None),
            Report::Here(arrivals) => {
                timeline.extend(
                    arrivals.iter().map(|arrival| event(arrival.at, Layer::Socket, What::Received, arrival.bytes)),
                );
                Ok(Some(0))
            }
            Report::There(records) => {
                let is_stream = timeline.framing() == Framing::Stream;
                let sent = Sent::of(timeline);
                let arrived = if self.endpoint().has_broker() { What::Forwarded } else { What::Received };
                let (mut before, mut widest) = (0, 0);
                for record in records {
                    // The framing of a datagram flow gives each record one message, whose length the sender knows.
                    let start = if is_stream { before } else { record.end.saturating_sub(1) };
                    before = record.end;
                    let bytes = ByteRange::new(start, record.end);
                    let written = sent.before(record.end);
                    let (read, uncertainty_ns) =
                        arrival(clock, record.read_ns, written).map_err(|why| self.clocks(why))?;
                    widest = uncertainty_ns.max(widest);
                    timeline.push(event(read, Layer::Application, What::Read, bytes));
                    // The kernel stamps in wall-clock time, whose distance was read beside it: what
                    // can't be is left out.
                    let stamp = Some(record.received_ns).filter(|&ns| ns > 0 && ns <= record.read_ns);
                    if let Some(Ok((received, _))) = stamp.map(|ns| arrival(clock, ns, written)) {
                        timeline.push(event(received, Layer::Socket, arrived, bytes));
                    }
                }
                Ok(Some(widest))
            }
        }
    }
}

/// What a receiver tells of arrivals.
pub(super) enum Report {
    /// Nothing.
    None,
    /// On our clock.
    Here(Vec<Arrival>),
    /// On its own.
    There(Vec<ArrivalRecord>),
}

/// When what was sent can have left at the soonest.
struct Sent(Vec<(u64, Instant)>);

impl Sent {
    fn of(timeline: &Timeline) -> Self {
        let mut writes: Vec<(u64, Instant)> =
            timeline.of(|what| matches!(what, What::WriteBegin)).map(|event| (event.bytes.end, event.at)).collect();
        writes.sort_unstable();
        Self(writes)
    }

    /// When the byte before that position was written; the beginning of time where that was not seen.
    fn before(&self, end: u64) -> Instant {
        self.0.get(self.0.partition_point(|&(written, _)| written < end)).map_or_else(Instant::default, |&(_, at)| at)
    }
}

/// How often the peer is asked for its clock after the work, when it can't be reached at once.
const ASKED_AGAIN: u32 = 5;
