//! `taut explain` of what `taut trace --events` saw of a Bluetooth socket and its link, with a sniffer's capture of the
//! same link: against what the simulator itself knows.

mod support;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::{parse, taut, text};
use taut_air::{AirEvent, CloseReason, Happening, Observer, Purpose, Role, Scenario, Simulation};
use taut_capture::{Flows, HostLinks, Packet, Reader, Recorder};
use taut_event::{
    Channel, ChannelEnd, Closed, Coverage, Direction, Event, Flow, FlowId, FlowKey, Kind, L2cap, LocalKey, LocalKind,
    Sink, SocketState, Stamp, TaskId, VantageId, What,
};
use taut_report::capture::{AirCapture, HostCapture};
use taut_time::{ByteRange, Instant, Layer};

/// Of the traced host, as its clock since boot has the simulation's begin, and the time of day then.
const BOOT: u64 = 5_000_000_000_000;
/// By how much that time of day is ahead of the sniffer's.
const AHEAD: i64 = 1_234_567_000;
const SOCKET: FlowId = FlowId(7);
const THREAD: u32 = 4711;

/// What the simulator knows of the air.
#[derive(Default)]
struct Truth {
    /// Times at which an event was closed by the sender's limits, each with the begin of the next one.
    closed_early_ns: u64,
    closing: Option<u64>,
    repeats: u64,
    data_pdus: u64,
}

struct All {
    truth: Truth,
    sender: Role,
    air: AirCapture<Vec<u8>>,
    host: HostCapture<Vec<u8>>,
}

impl Observer for All {
    fn event(&mut self, event: &AirEvent<'_>) {
        self.air.event(event);
        self.host.event(event);
        let (at, truth) = (event.at.as_nanos(), &mut self.truth);
        match event.what {
            Happening::EventBegins { .. } => {
                truth.closed_early_ns += truth.closing.take().map_or(0, |from| at - from);
            }
            Happening::EventEnds { reason, .. } => {
                truth.closing = (reason == CloseReason::PacketLimit).then_some(at);
            }
            Happening::Pdu { from, bytes, retransmission, purpose, .. }
                if purpose != Purpose::Advertising && from == self.sender && bytes[1] > 0 && bytes[0] & 3 != 3 =>
            {
                truth.repeats += u64::from(retransmission);
                truth.data_pdus += 1;
            }
            _ => {}
        }
    }
}

/// Hands on what a trace of the sender's program would have: the channels and links of its host, and a socket in a
/// write that goes on as long as the channel is open.
struct Traced<'a> {
    to: &'a mut Recorder<Vec<u8>>,
    is_open: bool,
}

impl Traced<'_> {
    fn of_socket(&mut self, at: Instant, what: What, written: u64, who: bool) {
        self.to.event(&Event {
            at,
            seen_by: VantageId(0),
            flow: SOCKET,
            direction: Direction::Forward,
            layer: Layer::Socket,
            what,
            bytes: ByteRange::new(0, written),
            who: who.then_some(TaskId(THREAD)),
            place: 0,
        });
    }

    fn opens(&mut self, at: Instant, key: taut_event::ChannelKey) {
        let Channel::CreditBased(psm) = key.channel else { return };
        self.is_open = true;
        let local = LocalKey { kind: LocalKind::L2cap, inode: 99, ends: None };
        let coverage = Coverage::of(&[Kind::Writes, Kind::Queues]);
        self.to.flow(SOCKET, &Flow { key: FlowKey::Local(local), from_start: false, coverage });
        self.of_socket(at, What::State(SocketState::default()), 0, true);
        // More than the link carries, and one more.
        self.of_socket(at, What::Reached(Stamp::WriteBegin), 0, true);
        self.of_socket(at, What::Reached(Stamp::WriteEnd), 10_000_000, true);
        self.of_socket(at, What::Reached(Stamp::WriteBegin), 0, true);
        let (own, peer) = ([9; 6], key.peer.unwrap_or_default());
        let (handle, number) = (key.handle, psm);
        let end =
            ChannelEnd { adapter: Some(key.adapter), handle, own, peer, number, cids: [64, 64], is_nonblocking: false };
        self.of_socket(at, What::IsEnd(end), 0, false);
    }
}

/// Notes the key of each channel, to open the socket once it is open.
struct Both<'a, 't> {
    traced: &'a mut Traced<'t>,
    keys: &'a mut Vec<(u32, taut_event::ChannelKey)>,
}

