//! `taut trace` of what comes before a program's first call on a connection, and after it has closed its side. Where
//! the kernel does not let this user trace, they are skipped.

mod support;
mod trace_support;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Serve, skip};
use trace_support::{Traced, has_gap, may_trace, sent_by, verdict};

/// All of them trace this process. Where another one's connections wait as well, a queue may be looked at too late.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Not traced, as it was there before: connects when it is told to, and writes at once.
fn stranger(port: u16) -> Child {
    let script = format!("read line; exec 3<>/dev/tcp/127.0.0.1/{port}; printf hello >&3; cat <&3");
    Command::new("bash")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// How many connections wait to be accepted at a port: what the kernel tells of a socket that listens in the place of
/// what waits to be read (`get_tcp4_sock` of net/ipv4/tcp_ipv4.c).
fn waiting_at(port: u16) -> u32 {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let end = format!(":{port:04X}");
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields.len() > 4 && fields[1].ends_with(&end) && fields[3] == "0A";
        listens.then(|| u32::from_str_radix(fields[4].split_once(':').unwrap().1, 16).unwrap())
    };
    table.lines().find_map(of_line).unwrap_or(0)
}

/// Waits until so many do, however late a stranger comes on a busy machine.
fn wait_for_waiting(port: u16, count: u32) {
    let until = Instant::now() + Duration::from_secs(20);
    while waiting_at(port) < count {
        assert!(Instant::now() < until, "{} of {count} wait", waiting_at(port));
        sleep(Duration::from_millis(1));
    }
}

/// The direction in which this port receives.
fn received_at(document: &Value, port: u16) -> &Value {
    let end = format!(":{port}");
    let mut directions = document["worst"].as_array().unwrap().iter();
    let found = directions.find(|one| {
        one["transport"] == "tcp" && one["is_outgoing"] == false && one["to"].as_str().unwrap().ends_with(&end)
    });
    found.unwrap_or_else(|| panic!("{document:#}"))
}

fn held_ns(direction: &Value, holder: &str) -> u64 {
    let mut rows = direction["breakdown"].as_array().unwrap().iter();
    let row = rows.find(|row| row["holder"] == holder);
    row.and_then(|row| row["held_ns"].as_u64()).unwrap_or_default()
}

