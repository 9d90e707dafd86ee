//! Pacing and the explainer: paper 001 and the cases around it.

mod support;

use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use support::{Serve, causes, has, is_root, long, parse, run, run_json, skip, taut, text};
use taut_link::{Link, Listener, SocketOption};

const CAUSE: &str = "nagle_delayed_ack";

fn has_foreign_peer(test: &str) -> bool {
    let output = run("pace --emulate-delack 56ms --time 100ms --rounds 1 --json");
    if output.status.code() == Some(4) {
        skip(test, text(&output.stderr).trim());
        return false;
    }
    true
}

fn gap_ms(document: &Value, which: &str) -> f64 {
    document["results"][0]["sender_gap_ns"][which].as_f64().unwrap() / 1e6
}

fn share(document: &Value) -> f64 {
    let findings = document["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["cause"] == CAUSE).map_or(0.0, |finding| finding["share"].as_f64().unwrap())
}

/// The published experiment: gaps of 56 ms with five or six messages a segment under Nagle's algorithm, 10 ms without.
#[test]
fn a_foreign_peer_with_a_56_ms_timer() {
    if !has_foreign_peer("a_foreign_peer_with_a_56_ms_timer") {
        return;
    }
    let seconds = if long() { 10 } else { 4 };
    let on = run_json(&format!("pace --emulate-delack 56ms --nagle on --time {seconds}s"));
    assert!((gap_ms(&on, "mean") / 56.0 - 1.0).abs() < 0.05, "mean gap {} ms", gap_ms(&on, "mean"));
    let per_segment = on["results"][0]["messages_per_segment"].as_f64().unwrap();
    assert!((5.0..=6.0).contains(&per_segment), "{per_segment} messages a segment");
    assert_eq!(causes(&on), [CAUSE]);
    assert!(share(&on) >= 0.95, "{}", share(&on));
    let off = run_json(&format!("pace --emulate-delack 56ms --nagle off --time {seconds}s"));
    assert!((gap_ms(&off, "mean") / 10.0 - 1.0).abs() < 0.01, "mean gap {} ms", gap_ms(&off, "mean"));
    assert!(causes(&off).is_empty());
}

/// A recording keeps what its findings were made from, and one that was tampered with is refused with the place.
#[test]
fn a_recording_is_explained_again() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let tcp = server.endpoint(0);
    let measured = run_json(&format!("pace {tcp} --peer-ack delayed --nagle on --time 2s --rounds 2"));
    assert_eq!(causes(&measured), [CAUSE]);
    assert_eq!(measured["format_version"], 3);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pace.json");
    let write = |document: &Value| std::fs::write(&file, document.to_string()).unwrap();
    let mut forgotten = measured.clone();
    forgotten["findings"] = Value::Array(Vec::new());
    write(&forgotten);
    let again = run_json(&format!("report {}", file.display()));
    assert_eq!(again["findings"], measured["findings"]);
    assert_eq!(again["explained_again"]["not_again"], 0);
    let shown = run(&format!("report {}", file.display()));
    assert!(text(&shown.stdout).contains("Explained again by Tautline"), "{}", text(&shown.stdout));
    let mut broken = measured;
    broken["observed"][0]["rounds"][1]["events"] = "i00,0,128 z1".into();
    write(&broken);
    let refused = run(&format!("report {}", file.display()));
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("observed[0].rounds[1].events: event 2: its letter"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn a_linux_peer_with_delayed_acknowledgements() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let (tcp, seconds) = (server.endpoint(0), if long() { 5 } else { 2 });
    let on = run_json(&format!("pace {tcp} --peer-ack delayed --nagle on --time {seconds}s"));
    assert!((40.0..48.0).contains(&gap_ms(&on, "mean")), "mean gap {} ms", gap_ms(&on, "mean"));
    assert_eq!(causes(&on), [CAUSE]);
    let off = run_json(&format!("pace {tcp} --peer-ack delayed --nagle off --time {seconds}s"));
    assert!((gap_ms(&off, "mean") / 10.0 - 1.0).abs() < 0.02, "mean gap {} ms", gap_ms(&off, "mean"));
    assert!(causes(&off).is_empty());
}

/// Of the writes that really left late, as the kernel's timestamps have it, at least 95 % are flagged.
#[test]
fn held_writes_are_flagged() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let document =
        run_json(&format!("pace {} --peer-ack delayed --time 3s --rounds 1 --place free", server.endpoint(0)));
    let excerpt = document["results"][0]["excerpt"].as_array().unwrap();
    assert_eq!(excerpt.len(), 300);
    let held = excerpt
        .iter()
        .filter(|message| message["left"].as_i64().unwrap() - message["write_end"].as_i64().unwrap() > 1_000_000);
    let held = held.count() as f64 / excerpt.len() as f64;
    assert!(held > 0.5, "{held} of the writes were held");
    assert!(share(&document) >= 0.95 * held, "{} flagged, {held} held", share(&document));
}