impl Sink for Both<'_, '_> {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        if let FlowKey::L2cap(key) = flow.key {
            self.keys.push((id.0, key));
        }
        self.traced.to.flow(id, flow);
    }

    fn event(&mut self, event: &Event) {
        self.traced.to.event(event);
        if matches!(event.what, What::L2cap(L2cap::Opened { .. })) && !self.traced.is_open {
            let key = self.keys.iter().rfind(|(id, _)| *id == event.flow.0).map(|(_, key)| *key);
            key.into_iter().for_each(|key| self.traced.opens(event.at, key));
        }
    }

    fn close(&mut self, id: FlowId, why: Closed) {
        self.traced.to.close(id, why);
    }
}

/// The files of one run: what the trace saw, the sender's log, and the sniffer's capture.
struct Run {
    truth: Truth,
    directory: tempfile::TempDir,
}

impl Run {
    fn new(settings: &[(&str, &str)]) -> Self {
        let mut scenario = Scenario::default();
        settings.iter().for_each(|(name, value)| scenario.set(name, value).unwrap());
        let sender = Role::Peripheral;
        let host = HostCapture::begin(Vec::new(), sender).unwrap();
        let mut all = All { truth: Truth::default(), sender, air: AirCapture::begin(Vec::new()).unwrap(), host };
        Simulation::new(&scenario, 3).unwrap().run(1_500_000_000, &mut all);
        let (air, log) = (all.air.finish().unwrap(), all.host.finish().unwrap());
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("air.pcapng"), &air).unwrap();
        std::fs::write(directory.path().join("host.btsnoop"), &log).unwrap();
        std::fs::write(directory.path().join("slow.events"), events(&log, false)).unwrap();
        std::fs::write(directory.path().join("old.events"), events(&log, true)).unwrap();
        Self { truth: all.truth, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn explain(&self, files: &[&str], options: &[&str]) -> std::process::Output {
        let files = files.iter().map(|name| self.path(name));
        taut().arg("explain").args(options).args(files).output().unwrap()
    }
}

/// What `taut trace --events` would have of the host with this log; an older version had no links.
fn events(log: &[u8], is_old: bool) -> Vec<u8> {
    let mut recorder = Recorder::new(Vec::new(), 1 << 30);
    let mut traced = Traced { to: &mut recorder, is_open: false };
    let mut keys = Vec::new();
    let (mut flows, mut links) = (Flows::new(1 << 15), HostLinks::new(3 << 14));
    let mut reader = Reader::new(log).unwrap();
    let (mut last, mut first) = (0, None);
    while let Some(packet) = reader.next_packet().unwrap() {
        let at = packet.at.unwrap().as_nanos();
        last = BOOT + at - *first.get_or_insert(at);
        let packet = Packet { at: Some(Instant::from_nanos(last)), ..packet };
        let mut both = Both { traced: &mut traced, keys: &mut keys };
        flows.packet(&packet, VantageId(0), &mut both);
        if !is_old {
            links.packet(&packet, VantageId(0), &mut both);
        }
    }
    flows.finish(traced.to);
    let end = Instant::from_nanos(last);
    let ahead = first.unwrap_or(0).cast_signed() - BOOT.cast_signed() + AHEAD;
    let reading = |at: u64| json!({"at_ns": at, "time_of_day_ahead_ns": ahead, "uncertainty_ns": 200});
    let facts = json!({
        "format_version": 2, "command": "trace", "command_line": "taut trace --pid 4711", "ended": {"how": "complete"},
        "traced": "process l2cat (4711)", "records": 200, "lost_records": 0, "missing_hooks": [], "remarks": [],
        "clock": {"begin": reading(BOOT), "end": reading(last)},
    });
    recorder.facts(&facts.to_string());
    recorder.name(THREAD, "l2cat (4711)");
    recorder.finish(end).unwrap()
}

fn between<'a>(document: &'a Value, reference: &str, other: &str) -> &'a Value {
    let is = |joined: &&Value| {
        let ends = |name: &str, file: &str| joined[name].as_str().is_some_and(|path| path.ends_with(file));
        ends("reference", reference) && ends("other", other)
    };
    document["joined"].as_array().unwrap().iter().find(is).unwrap_or_else(|| panic!("{document:#}"))
}

