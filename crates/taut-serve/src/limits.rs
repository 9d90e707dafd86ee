use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use taut_link::wire::{Hello, Refusal};
use taut_time::{Duration, Instant};

/// What a server grants its clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at once, over all endpoints.
    pub clients: usize,
    /// Bytes of one message.
    pub message_bytes: usize,
    /// Length of one session, however busy it is.
    pub session: Duration,
    /// Silence after which a client's slot is given up.
    pub idle: Duration,
    /// Time in which a client must have said what it wants.
    pub hello: Duration,
    /// Messages (datagrams) or reads (streams) of one client in a second.
    pub rate: u64,
    /// Arrivals kept for reports, over all clients; 24 bytes each.
    pub records: usize,
    /// Links of a crowd; there is one crowd at a time.
    pub crowd: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 256,
            message_bytes: 1 << 20,
            session: Duration::from_secs(3600),
            idle: Duration::from_secs(30),
            hello: Duration::from_secs(5),
            rate: 1_000_000,
            records: 2_000_000,
            crowd: 10_000,
        }
    }
}

impl Limits {
    /// Whether a client may have what it asks for.
    pub(super) fn check(&self, hello: &Hello) -> Result<(), Refusal> {
        if hello.message_bytes as usize > self.message_bytes {
            return Err(Refusal::MessageTooLong(clamp(self.message_bytes)));
        }
        if hello.duration > self.session {
            return Err(Refusal::SessionTooLong(u32::try_from(self.session.as_millis()).unwrap_or(u32::MAX)));
        }
        Ok(())
    }

    /// When a session that begins now is over, whatever its client does: after the time that it asked for and as
    /// much for a late start and held messages as a silent client gets, but no later than the longest session.
    pub(super) fn deadline(&self, hello: &Hello, now: Instant) -> Instant {
        let asked = if hello.duration.is_zero() { self.session } else { hello.duration };
        now + (asked + self.idle).min(self.session + GRACE)
    }
}

/// What a client that asked for the longest session gets for its start and its end.
const GRACE: Duration = Duration::from_millis(100);

/// Slots for clients, and room for the records of their arrivals.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    clients: Arc<AtomicUsize>,
    records: Arc<AtomicUsize>,
    limit: usize,
}

impl Slots {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            clients: Arc::new(AtomicUsize::new(limits.clients)),
            records: Arc::new(AtomicUsize::new(limits.records)),
            limit: limits.clients,
        }
    }

    /// Takes a slot, which is given back when the result is dropped.
    pub(super) fn take(&self) -> Result<Slot, Refusal> {
        if decrement(&self.clients) {
            Ok(Slot { slots: self.clone(), records: 0 })
        } else {
            Err(Refusal::Busy(clamp(self.limit)))
        }
    }
}

/// A client's slot.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    records: usize,
}

impl Slot {
    /// Whether there is room for one more record.
    #[inline]
    pub(super) fn take_record(&mut self) -> bool {
        let taken = decrement(&self.slots.records);
        self.records += usize::from(taken);
        taken
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.records.fetch_add(self.records, Ordering::Relaxed);
        self.slots.clients.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lets through a number of messages in a second, and as many at once.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: f64,
    tokens: f64,
    at: Instant,
}

impl Rate {
    pub(super) fn new(per_second: u64, now: Instant) -> Self {
        Self { per_second: per_second.max(1) as f64, tokens: per_second.max(1) as f64, at: now }
    }

    /// Whether a message may pass now; if not, how long until one may.
    #[inline]
    pub(super) fn pass(&mut self, now: Instant) -> Result<(), Duration> {
        self.tokens =
            (self.tokens + now.saturating_since(self.at).as_secs_f64() * self.per_second).min(self.per_second);
        self.at = now;
        if self.tokens < 1.0 {
            // Not less than a microsecond, so that rounding can't make a waiting caller spin.
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / self.per_second).max(Duration::from_micros(1)));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

fn decrement(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1)).is_ok()
}

fn clamp(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_records_come_back() {
        let slots = Slots::new(&Limits { clients: 1, records: 1, ..Limits::default() });
        let mut slot = slots.take().unwrap();
        assert!(slot.take_record() && !slot.take_record());
        assert_eq!(slots.take().unwrap_err(), Refusal::Busy(1));
        drop(slot);
        assert!(slots.take().unwrap().take_record());
    }

    #[test]
    fn no_session_is_longer_than_the_longest() {
        let limits = Limits { session: Duration::from_secs(60), idle: Duration::from_secs(30), ..Limits::default() };
        let hello = |seconds| Hello {
            work: taut_link::wire::Work::Echo,
            acks: taut_link::wire::AckPolicy::System,
            message_bytes: 1,
            duration: Duration::from_secs(seconds),
            nonce: 0,
            token: 0,
            core: None,
            boot: 0,
        };
        let length = |seconds| limits.deadline(&hello(seconds), Instant::default()).as_nanos() / 1_000_000;
        assert_eq!((length(0), length(10), length(60)), (60_100, 40_000, 60_100));
    }

    #[test]
    fn a_rate_lets_through_what_it_says() {
        let mut now = Instant::from_nanos(0);
        let mut rate = Rate::new(100, now);
        let mut passed = 0;
        for _ in 0..3000 {
            passed += u32::from(rate.pass(now).is_ok());
            now += Duration::from_millis(1);
        }
        // A burst of 100, then 100 a second for three seconds.
        assert!((395..=401).contains(&passed), "{passed}");
    }
}