#[test]
fn every_transport_is_paced_and_every_message_accounted_for() {
    let (server, _directory) = Serve::on_all();
    for endpoint in &server.endpoints {
        let document = run_json(&format!("pace {endpoint} --period 5ms --time 1s --rounds 2 --place free"));
        let row = &document["results"][0];
        assert_eq!((&row["messages"], &row["lost"]), (&200.into(), &0.into()), "{endpoint}");
        assert_eq!(row["delivery_ns"]["count"], 200, "{endpoint}");
        assert_eq!(row["clock_uncertainty_ns"], 0, "{endpoint}");
        // Of the schedule; a single gap is as long as the processor is away.
        let gap = gap_ms(&document, "mean");
        assert!((4.0..6.5).contains(&gap), "{endpoint}: mean gap {gap} ms");
        assert!(causes(&document).is_empty(), "{endpoint}");
    }
}

#[test]
fn the_ack_behaviour_of_the_peer_can_be_chosen() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let tcp = server.endpoint(0);
    let prompt = run_json(&format!("pace {tcp} --peer-ack prompt --time 2s"));
    assert!(causes(&prompt).is_empty());
    let output = run(&format!("pace {tcp} --peer-ack us=8000 --time 2s --json"));
    if text(&output.stderr).contains("does not let it choose") {
        return skip("the_ack_behaviour_of_the_peer_can_be_chosen", "the kernel has no TCP_DELACK_MAX_US");
    }
    let bounded = parse(&output);
    assert!((11.0..17.0).contains(&gap_ms(&bounded, "mean")), "{}", gap_ms(&bounded, "mean"));
}