fn ns(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Over all holders, what the air did.
fn all(program: &Value, name: &str) -> u64 {
    program["rows"].as_array().unwrap().iter().map(|row| ns(&row["air"][name])).sum()
}

/// Two packets an event, which the controller closes early; some are sent again.
const SET: [(&str, &str); 5] = [
    ("ci", "30ms"),
    ("packets_per_event", "2"),
    ("per", "0.05"),
    ("receiver.credits", "window(10)"),
    ("length", "251"),
];

#[test]
fn a_traced_program_its_kernel_and_the_air_have_one_breakdown() {
    let run = Run::new(&SET);
    let output = run.explain(&["slow.events", "air.pcapng"], &["--join", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = parse(&output);
    let joined = between(&document, "air.pcapng", "slow.events");
    // The error holds the true offset.
    let (offset, error) = (joined["clock"]["offset_ns"].as_i64().unwrap(), ns(&joined["clock"]["uncertainty_ns"]));
    assert!((offset - AHEAD).unsigned_abs() <= error + 1000 && error < 30_000_000, "{offset} {error}");
    let programs = joined["bluetooth"]["programs"].as_array().unwrap();
    let [program] = &programs[..] else { panic!("{joined:#}") };
    assert_eq!(program["program"], "l2cat (4711)", "{program:#}");
    assert!(program["to"].as_str().unwrap().contains("PSM"), "{program:#}");
    // The parts add up, row by row and in all.
    let rows = program["rows"].as_array().unwrap();
    for row in rows {
        let parts: u64 = row["air"].as_object().unwrap().values().map(ns).sum();
        assert_eq!(parts, ns(&row["held_ns"]), "{row:#}");
    }
    assert_eq!(rows.iter().map(|row| ns(&row["held_ns"])).sum::<u64>(), ns(&program["held_ns"]), "{program:#}");
    // What the controller did is that of the link's own account, but for data of before the socket, as of signalling.
    let ways = joined["bluetooth"]["ways"].as_array().unwrap();
    let sent = ways.iter().find(|way| way["in_controller"].is_object()).unwrap();
    assert_eq!(ns(&sent["repeats"]), run.truth.repeats, "{sent:#}");
    assert!(run.truth.repeats > 3 && run.truth.data_pdus > 50, "{} {}", run.truth.repeats, run.truth.data_pdus);
    for (part, name) in [
        ("on_air_ns", "on_air_ns"),
        ("repeats_ns", "repeats_ns"),
        ("closed_early_ns", "closed_early_ns"),
        ("waits_for_event_ns", "waits_for_event_ns"),
    ] {
        let (program, link) = (all(program, part), ns(&sent["in_controller"][name]));
        assert!(program <= link + 1 && link - program < 100_000_000, "{part}: {program} of {link}");
    }
    // Most of the closed events are the simulator's own.
    let closed = all(program, "closed_early_ns");
    assert!(closed > run.truth.closed_early_ns / 2 && closed <= run.truth.closed_early_ns + error, "{closed}");
}

#[test]
fn the_text_names_the_program_the_holders_and_what_the_air_did() {
    let run = Run::new(&SET);
    let output = run.explain(&["slow.events", "air.pcapng"], &[]);
    let told = text(&output.stdout);
    let line = |part: &str| told.lines().any(|line| line.contains(part));
    assert!(told.contains("JOINED") && line("event closed early"), "{told}");
    assert!(told.contains("from l2cat (4711)") && told.contains("one timeline"), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 100 || line.contains('/')), "{told}");
}

#[test]
fn with_a_hosts_log_besides_all_three_are_joined() {
    let run = Run::new(&SET);
    let output = run.explain(&["slow.events", "host.btsnoop", "air.pcapng"], &["--join", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = parse(&output);
    // One place, as far as the clocks tell: the kernel's own.
    assert_eq!(between(&document, "host.btsnoop", "slow.events")["is_same_place"], true, "{document:#}");
    let with_air = between(&document, "air.pcapng", "slow.events");
    assert_eq!(with_air["bluetooth"]["programs"].as_array().unwrap().len(), 1, "{with_air:#}");
    assert!(between(&document, "host.btsnoop", "air.pcapng")["bluetooth"].is_object());
}

#[test]
fn a_trace_of_an_older_version_and_another_run_are_not_joined() {
    let run = Run::new(&SET);
    let refused = |files: &[&Path], why: &str| {
        let output = taut().args(["explain", "--join"]).args(files).output().unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.replace('\n', " ").contains(why), "{told}");
    };
    refused(&[&run.path("old.events"), &run.path("air.pcapng")], "as older versions recorded it");
    let other = Run::new(&[("ci", "15ms"), ("receiver.mtu", "90")]);
    let output = taut().args(["explain", "--json"]).args([run.path("slow.events"), other.path("air.pcapng")]).output();
    let document = parse(&output.unwrap());
    let programs = document["joined"].as_array().into_iter().flatten().map(|one| &one["bluetooth"]["programs"]);
    assert_eq!(programs.filter(|all| all.is_array()).count(), 0, "{document:#}");
}
