//! `taut pace` traced from outside: of each message the trace has the times that pace's own timestamps have, and both
//! name the same cause. Where the kernel does not let this user trace, these are skipped.

mod support;
mod trace_support;

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;
use support::{Serve, causes, parse, run, skip, taut, text};
use taut_capture::{Ending, Source};
use taut_event::{Address, Closed, Direction, Event, Flow, FlowId, FlowKey, Sink, Stamp, What as Happened};
use taut_record::Observed;
use taut_time::{ByteRange, Framing, Host, Instant, Layer, MessageTimes, Timeline, What};
use trace_support::{adds_up, found, has_gap, may_trace, verdict};

const CAUSE: &str = "nagle_delayed_ack";
/// Of one message: no other write of a run is as long.
const BYTES: u64 = 131;
/// How far the two may be apart, of 99 in 100 messages.
const MOST_NS: u64 = 50_000;
/// In virtual time no processor is taken from a machine between two stamps.
const VIRTUAL_TIME: &str = "TAUT_VIRTUAL_TIME";

/// A connection of a trace: its own end, the other one, and what its bytes have reached on their way out.
struct Sent {
    ends: [String; 2],
    reached: Vec<(Stamp, Instant, ByteRange)>,
}

impl Sent {
    fn messages(&self) -> impl Iterator<Item = ByteRange> + '_ {
        let written = self.reached.iter().filter(|(stamp, ..)| *stamp == Stamp::WriteEnd);
        written.map(|(.., bytes)| *bytes).filter(|bytes| bytes.len() == BYTES)
    }
}

/// All connections of a recorded trace.
#[derive(Default)]
struct Connections {
    open: HashMap<u32, usize>,
    all: Vec<Sent>,
}

impl Sink for Connections {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        let FlowKey::Tcp(own, peer) = flow.key else { return };
        self.open.insert(id.0, self.all.len());
        let name = |end: Address| SocketAddr::new(end.ip, end.port).to_string();
        self.all.push(Sent { ends: [own, peer].map(name), reached: Vec::new() });
    }

    fn event(&mut self, event: &Event) {
        let Some(&index) = self.open.get(&event.flow.0) else { return };
        if let (Direction::Forward, Happened::Reached(stamp)) = (event.direction, event.what) {
            self.all[index].reached.push((stamp, event.at, event.bytes));
        }
    }

    fn close(&mut self, id: FlowId, _why: Closed) {
        self.open.remove(&id.0);
    }
}

/// What a trace recorded of the connection over which so many messages went. There are kernels that do not let a trace
/// see all of them.
fn sent(events: &Path, messages: usize) -> Sent {
    let source = Source::of_file(File::open(events).unwrap()).unwrap();
    let Source::Recorded(recorded) = source else { panic!("{} is no recorded trace", events.display()) };
    let mut connections = Connections::default();
    assert_eq!(recorded.read(&mut connections, || {}).unwrap().ending, Ending::Complete);
    let counts: Vec<usize> = connections.all.iter().map(|sent| sent.messages().count()).collect();
    let mut fit = connections.all.into_iter().filter(|sent| sent.messages().count() * 10 > messages * 9);
    let (Some(sent), None) = (fit.next(), fit.next()) else { panic!("{messages} messages in {counts:?}") };
    let [first, last] = [sent.messages().next(), sent.messages().last()].map(Option::unwrap);
    assert_eq!(last.end - first.start, messages as u64 * BYTES, "{messages} messages in {counts:?}");
    sent
}

/// The same as a timeline of these messages, with their schedule.
fn timeline(sent: &Sent, own: &Timeline) -> Timeline {
    // The first message comes behind what both ends agree on.
    let first = sent.messages().next().unwrap().start;
    let mut timeline = Timeline::new(Framing::Stream);
    timeline.extend(own.of(|what| *what == What::Intended).copied());
    for &(stamp, at, bytes) in sent.reached.iter().filter(|(.., bytes)| bytes.start >= first) {
        let what = match stamp {
            Stamp::WriteBegin => What::WriteBegin,
            Stamp::Scheduled => What::Scheduled,
            Stamp::Acknowledged => What::Acked,
            _ => continue,
        };
        // That a write begins tells where, and not how much it is.
        let length = if what == What::WriteBegin { 1 } else { bytes.len() };
        let bytes = ByteRange::new(bytes.start - first, bytes.start - first + length);
        timeline.push(taut_time::Event { at, host: Host::Local, layer: Layer::Socket, what, bytes });
    }
    timeline
}

/// Half of them are less, 95 and 99 in 100 are, and all are.
fn ranks(mut all: Vec<u64>) -> [u64; 4] {
    all.sort_unstable();
    [50, 95, 99, 100].map(|percent| all[(all.len() * percent).div_ceil(100) - 1])
}

