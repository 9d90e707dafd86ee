//! `taut trace` of what is not TCP: Unix sockets, UDP and pipes whose holder is known, each with a twin without it.

mod support;
mod trace_support;

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{parse, skip, taut, text};
use trace_support::{Traced, adds_up, may_trace};

const ROLE: &str = "TAUT_TRACED_ROLE";
const ROUNDS: u32 = 60;

/// Not a test of its own: what the others start and trace, as a process of their own.
#[test]
fn the_part_that_is_traced() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (kind, is_sick) = role.split_once(' ').map(|(kind, sick)| (kind, sick == "sick")).unwrap();
    match kind {
        "unix" => unix(is_sick),
        "udp" => udp(is_sick),
        "pipe" => pipe(is_sick),
        "unix-answers" => answers(is_sick),
        "unix-datagrams" => datagrams(is_sick),
        _ => panic!("{role}"),
    }
}

/// What takes a program away from its sockets.
fn other_work() {
    sleep(Duration::from_millis(20));
}

/// A client that writes more than the socket holds, to a server that reads late or at once.
fn unix(is_sick: bool) {
    let (mut client, mut server) = UnixStream::pair().unwrap();
    let reader = thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        while server.read(&mut buffer).unwrap() > 0 {
            if is_sick {
                other_work();
            }
        }
    });
    for _ in 0..ROUNDS {
        // As much as the other end takes in a while.
        client.write_all(&vec![0; if is_sick { 256 << 10 } else { 4 << 10 }]).unwrap();
        sleep(Duration::from_millis(if is_sick { 1 } else { 10 }));
    }
    drop(client);
    reader.join().unwrap();
}

/// Requests and answers; the server does something else before it reads each of them, or not.
fn answers(is_sick: bool) {
    let (mut client, mut server) = UnixStream::pair().unwrap();
    let answering = thread::spawn(move || {
        let mut request = [0; 64];
        loop {
            if is_sick {
                other_work();
            }
            match server.read(&mut request).unwrap() {
                0 => return,
                _ => server.write_all(b"answered").unwrap(),
            }
        }
    });
    for _ in 0..ROUNDS {
        client.write_all(&[0; 64]).unwrap();
        client.read_exact(&mut [0; 8]).unwrap();
        sleep(Duration::from_millis(10));
    }
    drop(client);
    answering.join().unwrap();
}

/// A sender that waits for the queue of a receiver that is at something else, or reads at once.
fn datagrams(is_sick: bool) {
    let (sender, receiver) = UnixDatagram::pair().unwrap();
    let reader = thread::spawn(move || {
        for _ in 0..ROUNDS {
            receiver.recv(&mut [0; 2048]).unwrap();
            if is_sick {
                other_work();
            }
        }
    });
    // However many the queue takes: they are refused once the receiver has gone.
    while sender.send(&[0; 100]).is_ok() && !reader.is_finished() {
        if !is_sick {
            sleep(Duration::from_millis(10));
        }
    }
    reader.join().unwrap();
}

/// Datagrams that come while the receiver is at something else, or waits for them.
fn udp(is_sick: bool) {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let reader = thread::spawn(move || {
        let mut datagram = [0; 2048];
        while receiver.recv(&mut datagram).unwrap() > 1 {
            if is_sick {
                other_work();
            }
        }
    });
    for _ in 0..ROUNDS {
        sender.send(&[0; 100]).unwrap();
        sleep(Duration::from_millis(10));
    }
    sender.send(&[0]).unwrap();
    reader.join().unwrap();
}

/// A pipe whose reader is slow, or waits for its writer.
fn pipe(is_sick: bool) {
    let (mut reader, mut writer): (PipeReader, PipeWriter) = std::io::pipe().unwrap();
    let reading = thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while reader.read(&mut buffer).unwrap() > 0 {
            if is_sick {
                other_work();
            }
        }
    });
    for _ in 0..ROUNDS {
        writer.write_all(&vec![0; if is_sick { 64 << 10 } else { 1 << 10 }]).unwrap();
        sleep(Duration::from_millis(if is_sick { 1 } else { 10 }));
    }
    drop(writer);
    reading.join().unwrap();
}

/// What a trace of such a process says.
fn traced(role: &str) -> Value {
    let mut command: Command = taut();
    command.env(ROLE, role).args(["trace", "--json", "--top", "50", "--"]).arg(std::env::current_exe().unwrap());
    let output = command.args(["--exact", "the_part_that_is_traced"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = parse(&output);
    adds_up(&document);
    assert!(document["others"].as_u64() > Some(0), "{document:#}");
    document
}

/// Of a kind the direction with most data that goes this way, with more than the harness itself has.
fn direction<'a>(document: &'a Value, transport: &str, is_outgoing: bool) -> &'a Value {
    let all = document["worst"].as_array().unwrap().iter();
    let of_kind = all.filter(|one| one["transport"] == transport && one["is_outgoing"] == is_outgoing);
    of_kind.max_by_key(|one| one["bytes"].as_u64()).unwrap_or_else(|| panic!("{transport}: {document:#}"))
}

