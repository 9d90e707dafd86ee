//! The clock of a trace on that of a capture.

use taut_time::{ClockDomain, ClockMap, Duration, Instant};

use super::super::report::{ClockFit, clock};
use super::super::stretches::{Placed, Stretches};
use super::super::why::{LEAST, NotJoined};
use super::clock::HostClock;

/// From times of a trace to those of a capture.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) clock: ClockFit,
    /// Too few packets tell the clocks' offset; the capture is taken to have the traced host's time of day.
    pub(super) is_by_time_of_day: bool,
    /// Packets that fit no clock that runs evenly.
    pub(super) strays: u64,
    map: ClockMap,
    ahead_ns: i64,
}

impl Line {
    /// Through what the packets allow. `slack` is what the clocks' steps leave open, in nanoseconds.
    pub(super) fn through(placed: &[Placed], host: &HostClock, slack: u64) -> Result<Self, NotJoined> {
        let ahead_ns = host.begin.time_of_day_ahead_ns;
        let has_both = [true, false].map(|way| placed.iter().any(|placed| placed.point.goes_there == way));
        if has_both != [true; 2] {
            return Self::by_time_of_day(placed, host, slack).ok_or(NotJoined::OneDirection);
        }
        if placed.len() < LEAST {
            let few = NotJoined::TooFew { common: placed.len() as u64 };
            return Self::by_time_of_day(placed, host, slack).ok_or(few);
        }
        let stretches = Stretches::along(placed, slack)?;
        if stretches.steps() > 0 {
            return Err(NotJoined::ClockWasSet);
        }
        let (_, fit) = stretches.longest();
        let map = fit.to_clock_map(Duration::from_nanos(slack));
        let clock = clock(&fit, &map, span(placed), 0);
        Ok(Self { clock, is_by_time_of_day: false, strays: stretches.strays, map, ahead_ns })
    }

    /// As if both clocks were one; nothing if a packet contradicts that, or the time of day was set meanwhile.
    fn by_time_of_day(placed: &[Placed], host: &HostClock, slack: u64) -> Option<Self> {
        let error = host.begin.uncertainty_ns.max(host.end.uncertainty_ns);
        let allowed = i64::try_from(error.saturating_add(slack)).ok()?;
        let is_possible = |placed: &Placed| match placed.point.goes_there {
            true => placed.point.ahead >= -allowed,
            false => placed.point.ahead <= allowed,
        };
        if host.was_set_by() != 0 || !placed.iter().all(is_possible) {
            return None;
        }
        let clock = ClockFit { uncertainty_ns: error, span_ns: span(placed), ..ClockFit::default() };
        let map = ClockMap {
            uncertainty: Duration::from_nanos(error),
            ..ClockMap::own(ClockDomain::RealTime, Duration::from_nanos(slack))
        };
        Some(Self { clock, is_by_time_of_day: true, strays: 0, map, ahead_ns: host.begin.time_of_day_ahead_ns })
    }

    /// A time of the trace on the clock of the capture. What is later there is not earlier here.
    pub(super) fn to_capture(&self, at: u64) -> u64 {
        self.map.to_reference(Instant::from_nanos(at).offset_by(self.ahead_ns)).as_nanos()
    }
}

fn span(placed: &[Placed]) -> u64 {
    let at = |placed: Option<&Placed>| placed.map_or(0, |placed| placed.point.at);
    at(placed.last()) - at(placed.first())
}
