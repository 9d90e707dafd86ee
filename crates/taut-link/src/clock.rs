//! The live clock: `CLOCK_MONOTONIC` as [`Instant`], absolute sleeps, and the way from the kernel's
//! wall-clock timestamps to it.

use std::num::NonZeroU64;

use rustix::thread::{NanosleepRelativeResult, clock_nanosleep_absolute};
use rustix::time::{ClockId, Timespec, clock_gettime};
use taut_time::{Duration, Instant};

use crate::sys;

/// Reads `CLOCK_MONOTONIC`.
#[inline]
pub fn now() -> Instant {
    to_instant(clock_gettime(ClockId::Monotonic))
}

/// CPU time that the calling thread has used.
pub fn thread_cpu() -> Duration {
    to_duration(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time that this process has used, all threads.
pub fn process_cpu() -> Duration {
    to_duration(clock_gettime(ClockId::ProcessCPUTime))
}

/// Sleeps until `deadline`. Returns early, with `false`, when a signal arrives. A deadline that has
/// passed returns at once.
pub fn sleep_until(deadline: Instant) -> bool {
    match clock_nanosleep_absolute(ClockId::Monotonic, &to_timespec(deadline)) {
        Ok(()) => true,
        Err(errno) => errno != rustix::io::Errno::INTR,
    }
}

/// Sleeps for `duration`, whatever signals arrive.
pub fn sleep(duration: Duration) {
    let mut left = Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) };
    while let NanosleepRelativeResult::Interrupted(rest) = rustix::thread::nanosleep(&left) {
        left = rest;
    }
}

/// Waits until `deadline` to within the cost of a clock read: sleeps for most of the time and spins for the rest. For a
/// server that has to wait a known time; burns up to 300 µs of CPU.
pub fn wait_exactly_until(deadline: Instant) {
    const SPIN: Duration = Duration::from_micros(300);
    if deadline.saturating_since(now()) > SPIN {
        sleep_until(deadline - SPIN);
    }
    while now() < deadline {
        std::hint::spin_loop();
    }
}

/// Sets the calling thread's timer slack (`PR_SET_TIMERSLACK`): how late the kernel may let a sleep
/// end to save wake-ups. Needs no right. The default is 50 µs.
pub fn set_timer_slack(slack: Duration) {
    // 0 would mean "back to the default" (prctl(2)).
    let nanos = NonZeroU64::new(u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX)).unwrap_or(NonZeroU64::MIN);
    // It fails for no positive value.
    let _ = rustix::thread::set_current_timer_slack(Some(nanos));
}

/// Puts the calling thread under `SCHED_FIFO` with the lowest real-time priority.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE` or an `RLIMIT_RTPRIO`.
pub fn set_fifo_scheduling() -> std::io::Result<()> {
    sys::set_scheduler(libc::SCHED_FIFO, 1)
}

/// Puts the calling thread back under the default scheduling policy.
pub fn set_default_scheduling() -> std::io::Result<()> {
    sys::set_scheduler(libc::SCHED_OTHER, 0)
}

/// Distance between `CLOCK_REALTIME`, in which the kernel stamps packets, and `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub struct RealtimeOffset {
    ns: i128,
    /// Between the two reads of the monotonic clock around that of the other one.
    width: u64,
}

impl RealtimeOffset {
    /// Reads both clocks, three times, and keeps the pair with the least time in between.
    pub fn read() -> Self {
        let read_once = || {
            let before = now().as_nanos();
            let real = nanos(clock_gettime(ClockId::Realtime));
            let after = now().as_nanos();
            (after - before, real - i128::from(before + (after - before) / 2))
        };
        let (width, ns) = (0..3).map(|_| read_once()).min_by_key(|&(width, _)| width).unwrap_or_default();
        Self { ns, width }
    }

    /// By how much the wall clock is ahead, in nanoseconds.
    pub fn ahead_ns(self) -> i64 {
        i64::try_from(self.ns).unwrap_or(i64::MAX)
    }

    /// The distance may be wrong by so much, either way: half of the time that the reading took.
    pub const fn uncertainty(self) -> Duration {
        Duration::from_nanos(self.width.div_ceil(2))
    }

    /// How far the clocks have moved against each other since another reading, in ns.
    pub fn moved_since(self, earlier: Self) -> i64 {
        i64::try_from(self.ns - earlier.ns).unwrap_or(i64::MAX)
    }

    /// An instant of the monotonic clock as wall-clock time, in nanoseconds since 1970.
    pub fn to_realtime(self, instant: Instant) -> u64 {
        u64::try_from(i128::from(instant.as_nanos()) + self.ns).unwrap_or(0)
    }

    /// A wall-clock time as an instant of the monotonic clock.
    pub fn to_monotonic(self, seconds: i64, nanoseconds: i64) -> Instant {
        let real = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        Instant::from_nanos(u64::try_from(real - self.ns).unwrap_or(0))
    }
}

fn nanos(time: Timespec) -> i128 {
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

fn to_instant(time: Timespec) -> Instant {
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn to_duration(time: Timespec) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// An instant as the kernel takes it for absolute waits.
fn to_timespec(instant: Instant) -> Timespec {
    Timespec {
        tv_sec: (instant.as_nanos() / 1_000_000_000) as i64,
        tv_nsec: (instant.as_nanos() % 1_000_000_000) as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_time_lands_between_two_monotonic_reads() {
        let offset = RealtimeOffset::read();
        let before = now();
        let real = clock_gettime(ClockId::Realtime);
        let after = now();
        let at = offset.to_monotonic(real.tv_sec, real.tv_nsec);
        // The pair of reads itself is uncertain by its own width; 1 ms is far above it on a busy machine.
        assert!(at.signed_since(before) > -1_000_000 && at.signed_since(after) < 1_000_000);
    }

    #[test]
    fn an_exact_wait_is_never_early() {
        let deadline = now() + Duration::from_millis(2);
        wait_exactly_until(deadline);
        assert!(now() >= deadline);
    }
}
