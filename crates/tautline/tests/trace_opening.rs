//! `taut trace` of connections that do not open at once. Where the kernel does not let this user trace, they are
//! skipped.

mod support;
mod trace_support;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use serde_json::Value;
use support::skip;
use trace_support::first::own_network;
use trace_support::{Traced, has_gap, may_trace, sent_by, verdict};

/// A listening socket with a backlog of 1.
fn narrow(at: Ipv4Addr) -> (TcpListener, SocketAddr) {
    let own = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&own, &SocketAddrV4::new(at, 0)).unwrap();
    listen(&own, 1).unwrap();
    let listener = TcpListener::from(own);
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn lines(verdict: &Value) -> String {
    verdict["evidence"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["text"].as_str().unwrap())
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn a_connection_that_a_full_accept_queue_keeps_out_is_named_with_the_queue() {
    if !may_trace("a_connection_that_a_full_accept_queue_keeps_out_is_named_with_the_queue") {
        return;
    }
    let (listener, address) = narrow(Ipv4Addr::LOCALHOST);
    // The kernel takes one more than the backlog.
    let waiting = [0; 2].map(|_| TcpStream::connect(address).unwrap());
    let trace = Traced::start(address.port());
    // Its first segment is dropped, and sent again after a second.
    let refused = TcpStream::connect_timeout(&address, Duration::from_millis(1500));
    assert!(refused.is_err(), "the queue was not full");
    let document = trace.finish();
    let all = document["worst"].as_array().unwrap();
    let to = address.to_string();
    let found = all.iter().find(|one| one["to"] == to.as_str() && one["is_outgoing"] == true);
    let direction = found.unwrap_or_else(|| panic!("{document:#}"));
    if has_gap(direction) {
        return skip("a_connection_that_a_full_accept_queue_keeps_out", "events were missed here");
    }
    let opening = verdict(direction, "handshake_repeated");
    assert_eq!((&opening["verdict"], &opening["side"]), (&"found".into(), &"receiver".into()), "{direction:#}");
    let evidence = lines(opening);
    assert!(evidence.contains("2 connections wait to be accepted, with a backlog of 1"), "{evidence}");
    assert!(opening["remedy"].as_str().unwrap().contains("net.core.somaxconn"), "{opening:#}");
    let (held, span) = (&direction["breakdown"][0], direction["span_ns"].as_u64().unwrap());
    assert_eq!(held["holder"], "handshake", "{direction:#}");
    assert!((1_300_000_000..5_000_000_000).contains(&span), "{direction:#}");
    assert!(direction["program"].as_str().unwrap().contains(&format!("({})", std::process::id())), "{direction:#}");
    drop((listener, waiting));
}

/// A device with an address, and somebody at its other end who never answers.
const SILENT: &str = "set -e
ip link set lo up
ip link add taut0 type veth peer name taut1
ip addr add 192.0.2.1/24 dev taut0
ip link set taut0 up
ip link set taut1 up
ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev taut0";

/// A socket of this host that listens at the same port has nothing to do with it, however full its queue is.
#[test]
fn a_connection_to_a_host_that_is_silent_is_not_laid_to_a_socket_that_listens_here() {
    const NAME: &str = "a_connection_to_a_host_that_is_silent_is_not_laid_to_a_socket_that_listens_here";
    if !may_trace(NAME) {
        return;
    }
    if !own_network() || !Command::new("sh").args(["-c", SILENT]).status().is_ok_and(|status| status.success()) {
        return skip(NAME, "takes a network of its own with devices");
    }
    let (listener, address) = narrow(Ipv4Addr::UNSPECIFIED);
    let waiting = [0; 2].map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).unwrap());
    let trace = Traced::start(address.port());
    let silent = SocketAddr::from(([192, 0, 2, 9], address.port()));
    assert!(TcpStream::connect_timeout(&silent, Duration::from_millis(1500)).is_err());
    let document = trace.finish();
    let all = document["worst"].as_array().unwrap();
    let found = all.iter().find(|one| one["to"] == silent.to_string().as_str() && one["is_outgoing"] == true);
    let direction = found.unwrap_or_else(|| panic!("{document:#}"));
    if has_gap(direction) {
        return skip(NAME, "events were missed here");
    }
    let opening = verdict(direction, "handshake_repeated");
    let summary = opening["summary"].as_str().unwrap_or_else(|| panic!("{direction:#}"));
    assert!(summary.starts_with("Nobody answered the connection's first segment"), "{summary}");
    assert!(!lines(opening).contains("on this host"), "{opening:#}");
    drop((listener, waiting));
}

#[test]
fn a_connection_that_opens_at_once_has_a_handshake_and_no_finding() {
    if !may_trace("a_connection_that_opens_at_once_has_a_handshake_and_no_finding") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let trace = Traced::start(address.port());
    let mut client = TcpStream::connect(address).unwrap();
    let own = client.local_addr().unwrap().port();
    let (mut server, _) = listener.accept().unwrap();
    let mut got = [0; 4];
    std::io::Write::write_all(&mut client, b"data").unwrap();
    std::io::Read::read_exact(&mut server, &mut got).unwrap();
    drop(client);
    drop(server);
    let document = trace.finish();
    let direction = sent_by(&document, own);
    assert_eq!(direction["bytes"], 4, "{direction:#}");
    let holders = direction["breakdown"].as_array().unwrap();
    assert!(holders.iter().any(|row| row["holder"] == "handshake" && row["episodes"] == 1), "{direction:#}");
    assert_ne!(verdict(direction, "handshake_repeated")["verdict"], "found", "{direction:#}");
}
