//! How fast a peer that tells nothing takes what is sent to it.
//!
//! A socket takes what fits into two buffers, its own and the peer's, before the peer's program has read a byte.
//! So the rate is that of progress after the buffers have filled: from the last progress in the first half of a
//! round to the last progress in its second half. A peer that never reads makes none there, and its rate is 0.
//!
//! A slow peer makes progress in steps: its kernel opens the window when a good part of the buffer is free again. What
//! is left in the buffer after a step settles only with the second or third of them, so that a rate of few steps may be
//! far off. After a round of so few its links go on in the next round, whose rate is from the last step of this one.

use taut_link::{Endpoint, Link};
use taut_time::{Duration, Instant};

use taut_record::{Coarse, Counted};

/// Points of a round at which progress is kept, besides its start: bounds the memory.
const SLOTS: u32 = 256;
/// How often the socket of a plain peer is asked how far it has come: often against a round, rarely against a write.
pub(super) const LOOK: Duration = Duration::from_millis(5);
/// Steps without which a rate is coarse.
const LEAST_STEPS: usize = 8;

/// How far a link has come in a round, and when.
#[derive(Debug)]
pub(super) struct Progress {
    begin: Course,
    /// Whether the link was used before: then its buffers are full already.
    goes_on: bool,
    slot: Duration,
    /// The last progress in each slot of time, after the start.
    points: Vec<(Instant, u64)>,
}

/// How far a link has come since it was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    /// When it made its last progress.
    at: Instant,
    /// Bytes that counted by then.
    pub(super) counted: u64,
    /// Bytes that this host's kernel took.
    pub(super) sent: u64,
    /// Bytes acknowledged before the first, those of the handshake; `None` where what is sent counts.
    acknowledged_before: Option<u64>,
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
    /// Where that has few steps.
    pub(super) coarse: Option<Coarse>,
}

impl Course {
    /// Of a new link.
    pub(super) fn begin(link: &Link, plain: bool, at: Instant) -> Self {
        Self { at, counted: 0, sent: 0, acknowledged_before: acknowledged(link).filter(|_| plain) }
    }
}

impl Progress {
    /// A round that begins with this link and is to last that long.
    pub(super) fn new(begin: Course, time: Duration) -> Self {
        let slot = (time / SLOTS).max(Duration::from_nanos(1));
        Self { begin, goes_on: false, slot, points: vec![(begin.at, 0)] }
    }

    /// A round on a link that has come that far.
    pub(super) fn going_on(begin: Course, time: Duration) -> Self {
        Self { goes_on: true, ..Self::new(begin, time) }
    }

    /// Asks the link how far it has come, of which so much was sent in this round.
    pub(super) fn look(&mut self, link: &Link, now: Instant, sent: u64) {
        let counted = match self.begin.acknowledged_before {
            Some(before) => acknowledged(link).unwrap_or(0).saturating_sub(before).min(self.begin.sent + sent),
            None => self.begin.sent + sent,
        };
        self.note(now, counted.saturating_sub(self.begin.counted));
    }

    /// So many bytes since the start have been taken by now.
    fn note(&mut self, now: Instant, bytes: u64) {
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
        let before_middle = self.points.partition_point(|point| point.0 <= middle).max(1) - 1;
        let base = if self.goes_on { 0 } else { before_middle };
        let (from, before) = self.points[base];
        let steps = || self.points[base..].windows(2);
        let gaps = steps().map(|pair| pair[1].0.saturating_since(pair[0].0));
        let longest = gaps.max().unwrap_or_else(|| ended.saturating_since(from)).max(self.slot);
        // Steps that only seem to be few, since the socket was not asked more often, are none.
        let is_coarse = steps().count() < LEAST_STEPS && longest > LOOK * 4;
        let coarse = is_coarse.then(|| Coarse {
            steps: steps().count() as u64,
            step_bytes: steps().map(|pair| pair[1].1 - pair[0].1).max().unwrap_or(0),
        });
        if base + 1 == self.points.len() {
            let since = if self.goes_on { from } else { middle };
            return Steady { total: last.1, bytes: 0, time: ended.saturating_since(since), coarse };
        }
        // A silence of more than two steps is no part of a step: the peer has stopped.
        let until = if ended.saturating_since(last.0) > longest * 2 { ended } else { last.0 };
        Steady { total: last.1, bytes: last.1 - before, time: until.saturating_since(from), coarse }
    }