fn lines(verdict: &Value) -> String {
    let lines = verdict["evidence"].as_array().unwrap().iter();
    lines.map(|line| line["text"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_request_that_waits_until_its_connection_is_accepted_is_held_by_the_server() {
    const NAME: &str = "a_request_that_waits_until_its_connection_is_accepted_is_held_by_the_server";
    let _alone = alone();
    if !may_trace(NAME) {
        return;
    }
    for listens_before in [true, false] {
        let port = support::free_port();
        let listen = || TcpListener::bind(("127.0.0.1", port)).unwrap();
        let before = listens_before.then(listen);
        let mut client = stranger(port);
        let trace = Traced::of(&["--pid", &std::process::id().to_string()]);
        let listener = before.unwrap_or_else(listen);
        client.stdin.take().unwrap().write_all(b"\n").unwrap();
        wait_for_waiting(port, 1);
        sleep(Duration::from_millis(400));
        let (mut stream, _) = listener.accept().unwrap();
        sleep(Duration::from_millis(250));
        let mut request = [0; 5];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(b"hi").unwrap();
        drop(stream);
        assert!(client.wait().unwrap().success());
        let document = trace.finish();
        let direction = received_at(&document, port);
        if has_gap(direction) {
            return skip(NAME, "events were missed here");
        }
        assert_eq!(direction["bytes"], 5, "{direction:#}");
        for (cause, holder, least) in
            [("accept_late", "accept_queue", 300_000_000), ("receiving_program", "receiving_program", 200_000_000)]
        {
            assert_eq!(verdict(direction, cause)["verdict"], "found", "{direction:#}");
            assert!((least..2_000_000_000).contains(&held_ns(direction, holder)), "{direction:#}");
        }
        let evidence = lines(verdict(direction, "accept_late"));
        assert!(evidence.contains("1 connection waits to be accepted, with a backlog of 128, so there"), "{evidence}");
    }
}

/// A program that is not traced listens at the same port, and does not accept.
#[test]
fn what_waits_for_another_program_is_not_laid_to_the_one_that_is_traced() {
    const NAME: &str = "what_waits_for_another_program_is_not_laid_to_the_one_that_is_traced";
    let _alone = alone();
    if !may_trace(NAME) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut other = Serve::start(&format!("tcp://127.0.0.2:{port}"));
    let pid = Pid::from_raw(other.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let trace = Traced::of(&["--pid", &std::process::id().to_string()]);
    let clients = ["127.0.0.1", "127.0.0.2"].map(|address| TcpStream::connect((address, port)).unwrap());
    clients.iter().for_each(|mut client| client.write_all(b"hello").unwrap());
    sleep(Duration::from_millis(500));
    let document = trace.finish();
    other.kill();
    drop(listener);
    let directions = document["worst"].as_array().unwrap().iter();
    let ends = directions.filter(|one| one["transport"] == "tcp" && one["is_outgoing"] == false).map(|one| &one["to"]);
    assert_eq!(ends.collect::<Vec<_>>(), [&format!("127.0.0.1:{port}")], "{document:#}");
}

/// A queue with room for two, which nobody empties for a while, and of which one is never taken.
#[test]
fn connections_in_a_full_accept_queue_are_named_with_it_by_a_trace_of_the_server() {
    const NAME: &str = "connections_in_a_full_accept_queue_are_named_with_it_by_a_trace_of_the_server";
    let _alone = alone();
    if !may_trace(NAME) {
        return;
    }
    let port = support::free_port();
    let mut clients = [(); 2].map(|()| stranger(port));
    let trace = Traced::of(&["--pid", &std::process::id().to_string()]);
    let own = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&own, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).unwrap();
    listen(&own, 1).unwrap();
    let listener = TcpListener::from(own);
    let connecting: Vec<_> = clients.iter_mut().map(|client| client.stdin.take().unwrap()).collect();
    connecting.into_iter().for_each(|mut stdin| stdin.write_all(b"\n").unwrap());
    wait_for_waiting(port, 2);
    sleep(Duration::from_millis(700));
    let (stream, _) = listener.accept().unwrap();
    sleep(Duration::from_millis(100));
    let document = trace.finish();
    drop((stream, listener));
    for client in &mut clients {
        let _ = client.kill();
        client.wait().unwrap();
    }
    let end = format!("127.0.0.1:{port}");
    let directions = document["worst"].as_array().unwrap().iter();
    let waiting: Vec<&Value> =
        directions.filter(|one| one["is_outgoing"] == false && one["to"] == end.as_str()).collect();
    assert_eq!(waiting.len(), 2, "{document:#}");
    if waiting.iter().any(|one| has_gap(one)) {
        return skip(NAME, "events were missed here");
    }
    for one in &waiting {
        let late = verdict(one, "accept_late");
        assert_eq!((&late["verdict"], &late["side"]), (&"found".into(), &"receiver".into()), "{one:#}");
        assert!(lines(late).contains("2 connections wait to be accepted, with a backlog of 1, so the"), "{one:#}");
        assert!(late["summary"].as_str().unwrap().contains("was full"), "{one:#}");
        assert!(late["remedy"].as_str().unwrap().contains("net.core.somaxconn"), "{one:#}");
    }
    let never = waiting.iter().filter(|one| lines(verdict(one, "accept_late")).contains("It was not accepted"));
    assert_eq!(never.count(), 1, "{document:#}");
}

/// It has nothing more to send, and does not read: nobody waits for anything on this connection.
#[test]
fn what_is_left_after_a_program_has_closed_its_side_is_nobodys_time() {
    const NAME: &str = "what_is_left_after_a_program_has_closed_its_side_is_nobodys_time";
    let _alone = alone();
    if !may_trace(NAME) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let trace = Traced::start(address.port());
    let mut client = TcpStream::connect(address).unwrap();
    let port = client.local_addr().unwrap().port();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[1; 1000]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    server.read_to_end(&mut Vec::new()).unwrap();
    // Its kernel acknowledges the end by a timer.
    sleep(Duration::from_millis(500));
    drop(server);
    drop(client);
    sleep(Duration::from_millis(50));
    let document = trace.finish();
    let direction = sent_by(&document, port);
    if has_gap(direction) {
        return skip(NAME, "events were missed here");
    }
    assert_eq!(direction["bytes"], 1000, "{direction:#}");
    assert!(direction["span_ns"].as_u64().unwrap() < 400_000_000, "{direction:#}");
    assert!(held_ns(direction, "delivery") < 30_000_000, "{direction:#}");
}

#[test]
fn what_comes_after_a_half_close_is_seen_and_so_is_what_is_read_after_the_end() {
    const NAME: &str = "what_comes_after_a_half_close_is_seen_and_so_is_what_is_read_after_the_end";
    let _alone = alone();
    if !may_trace(NAME) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        stream.write_all(&[1; 30_000]).unwrap();
    });
    let trace = Traced::of(&["--pid", &std::process::id().to_string()]);
    let mut client = TcpStream::connect(address).unwrap();
    let port = client.local_addr().unwrap().port();
    client.write_all(b"hello").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    server.join().unwrap();
    // All of it is there by now, and the server's end, too.
    let mut part = [0; 10_000];
    for _ in 0..3 {
        sleep(Duration::from_millis(150));
        client.read_exact(&mut part).unwrap();
    }
    assert_eq!(client.read(&mut part).unwrap(), 0);
    let document = trace.finish();
    let direction = received_at(&document, port);
    if has_gap(direction) {
        return skip(NAME, "this kernel does not tell what comes after a half-close");
    }
    assert_eq!(direction["bytes"], 30_000, "{direction:#}");
    assert_eq!(verdict(direction, "receiving_program")["verdict"], "found", "{direction:#}");
    assert!((400_000_000..3_000_000_000).contains(&held_ns(direction, "receiving_program")), "{direction:#}");
}
