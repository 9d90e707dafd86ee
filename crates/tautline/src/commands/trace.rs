mod left;
mod live;
mod names;
mod peer;
mod radio;
mod record;
mod trial;
mod unit;
mod unread;

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use live::Live;
use names::{Names, named};
use record::{Both, Recording};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use taut_event::Direction;
use taut_explain::join::{ClockReading, HostClock};
use taut_explain::trace::Trace;
use taut_link::clock;
use taut_record::{Ended, FORMAT_VERSION};
use taut_report::{TraceDocument, TraceFacts, Trial, html, traced_trace};
use taut_source::trace::{Error, Scope, Tracer};
use trial::{Choice, Running};

use crate::cause_limit::CauseLimit;
use crate::exit::Code;
use crate::{input, output, run};

/// Tell who holds the data of a running program: each wait of its connections, sockets and pipes with the reason, from
/// the kernel's state
///
/// Nothing in the program changes. Small programs at tracepoints of the kernel report writes, segments and
/// acknowledgements with the state of the socket; each nanosecond of a connection is booked to one holder: Nagle's
/// algorithm, cork, pacing, the congestion window, the receive window, the send buffer, a loss, the programs
/// themselves, or a processor that the reader waits for. Of Bluetooth sockets it hears what passes between the kernel
/// and the controller, too (CAP_NET_RAW): credits, the controller's buffers, the connection interval, the air. Ends
/// with the program, after the time given, or with Ctrl-C, and prints then. Needs root, or CAP_BPF and CAP_PERFMON.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("what").required(true).multiple(false),
    after_help = "Examples:
  sudo taut trace --pid 4711 --for 10s     a running program, and what it forks from now on
  sudo taut trace --unit nginx --for 10s   all processes of a systemd unit
  sudo taut trace --port 5432 --full       all connections with this port, of any program
  sudo taut trace -- curl -s http://server/  from a program's start to its end
  sudo taut trace --fail-on nagle_delayed_ack=1% -- ./tests.sh  code 3 if a test waits for that
  sudo taut trace --pid 4711 --try nodelay  would TCP_NODELAY help it? Sets it in turn, and puts it back
  sudo taut trace --pid 4711 --for 5s --html slow.html  a page: who held the data when, with what was seen
  sudo taut trace --pid 4711 --for 5s --perfetto slow.json  the same for ui.perfetto.dev
  sudo taut trace --pid 4711 --for 5s --events slow.events  for later: `taut explain slow.events`
  sudo taut trace -- l2cat connect 00:11:22:33:44:55 133  Bluetooth: who held what the program wrote

Of Unix sockets, UDP and pipes it tells who waits for whom; with --port only TCP is traced.
Not seen: children that a program forked before; io_uring and writes by splice on anything but TCP,
and before Linux 6.3 on TCP. With --json the command's standard output goes to standard error.
docs/trace.md has a worked case; `taut sockets` needs no right and tells less."
)]
pub(crate) struct Args {
    /// The process to trace, with what it forks from now on
    #[arg(long, value_name = "PID", group = "what", value_parser = input::process)]
    pid: Option<i32>,
    /// All connections with this port at either end
    #[arg(long, value_name = "PORT", group = "what", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// The processes of a running systemd unit, with what they fork from now on
    #[arg(long, value_name = "UNIT", group = "what")]
    unit: Option<String>,
    /// Stop after this time; what is traced goes on
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Try an option on its open connections: six spans with it and six without, in turn, within the time of --for
    /// (12s unless given). What is changed is put back; a socket that holds back on purpose is left alone
    #[arg(long = "try", value_name = "OPTION")]
    choice: Option<Choice>,
    /// Print all kept directions with all details
    #[arg(long)]
    full: bool,
    /// Write who held the data at each moment for ui.perfetto.dev: a track for each direction
    #[arg(long, value_name = "FILE", value_parser = output::out_file())]
    perfetto: Option<PathBuf>,
    /// Write the findings as one HTML page that loads nothing, with who held the data at each moment drawn
    #[arg(long, value_name = "FILE", value_parser = output::out_file())]
    html: Option<PathBuf>,
    /// Record what was seen for `taut explain FILE`, up to 1 GiB
    #[arg(long, value_name = "FILE", value_parser = output::out_file())]
    events: Option<PathBuf>,
    /// Directions that --full, --json, --html and --perfetto report, worst first; as many threads and waits
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    top: u16,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Fail with code 3 when a cause is found with more than this share of a direction's time (may be repeated), and
    /// with code 1 when COMMAND fails
    #[arg(long, value_name = "CAUSE=SHARE%", value_parser = limit)]
    fail_on: Vec<CauseLimit>,
    /// A program to start and trace, with its arguments
    #[arg(last = true, value_name = "COMMAND", group = "what")]
    command: Vec<OsString>,
}

