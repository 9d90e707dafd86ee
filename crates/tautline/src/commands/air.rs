mod attach;
mod files;
mod host;

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use anyhow::Context;
use taut_air::{AirEvent, Observer};
use taut_link::Error;
use taut_measure::air::{self, AirPlan, AirTimeline, Both, Excerpt};
use taut_record::{AirSetting, Ended, Row};
use taut_report::Document;
use taut_report::capture::{AirCapture, HostCapture};
use taut_time::Duration;

use self::files::{create, sides};
use crate::exit::Code;
use crate::output::{self, OutputArgs};
use crate::run::Run;
use crate::{findings, input, scenario};

/// A Bluetooth LE link in virtual time: what a connection interval, credits and buffers make of its throughput
///
/// A model of the link layer, the L2CAP channel, both controllers and both hosts, which runs
/// thousands of times faster than real time and needs no hardware. It says what the link carries,
/// how far that is from the channel's limit, and in the time breakdown where every microsecond of air
/// time went: nothing is left over. Findings name what binds, and prove the remedy by running it.
///
/// FILE is a scenario in TOML; without one, or with the name of one that is built in, `paper-000`: a link as in
/// a published measurement, two Raspberry Pi 4 with BlueZ. `saturate` is the same radio with nothing in its way.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  taut air run                                         the published link at 7.5 ms
  taut air run --set ci=15ms --html air.html           what would 15 ms give? with its connection events as a picture
  taut air run --pcapng air.pcapng --btsnoop .         for Wireshark and btmon
  taut air sweep --vary ci=112.5ms,50ms,25ms,12.5ms,7.5ms
  taut air sweep saturate --vary phy=1m,2m --vary length=27,251
  taut air tune                                        which settings reach the limit, and what does each give?
  taut air parameters                                  all that --set and --vary take
  sudo taut air attach --set ci=15ms                   the same radio under this kernel's own Bluetooth";

#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(RunArgs),
    Sweep(SweepArgs),
    Tune(TuneArgs),
    Parameters(ParametersArgs),
    Attach(attach::AttachArgs),
    Host(host::HostArgs),
}

/// One run, with its time breakdown, findings and captures
#[derive(Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Write every PDU on the air, for Wireshark
    #[arg(long, value_name = "FILE", value_parser = output::out_file())]
    pcapng: Option<PathBuf>,
    /// Write the HCI packets of both hosts to central.btsnoop and peripheral.btsnoop there, for Wireshark and btmon
    #[arg(long, value_name = "DIR", value_parser = output::out_directory())]
    btsnoop: Option<PathBuf>,
    /// Write the timeline of every SDU and PDU for ui.perfetto.dev
    #[arg(long, value_name = "FILE", value_parser = output::out_file())]
    perfetto: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// A run for each value of a parameter, or of two: where does the throughput go?
#[derive(Debug, clap::Args)]
struct SweepArgs {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Run once for each value; twice for a grid of two parameters
    #[arg(long, value_name = "NAME=VALUE,…", required = true, value_parser = input::choices)]
    vary: Vec<(String, Vec<String>)>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Find the settings that bring this link to 95 % of its channel's limit, one change after another
#[derive(Debug, clap::Args)]
struct TuneArgs {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Parameters to leave as they are; the MTU is the application's own [example: mtu,phy]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "mtu")]
    keep: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// List the parameters that --set and --vary take, with the values of a scenario
#[derive(Debug, clap::Args)]
struct ParametersArgs {
    /// A scenario in TOML, or the name of one that is built in
    #[arg(value_name = "FILE", default_value = scenario::DEFAULT)]
    file: String,
}

#[derive(Debug, clap::Args)]
struct ScenarioArgs {
    /// A scenario in TOML, or the name of one that is built in: paper-000, saturate, two-nodes
    #[arg(value_name = "FILE", default_value = scenario::DEFAULT)]
    file: String,
    /// Give a parameter another value; `taut air parameters` lists them
    #[arg(long, value_name = "NAME=VALUE", value_parser = input::setting)]
    set: Vec<(String, String)>,
    /// Virtual time of a run
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = input::positive_duration)]
    time: Duration,
    /// Where chance begins: the same seed gives the same run
    #[arg(long, value_name = "N", default_value = "7")]
    seed: u64,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    match args.command {
        Command::Run(args) => run_once(&args),
        Command::Sweep(args) => sweep(&args),
        Command::Tune(args) => tune(&args),
        Command::Parameters(args) => parameters(&args),
        Command::Attach(args) => attach::attach(&args),
        Command::Host(args) => host::host(&args),
    }
}

impl ScenarioArgs {
    fn plan(&self) -> anyhow::Result<AirPlan> {
        scenario::plan(&self.file, &self.set, self.time, self.seed)
    }
}

/// Connection events in the picture of a run, and of each of several.
const EXCERPT: usize = 40;
const EXCERPT_OF_MANY: usize = 12;

fn run_once(args: &RunArgs) -> anyhow::Result<Code> {
    let plan = args.scenario.plan()?;
    let mut files = Files::create(args)?;
    let run = Run::start("air run")?;
    let mut excerpt = Excerpt::of(EXCERPT);
    let observed = air::run(&plan, &run.interrupt, &mut Both(&mut excerpt, &mut files));
    let mut outcome = observed.map_err(|error| scenario::wrong(&plan.file, &error))?;
    files.finish(args)?;
    outcome.row.excerpt = excerpt.finish();
    let findings = findings::of_air(&plan, &outcome, &run.interrupt);
    let rows = vec![Row::Air(Box::new(outcome.row))];
    args.output.emit(&Document::new(run.finish(outcome.ended, rows), findings))
}

