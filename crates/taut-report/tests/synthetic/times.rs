//! Times from a fixed generator, and what is made of them.

use taut_record::stats::{Distribution, Exceedance, ExceedanceCounter, Rounds, Summary};
use taut_time::Duration;

/// Times around a centre with a long tail, from a fixed generator.
pub(super) fn samples(centre_ns: u64, count: usize, seed: u64) -> Vec<u64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((state >> 33) + 1) as f64) / (1u64 << 31) as f64
    };
    let mut next = || {
        let bell: f64 = (0..6).map(|_| uniform()).sum::<f64>() / 6.0 - 0.5;
        let tail = uniform().powf(-0.28) - 1.0;
        (centre_ns as f64 * (0.96 + 0.2 * bell + 0.12 * tail)) as u64
    };
    (0..count).map(|_| next()).collect()
}

pub(super) fn distribution(times: &[u64]) -> Distribution {
    times.iter().copied().map(Duration::from_nanos).collect()
}

pub(super) fn summary(times: &[u64]) -> Option<Summary> {
    let fifths: Vec<Distribution> = times.chunks(times.len().div_ceil(5).max(1)).map(distribution).collect();
    fifths.iter().collect::<Rounds>().summary()
}

pub(super) fn exceed(times: &[u64], lost: u64) -> Vec<Exceedance> {
    let limits = [50_000, 1_000_000, 10_000_000, 16_700_000, 100_000_000].map(Duration::from_nanos);
    let mut counter = ExceedanceCounter::new(&limits);
    times.iter().for_each(|&ns| counter.record(Duration::from_nanos(ns)));
    counter.record_lost(lost);
    counter.table()
}
