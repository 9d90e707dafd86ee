//! Figures that are known, to be read back out of what takes them.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod collector;

use std::time::Duration;

use taut_record::stats::Distribution;
use taut_record::{Ended, PlacementKind};
use taut_report::figures::{IntervalDocument, IntervalRow, IntervalSums, RowTimes};

/// Round trips of so many messages about a median, the logarithm normal with that deviation.
fn drawn(seed: u64, messages: usize, median_s: f64, deviation: f64, lost: u64) -> Distribution {
    let mut state = seed;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) as f64 / (1_u64 << 53) as f64).max(1e-12)
    };
    let mut normal = || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
    let mut times: Distribution =
        (0..messages).map(|_| Duration::from_secs_f64(median_s * (deviation * normal()).exp())).collect();
    times.record_lost(lost);
    times
}

/// Sums of known distributions: a fast path, a broker with Nagle's algorithm, one of both kinds, and a lossy one.
pub(crate) fn known() -> (Vec<(&'static str, Distribution)>, IntervalSums) {
    let mut mixed = drawn(4, 90_000, 20e-6, 0.1, 0);
    mixed.add(&drawn(5, 10_000, 0.044, 0.02, 0));
    let known = vec![
        ("tcp://fast:9100", drawn(42, 100_000, 54.5e-6, 0.25, 0)),
        ("mqtt://broker/x", drawn(7, 100_000, 92e-3, 0.05, 0)),
        ("tcp://mixed:9100", mixed),
        ("udp://lossy:9100", drawn(9, 98_000, 1e-3, 1.0, 2_000)),
    ];
    let row = |(endpoint, times): &(&str, Distribution)| IntervalRow {
        endpoint: (*endpoint).to_owned(),
        engine: Some("blocking".to_owned()),
        placement: Some(PlacementKind::Free),
        complete: true,
        messages: Some(times.messages()),
        lost: Some(times.lost()),
        rtt_ns: times.summary(),
        ..IntervalRow::default()
    };
    let document = IntervalDocument {
        format_version: taut_record::FORMAT_VERSION,
        command: "echo".to_owned(),
        interval: 0,
        began_unix_ns: 1_700_000_000_000_000_000,
        duration_ns: 1_000_000_000,
        ended: Ended::Complete,
        lines_lost: 0,
        results: known.iter().map(row).collect(),
    };
    let mut sums = IntervalSums::since(document.began_unix_ns);
    let times: Vec<RowTimes<'_>> =
        known.iter().map(|(_, times)| RowTimes { round_trip: Some(times), ..RowTimes::default() }).collect();
    sums.add(&document, &times);
    (known, sums)
}

pub(crate) const QUANTILES: [f64; 5] = [0.5, 0.9, 0.97, 0.99, 0.999];

pub(crate) fn near(found: f64, exact: f64, share: f64) -> bool {
    found == exact || (found / exact - 1.0).abs() < share
}