fn sweep(args: &SweepArgs) -> anyhow::Result<Code> {
    let base = args.scenario.plan()?;
    let plans = grid(&base, &args.vary)?;
    let run = Run::start("air sweep")?;
    let mut progress = run.progress("air sweep", 0, 1);
    let (mut rows, mut all, mut ended) = (Vec::new(), Vec::new(), Ended::Complete);
    for (done, plan) in plans.iter().enumerate() {
        progress(done, plans.len());
        if run.interrupt.is_set() {
            ended = Ended::Interrupted;
            break;
        }
        let mut excerpt = Excerpt::of(EXCERPT_OF_MANY);
        let outcome =
            air::run(plan, &run.interrupt, &mut excerpt).map_err(|error| scenario::wrong("--vary", &error))?;
        if outcome.ended != Ended::Complete {
            ended = outcome.ended.clone();
        }
        let mut row = outcome.row.clone();
        row.excerpt = excerpt.finish();
        rows.push(Row::Air(Box::new(row)));
        all.push(findings::of_air(plan, &outcome, &run.interrupt));
    }
    let findings = findings::most_telling(all);
    args.output.emit(&Document::new(run.finish(ended, rows), findings))
}

/// A plan for each combination of values; the last parameter varies fastest.
fn grid(base: &AirPlan, vary: &[(String, Vec<String>)]) -> anyhow::Result<Vec<AirPlan>> {
    const MOST: usize = 10_000;
    if vary.len() > 2 {
        return Err(Error::Input("--vary: two parameters at most, for a grid".to_owned()).into());
    }
    let points: usize = vary.iter().map(|(_, values)| values.len()).product();
    if points > MOST {
        return Err(Error::Input(format!("--vary: {points} runs are more than {MOST}")).into());
    }
    let mut plans = vec![base.clone()];
    for (name, values) in vary {
        let mut next = Vec::new();
        for plan in &plans {
            for value in values {
                let set = [AirSetting { name: name.clone(), value: value.clone() }];
                next.push(plan.with(&set).map_err(|error| scenario::wrong("--vary", &error))?);
            }
        }
        plans = next;
    }
    Ok(plans)
}

fn tune(args: &TuneArgs) -> anyhow::Result<Code> {
    let plan = args.scenario.plan()?;
    for name in &args.keep {
        plan.scenario.get(name).map_err(|error| scenario::wrong("--keep", &error))?;
    }
    let run = Run::start("air tune")?;
    let outcome = air::tune(&plan, &args.keep, &run.interrupt).map_err(|error| scenario::wrong(&plan.file, &error))?;
    args.output.emit(&Document::new(run.finish(outcome.ended, outcome.rows), Vec::new()))
}

fn parameters(args: &ParametersArgs) -> anyhow::Result<Code> {
    let plan = scenario::plan(&args.file, &[], Duration::ZERO, 0)?;
    output::print(&output::fitted(|| listed(args, plan.scenario.values())))?;
    Ok(Code::Ok)
}

/// The parameters with their values, those of a scenario.
fn listed(args: &ParametersArgs, values: Vec<(&str, String)>) -> String {
    let head = format!(
        "Parameters of {}. Those of a side take `central.`, `peripheral.`, `sender.` or `receiver.` in front, or stand for \
         both sides; values that differ are shown with a slash, the central's first.",
        args.file
    );
    let mut text = taut_report::paragraph("", &head);
    for (parameter, (name, value)) in taut_air::scenario::PARAMETERS.iter().zip(values) {
        let table = match parameter.scope {
            taut_air::scenario::Scope::Link => "link",
            taut_air::scenario::Scope::Medium => "medium",
            taut_air::scenario::Scope::Side => "side",
        };
        let help = taut_report::paragraph("    ", parameter.help);
        text.push_str(&format!("\n{name} = {value}  ({table})\n{help}"));
    }
    text
}

/// The files that a run writes while it goes on.
struct Files {
    pcapng: Option<AirCapture<BufWriter<File>>>,
    btsnoop: Vec<HostCapture<BufWriter<File>>>,
    timeline: Option<AirTimeline>,
}

impl Files {
    fn create(args: &RunArgs) -> anyhow::Result<Self> {
        let pcapng = args.pcapng.as_deref().map(|path| {
            let file = create(path)?;
            AirCapture::begin(file).with_context(|| format!("write {}", path.display()))
        });
        let mut btsnoop = Vec::new();
        for (side, path) in args.btsnoop.as_deref().into_iter().flat_map(sides) {
            let file = create(&path)?;
            btsnoop.push(HostCapture::begin(file, side).with_context(|| format!("write {}", path.display()))?);
        }
        let timeline = args.perfetto.as_ref().map(|_| AirTimeline::new());
        Ok(Self { pcapng: pcapng.transpose()?, btsnoop, timeline })
    }

    fn finish(self, args: &RunArgs) -> anyhow::Result<()> {
        if let (Some(capture), Some(path)) = (self.pcapng, &args.pcapng) {
            capture.finish().with_context(|| format!("write {}", path.display()))?;
        }
        for (capture, (_, path)) in self.btsnoop.into_iter().zip(args.btsnoop.as_deref().into_iter().flat_map(sides)) {
            capture.finish().with_context(|| format!("write {}", path.display()))?;
        }
        if let (Some(timeline), Some(path)) = (self.timeline, &args.perfetto) {
            output::write_perfetto(path, &[("air".to_owned(), &timeline.finish())])?;
        }
        Ok(())
    }
}

impl Observer for Files {
    fn event(&mut self, event: &AirEvent<'_>) {
        if let Some(capture) = &mut self.pcapng {
            capture.event(event);
        }
        self.btsnoop.iter_mut().for_each(|capture| capture.event(event));
        if let Some(timeline) = &mut self.timeline {
            timeline.event(event);
        }
    }
}