/// How long an option is tried unless told otherwise.
const TRIAL_TIME: Duration = Duration::from_secs(12);

/// What is traced, and how its end is seen.
enum Target {
    /// A port, or the processes of a unit: these may come and go.
    Many,
    Process(OwnedFd),
    Child(Child),
}

impl Target {
    fn has_ended(&mut self) -> anyhow::Result<bool> {
        match self {
            Self::Many => Ok(false),
            Self::Process(pidfd) => {
                let mut wait = [PollFd::new(pidfd, PollFlags::IN)];
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                Ok(rustix::io::retry_on_intr(|| rustix::event::poll(&mut wait, Some(&now)))? > 0)
            }
            Self::Child(child) => Ok(child.try_wait()?.is_some()),
        }
    }
}

impl Args {
    /// A process, for a time.
    pub(crate) const fn of_process(pid: i32, time: Duration) -> Self {
        Self {
            pid: Some(pid),
            port: None,
            unit: None,
            time: Some(time),
            choice: None,
            full: false,
            perfetto: None,
            html: None,
            events: None,
            top: 5,
            json: false,
            fail_on: Vec::new(),
            command: Vec::new(),
        }
    }
}

/// What a trace saw.
pub(crate) struct Measured {
    pub(crate) document: TraceDocument,
    /// A command was traced that ended with an error.
    command_failed: bool,
    /// What `--events` names has all of it, if it was asked for.
    is_recorded: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    // Not after the trace: it can't be repeated.
    let outputs = [("--perfetto", &args.perfetto), ("--html", &args.html), ("--events", &args.events)];
    let outputs = outputs.map(|(option, path)| (option, path.as_deref()));
    output::spare(&[], &outputs)?;
    args.events.as_deref().map_or(Ok(()), record::refuse_pipes)?;
    outputs.iter().filter_map(|(_, path)| *path).try_for_each(output::make_sure)?;
    let Measured { document, command_failed, is_recorded } = match measure(&args)? {
        Ok(measured) => measured,
        Err(code) => return Ok(code),
    };
    // It can't be repeated: whatever can't be written, all else is.
    let text = match args.json {
        true => output::printable_json(&document.to_json()),
        false => output::fitted(|| output::printable_lines(&document.to_text(args.full))),
    };
    let mut is_told = output::is_done(output::print(&text)) && is_recorded;
    if let Some(path) = &args.perfetto {
        is_told &= output::is_done(output::write_file(path, &traced_trace::render(&document)));
        if let Some(told) = traced_trace::left_out(&document) {
            anstream::eprintln!("taut: {}: {told}", output::shown(path));
        }
    }
    if let Some(path) = &args.html {
        is_told &= output::is_done(output::write_file(path, &html::render_traced(&document)));
    }
    // All are said.
    let mut missed = false;
    for limit in &args.fail_on {
        missed |= limit.is_missed(&document.facts.traced, document.result.directions, &document.result.causes);
    }
    Ok(match (document.facts.ended, missed) {
        (Ended::Interrupted, _) => Code::Interrupted,
        (_, true) => Code::ThresholdMissed,
        (_, false) if !is_told || command_failed && !args.fail_on.is_empty() => Code::Failed,
        (_, false) => Code::Ok,
    })
}

