use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use indicatif::ProgressBar;
#[cfg(feature = "fleet")]
use taut_fleet::Servers;
use taut_fleet::{MeshOutcome, Pair, Plan, Progress, Settings, Sums, Via, choose};
use taut_link::{Error, clock};
use taut_record::{Ended, FORMAT_VERSION};
use taut_report::{MeshCheckDocument, MeshDocument, html, table};
#[cfg(feature = "fleet")]
use taut_time::Duration;

use crate::exit::Code;
#[cfg(feature = "fleet")]
use crate::input;
use crate::{output, run};

/// Measure between many hosts: who is slow or loses, beside all others
///
/// The plan says in TOML which hosts there are, which pairs of them are measured, and what is too slow. The hosts need
/// nothing but `taut` and a way to start it: ssh, kubectl exec, ip netns exec. What is to be alone on a host or in a
/// rack is alone there. docs/mesh.md has a plan to begin with.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut mesh check mesh.toml                      pairs, packets, series and bytes, before anything is sent
  taut mesh run mesh.toml --via 'ssh {host}'     measure all pairs once; code 3 when one is beyond a threshold
  taut mesh run mesh.toml --via 'kubectl exec -i {host} --' --out measured
  taut mesh run mesh.toml --on nats://n1,n2,n3   by agents that are there (taut agent)
  taut mesh report measured --html mesh.html     draw it again")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: MeshCommand,
}

#[derive(Debug, clap::Subcommand)]
enum MeshCommand {
    Check(CheckArgs),
    Run(Box<RunArgs>),
    Report(ReportArgs),
}

/// Say what a plan comes to: pairs, packets, series, bytes a day, and how long a run takes
///
/// Sends nothing and starts nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut mesh check mesh.toml
  taut mesh check mesh.toml --all --json")]
