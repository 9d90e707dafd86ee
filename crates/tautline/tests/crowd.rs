//! Many connections, few of them active: every engine answers all, one that can't is named, and
//! hosts never outlive those who need them.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Serve, causes, has, is_root, parse, run, run_json, skip, taut, text};
use taut_link::{CrowdRequest, CrowdSession, Interrupt};

const ALL_THAT_SERVE: &str = "poll,epoll,tokio,uring,aio-signal,aio-suspend,aio-wait,glibc-aio-threads";

fn rows(document: &Value) -> &Vec<Value> {
    document["results"].as_array().unwrap()
}

/// Crowd hosts that run with this number of connections, by process. Tests that look for them have
/// a number of their own.
fn hosts_of(connections: usize) -> usize {
    let wanted = format!("--connections\0{connections}\0");
    let is_host = |entry: std::io::Result<std::fs::DirEntry>| {
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        (line.contains("\0crowd-host\0") && line.contains(&wanted)).then_some(())
    };
    std::fs::read_dir("/proc").unwrap().filter_map(is_host).count()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn request(endpoint: &str, engine: u8, connections: usize) -> CrowdRequest {
    CrowdRequest {
        endpoint: endpoint.parse().unwrap(),
        engine,
        connections,
        message_bytes: 32,
        duration: Duration::ZERO,
        timeout: Duration::from_secs(5),
        core: None,
    }
}

/// Where both ends are is asked of a server on this host as of our own, and told.
#[test]
fn both_ends_of_a_crowd_are_placed() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let crowd = |more: &str| format!("crowd {more} --connections 3 --active 1 --engines epoll --rounds 1 --time 5ms");
    let both = run(&crowd("--place both"));
    assert_eq!(both.status.code(), Some(2), "{}", text(&both.stderr));
    if rustix::thread::sched_getaffinity(None).unwrap().count() < 2 {
        return skip("both_ends_of_a_crowd_are_placed", "one processor has no two placements");
    }
    for whose in ["", server.endpoint(0)] {
        let cases = [
            ("", "two_cores"),
            ("--place two-cores", "two_cores"),
            ("--place same-core", "same_core"),
            ("--place free", "free"),
        ];
        for (place, kind) in cases {
            let row = rows(&run_json(&crowd(&format!("{whose} {place}"))))[0].clone();
            let placed = &row["placement"];
            assert_eq!(placed["kind"], kind, "{whose} {place}: {row:#}");
            assert_eq!((&row["client_core"], &row["server_core"]), (&placed["core"], &placed["peer_core"]), "{row:#}");
            assert_eq!(row["client_core"] == row["server_core"], kind != "two_cores", "{row:#}");
            assert_eq!(row["client_spins"], kind == "two_cores", "{row:#}");
        }
    }
    // A server that may use one processor has its hosts there.
    let fixed = Serve::start("tcp://127.0.0.1:0 --cpu 0");
    let row = rows(&run_json(&crowd(fixed.endpoint(0))))[0].clone();
    assert_eq!((&row["server_core"], &row["placement"]["kind"]), (&0.into(), &"two_cores".into()), "{row:#}");
}

