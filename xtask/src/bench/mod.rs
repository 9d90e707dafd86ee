//! `cargo xtask bench`: `taut` beside its peers on this machine, in the same run, interleaved.
//!
//! Servers are pinned to one core and clients to another, for both tools alike. Every round starts new servers and
//! gives one ratio; what is printed is the median of the ratios with their spread, and whether it meets the bar.

mod aio;
mod air;
mod alike;
mod broker;
mod comparison;
mod echo;
mod explain;
pub(crate) mod outcome;
mod pace;
mod pipe;
mod process;
pub(crate) mod relay;
mod route;
mod setting;
mod stream;
mod taut;
mod trace;
mod tune;
pub(crate) mod watch;
mod web;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::packages::{
    BUSYBOX, CURL, FIO, IPERF, IPROUTE, MOSQUITTO, NATS_SERVER, SOCAT, SOCKPERF, TCPTRACE, TSHARK, UTIL_LINUX,
};
use crate::{packages, shell};
use outcome::Outcome;
use process::Cores;
use setting::Setting;
use taut::Taut;

/// Which benches, and how often.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these; all of them when none is named.
    #[arg(value_enum)]
    names: Vec<Name>,
    /// Rounds; each gives one ratio.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Time of one measurement of `echo`, `stream`, `pipe`, `broker` and fio.
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    time: Duration,
    /// One object on stdout instead of tables.
    #[arg(long)]
    json: bool,
    /// A `taut` that is built already, instead of building this one.
    #[arg(long, value_name = "FILE")]
    taut: Option<PathBuf>,
    #[command(flatten)]
    alike: alike::Options,
    #[command(flatten)]
    explain: explain::Options,
}

/// The benches.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Name {
    /// Round trips of 32 B over TCP and UDP, beside sockperf.
    Echo,
    /// Throughput of one TCP connection, beside iperf3.
    Stream,
    /// Periodic small messages against delayed ACKs, Nagle's algorithm on beside off.
    Pace,
    /// What `taut tune` finds for write-write-read.
    Tune,
    /// libtautaio beside poll, io_uring and glibc's POSIX AIO: 10,000 connections, and files by fio.
    Aio,
    /// `taut pipe` between TCP connections, beside socat.
    Pipe,
    /// Links in virtual time: connection events simulated a second of a core.
    Air,
    /// Routes over UDP: in the kernel beside user space. Needs root.
    Route,
    /// Files over HTTP, beside busybox httpd.
    Web,
    /// A capture explained, beside tcptrace.
    Explain,
    /// What `taut trace` and `taut watch` cost those who are looked at, and others. Needs root.
    Trace,
    /// What `taut watch` takes beside 10,000 open connections.
    Watch,
    /// Round trips of 32 B through a broker, beside bare frames, rumqttc and async-nats.
    Broker,
    /// The same thing under two names through every command that compares; how often is it told apart? With --effects,
    /// known differences: how often are they found? Only when it is named: it takes half an hour. Needs root.
    Alike,
}

const ALL: [Name; 13] = [
    Name::Echo,
    Name::Stream,
    Name::Pace,
    Name::Tune,
    Name::Aio,
    Name::Pipe,
    Name::Air,
    Name::Route,
    Name::Web,
    Name::Explain,
    Name::Trace,
    Name::Watch,
    Name::Broker,
];

/// Exit code for arguments that can't be followed, as clap has it.
const USAGE: u8 = 2;

/// Runs the benches. Exit code 3 when one misses its bar, 1 when one can't be run.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let named = |name: &Name| args.names.contains(name);
    let mut names: Vec<Name> = ALL.into_iter().filter(|name| args.names.is_empty() || named(name)).collect();
    names.extend(Some(Name::Alike).filter(named));
    let mut needed = vec![&UTIL_LINUX];
    if names.contains(&Name::Echo) {
        needed.push(&SOCKPERF);
    }
    if names.contains(&Name::Stream) {
        needed.push(&IPERF);
    }
    if names.contains(&Name::Pace) {
        needed.push(&IPROUTE);
    }
    if names.contains(&Name::Aio) {
        needed.push(&FIO);
    }
    if names.contains(&Name::Pipe) {
        needed.push(&SOCAT);
    }
    if names.contains(&Name::Web) {
        needed.extend([&CURL, &BUSYBOX]);
    }
    if names.contains(&Name::Broker) {
        needed.extend([&MOSQUITTO, &NATS_SERVER]);
    }
    if let Some(refusal) = too_few(&names, args.rounds) {
        eprintln!("xtask: {refusal}");
        return Ok(ExitCode::from(USAGE));
    }
    if names.contains(&Name::Explain) {
        needed.extend([&TCPTRACE, &TSHARK]);
    }
    packages::ensure(&needed);

    let cores = Cores::of_this_process()?;
    let taut = match &args.taut {
        Some(file) => Taut::new(file.canonicalize().with_context(|| format!("no {}", file.display()))?, cores),
        None => Taut::new(build()?, cores),
    };
    let setting = Setting { taut, cores, rounds: args.rounds, time: args.time };
    if args.rounds < 5 {
        eprintln!("--rounds {}: too few to tell a difference from noise, 5 are usual", args.rounds);
    }

    let host = host(&setting)?;
    if !args.json {
        println!("{}", host_line(&host));
    }
    let mut benches = Vec::new();
    let (mut met, mut broken) = (true, false);
    for name in names {
        let title = format!("{name:?}").to_lowercase();
        eprintln!("running {title}");
        match name.run(&setting, args) {
            Ok(outcome) => {
                met &= outcome.met != Some(false);
                if !args.json {
                    println!("\n{title}\n{}", outcome.text);
                }
                benches.push(json!({"bench": title, "met": outcome.met, "results": outcome.json}));
            }
            Err(error) => {
                broken = true;
                eprintln!("{title} could not be run: {error:#}");
                benches.push(json!({"bench": title, "error": format!("{error:#}")}));
            }
        }
    }
    if args.json {
        println!("{:#}", json!({"format_version": 1, "command": "xtask bench", "host": host, "benches": benches}));
    }
    Ok(match (broken, met) {
        (true, _) => ExitCode::FAILURE,
        (false, false) => ExitCode::from(3),
        (false, true) => ExitCode::SUCCESS,
    })
}

