//! How fast links are simulated in virtual time, by `taut-air`'s example `speed`.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::outcome::{Outcome, table};
use super::process::pinned;
use super::setting::Setting;
use super::taut::number;
use crate::shell;

/// Connection events a second of a core, at least.
const EVENTS_PER_S: f64 = 500_000.0;
/// The article's five intervals, 60 virtual seconds each: seconds at most.
const SWEEP_S: f64 = 1.0;
/// Memory that a run a hundred times as long may take more, as a share.
const GROWTH: f64 = 0.05;

/// By the time that the process has had a core: others may want it too.
pub(crate) fn run(setting: &Setting) -> Result<Outcome> {
    shell::run(shell::cargo().args(["build", "--release", "--locked", "--package", "taut-air", "--example", "speed"]))?;
    let program = shell::target_dir()?.join("release/examples/speed");
    let mut objects = Vec::new();
    for _ in 0..setting.rounds {
        let text = shell::output(&mut pinned(setting.cores.client, &program))?;
        objects.push(serde_json::from_str::<Value>(&text).context("speed's output is not JSON")?);
    }
    let mut rows = Vec::new();
    let mut met = true;
    for (index, name) in ["60 virtual s", "600 virtual s", "6,000 virtual s"].into_iter().enumerate() {
        let rate = median(&objects, |object| {
            let run = &object["runs"][index];
            Ok(number(run, "/events")? / number(run, "/cpu_s")?)
        })?;
        // The first is too short to say more than that it works.
        met &= index == 0 || rate >= EVENTS_PER_S;
        let memory = median(&objects, |object| number(&object["runs"][index], "/peak_rss_bytes"))?;
        rows.push(vec![
            format!("7.5 ms, {name}"),
            format!("{rate:.0} events/s"),
            format!("{:.1} MB", memory / 1e6),
            if index == 0 { String::new() } else { format!(">= {EVENTS_PER_S:.0}") },
        ]);
    }
    let growth = median(&objects, |object| {
        let memory = |index: usize| number(&object["runs"][index], "/peak_rss_bytes");
        Ok(memory(2)? / memory(0)? - 1.0)
    })?;
    met &= growth <= GROWTH;
    rows.push(vec![
        "memory, 6,000 s to 60 s".into(),
        format!("{:+.1} %", growth * 100.0),
        String::new(),
        format!("<= {:.0} %", GROWTH * 100.0),
    ]);
    let sweep = median(&objects, |object| number(&object["sweep"], "/cpu_s"))?;
    met &= sweep <= SWEEP_S;
    rows.push(vec![
        "five intervals, 60 virtual s each".into(),
        format!("{sweep:.3} s"),
        String::new(),
        format!("<= {SWEEP_S} s"),
    ]);
    let text = table(&["simulation", "of one core", "peak memory", "bar"], &rows);
    Ok(Outcome { text, json: json!(objects), met: Some(met) })
}

fn median(objects: &[Value], value: impl Fn(&Value) -> Result<f64>) -> Result<f64> {
    let mut values = objects.iter().map(value).collect::<Result<Vec<_>>>()?;
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().context("no rounds")
}
