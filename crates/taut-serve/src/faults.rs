use taut_link::clock;
use taut_time::{Duration, Instant};

use crate::look_period::LOOK_PERIOD;
use taut_link::Interrupt;

/// Ways to make a server slow on purpose, by known amounts: what the measuring is held against.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Waits this long before each answer, to within a few µs (it spins at the end).
    pub delay: Duration,
    /// Stands still now and then.
    pub stall: Option<Stall>,
}

/// A server that stands still for `length` at the end of each `every`.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// How long it stands still.
    pub length: Duration,
    /// How often.
    pub every: Duration,
}

impl Faults {
    /// Waits as the faults say, unless the server is to stop; `began` is when it started.
    #[inline]
    pub(super) fn wait(&self, began: Instant, stop: &Interrupt) {
        if let Some(stall) = self.stall
            && let Some(end) = stall.end(began, clock::now())
        {
            sleep_until(end, stop);
        }
        if self.delay > Duration::ZERO {
            let end = clock::now() + self.delay;
            if self.delay > LOOK_PERIOD {
                sleep_until(end - LOOK_PERIOD, stop);
            }
            if !stop.is_set() {
                clock::wait_exactly_until(end);
            }
        }
    }
}

/// Sleeps until then or until the server is to stop.
pub(super) fn sleep_until(end: Instant, stop: &Interrupt) {
    while !stop.is_set() && clock::now() < end {
        clock::sleep_until(end.min(clock::now() + LOOK_PERIOD));
    }
}

impl Stall {
    /// The end of the stall that `now` falls into.
    fn end(self, began: Instant, now: Instant) -> Option<Instant> {
        let every = u64::try_from(self.every.as_nanos()).ok().filter(|&every| every > 0)?;
        let age = now.as_nanos().saturating_sub(began.as_nanos());
        let end = Instant::from_nanos(began.as_nanos() + (age / every + 1) * every);
        (end.saturating_since(now) <= self.length).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_the_end_of_its_period() {
        let ms = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let stall = Stall { length: Duration::from_millis(200), every: Duration::from_secs(1) };
        assert_eq!(stall.end(ms(5), ms(700)), None);
        assert_eq!(stall.end(ms(5), ms(900)), Some(ms(1005)));
        assert_eq!(stall.end(ms(5), ms(1006)), None);
    }
}
