use std::collections::VecDeque;

use taut_air::{AirEvent, Happening, Observer, Purpose};
use taut_time::{ByteRange, Event, Framing, Host, Instant, Layer, Timeline, What};

/// Puts a run's first link on a [`Timeline`]: each SDU is a message, from the sending call that wrote it until
/// the peer's program had read it, and beside them stands what was on the air. Keeps every event of the run.
#[derive(Debug)]
pub struct AirTimeline {
    timeline: Timeline,
    /// Bytes written.
    written: u64,
    /// SDUs written and not yet read, oldest first, with the bytes of each.
    sdus: VecDeque<Sdu>,
    measuring: bool,
    /// Whether each SDU is a message.
    sdus_are_messages: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sdu {
    sequence: u64,
    bytes: ByteRange,
    /// Bytes that have not been on the air.
    left: u64,
}

impl AirTimeline {
    /// An empty one.
    pub fn new() -> Self {
        Self {
            timeline: Timeline::new(Framing::Stream),
            written: 0,
            sdus: VecDeque::new(),
            measuring: false,
            sdus_are_messages: true,
        }
    }

    /// An empty one for a program that has messages of its own and puts them in: SDUs are only parts of them.
    pub(crate) fn of_writes() -> Self {
        Self { sdus_are_messages: false, ..Self::new() }
    }

    /// What was seen.
    pub fn finish(self) -> Timeline {
        self.timeline
    }

    fn push(&mut self, at: Instant, host: Host, layer: Layer, what: What, bytes: ByteRange) {
        self.timeline.push(Event { at, host, layer, what, bytes });
    }

    /// SDU bytes go on the air: the PDU, and after its last one the whole SDU has left.
    fn sent(&mut self, at: Instant, nanos: u64, bytes: usize) {
        let Some(sdu) = self.sdus.iter_mut().find(|sdu| sdu.left > 0) else { return };
        let start = sdu.bytes.end - sdu.left;
        sdu.left = sdu.left.saturating_sub(bytes as u64);
        let part = ByteRange::new(start, sdu.bytes.end - sdu.left);
        let whole = (sdu.left == 0).then_some(sdu.bytes);
        self.push(at, Host::Local, Layer::Medium, What::OnAir { nanos }, part);
        if let Some(whole) = whole {
            // The radio is the driver's next floor: what has ended on the air has left the host.
            self.push(at.offset_by(nanos as i64), Host::Local, Layer::Driver, What::Left, whole);
        }
    }

    fn sdu(&self, sequence: u64) -> Option<ByteRange> {
        self.sdus.iter().find(|sdu| sdu.sequence == sequence).map(|sdu| sdu.bytes)
    }
}

impl Default for AirTimeline {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for AirTimeline {
    fn event(&mut self, event: &AirEvent<'_>) {
        let at = event.at;
        if event.link != 0 {
            return;
        }
        match event.what {
            Happening::MeasurementBegins => self.measuring = true,
            Happening::SduWritten { sequence, bytes, .. } => {
                let range = ByteRange::new(self.written, self.written + bytes as u64);
                self.written = range.end;
                self.sdus.push_back(Sdu { sequence, bytes: range, left: range.len() });
                let all = [What::WriteEnd, What::Intended, What::WriteBegin];
                for what in all.into_iter().take(if self.sdus_are_messages { 3 } else { 1 }) {
                    self.push(at, Host::Local, Layer::Application, what, range);
                }
            }
            Happening::Pdu { duration, purpose: Purpose::Payload(bytes), retransmission: false, .. } => {
                self.sent(at, duration, bytes);
            }
            Happening::Pdu { duration, .. } if self.measuring => {
                self.push(at, Host::Peer, Layer::Medium, What::OnAir { nanos: duration }, ByteRange::default());
            }
            Happening::Span { category, duration } if category.is_idle() => {
                let idle = What::Idle { nanos: duration, holder: category.name() };
                self.push(at, Host::Local, Layer::Medium, idle, ByteRange::default());
            }
            Happening::SduComplete { sequence, .. } => {
                if let Some(bytes) = self.sdu(sequence) {
                    self.push(at, Host::Peer, Layer::Socket, What::Received, bytes);
                }
            }
            Happening::SduRead { sequence, .. } => {
                if let Some(bytes) = self.sdu(sequence) {
                    self.push(at, Host::Peer, Layer::Application, What::Read, bytes);
                }
                while self.sdus.front().is_some_and(|sdu| sdu.sequence <= sequence && sdu.left == 0) {
                    self.sdus.pop_front();
                }
            }
            _ => {}
        }
    }
}
