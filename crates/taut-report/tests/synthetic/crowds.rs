use taut_record::stats::{Distribution, Quantile, Rounds};
use taut_record::{Comparison, CpuComparison, CrowdRound, CrowdRow, Starvation, Verdict};

use super::times::{distribution, samples};

/// Engines of which one looks through all connections, one does not, one starves them and one is refused.
pub(super) fn crowds() -> Vec<CrowdRow> {
    let cases = [(10_000, 1, 1_700_000), (10_000, 100, 1_900_000), (100, 1, 34_000)];
    let row = |(connections, active, scan_ns)| {
        [
            crowd("poll", connections, active, Some(scan_ns)),
            crowd("uring", connections, active, Some(if active > 1 { 420_000 } else { 20_300 })),
            crowd("glibc-aio", connections, active, None),
            CrowdRow {
                why_not: Some("the engine aio-wait can't be used: Operation not permitted".to_owned()),
                starved: None,
                ..crowd("aio-wait", connections, active, None)
            },
        ]
    };
    cases.into_iter().flat_map(row).collect()
}

fn crowd(engine: &str, connections: usize, active: usize, p50_ns: Option<u64>) -> CrowdRow {
    let rounds: Vec<Vec<u64>> =
        p50_ns.map_or_else(Vec::new, |ns| (0..5).map(|i| samples(ns + 70 * i, 400, i)).collect());
    let distributions: Vec<Distribution> = rounds.iter().map(|times| distribution(times)).collect();
    let cpu = p50_ns.map(|ns| ns as f64 / active as f64 * 0.7);
    let with_uring = engine == "poll";
    let ratio = p50_ns.unwrap_or(1) as f64 / 1_700_000.0;
    CrowdRow {
        endpoint: "tcp://127.0.0.1".to_owned(),
        transport: "tcp".to_owned(),
        command: "taut connections --active 1,100 --by-connections 100".to_owned(),
        engine: engine.to_owned(),
        connections,
        active,
        message_bytes: 32,
        rtt_ns: distributions.iter().collect::<Rounds>().summary(),
        cpu_ns_per_message: cpu,
        cpu_ns_per_message_ci: cpu.map(|ns| (ns * 0.9, ns * 1.2)),
        cpu_ns_per_message_ci_level: cpu.map(|_| 0.9375),
        threads: p50_ns.map(|_| 1),
        rss_bytes: p50_ns.map(|_| 5_530_000),
        exchanges: if p50_ns.is_some() { 2_000 } else { 0 },
        sent: if p50_ns.is_some() { 2_000 * active as u64 } else { 0 },
        lost: 0,
        timeout_ns: 2_000_000_000,
        starved: p50_ns.is_none().then_some(Starvation {
            connections: 10_000,
            asked: 10_000,
            answered: 20,
            waited_ns: 2_000_000_000,
            threads: 21,
        }),
        why_not: None,
        rounds: distributions
            .iter()
            .map(|times| CrowdRound {
                p50_ns: times.quantile(0.5).and_then(Quantile::time),
                p99_ns: times.quantile(0.99).and_then(Quantile::time),
                max_ns: times.quantile(1.0).and_then(Quantile::time),
                cpu_ns_per_message: cpu,
                threads: 1,
                rss_bytes: 5_530_000,
                exchanges: 400,
                sent: 400 * active as u64,
                lost: 0,
            })
            .collect(),
        compared: (engine == "uring").then(|| Comparison {
            with: "poll".to_owned(),
            p50_ratio: ratio,
            p50_ratio_ci: (ratio * 0.9, ratio * 1.1),
            p50_ratio_level: Some(0.9375),
            verdict: Verdict::Shorter,
            rounds_needed: None,
        }),
        cpu_compared: with_uring.then(|| CpuComparison {
            with: "uring".to_owned(),
            ratio: 81.3,
            ratio_ci: (74.2, 88.0),
            ratio_level: Some(0.9375),
            verdict: Verdict::Longer,
            rounds_needed: None,
        }),
        client_core: Some(1),
        server_core: Some(0),
        placement: None,
        client_spins: true,
    }
}
