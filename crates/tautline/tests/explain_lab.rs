//! `taut explain` held against the kernel: connections over a path of our own, whose sender's state (TCP_INFO) is read
//! each millisecond; captured at both ends. `cargo test --test explain_lab -- --nocapture` prints the table.

mod explain_support;
mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use explain_support::{Conditions, Path, RECEIVER};
use serde_json::Value;
use taut_link::{Link, TcpInfo};

const PORT: u16 = 9;
const TIME: Duration = Duration::from_secs(2);

/// What the receiving program does.
#[derive(Clone, Copy)]
enum Reader {
    Fast,
    /// Sleeps before each read of 16 KiB.
    Slow(Duration),
    /// Sleeps each time it has read so many bytes.
    Pausing(usize, Duration),
    /// Answers requests of so many bytes with so many, after thinking.
    Answering(usize, usize, Duration),
}

/// What the sending program does.
#[derive(Clone, Copy)]
enum Sender {
    Bulk,
    /// A request in two writes; waits for the answer; pauses.
    TwoWrites(usize, usize),
    /// A request in one write; waits for the answer; pauses.
    Requests(usize, usize),
    /// Small writes at a period.
    Periodic(usize, Duration),
}

struct Case {
    name: &'static str,
    conditions: Conditions,
    options: &'static str,
    receive_buffer: Option<usize>,
    sender: Sender,
    reader: Reader,
    /// The causes that must be found from both sides.
    found: &'static [&'static str],
    /// Those that must not.
    absent: &'static [&'static str],
    /// Of the time, how much must be booked as the kernel has it.
    agreement: f64,
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn path(delay: u64) -> Conditions {
    Conditions { delay: ms(delay), ..Conditions::default() }
}

fn cases() -> Vec<Case> {
    let case = |name, delay, sender, reader, found, absent| Case {
        name,
        conditions: path(delay),
        options: "",
        receive_buffer: None,
        sender,
        reader,
        found,
        absent,
        agreement: 0.9,
    };
    let answers = Reader::Answering(200, 100, ms(0));
    vec![
        case("request in two writes", 2, Sender::TwoWrites(200, 100), answers, &["nagle_delayed_ack"], &["loss"]),
        Case {
            options: "nodelay=on",
            ..case(
                "the same, TCP_NODELAY",
                2,
                Sender::TwoWrites(200, 100),
                answers,
                &[],
                &["nagle_delayed_ack", "loss"],
            )
        },
        Case {
            options: "nodelay=on",
            ..case(
                "period = round trip",
                5,
                Sender::Periodic(128, ms(10)),
                Reader::Fast,
                &["sending_program"],
                &["nagle_delayed_ack"],
            )
        },
        Case {
            receive_buffer: Some(32 << 10),
            ..case(
                "small receive buffer",
                20,
                Sender::Bulk,
                Reader::Fast,
                &["receive_window"],
                &["receiving_program", "nagle_delayed_ack"],
            )
        },
        case("slow reader", 2, Sender::Bulk, Reader::Slow(ms(20)), &["receiving_program"], &["nagle_delayed_ack"]),
        Case {
            receive_buffer: Some(128 << 10),
            agreement: 0.85,
            ..case(
                "pausing reader",
                5,
                Sender::Bulk,
                Reader::Pausing(1_500_000, ms(400)),
                &["receiving_program"],
                &["nagle_delayed_ack"],
            )
        },
        Case {
            conditions: Conditions {
                rate: Some(20_000_000),
                queue_bytes: 256 << 10,
                lost: vec![400, 800, 1300],
                ..path(10)
            },
            ..case("three losses", 10, Sender::Bulk, Reader::Fast, &["loss"], &["nagle_delayed_ack", "receive_window"])
        },
        Case {
            options: "nodelay=on",
            ..case(
                "server thinks 30 ms",
                5,
                Sender::Requests(200, 5000),
                Reader::Answering(200, 5000, ms(30)),
                &["peer_turn"],
                &["loss", "nagle_delayed_ack"],
            )
        },
    ]
}

fn serve(reader: Reader, receive_buffer: Option<usize>) {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    if let Some(bytes) = receive_buffer {
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, bytes).unwrap();
    }
    let address: std::net::SocketAddrV4 = format!("0.0.0.0:{PORT}").parse().unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    let (mut stream, _) = TcpListener::from(socket).accept().unwrap();
    let mut buffer = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        let most = if let Reader::Slow(pause) = reader {
            thread::sleep(pause);
            16 << 10
        } else {
            buffer.len()
        };
        let Ok(read @ 1..) = stream.read(&mut buffer[..most]) else { return };
        let before = total;
        total += read;
        match reader {
            Reader::Pausing(each, pause) if before / each != total / each => thread::sleep(pause),
            Reader::Answering(request, answer, think) if before / request != total / request => {
                thread::sleep(think);
                stream.write_all(&vec![b'r'; answer]).unwrap();
            }
            _ => {}
        }
    }
}

