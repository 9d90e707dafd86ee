//! Routes in the kernel beside user space with everything kept open, over UDP between network namespaces.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::outcome::{Outcome, table};
use super::setting::Setting;

/// What has to be reached: a path with so many sinks is so many times shorter than the kept-open one.
struct Bar {
    path: &'static str,
    sinks: u64,
    p50: f64,
    p99: Option<f64>,
}

/// On a veth a route takes the generic XDP by itself; the one in the driver copies each buffer first.
const BARS: [Bar; 3] = [
    Bar { path: "xdp-generic", sinks: 1, p50: 4.0, p99: Some(8.0) },
    Bar { path: "xdp", sinks: 1, p50: 4.0, p99: Some(8.0) },
    Bar { path: "tc", sinks: 4, p50: 4.0, p99: None },
];
/// From the text of a condition of 20 terms to the program in the kernel, and with XDP to the first
/// event that it takes.
const STARTED_WITHIN_NS: f64 = 1e6;
/// How much longer an event may take with 99 other routes on the device: a look-up and a jump more,
/// whatever their number.
const WITH_OTHERS: f64 = 1.25;

/// Once: `taut route bench` makes its own rounds and interleaves them.
pub(crate) fn run(setting: &Setting) -> Result<Outcome> {
    let rounds = setting.rounds.to_string();
    let object = setting
        .taut
        .run_anywhere(&["route", "bench", "--over", "udp", "--rounds", &rounds], Duration::from_secs(300))?;
    let results = object["results"]
        .as_array()
        .filter(|results| !results.is_empty())
        .context("taut route bench has no results")?;
    let rows: Vec<Vec<String>> = results.iter().filter_map(row).collect();
    let mut text = table(&["path", "sinks", "routes", "p50", "p99", "p50 shorter", "p99 shorter", "lost"], &rows);
    let mut met = true;
    let mut judge = |what: String, figure: f64, is_met: bool| {
        met &= is_met;
        text += &format!("\n{}", judged(&what, figure, is_met));
    };
    for Bar { path, sinks, p50, p99 } in BARS {
        let row = find(results, path, sinks, 1)?;
        let shorter = times_shorter(&row["compared"]["p50_ratio"]);
        judge(format!("{path}, {sinks} sinks, p50 at least {p50} times shorter"), shorter, shorter >= p50);
        let shorter = times_shorter(&row["p99_ratio"]);
        let bar = p99.map_or_else(String::new, |p99| format!(" at least {p99} times"));
        judge(format!("{path}, {sinks} sinks, p99{bar} shorter"), shorter, p99.is_none_or(|p99| shorter >= p99));
    }
    for path in ["xdp", "tc"] {
        let p50 = |routes| find(results, path, 1, routes).map(|row| row["edge_to_edge_ns"]["p50"].as_f64());
        let ratio = p50(100)?.unwrap_or(f64::NAN) / p50(1)?.unwrap_or(f64::NAN);
        judge(format!("{path}, 100 routes to 1, p50 at most {WITH_OTHERS}"), ratio, ratio <= WITH_OTHERS);
    }
    for started in results.iter().filter(|row| row["workload"] == "floor") {
        let p50 = started["ns"]["p50"].as_f64().unwrap_or(f64::NAN);
        let what = started["what"].as_str().unwrap_or_default();
        // A program of XDP takes events before its attaching has returned; with tcx the kernel waits first.
        let is_ours = what.contains("in the kernel") || what.contains("taking a datagram (xdp");
        let bar = if is_ours { ", at most 1" } else { "" };
        judge(format!("{what}, ms, p50{bar}"), p50 / 1e6, !is_ours || p50 <= STARTED_WITHIN_NS);
    }
    Ok(Outcome { text, json: results.iter().cloned().collect(), met: Some(met) })
}

/// A figure beside its bar. One that was not measured meets none, and is no number.
fn judged(what: &str, figure: f64, is_met: bool) -> String {
    let figure = if figure.is_finite() { format!("{figure:.2}") } else { "not measured".to_owned() };
    format!("{what}: {figure}{}", if is_met { "" } else { "  MISSED" })
}

fn find<'a>(results: &'a [Value], path: &str, sinks: u64, routes: u64) -> Result<&'a Value> {
    let is_it = |row: &&Value| row["path"] == path && row["sinks"] == sinks && row["routes"] == routes;
    results.iter().find(is_it).with_context(|| format!("no row of {path} with {sinks} sinks and {routes} routes"))
}

fn times_shorter(ratio: &Value) -> f64 {
    1.0 / ratio.as_f64().unwrap_or(f64::NAN)
}

fn row(result: &Value) -> Option<Vec<String>> {
    let path = result["path"].as_str()?.to_owned();
    let time = |at: &str| {
        result["edge_to_edge_ns"][at].as_f64().map_or_else(|| "-".to_owned(), |ns| format!("{:.2} us", ns / 1e3))
    };
    let ratio = |ratio: &Value| match ratio.as_f64() {
        Some(ratio) => format!("{:.2}", 1.0 / ratio),
        None => "-".to_owned(),
    };
    Some(vec![
        path,
        result["sinks"].to_string(),
        result["routes"].to_string(),
        time("p50"),
        time("p99"),
        ratio(&result["compared"]["p50_ratio"]),
        ratio(&result["p99_ratio"]),
        result["lost"].to_string(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_no_number() {
        let shorter = times_shorter(&Value::Null);
        assert_eq!(judged("xdp, p50", shorter, shorter >= 4.0), "xdp, p50: not measured  MISSED");
        assert_eq!(judged("xdp, p50", 4.126, true), "xdp, p50: 4.13");
    }
}
