//! The clock of a trace on that of a capture.

use taut_time::{ClockDomain, ClockMap, Duration, Instant};

use super::super::report::{ClockFit, clock};
use super::super::stretches::{Placed, Stretches};
use super::super::why::{LEAST, NotJoined};
use super::clock::HostClock;
use super::pair::Pairs;

/// From times of a trace to those of a capture.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) clock: ClockFit,
    /// Too few packets tell the clocks' offset; the capture is taken to have the traced host's time of day.
    pub(super) is_by_time_of_day: bool,
    /// For there are enough, but all of one direction.
    pub(super) is_one_way: bool,
    /// Packets that fit no clock that runs evenly.
    pub(super) strays: u64,
    map: ClockMap,
    ahead_ns: i64,
}

impl Line {
    /// Through what the packets allow. `slack` is what the clocks' steps leave open, in nanoseconds.
    pub(super) fn through(pairs: &Pairs, host: &HostClock, slack: u64) -> Result<Self, NotJoined> {
        let mut all = [pairs.sure.as_slice(), &pairs.likely].concat();
        all.sort_by_key(|placed| placed.found.reference);
        let found = Self::along(&all, host, slack);
        match Self::along(&pairs.sure, host, slack) {
            // What is only likely may be the one that does not fit.
            Ok(sure) if found.is_err() && !sure.is_by_time_of_day => Ok(sure),
            _ => found,
        }
    }

    fn along(placed: &[Placed], host: &HostClock, slack: u64) -> Result<Self, NotJoined> {
        let ahead_ns = host.begin.time_of_day_ahead_ns;
        let by_time_of_day = |why: NotJoined, is_one_way: bool| {
            let by_it = Self::by_time_of_day(placed, host, slack);
            by_it.map(|line| Self { is_one_way, ..line }).ok_or(why)
        };
        let has_both = [true, false].map(|way| placed.iter().any(|placed| placed.point.goes_there == way));
        if has_both != [true; 2] {
            return by_time_of_day(NotJoined::OneDirection, placed.len() >= LEAST);
        }
        if placed.len() < LEAST {
            return by_time_of_day(NotJoined::TooFew { common: placed.len() as u64 }, false);
        }
        let stretches = Stretches::along(placed, slack)?;
        if stretches.steps() > 0 {
            return Err(NotJoined::ClockWasSet);
        }
        let (_, fit) = stretches.longest();
        let map = fit.to_clock_map(Duration::from_nanos(slack));
        let clock = clock(&fit, &map, span(placed), 0);
        let strays = stretches.strays;
        Ok(Self { clock, is_by_time_of_day: false, is_one_way: false, strays, map, ahead_ns })
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
        let ahead_ns = host.begin.time_of_day_ahead_ns;
        Some(Self { clock, is_by_time_of_day: true, is_one_way: false, strays: 0, map, ahead_ns })
    }

    /// A time of the trace on the clock of the capture. What is later there is not earlier here.
    pub(super) fn to_capture(&self, at: u64) -> u64 {
        self.map.to_reference(Instant::from_nanos(at).offset_by(self.ahead_ns)).as_nanos()
    }
}

fn span(placed: &[Placed]) -> u64 {
    let times = || placed.iter().map(|placed| placed.point.at);
    times().max().unwrap_or(0) - times().min().unwrap_or(0)
}
