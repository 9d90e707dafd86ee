use std::io::stderr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use taut_link::{Endpoint, Listener, service};
use taut_time::Duration;
use taut_web::log::Log;
use taut_web::{Hosts, Limits, Options, Server, Site, Tree};

use crate::exit::Code;
use crate::{input, output, run};

/// Static files over HTTP/1.1 on any link: TCP, Unix sockets, L2CAP, RFCOMM
///
/// Serves what lies beneath a directory, and nothing else: symbolic links out of it, names that begin
/// with a dot, FIFOs and devices are not there. GET and HEAD; one range, preconditions, files compressed
/// beforehand (.br, .zst, .gz beside the plain one), index.html. A file NAME.tmpl.html is served as
/// NAME.html with {{time}} replaced by the time; nothing is evaluated. Listens on loopback unless told
/// otherwise, and answers only for localhost, addresses and names that it was told (else 421), so that no
/// page from elsewhere can have its own name lead here. Ends at Ctrl-C, when answers that have begun are
/// finished, and then says what it has done. A line for each request goes to stderr. More in docs/web.md.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut web site --on tcp://127.0.0.1:8080 --on unix:/run/web.sock
  curl --unix-socket /run/web.sock http://localhost/
  taut web site --on l2cap://any/225             a page over Bluetooth LE; on the other machine,
  taut pipe listen:tcp://127.0.0.1:8080 l2cap://00:11:22:33:44:55/225   brings it to a browser")]
pub(crate) struct Args {
    /// What to serve
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Where to listen; more than one may be given [default: tcp://127.0.0.1:8080]
    #[arg(long, value_name = "ENDPOINT")]
    on: Vec<Endpoint>,
    /// Listen on the sockets that the service manager passes (LISTEN_FDS), beside those of --on, if any
    #[arg(long)]
    listen_fd: bool,
    /// Answer for this name too, beside localhost, all addresses and names in --on; more than one may be given
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Answer a directory without index.html with a list of what is in it
    #[arg(long)]
    listing: bool,
    /// How long clients may keep files without asking again [default: they ask every time]
    #[arg(long, value_name = "TIME", value_parser = input::duration)]
    max_age: Option<Duration>,
    /// No line for each request
    #[arg(long)]
    quiet: bool,
    /// Print what is listened on, and at the end what was served, as JSON lines
    #[arg(long)]
    json: bool,
    /// Clients at once, over all endpoints; then whoever has been waited for the longest has to go
    #[arg(long, value_name = "N", default_value = "256", value_parser = input::count, help_heading = "Limits")]
    max_clients: usize,
    /// Size of a request's line and fields
    #[arg(long, value_name = "SIZE", default_value = "16KiB", value_parser = input::size, help_heading = "Limits")]
    max_head: usize,
    /// Fields of a request
    #[arg(long, value_name = "N", default_value = "64", value_parser = input::count, help_heading = "Limits")]
    max_fields: usize,
    /// Longest wait for a whole request, from the connection's begin or the end of the last answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = input::positive_duration, help_heading = "Limits")]
    idle: Duration,
    /// Longest wait for a client that takes nothing of its answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = input::positive_duration, help_heading = "Limits")]
    stall: Duration,
    /// Longest life of a connection
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = input::positive_duration, help_heading = "Limits")]
    max_time: Duration,
    /// How long answers that have begun may go on at the end
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = input::duration, help_heading = "Limits")]
    grace: Duration,
}

const DEFAULT: &str = "tcp://127.0.0.1:8080";

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    // Before any other descriptor is opened, and any other thread runs.
    let mut listeners = if args.listen_fd { service::passed_listeners()? } else { Vec::new() };
    // A second Ctrl-C ends the process at once.
    run::interrupt_on_signals()?;
    let stop = stop_on_signals().context("prepare for Ctrl-C")?;
    let on = match args.on.as_slice() {
        [] if !args.listen_fd => &[DEFAULT.parse()?],
        given => given,
    };
    for endpoint in on {
        listeners.push(Listener::bind(endpoint)?);
    }
    let bound = on.iter().filter_map(|endpoint| {
        let text = endpoint.to_string();
        Some(text.strip_prefix("tcp://")?.rsplit_once(':')?.0.to_owned())
    });
    let hosts = Hosts::named(args.host.iter().cloned().chain(bound));
    let options = Options { listing: args.listing, max_age: args.max_age, hosts };
    let site = Site::new(Tree::open(&args.directory)?, options);
    let limits = Limits {
        clients: args.max_clients,
        head_bytes: args.max_head,
        fields: args.max_fields,
        head_time: args.idle,
        stall: args.stall,
        connection: args.max_time,
        grace: args.grace,
    };
    let log = if args.quiet { Log::none() } else { Log::to(stderr()) };
    let server = Server::new(listeners, site, limits, log)?;
    let listening: Vec<String> = server.endpoints().map(Endpoint::to_string).collect();
    if args.json {
        output::print(&format!("{}\n", json!({ "listening": listening })))?;
    } else {
        output::print(&format!("listening on {}\n", listening.join(" ")))?;
    }
    service::tell_ready(&format!("listening on {}", listening.join(" ")));
    let served = server.run(stop, service::tell_stopping).context("serve")?;
    if args.json {
        output::print(&format!("{}\n", json!({ "served": served })))?;
    } else {
        let refused = served.refused + served.evicted + served.timed_out + served.stalled + served.malformed;
        output::print(&format!(
            "answered {} requests of {} clients ({refused} refused or dropped) with {} bytes\n",
            served.requests, served.connections, served.bytes_out
        ))?;
    }
    Ok(Code::Ok)
}

/// Something that can be read once one of the signals has come.
fn stop_on_signals() -> std::io::Result<OwnedFd> {
    let (stop, signalled) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, signalled.try_clone()?)?;
    }
    stop.set_nonblocking(true)?;
    Ok(stop.into())
}
