//! `cargo xtask lab bluetooth`: throughput by connection interval under real kernels, beside the formula and
//! the model of the same scenario, packet by packet; and latencies of RFCOMM and L2CAP beside TCP and UDP.

mod air_log;
mod baseband_log;
mod btmon;
mod latency;
mod published;
mod recording;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::guest::{GuestArgs, run_command};
use super::image;
use super::kernel::Series;
use super::pair::{Kind, PairArgs};
use crate::{packages, shell};
use recording::throughput;

/// Which experiments.
#[derive(clap::Args)]
pub(super) struct BluetoothArgs {
    /// Only this kernel; all three otherwise.
    #[arg(long, value_name = "SERIES")]
    kernel: Option<Series>,
    /// Connection intervals.
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', default_values = ["112.5ms", "50ms", "25ms", "12.5ms", "7.5ms"])]
    ci: Vec<String>,
    /// Connection events to compare with the model's, and to measure over.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    events: u32,
    /// Only one of the experiments: throughput by interval, what the published program's blocks
    /// cost (on 5.10), or latencies by kind of link.
    #[arg(long, value_name = "NAME")]
    only: Option<Experiment>,
    /// One JSON object on stdout instead of a table.
    #[arg(long)]
    json: bool,
    /// Writes a report, one page of HTML.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// What there is to measure.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Experiment {
    /// Of paper 000: by connection interval, beside the model.
    Throughput,
    /// Of paper 000: the program that it was measured with, at both ends.
    Blocks,
    /// Of paper 003: by kind of link, clean and with losses.
    Latency,
}

/// The scenario, from the root of the repository.
const SCENARIO: &str = "scenarios/two-nodes.toml";
/// SDUs of that many bytes (`L2CAP_DEFAULT_MTU`), each of three PDUs.
const MTU: f64 = 672.0;
/// A block of whole SDUs, and that of the published program, with a remainder of 64 bytes.
const WHOLE: u32 = 67_200;
const PUBLISHED: u32 = 4096;
/// What the model's program writes first: nothing else, one PDU, or two. With which PDU of an SDU
/// connection events begin is up to what programs said to each other before the flow, and stays so
/// for ever where a whole number of SDUs fits into an event.
const FIRST: [u32; 3] = [0, 64, 300];
/// The shortest time of one measurement.
const LEAST: Duration = Duration::from_secs(6);
/// Bars: the model and the formula within that share of the kernel; recent kernels at least that
/// fast at every interval.
const WITHIN: f64 = 0.05;
const RECENT_BPS: f64 = 640_000.0;

/// A measurement: at that interval, with blocks of so many bytes.
struct Case {
    ci: String,
    ci_ns: u64,
    block: u32,
}

/// What a measurement and its model came to.
struct Row {
    kernel: Series,
    ci: String,
    ci_ns: u64,
    block: u32,
    real: Value,
    model: Value,
    /// Of how many connection events how many are the same.
    same: Option<usize>,
    pattern: [String; 2],
    /// The central's side as btmon has it.
    btmon: Value,
    /// By the rule of credits, for old kernels and whole SDUs.
    formula_bps: Option<f64>,
    /// Missed bars.
    missed: Vec<String>,
}