struct CheckArgs {
    #[command(flatten)]
    plan: PlanArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Measure all pairs of a plan once, by a command that gets to each host, or by agents that are there
///
/// Starts `taut serve` on each host that is asked and `taut echo` or `taut stream` on each that asks, gathers what they
/// print, and ends them, also at Ctrl-C. A host that can't be reached is named and stops nothing else. Pairs beyond a
/// threshold of the plan come first; with `explain = true` in the plan, one `taut pace` says who holds their messages.
///
/// --via is split into words as a shell does it, and {host} is replaced in each; no shell sees a host's name. It has to
/// pass stdin on, at whose end a server ends.
///
/// With --on, agents on NATS servers (taut agent) get the plan and measure, and their results are gathered there.
/// Nothing is started then, and a label in the plan (hosts = ["label:site=x"]) stands for all that have it.
///
/// Exit code 1 when a host or pair failed or results are missing, 3 when a pair is beyond a threshold.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut mesh run mesh.toml --via 'ssh {host}'
  taut mesh run mesh.toml --via 'ssh -o BatchMode=yes ops@{host}' --taut /opt/taut --html mesh.html
  taut mesh run mesh.toml --via 'kubectl exec -i {host} --' --out measured
  taut mesh run mesh.toml --via 'ip netns exec {host}' --json
  taut mesh run mesh.toml --on nats://n1,n2,n3 --out measured
  taut mesh run mesh.toml --on nats://n1 --for 10min      each work as often as it says; the last results count")]
struct RunArgs {
    #[command(flatten)]
    plan: PlanArgs,
    /// The command that gets to a host, with {host} where its name belongs
    #[arg(long, value_name = "COMMAND")]
    #[cfg_attr(feature = "fleet", arg(required_unless_present = "on", conflicts_with = "on"))]
    #[cfg_attr(not(feature = "fleet"), arg(required = true))]
    via: Option<Via>,
    /// The NATS servers that agents are on: nats://HOST:PORT,HOST…?user=NAME&password-file=PATH&tls=on&ca=PATH;
    /// creds=PATH and nkey=PATH are other ways to get in
    #[cfg(feature = "fleet")]
    #[arg(long, value_name = "SERVERS", value_parser = super::agent::ReadServers)]
    on: Option<Servers>,
    /// Let agents measure for so long, each work as often as it says, instead of once
    #[cfg(feature = "fleet")]
    #[arg(long = "for", value_name = "TIME", requires = "on", value_parser = input::positive_duration)]
    time: Option<Duration>,
    /// The program over there
    #[arg(long, value_name = "PATH", default_value = "taut")]
    #[cfg_attr(feature = "fleet", arg(conflicts_with = "on"))]
    taut: String,
    /// Keep what was measured in this directory, for taut mesh report; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    output: MeshOutput,
}

/// Draw again what taut mesh run --out has kept
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut mesh report measured
  taut mesh report measured --html mesh.html")]
struct ReportArgs {
    /// The directory of --out, or a file that --json made
    #[arg(value_name = "DIR")]
    from: PathBuf,
    #[command(flatten)]
    output: MeshOutput,
}

#[derive(Debug, clap::Args)]
struct PlanArgs {
    /// The plan, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Measure all pairs even of more than 64 hosts, if the plan says pairs = "all"
    #[arg(long)]
    all: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
struct MeshOutput {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Write a self-contained HTML page with a picture of all pairs
    #[arg(long, value_name = "FILE", value_parser = output::out_file_anywhere())]
    html: Option<PathBuf>,
}

/// No plan is longer, in bytes: 100,000 hosts with a table each.
const LONGEST_PLAN: u64 = 16 << 20;
/// What `--out` keeps beside the documents of the pairs.
const KEPT: &str = "mesh.json";

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    match args.command {
        MeshCommand::Check(args) => check(&args),
        MeshCommand::Run(args) => measure(&args),
        MeshCommand::Report(args) => {
            let kept = if args.from.is_dir() { args.from.join(KEPT) } else { args.from };
            output::spare(&[kept.as_path()], &[("--html", args.output.html.as_deref())])?;
            // However it ended, showing it is all that is asked for now.
            Ok(if args.output.emit(&MeshDocument::read(&kept)?) { Code::Ok } else { Code::Failed })
        }
    }
}

fn check(args: &CheckArgs) -> anyhow::Result<Code> {
    let (plan, pairs) = args.plan.read()?;
    let file = output::shown(&args.plan.file);
    let document = MeshCheckDocument::new(file, plan.pairs.to_string(), Sums::of(&plan, &pairs));
    let text = match args.json {
        true => output::printable_json(&document.to_json()),
        false => output::fitted(|| document.to_text()),
    };
    output::print(&text)?;
    Ok(Code::Ok)
}

fn measure(args: &RunArgs) -> anyhow::Result<Code> {
    let measure = args.measured_by()?;
    if let Some(out) = &args.out {
        make_room(out)?;
    }
    let kept = args.out.as_ref().map(|out| out.join(KEPT));
    output::spare(&[args.plan.file.as_path()], &[("--out", kept.as_deref()), ("--html", args.output.html.as_deref())])?;
    if let Some(html) = &args.output.html {
        output::make_sure(html)?;
    }
    let interrupt = run::interrupt_on_signals()?;
    let stop = interrupt.flag();
    let started_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let began = clock::now();
    let teller = Teller { bar: run::progress_bar(), is_seen: run::has_bars() };
    let outcome = measure(&stop, &teller);
    teller.bar.finish_and_clear();
    let (outcome, failed) = match outcome {
        Err(_) if interrupt.is_set() => return Ok(Code::Interrupted),
        outcome => outcome?,
    };
    if let Some(why) = &failed {
        say(&output::printable_lines(why));
    }
    let document = MeshDocument {
        format_version: FORMAT_VERSION,
        command: "mesh".to_owned(),
        command_line: run::command_line(),
        file: output::shown(&args.plan.file),
        tautline: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_s,
        duration_ns: u64::try_from(clock::now().saturating_since(began).as_nanos()).unwrap_or(u64::MAX),
        ended: match &failed {
            _ if interrupt.is_set() => Ended::Interrupted,
            Some(why) => Ended::Failed(why.clone()),
            None => Ended::Complete,
        },
        outcome,
    };
    // It can't be repeated: whatever can't be written, all else is.
    let mut is_told = args.output.emit(&document);
    if let Some(kept) = &kept {
        is_told &= output::is_done(output::write_file(kept, &document.to_json()));
    }
    Ok(match () {
        () if interrupt.is_set() => Code::Interrupted,
        () if failed.is_some() || document.outcome.has_failed() || !is_told => Code::Failed,
        () if document.outcome.has_misses() => Code::ThresholdMissed,
        () => Code::Ok,
    })
}

/// What measures a plan that has been read. What went wrong on the way stands beside what was measured.
type Measure<'a> = Box<dyn FnOnce(&AtomicBool, &Teller) -> anyhow::Result<(MeshOutcome, Option<String>)> + 'a>;

impl RunArgs {
    fn measured_by(&self) -> anyhow::Result<Measure<'_>> {
        let out = self.out.as_deref();
        if let Some(via) = &self.via {
            let (plan, pairs) = self.plan.read()?;
            return Ok(Box::new(move |stop, teller| {
                let settings = Settings { via, taut: &self.taut, out, stop };
                Ok((taut_fleet::run(&plan, &pairs, settings, &|progress| teller.tell(progress)), None))
            }));
        }
        #[cfg(feature = "fleet")]
        if let Some(on) = &self.on {
            if self.time.is_some_and(|time| time > taut_fleet::MOST_TIME) {
                return Err(Error::Input("--for: up to 24h; a timer can begin anew after that".to_owned()).into());
            }
            let text = self.plan.text()?;
            Plan::look_at(&text).map_err(|error| self.plan.wrong(&error.to_string()))?;
            let (all, time) = (self.plan.all, self.time);
            return Ok(Box::new(move |stop, teller| {
                let settings = taut_fleet::GatherSettings { on, all, time, out, stop };
                let gathered = taut_fleet::gather(&text, settings, &|progress| teller.tell(progress));
                let gathered = gathered.map_err(|error| anyhow::anyhow!("{error}"))?;
                Ok((gathered.outcome, gathered.failed.map(|error| error.to_string())))
            }));
        }
        Err(Error::Input("give --via or --on".to_owned()).into())
    }
}

