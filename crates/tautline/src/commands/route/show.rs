//! What routes do: list, stats, stop.

use std::fmt::Write;

use serde::Serialize;
use taut_link::Error;
use taut_record::FORMAT_VERSION;
use taut_route::control::{self, Answers};
use taut_route::run::{BrokerSink, Counters, Status};

use crate::exit::Code;
use crate::{output, published};

/// Routes at work
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

/// Counters of routes at work: events, passed, dropped, short, lost, latency
#[derive(Debug, clap::Args)]
pub(super) struct StatsArgs {
    /// Only this route
    name: Option<String>,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

/// End a route, and print its last counters
#[derive(Debug, clap::Args)]
pub(super) struct StopArgs {
    /// Name of the route
    #[arg(required_unless_present = "all")]
    name: Option<String>,
    /// End all of them
    #[arg(long, conflicts_with = "name")]
    all: bool,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

/// What the commands on routes print.
#[derive(Serialize)]
struct Answer<'a, T> {
    format_version: u32,
    command: &'a str,
    results: &'a [T],
}

pub(super) fn json<T: Serialize>(command: &str, results: &[T]) -> anyhow::Result<()> {
    output::print(&as_json(command, results)?)
}

fn as_json<T: Serialize>(command: &str, results: &[T]) -> anyhow::Result<String> {
    let mut text = serde_json::to_string_pretty(&Answer { format_version: FORMAT_VERSION, command, results })?;
    text.push('\n');
    Ok(text)
}

pub(super) fn list(args: &ListArgs) -> anyhow::Result<Code> {
    let Answers { routes: all, silent } = control::status()?;
    if args.json {
        json("route list", &all)?;
        return Ok(told(&silent));
    }
    let mut text = String::new();
    for one in &all {
        let before = |device: &String| format!("{} on {device}, before any packet filter", one.runs);
        let place = one.device.as_ref().map_or_else(|| one.runs.clone(), before);
        let to = if one.to.is_empty() { "nowhere".to_owned() } else { one.to.join(", ") };
        writeln!(text, "{}  {place}  {} -> {to}  when {}  (process {})", one.name, one.from, one.when, one.pid)?;
    }
    output::print(if all.is_empty() && silent.is_empty() { "no route is at work\n" } else { &text })?;
    Ok(told(&silent))
}

/// Names the holders that did not answer; the code that this stands for.
fn told(silent: &[Error]) -> Code {
    for error in silent {
        anstream::eprintln!("taut: {error}");
    }
    if silent.is_empty() { Code::Ok } else { Code::Failed }
}

pub(super) fn stats(args: &StatsArgs) -> anyhow::Result<Code> {
    let Answers { routes: mut all, mut silent } = control::status()?;
    if let Some(name) = &args.name {
        all.retain(|one| one.name == *name);
        if all.is_empty() && silent.is_empty() {
            return Err(unknown(name));
        }
        if !all.is_empty() {
            // Names are unique: no other holder could add to it.
            silent.clear();
        }
    }
    print(args.json, "route stats", &all)?;
    Ok(told(&silent))
}

pub(super) fn stop(args: &StopArgs) -> anyhow::Result<Code> {
    let (names, mut silent) = match &args.name {
        Some(name) => (vec![name.clone()], Vec::new()),
        None => {
            let Answers { routes, silent } = control::status()?;
            (routes.into_iter().map(|one| one.name).collect(), silent)
        }
    };
    let mut stopped = Vec::new();
    for name in names {
        let mut answers = control::stop(&name)?;
        match answers.routes.pop() {
            Some(status) => stopped.push(status),
            None if args.all => {}
            // One of those that are silent may have it.
            None if !answers.silent.is_empty() => silent.append(&mut answers.silent),
            None => return Err(unknown(&name)),
        }
    }
    print(args.json, "route stop", &stopped)?;
    Ok(told(&silent))
}

fn unknown(name: &str) -> anyhow::Error {
    Error::Input(format!("no route {name} is at work (see taut route list)")).into()
}

fn print(is_json: bool, command: &str, all: &[Status]) -> anyhow::Result<()> {
    output::print(&counters(is_json, command, all)?)
}

/// Counters, to be printed.
pub(super) fn counters(is_json: bool, command: &str, all: &[Status]) -> anyhow::Result<String> {
    if is_json {
        return as_json(command, all);
    }
    let mut text = String::new();
    for one in all {
        let Counters { events, passed, dropped, short, lost, log_lost, masked, latency, brokers } = &one.counters;
        writeln!(
            text,
            "{}  {}  events {events}  passed {passed}  dropped {dropped}  short {short}  lost {lost}",
            one.name, one.runs
        )?;
        if *log_lost > 0 {
            writeln!(text, "  {log_lost} records of the log had no room")?;
        }
        if *masked > 0 {
            writeln!(text, "  {masked} times too many came, and the source was masked for a while")?;
        }
        for BrokerSink { endpoint, reconnections, error, not_taken, written } in brokers {
            for line in published::lines(written) {
                writeln!(text, "  {endpoint}: {line}")?;
            }
            if *not_taken > 0 {
                writeln!(text, "  {endpoint}: {not_taken} more found no room on their way there, or were too long")?;
            }
            if *reconnections > 0 {
                writeln!(text, "  {endpoint}: the connection was made again {reconnections} times")?;
            }
            if let Some(error) = error {
                writeln!(text, "  {error}; what passed after that is lost")?;
            }
        }
        let classes: Vec<String> =
            latency.at_least_ns.iter().map(|(from, count)| format!("{from}-{} ns: {count}", 2 * from - 1)).collect();
        if !classes.is_empty() {
            writeln!(text, "  {}: {}", latency.of, classes.join(", "))?;
        }
    }
    Ok(text)
}