/// Sends for a while, with the kernel's state meanwhile.
fn send(sender: Sender, options: &str) -> Vec<(Instant, TcpInfo)> {
    let endpoint = format!("tcp://{RECEIVER}:{PORT}").parse().unwrap();
    let begin = Instant::now();
    let link = loop {
        match Link::connect(&endpoint, Duration::from_secs(5)) {
            Ok(link) => break link,
            Err(error) => assert!(begin.elapsed() < Duration::from_secs(10), "{error}"),
        }
        thread::sleep(ms(50));
    };
    let options = if options.is_empty() { "nodelay=off" } else { options };
    link.set_options(&[options.parse().unwrap()]).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut samples = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                samples.extend(link.tcp_info().map(|info| (Instant::now(), info)));
                thread::sleep(ms(1));
            }
            samples
        });
        drive(&link, sender);
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end && link.tcp_info().is_some_and(|info| info.unacked_segments + info.unsent_bytes > 0)
        {
            thread::sleep(ms(2));
        }
        stop.store(true, Ordering::Relaxed);
        sampler.join().unwrap()
    })
}

fn drive(link: &Link, sender: Sender) {
    let (begin, block) = (Instant::now(), vec![b'x'; 64 << 10]);
    let mut answer = vec![0; 64 << 10];
    let mut turn = 0;
    while begin.elapsed() < TIME {
        match sender {
            Sender::Bulk => link.send_all(&block).unwrap(),
            Sender::Periodic(bytes, period) => {
                link.send_all(&block[..bytes]).unwrap();
                turn += 1;
                thread::sleep((begin + turn * period).saturating_duration_since(Instant::now()));
            }
            Sender::TwoWrites(bytes, back) => {
                link.send_all(&block[..40]).unwrap();
                link.send_all(&block[40..bytes]).unwrap();
                link.receive_exact(&mut answer[..back], "the answer").unwrap();
                thread::sleep(ms(20));
            }
            Sender::Requests(bytes, back) => {
                link.send_all(&block[..bytes]).unwrap();
                link.receive_exact(&mut answer[..back], "the answer").unwrap();
                thread::sleep(ms(10));
            }
        }
    }
}

type Shares = BTreeMap<&'static str, f64>;

fn shares(parts: impl Iterator<Item = (&'static str, f64)>) -> Shares {
    let mut shares = Shares::new();
    parts.for_each(|(group, seconds)| *shares.entry(group).or_default() += seconds);
    let whole: f64 = shares.values().sum();
    shares.values_mut().for_each(|share| *share /= whole);
    shares
}

/// Who held the data between two samples, by the kernel's own state.
fn truth(samples: &[(Instant, TcpInfo)], case: &Case) -> Shares {
    let is_bulk = matches!(case.sender, Sender::Bulk);
    let group = |before: &TcpInfo, now: &TcpInfo| {
        let in_flight = u64::from(now.unacked_segments) * u64::from(now.send_mss_bytes);
        if now.receive_window_limited > before.receive_window_limited {
            "window"
        } else if now.unsent_bytes == 0 {
            if is_bulk { "network" } else { "program" }
        } else if now.send_window_bytes.is_some_and(|window| in_flight + u64::from(now.send_mss_bytes) > window.into())
        {
            "window"
        } else if now.unacked_segments < now.congestion_window_segments
            && now.unsent_bytes < now.send_mss_bytes
            && !case.options.contains("nodelay")
        {
            "nagle"
        } else {
            "network"
        }
    };
    // What the kernel counts in ticks it counts late, so a window's time is that of the count, not of the sample.
    shares(samples.windows(2).map(|pair| {
        let [(then, before), (at, now)] = pair else { unreachable!() };
        (group(before, now), (*at - *then).as_secs_f64())
    }))
}

fn said(direction: &Value) -> Shares {
    let held = direction["breakdown"].as_array().unwrap().iter().filter_map(|held| {
        let group = match held["holder"].as_str().unwrap() {
            "handshake" | "delivery" => return None,
            "sending_program" | "peer_turn" | "cork" => "program",
            "nagle" => "nagle",
            "receive_window" | "receiving_program" => "window",
            "not_known" => "not known",
            _ => "network",
        };
        Some((group, held["held_ns"].as_f64().unwrap()))
    });
    shares(held)
}

fn explain(capture: &[u8]) -> Value {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(capture).unwrap();
    let document = support::run_json(&format!("explain {}", file.path().display()));
    let directions = document["files"][0]["worst"].as_array().unwrap();
    directions.iter().find(|direction| direction["to"] == format!("{RECEIVER}:{PORT}").as_str()).unwrap().clone()
}

fn in_words(shares: &Shares) -> String {
    let words: Vec<String> = shares.iter().map(|(group, share)| format!("{group} {:.0}", share * 100.0)).collect();
    words.join(" ")
}

/// The same capture by a clock that is so many seconds ahead.
fn ahead_by(seconds: u32, capture: &[u8]) -> Vec<u8> {
    let (mut moved, mut place) = (capture.to_vec(), 24);
    while let Some(header) = capture.get(place..place + 16) {
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        moved[place..place + 4].copy_from_slice(&(word(0) + seconds).to_le_bytes());
        place += 16 + word(8) as usize;
    }
    moved
}

/// Both ends of the path are captured by one clock, of which one capture is moved.
#[test]
fn captures_of_both_ends_are_put_on_one_timeline() {
    const TEST: &str = "captures_of_both_ends_are_put_on_one_timeline";
    if !support::is_root() || !support::has("ip") {
        return support::skip(TEST, "needs root and ip, for two network namespaces");
    }
    let path = match Path::start(&Conditions { lost: vec![5, 11], ..path(4) }) {
        Ok(path) => path,
        Err(error) => return support::skip(TEST, &error),
    };
    let receiver = path.spawn(1, move || serve(Reader::Answering(200, 100, ms(0)), None));
    path.spawn(0, move || send(Sender::Requests(200, 100), "")).join().unwrap();
    receiver.join().unwrap();
    let [near, far] = path.finish();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, capture: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, capture).unwrap();
        path.display().to_string()
    };
    let (near, far) = (file("near.pcap", &near), file("far.pcap", &ahead_by(7, &far)));
    for (one, other, sign) in [(&near, &far, 1), (&far, &near, -1)] {
        let joined = support::run_json(&format!("explain --join {one} {other}"))["joined"][0].clone();
        println!("{joined:#}");
        let clock = &joined["clock"];
        let (offset, error) = (clock["offset_ns"].as_i64().unwrap(), clock["uncertainty_ns"].as_u64().unwrap());
        assert!(offset.abs_diff(sign * 7_000_000_000) <= error, "{joined}");
        // No way is shorter than 4 ms.
        assert!(clock["least_round_trip_ns"].as_u64().unwrap() >= 7_900_000, "{joined}");
        assert!(joined["matched_packets"].as_u64().unwrap() > 100 && clock["steps"] == 0, "{joined}");
    }
}