/// Traces until the end; a code where it can't, after its reason was printed.
pub(crate) fn measure(args: &Args) -> anyhow::Result<Result<Measured, Code>> {
    let found = args.pid.map(process).transpose();
    let found = found.and_then(|pid| Ok((pid, args.unit.as_deref().map(unit::processes).transpose()?)));
    let (pid, unit) = match found {
        Ok(found) => found,
        Err(text) => {
            anstream::eprintln!("taut: {text}");
            return Ok(Err(Code::Usage));
        }
    };
    let named_pids: Vec<i32> = pid.iter().map(|(pid, _)| *pid).chain(unit.iter().flatten().copied()).collect();
    let interrupt = match args.choice {
        Some(_) => run::interrupt_on_signals_patiently()?,
        None => run::interrupt_on_signals()?,
    };
    let mut tracer = match Tracer::start(args.port.map_or(Scope::Processes, Scope::Port)) {
        Ok(tracer) => tracer,
        Err(error) => return Ok(Err(refused(&error))),
    };
    let mut remarks = Vec::new();
    let is_by_process = args.port.is_none();
    for &pid in &named_pids {
        tracer.follow(pid)?;
        tracer.find_sockets(pid);
    }
    let (mut target, what) = match (pid, &args.unit, args.port) {
        (Some((pid, pidfd)), ..) => (Target::Process(pidfd), format!("process {}", named(pid))),
        (_, Some(unit), _) => {
            let processes = if named_pids.len() == 1 { "process" } else { "processes" };
            (Target::Many, format!("unit {}, {} {processes}", output::printable(unit), named_pids.len()))
        }
        (_, _, Some(port)) => (Target::Many, format!("port {port}")),
        (None, None, None) => {
            let child = start(&args.command, args.json, &mut tracer)?;
            let name = args.command.first().map(|name| output::printable(&name.to_string_lossy())).unwrap_or_default();
            let what = format!("{name} ({})", child.id());
            (Target::Child(child), what)
        }
    };
    if args.command.is_empty() {
        anstream::eprintln!("taut: tracing {what}; Ctrl-C ends it");
    }
    let trace = Trace::new(args.top.into());
    let mut trace = match (&args.perfetto, &args.html) {
        (Some(_), _) => trace.with_spans(output::SPANS),
        (None, Some(_)) => trace.with_spans(output::PAGE_SPANS),
        (None, None) => trace,
    };
    let mut recording = args.events.as_deref().map(Recording::start).transpose()?;
    let mut is_recorded = true;
    let mut names = Names::default();
    let time = args.time.or_else(|| args.choice.map(|_| TRIAL_TIME));
    let end = time.map(|time| clock::now() + time);
    let mut trial = match (args.choice, time) {
        (Some(choice), Some(time)) => Some(Running::start(choice, args.port, time, clock::now())?),
        _ => None,
    };
    if args.choice.is_some() {
        anstream::eprintln!("taut: sets TCP_NODELAY on its connections every now and then, and puts it back");
    }
    let mut has_ended = false;
    let mut live = Live::start(&what, !args.command.is_empty(), clock::now());
    let begun = read_clock();
    loop {
        // A trial's last look may come late.
        let is_over = trial.as_ref().map_or_else(|| end.is_some_and(|end| clock::now() >= end), Running::is_over);
        if has_ended || is_over || interrupt.is_set() {
            break;
        }
        // It may end while the ring is read: what it did last is read after that.
        has_ended = target.has_ended()?;
        let pause = tracer.read(&mut Both { trace: &mut trace, recording: recording.as_mut() });
        let so_far = || {
            let remarks = unseen(&tracer, is_by_process);
            facts(&tracer, Ended::Interrupted, &what, clock_since(begun), remarks, None)
        };
        if recording.as_mut().is_some_and(|recording| !recording.tick(clock::now(), so_far)) {
            (recording, is_recorded) = (None, false);
        }
        names.learn(&mut tracer, clock::now());
        if let Some(live) = &mut live {
            live.go_on(clock::now(), &trace, &tracer, &names);
        }
        let mut next = clock::now() + pause;
        if let Some(trial) = trial.as_mut() {
            let processes = names.processes().chain(named_pids.iter().copied());
            trial.go_on(clock::now(), &trace, &processes.collect())?;
            next = if trial.is_over() { clock::now() } else { next.min(trial.due()) };
        } else if let Some(end) = end {
            next = next.min(end);
        }
        if !has_ended {
            clock::sleep_until(next);
        }
    }
    drop(live);
    let trial = trial.map(|trial| trial.finish());
    let stopped = clock::now();
    // A trace without an end of its own is complete when its user ends it.
    let is_partial = interrupt.is_set() && !has_ended && (end.is_some() || !args.command.is_empty());
    let left = if has_ended { left::remark(&tracer) } else { None };
    tracer.stop(&mut Both { trace: &mut trace, recording: recording.as_mut() });
    names.learn(&mut tracer, stopped);
    let waited = unread::remarks(&tracer);
    let mut command_failed = false;
    if let Target::Child(child) = &mut target {
        match child.try_wait()? {
            Some(status) if !status.success() => {
                command_failed = true;
                remarks.push(format!("The command ended with {status}."));
            }
            Some(_) => {}
            None => remarks.push("The command goes on.".to_owned()),
        }
    }
    remarks.extend(left);
    remarks.extend(waited);
    remarks.extend(unseen(&tracer, is_by_process));
    let mut result = trace.finish(stopped);
    let program = |pid: u32| names.of(pid);
    result.name_programs(|thread| tracer.process_of(thread).map(program));
    // Of a port both ends are traced.
    remarks.extend(if is_by_process { peer::remark(&result.worst, &tracer) } else { None });
    let ended = if is_partial { Ended::Interrupted } else { Ended::Complete };
    let facts = facts(&tracer, ended, &what, clock_since(begun), remarks, trial);
    if let Some(recording) = recording {
        let programs = tracer.threads().map(|(thread, pid)| (thread, program(pid)));
        is_recorded = output::is_done(recording.finish(&facts, programs, stopped));
    }
    Ok(Ok(Measured { document: TraceDocument { facts, result }, command_failed, is_recorded }))
}

