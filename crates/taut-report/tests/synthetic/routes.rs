use taut_record::stats::{Distribution, Rounds};
use taut_record::{Comparison, Round, RouteRow, Verdict};

use super::times::{distribution, samples};

/// A path that loses some, one to hold the others against, and one in the kernel.
pub(super) fn routes() -> Vec<RouteRow> {
    vec![
        route("naive", 28_600, 37, Some(1.28)),
        route("kept-open", 22_300, 0, None),
        route("xdp", 3_450, 0, Some(0.155)),
        turns("naive", 41_800, Some(13.1)),
        turns("kept-open", 3_190, None),
    ]
}

/// The published experiment itself: turns without edges, on lines.
fn turns(path: &str, p50_ns: u64, ratio: Option<f64>) -> RouteRow {
    let row = route(path, p50_ns, 0, ratio);
    RouteRow {
        over: "GPIO lines of a simulated chip".to_owned(),
        loop_ns: row.edge_to_edge_ns,
        edge_to_edge_ns: None,
        gap_ns: 0,
        timeout_ns: 0,
        sensor_core: None,
        sensor_fifo: None,
        ..row
    }
}

fn route(path: &str, p50_ns: u64, lost: u64, ratio: Option<f64>) -> RouteRow {
    let mut rounds: Vec<Distribution> = (0..5).map(|i| distribution(&samples(p50_ns + 11 * i, 400, i))).collect();
    rounds[4].record_lost(lost);
    let all: Rounds = rounds.iter().collect();
    RouteRow {
        path: path.to_owned(),
        over: "UDP over a veth pair".to_owned(),
        command: "taut route bench --sinks 1".to_owned(),
        when: "value == 0".to_owned(),
        sinks: 1,
        routes: 1,
        edge_to_edge_ns: all.summary(),
        loop_ns: None,
        curve: all.pooled().curve(),
        sent: 2_000 + lost,
        lost,
        reported_lost: None,
        timeout_ns: 20_000_000,
        gap_ns: 100_000,
        rounds: rounds.iter().map(|round| Round::of(round, round.messages(), round.lost())).collect(),
        loss_compared: None,
        compared: ratio.map(|ratio| Comparison {
            with: "kept-open".to_owned(),
            p50_ratio: ratio,
            p50_ratio_ci: (ratio * 0.98, ratio * 1.03),
            p50_ratio_level: Some(0.9375),
            verdict: if ratio < 1.0 { Verdict::Shorter } else { Verdict::Longer },
            rounds_needed: None,
        }),
        p99_ratio: ratio.map(|ratio| ratio * 0.8),
        sensor_core: Some(0),
        route_core: Some(1),
        sensor_fifo: Some(50),
        route_fifo: None,
    }
}