#[test]
fn the_time_breakdown_is_the_kernels() {
    const TEST: &str = "the_time_breakdown_is_the_kernels";
    if !support::is_root() || !support::has("ip") {
        return support::skip(TEST, "needs root and ip, for two network namespaces");
    }
    println!("{:24} {:8} {:>6}  by the kernel, then by the capture, in % of the time", "", "seen at", "alike");
    let mut wrong = Vec::new();
    for case in cases() {
        let path = match Path::start(&case.conditions) {
            Ok(path) => path,
            Err(error) => return support::skip(TEST, &error),
        };
        let (reader, buffer) = (case.reader, case.receive_buffer);
        let receiver = path.spawn(1, move || serve(reader, buffer));
        let (sender, options) = (case.sender, case.options);
        let samples = path.spawn(0, move || send(sender, options)).join().unwrap();
        receiver.join().unwrap();
        let captures = path.finish();
        let truth = truth(&samples, &case);
        for (place, capture) in ["sender", "receiver"].into_iter().zip(captures) {
            let direction = explain(&capture);
            let said = said(&direction);
            let alike: f64 =
                truth.iter().map(|(group, share)| share.min(said.get(group).copied().unwrap_or_default())).sum();
            println!("{:24} {place:8} {:5.1} %  {} | {}", case.name, alike * 100.0, in_words(&truth), in_words(&said));
            let verdicts = direction["verdicts"].as_array().unwrap();
            let is_found = |cause: &&&str| verdicts.iter().any(|on| on["cause"] == **cause && on["verdict"] == "found");
            let mut check = |holds: bool, what: String| {
                if !holds {
                    wrong.push(format!("{}, at the {place}: {what}: {direction:#}", case.name));
                }
            };
            check(alike >= case.agreement, format!("{alike:.3} alike"));
            let lacking: Vec<_> = case.found.iter().filter(|cause| !is_found(cause)).collect();
            check(lacking.is_empty(), format!("{lacking:?} not found"));
            let false_ones: Vec<_> = case.absent.iter().filter(is_found).collect();
            check(false_ones.is_empty(), format!("{false_ones:?} found"));
            let vantage = direction["vantage"].as_f64().unwrap();
            check(if place == "sender" { vantage < 0.25 } else { vantage > 0.75 }, format!("vantage {vantage}"));
            if !case.conditions.lost.is_empty() {
                let last = &samples.last().unwrap().1;
                let (repeated, truth) = (direction["repeated_segments"].as_u64().unwrap(), last.retransmitted_segments);
                check(repeated == u64::from(truth), format!("{repeated} segments repeated, {truth} by the kernel"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
