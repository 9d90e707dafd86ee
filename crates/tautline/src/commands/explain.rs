mod recorded;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use recorded::{Asked, Recording};
use rustix::event::{PollFd, PollFlags, Timespec};
use taut_capture::{Counts, Ending, Flows, Qlog, QlogCounts, Reader, Source};
use taut_event::{Direction, VantageId};
use taut_explain::trace;
use taut_explain::{Engine, causes};
use taut_link::Error;
use taut_measure::Interrupt;
use taut_record::{Ended, FORMAT_VERSION};
use taut_report::{Difference, ExplainDocument, ExplainedFile, ExplainedTrace, explained_trace, html};

use crate::cause_limit::CauseLimit;
use crate::exit::Code;
use crate::held_limit::HeldLimit;
use crate::joining::{Captures, Seen};
use crate::model_file;
use crate::times_limit::TimesLimit;
use crate::{output, run};

/// Tell where the time went in a capture of TCP, UDP or Bluetooth LE, on the air or in a host's log: who held the data,
/// for how long, and what to change
///
/// Reads pcap, pcapng, btsnoop and snoop, and logs of QUIC (qlog 0.3 and 0.4), compressed by gzip or zstd or not,
/// whatever the file is called; - is standard input. Of what `taut trace --events` wrote it tells what the trace told.
/// Of a zip archive, such as a bug report of Android, it reads the log of Bluetooth or the capture in it. Each
/// nanosecond between the first and the last byte of a direction is booked to one holder: the sending program, the
/// peer's turn, Nagle's algorithm, the congestion window, the receive window, a loss, … On Bluetooth LE also credits,
/// controller, connection interval and air. Of UDP it tells turns, questions of DNS that were asked again, and the
/// handshake of QUIC; a qlog of one of its ends has the rest. Of a sniffer's capture of Bluetooth LE (link types 251,
/// 256 and 272) it tells connection events, PDUs sent again, and who ended an event early. Nothing leaves this machine.
/// Several files are explained each by itself, and those that hold packets of the first one are put on its timeline:
/// the offset of their clocks, with its error, by the packets of TCP and UDP that both hold. So are a Bluetooth host's
/// log and a sniffer's capture of its link, and the logs of both hosts. What `taut trace --events` saw is put on the
/// timeline of each capture that has the same connections or the same link of Bluetooth LE, with one breakdown for
/// both: who held the data by the kernel's own state, and what the path or the air did meanwhile.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  taut explain slow.pcapng
  tcpdump -i eth0 -s 128 -w - tcp port 5432 | taut explain -
  taut explain --full --top 10 trace.pcap.gz
  taut explain --diff before.pcap after.pcap
  taut explain --join sender.pcap receiver.pcap
  taut explain --join host.btsnoop sniffer.pcapng
  btmon -w slow.btsnoop ; taut explain slow.btsnoop
  adb bugreport report.zip ; taut explain report.zip
  taut explain client.qlog
  sudo taut trace --pid 4711 --for 10s --events slow.events ; taut explain --full slow.events
  taut explain --join slow.pcapng slow.events
  taut explain slow.btsnoop --model=link.toml ; taut air run link.toml
  taut explain slow.pcapng --html slow.html
  taut explain slow.pcapng --perfetto slow.json
  taut explain trace.pcap --fail-on nagle_delayed_ack=1% --fail-on loss=5%
  taut explain trace.pcap --assert 'held(nagle)<1%' --assert 'longest(peer_turn)<20ms'
  taut explain trace.pcap --assert 'p99(turn)<20ms' --assert 'p50(rtt)<5ms'

A capture taken at the sender tells most. -s 128 keeps the headers, which is all that is looked at.
docs/explain.md has each cause with its evidence and its cure.")]
pub(crate) struct Args {
    /// Captures, or - for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Print all details below the verdict: each detector, the longest stretches with their frames
    #[arg(long)]
    full: bool,
    /// Fail if not all files can be put on the timeline of the first one; without this they are if they can be
    #[arg(long, conflicts_with = "diff")]
    join: bool,
    /// Print what changed from the first of two captures to the second
    #[arg(long)]
    diff: bool,
    /// Write who held the data at each moment for ui.perfetto.dev: a track for each direction
    #[arg(long, value_name = "FILE", value_parser = output::out_file())]
    perfetto: Option<PathBuf>,
    /// Write the verdicts as one HTML page that loads nothing, with who held the data at each moment drawn
    #[arg(long, value_name = "FILE", value_parser = output::out_file())]
    html: Option<PathBuf>,
    /// Of a Bluetooth host's log: what a simulated link that shows what the log shows would carry without each of its
    /// limits; its scenario is written to FILE, for taut air
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, value_parser = output::out_file())]
    model: Option<Option<PathBuf>>,
    /// Directions that --full, --json, --html and --perfetto report, worst first; of a trace as many threads and waits
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    top: u16,
    /// Fail with code 3 when a cause is found with more than this share of a direction's time (may be repeated)
    #[arg(long, value_name = "CAUSE=SHARE%", value_parser = limit)]
    fail_on: Vec<CauseLimit>,
    /// Fail with code 3 unless it holds in each direction: held(nagle)<1%, held(receive_window)<50ms,
    /// longest(peer_turn)<20ms; p50, p90, p99, p999 or max of turn (the peer's time for an answer), rtt, completion:
    /// p99(turn)<20ms (may be repeated)
    #[arg(long, value_name = "LIMIT", value_parser = assertion)]
    assert: Vec<Assertion>,
}

