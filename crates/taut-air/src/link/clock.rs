use taut_time::Instant;

use crate::role::Role;
use crate::time::{Nanos, US, after, before, drifted, span};

/// Anchors and the event counter, by a sleep clock that is a little wrong.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// Number of the current or next event.
    pub(crate) counter: u16,
    /// Data channel of that event.
    pub(crate) channel: u8,
    pub(crate) interval: Nanos,
    pub(crate) latency: u16,
    pub(crate) timeout: Nanos,
    hop: u8,
    /// Error of this side's sleep clock, positive when it is fast.
    ppm: i32,
    /// Sum of both sides' declared accuracies, for the widening.
    accuracy: Nanos,
    /// Last anchor that this side was present at.
    anchor: Instant,
    /// Intervals since then.
    since: u64,
    /// Expected time of the current event's anchor, by this side's clock.
    expected: Instant,
    /// Transmit window of a new connection or an update.
    window: Nanos,
    synchronised: bool,
    created: Instant,
}

/// What the connection was set up with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) interval: Nanos,
    pub(crate) latency: u16,
    pub(crate) timeout: Nanos,
    pub(crate) hop: u8,
    pub(crate) ppm: i32,
    pub(crate) accuracy_ppm: u32,
}

/// Time that a receiver allows for jitter of either side's sleep clock (Vol 6, Part B, 4.2.2: 16 us).
const JITTER: Nanos = 16 * US;

impl Clock {
    /// The clock of a connection made at `now`, whose first anchor lies from `first` to `window` later.
    pub(crate) fn new(now: Instant, first: Instant, window: Nanos, timing: Timing) -> Self {
        Self {
            counter: 0,
            // 4.5.8.2: the first event's channel is one hop from 0.
            channel: timing.hop % 37,
            interval: timing.interval,
            latency: timing.latency,
            timeout: timing.timeout,
            hop: timing.hop,
            ppm: timing.ppm,
            accuracy: timing.accuracy_ppm.into(),
            anchor: now,
            since: 0,
            expected: first,
            window,
            synchronised: false,
            created: now,
        }
    }

    pub(crate) const fn created(&self) -> Instant {
        self.created
    }

    pub(crate) const fn is_synchronised(&self) -> bool {
        self.synchronised
    }

    /// Anchor of the current event, as far as known.
    pub(crate) const fn anchor(&self) -> Instant {
        if self.since == 0 && self.synchronised { self.anchor } else { self.expected }
    }

    /// The event's anchor was at `anchor`.
    pub(crate) const fn synchronise(&mut self, anchor: Instant) {
        self.anchor = anchor;
        self.expected = anchor;
        self.since = 0;
        self.window = 0;
        self.synchronised = true;
    }

    /// On to the next event.
    pub(crate) fn next(&mut self) {
        self.counter = self.counter.wrapping_add(1);
        self.channel = (self.channel + self.hop) % 37;
        self.since += 1;
        self.expected = if self.synchronised {
            after(self.anchor, drifted(self.interval * self.since, self.ppm))
        } else {
            after(self.expected, drifted(self.interval, self.ppm))
        };
    }

    /// An update's instant: the event after next anchors keeps a new pace.
    pub(crate) const fn update(&mut self, interval: Nanos, latency: u16, timeout: Nanos, offset: Nanos, window: Nanos) {
        self.interval = interval;
        self.latency = latency;
        self.timeout = timeout;
        self.expected = after(self.expected, offset);
        self.window = window;
    }

    /// The event after this one.
    pub(crate) fn next_anchor(&self) -> Instant {
        after(self.anchor(), drifted(self.interval, self.ppm))
    }

    /// Half of what the peripheral's window grows by (4.2.4): both clocks' accuracies times the
    /// time since the last anchor, and the jitter.
    fn widening(&self) -> Nanos {
        span(self.anchor, self.expected) * self.accuracy / 1_000_000 + if self.accuracy > 0 { JITTER } else { 0 }
    }

    /// When a side wakes up for the current event.
    pub(crate) fn wake(&self, role: Role) -> Instant {
        match role {
            Role::Central => self.expected,
            Role::Peripheral => before(self.expected, self.widening()),
        }
    }

    /// Until when a peripheral listens for the beginning of a packet whose access address takes `sync` to be found.
    pub(crate) fn window_end(&self, sync: Nanos) -> Instant {
        after(self.expected, self.widening() + self.window + sync)
    }

    /// Data came while events are being skipped: whether an earlier one can be used.
    pub(crate) fn hurry(&mut self, now: Instant, role: Role) -> bool {
        if role == Role::Central || self.latency == 0 || !self.synchronised {
            return false;
        }
        let mut earlier = self.clone();
        let mut back = 0;
        while earlier.since > 1 {
            earlier.since -= 1;
            earlier.expected = after(earlier.anchor, drifted(earlier.interval * earlier.since, earlier.ppm));
            if earlier.wake(role) <= now {
                break;
            }
            back += 1;
            self.expected = earlier.expected;
        }
        if back == 0 {
            return false;
        }
        self.since -= back;
        self.counter = self.counter.wrapping_sub(back as u16);
        for _ in 0..back {
            self.channel = (self.channel + 37 - self.hop) % 37;
        }
        true
    }
}