/// Of each message, when it left and when it was acknowledged, by both.
fn agree(name: &str, own: &[MessageTimes], traced: &[MessageTimes], direction: &Value) {
    let apart = |own: Option<Instant>, traced: Option<Instant>| Some(traced?.signed_since(own?));
    // The recording of pace counts from its first event, the trace from the start of the machine. What tells them
    // apart is when each write began, by pace's clock and by the trace's: no timestamp of a segment has a part in it.
    let mut begins: Vec<i64> =
        own.iter().zip(traced).filter_map(|(own, traced)| apart(own.write_begin, traced.write_begin)).collect();
    begins.sort_unstable();
    let offset = begins[begins.len() / 2];
    type Stage = fn(&MessageTimes) -> Option<Instant>;
    let stages: [(&str, Stage, Stage); 3] = [
        ("handed over", |own| own.scheduled, |traced| traced.scheduled),
        ("left", |own| own.left, |traced| traced.scheduled),
        ("acknowledged", |own| own.acked, |traced| traced.acked),
    ];
    for (stage, of_own, of_traced) in stages {
        // What one of them has not is as far off as can be.
        let off = own.iter().zip(traced).map(|(own, traced)| {
            apart(of_own(own), of_traced(traced)).map_or(u64::MAX, |apart| apart.abs_diff(offset))
        });
        let [p50, p95, p99, max] = ranks(off.collect());
        println!("{name}: {stage}: p50 {p50} ns, p95 {p95} ns, p99 {p99} ns, max {max} ns of {} messages", own.len());
        // Elsewhere the highest ones are those of a processor that was taken from a machine between the two stamps.
        let most = if std::env::var_os(VIRTUAL_TIME).is_some() { p99 } else { p95 };
        assert!(most <= MOST_NS, "{name}: {stage}: p95 {p95} ns, p99 {p99} ns, max {max} ns: {direction:#}");
    }
}

/// Paces with these arguments under a trace, and compares.
fn paced(name: &str, arguments: &str, is_held: bool) {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let mut command = taut();
    let program = command.get_program().to_owned();
    command.args(["trace", "--json", "--top", "200", "--events"]).arg(at("events"));
    // Both print an object.
    command.args(["--", "sh", "-c", r#"file=$1; shift; exec "$0" "$@" >"$file""#]).arg(program).arg(at("pace"));
    command.args(["pace", "--json", "--rounds", "1", "--place", "free", "--size", &BYTES.to_string()]);
    let output = command.args(support::words(arguments)).output().unwrap();
    assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    let (document, own) = (parse(&output), fs::read_to_string(at("pace")).unwrap());
    let own: Value = serde_json::from_str(&own).unwrap_or_else(|error| panic!("{error}: {own}"));
    // Records may be lost, but later: when all is sent, pace measures what its timestamps cost, as fast as it can.
    adds_up(&document);

    let observed: Observed = serde_json::from_value(own["observed"][0].clone()).unwrap();
    let events = observed.rounds[0].timeline().unwrap();
    let messages = events.messages();
    let sent = sent(&at("events"), messages.len());
    let [from, to] = &sent.ends;
    let mut worst = document["worst"].as_array().unwrap().iter();
    let direction = worst.find(|one| one["from"] == from.as_str() && one["to"] == to.as_str());
    let direction = direction.unwrap_or_else(|| panic!("{from} > {to}: {document:#}"));
    assert!(messages.len() >= 200, "{} messages", messages.len());
    agree(name, &messages, &timeline(&sent, &events).messages(), direction);

    let verdict = &verdict(direction, CAUSE)["verdict"];
    if is_held {
        assert_eq!((causes(&own), verdict), (vec![CAUSE], &"found".into()), "{direction:#}");
        assert_eq!(found(direction)[0], CAUSE, "{direction:#}");
    } else {
        let expected = if has_gap(direction) { "unknown" } else { "clear" };
        assert_eq!((causes(&own), verdict), (Vec::new(), &expected.into()), "{direction:#}");
    }
}

#[test]
fn a_receiver_that_acknowledges_late() {
    if !may_trace("a_receiver_that_acknowledges_late") {
        return;
    }
    let server = Serve::start("tcp://127.0.0.1:0");
    for (nagle, time) in [("on", "12s"), ("off", "3s")] {
        let arguments = format!("{} --peer-ack delayed --nagle {nagle} --time {time}", server.endpoint(0));
        paced("a_receiver_that_acknowledges_late", &arguments, nagle == "on");
    }
}

/// The published one, behind a device of its own in another network namespace.
#[test]
fn a_foreign_receiver_that_acknowledges_late() {
    const NAME: &str = "a_foreign_receiver_that_acknowledges_late";
    let tried = run("pace --emulate-delack 56ms --time 100ms --rounds 1 --json");
    if tried.status.code() == Some(4) {
        return skip(NAME, text(&tried.stderr).trim());
    }
    if !may_trace(NAME) {
        return;
    }
    paced(NAME, "--emulate-delack 56ms --nagle on --time 12s", true);
}