fn share(direction: &Value, holder: &str) -> f64 {
    let mut held = direction["breakdown"].as_array().unwrap().iter();
    held.find(|held| held["holder"] == holder).map_or(0.0, |held| held["share"].as_f64().unwrap())
}

/// What was found but waits for a processor, which come from what else runs on a busy machine.
fn causes(direction: &Value) -> Vec<&str> {
    let verdicts = direction["verdicts"].as_array().unwrap().iter();
    verdicts
        .filter(|on| on["verdict"] == "found" && on["cause"] != "processor")
        .map(|on| on["cause"].as_str().unwrap())
        .collect()
}

/// Which way something waits where it is sick, and how much of the time at least.
fn is_found_and_its_twin_is_not(test: &str, kind: &str, is_outgoing: bool, least: f64) {
    if !may_trace(test) {
        return;
    }
    let transport = kind.split('-').next().unwrap();
    thread::scope(|scope| {
        let sick = scope.spawn(|| traced(&format!("{kind} sick")));
        let healthy = traced(&format!("{kind} healthy"));
        let sick = sick.join().unwrap();
        if sick["missing_hooks"].as_array().unwrap().iter().any(|hook| hook == "sk_data_ready") && transport != "pipe" {
            return skip(test, "this kernel has no tracepoint sk_data_ready");
        }
        let held = direction(&sick, transport, is_outgoing);
        assert_eq!(causes(held), ["receiving_program"], "{held:#}");
        assert!(share(held, "receiving_program") >= least, "{held:#}");
        for document in [&sick, &healthy] {
            let ways = [true, false].map(|way| direction(document, transport, way));
            assert!(ways.iter().all(|way| share(way, "not_known") < 0.02), "{document:#}");
            assert!(ways.iter().all(|way| way["program"].as_str().unwrap().contains('(')), "{document:#}");
        }
        for way in [true, false] {
            let free = direction(&healthy, transport, way);
            assert!(causes(free).is_empty(), "{free:#}");
            assert!(share(free, "receiving_program") < 0.2, "{free:#}");
        }
    });
}

#[test]
fn a_unix_socket_whose_reader_is_slow() {
    is_found_and_its_twin_is_not("a_unix_socket_whose_reader_is_slow", "unix", true, 0.5);
}

#[test]
fn requests_over_a_unix_socket_that_wait_to_be_read() {
    is_found_and_its_twin_is_not("requests_over_a_unix_socket_that_wait_to_be_read", "unix-answers", false, 0.2);
}

#[test]
fn a_queue_of_a_unix_socket_that_is_full_of_datagrams() {
    is_found_and_its_twin_is_not("a_queue_of_a_unix_socket_that_is_full_of_datagrams", "unix-datagrams", true, 0.5);
}

#[test]
fn datagrams_that_wait_to_be_read() {
    is_found_and_its_twin_is_not("datagrams_that_wait_to_be_read", "udp", false, 0.4);
}

#[test]
fn a_pipe_whose_reader_is_slow() {
    is_found_and_its_twin_is_not("a_pipe_whose_reader_is_slow", "pipe", true, 0.5);
}

/// No event tells of it: neither of these sockets has a call before it is read, if ever.
#[test]
fn what_waited_when_the_trace_began_is_told() {
    if !may_trace("what_waited_when_the_trace_began_is_told") {
        return;
    }
    let [receiver, sender] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    sender.send_to(&[0; 100], receiver.local_addr().unwrap()).unwrap();
    let (mut left, mut right) = UnixStream::pair().unwrap();
    left.write_all(&[0; 50]).unwrap();
    let begin = Instant::now();
    let trace = Traced::of(&["--pid", &std::process::id().to_string()]);
    sleep(Duration::from_millis(300));
    right.read_exact(&mut [0; 50]).unwrap();
    let most = begin.elapsed();
    let document = trace.finish();
    let remarks: Vec<&str> =
        document["remarks"].as_array().unwrap().iter().map(|remark| remark.as_str().unwrap()).collect();
    let own = format!("({})", std::process::id());
    let told = |parts: &[&str]| remarks.iter().any(|remark| parts.iter().all(|part| remark.contains(part)));
    let udp = format!("In UDP {} of ", receiver.local_addr().unwrap());
    assert!(told(&[&udp, &own, " 100 B or more waited when the trace began", "waits there still"]), "{remarks:?}");
    assert!(told(&["In Unix socket ", &own, " 50 B or more", "The first call on it came "]), "{remarks:?}");
    // Not before it was read, nor earlier than the trace was started; it is told in three digits.
    let of_unix = remarks.iter().find(|remark| remark.contains(" 50 B or more")).unwrap();
    let (_, came) = of_unix.split_once("The first call on it came ").unwrap();
    let (value, unit) = came.split_once(" later").unwrap().0.split_once(' ').unwrap();
    let seconds = value.parse::<f64>().unwrap() * if unit == "ms" { 1e-3 } else { 1.0 };
    assert!((0.299..most.as_secs_f64() * 1.01).contains(&seconds), "{most:?}: {remarks:?}");
}
