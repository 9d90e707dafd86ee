//! The process under test: takes its links, drives them with one engine, and answers every message with itself.

use std::io::{self, Write};
use std::net::IpAddr;

use rustix::io::Errno;
use taut_link::affinity::stay_on_core;
use taut_link::{Endpoint, Error, Link, Listener, Result, SocketOption, descriptors, process};
use taut_time::Duration;

use super::engine;
use super::kind::CrowdEngine;

/// What a host is told to do.
#[derive(Clone, Debug)]
pub struct HostOrder {
    /// How to drive the links.
    pub engine: CrowdEngine,
    /// How many to take.
    pub connections: usize,
    /// Where to listen.
    pub listen: Endpoint,
    /// The only host to take links from; `None` takes them from anywhere.
    pub from: Option<IpAddr>,
    /// Processor to stay on, all threads.
    pub core: Option<usize>,
}

/// Longest wait for the next link.
const NEXT_LINK: Duration = Duration::from_secs(10);

/// Works as a crowd host until all links are closed, or the pipe on stdin is. Says on stdout, a line each: `listening
/// ENDPOINT`; then `ready` when all links are there and the engine waits for them, or `error NUMBER TEXT`.
///
/// # Errors
/// What was said as `error` on stdout.
pub fn run(order: &HostOrder) -> Result<()> {
    let served = serve(order);
    if let Err(error) = &served {
        say(&format!("error {} {}", number_of(error), error.to_string().replace('\n', " ")));
    }
    served
}

fn serve(order: &HostOrder) -> Result<()> {
    process::end_with_stdin().map_err(|error| Error::Unavailable(format!("the crowd host can't start: {error}")))?;
    if let Some(core) = order.core {
        stay_on_core(core)?;
    }
    descriptors::make_room(order.connections)?;
    let links = {
        let listener = Listener::bind(&order.listen)?;
        listener.set_timeout(Some(NEXT_LINK))?;
        say(&format!("listening {}", listener.endpoint()));
        accept(&listener, order)?
    };
    engine::run(order.engine, links, &mut || say("ready")).map_err(|error| {
        let hint = if order.engine == CrowdEngine::Uring { why_refused(&error) } else { "" };
        Error::Host { what: format!("the engine {} can't be used{hint}", order.engine), error }
    })
}

/// What it means that the kernel refuses io_uring (io_uring_setup(2)).
fn why_refused(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::NOMEM) => " (RLIMIT_MEMLOCK is too small for its queues)",
        Some(Errno::PERM | Errno::NOSYS) => " (kernel.io_uring_disabled or a seccomp filter forbids it)",
        Some(Errno::INVAL) => " (it needs Linux 6.1)",
        _ => "",
    }
}

fn accept(listener: &Listener, order: &HostOrder) -> Result<Vec<Link>> {
    let mut links = Vec::with_capacity(order.connections);
    while links.len() < order.connections {
        match listener.accept_from() {
            Ok((_, from)) if order.from.is_some_and(|only| from != Some(only)) => {}
            Ok((link, _)) => {
                if link.endpoint().acknowledges() {
                    SocketOption::Nodelay(true).apply(&link)?;
                }
                links.push(link);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let what = format!("{} of {} connections came", links.len(), order.connections);
                return Err(Error::Host { what, error });
            }
        }
    }
    Ok(links)
}

fn say(line: &str) {
    let mut stdout = io::stdout().lock();
    // Whoever does not listen any more has closed our stdin as well, which ends us.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// The system's number of an error, 0 when it has none.
fn number_of(error: &Error) -> i32 {
    match error {
        Error::Io { error, .. } | Error::Host { error, .. } => {
            error.raw_os_error().or_else(|| Errno::from_io_error(error).map(Errno::raw_os_error)).unwrap_or(0)
        }
        _ => 0,
    }
}