/// All that is told of a trace but its result.
fn facts(
    tracer: &Tracer,
    ended: Ended,
    traced: &str,
    clock: HostClock,
    remarks: Vec<String>,
    trial: Option<Trial>,
) -> TraceFacts {
    TraceFacts {
        format_version: FORMAT_VERSION,
        command: "trace".to_owned(),
        command_line: run::command_line(),
        ended,
        traced: traced.to_owned(),
        records: Some(tracer.records()),
        lost_records: Some(tracer.lost()),
        missing_hooks: tracer.missing().iter().map(|&hook| hook.to_owned()).collect(),
        clock: Some(clock),
        remarks,
        trial,
    }
}

/// Where the time of day stands against the clock of the trace.
fn read_clock() -> ClockReading {
    let (at, offset) = (clock::now(), clock::RealtimeOffset::read());
    ClockReading {
        at_ns: at.as_nanos(),
        time_of_day_ahead_ns: offset.ahead_ns(),
        uncertainty_ns: u64::try_from(offset.uncertainty().as_nanos()).unwrap_or(u64::MAX),
    }
}

fn clock_since(begin: ClockReading) -> HostClock {
    HostClock { begin, end: read_clock() }
}

fn limit(text: &str) -> Result<CauseLimit, String> {
    CauseLimit::parse(text, || {
        let [forward, backward] = Direction::BOTH.map(taut_explain::trace::causes);
        let mut names: Vec<&str> = forward.collect();
        names.extend(backward.filter(|name| !names.contains(name)).collect::<Vec<_>>());
        names
    })
}

/// The process of a number, which may be a thread's, and what tells of its end.
fn process(pid: i32) -> Result<(i32, OwnedFd), String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| format!("there is no process {pid}"))?;
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok()).unwrap_or(pid);
    let gone = |_| format!("process {pid} has ended");
    let number = Pid::from_raw(group).ok_or_else(|| format!("there is no process {pid}"))?;
    Ok((group, rustix::process::pidfd_open(number, PidfdFlags::empty()).map_err(gone)?))
}