impl Args {
    /// How many stretches are drawn, if any.
    fn spans(&self) -> Option<usize> {
        match (&self.perfetto, &self.html) {
            (Some(_), _) => Some(output::SPANS),
            (None, Some(_)) => Some(output::PAGE_SPANS),
            (None, None) => None,
        }
    }
}

/// What has to hold.
#[derive(Clone, Debug)]
enum Assertion {
    Held(HeldLimit),
    Times(TimesLimit),
}

fn assertion(text: &str) -> Result<Assertion, String> {
    if TimesLimit::is_meant(text) {
        return TimesLimit::parse(text).map(Assertion::Times);
    }
    HeldLimit::parse(text).map(Assertion::Held)
}

fn limit(text: &str) -> Result<CauseLimit, String> {
    CauseLimit::parse(text, || {
        let mut all: Vec<&str> = causes().map(|(cause, _)| cause).collect();
        let more = of_traces().filter(|cause| !all.contains(cause)).collect::<Vec<_>>();
        all.extend(more);
        all
    })
}

/// Causes that a recorded trace tells of.
fn of_traces() -> impl Iterator<Item = &'static str> {
    Direction::BOTH.into_iter().flat_map(trace::causes)
}

/// So many connections are followed at once.
const CONNECTIONS: usize = 16_384;
/// Files smaller than this are read before a bar could be seen.
const WITH_BAR: u64 = 64 << 20;

