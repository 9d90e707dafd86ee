//! `taut sockets` beside connections whose state is known.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::sockopt::{set_tcp_cork, set_tcp_quickack};
use serde_json::Value;
use support::{is_root, parse, run, skip, taut, text};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn own_sockets(more: &[&str]) -> Value {
    let pid = std::process::id().to_string();
    let output = taut().args(["sockets", "--json", "--pid", &pid]).args(more).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    parse(&output)
}

fn row<'a>(document: &'a Value, socket: &TcpStream) -> &'a Value {
    let (local, peer) = (socket.local_addr().unwrap().to_string(), socket.peer_addr().unwrap().to_string());
    let rows = document["sockets"].as_array().unwrap();
    rows.iter().find(|row| row["local"] == local.as_str() && row["peer"] == peer.as_str()).unwrap()
}

fn causes(row: &Value) -> Vec<&str> {
    row["suspicions"].as_array().unwrap().iter().filter_map(|one| one["cause"].as_str()).collect()
}

/// Two writes and a read: the second write is held until the delayed ACK of the first.
fn requests(mut client: TcpStream, mut server: TcpStream, no_delay: bool) -> Value {
    client.set_nodelay(no_delay).unwrap();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (mut reader, end) = (server.try_clone().unwrap(), &end);
        scope.spawn(move || {
            let mut request = [0; 8];
            while reader.read_exact(&mut request).is_ok() {
                if server.write_all(b"answer").is_err() {
                    break;
                }
            }
        });
        let (mut writer, shown) = (client.try_clone().unwrap(), client.try_clone().unwrap());
        scope.spawn(move || {
            let mut answer = [0; 6];
            while !end.load(Ordering::Relaxed) {
                writer.write_all(b"head").unwrap();
                writer.write_all(b"body").unwrap();
                client.read_exact(&mut answer).unwrap();
                if no_delay {
                    std::thread::sleep(Duration::from_millis(40));
                }
            }
            client.shutdown(std::net::Shutdown::Both).unwrap();
        });
        let document = own_sockets(&["--time", "2s"]);
        end.store(true, Ordering::Relaxed);
        row(&document, &shown).clone()
    })
}

#[test]
fn a_small_write_that_nagle_holds_is_told_and_none_with_nodelay() {
    if !is_root() {
        return skip(
            "a_small_write_that_nagle_holds_is_told_and_none_with_nodelay",
            "root reads the options of others",
        );
    }
    let (client, server) = pair();
    let held = requests(client, server, false);
    assert_eq!(causes(&held), ["nagle_delayed_ack"], "{held:#}");
    assert_eq!((held["nodelay"].as_bool(), held["cork"].as_bool()), (Some(false), Some(false)));
    let (client, server) = pair();
    let prompt = requests(client, server, true);
    assert!(!causes(&prompt).contains(&"nagle_delayed_ack"), "{prompt:#}");
    assert_eq!(prompt["nodelay"], true);
}

/// No list of the kernel has them.
#[test]
fn the_options_of_each_socket_are_those_that_its_program_has_set() {
    if !is_root() {
        return skip(
            "the_options_of_each_socket_are_those_that_its_program_has_set",
            "root reads the options of others",
        );
    }
    let (client, server) = pair();
    let told = |document: &Value, socket: &TcpStream| {
        ["nodelay", "cork", "quickack"].map(|option| row(document, socket)[option].as_bool().unwrap())
    };
    for [nodelay, cork, quickack] in [[true, false, true], [false, true, false], [false, false, true]] {
        client.set_nodelay(nodelay).unwrap();
        set_tcp_cork(&client, cork).unwrap();
        set_tcp_quickack(&client, quickack).unwrap();
        let document = own_sockets(&["--time", "0s"]);
        assert_eq!(told(&document, &client), [nodelay, cork, quickack]);
        assert_eq!(told(&document, &server)[..2], [false, false]);
    }
}

