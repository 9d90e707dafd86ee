//! `taut trace` of what comes before a program's first call on a connection, and after it has closed its side. Where
//! the kernel does not let this user trace, they are skipped.

mod support;
mod trace_support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;

use serde_json::Value;
use support::skip;
use trace_support::{Traced, has_gap, may_trace, verdict};

/// Not traced, as it was there before: connects when it is told to, and writes at once.
fn stranger(port: u16) -> Child {
    let script = format!("read line; exec 3<>/dev/tcp/127.0.0.1/{port}; printf hello >&3; cat <&3");
    Command::new("bash").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
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

fn waited_for_reader_ns(direction: &Value) -> u64 {
    let mut rows = direction["breakdown"].as_array().unwrap().iter();
    let row = rows.find(|row| row["holder"] == "receiving_program");
    row.and_then(|row| row["held_ns"].as_u64()).unwrap_or_default()
}

#[test]
fn a_request_that_waits_until_its_connection_is_accepted_is_held_by_the_server() {
    const NAME: &str = "a_request_that_waits_until_its_connection_is_accepted_is_held_by_the_server";
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
        sleep(Duration::from_millis(400));
        let (mut stream, _) = listener.accept().unwrap();
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
        assert_eq!(verdict(direction, "receiving_program")["verdict"], "found", "{direction:#}");
        assert!((200_000_000..2_000_000_000).contains(&waited_for_reader_ns(direction)), "{direction:#}");
    }
}

#[test]
fn what_comes_after_a_half_close_is_seen_and_so_is_what_is_read_after_the_end() {
    const NAME: &str = "what_comes_after_a_half_close_is_seen_and_so_is_what_is_read_after_the_end";
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
    assert!((400_000_000..3_000_000_000).contains(&waited_for_reader_ns(direction)), "{direction:#}");
}