/// A receiver of the test's own, each connection on a thread, until the test ends.
fn receiver(serve: impl Fn(&Link) + Clone + Send + 'static) -> String {
    let listener = Listener::bind(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
    let endpoint = listener.endpoint().to_string();
    thread::spawn(move || {
        while let Ok(link) = listener.accept() {
            let serve = serve.clone();
            thread::spawn(move || serve(&link));
        }
    });
    endpoint
}

fn read_some(link: &Link) -> bool {
    let mut buffer = [0; 65536];
    matches!(link.receive(&mut buffer), Ok(bytes) if bytes > 0)
}

fn wait_readable(link: &Link) {
    let mut wanted = [rustix::event::PollFd::new(link, rustix::event::PollFlags::IN)];
    let _ = rustix::event::poll(&mut wanted, None);
}

/// Receivers that make Nagle's algorithm wait for a delayed ACK, and receivers that do not: the
/// finding stands exactly where the stall is.
#[test]
fn the_finding_stands_where_the_stall_is_and_nowhere_else() {
    // Where something is to be found, and where nothing is.
    let (with, without) = if long() { (3, 2) } else { (2, 1) };
    let plain = receiver(|link| while read_some(link) {});
    let quickack_off_once = receiver(|link| {
        SocketOption::Quickack(false).apply(link).unwrap();
        while read_some(link) {}
    });
    let answers_every_message = receiver(|link| {
        while read_some(link) {
            let _ = link.send(&[1]);
        }
    });
    let answers_every_third = receiver(|link| {
        let mut reads = 0;
        while read_some(link) {
            reads += 1;
            if reads % 3 == 0 {
                let _ = link.send(&[1]);
            }
        }
    });
    let reads_every_100_ms = receiver(|link| {
        while read_some(link) {
            thread::sleep(Duration::from_millis(100));
        }
    });
    let quickack_off_after_each = receiver(|link| {
        while read_some(link) {
            SocketOption::Quickack(false).apply(link).unwrap();
        }
    });
    let delayed = receiver(|link| {
        loop {
            wait_readable(link);
            SocketOption::Quickack(false).apply(link).unwrap();
            if !read_some(link) {
                break;
            }
        }
    });
    for (name, endpoint, stalls) in [
        ("plain recv loop", &plain, false),
        ("TCP_QUICKACK off once", &quickack_off_once, false),
        ("answers every message", &answers_every_message, false),
        ("answers every third read", &answers_every_third, true),
        ("reads every 100 ms", &reads_every_100_ms, true),
        ("TCP_QUICKACK off after each read", &quickack_off_after_each, true),
        ("TCP_QUICKACK off before each read", &delayed, true),
    ] {
        let on = run_json(&format!("pace {endpoint} --plain --nagle on --time {with}s --rounds 1"));
        assert_eq!(causes(&on).contains(&CAUSE), stalls, "{name}: {:#}", on["findings"]);
        let off = run_json(&format!("pace {endpoint} --plain --nagle off --time {without}s --rounds 1"));
        assert!(causes(&off).is_empty(), "{name}, NODELAY: {:#}", off["findings"]);
    }
}

/// The same over a veth pair between two network namespaces.
#[test]
fn a_veth_pair_behaves_alike() {
    const TEST: &str = "a_veth_pair_behaves_alike";
    if !is_root() || !has("ip") {
        return skip(TEST, "needs root and iproute2");
    }
    let name = format!("taut{}", std::process::id());
    let ip = |line: &str| Command::new("ip").args(line.split(' ')).status().is_ok_and(|status| status.success());
    let (a, b) = (format!("{name}a"), format!("{name}b"));
    if !ip(&format!("netns add {a}")) {
        return skip(TEST, "network namespaces can't be made here");
    }
    assert!(ip(&format!("netns add {b}")));
    assert!(ip(&format!("link add v{a} netns {a} type veth peer name v{b} netns {b}")));
    for (space, address) in [(&a, "10.78.0.1/24"), (&b, "10.78.0.2/24")] {
        assert!(ip(&format!("-n {space} address add {address} dev v{space}")));
        assert!(ip(&format!("-n {space} link set v{space} up")));
    }
    let inside = |space: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", space, env!("CARGO_BIN_EXE_taut")]);
        command
    };
    let server = Serve::start_with(inside(&b), "tcp://10.78.0.2:9100");
    let pace = |line: &str| {
        let output =
            inside(&a).args(["pace", "tcp://10.78.0.2:9100", "--time", "3s", "--json"]).args(line.split(' ')).output();
        parse(&output.unwrap())
    };
    let plain = pace("--nagle on");
    let stalled = pace("--nagle on --peer-ack delayed");
    let cured = pace("--nagle off --peer-ack delayed");
    drop(server);
    assert!(ip(&format!("netns delete {a}")) && ip(&format!("netns delete {b}")));
    assert!(causes(&plain).is_empty(), "{:#}", plain["findings"]);
    assert_eq!(causes(&stalled), [CAUSE]);
    assert!((40.0..48.0).contains(&gap_ms(&stalled, "mean")), "{}", gap_ms(&stalled, "mean"));
    assert!(causes(&cured).is_empty(), "{:#}", cured["findings"]);
}

/// A server whose clock is 1,000 s ahead of ours, as another machine's may be: arrivals are put on
/// our clock, and the report says how far that may be wrong.
#[test]
fn a_peer_with_another_clock_is_aligned() {
    const TEST: &str = "a_peer_with_another_clock_is_aligned";
    let in_time_namespace = || {
        let mut command = Command::new("unshare");
        command.args(["--time", "--fork", "--kill-child", "--monotonic", "1000"]);
        command
    };
    if !in_time_namespace().arg("true").status().is_ok_and(|status| status.success()) {
        return skip(TEST, "needs root and time namespaces (unshare --time)");
    }
    let mut command = in_time_namespace();
    command.arg(env!("CARGO_BIN_EXE_taut"));
    let server = Serve::start_with(command, "tcp://127.0.0.1:0 udp://127.0.0.1:0");
    for endpoint in &server.endpoints {
        let document = run_json(&format!("pace {endpoint} --time 1s --rounds 2"));
        let row = &document["results"][0];
        let uncertainty = row["clock_uncertainty_ns"].as_u64().unwrap();
        assert!((1..10_000_000).contains(&uncertainty), "{endpoint}: {uncertainty}");
        let delivery = row["delivery_ns"]["p50"].as_u64().unwrap();
        assert!(delivery < 50_000_000, "{endpoint}: delivered after {delivery} ns");
        assert_eq!((&row["delivery_ns"]["count"], &row["lost"]), (&100.into(), &0.into()), "{endpoint}");
    }
}

