//! What was measured of routes, as rows of a recording. The measuring itself is that of the routes' own crate.

use crate::echo::verdict;
use crate::recording::{Comparison, Round, RouteRow};
use crate::stats::{Distribution, ratio_across};

/// One path with one number of sinks, and its rounds.
#[derive(Clone, Debug)]
pub struct RouteCase {
    /// The path's name.
    pub path: &'static str,
    /// Sinks notified of each event.
    pub sinks: usize,
    /// Routes at work on the device.
    pub routes: usize,
    /// Times of each round in ns, with the events sent and lost.
    pub rounds: Vec<(Distribution, u64, u64)>,
    /// Events that the path says it lost, in all rounds.
    pub reported_lost: Option<u64>,
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
    cases.iter().map(|case| row(case, cases.iter().find(|base| is_base(base, case)), setting)).collect()
}

fn is_base(base: &RouteCase, case: &RouteCase) -> bool {
    base.path == BASE && base.sinks == case.sinks && case.path != BASE
}

fn row(case: &RouteCase, base: Option<&RouteCase>, setting: &RouteSetting) -> RouteRow {
    let distributions: Vec<Distribution> = case.rounds.iter().map(|(times, ..)| times.clone()).collect();
    let mut all = Distribution::new();
    distributions.iter().for_each(|round| all.add(round));
    let round = |(times, sent, lost): &(Distribution, u64, u64)| Round {
        p50_ns: times.quantile(0.5),
        p99_ns: times.quantile(0.99),
        max_ns: times.quantile(1.0),
        sent: *sent,
        lost: *lost,
    };
    let at = |case: &RouteCase, q| case.rounds.iter().map(|(times, ..)| times.quantile(q)).collect::<Vec<_>>();
    let ratio = |q| base.and_then(|base| ratio_across(&at(case, q), &at(base, q)));
    let summary = all.summary(&distributions);
    RouteRow {
        path: case.path.to_owned(),
        over: setting.over.clone(),
        command: setting.command.clone(),
        when: setting.when.clone(),
        sinks: case.sinks,
        routes: case.routes,
        edge_to_edge_ns: summary.filter(|_| setting.times == RouteTimes::EdgeToEdge),
        loop_ns: summary.filter(|_| setting.times == RouteTimes::Loop),
        curve: all.curve(),
        sent: case.rounds.iter().map(|(_, sent, _)| sent).sum(),
        lost: case.rounds.iter().map(|(.., lost)| lost).sum(),
        reported_lost: case.reported_lost,
        timeout_ns: setting.timeout_ns,
        gap_ns: setting.gap_ns,
        rounds: case.rounds.iter().map(round).collect(),
        compared: ratio(0.5).map(|(p50_ratio, p50_ratio_ci)| Comparison {
            with: BASE.to_owned(),
            p50_ratio,
            p50_ratio_ci,
            verdict: verdict(p50_ratio_ci),
        }),
        p99_ratio: ratio(0.99).map(|(ratio, _)| ratio),
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
            let round = || {
                let mut times = Distribution::new();
                (0..100).for_each(|_| times.record_ns(ns));
                (times, 101, 1)
            };
            RouteCase { path, sinks, routes: 1, rounds: (0..5).map(|_| round()).collect(), reported_lost: None }
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
