//! `taut pipe`.

mod broker;
mod tell;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use taut_link::{Endpoint, Error, service};
use taut_pipe::framing::Framing;
use taut_pipe::{Address, Engine, Options, Plan, Side, TlsFiles, parse_config};
use taut_report::figures::PipeCounts;
use taut_time::Duration;

use crate::exit::Code;
use crate::figures::BeatArgs;
use crate::{input, output, run};
use tell::Teller;

/// Join two endpoints in both directions
///
/// Either end is tcp://HOST:PORT, udp://HOST:PORT, tls://HOST:PORT, unix:PATH, unix-dgram:PATH
/// (unix:@NAME for an abstract name), l2cap://ADDR/PSM, rfcomm://ADDR/CHANNEL, tty:PATH?baud=115200,
/// exec:COMMAND, exec-pty:COMMAND, stdio:, file:PATH (read as A, appended to as B),
/// mqtt://HOST/TOPIC?qos=1&session=NAME or nats://HOST/SUBJECT (heard as A, published to as B). With
/// listen: before a socket's address there is a pipe for each client. Nothing needs escaping.
///
/// Over a broker, on two hosts:
///   taut pipe exec:./sensor 'mqtt://HOST/TOPIC?qos=1&v=5'
///   taut pipe 'mqtt://HOST/TOPIC?qos=1&v=5&session=log' file:values
/// Each message has a number, and both say at the end how many were read, dropped and missing.
///
/// Says at the end who closed, why, and how many bytes went each way and how many did not get
/// there; on stderr, or with --json as one object on stdout (on stderr where stdio: is an end).
/// Exit code 1 when an end failed, bytes were left or messages are missing. docs/pipe.md is the
/// guide, docs/brokers.md of brokers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One end
    #[arg(required_unless_present = "config")]
    a: Option<Side>,
    /// The other end
    #[arg(required_unless_present = "config")]
    b: Option<Side>,
    /// Pipes from a file (TOML) in place of A and B
    #[arg(long, value_name = "FILE", conflicts_with_all = ["a", "b", "framing", "clients", "children", "once", "retry", "connect_timeout", "idle", "time", "rate", "linger", "cert", "key", "ca"])]
    config: Option<PathBuf>,
    /// Print what became of it as one JSON object
    #[arg(long)]
    json: bool,
    /// Also write all that passes to a capture for Wireshark (pcapng), as made-up TCP and UDP packets
    #[arg(long, value_name = "FILE", value_parser = output::out_file())]
    tee: Option<PathBuf>,
    /// Say nothing but errors
    #[arg(long, short)]
    quiet: bool,
    /// How messages (udp, unix-dgram, mqtt, nats) are told apart at the end that is a stream: none, length (4
    /// bytes before each, network byte order) or line (a newline after each)
    #[arg(long, value_name = "FORM", default_value = "none", value_parser = framing)]
    framing: Framing,
    /// Take the listening sockets from the service manager (LISTEN_FDS), in the order of the listen: ends
    #[arg(long, help_heading = "Clients")]
    listen_fd: bool,
    /// Clients at once; more wait, those that send datagrams are not served
    #[arg(long, value_name = "N", default_value = "1000", value_parser = input::count, help_heading = "Clients")]
    clients: usize,
    /// Programs (exec:, exec-pty:) at once for clients that send datagrams, whose addresses anybody can make up
    #[arg(long, value_name = "N", default_value = "16", value_parser = input::count, help_heading = "Clients")]
    children: usize,
    /// End after the first client
    #[arg(long, help_heading = "Clients")]
    once: bool,
    /// Try a connection that fails so many times more, or forever, after 0.1 s, then twice as long
    /// each time up to 10 s; a pipe between two ends that are gone to is made anew when it breaks
    #[arg(long, value_name = "N", default_value = "0", value_parser = retries, help_heading = "Limits")]
    retry: u32,
    /// Longest wait for a connection
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = input::positive_duration, help_heading = "Limits")]
    connect_timeout: Duration,
    /// End a pipe in which nothing moves for so long, or whose client waits so long for the other
    /// end [default: none; 60s for clients that send datagrams]
    #[arg(long, value_name = "TIME", value_parser = input::positive_duration, help_heading = "Limits")]
    idle: Option<Duration>,
    /// End a pipe after so long
    #[arg(long, value_name = "TIME", value_parser = input::positive_duration, help_heading = "Limits")]
    time: Option<Duration>,
    /// Most bytes a second, each way
    #[arg(long, value_name = "SIZE", value_parser = input::size, help_heading = "Limits")]
    rate: Option<usize>,
    /// When one end is over and the other is of a kind that can't be told: go on until nothing moves for so long
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = input::duration, help_heading = "Limits")]
    linger: Duration,
    /// Our certificate chain (PEM): needed to listen on tls://, a client certificate elsewhere
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "TLS")]
    cert: Option<PathBuf>,
    /// The private key of --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "TLS")]
    key: Option<PathBuf>,
    /// Roots for the other side's certificate (PEM) [default: the system's]; when listening,
    /// clients need a certificate then
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    figures: BeatArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    // First, as descriptors made later might take the numbers that we were passed.
    let passed = if args.listen_fd { service::passed_sockets()? } else { Vec::new() };
    let (stop, signalled) = UnixStream::pair().context("make a socket pair")?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, signalled.try_clone().context("copy a socket")?)?;
    }
    let plans = match &args.config {
        Some(path) => {
            let text = input::text_of(path).map_err(|error| Error::Input(format!("{}: {error}", path.display())))?;
            parse_config(&text).map_err(|error| Error::Input(format!("{}: {error}", path.display())))?
        }
        None => vec![plan(&args)?],
    };
    let links = plans.iter().flat_map(|plan| &plan.sides).filter_map(|side| match &side.address {
        Address::Link(endpoint) => Some(endpoint),
        _ => None,
    });
    run::warn_of_open_logins(links);
    let listens = plans.iter().any(|plan| plan.sides.iter().any(|side| side.listens));
    let on_stdio = plans.iter().any(|plan| plan.sides.iter().any(|side| side.address == Address::Stdio));
    if args.figures.take_stdout() && (args.json || on_stdio) {
        let text = "--jsonl - writes to stdout, and so does --json, or the end stdio: name a file for the lines";
        return Err(Error::Input(text.to_owned()).into());
    }
    spare(&args, &plans)?;
    let figures = args.figures.open(PipeCounts::default().families())?;
    let mut teller = Teller::new(&plans, args.tee.as_deref(), args.quiet, args.json, listens, figures)?;
    let mut engine = Engine::new(plans, passed)?;
    let endpoints: Vec<String> = engine.listening().iter().map(Endpoint::to_string).collect();
    service::tell_ready(&if listens { format!("listening on {}", endpoints.join(" ")) } else { "carrying".to_owned() });
    if listens {
        teller.listening(endpoints);
    }
    let stop = OwnedFd::from(stop);
    engine.run(&stop, &mut teller)?;
    service::tell_stopping();
    drop(engine);
    teller.finish(on_stdio)
}

