//! What `taut tune` finds for a request in two small writes, the case that Nagle's algorithm and delayed ACKs hold up.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::outcome::{Outcome, table};
use super::process::Transport;
use super::setting::Setting;

/// Once: `taut tune` makes its own rounds and interleaves them.
pub(crate) fn run(setting: &Setting) -> Result<Outcome> {
    let serving = setting.taut.serve()?;
    let arguments = ["tune", serving.endpoint(Transport::Tcp)?, "--workload", "write-write-read"];
    let object = setting.taut.run(&arguments, Duration::from_secs(300))?;
    let results =
        object["results"].as_array().filter(|results| !results.is_empty()).context("taut tune has no results")?;
    let rows: Vec<Vec<String>> = results.iter().map(row).collect();
    let text = table(&["setting", "p50 ratio", "verdict"], &rows);
    Ok(Outcome { text, json: results.iter().cloned().collect(), met: None })
}

fn row(result: &Value) -> Vec<String> {
    let text = |key: &str| result[key].as_str().unwrap_or("-").to_owned();
    let ratio = result["p50_ratio"].as_f64().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.5}"));
    vec![text("setting"), ratio, text("verdict")]
}
