use taut_link::foreign::ForeignHost;
use taut_link::wire::{AckPolicy, Work};
use taut_link::{Endpoint, Error, Request, Result, Session};
use taut_time::{ByteRange, Duration, Event, Framing, Host, Instant, Layer, Timeline, What};

use super::{PacePlan, PeerKind};

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

    pub(super) fn open(&self, plan: &PacePlan) -> Result<Session> {
        let (acks, plain) = match self {
            Self::Server { acks, .. } => (*acks, false),
            Self::Plain(_) | Self::Foreign { .. } => (AckPolicy::System, true),
        };
        let request = Request {
            endpoint: self.endpoint().clone(),
            work: Work::Collect,
            acks,
            message_bytes: plan.message_bytes,
            duration: plan.time,
            options: plan.options.clone(),
            plain,
            timeout: Duration::from_secs(5),
        };
        match self {
            Self::Foreign { host, .. } => host.in_namespace(|| Session::open(&request))?,
            Self::Server { .. } | Self::Plain(_) => Session::open(&request),
        }
    }

    /// Ends the session and adds what the peer tells of arrivals to the timeline. `count` bytes were sent.
    pub(super) fn collect(&self, session: &Session, timeline: &mut Timeline) -> Result<()> {
        let event = |at: Instant, layer, what, bytes| Event { at, host: Host::Peer, layer, what, bytes };
        match self {
            Self::Plain(_) => {}
            Self::Foreign { host, .. } => {
                let port = session.link().local_port().unwrap_or_default();
                let arrivals = host.take_arrivals(port);
                timeline.extend(
                    arrivals.iter().map(|arrival| event(arrival.at, Layer::Socket, What::Received, arrival.bytes)),
                );
            }
            Self::Server { .. } => {
                let Some((summary, records)) = session.finish()? else { return Ok(()) };
                let ahead = session.peer_clock().ahead_ns;
                let is_stream = timeline.framing() == Framing::Stream;
                let mut before = 0;
                for record in records {
                    // The framing of a datagram flow gives each record one message, whose length the sender knows.
                    let start = if is_stream { before } else { record.end.saturating_sub(1) };
                    before = record.end;
                    let bytes = ByteRange::new(start, record.end);
                    let read = Instant::from_nanos(record.read_ns).offset_by(-ahead);
                    timeline.push(event(read, Layer::Application, What::Read, bytes));
                    if record.received_ns > 0 {
                        let received = Instant::from_nanos(record.received_ns).offset_by(-ahead);
                        timeline.push(event(received, Layer::Socket, What::Received, bytes));
                    }
                }
                if summary.records_dropped > 0 {
                    return Err(Error::Refused {
                        endpoint: self.endpoint().to_string(),
                        reason: format!("it had no room to note {} of the arrivals", summary.records_dropped),
                    });
                }
            }
        }
        Ok(())
    }
}
