use taut_air::{Counters, Latencies, Outcome};

use super::AirPlan;
use taut_record::AirRow;
use taut_record::stats::{Quantile, Summary};

/// The row of a run.
pub(super) fn row(plan: &AirPlan, outcome: &Outcome) -> AirRow {
    let negotiated = outcome.negotiated.as_ref();
    let mut events = outcome.events_by_data_pdus.clone();
    let used = events.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
    events.truncate(used);
    AirRow {
        scenario: plan.file.clone(),
        command: plan.command(),
        seed: plan.seed,
        set: plan.set.clone(),
        links: plan.scenario.links.into(),
        ci_ns: plan.scenario.ci,
        phy: plan.scenario.phy.name().to_owned(),
        length_bytes: negotiated.map_or(0, |agreed| agreed.length.into()),
        encrypted: plan.scenario.encrypted,
        mtu_bytes: negotiated.map_or(0, |agreed| agreed.mtu.into()),
        mps_bytes: negotiated.map_or(0, |agreed| agreed.mps.into()),
        initial_credits: negotiated.map_or(0, |agreed| agreed.initial_credits.into()),
        duration_ns: outcome.duration_ns,
        throughput_bps: outcome.throughput_bps,
        limit_bps: outcome.limit_bps,
        quantised_limit_bps: outcome.quantised_limit_bps,
        connection_events: outcome.connection_events,
        events_by_pdus: events,
        sdu_latency_ns: summary(&outcome.sdu_latency),
        ledger_ns: outcome.ledger.iter().map(|(category, ns)| (category.name().to_owned(), ns)).collect(),
        counters: counters(&outcome.counters).into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        excerpt: None,
    }
}

fn summary(latencies: &Latencies) -> Option<Summary> {
    let at = |q: f64| latencies.quantile(q).map(Quantile::Time);
    Some(Summary {
        min: latencies.min(),
        mean: latencies.mean().map(|mean| mean.round() as u64),
        p50: at(0.5)?,
        p90: at(0.9)?,
        p99: at(0.99)?,
        p999: at(0.999)?,
        p9999: at(0.9999)?,
        max: latencies.max().map(Quantile::Time)?,
        count: latencies.count(),
        // A channel's link layer repeats what is lost, and what is still under way at the end is not lost.
        lost: 0,
        p50_ci: None,
        p99_ci: None,
        ci_level: None,
    })
}

fn counters(counters: &Counters) -> [(&'static str, u64); 13] {
    [
        ("bytes_read", counters.bytes_read),
        ("sdus_written", counters.sdus_written),
        ("sdus_read", counters.sdus_read),
        ("sdus_damaged", counters.sdus_damaged),
        ("data_pdus", counters.data_pdus),
        ("retransmissions", counters.retransmissions),
        ("crc_errors", counters.crc_errors),
        ("missed", counters.missed),
        ("empty_pdus", counters.empty_pdus),
        ("credits_granted", counters.credits_granted),
        ("credit_packets", counters.credit_packets),
        ("blocked_on_credits", counters.blocked_on_credits),
        ("blocked_on_send_buffer", counters.blocked_on_send_buffer),
    ]
}
