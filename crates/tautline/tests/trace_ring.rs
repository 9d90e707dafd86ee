//! `taut trace` on programs that use io_uring: what they write and read has no system call on the socket.

mod support;
mod trace_support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, sleep};
use std::time::Duration;

use serde_json::Value;
use support::skip;
use trace_support::ring::{By, Ring};
use trace_support::{Traced, may_trace, sent_by, verdict};

/// And cured, it is not named any more.
#[test]
fn what_a_program_writes_by_io_uring_is_seen_whatever_the_operation() {
    const NAME: &str = "what_a_program_writes_by_io_uring_is_seen_whatever_the_operation";
    if !may_trace(NAME) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let trace = Traced::start(address.port());
    let mut ports = Vec::new();
    for (by, is_nodelay) in By::ALL.into_iter().flat_map(|by| [(by, false), (by, true)]) {
        let client = TcpStream::connect(address).unwrap();
        client.set_nodelay(is_nodelay).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let Some(mut client) = Ring::new(client, by) else {
            trace.finish();
            return skip(NAME, "io_uring is not allowed here");
        };
        let server = thread::spawn(move || {
            let mut request = [0; 64];
            while stream.read_exact(&mut request).is_ok() {
                stream.write_all(b"answered").unwrap();
            }
        });
        ports.push((by, is_nodelay, client.stream().unwrap().local_addr().unwrap().port()));
        for _ in 0..30 {
            client.write(&[1; 16]);
            client.write(&[2; 48]);
            assert_eq!(client.read(&mut [0; 8]), 8);
        }
        drop(client);
        server.join().unwrap();
    }
    let document = trace.finish();
    for (by, is_nodelay, port) in ports {
        let direction = sent_by(&document, port);
        assert_eq!(direction["writes"].as_u64(), Some(60), "{by:?}: {direction:#}");
        let is_found = verdict(direction, "nagle_delayed_ack")["verdict"] == "found";
        assert_eq!(is_found, !is_nodelay, "{by:?}: {direction:#}");
        assert!(is_nodelay || direction["held_writes"].as_u64().unwrap() >= 10, "{by:?}: {direction:#}");
        let program = direction["program"].as_str().unwrap();
        assert!(program.contains(&format!("({})", std::process::id())), "{by:?}: {program}");
    }
}

#[test]
fn a_connection_that_io_uring_opened_without_a_descriptor_is_traced_with_its_process() {
    const NAME: &str = "a_connection_that_io_uring_opened_without_a_descriptor_is_traced_with_its_process";
    if !may_trace(NAME) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("not IPv4") };
    let pid = std::process::id().to_string();
    let trace = Traced::of(&["--pid", &pid]);
    let Some(mut client) = Ring::connect(address) else {
        drop(trace.finish());
        return skip(NAME, "io_uring opens no sockets here");
    };
    let (mut server, peer) = listener.accept().unwrap();
    let server = thread::spawn(move || {
        let mut request = [0; 64];
        while server.read_exact(&mut request).is_ok() {
            server.write_all(b"answered").unwrap();
        }
    });
    for _ in 0..30 {
        client.write(&[1; 16]);
        client.write(&[2; 48]);
        assert_eq!(client.read(&mut [0; 8]), 8);
    }
    drop(client);
    server.join().unwrap();
    let document = trace.finish();
    let direction = sent_by(&document, peer.port());
    assert_eq!(direction["writes"].as_u64(), Some(60), "{direction:#}");
    assert_eq!(verdict(direction, "nagle_delayed_ack")["verdict"], "found", "{direction:#}");
}

/// Without its reads the requests would seem to wait in the socket until the answer goes.
#[test]
fn a_server_that_reads_by_io_uring_at_once_and_answers_late_holds_nothing_back_by_reading() {
    const NAME: &str = "a_server_that_reads_by_io_uring_at_once_and_answers_late_holds_nothing_back_by_reading";
    if !may_trace(NAME) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let trace = Traced::start(address.port());
    for by in By::ALL {
        let mut client = TcpStream::connect(address).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let Some(mut server) = Ring::new(stream, by) else {
            trace.finish();
            return skip(NAME, "io_uring is not allowed here");
        };
        let server = thread::spawn(move || {
            while server.read(&mut [0; 64]) == 64 {
                sleep(Duration::from_millis(20));
                server.write(b"answered");
            }
        });
        for _ in 0..20 {
            client.write_all(&[1; 64]).unwrap();
            client.read_exact(&mut [0; 8]).unwrap();
        }
        drop(client);
        server.join().unwrap();
    }
    let document = trace.finish();
    let directions = document["worst"].as_array().unwrap().iter();
    let end = format!(":{}", address.port());
    let inward: Vec<&Value> =
        directions.filter(|one| one["is_outgoing"] == false && one["to"].as_str().unwrap().ends_with(&end)).collect();
    assert_eq!(inward.len(), By::ALL.len(), "{document:#}");
    for direction in inward {
        assert_ne!(verdict(direction, "receiving_program")["verdict"], "found", "{direction:#}");
    }
}
