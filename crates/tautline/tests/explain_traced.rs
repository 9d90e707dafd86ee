//! `taut explain` of a capture and of what `taut trace --events` saw of its connections, on one timeline.

mod explain_support;
#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../taut-capture/tests/packets/mod.rs"]
mod packets;
#[path = "explain_support/requests.rs"]
mod requests;
mod support;
mod trace_support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path as FilePath;
use std::process::Output;
use std::time::Duration;

use explain_support::{Conditions, Path, RECEIVER};
use requests::{MS, capture, file};
use serde_json::{Value, json};
use support::{is_root, parse, skip, taut, text};
use trace_support::{Traced, has_gap, may_trace};

const BEGIN: u64 = 1_700_000_000_000_000_000;
const BOOT: u64 = 1_000_000_000_000;
/// Requests of the capture.
const ROUNDS: u64 = 20;

fn explain(files: &[&FilePath], more: &[&str]) -> Output {
    taut().arg("explain").args(files).args(more).output().unwrap()
}

/// What the kernel had while the capture was made: the program hands over the second piece 10 ms after the first.
fn events(from: &str, to: &str, has_clock: bool) -> String {
    let reading = json!({"at_ns": BOOT, "time_of_day_ahead_ns": BEGIN - BOOT, "uncertainty_ns": 200});
    let mut facts = json!({
        "format_version": 2, "command": "trace", "command_line": "taut trace --pid 4711", "ended": {"how": "complete"},
        "traced": "process client (4711)", "records": 200, "lost_records": 0, "missing_hooks": [], "remarks": [],
    });
    if has_clock {
        facts["clock"] = json!({"begin": reading, "end": reading});
    }
    let mut all = format!("taut-events 1\nf 0 3780 - tcp {from} {to}\n");
    let mut last = 0;
    let mut line = |at: u64, word: &str, rest: String| {
        let at = BOOT + at;
        all += &format!("{word} 0 {} 4711 {rest}\n", at - last);
        last = at;
    };
    let state = |unsent: u32, flight: u32, unread: u32| {
        let small = u32::from(flight > 0);
        format!("{unsent};{flight};{unread};{small};10;2147483647;65536;1460;0;0;0;0;{small};0;0;0;0")
    };
    for round in 0..ROUNDS {
        let at = 5 * MS + round * 50 * MS;
        let (byte, answer) = ((1_u64 << 32) + 1 + round * 200, (1_u64 << 32) + 1 + round * 100);
        line(at - 5_000, "b>", format!("{byte} 0"));
        line(at - 1_000, "s>", format!("{byte} 40"));
        line(at - 1_000, "q>", state(0, 40, 0));
        line(at + 1_000, "e>", format!("{byte} 40"));
        line(at + 1_000, "q>", state(0, 40, 0));
        line(at + 10 * MS, "b>", format!("{} 0", byte + 40));
        line(at + 10 * MS, "q>", state(0, 40, 0));
        line(at + 10 * MS, "e>", format!("{} 160", byte + 40));
        line(at + 10 * MS, "q>", state(160, 40, 0));
        line(at + 42 * MS + 1_000, "a>", format!("{byte} 40"));
        line(at + 42 * MS + 1_000, "q>", state(160, 0, 0));
        line(at + 42 * MS + 10_000, "o>", "ack-not-seen".to_owned());
        line(at + 42 * MS + 10_000, "s>", format!("{} 160", byte + 40));
        line(at + 42 * MS + 10_000, "q>", state(0, 160, 0));
        line(at + 45 * MS + 1_000, "a>", format!("{} 160", byte + 40));
        line(at + 45 * MS + 1_000, "r<", format!("{answer} 100"));
        line(at + 45 * MS + 1_000, "q>", state(0, 0, 100));
        line(at + 45 * MS + 5_000, "d<", format!("{answer} 100"));
        line(at + 45 * MS + 5_000, "q>", state(0, 0, 0));
    }
    let end = BOOT + 5 * MS + ROUNDS * 50 * MS;
    format!("{all}m {facts}\np 4711 \"client (4711)\"\n. {end}\n")
}

