use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use taut_link::Error;
use taut_report::figures::route_families;
use taut_route::control::{self, Answers, ControlServer};
use taut_route::route::{Route, Source, Target};
use taut_route::run::{Ended, Engine};

use super::declare::DeclareArgs;
use super::figures::RouteFigures;
use super::show;
use crate::exit::Code;
use crate::figures::BeatArgs;
use crate::output;
use crate::run::{interrupt_on_signals, warn_of_open_logins};

/// Set routes to work until Ctrl-C, or with --detach until `taut route stop`
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    declare: DeclareArgs,
    /// Leave the routes at work in a process of their own
    #[arg(long, conflicts_with_all = ["every", "jsonl", "prometheus", "otlp"])]
    detach: bool,
    /// Print the last counters as one JSON object
    #[arg(long, conflicts_with = "detach")]
    json: bool,
    #[command(flatten)]
    figures: BeatArgs,
    /// The process of its own that --detach makes
    #[arg(long, hide = true, conflicts_with = "detach")]
    detached: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<Code> {
    // First, so that nothing is started for nothing.
    let routes = args.declare.routes()?;
    refuse_names_in_use(&routes)?;
    spare(&args, &routes)?;
    if args.figures.take_stdout() && (args.json || routes.iter().any(|route| uses_streams(route, false))) {
        let text = "--jsonl - writes to stdout, and so does a route, its log or --json: name a file for one of them";
        return Err(Error::Input(text.into()).into());
    }
    if args.detach {
        refuse_standard_streams(&routes)?;
        return detach();
    }
    warn_of_open_logins(routes.iter().flat_map(|route| &route.sinks).filter_map(|sink| match &sink.target {
        Target::Broker(endpoint) => Some(endpoint),
        _ => None,
    }));
    let interrupt = interrupt_on_signals()?;
    if args.detached {
        // The terminal and its signals are left behind.
        rustix::process::setsid().context("leave the session")?;
    }
    let mut figures = args.figures.open(route_families(&[]))?.map(RouteFigures::new);
    let mut server = ControlServer::open()?;
    let mut engine = Engine::start(routes)?;
    for status in engine.status() {
        let place = status.device.as_ref().map_or_else(String::new, |device| format!(" on {device}"));
        eprintln!("taut: route {} runs in {}{place}: {}", status.name, status.runs, status.why.join("; "));
    }
    if args.detached {
        let mut stdout = std::io::stdout();
        writeln!(stdout, "{READY}").and_then(|()| stdout.flush()).context("tell that the routes are at work")?;
        let null = File::options().read(true).write(true).open("/dev/null").context("open /dev/null")?;
        rustix::stdio::dup2_stdout(&null)
            .and_then(|()| rustix::stdio::dup2_stderr(&null))
            .context("let go of output")?;
    }
    while !interrupt.is_set() && !engine.has_ended() {
        engine.turn(server.as_fd());
        tell(&engine.take_notes());
        server.serve(&mut engine);
        if let Some(figures) = &mut figures {
            figures.look(|| engine.status());
        }
    }
    // Who asked the last route to end waits for its counters.
    server.serve(&mut engine);
    tell(&engine.take_notes());
    let Ended { last, notes, has_lost } = engine.end();
    tell(&notes);
    let is_told = figures.is_none_or(|figures| figures.finish(&last));
    if !args.detached && !args.figures.take_stdout() {
        // Routes may have written there, too, to a reader that stands still.
        output::print_until(&show::counters(args.json, "route run", &last)?, || interrupt.is_set())?;
    }
    Ok(if is_told && !has_lost { Code::Ok } else { Code::Failed })
}

/// What has happened to brokers.
fn tell(notes: &[String]) {
    let mut stderr = anstream::stderr();
    for note in notes {
        // Where nothing can be written, a full disk for one, the routes go on all the same.
        let _ = writeln!(stderr, "taut: {}", output::printable(note));
    }
}

/// Refuses lines that would be written into what is read, and lines of figures among those of a route.
fn spare(args: &Args, routes: &[Route]) -> anyhow::Result<()> {
    let declared: Vec<&Path> = args.declare.file().into_iter().collect();
    let sources = routes.iter().filter_map(|route| match &route.source {
        Source::Lines(path) => Some(path.as_path()),
        _ => None,
    });
    let figures = ("--jsonl", args.figures.file());
    output::spare(&declared.iter().copied().chain(sources).collect::<Vec<_>>(), &[figures])?;
    for route in routes {
        let sinks = route.sinks.iter().filter_map(|sink| match &sink.target {
            Target::File(path) => Some(("a sink", path.as_path())),
            _ => None,
        });
        let written = route.log.as_deref().map(|log| ("the log", log)).into_iter().chain(sinks);
        for (what, path) in written.filter(|(_, path)| path.as_os_str() != "-") {
            let name = format!("{what} of route {}", route.name);
            output::spare(&declared, &[figures, (&name, Some(path))])?;
        }
    }
    Ok(())
}

/// The line by which the process of its own tells that its routes are at work.
const READY: &str = "ready";

fn detach() -> anyhow::Result<Code> {
    let program = std::env::current_exe().context("find the program itself")?;
    let arguments = std::env::args_os().skip(1).map(|word| if word == "--detach" { "--detached".into() } else { word });
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("start a process for the routes")?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).context("listen to the process of the routes")?;
    }
    if line.trim_end() == READY {
        return Ok(Code::Ok);
    }
    // It has said why on stderr, which is ours too.
    let status = child.wait().context("wait for the process of the routes")?;
    Ok(match status.code() {
        Some(2) => Code::Usage,
        Some(4) => Code::Missing,
        _ => Code::Failed,
    })
}

fn refuse_names_in_use(routes: &[Route]) -> anyhow::Result<()> {
    let Answers { routes: at_work, mut silent } = control::status()?;
    if let Some(error) = silent.pop() {
        // It may hold a route of the same name.
        return Err(error.into());
    }
    for status in at_work {
        if routes.iter().any(|route| route.name == status.name) {
            let (name, pid) = (status.name, status.pid);
            let text = format!("route {name} is at work already (process {pid}): stop it, or choose another --name");
            return Err(Error::Input(text).into());
        }
    }
    Ok(())
}

/// Whether a route writes to stdout, or with `or_stdin` reads from stdin.
fn uses_streams(route: &Route, or_stdin: bool) -> bool {
    let is_stream = |path: &Path| path.as_os_str() == "-";
    or_stdin && matches!(&route.source, Source::Lines(path) if is_stream(path))
        || route.log.as_deref().is_some_and(is_stream)
        || route.sinks.iter().any(|sink| matches!(&sink.target, Target::File(path) if is_stream(path)))
}

fn refuse_standard_streams(routes: &[Route]) -> anyhow::Result<()> {
    match routes.iter().find(|route| uses_streams(route, true)) {
        Some(route) => {
            let text = format!("route {}: with --detach there is no stdin and no stdout; name a file", route.name);
            Err(Error::Input(text).into())
        }
        None => Ok(()),
    }
}
