//! What was published, from the file beside this one.

use anyhow::Context;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    pub(super) nagle: Nagle,
    pub(super) aio: Aio,
    pub(super) latency: Latency,
    pub(super) ble: Ble,
    pub(super) route: Route,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nagle {
    pub(super) there: String,
    pub(super) mean_gap_on_ms: f64,
    pub(super) messages_per_segment_on: f64,
    pub(super) mean_gap_off_ms: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Aio {
    pub(super) there: String,
    pub(super) poll_growth: String,
    pub(super) aio_growth: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Latency {
    pub(super) there: String,
    pub(super) links: Vec<String>,
    pub(super) p50_ms: Vec<f64>,
    pub(super) p90_ms: Vec<f64>,
    pub(super) late_over_50_ms_pct: Vec<f64>,
    pub(super) late_over_100_ms_pct: Vec<f64>,
    pub(super) timeout_pct: Vec<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ble {
    pub(super) there: String,
    pub(super) rate_at_7_5_ms_kbps: f64,
    pub(super) ratio_112_5_to_50: f64,
    pub(super) ratio_112_5_to_7_5: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Route {
    pub(super) there: String,
    pub(super) open_close_us: f64,
    pub(super) kept_open_us: f64,
    pub(super) kernel_us: f64,
}

pub(super) fn published() -> anyhow::Result<Published> {
    toml::from_str(include_str!("published.toml")).context("what was published")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_has_all_its_figures() {
        let Latency { links, p50_ms, p90_ms, late_over_50_ms_pct, late_over_100_ms_pct, timeout_pct, .. } =
            published().unwrap().latency;
        for figures in [p50_ms, p90_ms, late_over_50_ms_pct, late_over_100_ms_pct, timeout_pct] {
            assert_eq!(figures.len(), links.len());
        }
    }
}
