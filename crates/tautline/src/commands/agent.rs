mod figures;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::{Context, anyhow};
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use taut_fleet::{AgentCounts, AgentEnded, AgentSettings, AgentTally, Allowed, Host, Hours, Network, Own, Servers};
use taut_link::Error;
use taut_report::figures::agent_families;
use taut_time::Duration;

use self::figures::AgentFigures;
use crate::exit::Code;
use crate::figures::BeatArgs;
use crate::{input, output, run};

/// Be one of a mesh: measure to other agents what `taut mesh run --on` asks for, within limits of one's own
///
/// Dials out to NATS servers, says there that it is one of the agents, and waits for a plan. Its peers reach its own
/// `taut serve`; no message of a measurement passes the NATS servers, and it measures on while they are away. A plan
/// can name kinds of work and other agents, and never commands; whatever is beyond the limits below is refused, and
/// `taut mesh run` says so. Ends at Ctrl-C. docs/mesh.md has more.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut agent --on nats://n1,n2,n3 --label rack=r7        called as this host is, and allows echo and pace
  taut agent --on nats://n1 --name db1 --address 10.0.0.7 --allow echo,pace,stream
  taut agent --on 'nats://n1?user=taut&password-file=/etc/taut.pw&ca=/etc/ca.pem' --hours 22:00-06:00
  taut agent --on nats://n1 --max-rate 100 --peers 10.0.0.0/8 --state /var/lib/taut-agent
  taut agent --on nats://n1 --every 10s --prometheus 9466   what it does, at http://127.0.0.1:9466/metrics")]
pub(crate) struct Args {
    /// NATS servers of one cluster: nats://HOST:PORT,HOST…?user=NAME&password-file=PATH&tls=on&ca=PATH;
    /// creds=PATH and nkey=PATH are other ways to get in
    #[arg(long, value_name = "SERVERS", value_parser = ReadServers)]
    on: Servers,
    /// What it is called in plans [default: this host's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// What the others dial: an IP address or a name [default: the address that leads to the first server]
    #[arg(long, value_name = "ADDR")]
    address: Option<String>,
    /// Where its server listens, TCP and UDP; 0 takes ports that are free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// What else is known of it; `rack` is where it stands
    #[arg(long, value_name = "NAME=VALUE", value_parser = input::setting)]
    label: Vec<(String, String)>,
    /// Keep results in this directory until they are sent, so that an agent that is killed sends them at its next start
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Kinds of work that it does: echo, pace (looks into slow pairs), stream (as much as the link carries)
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', default_values = ["echo", "pace"], help_heading = "Limits")]
    allow: Vec<Allowed>,
    /// Messages a second that it sends to one peer; a work without a rate is refused then
    #[arg(long, value_name = "HZ", value_parser = input::rate, help_heading = "Limits")]
    max_rate: Option<f64>,
    /// How long one measurement may be meant to take
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = input::positive_duration, help_heading = "Limits")]
    max_time: Duration,
    /// Measure at these hours of the day only, in UTC
    #[arg(long, value_name = "HH:MM-HH:MM", help_heading = "Limits")]
    hours: Option<Hours>,
    /// Ask only peers whose addresses are in these networks
    #[arg(long, value_name = "NET,…", value_delimiter = ',', help_heading = "Limits")]
    peers: Vec<Network>,
    /// Measurements at once
    #[arg(long, value_name = "N", default_value = "4", value_parser = input::count, help_heading = "Limits")]
    at_once: usize,
    #[command(flatten)]
    figures: BeatArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let wrong = |error: taut_fleet::Error| Error::Input(error.to_string());
    let address = args.address.map_or_else(|| args.on.seen_from_here(), Ok).map_err(wrong)?;
    let name = args.name.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    let labels: BTreeMap<String, String> = args.label.into_iter().collect();
    let host = Host::new(&name, Some(&address), labels).map_err(wrong)?;
    let program = std::env::current_exe().context("find the program itself")?;
    output::spare(&args.on.files().collect::<Vec<&Path>>(), &[("--jsonl", args.figures.file())])?;
    let beat = args.figures.open(agent_families(&AgentCounts::default()))?;
    let tally = Arc::new(AgentTally::default());
    let (end, ended) = mpsc::channel();
    let figures = beat.map(|beat| AgentFigures::new(beat, name, Arc::clone(&tally)));
    let interrupt = run::interrupt_on_signals()?;
    let stop = interrupt.flag();
    let settings = AgentSettings {
        on: &args.on,
        host,
        port: args.port,
        own: Own {
            allow: args.allow,
            max_rate: args.max_rate,
            max_time: args.max_time,
            hours: args.hours,
            peers: args.peers,
            at_once: args.at_once,
        },
        taut: program.to_str().context("the program's path is no text (UTF-8)")?,
        version: env!("CARGO_PKG_VERSION"),
        state: args.state.as_deref(),
        tally: &tally,
        stop: &stop,
    };
    let telling = figures.map(|figures| thread::Builder::new().spawn(move || figures.run(&ended)));
    let telling = telling.transpose().context("start a thread")?;
    let told = taut_fleet::agent(settings, &|text| anstream::eprintln!("taut: {}", output::printable_lines(text)));
    drop(end);
    // One that panicked has not told all.
    let is_told = telling.is_none_or(|telling| telling.join().unwrap_or(false));
    match told.map_err(|error| anyhow!("{error}"))? {
        AgentEnded::Stopped => Ok(if is_told { Code::Ok } else { Code::Failed }),
        // A code that no service manager takes for a reason to start it again, which would end the other one.
        AgentEnded::Replaced(why) => Err(Error::Input(why).into()),
    }
}

/// Reads `--on`. What is refused is not repeated as other values are, since there may be a password in it.
#[derive(Clone)]
pub(crate) struct ReadServers;

impl TypedValueParser for ReadServers {
    type Value = Servers;

    fn parse_ref(&self, command: &clap::Command, _: Option<&clap::Arg>, value: &OsStr) -> Result<Servers, clap::Error> {
        let wrong = |kind, why: String| clap::Error::raw(kind, format!("--on: {why}\n")).with_cmd(command);
        let text = value.to_str().ok_or_else(|| wrong(ErrorKind::InvalidUtf8, "it is no text (UTF-8)".to_owned()))?;
        text.parse().map_err(|error: taut_fleet::Error| wrong(ErrorKind::ValueValidation, error.to_string()))
    }
}