impl PlanArgs {
    fn wrong(&self, why: &str) -> Error {
        Error::Input(format!("{}: {why}", self.file.display()))
    }

    fn text(&self) -> anyhow::Result<String> {
        let bytes = taut_link::read_short(&self.file, LONGEST_PLAN)
            .map_err(|error| Error::Input(format!("cannot read {}: {error}", self.file.display())))?;
        Ok(String::from_utf8(bytes).map_err(|_| self.wrong("it is no text (UTF-8)"))?)
    }

    fn read(&self) -> anyhow::Result<(Plan, Vec<Pair>)> {
        let plan = Plan::parse(&self.text()?).map_err(|error| self.wrong(&error.to_string()))?;
        let pairs = choose(&plan, self.all).map_err(|error| self.wrong(&error.to_string()))?;
        Ok((plan, pairs))
    }
}

impl MeshOutput {
    /// Prints, then writes the page; what can't be written is said. Whether all was.
    fn emit(&self, document: &MeshDocument) -> bool {
        let text = if self.json {
            output::printable_json(&document.to_json())
        } else {
            table::mesh(document, output::style())
        };
        let mut is_told = output::is_done(output::print(&text));
        if let Some(path) = &self.html {
            is_told &= output::is_done(output::write_file(path, &html::render_mesh(document)));
        }
        is_told
    }
}

/// An older run that is there already would be mixed with this one.
fn make_room(out: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(out).with_context(|| format!("make {}", out.display()))?;
    let mut there = fs::read_dir(out).with_context(|| format!("read {}", out.display()))?;
    if there.next().is_some() {
        return Err(Error::Input(format!("{} is not empty: name a new directory for --out", out.display())).into());
    }
    Ok(())
}

/// How far it is, on stderr: a bar on a terminal that has bars, and a line for each part elsewhere.
struct Teller {
    bar: ProgressBar,
    is_seen: bool,
}

impl Teller {
    fn tell(&self, progress: &Progress) {
        let (what, done, all) = match progress {
            Progress::Unreachable(host, why) => {
                let (host, why) = (output::printable_lines(host), output::printable_lines(why));
                self.bar.suspend(|| say(&format!("{host} can't be reached: {why}")));
                return;
            }
            Progress::Left(host, group) => {
                let host = output::printable_lines(host);
                let text = format!("what was started for {host} could not be ended: process group {group} here");
                self.bar.suspend(|| say(&text));
                return;
            }
            Progress::Said(text) => {
                let text = output::printable_lines(text);
                self.bar.suspend(|| say(&text));
                return;
            }
            Progress::Hosts(done, all) => ("hosts", *done, *all),
            Progress::Pairs(done, all) => ("measurements", *done, *all),
            Progress::Explained(done, all) => ("looks into pairs", *done, *all),
        };
        if self.is_seen {
            self.bar.set_message(format!("{done} of {all} {what}"));
            self.bar.set_length(all as u64);
            self.bar.set_position(done as u64);
        } else if done == all || done % all.div_ceil(10).max(1) == 0 {
            say(&format!("{done} of {all} {what}"));
        }
    }
}

/// That nobody reads it is no reason to stop.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "taut: {text}");
}