pub(crate) fn run(args: Args) -> anyhow::Result<Code> {
    if args.diff && args.files.len() != 2 {
        let given = args.files.len();
        let why = format!("--diff takes two captures, the one before and the one after; {given} given");
        return Err(Error::Input(why).into());
    }
    if args.join && args.files.len() < 2 {
        let why = format!("--join takes two captures or more of one path; {} given", args.files.len());
        return Err(Error::Input(why).into());
    }
    let inputs: Vec<&Path> = args.files.iter().map(PathBuf::as_path).collect();
    let model = args.model.as_ref().and_then(Option::as_deref);
    let outputs = [("--perfetto", args.perfetto.as_deref()), ("--html", args.html.as_deref()), ("--model", model)];
    output::spare(&inputs, &outputs)?;
    let interrupt = run::interrupt_on_signals()?;
    let (mut files, mut traces, mut joined) = (Vec::new(), Vec::new(), Vec::new());
    // They are held against all captures, wherever those stand.
    let mut recordings = Vec::new();
    let mut captures = Captures::new(args.files.len() > 1 && args.files.iter().any(|file| may_be_trace(file)));
    for file in &args.files {
        let mut sightings = (args.files.len() > 1 && !args.diff).then(Seen::default);
        let explained = explain(file, &args, &interrupt, sightings.as_mut())?;
        let mut explained = match explained {
            Explained::Capture(explained) => *explained,
            Explained::Trace(recording) => {
                recordings.push(*recording);
                continue;
            }
        };
        if interrupt.is_set() {
            files.push(explained);
            break;
        }
        if args.model.is_some() {
            model_file::refuse_others(&explained)?;
        }
        if let Some(sightings) = sightings {
            joined.extend(captures.take(&mut explained, sightings, args.join)?);
        }
        files.push(explained);
    }
    if args.join && files.is_empty() && !interrupt.is_set() {
        let why =
            "--join: what a trace saw is joined with a capture of its connections, and none of these files is one";
        return Err(Error::Input(why.to_owned()).into());
    }
    let mut joined_traces = Vec::new();
    for recording in recordings {
        let asked = Asked { top: args.top.into(), spans: args.spans(), must_be_joined: args.join };
        let remark = |ending: &Ending| remark_on_ending(ending, &interrupt);
        let (traced, on) = recording.explain(asked, &interrupt, (captures.seen(), &files), remark)?;
        traces.push(traced);
        joined.extend(on.links);
        joined_traces.extend(on.traces);
    }
    let ended = if interrupt.is_set() { Ended::Interrupted } else { Ended::Complete };
    let difference = match &files[..] {
        [before, after] if args.diff => Some(Difference::between(before, after)),
        _ => None,
    };
    let document = ExplainDocument {
        format_version: FORMAT_VERSION,
        command: "explain".to_owned(),
        command_line: run::command_line(),
        ended,
        files,
        traces,
        joined,
        joined_traces,
        difference,
    };
    // A pipe can't be read again: whatever can't be written, all else is.
    let text = match args.json {
        true => output::printable_json(&document.to_json()),
        false => output::fitted(|| output::printable_lines(&document.to_text(args.full))),
    };
    let mut is_told = output::is_done(output::print(&text));
    if let Some(path) = &args.perfetto {
        is_told &= output::is_done(output::write_file(path, &explained_trace::render(&document)));
        if let Some(told) = explained_trace::left_out(&document) {
            anstream::eprintln!("taut: {}: {told}", output::shown(path));
        }
    }
    if let Some(path) = &args.html {
        is_told &= output::is_done(output::write_file(path, &html::render_explained(&document)));
    }
    if let Some(to) = args.model.as_ref().filter(|_| !interrupt.is_set()) {
        is_told &= model_file::write(&document.files, to.as_deref());
    }
    // All are said.
    let mut missed = false;
    for limit in &args.fail_on {
        for ExplainedFile { file, explanation, .. } in &document.files {
            missed |= limit.is_missed(file, explanation.directions, &explanation.causes);
        }
        for ExplainedTrace { file, trace, .. } in &document.traces {
            missed |= limit.is_missed(file, trace.result.directions, &trace.result.causes);
            if of_traces().all(|cause| cause != limit.cause) {
                anstream::eprintln!("taut: {file}: a trace does not tell of {}", limit.cause);
            }
        }
    }
    for limit in &args.assert {
        for ExplainedFile { file, explanation, .. } in &document.files {
            missed |= match limit {
                Assertion::Held(limit) => limit.is_missed(file, explanation),
                Assertion::Times(limit) => limit.is_missed(file, explanation),
            };
        }
    }
    Ok(match () {
        () if interrupt.is_set() => Code::Interrupted,
        () if missed => Code::ThresholdMissed,
        () if !is_told => Code::Failed,
        () => Code::Ok,
    })
}

/// What one file came to; what a trace saw is not read yet.
enum Explained {
    Capture(Box<ExplainedFile>),
    Trace(Box<Recording>),
}

/// The sightings are to be joined with those of another file.
fn explain(
    path: &Path,
    args: &Args,
    interrupt: &Interrupt,
    mut sightings: Option<&mut Seen>,
) -> anyhow::Result<Explained> {
    let name = output::shown(path);
    let spans = args.spans().or_else(|| sightings.is_some().then_some(output::SPANS));
    let engine = Engine::new(args.top.into());
    let engine = if args.model.is_some() { engine.with_models() } else { engine };
    let mut engine = match spans {
        Some(spans) => engine.with_spans(spans),
        None => engine,
    };
    let (input, length) = open(path).map_err(|error| Error::Input(format!("{name} can't be opened: {error}")))?;
    let bar = progress(length, &name);
    let done = Arc::new(AtomicU64::new(0));
    let source = Stoppable { from: input, interrupt: interrupt.clone(), done: Arc::clone(&done) };
    let source = if length.is_some() { Source::of_file(source) } else { Source::new(source) };
    let mut reader = match source.map_err(|error| named(error, &name))? {
        Source::Packets(reader) => reader,
        Source::Qlog(log) => {
            let tick = || bar.set_position(done.load(Ordering::Relaxed));
            let explained = explain_log(name, log, engine, interrupt, tick)?;
            return Ok(Explained::Capture(Box::new(explained)));
        }
        Source::Recorded(recorded) => {
            if let Some(option) = not_for_traces(args) {
                return Err(Error::Input(format!("{name} is what a trace saw; {option} is for captures")).into());
            }
            return Ok(Explained::Trace(Box::new(Recording { name, from: recorded, bar, done })));
        }
    };
    let mut flows = Flows::new(CONNECTIONS);
    loop {
        match reader.next_packet() {
            Ok(Some(packet)) => match sightings.as_deref_mut() {
                Some(sightings) => sightings.packet(packet, &mut flows, &mut engine),
                None => flows.packet(&packet, VantageId(0), &mut engine),
            },
            Ok(None) => break,
            Err(error) => return Err(named(error, &name)),
        }
        if flows.counts().packets.is_multiple_of(1 << 14) {
            bar.set_position(done.load(Ordering::Relaxed));
        }
    }
    flows.finish(&mut engine);
    bar.finish_and_clear();
    let counts = *flows.counts();
    if let Some(sightings) = sightings {
        sightings.finish(reader.resolution().as_nanos() as u64);
    }
    let explanation = engine.finish();
    Ok(Explained::Capture(Box::new(ExplainedFile {
        packets: counts.packets,
        tcp_packets: counts.tcp,
        udp_packets: counts.udp,
        hci_packets: counts.hci,
        air_packets: counts.air,
        bytes: reader.position(),
        remarks: remarks(&counts, explanation.clock_steps, &reader, interrupt),
        explanation,
        file: reader.member().map_or_else(|| name.clone(), |member| format!("{name} ({})", member.name)),
    })))
}

