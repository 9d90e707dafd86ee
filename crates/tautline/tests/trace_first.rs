//! `taut trace` of connections whose first data goes by other ways than write(2), and of programs that are gone before
//! anybody looks for their names. Where the kernel does not let this user trace, they are skipped.

mod support;
mod trace_support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use rustix::net::{bind, listen};
use serde_json::Value;
use support::{parse, skip, taut};
use trace_support::first::{FastOpen, Way, connect, fast_listener, own_network, splice_out, stream};
use trace_support::{Traced, has_gap, may_trace, sent_by, verdict};

/// Answers each request of so many bytes, until the client ends it.
fn answering(listener: TcpListener, request: usize) -> JoinHandle<()> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; request];
        while stream.read_exact(&mut bytes).is_ok() {
            stream.write_all(b"answered").unwrap();
        }
    })
}

/// Of a port, and of a process.
fn scopes(port: u16) -> [[String; 2]; 2] {
    [["--port".to_owned(), port.to_string()], ["--pid".to_owned(), std::process::id().to_string()]]
}

fn start(scope: &[String; 2]) -> Traced {
    Traced::of(&[&scope[0], &scope[1]])
}

fn own_program(direction: &Value) -> bool {
    direction["program"].as_str().unwrap().contains(&format!("({})", std::process::id()))
}

/// The direction in which this end receives.
fn received_at(document: &Value, end: SocketAddr) -> &Value {
    let end = end.to_string();
    let mut directions = document["worst"].as_array().unwrap().iter();
    let found = directions.find(|one| one["is_outgoing"] == false && one["to"] == end.as_str());
    found.unwrap_or_else(|| panic!("{document:#}"))
}

#[test]
fn the_first_write_of_a_connection_is_seen_whatever_hands_it_over() {
    const NAME: &str = "the_first_write_of_a_connection_is_seen_whatever_hands_it_over";
    if !may_trace(NAME) {
        return;
    }
    for way in Way::ALL {
        for scope in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let trace = start(&scopes(address.port())[scope]);
            let mut client = TcpStream::connect(address).unwrap();
            let port = client.local_addr().unwrap().port();
            let server = answering(listener, 100);
            for _ in 0..5 {
                way.write(&client, &[1; 100]);
                client.read_exact(&mut [0; 8]).unwrap();
            }
            drop(client);
            server.join().unwrap();
            let document = trace.finish();
            let direction = sent_by(&document, port);
            assert_eq!((&direction["writes"], &direction["bytes"]), (&5.into(), &500.into()), "{way:?} {direction:#}");
            assert!(own_program(direction), "{way:?}: {direction:#}");
        }
    }
}

/// Without these reads the requests would seem to wait in the socket until the answer goes.
#[test]
fn what_a_program_takes_by_splice_does_not_wait_for_it() {
    const NAME: &str = "what_a_program_takes_by_splice_does_not_wait_for_it";
    if !may_trace(NAME) {
        return;
    }
    for scope in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let trace = start(&scopes(address.port())[scope]);
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let server = thread::spawn(move || {
            while splice_out(&server) > 0 {
                sleep(Duration::from_millis(20));
                server.write_all(b"answered").unwrap();
            }
        });
        for _ in 0..20 {
            client.write_all(&[1; 64]).unwrap();
            client.read_exact(&mut [0; 8]).unwrap();
        }
        drop(client);
        server.join().unwrap();
        let document = trace.finish();
        let direction = received_at(&document, address);
        if has_gap(direction) {
            return skip(NAME, "events were missed here");
        }
        assert_eq!(direction["bytes"], 20 * 64, "{direction:#}");
        assert_ne!(verdict(direction, "receiving_program")["verdict"], "found", "{direction:#}");
    }
}

#[test]
fn data_in_the_first_segment_is_a_write_that_nothing_held() {
    const NAME: &str = "data_in_the_first_segment_is_a_write_that_nothing_held";
    if !may_trace(NAME) {
        return;
    }
    // The network is that of a thread.
    let staged = thread::spawn(|| {
        if !own_network() {
            return skip(NAME, "no network of its own here");
        }
        for how in FastOpen::ALL {
            for scope in 0..2 {
                let (listener, address) = fast_listener();
                let trace = start(&scopes(address.port())[scope]);
                let server = answering(listener, 100);
                let mut client = how.open(address, &[1; 100]);
                let port = client.local_addr().unwrap().port();
                for _ in 0..4 {
                    client.read_exact(&mut [0; 8]).unwrap();
                    sleep(Duration::from_millis(5));
                    client.write_all(&[2; 100]).unwrap();
                }
                client.read_exact(&mut [0; 8]).unwrap();
                drop(client);
                server.join().unwrap();
                let document = trace.finish();
                let direction = sent_by(&document, port);
                let context = format!("{how:?}, {}: {direction:#}", ["port", "pid"][scope]);
                assert_eq!((&direction["writes"], &direction["bytes"]), (&5.into(), &500.into()), "{context}");
                assert_eq!(direction["held_writes"], 0, "{context}");
                assert!(own_program(direction) && !has_gap(direction), "{context}");
                let inward = received_at(&document, address.into());
                assert_eq!(inward["bytes"], 500, "{how:?}: {inward:#}");
            }
        }
    });
    staged.join().unwrap();
}

