//! How fast a peer that tells nothing takes what is sent to it.
//!
//! A socket takes what fits into two buffers, its own and the peer's, before the peer's program has read a byte. So the
//! rate is that of progress after the buffers have filled: from the last progress in the first half of a round to the last
//! progress in its second half. A peer that never reads makes none there, and its rate is 0.

use taut_link::{Endpoint, Link};
use taut_time::{Duration, Instant};

use crate::recording::Counted;

/// Points of a round at which progress is kept, besides its start: bounds the memory.
const SLOTS: u32 = 256;

/// How far a link has come in a round, and when.
#[derive(Debug)]
pub(super) struct Progress {
    slot: Duration,
    /// The last progress in each slot of time, after the start.
    points: Vec<(Instant, u64)>,
}

/// What was made of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steady {
    /// Bytes of the whole round.
    pub(super) total: u64,
    /// Bytes of the time that counts.
    pub(super) bytes: u64,
    /// The time that counts.
    pub(super) time: Duration,
}

impl Progress {
    /// A round that begins now and is to last that long.
    pub(super) fn new(began: Instant, time: Duration) -> Self {
        Self { slot: (time / SLOTS).max(Duration::from_nanos(1)), points: vec![(began, 0)] }
    }

    /// So many bytes since the start have been taken by now.
    pub(super) fn note(&mut self, now: Instant, bytes: u64) {
        let (began, last) = (self.points[0].0, self.points[self.points.len() - 1]);
        if bytes <= last.1 {
            return;
        }
        let slot = |at: Instant| at.saturating_since(began).as_nanos() / self.slot.as_nanos();
        // Only what came later than the start shares a slot with what came before it.
        if self.points.len() > 1 && slot(now) == slot(last.0) {
            self.points.pop();
        }
        self.points.push((now, bytes));
    }

    /// The rate that was kept up, in a round that ended then.
    pub(super) fn steady(&self, ended: Instant) -> Steady {
        let (began, last) = (self.points[0].0, self.points[self.points.len() - 1]);
        let middle = began + ended.saturating_since(began) / 2;
        let base = self.points.partition_point(|point| point.0 <= middle).max(1) - 1;
        let (from, before) = self.points[base];
        if base + 1 == self.points.len() {
            return Steady { total: last.1, bytes: 0, time: ended.saturating_since(middle) };
        }
        let gaps = self.points[base..].windows(2).map(|pair| pair[1].0.saturating_since(pair[0].0));
        let longest = gaps.max().unwrap_or_default().max(self.slot);
        // A silence of more than two steps is no part of a step: the peer has stopped.
        let until = if ended.saturating_since(last.0) > longest * 2 { ended } else { last.0 };
        Steady { total: last.1, bytes: last.1 - before, time: until.saturating_since(from) }
    }
}

/// Where the bytes to a plain peer are counted.
pub(super) fn counted(endpoint: &Endpoint) -> Counted {
    if endpoint.acknowledges() { Counted::Acknowledged } else { Counted::Taken }
}

/// Bytes that the peer's kernel has acknowledged on this link so far; `None` where it does not acknowledge.
pub(super) fn acknowledged(link: &Link) -> Option<u64> {
    link.tcp_info().map(|info| info.bytes_acked)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// A round of a second, with steps of so many bytes at so many milliseconds.
    fn round(steps: &[(u64, u64)]) -> Steady {
        let mut progress = Progress::new(ms(0), Duration::from_secs(1));
        steps.iter().for_each(|&(at, bytes)| progress.note(ms(at), bytes));
        progress.steady(ms(1000))
    }

    #[test]
    fn what_fills_the_buffers_is_no_rate() {
        let steady = round(&[(1, 2_000_000), (3, 4_000_000)]);
        assert_eq!(steady, Steady { total: 4_000_000, bytes: 0, time: Duration::from_millis(500) });
        assert_eq!(round(&[]).bytes, 0);
    }

    #[test]
    fn the_rate_is_from_step_to_step() {
        // The buffers, then 64 kB each 200 ms: 320 kB/s.
        let steady = round(&[(1, 4_000_000), (150, 4_064_000), (350, 4_128_000), (550, 4_192_000), (750, 4_256_000)]);
        assert_eq!((steady.bytes, steady.time), (128_000, Duration::from_millis(400)));
    }

    #[test]
    fn a_peer_that_stops_is_charged_the_silence() {
        let steps: Vec<_> = (1..=520).map(|at| (at, at * 1000)).collect();
        let steady = round(&steps);
        assert!(steady.time >= Duration::from_millis(490), "{steady:?}");
    }

    #[test]
    fn memory_is_bounded_and_no_progress_is_lost() {
        let mut progress = Progress::new(ms(0), Duration::from_secs(1));
        for micros in 1..=1_000_000_u64 {
            progress.note(Instant::from_nanos(micros * 1000), micros);
        }
        assert!(progress.points.len() <= SLOTS as usize + 2);
        let steady = progress.steady(ms(1000));
        assert_eq!(steady.total, 1_000_000);
        let rate = steady.bytes as f64 / steady.time.as_secs_f64();
        assert!((rate / 1e6 - 1.0).abs() < 1e-3, "{rate}");
    }
}
