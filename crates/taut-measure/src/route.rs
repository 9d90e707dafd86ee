//! What was measured of routes, as rows of a recording. The measuring itself is that of the routes' own crate.

use crate::verdict::compare;
use taut_record::stats::{Distribution, Losses, Percentile, Ratio, Rounds};
use taut_record::{LossComparison, Round, RouteRow};

/// One path with one number of sinks, and its rounds.
#[derive(Clone, Debug)]
pub struct RouteCase {
    /// The path's name.
    pub path: &'static str,
    /// Sinks notified of each event.
    pub sinks: usize,
    /// Routes at work on the device.
    pub routes: usize,
    /// Times of the events, lost ones included.
    times: Rounds,
    rounds: Vec<Round>,
    /// Events that the path says it lost, in all rounds.
    pub reported_lost: Option<u64>,
}

impl RouteCase {
    /// A case without rounds.
    pub fn new(path: &'static str, sinks: usize, routes: usize) -> Self {
        Self { path, sinks, routes, times: Rounds::new(), rounds: Vec::new(), reported_lost: None }
    }

    /// Adds a round: the times in ns, and the events sent and lost.
    pub fn add(&mut self, times_ns: &[u64], sent: u64, lost: u64) {
        let mut times = Distribution::new();
        times_ns.iter().for_each(|&ns| times.record_ns(ns));
        times.record_lost(lost);
        self.times.add(&times);
        self.rounds.push(Round::of(&times, sent, lost));
    }

    fn losses(&self) -> Losses {
        let sum = |of: fn(&Round) -> u64| self.rounds.iter().map(of).sum();
        Losses { lost: sum(|round| round.lost), messages: sum(|round| round.sent) }
    }
}

/// What the times of a case are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RouteTimes {
    /// From an event to its last sink.
    EdgeToEdge,
    /// Of one turn in a loop.
    Loop,
}

/// What all cases share.
#[derive(Clone, Debug)]
pub struct RouteSetting {
    /// What the events went over.
    pub over: String,
    /// What is timed.
    pub times: RouteTimes,
    /// The condition.
    pub when: String,
    /// The command that repeats it.
    pub command: String,
    /// The time-out in ns.
    pub timeout_ns: u64,
    /// From a notification to the next event, in ns.
    pub gap_ns: u64,
    /// Processor of the sensor.
    pub sensor_core: Option<usize>,
    /// Processor of the thread under test.
    pub route_core: Option<usize>,
    /// `SCHED_FIFO` priority of the sensor.
    pub sensor_fifo: Option<u8>,
    /// `SCHED_FIFO` priority of the thread under test.
    pub route_fifo: Option<u8>,
}

/// What the others are held against.
const BASE: &str = "kept-open";

/// A row for each case, held against the kept-open one with as many sinks, round by round.
pub fn rows(cases: &[RouteCase], setting: &RouteSetting) -> Vec<RouteRow> {
    let compared = comparisons(cases);
    (0..cases.len()).map(|index| row(&cases[index], base_of(index, cases), compared, setting)).collect()
}

/// How many cases are held against another one.
pub fn comparisons(cases: &[RouteCase]) -> usize {
    (0..cases.len()).filter(|&index| base_of(index, cases).is_some()).count()
}

/// The first kept-open case with as many sinks, unless that is the case itself.
fn base_of(index: usize, cases: &[RouteCase]) -> Option<&RouteCase> {
    let base = cases.iter().position(|base| base.path == BASE && base.sinks == cases[index].sinks)?;
    (base != index).then(|| &cases[base])
}

fn row(case: &RouteCase, base: Option<&RouteCase>, comparisons: usize, setting: &RouteSetting) -> RouteRow {
    let at = |case: &RouteCase, percentile| case.times.percentiles(percentile);
    let losses = case.losses();
    let loss_compared = base.and_then(|base| LossComparison::of(losses, base.losses(), comparisons, BASE));
    let compared = base
        .and_then(|base| compare(&at(case, Percentile::P50), &at(base, Percentile::P50), comparisons))
        .map(|compared| compared.with(BASE).beside(loss_compared.as_ref()));
    let p99_ratio = base.and_then(|base| Ratio::across(&at(case, Percentile::P99), &at(base, Percentile::P99)));
    let summary = case.times.summary();
    RouteRow {
        path: case.path.to_owned(),
        over: setting.over.clone(),
        command: setting.command.clone(),
        when: setting.when.clone(),
        sinks: case.sinks,
        routes: case.routes,
        edge_to_edge_ns: summary.filter(|_| setting.times == RouteTimes::EdgeToEdge),
        loop_ns: summary.filter(|_| setting.times == RouteTimes::Loop),
        curve: case.times.pooled().curve(),
        sent: losses.messages,
        lost: losses.lost,
        reported_lost: case.reported_lost,
        timeout_ns: setting.timeout_ns,
        gap_ns: setting.gap_ns,
        rounds: case.rounds.clone(),
        compared,
        loss_compared,
        p99_ratio: p99_ratio.map(|ratio| ratio.middle),
        sensor_core: setting.sensor_core,
        route_core: setting.route_core,
        sensor_fifo: setting.sensor_fifo,
        route_fifo: setting.route_fifo,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_is_held_against_the_kept_open_one_with_as_many_sinks() {
        let case = |path, sinks, ns: u64| {
            let mut case = RouteCase::new(path, sinks, 1);
            (0..5).for_each(|_| case.add(&[ns; 100], 101, 1));
            case
        };
        let cases =
            [case("kept-open", 1, 8_000), case("xdp", 1, 2_000), case("kept-open", 4, 64_000), case("tc", 4, 4_000)];
        let setting = RouteSetting {
            over: "UDP".to_owned(),
            times: RouteTimes::EdgeToEdge,
            when: "true".to_owned(),
            command: "taut route bench".to_owned(),
            timeout_ns: 1,
            gap_ns: 1,
            sensor_core: None,
            route_core: None,
            sensor_fifo: None,
            route_fifo: None,
        };
        let rows = rows(&cases, &setting);
        let ratios: Vec<_> = rows.iter().map(|row| row.compared.as_ref().map(|compared| compared.p50_ratio)).collect();
        assert_eq!(ratios[0], None);
        for (ratio, exact) in [(ratios[1], 0.25), (ratios[3], 0.0625)] {
            assert!((ratio.unwrap() / exact - 1.0).abs() < 0.01, "{ratios:?}");
        }
        assert_eq!((rows[1].sent, rows[1].lost, rows[1].rounds.len()), (505, 5, 5));
    }
}