#[test]
fn who_does_not_read_is_named_at_both_ends() {
    let (mut client, server) = pair();
    client.set_nonblocking(true).unwrap();
    let chunk = [0; 1 << 16];
    while client.write(&chunk).is_ok() {}
    let document = own_sockets(&["--time", "500ms"]);
    let (ours, theirs) = (row(&document, &client), row(&document, &server));
    let waits = causes(ours);
    assert!(waits.contains(&"receiving_program"), "{ours:#}");
    assert_eq!(causes(theirs), ["unread"], "{theirs:#}");
    // Who has it now, and what is there.
    assert!(["receiving_program", "receive_window"].contains(&ours["holder"].as_str().unwrap()), "{ours:#}");
    assert!(ours["unsent_bytes"].as_u64() > Some(0) && theirs["unread_bytes"].as_u64() > Some(0), "{document:#}");
    // The time breakdown adds up.
    for row in [ours, theirs] {
        let held: u64 = row["held"].as_array().unwrap().iter().filter_map(|held| held["held_ns"].as_u64()).sum();
        assert_eq!(held + row["idle_ns"].as_u64().unwrap(), row["span_ns"].as_u64().unwrap());
    }
    assert!(theirs["peer_program"].as_str().unwrap().contains(&std::process::id().to_string()));
}

#[test]
fn a_full_accept_queue_is_told_with_those_that_wait_in_it() {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    // A queue takes one more than its backlog.
    let mut waiting = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    waiting[0].write_all(b"question").unwrap();
    let of_port = |more: &[&str]| {
        let output = taut().args(["sockets", "--port", &address.port().to_string()]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    };
    let document = parse(&of_port(&["--json", "--time", "500ms"]));
    let rows = document["sockets"].as_array().unwrap();
    let listening = rows.iter().find(|row| row["state"] == "listen").unwrap();
    assert_eq!(causes(listening), ["accept_queue"]);
    assert_eq!((listening["accept_queue"].as_u64(), listening["backlog"].as_u64()), (Some(2), Some(1)));
    let (local, peer) = (address.to_string(), waiting[0].local_addr().unwrap().to_string());
    let server = rows.iter().find(|row| row["local"] == local.as_str() && row["peer"] == peer.as_str()).unwrap();
    assert_eq!(causes(server), ["not_accepted"]);
    assert_eq!((server["is_held"].as_bool(), server["pid"].as_u64()), (Some(false), None));
    let table = text(&of_port(&["--time", "500ms"]).stdout);
    assert!(table.contains(&format!("{address} listens")) && table.contains("2 to be accepted, backlog 1"), "{table}");
    assert!(table.contains("no program has accepted it"), "{table}");
    // With room again there is nothing to tell of the listening socket.
    drop((listener.accept().unwrap(), listener.accept().unwrap()));
    let document = parse(&of_port(&["--json", "--time", "200ms"]));
    assert!(document["sockets"].as_array().unwrap().iter().all(|row| row["state"] != "listen"));
}

#[test]
fn too_few_looks_give_no_verdict() {
    let (_client, mut server) = pair();
    let port = server.local_addr().unwrap().port();
    server.write_all(b"unread").unwrap();
    let output = run(&format!("sockets --time 0s --port {port}"));
    let table = text(&output.stdout);
    assert!(table.starts_with("TCP sockets: 2, looked at once; too few looks"), "{table}");
}

#[test]
fn without_rights_the_list_is_whole_and_says_what_is_missing() {
    if !is_root() {
        return skip("without_rights_the_list_is_whole_and_says_what_is_missing", "needs root to give it up");
    }
    let (_client, server) = pair();
    let port = server.local_addr().unwrap().port();
    // A copy where another user reaches it.
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("taut");
    std::fs::copy(env!("CARGO_BIN_EXE_taut"), &program).unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = std::os::unix::process::CommandExt::uid(&mut std::process::Command::new(&program), 65_534)
        .args(["sockets", "--time", "200ms", "--port", &port.to_string()])
        .output()
        .unwrap();
    let table = text(&output.stdout);
    assert!(table.starts_with("TCP sockets: 2, ") && table.contains("options ?"), "{table}");
    assert!(table.contains("The options of 2 sockets can't be looked at") && table.contains("as root"), "{table}");
}

#[test]
fn idle_connections_are_listed_and_not_suspicious() {
    let (client, server) = pair();
    let port = server.local_addr().unwrap().port();
    let document = own_sockets(&["--time", "200ms", "--port", &port.to_string()]);
    assert_eq!(document["sockets"].as_array().unwrap().len(), 2);
    assert!(causes(row(&document, &client)).is_empty());
    let output = run(&format!("sockets --time 100ms --port {port}"));
    let table = text(&output.stdout);
    assert!(table.starts_with("TCP sockets: 2, looked at "), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
}

#[test]
fn what_is_no_process_of_ours_is_refused_with_what_to_do() {
    let output = run("sockets --pid 2147483647");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr), "taut: there is no process 2147483647\n");
    assert_eq!(run("sockets --pid 0").status.code(), Some(2));
}