fn held(direction: &Value, holder: &str) -> u64 {
    let rows = direction["breakdown"].as_array().unwrap().iter();
    rows.filter(|held| held["holder"] == holder).map(|held| held["held_ns"].as_u64().unwrap()).sum()
}

/// The parts are the whole, and so is whose word they are.
fn adds_up(timeline: &Value) {
    let sum = |all: &mut dyn Iterator<Item = &Value>| all.map(|ns| ns.as_u64().unwrap()).sum::<u64>();
    for direction in timeline["directions"].as_array().unwrap() {
        let span = direction["span_ns"].as_u64().unwrap();
        let rows = direction["breakdown"].as_array().unwrap();
        assert_eq!(sum(&mut rows.iter().map(|held| &held["held_ns"])), span, "{direction:#}");
        assert_eq!(sum(&mut direction["told"].as_object().unwrap().values()), span, "{direction:#}");
    }
}

#[test]
fn a_capture_and_a_trace_have_one_breakdown() {
    let directory = tempfile::tempdir().unwrap();
    let pcap = file(directory.path(), "a.pcap", &capture());
    let worst = parse(&explain(&[&pcap], &["--json"]))["files"][0]["worst"][0].clone();
    let (from, to) = (worst["from"].as_str().unwrap(), worst["to"].as_str().unwrap());
    let trace = file(directory.path(), "a.events", events(from, to, true).as_bytes());
    let document = parse(&explain(&[&pcap, &trace], &["--json", "--join"]));
    let timeline = &document["joined_traces"][0];
    adds_up(timeline);
    let schema = parse(&taut().args(["generate", "schema"]).output().unwrap());
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
    // Whichever stands first.
    let turned = parse(&explain(&[&trace, &pcap], &["--json", "--join"]));
    assert_eq!(&turned["joined_traces"][0], timeline);
    assert_eq!((timeline["connections"].as_u64(), timeline["is_by_time_of_day"].as_bool()), (Some(1), Some(false)));
    // The same clock; the file's has steps of 1 µs.
    let [offset, error] = ["offset_ns", "uncertainty_ns"].map(|key| timeline["clock"][key].as_i64().unwrap());
    assert!(offset.abs() <= error && error < 20_000, "{timeline:#}");
    let direction = &timeline["directions"][0];
    assert_eq!((&direction["from"], &direction["sender"]), (&worst["from"], &json!("client (4711)")));
    // A capture can't tell when the program wrote: Nagle's algorithm held for 32 ms of 42, and before that it was on
    // its way.
    let nagle = held(direction, "nagle");
    assert!(nagle.abs_diff(ROUNDS * 32 * MS) < ROUNDS * 100_000, "{direction:#}");
    assert!(held(&worst, "nagle") > nagle + ROUNDS * 9 * MS, "{worst:#}");
    assert!(held(direction, "delivery") >= ROUNDS * 10 * MS, "{direction:#}");
    let longest = direction["longest"].as_array().unwrap().iter().find(|one| one["holder"] == "nagle").unwrap();
    // Five packets a round behind those of the handshake: the first piece, its acknowledgement, the second piece.
    let frames = [0, 1].map(|place| longest["frames"][place].as_u64().unwrap());
    assert_eq!((frames[0] % 5, frames[1]), (4, frames[0] + 2), "{longest}");
    assert_eq!(longest["seen"], "client (4711) had written 160 bytes; let go by an ACK.");

    let told = text(&explain(&[&pcap, &trace], &[]).stdout);
    assert!(told.contains("JOINED ") && told.contains("from client (4711)"), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 100), "{told}");
    let page = directory.path().join("page.html");
    assert!(explain(&[&pcap, &trace], &["--html", page.to_str().unwrap()]).status.success());
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("since the begin of the timeline") && page.contains("(captured and traced)"));
}

