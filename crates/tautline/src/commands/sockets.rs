use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use anyhow::Context;
use taut_event::Holder;
use taut_explain::socket::{FEWEST_SAMPLES, holder, suspicions};
use taut_link::clock;
use taut_record::{Ended, FORMAT_VERSION};
use taut_report::{HeldTime, SocketRow, SocketsDocument, Suspicion};
use taut_source::{Sampler, Seen};

use crate::account::account;
use crate::exit::Code;
use crate::host_watch::options_are_hidden;
use crate::{input, output, run};

/// List the TCP sockets of this host, with what ss can't say: Nagle's algorithm, cork, delayed
/// ACKs, and who holds their data
///
/// Looks at all connections of this network namespace every 20 ms, for a second unless told otherwise, and tells
/// which of them lose time and to what. Needs no right, changes nothing and loads nothing into the kernel; the
/// options of other users' programs take root. Waits shorter than the time between two looks are seen by chance only.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut sockets                        which connections of this host lose time now, and to what
  taut sockets --pid 4711 --time 10s  those of one program, for longer
  sudo taut sockets --port 5432       those of one port, with all options
  taut sockets --all --json

docs/sockets.md says how the holder is told and what can't be seen.")]
pub(crate) struct Args {
    /// Only the sockets of this process
    #[arg(long, value_name = "PID", value_parser = input::process)]
    pid: Option<i32>,
    /// Only those with this port at either end
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// How long to look; longer where five looks take longer. 0 for a single look, without a verdict
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    time: Duration,
    /// Show all, not only those that lose time and 20 others
    #[arg(long)]
    all: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(20);
/// Looking takes at most this part of a processor: with very many sockets there are fewer looks.
const MOST_WORK: u32 = 5;

impl Args {
    /// A process, for a time.
    pub(crate) const fn of_process(pid: i32, time: Duration) -> Self {
        Self { pid: Some(pid), port: None, time, all: false, json: false }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    let document = match measure(&args)? {
        Ok(document) => document,
        Err(code) => return Ok(code),
    };
    let text = match args.json {
        true => document.to_json(),
        false => output::fitted(|| document.to_text(args.all)),
    };
    output::print(&text)?;
    Ok(if document.ended == Ended::Interrupted { Code::Interrupted } else { Code::Ok })
}

/// Looks until the end; a code where it can't, after its reason was printed.
pub(crate) fn measure(args: &Args) -> anyhow::Result<Result<SocketsDocument, Code>> {
    if let Some(pid) = args.pid
        && let Some((code, text)) = trouble_with(pid)?
    {
        anstream::eprintln!("taut: {text}");
        return Ok(Err(code));
    }
    let interrupt = run::interrupt_on_signals()?;
    let mut sampler = Sampler::new(args.pid, args.port, holder)?;
    // The first one goes through /proc and reads the options of all, so its time is none of the looks'.
    sampler.look(clock::now())?;
    sampler.settle();
    let begin = clock::now();
    let end = begin + args.time;
    loop {
        let (now, before) = (clock::now(), clock::thread_cpu());
        sampler.look(now)?;
        let pause = clock::thread_cpu().saturating_sub(before) * (MOST_WORK - 1);
        let looked = clock::now();
        let is_enough = args.time.is_zero() || sampler.looks() >= FEWEST_SAMPLES;
        if looked >= end && is_enough || interrupt.is_set() {
            break;
        }
        let next = (now + PERIOD).max(looked + pause);
        clock::sleep_until(if is_enough { next.min(end) } else { next });
        if interrupt.is_set() {
            break;
        }
    }
    let span_ns = nanos(clock::now().saturating_since(begin));
    let (looks, hidden, forgotten) = (sampler.looks(), sampler.hidden(), sampler.forgotten());
    let sockets = rows(sampler.finish());
    Ok(Ok(SocketsDocument {
        format_version: FORMAT_VERSION,
        command: "sockets".to_owned(),
        command_line: run::command_line(),
        ended: if interrupt.is_set() { Ended::Interrupted } else { Ended::Complete },
        span_ns,
        looks,
        is_enough: looks >= FEWEST_SAMPLES,
        remarks: remarks(&sockets, hidden, forgotten),
        sockets,
    }))
}

/// Why the sockets of a process can't be listed.
fn trouble_with(pid: i32) -> anyhow::Result<Option<(Code, String)>> {
    if fs::metadata(format!("/proc/{pid}")).is_err() {
        return Ok(Some((Code::Usage, format!("there is no process {pid}"))));
    }
    let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/net"));
    let theirs = match namespace(&pid.to_string()) {
        Ok(theirs) => theirs,
        // One that ended and that its parent has not waited for has no namespace.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
            let text = match threads {
                0 | 1 => format!("process {pid} has ended"),
                _ => format!("the main thread of process {pid} has ended, and only it has what is looked at here"),
            };
            return Ok(Some((Code::Usage, text)));
        }
        Err(_) => {
            let text = format!("the descriptors of process {pid} may not be looked at: run it as its user, or as root");
            return Ok(Some((Code::Missing, text)));
        }
    };
    if theirs != namespace("self").context("read /proc/self/ns/net")? {
        let text = format!(
            "process {pid} is in another network namespace: nsenter --net --target {pid} taut sockets --pid {pid}"
        );
        return Ok(Some((Code::Usage, text)));
    }
    Ok(None)
}

fn remarks(sockets: &[SocketRow], hidden: usize, forgotten: usize) -> Vec<String> {
    let mut remarks = Vec::new();
    let unseen =
        sockets.iter().filter(|row| row.is_held && row.nodelay.is_none() && row.state == "established").count();
    if unseen > 0 {
        let way = options_are_hidden(hidden > 0);
        remarks.push(format!(
            "The options of {unseen} sockets can't be looked at, so waits for Nagle's algorithm or TCP_CORK are not told \
             there: {way}."
        ));
    }
    if forgotten > 0 {
        remarks.push(format!("{forgotten} connections that ended meanwhile are left out: more than are kept."));
    }
    remarks
}

/// Those that lose time first.
fn rows(seen: Vec<Seen>) -> Vec<SocketRow> {
    let mut rows: Vec<SocketRow> = seen.iter().map(row).collect();
    rows.retain(|row| row.accept_queue.is_none() || !row.suspicions.is_empty());
    rows.sort_by_cached_key(|row| {
        let worst = row.suspicions.first().map_or(0, |suspicion| suspicion.time_ns);
        let busy = row.span_ns.saturating_sub(row.idle_ns);
        (std::cmp::Reverse((worst, busy)), row.local.clone(), row.peer.clone())
    });
    rows
}

fn row(seen: &Seen) -> SocketRow {
    let (first, last) = (&seen.first.info, &seen.last.info);
    let state = seen.last.state_with(seen.options);
    let account = account(seen);
    let mut held: Vec<HeldTime> = Holder::ALL
        .into_iter()
        .zip(seen.held)
        .filter(|(_, held)| !held.is_zero())
        .map(|(holder, held)| HeldTime { holder: holder.name().to_owned(), held_ns: nanos(held) })
        .collect();
    held.sort_by_key(|held| std::cmp::Reverse(held.held_ns));
    let suspicions = suspicions(&account).into_iter().map(|one| Suspicion {
        cause: one.cause.to_owned(),
        summary: one.summary.to_owned(),
        remedy: one.remedy.to_owned(),
        time_ns: nanos(one.time),
    });
    SocketRow {
        local: seen.last.local.to_string(),
        peer: seen.last.peer.to_string(),
        state: seen.last.state.name().to_owned(),
        is_held: seen.last.inode != 0,
        pid: seen.owner.as_ref().map(|owner| owner.pid),
        program: seen.owner.as_ref().map(|owner| owner.name.clone()),
        fd: seen.owner.as_ref().map(|owner| owner.fd),
        other_processes: seen.owner.as_ref().map_or(0, |owner| owner.others),
        peer_program: seen.peer.as_ref().map(|peer| format!("{} ({})", peer.name, peer.pid)),
        nodelay: seen.options.map(|options| options.no_delay),
        cork: seen.options.map(|options| options.cork),
        quickack: seen.options.map(|options| options.quick_ack),
        accept_queue: seen.last.accept_queue.map(|queue| queue.waiting),
        backlog: seen.last.accept_queue.map(|queue| queue.backlog),
        unsent_bytes: state.unsent_bytes,
        in_flight_bytes: state.in_flight_bytes,
        unread_bytes: state.unread_bytes,
        rtt_ns: nanos(last.smoothed_rtt),
        holder: seen.holder.map(|holder| holder.name().to_owned()),
        span_ns: nanos(seen.span),
        samples: seen.samples,
        idle_ns: nanos(seen.idle()),
        held,
        unread_samples: seen.unread_samples,
        acknowledged_bytes: last.bytes_acked.saturating_sub(first.bytes_acked),
        received_bytes: last.bytes_received.saturating_sub(first.bytes_received),
        retransmitted_segments: last.retransmitted_segments.saturating_sub(first.retransmitted_segments),
        receive_window_limited_ns: nanos(last.receive_window_limited.saturating_sub(first.receive_window_limited)),
        send_buffer_limited_ns: nanos(account.send_buffer_limited),
        suspicions: suspicions.collect(),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
