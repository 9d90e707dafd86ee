//! `taut trace` of programs in namespaces of their own, of a systemd unit, and from within a namespace. Where the
//! kernel does not let this user trace, or make namespaces, these are skipped.

mod support;
mod trace_support;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use serde_json::Value;
use support::{free_port, is_root, skip, taut, text};
use trace_support::first::own_network;
use trace_support::staged::Staged;
use trace_support::{Traced, found, has_gap, may_trace, sent_by, sent_to};

/// As a container has it: processes have numbers of their own, and /proc tells these. It ends with unshare(1).
const OWN_NUMBERS: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];

/// Long enough for a cause to be found.
const WHILE: Duration = Duration::from_secs(2);

/// `taut` in new namespaces.
fn unshared(options: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(options).arg(taut().get_program()).stdin(Stdio::null());
    command
}

/// Whether the test can run: it may trace, and make these namespaces.
fn can_run(test: &str, options: &[&str]) -> bool {
    let tried = Command::new("unshare").args(options).arg("true").output();
    let is_allowed = is_root() && tried.is_ok_and(|output| output.status.success());
    if !is_allowed {
        skip(test, &format!("takes root and unshare {}", options.join(" ")));
        return false;
    }
    may_trace(test)
}

/// The number that the only child of a process has here.
fn child_of(parent: u32) -> u32 {
    let parent = format!("PPid:\t{parent}");
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    let mut numbers = processes.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    // Others may end meanwhile.
    let is_child = |number: &u32| {
        fs::read_to_string(format!("/proc/{number}/status"))
            .is_ok_and(|status| status.lines().any(|line| line == parent))
    };
    numbers.find(is_child).unwrap()
}

#[test]
fn a_process_of_another_pid_namespace_is_traced_by_the_number_that_it_has_here() {
    if !can_run("a_process_of_another_pid_namespace_is_traced_by_the_number_that_it_has_here", &OWN_NUMBERS) {
        return;
    }
    let program = Staged::by(unshared(&OWN_NUMBERS), "nagle");
    let number = child_of(program.id());
    let trace = Traced::of(&["--pid", &number.to_string()]);
    sleep(WHILE);
    let document = trace.finish();
    let direction = sent_to(&document, program.port);
    assert_eq!(found(direction).first(), Some(&"nagle_delayed_ack"), "{direction:#}");
    assert!(direction["program"].as_str().unwrap().contains(&format!("({number})")), "{direction:#}");
}