/// Whether a file may be what a trace saw. What can be read only once is not looked at.
fn may_be_trace(path: &Path) -> bool {
    let is_file = std::fs::metadata(path).is_ok_and(|about| about.is_file());
    !is_file || File::open(path).is_ok_and(|file| matches!(Source::of_file(file), Ok(Source::Recorded(_))))
}

/// An option that was given and has no meaning for recorded traces.
fn not_for_traces(args: &Args) -> Option<&'static str> {
    let given = [(args.diff, "--diff"), (!args.assert.is_empty(), "--assert"), (args.model.is_some(), "--model")];
    given.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
}

/// The same of a log of QUIC.
fn explain_log(
    name: String,
    log: Qlog<'_>,
    mut engine: Engine,
    interrupt: &Interrupt,
    mut tick: impl FnMut(),
) -> anyhow::Result<ExplainedFile> {
    let read = log.read(VantageId(0), &mut engine, &mut tick);
    let (counts, ending) = read.map_err(|error| named(error, &name))?;
    let explanation = engine.finish();
    Ok(ExplainedFile {
        packets: counts.packets,
        tcp_packets: 0,
        udp_packets: 0,
        hci_packets: 0,
        air_packets: 0,
        bytes: counts.bytes,
        remarks: remarks_on_log(&counts, &ending, interrupt),
        explanation,
        file: name,
    })
}

/// What of a log of QUIC could not be read or followed.
fn remarks_on_log(counts: &QlogCounts, ending: &Ending, interrupt: &Interrupt) -> Vec<String> {
    let told = [
        (counts.reordered, "events stand behind later ones, and were put in the order of time."),
        (counts.unreadable, "events have no time or no name that can be read, and were left out."),
        (counts.damaged, "records of the log are no JSON or longer than 1 MiB, and were left out."),
        (counts.beyond, "events are of connections beyond the first 1024, and were left out."),
    ];
    let told = told.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    remark_on_ending(ending, interrupt).into_iter().chain(told).collect()
}

fn remark_on_ending(ending: &Ending, interrupt: &Interrupt) -> Option<String> {
    match ending {
        _ if interrupt.is_set() => Some("Reading was interrupted.".to_owned()),
        Ending::Complete => None,
        Ending::Truncated { at } => {
            Some(format!("The file is cut off in the record at byte {at}; all before it was read."))
        }
        Ending::Damaged { at, why } => {
            Some(format!("The file is damaged at byte {at} ({why}); all before it was read."))
        }
    }
}

fn named(error: taut_capture::Error, name: &str) -> anyhow::Error {
    anyhow::Error::new(error).context(name.to_owned())
}