/// Runs them. Whether all bars were met.
pub(super) fn run(args: &BluetoothArgs) -> Result<bool> {
    let missing = packages::ensure(&[&packages::BLUEZ]);
    if !missing.is_empty() {
        bail!("btmon is needed, from: {}", missing.join(", "));
    }
    let kernels = args.kernel.map_or_else(|| vec![Series::V5_10, Series::V6_1, Series::V6_12], |kernel| vec![kernel]);
    let cases: Vec<Case> = args.ci.iter().map(|ci| case(ci, WHOLE)).collect::<Result<_>>()?;
    let published = args.ci.iter().filter(|ci| *ci == "7.5ms").map(|ci| case(ci, PUBLISHED));
    let published: Vec<Case> = published.collect::<Result<_>>()?;
    let (mut rows, mut latencies, mut programs) = (Vec::new(), Vec::new(), Vec::new());
    for kernel in kernels {
        let wanted = |experiment| args.only.is_none_or(|only| only == experiment);
        if wanted(Experiment::Throughput) {
            let more: &[Case] = if kernel == Series::V5_10 { &published } else { &[] };
            let cases: Vec<&Case> = cases.iter().chain(more).collect();
            eprintln!("lab: Linux {}: {} measurements", kernel.name(), cases.len());
            rows.extend(measure(kernel, &cases, args.events)?);
        }
        if wanted(Experiment::Blocks) && kernel == Series::V5_10 {
            eprintln!("lab: Linux {}: the published program and its blocks", kernel.name());
            programs = published::measure()?;
        }
        if wanted(Experiment::Latency) {
            eprintln!("lab: Linux {}: echoes over five kinds of link", kernel.name());
            latencies.push((kernel, latency::measure(kernel)?));
        }
    }
    let loss = published::published_loss(&programs);
    let loss_met = loss.is_none_or(|loss| published::LOSS.contains(&loss));
    let met = loss_met
        && programs.iter().all(published::Row::is_met)
        && rows.iter().all(|row| row.missed.is_empty())
        && latencies.iter().all(|(_, latencies)| latencies.is_met());
    let results: Vec<_> = rows.iter().map(Row::to_json).collect();
    let latency: Vec<_> =
        latencies.iter().flat_map(|(_, latencies)| latencies.rows.iter().map(latency::Row::to_json)).collect();
    let baseband = latencies.iter().flat_map(|(kernel, latencies)| {
        [false, true].map(|lossy| latencies.air[usize::from(lossy)].to_json(*kernel, lossy))
    });
    let failed: Vec<_> = latencies.iter().flat_map(|(_, latencies)| latencies.failed.clone()).collect();
    let findings: Vec<_> = latencies.iter().flat_map(|(_, latencies)| latencies.findings.clone()).collect();
    let bar = loss.map(|loss| {
        json!({ "bar": "published_block_loss", "value": loss, "low": published::LOSS.start(), "high": published::LOSS.end(),
                "met": loss_met })
    });
    let object = json!({ "format_version": 1, "command": "lab bluetooth", "scenario": SCENARIO,
                         "latency_scenario": latency::SCENARIO, "met": met, "published_block_loss": loss,
                         "bars": bar.into_iter().collect::<Vec<_>>(), "results": results,
                         "published_program": programs.iter().map(published::Row::to_json).collect::<Vec<_>>(), "latency": latency, "failed": failed,
                         "baseband": baseband.collect::<Vec<_>>(), "findings": findings });
    if let Some(path) = &args.html {
        let all: Vec<&latency::Row> = latencies.iter().flat_map(|(_, latencies)| &latencies.rows).collect();
        fs::write(path, report::page(&object, &all)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        println!("{object:#}");
    } else {
        if !rows.is_empty() {
            print!("{}", table(&rows, args.events));
        }
        if let Some(loss) = loss {
            let verdict = if loss_met { "" } else { "  MISSED  " };
            print!("\n{}", published::table(&programs));
            println!(
                "{verdict}l2cat's blocks of {PUBLISHED} bytes lose {:.1} % on the published link, published 8 to 16 %\n",
                loss * 100.0
            );
        }
        for (_, latencies) in &latencies {
            print!("{}", latency::table(&latencies.rows));
            latencies.failed.iter().for_each(|failed| println!("{failed}"));
        }
        for finding in &findings {
            println!("\n{}", finding["summary"].as_str().unwrap_or_default());
            for line in finding["evidence"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                println!("  {line}");
            }
        }
    }
    Ok(met)
}

fn case(ci: &str, block: u32) -> Result<Case> {
    // humantime takes whole numbers alone.
    let milliseconds: f64 =
        ci.strip_suffix("ms").and_then(|number| number.parse().ok()).context("--ci takes 7.5ms, 50ms, …")?;
    Ok(Case { ci: ci.to_owned(), ci_ns: (milliseconds * 1e6) as u64, block })
}

impl Case {
    /// Time of the measurement: for the events, those before them, and some more.
    fn time(&self, events: u32) -> Duration {
        LEAST.max(Duration::from_nanos(self.ci_ns * u64::from(events + events / 10 + 100)))
    }

    fn name(&self) -> String {
        format!("{}-{}", self.ci, self.block)
    }
}

/// One guest does all of a kernel's cases; then the model.
fn measure(kernel: Series, cases: &[&Case], events: u32) -> Result<Vec<Row>> {
    let directory = tempfile::Builder::new().prefix("taut-lab-bluetooth-").tempdir()?;
    let root = shell::root();
    let mut script = String::from("set -e\n");
    for case in cases {
        let pair = PairArgs::of(&root.join(SCENARIO), &case.ci);
        let seconds = format!("{}s", case.time(events).as_secs());
        let block = case.block.to_string();
        let words = ["taut", "stream", "@peer", "--direction", "down", "--rounds", "1", "--json"];
        let words = words.into_iter().chain(["--time", &seconds, "--block", &block]).map(str::to_owned);
        let out = format!("/out/{}", case.name());
        script += &format!("mkdir {out}\n(\n{}) >{out}/stdout\n", pair.script(&words.collect::<Vec<_>>(), Some(&out))?);
    }
    let guest = GuestArgs {
        files: PairArgs::of(&root.join(SCENARIO), "").files()?,
        out: Some(directory.path().to_owned()),
        ..GuestArgs::quiet(kernel, super::pair::MODULES.map(str::to_owned).to_vec())
    };
    let code = run_command(&guest, &["sh".to_owned(), "-c".to_owned(), script])?;
    if code != 0 {
        bail!("the measurements in the guest failed with exit code {code}");
    }
    let taut = image::taut(kernel.architecture())?;
    cases.iter().map(|case| row(kernel, case, &directory.path().join(case.name()), &taut, events)).collect()
}

fn row(kernel: Series, case: &Case, out: &Path, taut: &Path, events: u32) -> Result<Row> {
    let read = |name: &str| fs::read_to_string(out.join(name)).with_context(|| format!("no {name} from the guest"));
    let real: Value = serde_json::from_str(&read("stdout")?).context("taut stream printed no JSON")?;
    let real_log = air_log::read(&out.join("air.pcapng"))?;
    let log = out.join("model.pcapng");
    let mut best: Option<(Option<usize>, Value, String)> = None;
    for first in FIRST {
        let model = model(kernel, case, taut, &log, first, events)?;
        let model_log = air_log::read(&log)?;
        let same = air_log::agreement(&real_log, &model_log, events as usize);
        if best.as_ref().is_none_or(|(before, ..)| *before < same) {
            best = Some((same, model, air_log::excerpt(&model_log, 8)));
        }
        if same == Some(events as usize) {
            break;
        }
    }
    let (same, model, model_pattern) = best.context("no model was run")?;
    let pattern = [air_log::excerpt(&real_log, 8), model_pattern];
    let btmon = btmon::Listing::read(&out.join("central.btsnoop"))?.to_json();
    let old = kernel == Series::V5_10 && case.block == WHOLE;
    let formula_bps = old.then(|| MTU * 8.0 / (2.0 * case.ci_ns as f64 / 1e9));
    let (ci, ci_ns, block) = (case.ci.clone(), case.ci_ns, case.block);
    let mut row = Row { kernel, ci, ci_ns, block, real, model, same, pattern, btmon, formula_bps, missed: Vec::new() };
    row.judge(events);
    Ok(row)
}

/// The same scenario in pure simulation, with the kernel's rule for credits.
fn model(kernel: Series, case: &Case, taut: &Path, log: &Path, first: u32, events: u32) -> Result<Value> {
    let credits = if kernel == Series::V5_10 { "linux-old" } else { "linux-recvbuf" };
    let mut command = Command::new(taut);
    command.args(["air", "run"]).arg(shell::root().join(SCENARIO)).arg("--json").arg("--pcapng").arg(log);
    let settings = [("ci", case.ci.clone()), ("credits", credits.to_owned()), ("block", case.block.to_string())];
    for (name, value) in settings.into_iter().chain([("first", first.to_string())]) {
        command.args(["--set", &format!("{name}={value}")]);
    }
    command.args(["--time", &format!("{}s", case.time(events).as_secs())]);
    serde_json::from_str(&shell::output(&mut command)?).context("taut air run printed no JSON")
}

impl Row {
    fn real_bps(&self) -> f64 {
        throughput(&self.real)
    }

    fn model_bps(&self) -> f64 {
        throughput(&self.model)
    }

    fn judge(&mut self, events: u32) {
        let real = self.real_bps();
        let mut miss = |is_missed: bool, what: String| {
            if is_missed {
                self.missed.push(what);
            }
        };
        let far = |bps: f64| !(1.0 - WITHIN..=1.0 + WITHIN).contains(&(real / bps));
        let model = throughput(&self.model);
        miss(far(model), format!("{real:.0} b/s, the model {model:.0}"));
        if let Some(formula) = self.formula_bps {
            miss(far(formula), format!("{real:.0} b/s, the formula {formula:.0}"));
        }
        if self.kernel != Series::V5_10 {
            miss(real < RECENT_BPS, format!("{real:.0} b/s, less than {RECENT_BPS:.0}"));
        }
        let complaints = self.btmon["complaints"].as_array().map_or(0, Vec::len);
        miss(complaints > 0, format!("btmon complains {complaints} times"));
        let agreed = ["mtu", "mps", "credits"].map(|name| self.btmon[name].as_u64());
        miss(agreed != [Some(672), Some(247), Some(3)], format!("MTU, MPS and credits are {agreed:?}"));
        let same = self.same;
        miss(same != Some(events as usize), format!("{} of {events} events as in the model", same.unwrap_or(0)));
    }

    fn to_json(&self) -> Value {
        let options = &self.real["results"][0]["options"];
        json!({
            "kernel": self.kernel.name(), "release": self.real["host"]["kernel"], "ci_ns": self.ci_ns, "block_bytes": self.block,
            "throughput_bps": self.real_bps(), "model_bps": self.model_bps(), "formula_bps": self.formula_bps,
            "events_same": self.same, "pattern": self.pattern[0], "model_pattern": self.pattern[1], "options": options,
            "btmon": self.btmon, "missed": self.missed,
        })
    }
}

fn table(rows: &[Row], events: u32) -> String {
    let mut text = String::from("kernel  interval   block    kernel kb/s  model kb/s  2 CI/SDU kb/s  same events\n");
    for row in rows {
        let formula = row.formula_bps.map_or_else(|| "-".to_owned(), |bps| format!("{:.1}", bps / 1e3));
        let same = row.same.map_or_else(|| "-".to_owned(), |same| format!("{same}/{events}"));
        text += &format!(
            "{:<7} {:>8}  {:>6}  {:>12.1}  {:>10.1}  {:>13}  {:>11}\n",
            row.kernel.name(),
            row.ci,
            row.block,
            row.real_bps() / 1e3,
            row.model_bps() / 1e3,
            formula,
            same
        );
    }
    for row in rows {
        text += &format!(
            "\n{} {} {}:\n  kernel  {}\n  model   {}\n",
            row.kernel.name(),
            row.ci,
            row.block,
            row.pattern[0],
            row.pattern[1]
        );
        for missed in &row.missed {
            text += &format!("  MISSED  {missed}\n");
        }
    }
    text
}

impl PairArgs {
    fn of(scenario: &Path, ci: &str) -> Self {
        let ci = Some(ci.to_owned()).filter(|ci| !ci.is_empty());
        Self {
            scenario: scenario.display().to_string(),
            kind: Kind::L2cap,
            ci,
            set: Vec::new(),
            peer: None,
            capture: false,
        }
    }
}

impl GuestArgs {
    /// In virtual time, with room for the captures.
    fn quiet(kernel: Series, modules: Vec<String>) -> Self {
        Self {
            kernel,
            icount: Some(0),
            cpus: 1,
            memory: 1024,
            timeout: Duration::from_secs(1800),
            files: Vec::new(),
            l2cat: false,
            modules,
            module_sources: Vec::new(),
            out: None::<PathBuf>,
            console: false,
        }
    }
}