#[test]
fn a_trace_of_something_else_is_refused_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let pcap = file(directory.path(), "a.pcap", &capture());
    let worst = parse(&explain(&[&pcap], &["--json"]))["files"][0]["worst"][0].clone();
    let (from, to) = (worst["from"].as_str().unwrap(), worst["to"].as_str().unwrap());
    let same = events(from, to, true);
    let moved = same.replace(&format!("> 0 {} 4711 ", BOOT + 5 * MS - 5_000), "> 0 1000 4711 ");
    let cases = [
        ("other.events", events(from, "10.9.9.9:80", true), "they hold no connection of TCP in common", None),
        ("old.events", events(from, to, false), "older versions recorded it", Some("older versions recorded it")),
        ("numbers.events", same.replace(" 42949", " 52949"), "no segment of one is in the other", Some("no segment")),
        ("uneven.events", same.replace(" 9999000 4711", " 999000 4711"), "run too unevenly", Some("too unevenly")),
        ("moved.events", moved, "", None),
    ];
    for (name, events, refusal, remark) in cases {
        let trace = file(directory.path(), name, events.as_bytes());
        let output = explain(&[&pcap, &trace], &["--join"]);
        let error = text(&output.stderr);
        let code = if refusal.is_empty() { 0 } else { 1 };
        assert_eq!(output.status.code(), Some(code), "{name}: {error}");
        assert!(error.contains(refusal), "{name}: {error}");
        // Without --join each stands by itself, and says why.
        let output = explain(&[&pcap, &trace], &[]);
        let told = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.status.success() && told.contains("JOINED") == refusal.is_empty(), "{name}: {told}");
        let says = told.split("It is not joined with ").nth(1);
        assert_eq!(says.is_some(), remark.is_some(), "{name}: {told}");
        assert!(remark.is_none_or(|remark| says.unwrap().contains(remark)), "{name}: {told}");
    }
    let trace = file(directory.path(), "a.events", same.as_bytes());
    let output = explain(&[&trace, &trace], &["--join"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("with a capture of its connections"), "{}", text(&output.stderr));
}

