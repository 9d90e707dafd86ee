use taut_link::clock::RealtimeOffset;
use taut_link::stamp::TransmitStamps;
use taut_link::{Link, Result};
use taut_time::{ByteRange, Event, Host, Instant, Layer, Timeline, What};

/// Watches the writes on one link and keeps what the program and the kernel tell of them as a timeline.
#[derive(Debug)]
pub(crate) struct Observer {
    timeline: Timeline,
    stamps: Option<TransmitStamps>,
    offset: RealtimeOffset,
    drains: u32,
    written: u64,
    most_events: usize,
}

impl Observer {
    /// Begins to watch; everything sent before must be acknowledged. Where the transport has no transmit timestamps the
    /// timeline holds what the program itself saw.
    pub(crate) fn start(link: &Link, message_bytes: usize) -> Self {
        Self {
            timeline: Timeline::new(link.endpoint().framing()),
            stamps: TransmitStamps::start(link, message_bytes).ok(),
            offset: RealtimeOffset::read(),
            drains: 0,
            written: 0,
            most_events: usize::MAX,
        }
    }

    /// Stops to keep events after so many, for a run of unknown length: its beginning then stands for all of it.
    pub(crate) const fn keep_at_most(mut self, events: usize) -> Self {
        self.most_events = events;
        self
    }

    /// Whether the kernel reports what happens to the writes.
    pub(crate) const fn has_stamps(&self) -> bool {
        self.stamps.is_some()
    }

    /// The schedule wants the next `bytes` sent at `at`.
    pub(crate) fn intend(&mut self, at: Instant, bytes: usize) {
        self.push(at, Layer::Application, What::Intended, ByteRange::new(self.written, self.written + bytes as u64));
    }

    /// A sending call took `bytes`. Looks at what the socket holds unsent just afterwards.
    #[inline]
    pub(crate) fn wrote(&mut self, link: &Link, bytes: usize, begin: Instant, end: Instant) {
        let range = ByteRange::new(self.written, self.written + bytes as u64);
        self.written = range.end;
        if let Some(queue) = link.waiting_to_send() {
            self.push(end, Layer::Socket, What::SendQueue(queue), range);
        }
        if let Some(stamps) = &mut self.stamps {
            stamps.sent(link);
        }
        self.push(begin, Layer::Application, What::WriteBegin, range);
        self.push(end, Layer::Application, What::WriteEnd, range);
    }

    /// Takes what the kernel has reported so far.
    pub(crate) fn drain(&mut self, link: &Link) -> Result<()> {
        let Some(stamps) = &mut self.stamps else { return Ok(()) };
        // The wall clock may be slewed while we measure.
        if self.drains.is_multiple_of(64) {
            self.offset = RealtimeOffset::read();
        }
        self.drains = self.drains.wrapping_add(1);
        let (timeline, most) = (&mut self.timeline, self.most_events);
        stamps.drain(link, self.offset, &mut |event| {
            if timeline.events().len() < most {
                timeline.push(event);
            }
        })
    }

    /// Whether the peer has acknowledged everything written, as far as the kernel has told.
    pub(crate) fn is_all_acked(&self) -> bool {
        let acked = self.timeline.events().iter().rev().find(|event| event.what == What::Acked);
        acked.is_some_and(|event| event.bytes.end >= self.written)
    }

    pub(crate) fn into_timeline(self) -> Timeline {
        self.timeline
    }

    fn push(&mut self, at: Instant, layer: Layer, what: What, bytes: ByteRange) {
        if self.timeline.events().len() < self.most_events {
            self.timeline.push(Event { at, host: Host::Local, layer, what, bytes });
        }
    }
}