/// As systemd or inetd hands one over: the program has neither opened nor accepted it, and reads when the trace begins.
#[test]
fn what_a_program_does_with_a_connection_that_it_has_inherited_is_seen() {
    const NAME: &str = "what_a_program_does_with_a_connection_that_it_has_inherited_is_seen";
    if !may_trace(NAME) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let (server, _) = listener.accept().unwrap();
    let [input, output] = [server.try_clone().unwrap(), server].map(|stream| Stdio::from(OwnedFd::from(stream)));
    let echo = "while read -r line; do echo \"$line\"; done";
    let mut program = Command::new("sh").args(["-c", echo]).stdin(input).stdout(output).spawn().unwrap();
    let mut ask = || {
        client.write_all(b"hello\n").unwrap();
        client.read_exact(&mut [0; 6]).unwrap();
    };
    // It is there, and reads.
    ask();
    let trace = Traced::of(&["--pid", &program.id().to_string()]);
    (0..10).for_each(|_| ask());
    let document = trace.finish();
    drop(client);
    program.wait().unwrap();
    let (sent, received) = (sent_by(&document, address.port()), received_at(&document, address));
    assert!([sent, received].iter().all(|one| one["program"].as_str().unwrap().starts_with("sh (")), "{document:#}");
    assert_eq!(sent["writes"], 10, "{sent:#}");
    if !has_gap(sent) {
        assert_eq!((&sent["bytes"], &received["bytes"]), (&60.into(), &60.into()), "{document:#}");
    }
}

/// They are gone within a millisecond, and nothing looks for names so soon.
#[test]
fn a_program_that_is_gone_at_once_is_named() {
    const NAME: &str = "a_program_that_is_gone_at_once_is_named";
    if !may_trace(NAME) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        for _ in 0..20 {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 2]).unwrap();
            stream.write_all(b"ok").unwrap();
        }
    });
    let once = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf hi >&3; read -N 2 -u 3 answer");
    let trace = Traced::start(port);
    for _ in 0..10 {
        assert!(Command::new("bash").args(["-c", &once]).status().unwrap().success());
    }
    let named = trace.finish();
    // What a command forks is gone before the command is.
    let many = format!("for i in 1 2 3 4 5 6 7 8 9 10; do ({once}); done; true");
    let options = ["trace", "--json", "--top", "200", "--", "bash", "-c", &many];
    let forked = parse(&taut().args(options).output().unwrap());
    server.join().unwrap();
    for document in [named, forked] {
        let directions = document["worst"].as_array().unwrap().iter();
        let to = format!("127.0.0.1:{port}");
        let clients: Vec<&Value> =
            directions.filter(|one| one["is_outgoing"] == true && one["to"] == to.as_str()).collect();
        assert_eq!(clients.len(), 10, "{document:#}");
        for client in clients {
            assert!(client["program"].as_str().unwrap().starts_with("bash ("), "{client:#}");
        }
    }
}

#[test]
fn a_path_of_mptcp_is_said_to_be_one_at_both_ends() {
    const NAME: &str = "a_path_of_mptcp_is_said_to_be_one_at_both_ends";
    if !may_trace(NAME) {
        return;
    }
    for scope in 0..2 {
        let (Ok(mut client), Ok(listener)) = (stream(libc::IPPROTO_MPTCP), stream(libc::IPPROTO_MPTCP)) else {
            return skip(NAME, "no MPTCP here");
        };
        bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listener = TcpListener::from(OwnedFd::from(listener));
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("not IPv4") };
        let trace = start(&scopes(address.port())[scope]);
        listen(&listener, 5).unwrap();
        let server = answering(listener, 100);
        connect(&client, address);
        let port = client.local_addr().unwrap().port();
        for _ in 0..5 {
            client.write_all(&[1; 100]).unwrap();
            client.read_exact(&mut [0; 8]).unwrap();
        }
        drop(client);
        server.join().unwrap();
        let document = trace.finish();
        for port in [port, address.port()] {
            let direction = sent_by(&document, port);
            let remarks = direction["remarks"].to_string();
            assert!(remarks.contains("one path of a connection of MPTCP"), "{direction:#}");
        }
    }
}