/// Refuses a capture or lines that would be written into what the pipes read or write.
fn spare(args: &Args, plans: &[Plan]) -> anyhow::Result<()> {
    let file = |side: &Side| match &side.address {
        Address::File(path) => Some(path.clone()),
        _ => None,
    };
    let of_plan = |plan: &Plan| {
        let TlsFiles { cert, key, ca } = plan.options.tls.clone();
        [cert, key, ca, file(&plan.sides[0])]
    };
    let read: Vec<PathBuf> = args.config.iter().cloned().chain(plans.iter().flat_map(of_plan).flatten()).collect();
    let read: Vec<&Path> = read.iter().map(PathBuf::as_path).collect();
    let outputs = [("--tee", args.tee.as_deref()), ("--jsonl", args.figures.file())];
    output::spare(&read, &outputs)?;
    for written in plans.iter().filter_map(|plan| file(&plan.sides[1])) {
        output::spare(&[], &[&outputs[..], &[("the end file:", Some(&written))]].concat())?;
    }
    Ok(())
}

fn plan(args: &Args) -> anyhow::Result<Plan> {
    let (Some(a), Some(b)) = (args.a.clone(), args.b.clone()) else {
        return Err(Error::Input("give two endpoints, or --config FILE".to_owned()).into());
    };
    let options = Options {
        framing: args.framing,
        clients: args.clients,
        children: args.children,
        once: args.once,
        retries: args.retry,
        connect_timeout: args.connect_timeout,
        idle: args.idle,
        time: args.time,
        rate: args.rate.map(|rate| rate as u64),
        linger: args.linger,
        tls: TlsFiles { cert: args.cert.clone(), key: args.key.clone(), ca: args.ca.clone() },
    };
    let plan = Plan { name: "pipe".to_owned(), sides: [a, b], options };
    plan.check()?;
    Ok(plan)
}

fn framing(text: &str) -> Result<Framing, String> {
    match text {
        "none" => Ok(Framing::None),
        "length" => Ok(Framing::Length),
        "line" => Ok(Framing::Line),
        _ => Err(format!("`{text}`: there is none, length and line")),
    }
}

fn retries(text: &str) -> Result<u32, String> {
    match text {
        "forever" => Ok(u32::MAX),
        _ => text.parse().map_err(|_| format!("`{text}`: a number, or forever")),
    }
}