/// The other classic: two writes and a read. Found under Nagle's algorithm alone, and not with any
/// of its cures, which are at least 500 times faster. Both ends share a processor: a wake-up across
/// two of them takes as long as all the rest.
#[test]
fn write_write_read_is_found_and_its_cures_are_not() {
    let server = Serve::start("tcp://127.0.0.1:0 --cpu 0");
    let ms = if long() { 1000 } else { 500 };
    let echo = |line: &str| {
        run_json(&format!("echo {} --workload write-write-read --cpu 0 --time {ms}ms {line}", server.endpoint(0)))
    };
    let p50 = |document: &Value| document["results"][0]["rtt_ns"]["p50"].as_f64().unwrap();
    let slow = echo("");
    assert_eq!(causes(&slow), [CAUSE]);
    // Two writes a message, and not those of the warm-up; the share is of them.
    let counted = run_json(&format!(
        "echo {} --workload write-write-read --cpu 0 --count 20 --rounds 1 --timeout 5s",
        server.endpoint(0)
    ));
    let finding = &counted["findings"][0];
    assert!(finding["evidence"][0].as_str().unwrap().contains(" of 40 writes "), "{finding:#}");
    assert_eq!(finding["share_of"], "writes");
    for cure in ["--opt nodelay", "--join cork", "--join writev", "--peer-ack prompt"] {
        let cured = echo(cure);
        assert!(causes(&cured).is_empty(), "{cure}: {:#}", cured["findings"]);
        assert!(p50(&slow) / p50(&cured) >= 500.0, "{cure}: {} against {} ns", p50(&slow), p50(&cured));
    }
}

#[test]
fn tune_finds_the_remedy_by_itself() {
    let server = Serve::start("tcp://127.0.0.1:0 --cpu 0");
    let mut tune = Command::new("taskset");
    tune.args(["-c", "0", env!("CARGO_BIN_EXE_taut"), "tune", server.endpoint(0)]);
    tune.args(["--workload", "write-write-read", "--time", "100ms", "--json"]);
    let document = parse(&tune.output().unwrap());
    let rows = document["results"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["setting"] == name).unwrap_or_else(|| panic!("no row {name}"));
    assert_eq!(row("nodelay")["verdict"], "shorter");
    assert!(row("nodelay")["p50_ratio"].as_f64().unwrap() <= 1.0 / 500.0, "{:#}", row("nodelay"));
    assert_eq!(row("one writev")["verdict"], "shorter");
    assert_ne!(row("quickack")["verdict"], "shorter");
    let finding = &document["findings"][0];
    assert_eq!(finding["cause"], CAUSE);
    let remedy = finding["remedy"].as_str().unwrap();
    assert!(remedy.contains("TCP_NODELAY") && remedy.contains("Tried here"), "{remedy}");
}

#[test]
fn the_perfetto_trace_nests() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.json");
    let status = taut()
        .args(["pace", server.endpoint(0), "--peer-ack", "delayed", "--time", "1s", "--rounds", "1", "--perfetto"])
        .arg(&path)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert!(of("b") >= 100 && of("b") == of("e"), "{} begins, {} ends", of("b"), of("e"));
}

#[test]
fn without_the_right_the_missing_thing_is_named() {
    if !is_root() || !has("setpriv") || !has("unshare") {
        return skip(
            "without_the_right_the_missing_thing_is_named",
            "needs root, to give rights up, setpriv and unshare",
        );
    }
    // No capabilities, and no way to some: the sysctl is that of the new user namespace alone. Another user might do
    // without capabilities, where /dev/net/tun is open to all, as udev has it.
    let script =
        "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_taut")])
        .args(["pace", "--emulate-delack", "56ms", "--time", "100ms"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    let error = text(&output.stderr);
    assert!(error.contains("user.max_user_namespaces"), "{error}");
}