/// Starts the command such that it is traced from its first call.
fn start(command: &[OsString], is_json: bool, tracer: &mut Tracer) -> anyhow::Result<Child> {
    let (program, arguments) = command.split_first().context("no command")?;
    let mut started = Command::new(program);
    started.args(arguments);
    if is_json {
        let stderr = std::io::stderr().as_fd().try_clone_to_owned()?;
        started.stdout(Stdio::from(stderr));
    }
    // What a traced process forks is traced: for that moment this one is, which has no sockets.
    let own = i32::try_from(std::process::id())?;
    tracer.follow(own)?;
    let child = started.spawn();
    tracer.leave(own);
    let name = program.to_string_lossy();
    child.with_context(|| format!("{name} can't be started"))
}

fn refused(error: &Error) -> Code {
    anstream::eprintln!("taut: nothing can be traced here: {error}");
    if error.is_missing_right() {
        anstream::eprintln!(
            "  Run it as root, or give the program the rights: \
             sudo setcap cap_bpf,cap_perfmon+ep $(command -v taut)\n  \
             Without them, `taut sockets` tells from samples which connections lose time."
        );
        return Code::Missing;
    }
    match error {
        Error::Namespace => {
            anstream::eprintln!(
                "  Run it with the host's numbers (docker run --pid=host; nsenter --target 1 --pid --mount), or trace a \
                 port of this network: --port."
            );
            Code::Missing
        }
        Error::Types(_) | Error::Member(_) | Error::Network(_) | Error::LockedDown | Error::Hook { .. } => {
            Code::Missing
        }
        Error::Bpf(_) => Code::Failed,
    }
}

/// What this kernel or these rights keep from being seen.
fn unseen(tracer: &Tracer, is_by_process: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    if tracer.lost() > 0 {
        remarks.push(format!(
            "{} records found no room in the ring; the time around them is booked as not known. Trace fewer \
             connections at once.",
            tracer.lost()
        ));
    }
    if tracer.was_crowded() {
        let text = "There were more connections or calls at once than the tables in the kernel surely hold; what it may have \
                    dropped is booked as not known. Trace one process or one port.";
        remarks.push(text.to_owned());
    }
    let [records, others] = tracer.left_out();
    if records > 0 {
        remarks.push(format!(
            "The kernel left out {records} runs of programs that an interrupt had come into; the time around them is \
             booked as not known."
        ));
    }
    if others > 0 {
        remarks.push(format!(
            "The kernel left out {others} runs of programs that watch timers and interrupts: what let a write go may \
             be named wrongly as often."
        ));
    }
    if tracer.left_out_others() > 0 {
        remarks.push(format!(
            "{} Unix sockets, sockets of UDP or Bluetooth, or pipes are left out: more than are followed at once.",
            tracer.left_out_others()
        ));
    }
    if is_by_process && !tracer.traces_others() {
        let text =
            "This kernel's types do not tell of Unix sockets, UDP, Bluetooth and pipes as known: only TCP is traced.";
        remarks.push(text.to_owned());
    }
    if is_by_process && tracer.missing().contains(&"sk_data_ready") {
        let text = "What has come over a Unix socket, UDP or Bluetooth when a read begins came at an unknown time (to know it \
                    takes Linux 6.3).";
        remarks.push(text.to_owned());
    }
    if let Some(unnamed) = tracer.bluetooth() {
        remarks.extend(radio::unseen(tracer.radio(), unnamed));
    }
    if !tracer.missing().is_empty() {
        remarks.push(format!("This kernel has no tracepoint {}: less is told.", tracer.missing().join(", ")));
    }
    if tracer.missing().iter().any(|hook| matches!(*hook, "sched_switch" | "sched_waking")) {
        let text = "So a reader that is ready to run and has no processor counts as a program that does not read.";
        remarks.push(text.to_owned());
    }
    if tracer.missing().iter().any(|hook| matches!(*hook, "sock_send_length" | "sock_recv_length")) {
        let text = "So what programs write and read by io_uring is not seen here (it takes Linux 6.3): their writes are \
                    missing above, and what they have read may seem to wait for them.";
        remarks.push(text.to_owned());
    }
    if !tracer.has_timer_names() {
        remarks.push(
            "The kernel hides the addresses of its functions (kernel.kptr_restrict), so timers have no names here."
                .to_owned(),
        );
    }
    remarks
}