/// What of the file could not be read or followed.
fn remarks(counts: &Counts, clock_steps: u64, reader: &Reader<'_>, interrupt: &Interrupt) -> Vec<String> {
    let mut remarks: Vec<String> = remark_on_ending(reader.ending(), interrupt).into_iter().collect();
    if let Some(member) = reader.member().filter(|member| member.other_count > 0) {
        let (count, others) = (member.other_count, member.others.join(", "));
        let more = if count > member.others.len() as u64 { ", …" } else { "" };
        remarks.push(format!("{count} other captures in the archive were not read: {others}{more}. Unpack them."));
    }
    let lost = reader.lost_by_capture();
    let unknown_link = unknown_link(counts.first_unknown_link.unwrap_or_default());
    let told = [
        (lost, "packets were lost by the capturing program, as it says itself."),
        (
            clock_steps,
            "× the clock of the capture was set, or stood far ahead in a few packets; no time is booked for \
             that, and times around it may be wrong.",
        ),
        (counts.unknown_link, &unknown_link),
        (
            // Beside connections, other traffic is no wonder.
            if counts.tcp + counts.udp == 0 { counts.not_tcp } else { 0 },
            "packets are of other protocols than TCP and UDP, or encrypted (IPsec).",
        ),
        (
            counts.tunnelled,
            "packets came in tunnels (GRE, VXLAN, Geneve, GTP, IP in IP): what is told is of the connections in them.",
        ),
        (counts.tunnel_copies, "segments came in a tunnel and without it: these copies are left out."),
        (counts.fragments, "packets are later fragments of datagrams; what they carry is not seen."),
        (
            counts.cut,
            if counts.tunnelled == 0 {
                "packets are cut off within their headers; capture at least 128 bytes of each."
            } else {
                "packets are cut off before the end of their TCP or UDP header; in a tunnel, capture at least 256 \
                 bytes of each."
            },
        ),
        (
            counts.openings_cut,
            "openings of connections are cut off within their options, so the scale of their windows is not known; \
             capture at least 128 bytes of each packet.",
        ),
        (
            counts.to_itself,
            "packets are of connections that have the same address and port at both ends: both directions look alike, \
             so who held their data can't be told.",
        ),
        (counts.malformed, "packets have a length in a header that can't be."),
        (
            counts.hci_cut,
            "events and signalling packets are not whole; what they say of links, channels and credits is not known.",
        ),
        (
            counts.air_stray,
            "PDUs on the air are of no link that is followed: their CRC is wrong, or their header can't be.",
        ),
        (counts.classic, "PDUs of BR/EDR are on fixed channels, which are not followed."),
        (counts.without_time, "packets have no time, and were left out."),
        (
            counts.evicted,
            "connections or flows were booked before their end: too many were open at once. One that went on after \
             that has a breakdown for each part.",
        ),
    ];
    remarks.extend(told.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    if reader.resolution().as_micros() > 100 {
        remarks.push(format!(
            "The clock of the capture has steps of {} µs; shorter waits can't be told.",
            reader.resolution().as_micros()
        ));
    }
    remarks
}

/// What their packets are, of whom captures are met most.
fn unknown_link(number: u16) -> String {
    let name = match number {
        105 | 119 | 127 | 163 | 192 => ": Wi-Fi in monitor mode, mostly encrypted; capture on the interface itself",
        187 => ": Bluetooth without the direction of packets",
        189 | 220 | 249 | 266 => ": USB",
        195 | 215 | 230 | 283 => ": IEEE 802.15.4",
        227 => ": CAN",
        _ => "",
    };
    format!("packets are of a link type that is not read ({number}{name}).")
}

fn open(path: &Path) -> io::Result<(OwnedFd, Option<u64>)> {
    let file = match path == Path::new("-") {
        true => rustix::stdio::stdin().try_clone_to_owned()?.into(),
        false => File::open(path)?,
    };
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    Ok((file.into(), metadata.is_file().then_some(metadata.len())))
}

/// Input that ends when the user wants to stop, even while nothing comes.
struct Stoppable {
    from: OwnedFd,
    interrupt: Interrupt,
    done: Arc<AtomicU64>,
}

impl Read for Stoppable {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        loop {
            if self.interrupt.is_set() {
                return Ok(0);
            }
            let mut fds = [PollFd::from_borrowed_fd(self.from.as_fd(), PollFlags::IN)];
            match rustix::event::poll(&mut fds, Some(&LOOK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => {
                    let read = rustix::io::read(&self.from, &mut *to)?;
                    self.done.fetch_add(read as u64, Ordering::Relaxed);
                    return Ok(read);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Seek for Stoppable {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => rustix::fs::SeekFrom::Start(at),
            SeekFrom::End(from) => rustix::fs::SeekFrom::End(from),
            SeekFrom::Current(from) => rustix::fs::SeekFrom::Current(from),
        };
        Ok(rustix::fs::seek(&self.from, to)?)
    }
}

fn progress(length: Option<u64>, name: &str) -> ProgressBar {
    let Some(length) = length.filter(|&length| length >= WITH_BAR && run::has_bars()) else {
        return ProgressBar::hidden();
    };
    let bar = ProgressBar::new(length);
    // A constant template: it can't be wrong.
    if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {percent:>3} %, {bytes_per_sec}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(name.to_owned());
    bar
}