/// Why so few rounds give some of the benches nothing to judge.
fn too_few(names: &[Name], rounds: u32) -> Option<String> {
    let needs = |name: &&Name| name.least_rounds() > rounds;
    let name = names.iter().filter(needs).max_by_key(|name| name.least_rounds())?;
    let (title, least) = (format!("{name:?}").to_lowercase(), name.least_rounds());
    Some(format!("--rounds {rounds}: `bench {title}` compares by intervals across rounds and needs at least {least}"))
}

impl Name {
    /// The fewest rounds that give every figure which its bars are for.
    const fn least_rounds(self) -> u32 {
        match self {
            // `taut route bench` compares by an interval across rounds: there is none for fewer.
            Self::Route => 5,
            _ => 1,
        }
    }

    fn run(self, setting: &Setting, args: &Args) -> Result<Outcome> {
        match self {
            Self::Echo => echo::run(setting),
            Self::Stream => stream::run(setting),
            Self::Pace => pace::run(setting),
            Self::Tune => tune::run(setting),
            Self::Aio => aio::run(setting),
            Self::Pipe => pipe::run(setting),
            Self::Air => air::run(setting),
            Self::Route => route::run(setting),
            Self::Web => web::run(setting),
            Self::Explain => explain::run(setting, &args.explain),
            Self::Trace => trace::run(setting),
            Self::Watch => watch::run(setting),
            Self::Broker => broker::run(setting),
            Self::Alike => alike::run(setting, &args.alike),
        }
    }
}

fn build() -> Result<PathBuf> {
    eprintln!("building taut");
    shell::run(shell::cargo().args(["build", "--release", "--locked", "--package", "tautline", "--bin", "taut"]))?;
    Ok(shell::target_dir()?.join("release/taut"))
}

fn host(setting: &Setting) -> Result<Value> {
    let read = |file: &str| std::fs::read_to_string(file).map(|text| text.trim().to_owned());
    let load = read("/proc/loadavg")?;
    Ok(json!({
        "kernel": read("/proc/sys/kernel/osrelease")?,
        "cores": std::thread::available_parallelism()?.get(),
        "client_core": setting.cores.client,
        "server_core": setting.cores.server,
        "load_average_before": load.split(' ').next().and_then(|load| load.parse::<f64>().ok()),
        "congestion_control": read("/proc/sys/net/ipv4/tcp_congestion_control").ok(),
        "taut": setting.taut.version()?,
        "rounds": setting.rounds,
    }))
}

fn host_line(host: &Value) -> String {
    let text = |key: &str| host[key].as_str().unwrap_or("?").to_owned();
    format!(
        "{}, Linux {}, {} cores (clients on {}, servers on {}), load {} before, TCP {}",
        text("taut"),
        text("kernel"),
        host["cores"],
        host["client_core"],
        host["server_core"],
        host["load_average_before"],
        text("congestion_control"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_rounds_are_refused_with_what_is_needed() {
        let refusal = too_few(&ALL, 3).unwrap();
        assert_eq!(refusal, "--rounds 3: `bench route` compares by intervals across rounds and needs at least 5");
        assert_eq!(too_few(&[Name::Echo, Name::Tune], 1), None);
        assert_eq!(too_few(&ALL, 5), None);
        let (alike, explain) = (alike::Options::default(), explain::Options::default());
        let (names, time) = (vec![Name::Route], Duration::ZERO);
        let args = Args { names, rounds: 3, time, json: false, taut: None, alike, explain };
        assert_eq!(format!("{:?}", run(&args).unwrap()), format!("{:?}", ExitCode::from(2)));
    }
}
