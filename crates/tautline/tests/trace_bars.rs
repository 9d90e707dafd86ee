//! What a tracer must not do, and what it must: it is not woken up by what it traces, it makes nothing of what found
//! no room, and it names a program that has ended. Where the kernel does not let this user trace, these are skipped.

mod support;
mod trace_support;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use support::{has, parse, skip, taut, text};
use trace_support::{Traced, adds_up, found, has_gap, held_ns, may_trace, sent_by, sent_to, verdict};

/// A connection over which 32 bytes go to and fro, and neither end holds them back.
struct PingPong {
    client: TcpStream,
    server: JoinHandle<()>,
}

impl PingPong {
    fn open(listener: &TcpListener) -> Self {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let server = thread::spawn(move || {
            let mut message = [0; 32];
            while server.read_exact(&mut message).is_ok() {
                server.write_all(&message).unwrap();
            }
        });
        Self { client, server }
    }

    fn once(&mut self) {
        self.client.write_all(&[1; 32]).unwrap();
        self.client.read_exact(&mut [0; 32]).unwrap();
    }

    /// The port that the client had.
    fn close(self) -> u16 {
        let port = self.client.local_addr().unwrap().port();
        drop(self.client);
        self.server.join().unwrap();
        port
    }
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// How often the threads of a process went to sleep.
fn sleeps(process: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of_thread = |status: String| -> u64 {
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    };
    threads.map(|thread| of_thread(fs::read_to_string(thread.unwrap().path().join("status")).unwrap())).sum()
}

/// It looks every 20 ms, or every 2 ms while much comes; what comes does not wake it up.
#[test]
fn a_tracer_sleeps_by_its_clock_and_not_by_what_it_traces() {
    if !may_trace("a_tracer_sleeps_by_its_clock_and_not_by_what_it_traces") {
        return;
    }
    let (listener, port) = listen();
    let trace = Traced::start(port);
    let mut pair = PingPong::open(&listener);
    let (begin, before) = (Instant::now(), sleeps(trace.id()));
    // So many that it can read them all: else it never gets to sleep.
    while begin.elapsed() < Duration::from_secs(2) {
        pair.once();
        sleep(Duration::from_micros(100));
    }
    let (slept, ms) = (sleeps(trace.id()) - before, begin.elapsed().as_millis() as u64);
    pair.close();
    let records = trace.end()["records"].as_u64().unwrap();
    println!("{slept} sleeps in {ms} ms for {records} records");
    assert!(slept > 0 && slept < ms, "{slept} sleeps in {ms} ms");
    assert!(slept * 20 < records, "{slept} sleeps for {records} records");
}

/// A tracer that does not get to read for a while.
#[test]
fn what_found_no_room_is_counted_and_nothing_is_made_of_it() {
    if !may_trace("what_found_no_room_is_counted_and_nothing_is_made_of_it") {
        return;
    }
    let (listener, port) = listen();
    let trace = Traced::start(port);
    let mut pair = PingPong::open(&listener);
    (0..100).for_each(|_| pair.once());
    trace.signal(Signal::SIGSTOP);
    let status = format!("/proc/{}/status", trace.id());
    let is_stopped = || fs::read_to_string(&status).unwrap().contains("State:\tT");
    let until = Instant::now() + Duration::from_secs(10);
    while !is_stopped() {
        assert!(Instant::now() < until, "it does not stop");
        sleep(Duration::from_millis(1));
    }
    // At least twelve records each, of 250 bytes, and the ring has room for 16 MiB: it is full then.
    (0..10_000).for_each(|_| pair.once());
    // However the machine shares itself out, all of what follows is unread.
    let begin = Instant::now();
    (0..10_000).for_each(|_| pair.once());
    let unread_ns = begin.elapsed().as_nanos() as u64;
    trace.signal(Signal::SIGCONT);
    for _ in 0..300 {
        pair.once();
        sleep(Duration::from_millis(1));
    }
    let own = pair.close();
    let document = trace.end();
    let lost = document["lost_records"].as_u64().unwrap();
    assert!(lost > 0, "{document:#}");
    let remarks = document["remarks"].to_string();
    assert!(remarks.contains(&format!("{lost} records found no room in the ring")), "{remarks}");
    assert_eq!(verdict(sent_by(&document, own), "nagle_delayed_ack")["verdict"], "unknown", "{document:#}");
    let directions = document["worst"].as_array().unwrap();
    assert_eq!(directions.len(), 4, "{document:#}");
    for direction in directions {
        assert!(has_gap(direction), "{direction:#}");
        // On a busy machine a thread may wait for its turn, whoever traces it.
        assert!(found(direction).iter().all(|cause| *cause == "processor"), "{direction:#}");
        assert!(held_ns(direction, "not_known") > unread_ns / 2, "{unread_ns} ns: {direction:#}");
    }
}

/// The command has ended when its name is asked for.
#[test]
fn curl_waits_for_a_server_that_answers_late_and_is_named() {
    const NAME: &str = "curl_waits_for_a_server_that_answers_late_and_is_named";
    const LATE: Duration = Duration::from_millis(700);
    if !has("curl") {
        return skip(NAME, "curl is not installed");
    }
    if !may_trace(NAME) {
        return;
    }
    let (listener, port) = listen();
    let server = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut request: Vec<u8> = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.extend(byte);
        }
        sleep(LATE);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nlately").unwrap();
    });
    let url = format!("http://127.0.0.1:{port}/");
    let mut command = taut();
    command.args(["trace", "--json", "--top", "50", "--", "curl", "-s", &url]);
    // No proxy of this machine's has a part in it.
    let output = command.env("no_proxy", "*").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    server.join().unwrap();
    assert!(text(&output.stderr).contains("lately"), "{}", text(&output.stderr));
    let document = parse(&output);
    adds_up(&document);
    assert_eq!(document["lost_records"], 0);
    assert!(document["traced"].as_str().unwrap().starts_with("curl ("), "{document:#}");
    let asked = sent_to(&document, port);
    let back = |one: &&Value| one["is_outgoing"] == false && one["from"] == asked["to"];
    let answered = document["worst"].as_array().unwrap().iter().find(back).unwrap();
    for direction in [asked, answered] {
        assert!(direction["program"].as_str().unwrap().starts_with("curl ("), "{direction:#}");
        assert_eq!(direction["breakdown"][0]["holder"], "peer_turn", "{direction:#}");
        // The server's kernel may take 40 ms of it to acknowledge.
        let turn = Duration::from_nanos(held_ns(direction, "peer_turn"));
        assert!(turn > LATE - Duration::from_millis(100), "{direction:#}");
        assert!(found(direction).iter().all(|cause| *cause == "processor"), "{direction:#}");
    }
}