/// Two writes and a read over a path of 2 ms between two namespaces, captured at both of its ends, while the sender is
/// traced: with either capture the holder, the program, the packets and the offset are right. One segment is lost,
/// which only the capture can tell from one that is on its way.
#[test]
fn a_stall_that_was_captured_and_traced_has_holder_program_and_packets() {
    const NAME: &str = "a_stall_that_was_captured_and_traced_has_holder_program_and_packets";
    if !is_root() {
        return skip(NAME, "it takes root to make network namespaces");
    }
    if !may_trace(NAME) {
        return;
    }
    // The end of a request.
    let conditions = Conditions { delay: Duration::from_millis(2), lost: vec![40], ..Conditions::default() };
    let path = match Path::start(&conditions) {
        Ok(path) => path,
        Err(why) => return skip(NAME, &why),
    };
    const PORT: u16 = 7901;
    let directory = tempfile::tempdir().unwrap();
    let events = directory.path().join("x.events");
    let trace = Traced::of(&["--port", &PORT.to_string(), "--events", events.to_str().unwrap()]);
    let server = path.spawn(1, || {
        let (mut stream, _) = TcpListener::bind(("0.0.0.0", PORT)).unwrap().accept().unwrap();
        let mut request = [0; 64];
        while stream.read_exact(&mut request).is_ok() {
            stream.write_all(b"answered").unwrap();
        }
    });
    let client = path.spawn(0, || {
        let mut client = loop {
            match TcpStream::connect((RECEIVER, PORT)) {
                Ok(client) => break client,
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        for _ in 0..30 {
            client.write_all(&[1; 16]).unwrap();
            client.write_all(&[2; 48]).unwrap();
            client.read_exact(&mut [0; 8]).unwrap();
        }
        client.local_addr().unwrap().port()
    });
    let port = client.join().unwrap();
    server.join().unwrap();
    let captures = path.finish();
    trace.finish();
    for (capture, name) in captures.iter().zip(["sender.pcap", "receiver.pcap"]) {
        let pcap = file(directory.path(), name, capture);
        let document = parse(&explain(&[&pcap, &events], &["--json", "--join"]));
        let timeline = &document["joined_traces"][0];
        adds_up(timeline);
        // One machine, whose clocks are one.
        let [offset, error] = ["offset_ns", "uncertainty_ns"].map(|key| timeline["clock"][key].as_i64().unwrap());
        assert!(offset.abs() <= error, "{name}: {timeline:#}");
        let sent = |one: &&Value| one["from"].as_str().unwrap().ends_with(&format!(":{port}"));
        let direction = timeline["directions"].as_array().unwrap().iter().find(sent).unwrap();
        let program = direction["sender"].as_str().unwrap();
        assert!(program.contains(&format!("({})", std::process::id())), "{name}: {program}");
        assert_eq!(direction["breakdown"][0]["holder"], "nagle", "{name}: {direction:#}");
        let span = direction["span_ns"].as_u64().unwrap();
        assert!(held(direction, "nagle") > span / 2, "{name}: {direction:#}");
        let lost: u64 =
            ["tail_loss_probe", "retransmission_timeout", "loss_recovery"].map(|one| held(direction, one)).iter().sum();
        assert!(lost > 2 * MS || name == "receiver.pcap", "{name}: {direction:#}");
        let longest = direction["longest"].as_array().unwrap().iter().find(|one| one["holder"] == "nagle").unwrap();
        if !has_gap(direction) {
            let seen = longest["seen"].as_str().unwrap();
            assert!(seen.contains("had written 48 bytes; let go by an ACK"), "{name}: {longest:#}");
        }
        // A server's acknowledgement without data ended it, and the rest of the request left then.
        let frame = longest["frames"][1].as_u64().unwrap() as usize;
        let packets = sources(capture);
        let ack = if packets[frame - 1] == (PORT, 0) { frame - 1 } else { frame - 2 };
        assert_eq!(packets[ack..ack + 2], [(PORT, 0), (port, 48)], "{name}: {longest:#}");
        let before = longest["frames"][0].as_u64().unwrap() as usize;
        assert!(before <= ack && ack - before < 4, "{name}: {longest:#}");
    }
}

/// Source port and bytes of data of each packet of a capture with 16 bytes before each, of IPv4 alone or not.
fn sources(capture: &[u8]) -> Vec<(u16, usize)> {
    let mut rest = &capture[24..];
    let mut all = Vec::new();
    while let Some((head, body)) = rest.split_at_checked(16) {
        let kept = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
        let (packet, next) = body.split_at(kept);
        rest = next;
        let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let is_tcp = packet[0] >> 4 == 4 && packet[9] == 6;
        all.push(match is_tcp {
            true => {
                let header = usize::from(packet[0] & 15) * 4;
                let data = usize::from(word(2)) - header - usize::from(packet[header + 12] >> 4) * 4;
                (word(header), data)
            }
            false => (0, 0),
        });
    }
    all
}

/// A recording that was broken off before it told what was traced says so, and nothing of records that were lost.
#[test]
fn a_recording_without_facts_does_not_tell_of_losses() {
    let directory = tempfile::tempdir().unwrap();
    let all = events("10.0.0.1:40000", "10.0.0.2:5000", false);
    let (events, _) = all.split_once("\nm ").unwrap();
    let trace = file(directory.path(), "a.events", format!("{events}\n").as_bytes());
    let output = explain(&[&trace], &[]);
    let told = text(&output.stdout);
    assert!(told.contains("how many records were lost is not told") && !told.contains("none lost"), "{told}");
    let document = parse(&explain(&[&trace], &["--json"]));
    let trace = &document["traces"][0]["trace"];
    assert_eq!((&trace["records"], &trace["lost_records"]), (&Value::Null, &Value::Null));
    let schema = parse(&taut().args(["generate", "schema"]).output().unwrap());
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
}