#[test]
fn every_engine_answers_all_that_it_is_sent() {
    let line = format!("crowd --connections 60 --active 1,7,60 --engines {ALL_THAT_SERVE} --rounds 2 --time 40ms");
    let document = run_json(&line);
    assert_eq!(document["command"], "crowd");
    assert_eq!(rows(&document).len(), 3 * 8);
    assert!(causes(&document).iter().all(|&cause| cause == "idle_scan"), "{:#}", document["findings"]);
    for row in rows(&document) {
        let engine = row["engine"].as_str().unwrap();
        if row["why_not"].is_string() {
            assert_eq!(engine, "uring", "{row:#}");
            skip("every_engine_answers_all_that_it_is_sent (uring)", row["why_not"].as_str().unwrap());
            continue;
        }
        assert_eq!((&row["workload"], &row["connections"]), (&"crowd".into(), &60.into()));
        assert_eq!((&row["lost"], &row["starved"]), (&0.into(), &Value::Null), "{row:#}");
        let (sent, active) = (row["sent"].as_u64().unwrap(), row["active"].as_u64().unwrap());
        assert_eq!(row["rtt_ns"]["count"], sent);
        assert_eq!(row["exchanges"].as_u64().unwrap() * active, sent);
        assert!(row["exchanges"].as_u64().unwrap() >= 6, "three in each round: {row:#}");
        assert!(row["rtt_ns"]["p50"].as_u64().unwrap() > 0 && row["cpu_ns_per_message"].as_f64().unwrap() > 0.0);
        assert!(row["rss_bytes"].as_u64().unwrap() > 1 << 20, "{row:#}");
        let threads = row["threads"].as_u64().unwrap();
        match engine {
            "poll" | "epoll" | "tokio" | "uring" => assert_eq!(threads, 1, "{engine}"),
            // One more, and some for files where io_uring is refused.
            "aio-signal" | "aio-suspend" | "aio-wait" => assert!((2..40).contains(&threads), "{engine}: {threads}"),
            _ => assert!((61..=111).contains(&threads), "{engine}: {threads}"),
        }
        assert_eq!(row["rounds"].as_array().unwrap().len(), 2);
        assert!(row["command"].as_str().unwrap().starts_with("taut crowd "), "{row:#}");
    }
    let order: Vec<_> = rows(&document).iter().map(|row| row["active"].as_u64().unwrap()).collect();
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn there_are_rounds_for_all_verdicts_and_numbers_of_connections_are_swept() {
    let line = "crowd --connections 40 --active 2,4 --by-connections 10,40,80 --engines epoll,poll,tokio --time 5ms";
    let document = run_json(line);
    let found: Vec<(u64, u64)> = rows(&document)
        .iter()
        .map(|row| (row["connections"].as_u64().unwrap(), row["active"].as_u64().unwrap()))
        .collect();
    let expected = [(40, 2), (40, 4), (10, 2), (80, 2)].iter().flat_map(|&case| [case; 3]);
    assert!(found.iter().copied().eq(expected), "{found:?}");
    for row in rows(&document) {
        // Two engines against the first, five numbers, round trip and CPU time: twenty verdicts take ten rounds.
        assert_eq!(row["rounds"].as_array().unwrap().len(), 11);
        assert!(row["rtt_ns"]["p50_ci"].is_array() && row["cpu_ns_per_message_ci"].is_array(), "{row:#}");
        let (compared, cpu) = (&row["compared"], &row["cpu_compared"]);
        if row["engine"] == "epoll" {
            assert!(compared.is_null() && cpu.is_null(), "{row:#}");
        } else {
            assert_eq!((&compared["with"], &cpu["with"]), (&"epoll".into(), &"epoll".into()));
            assert!(compared["verdict"] != "too_few_rounds" && cpu["verdict"] != "too_few_rounds", "{row:#}");
            assert!(compared["p50_ratio"].as_f64().unwrap() > 0.0 && cpu["ratio"].as_f64().unwrap() > 0.0, "{row:#}");
        }
    }
}

/// The C library's pool has 20 threads, and a read that waits keeps its own.
#[test]
fn the_pool_of_glibc_starves_connections_and_that_is_a_finding() {
    let line = "crowd --connections 40 --active 1,10 --engines epoll,glibc-aio --rounds 3 --time 20ms --timeout 1s";
    let document = run_json(line);
    assert_eq!(causes(&document), ["aio_starvation"]);
    let finding = &document["findings"][0];
    assert!(finding["remedy"].as_str().unwrap().contains("libtautaio"), "{finding:#}");
    assert!(
        finding["evidence"][0].as_str().unwrap().contains("connections that were sent a message answered"),
        "{finding:#}"
    );
    for row in rows(&document) {
        if row["engine"] == "epoll" {
            assert_eq!((&row["lost"], &row["starved"]), (&0.into(), &Value::Null), "{row:#}");
            continue;
        }
        assert!(row["rtt_ns"].is_null() && row["cpu_ns_per_message"].is_null(), "{row:#}");
        let starved = &row["starved"];
        assert_eq!((&starved["connections"], &starved["threads"]), (&40.into(), &21.into()), "{row:#}");
        assert!(starved["answered"].as_u64().unwrap() < starved["asked"].as_u64().unwrap(), "{row:#}");
    }
    let glibc = || rows(&document).iter().filter(|row| row["engine"] == "glibc-aio");
    assert!(glibc().filter_map(|row| row["lost"].as_u64()).sum::<u64>() > 0, "{document:#}");
    // One time-out, and not one for each round and number of active connections.
    assert!(glibc().all(|row| row["rounds"].as_array().unwrap().len() <= 1), "{document:#}");
}

#[test]
fn the_table_and_the_page_show_the_curves() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("crowd.html");
    let line =
        "crowd --connections 30 --active 1,3 --by-connections 10 --engines epoll,poll --rounds 2 --time 10ms --html";
    let output = taut().args(line.split(' ')).arg(&page).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for words in ["Many connections, few active", "CPU per message", "active", "threads"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let html = std::fs::read_to_string(page).unwrap();
    assert_eq!(html.matches("\"kind\":\"scaling\"").count(), 2);
}

#[test]
fn too_few_open_files_are_raised_or_explained() {
    let with_limit = |limit: &str, line: &str| -> Output {
        let script = format!("ulimit {limit} && exec \"$0\" {line}");
        Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_taut")]).output().unwrap()
    };
    let line = "crowd --connections 200 --active 1 --engines epoll --rounds 1 --time 10ms --json";
    let raised = with_limit("-Sn 80", line);
    assert_eq!(rows(&parse(&raised))[0]["lost"], 0, "{}", text(&raised.stderr));
    let refused = with_limit("-n 80", line);
    assert_eq!(refused.status.code(), Some(4), "{}", text(&refused.stderr));
    for words in ["200 connections", "RLIMIT_NOFILE", "16 connections at most"] {
        assert!(text(&refused.stderr).contains(words), "{}", text(&refused.stderr));
    }
}

/// Without memory for its queues io_uring is refused.
#[test]
fn an_engine_that_is_refused_is_named_and_the_others_go_on() {
    const TEST: &str = "an_engine_that_is_refused_is_named_and_the_others_go_on";
    let limited = |engines: &str| {
        // Root is above the limit by this capability.
        let drop_right = if is_root() { "setpriv --bounding-set -ipc_lock" } else { "" };
        let line = format!("crowd --connections 20 --active 1 --engines {engines} --rounds 1 --time 10ms --json");
        let script = format!("ulimit -l 8 && exec {drop_right} \"$0\" {line}");
        Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_taut")]).output().unwrap()
    };
    if is_root() && !has("setpriv") {
        return skip(TEST, "setpriv is not installed");
    }
    let both = limited("uring,epoll");
    assert_eq!(both.status.code(), Some(0), "{}", text(&both.stderr));
    let document = parse(&both);
    if document["results"][0]["why_not"].is_null() {
        return skip(TEST, "this kernel does not count the queues of io_uring against RLIMIT_MEMLOCK");
    }
    assert!(document["results"][0]["why_not"].as_str().unwrap().contains("the engine uring can't be used"));
    assert!(document["results"][0]["rtt_ns"].is_null() && document["results"][1]["rtt_ns"].is_object(), "{document:#}");
    let alone = limited("uring");
    assert_eq!(alone.status.code(), Some(4));
    assert!(text(&alone.stderr).contains("the engine uring can't be used"), "{}", text(&alone.stderr));
}

/// In a network of its own with room for twenty ports.
#[test]
fn too_few_ports_are_explained() {
    let script = "ip link set lo up && echo 40000 40019 >/proc/sys/net/ipv4/ip_local_port_range && exec \"$@\"";
    let namespace = |line: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-r", "-n", "sh", "-c", script, "sh"]).args(line).output()
    };
    if !namespace(&["true"]).is_ok_and(|output| output.status.success()) {
        return skip("too_few_ports_are_explained", "no network namespace (unshare -r -n, ip)");
    }
    let mut line = vec![env!("CARGO_BIN_EXE_taut")];
    line.extend("crowd --connections 50 --active 1 --engines epoll --rounds 1 --time 10ms".split(' '));
    let output = namespace(&line).unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    for words in ["of 50 connections are open", "ip_local_port_range (40000 to 40019)"] {
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}

#[test]
fn thresholds_hold_or_are_code_3() {
    let line = "crowd --connections 10 --active 1 --engines epoll,poll --rounds 1 --time 10ms";
    assert_eq!(run(&format!("{line} --assert p50<1h --assert lost<=0%")).status.code(), Some(0));
    let missed = run(&format!("{line} --assert p50<1ns"));
    assert_eq!(missed.status.code(), Some(3));
    assert!(text(&missed.stderr).contains("poll, 1 of 10 active"), "{}", text(&missed.stderr));
}

#[test]
fn a_server_elsewhere_runs_the_hosts() {
    let (server, _directory) = Serve::on_all();
    for endpoint in &server.endpoints {
        let line =
            format!("crowd {endpoint} --connections 50 --active 1,5 --rounds 2 --time 20ms --engines epoll,aio-wait");
        if endpoint.starts_with("udp:") || endpoint.starts_with("unix-dgram:") {
            let output = run(&line);
            assert_eq!(output.status.code(), Some(2), "{endpoint}");
            assert!(text(&output.stderr).contains("a crowd is one of streams"), "{}", text(&output.stderr));
            continue;
        }
        let document = run_json(&line);
        assert_eq!(rows(&document).len(), 4);
        for row in rows(&document) {
            assert_eq!((&row["endpoint"], &row["lost"]), (&endpoint.as_str().into(), &0.into()), "{row:#}");
            assert!(row["threads"].as_u64().unwrap() >= 1 && row["cpu_ns_per_message"].is_f64(), "{row:#}");
        }
    }
}

#[test]
fn a_server_bounds_its_crowds() {
    let server = Serve::start("tcp://127.0.0.1:0 --max-crowd 43");
    let none = Serve::start("tcp://127.0.0.1:0 --max-crowd 0");
    let crowd = |server: &Serve, connections: usize| {
        let endpoint = server.endpoint(0);
        run(&format!("crowd {endpoint} --connections {connections} --active 1 --engines epoll --rounds 1 --time 10ms"))
    };
    let open =
        |connections: usize| CrowdSession::open(&request(server.endpoint(0), 1, connections), &Interrupt::default());
    for (output, says) in [(crowd(&server, 44), "43 connections at most"), (crowd(&none, 1), "takes no crowd")] {
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
    let first = open(41).unwrap();
    wait_until("a host runs", || hosts_of(41) == 1);
    let output = crowd(&server, 43);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("one at a time"), "{}", text(&output.stderr));
    // Its place is free, and its host gone, as soon as it is.
    drop(first);
    assert_eq!(hosts_of(41), 0);
    assert_eq!(crowd(&server, 43).status.code(), Some(0));
    // No number of links, and an engine that does not exist.
    assert!(open(0).is_err());
    assert!(CrowdSession::open(&request(server.endpoint(0), 200, 1), &Interrupt::default()).is_err());
}

#[test]
fn a_crowd_ends_with_the_time_of_its_session_and_with_the_server() {
    let mut server = Serve::start("tcp://127.0.0.1:0 --max-time 1s --idle 1s");
    let endpoint = server.endpoint(0).to_owned();
    let open = |connections| CrowdSession::open(&request(&endpoint, 1, connections), &Interrupt::default());
    let session = open(45).unwrap();
    assert_eq!(hosts_of(45), 1);
    wait_until("the host ends with the time of its session", || hosts_of(45) == 0);
    assert!(session.usage().is_err());
    drop(session);
    let _session = open(46).unwrap();
    assert_eq!(hosts_of(46), 1);
    server.kill();
    wait_until("the host ends with the server that started it", || hosts_of(46) == 0);
}

#[test]
fn an_interrupt_keeps_what_was_measured_and_leaves_no_host() {
    let line = ["crowd", "--connections", "47", "--active", "1,3", "--engines", "epoll,poll", "--time", "300ms"];
    let start = |rounds: &str| {
        let mut command = taut();
        command.args(line).args(["--rounds", rounds, "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let child = start("1000");
    thread::sleep(Duration::from_millis(2500));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let document = parse(&output);
    assert_eq!(document["ended"]["how"], "interrupted");
    let row = &rows(&document)[0];
    assert!(row["sent"].as_u64().unwrap() > 0, "{row:#}");
    assert_eq!(row["lost"], 0, "{row:#}");
    assert_eq!(hosts_of(47), 0);

    let mut child = start("1000");
    wait_until("a host runs", || hosts_of(47) == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the host ends with a client that was killed", || hosts_of(47) == 0);
}

#[test]
fn a_killed_server_gives_a_clear_end_and_a_partial_report() {
    let mut server = Serve::start("tcp://127.0.0.1:0");
    let line = ["crowd", server.endpoint(0), "--connections", "20", "--active", "1", "--engines", "epoll,poll"];
    let mut command = taut();
    command.args(line).args(["--time", "400ms", "--rounds", "100", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(2500));
    server.kill();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let document = parse(&output);
    assert_eq!(document["ended"]["how"], "peer_gone", "{:#}", document["ended"]);
    assert!(rows(&document)[0]["rtt_ns"]["count"].as_u64().unwrap() > 0, "{document:#}");
}

#[test]
fn a_host_takes_links_from_its_client_alone_and_needs_one_who_started_it() {
    let host = |stdin: Stdio, from: &str| {
        let mut command = taut();
        command.args(["crowd-host", "--engine", "epoll", "--connections", "1", "--listen", "tcp://127.0.0.1:0"]);
        command.args(["--from", from]).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for (from, served) in [("127.0.0.1", true), ("127.0.0.2", false)] {
        let mut child = host(Stdio::piped(), from);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listening = lines.next().unwrap().unwrap();
        let mut stream = TcpStream::connect(listening.strip_prefix("listening tcp://").unwrap()).unwrap();
        let mut reply = Vec::new();
        if served {
            assert_eq!(lines.next().unwrap().unwrap(), "ready");
            stream.write_all(b"hello").unwrap();
            reply.resize(5, 0);
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(reply, b"hello");
        } else {
            assert_eq!(stream.read_to_end(&mut reply).unwrap(), 0, "somebody else is not served");
        }
        drop(child.stdin.take());
        assert!(!child.wait().unwrap().success(), "it ends with its stdin");
    }
    let alone = host(Stdio::null(), "127.0.0.1").wait_with_output().unwrap();
    assert_eq!(alone.status.code(), Some(1));
    assert!(text(&alone.stdout).contains("started by another one"), "{}", text(&alone.stdout));
}