    /// How far the link has come, after a round in which so much was sent.
    pub(super) fn course(&self, sent: u64) -> Course {
        let (at, bytes) = self.points[self.points.len() - 1];
        Course { at, counted: self.begin.counted + bytes, sent: self.begin.sent + sent, ..self.begin }
    }
}

/// Where the bytes to a plain peer are counted.
pub(super) fn counted(endpoint: &Endpoint) -> Counted {
    if endpoint.acknowledges() { Counted::Acknowledged } else { Counted::Taken }
}

/// Bytes that the peer's kernel has acknowledged on this link so far; `None` where it does not acknowledge.
fn acknowledged(link: &Link) -> Option<u64> {
    link.tcp_info().map(|info| info.bytes_acked)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    const NEW: Course = Course { at: ms(0), counted: 0, sent: 0, acknowledged_before: None };

    /// A round of a second, with steps of so many bytes at so many milliseconds.
    fn round(steps: &[(u64, u64)]) -> Steady {
        let mut progress = Progress::new(NEW, Duration::from_secs(1));
        steps.iter().for_each(|&(at, bytes)| progress.note(ms(at), bytes));
        progress.steady(ms(1000))
    }

    #[test]
    fn what_fills_the_buffers_is_no_rate() {
        let steady = round(&[(1, 2_000_000), (3, 4_000_000)]);
        assert_eq!((steady.total, steady.bytes, steady.time), (4_000_000, 0, Duration::from_millis(500)));
        assert_eq!(round(&[]).bytes, 0);
    }

    #[test]
    fn the_rate_is_from_step_to_step() {
        // The buffers, then 64 kB each 200 ms: 320 kB/s.
        let steady = round(&[(1, 4_000_000), (150, 4_064_000), (350, 4_128_000), (550, 4_192_000), (750, 4_256_000)]);
        assert_eq!((steady.bytes, steady.time), (128_000, Duration::from_millis(400)));
        assert_eq!(steady.coarse, Some(Coarse { steps: 2, step_bytes: 64_000 }));
    }

    /// As a kernel has opened its window for a reader of 125 kB/s: the first step that counts
    /// leaves less in the buffer.
    #[test]
    fn a_round_that_goes_on_counts_from_the_last_step_of_the_one_before() {
        let mut first = Progress::new(NEW, Duration::from_secs(2));
        [(3, 127_974), (545, 195_558), (1_543, 290_790)].iter().for_each(|&(at, bytes)| first.note(ms(at), bytes));
        let rate = |steady: Steady| steady.bytes as f64 / steady.time.as_secs_f64();
        assert!(rate(first.steady(ms(2000))) < 100_000.0);
        let mut second = Progress::going_on(first.course(3_000_000), Duration::from_secs(2));
        [(2_309, 386_022), (3_065, 481_254), (3_829, 576_486)]
            .iter()
            .for_each(|&(at, all)| second.note(ms(at), all - 290_790));
        let steady = second.steady(ms(4000));
        assert!((rate(steady) / 125_000.0 - 1.0).abs() < 0.01, "{steady:?}");
        let course = second.course(500_000);
        assert_eq!((course.at, course.counted, course.sent), (ms(3_829), 576_486, 3_500_000));
    }

    #[test]
    fn a_peer_that_stops_is_charged_the_silence() {
        let steps: Vec<_> = (1..=520).map(|at| (at, at * 1000)).collect();
        let steady = round(&steps);
        assert!(steady.time >= Duration::from_millis(490) && steady.coarse.is_none(), "{steady:?}");
    }

    #[test]
    fn memory_is_bounded_and_no_progress_is_lost() {
        let mut progress = Progress::new(NEW, Duration::from_secs(1));
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