/// The program has its connection already when the trace begins.
#[test]
fn a_process_with_a_network_of_its_own_is_traced_as_one_in_a_container() {
    const NAME: &str = "a_process_with_a_network_of_its_own_is_traced_as_one_in_a_container";
    let options = [&["--net"][..], &OWN_NUMBERS].concat();
    if !can_run(NAME, &options) {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(&options).args(["sh", "-c", r#"ip link set lo up && exec "$0" "$@""#]).stdin(Stdio::null());
    command.arg(taut().get_program());
    let program = Staged::by(command, "nagle");
    let number = child_of(program.id());
    let trace = Traced::of(&["--pid", &number.to_string()]);
    sleep(WHILE);
    let document = trace.finish();
    let direction = sent_to(&document, program.port);
    assert_eq!(found(direction).first(), Some(&"nagle_delayed_ack"), "{direction:#}");
    assert!(direction["program"].as_str().unwrap().contains(&format!("({number})")), "{direction:#}");
}

/// Only the list of that network tells of the connection: the program waits in a call that began before the trace.
#[test]
fn what_comes_first_over_a_connection_in_another_network_is_seen() {
    const NAME: &str = "what_comes_first_over_a_connection_in_another_network_is_seen";
    if !can_run(NAME, &["--net"]) {
        return;
    }
    // What a thread starts has its network.
    let opened = thread::spawn(|| {
        if !own_network() {
            return None;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let input = Stdio::from(OwnedFd::from(listener.accept().unwrap().0));
        let mut program = Command::new("sh");
        program.args(["-c", "while read -r line; do :; done"]).stdin(input).stdout(Stdio::null());
        Some((client, program.spawn().unwrap(), address))
    });
    let Some((mut client, mut program, address)) = opened.join().unwrap() else {
        return skip(NAME, "takes a network of its own");
    };
    let trace = Traced::of(&["--pid", &program.id().to_string()]);
    client.write_all(b"hello\n").unwrap();
    sleep(Duration::from_millis(200));
    let document = trace.finish();
    drop(client);
    program.wait().unwrap();
    let to = address.to_string();
    let mut directions = document["worst"].as_array().unwrap().iter();
    let received = directions.find(|one| one["is_outgoing"] == false && one["to"] == to.as_str());
    let received = received.unwrap_or_else(|| panic!("{document:#}"));
    assert!(received["bytes"] == 6 || has_gap(received), "{received:#}");
}

/// Both ends of a connection between these ports over the loopback of a new network.
fn in_a_network_of_its_own(client: u16, server: u16) -> Option<(TcpStream, TcpStream)> {
    // It is that of a thread, and stays while it has the sockets.
    let opened = thread::spawn(move || {
        if !own_network() {
            return None;
        }
        let [client, server] = [client, server].map(|port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(server).unwrap();
        let opening = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&opening, &client).unwrap();
        connect(&opening, &server).unwrap();
        Some((TcpStream::from(opening), listener.accept().unwrap().0))
    });
    opened.join().unwrap()
}

/// As of two containers, in each of which a program talks to another one over loopback.
#[test]
fn of_two_networks_with_the_same_addresses_and_ports_the_sick_connection_alone_is_named() {
    const NAME: &str = "of_two_networks_with_the_same_addresses_and_ports_the_sick_connection_alone_is_named";
    if !can_run(NAME, &["--net"]) {
        return;
    }
    let (client, server) = (free_port(), free_port());
    let trace = Traced::start(server);
    let opened = [(); 2].map(|()| in_a_network_of_its_own(client, server));
    let [Some(sick), Some(cured)] = opened else { return skip(NAME, "takes networks of its own") };
    thread::scope(|scope| {
        for (pair, is_nodelay) in [(sick, false), (cured, true)] {
            scope.spawn(move || talk(pair, is_nodelay));
        }
    });
    let document = trace.finish();
    assert_eq!(document["connections"], 2, "{document:#}");
    let from = format!("127.0.0.1:{client}");
    let sent = document["worst"].as_array().unwrap().iter();
    let sent: Vec<&Value> = sent.filter(|one| one["is_outgoing"] == true && one["from"] == from.as_str()).collect();
    // The one that lost the most comes first.
    let [sick, cured] = sent[..] else { panic!("{document:#}") };
    assert_eq!(found(sick).first(), Some(&"nagle_delayed_ack"), "{sick:#}");
    assert!(!found(cured).contains(&"nagle_delayed_ack"), "{cured:#}");
    if document["worst"].as_array().unwrap().iter().any(has_gap) {
        return;
    }
    // Each is told what its own peer did: that is seen as well.
    assert_eq!(sick["released"]["ack_not_seen"], 0, "{sick:#}");
    for direction in [sick, cured] {
        let messages = &direction["messages"];
        assert_eq!(messages["read"]["messages"], messages["followed"], "{direction:#}");
    }
    // Half of those of the sick one wait for a timer of 40 ms.
    let read = |direction: &Value, time: &str| direction["messages"]["read"][time].as_u64().unwrap();
    assert!(read(sick, "longest_ns") > 20_000_000, "{sick:#}");
    assert!(read(cured, "median_ns") < 20_000_000, "{cured:#}");
}

/// A client of this process that writes twice and reads, for a while; the port that it had.
fn write_write_read(listener: &TcpListener) -> u16 {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (port, server) = (client.local_addr().unwrap().port(), listener.accept().unwrap().0);
    talk((client, server), false);
    port
}

fn talk((mut client, mut server): (TcpStream, TcpStream), is_nodelay: bool) {
    client.set_nodelay(is_nodelay).unwrap();
    let server = thread::spawn(move || {
        while server.read_exact(&mut [0; 64]).is_ok() {
            server.write_all(b"answered").unwrap();
        }
    });
    let end = Instant::now() + WHILE;
    while Instant::now() < end {
        client.write_all(&[1; 16]).unwrap();
        client.write_all(&[2; 48]).unwrap();
        client.read_exact(&mut [0; 8]).unwrap();
        // As many as with the algorithm, about.
        sleep(Duration::from_millis(if is_nodelay { 40 } else { 0 }));
    }
    drop(client);
    server.join().unwrap();
}

#[test]
fn within_a_pid_namespace_processes_are_refused_with_what_to_do_and_a_port_is_traced() {
    const NAME: &str = "within_a_pid_namespace_processes_are_refused_with_what_to_do_and_a_port_is_traced";
    if !can_run(NAME, &OWN_NUMBERS) {
        return;
    }
    // Its own number is 1 there.
    for what in [&["--pid", "1"][..], &["--", "true"]] {
        let output = unshared(&OWN_NUMBERS).arg("trace").args(what).output().unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{told}");
        assert!(told.contains("this is a PID namespace"), "{told}");
        assert!(told.contains("docker run --pid=host") && told.contains("port of this network: --port"), "{told}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let trace = Traced::by(unshared(&OWN_NUMBERS), &["--port", &port, "--for", "4s"]);
    let own = write_write_read(&listener);
    let document = trace.wait();
    let direction = sent_by(&document, own);
    assert_eq!(found(direction).first(), Some(&"nagle_delayed_ack"), "{direction:#}");
}

/// Control groups as systemd makes them for a unit, in a directory that only this command has: it needs no systemd, and
/// this machine's own ones stay as they are.
const UNIT: &str = "set -e
mount -t tmpfs taut /sys/fs/cgroup
unit=/sys/fs/cgroup/system.slice/taut-test.service
mkdir -p $unit/worker
echo $1 >$unit/cgroup.procs
echo $2 >$unit/worker/cgroup.procs
shift 2
exec \"$@\"";

#[test]
fn all_processes_of_a_unit_are_traced_with_those_of_groups_beneath_it() {
    if !can_run("all_processes_of_a_unit_are_traced_with_those_of_groups_beneath_it", &["--mount"]) {
        return;
    }
    let programs = ["nagle", "cork"].map(Staged::start);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", UNIT, "sh"]);
    command.args(programs.iter().map(|program| program.id().to_string())).arg(taut().get_program());
    let trace = Traced::by(command, &["--unit", "taut-test"]);
    sleep(WHILE);
    let document = trace.finish();
    assert_eq!(document["traced"], "unit taut-test, 2 processes");
    for (program, cause) in programs.iter().zip(["nagle_delayed_ack", "cork"]) {
        let direction = sent_to(&document, program.port);
        assert_eq!(found(direction).first(), Some(&cause), "{direction:#}");
        assert!(direction["program"].as_str().unwrap().contains(&format!("({})", program.id())), "{direction:#}");
    }
}
