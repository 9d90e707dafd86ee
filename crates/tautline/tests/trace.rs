//! `taut trace` on connections of this host whose holder is known, and on programs that end. Where the kernel does
//! not let this user trace, they are skipped.

#[path = "support/mod.rs"]
mod support;
mod trace_support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::{Serve, is_root, parse, skip, taut, text, tracks};
use trace_support::{Traced, adds_up, has_gap, may_trace, sent_by, verdict};

/// Nothing is called clear where events were missed, and all else is.
fn is_clear_of_nagle(direction: &Value) {
    let expected = if has_gap(direction) { "unknown" } else { "clear" };
    assert_eq!(verdict(direction, "nagle_delayed_ack")["verdict"], expected, "{direction:#}");
}

/// A client that writes twice and reads the answer, 40 times, and the port that it had.
fn write_write_read(is_nodelay: bool) -> (Value, u16) {
    write_write_read_with(is_nodelay, &[])
}

fn write_write_read_with(is_nodelay: bool, more: &[&str]) -> (Value, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let trace = Traced::of(&[&["--port", &port.to_string()], more].concat());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 64];
        while stream.read_exact(&mut request).is_ok() {
            stream.write_all(b"answered").unwrap();
        }
    });
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_nodelay(is_nodelay).unwrap();
    let own = client.local_addr().unwrap().port();
    for _ in 0..40 {
        client.write_all(&[1; 16]).unwrap();
        client.write_all(&[2; 48]).unwrap();
        client.read_exact(&mut [0; 8]).unwrap();
    }
    drop(client);
    server.join().unwrap();
    (trace.finish(), own)
}

/// Each write of [`write_write_read`] and each of its bytes, or that events were missed.
fn all_is_told_of(direction: &Value) {
    let told = ["writes", "bytes"].map(|what| direction[what].as_u64().unwrap());
    let all = [2 * 40, 40 * (16 + 48)];
    // A thread that wakes up in the middle of another one's program has its own left out by the kernel.
    let is_right = if has_gap(direction) { told[0] <= all[0] && told[1] <= all[1] } else { told == all };
    assert!(is_right, "{direction:#}");
}

#[test]
fn nagle_against_a_delayed_ack_is_named_with_who_let_go() {
    if !may_trace("nagle_against_a_delayed_ack_is_named_with_who_let_go") {
        return;
    }
    let (document, port) = write_write_read(false);
    let direction = sent_by(&document, port);
    let nagle = verdict(direction, "nagle_delayed_ack");
    assert_eq!((nagle["verdict"].as_str(), nagle["side"].as_str()), (Some("found"), Some("sender")), "{document:#}");
    assert_eq!(direction["breakdown"][0]["holder"], "nagle", "{document:#}");
    // The kernel acknowledges the first segments of a connection at once.
    let held = direction["held_writes"].as_u64().unwrap();
    assert!(held >= 20, "{document:#}");
    all_is_told_of(direction);
    let hides = std::fs::read_to_string("/proc/sys/kernel/kptr_restrict").is_ok_and(|value| value.trim() == "2");
    if !hides && is_root() {
        let by_timer = direction["released"]["ack_by_delayed_ack_timer"].as_u64().unwrap();
        assert!(by_timer * 2 > held, "{document:#}");
    }
    let program = direction["program"].as_str().unwrap();
    assert!(program.contains(&format!("({})", std::process::id())), "{program}");
}

#[test]
fn with_nodelay_the_same_program_has_no_such_finding() {
    if !may_trace("with_nodelay_the_same_program_has_no_such_finding") {
        return;
    }
    let (document, port) = write_write_read(true);
    let direction = sent_by(&document, port);
    is_clear_of_nagle(direction);
    all_is_told_of(direction);
    assert!(has_gap(direction) || direction["held_writes"] == 0, "{document:#}");
}

#[test]
fn a_reader_that_sleeps_is_named_as_the_holder() {
    if !may_trace("a_reader_that_sleeps_is_named_as_the_holder") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_socket_recv_buffer_size(&listener, 16 << 10).unwrap();
    let port = listener.local_addr().unwrap().port();
    let trace = Traced::start(port);
    let reader = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 64 << 10];
        loop {
            sleep(Duration::from_millis(50));
            if stream.read(&mut buffer).unwrap() == 0 {
                return;
            }
        }
    });
    let mut sender = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let own = sender.local_addr().unwrap().port();
    for _ in 0..30 {
        sender.write_all(&[0; 16 << 10]).unwrap();
    }
    drop(sender);
    reader.join().unwrap();
    let document = trace.finish();
    let direction = sent_by(&document, own);
    let share = |holder: &str| -> f64 {
        let mut held = direction["breakdown"].as_array().unwrap().iter();
        held.find(|held| held["holder"] == holder).map_or(0.0, |held| held["share"].as_f64().unwrap())
    };
    let receiver = share("receiving_program") + share("receive_window");
    assert!(receiver > 0.5, "{document:#}");
    let found = ["receiving_program", "receive_window"].map(|cause| verdict(direction, cause)["verdict"] == "found");
    assert!(found.contains(&true), "{document:#}");
    is_clear_of_nagle(direction);
    // And at the other end what arrived waited for the program.
    let mut inward = document["worst"].as_array().unwrap().iter();
    let inward =
        inward.find(|one| one["is_outgoing"] == false && one["to"].as_str().unwrap().ends_with(&format!(":{port}")));
    let inward = inward.unwrap();
    assert_eq!(verdict(inward, "receiving_program")["verdict"], "found", "{document:#}");
    // It slept. On a busy machine it may wait for a processor besides, whenever it wakes up.
    let held = |holder: &str| -> u64 {
        let mut held = inward["breakdown"].as_array().unwrap().iter();
        held.find(|held| held["holder"] == holder).map_or(0, |held| held["held_ns"].as_u64().unwrap())
    };
    assert!(held("processor") * 3 < held("receiving_program"), "{document:#}");
}

/// A gate for tests: red with the cause when Nagle's algorithm holds what they write, and when they fail themselves.
#[test]
fn a_command_whose_writes_are_held_fails_with_the_cause() {
    if !may_trace("a_command_whose_writes_are_held_fails_with_the_cause") {
        return;
    }
    let serve = Serve::start("tcp://127.0.0.1:0");
    let gate = |command: &[&str]| {
        let fail_on = ["--fail-on", "nagle_delayed_ack=10%", "--fail-on", "cork=0%"];
        taut().arg("trace").args(fail_on).arg("--").args(command).output().unwrap()
    };
    let paced = |nagle: &str| {
        let pace = [env!("CARGO_BIN_EXE_taut"), "pace", &serve.endpoints[0], "--peer-ack", "delayed"];
        gate(&[&pace[..], &["--nagle", nagle, "--time", "1s", "--rounds", "1"]].concat())
    };
    let held = paced("on");
    let said = text(&held.stderr);
    assert_eq!(held.status.code(), Some(3), "{said}");
    assert!(said.contains("nagle_delayed_ack has ") && said.contains("at most 10 % is allowed"), "{said}");
    let free = paced("off");
    assert_eq!(free.status.code(), Some(0), "{}", text(&free.stderr));
    assert_eq!(gate(&["false"]).status.code(), Some(1));
    assert_eq!(gate(&["true"]).status.code(), Some(0));
}

#[test]
fn a_command_is_traced_from_its_first_connection_and_keeps_its_output() {
    if !may_trace("a_command_is_traced_from_its_first_connection_and_keeps_its_output") {
        return;
    }
    let server = Serve::start("tcp://127.0.0.1:0");
    let arguments = ["echo", server.endpoint(0), "--count", "40", "--rounds", "2"];
    // On a busy machine what comes in may wait for a processor, and is reported first.
    let trace = ["trace", "--json", "--top", "200", "--", env!("CARGO_BIN_EXE_taut")];
    let output = taut().args(trace).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = parse(&output);
    adds_up(&document);
    assert!(document["connections"].as_u64().unwrap() >= 1, "{document:#}");
    assert!(document["worst"].as_array().unwrap().iter().any(|one| one["is_outgoing"] == true), "{document:#}");
    // The command's own text goes where it does not disturb the object.
    assert!(text(&output.stderr).contains("tcp"), "{}", text(&output.stderr));
}

#[test]
fn a_program_that_ends_at_once_ends_the_trace() {
    if !may_trace("a_program_that_ends_at_once_ends_the_trace") {
        return;
    }
    let output = taut().args(["trace", "--", "true"]).output().unwrap();
    assert!(output.status.success());
    assert!(text(&output.stdout).contains("No data over sockets or pipes was seen"), "{}", text(&output.stdout));
    let output = taut().args(["trace", "--", "false"]).output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains("exit status: 1"), "{}", text(&output.stdout));
    let output = taut().args(["trace", "--", "no-such-program-here"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_process_that_exits_ends_the_trace_and_one_that_is_not_there_is_told() {
    let output = taut().args(["trace", "--pid", "2147483647"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    if !may_trace("a_process_that_exits_ends_the_trace_and_one_that_is_not_there_is_told") {
        return;
    }
    let mut sleeper = Command::new("sleep").arg("1").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let trace = taut().args(["trace", "--pid", &pid, "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    sleeper.wait().unwrap();
    let output = trace.wait_with_output().unwrap();
    assert!(output.status.success());
    let document = parse(&output);
    assert_eq!((document["connections"].as_u64(), document["ended"]["how"].as_str()), (Some(0), Some("complete")));
}

/// Descriptors that a program has inherited, and never uses.
#[test]
fn a_program_with_idle_connections_has_no_finding_and_no_event_is_missed() {
    if !may_trace("a_program_with_idle_connections_has_no_finding_and_no_event_is_missed") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut server = listener.accept().unwrap().0;
    // They were used before.
    client.write_all(b"read").unwrap();
    server.read_exact(&mut [0; 4]).unwrap();
    let [from, to] = [client, server].map(|stream| Stdio::from(std::os::fd::OwnedFd::from(stream)));
    let mut idle = Command::new("sleep").arg("60").stdin(from).stdout(to).spawn().unwrap();
    let trace = |more: &[&str]| {
        let pid = idle.id().to_string();
        let gate = ["--for", "1s", "--fail-on", "loss=0%", "--fail-on", "receiving_program=0%"];
        taut().args(["trace", "--pid", &pid]).args(gate).args(more).output().unwrap()
    };
    let (object, report) = (trace(&["--json"]), trace(&[]));
    idle.kill().unwrap();
    idle.wait().unwrap();
    assert_eq!((object.status.code(), report.status.code()), (Some(0), Some(0)), "{}", text(&object.stderr));
    let document = parse(&object);
    assert_eq!((document["lost_records"].as_u64(), document["directions"].as_u64()), (Some(0), Some(0)));
    assert_eq!((document["causes"].to_string(), document["worst"].to_string()), ("[]".into(), "[]".into()));
    assert_eq!(document["ended"]["how"], "complete", "{document:#}");
    let report = text(&report.stdout);
    assert!(report.contains("No data over sockets or pipes was seen") && !report.contains("FOUND"), "{report}");
}

#[test]
fn without_the_right_it_says_what_it_takes() {
    const NAME: &str = "without_the_right_it_says_what_it_takes";
    if !is_root() || !support::has("setpriv") {
        return skip(NAME, "takes root and setpriv(1), to give the right away");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_taut"), "trace", "--", "true"]);
    let output = command.output().unwrap();
    let told = text(&output.stderr);
    if told.contains("Permission denied") && output.status.code() != Some(4) {
        return skip(NAME, "another user may not run the program where it was built");
    }
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert!(told.contains("setcap cap_bpf,cap_perfmon+ep") && told.contains("taut sockets"), "{told}");
}

/// What `--try nodelay` says of a client of this process, and whether its option is off at the end.
fn tried(is_one_write: bool, more: &[&str]) -> (Value, bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let port = client.local_addr().unwrap().port().to_string();
    let (mut server, _) = listener.accept().unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(move || {
            let mut request = [0; 64];
            while server.read_exact(&mut request).is_ok() && server.write_all(b"answered").is_ok() {}
        });
        let (client, is_over) = (&mut client, &is_over);
        scope.spawn(move || {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                if is_one_write {
                    client.write_all(&[1; 64]).unwrap();
                } else {
                    client.write_all(&[1; 16]).unwrap();
                    client.write_all(&[2; 48]).unwrap();
                }
                client.read_exact(&mut [0; 8]).unwrap();
                sleep(Duration::from_millis(2));
            }
            client.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let arguments = ["trace", "--port", &port, "--json", "--try", "nodelay"];
        let output = taut().args(arguments).args(more).output().unwrap();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        output
    });
    assert!(output.status.success(), "{}", text(&output.stderr));
    (parse(&output), !client.nodelay().unwrap())
}

#[test]
fn what_nodelay_is_worth_is_proven_on_the_live_socket_which_is_as_before_then() {
    let test = "what_nodelay_is_worth_is_proven_on_the_live_socket_which_is_as_before_then";
    if !may_trace(test) {
        return;
    }
    if !is_root() {
        return skip(test, "root sets the options of others");
    }
    let (document, is_off) = tried(false, &["--for", "6s"]);
    let trial = &document["trial"];
    assert_eq!((trial["outcome"].as_str(), is_off), (Some("proven"), true), "{trial:#}");
    let pairs = trial["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 6);
    for pair in pairs {
        assert!(pair["with"]["writes"].as_u64() > pair["without"]["writes"].as_u64(), "{pair:#}");
    }
    // The server's end has Nagle's algorithm as well.
    assert_eq!(trial["sockets"].as_u64(), Some(2));
    let (document, is_off) = tried(true, &["--for", "3s"]);
    assert_eq!((document["trial"]["outcome"].as_str(), is_off), (Some("nothing_held"), true));
}

/// As when a terminal is closed, or a connection of ssh(1) breaks.
#[test]
fn a_trial_whose_terminal_goes_puts_back_what_it_changed_and_reports() {
    const NAME: &str = "a_trial_whose_terminal_goes_puts_back_what_it_changed_and_reports";
    if !may_trace(NAME) {
        return;
    }
    if !is_root() {
        return skip(NAME, "root sets the options of others");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let port = client.local_addr().unwrap().port().to_string();
    let arguments = ["trace", "--port", &port, "--json", "--try", "nodelay", "--for", "60s"];
    let child = taut().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let patience = std::time::Instant::now() + Duration::from_secs(30);
    while !client.nodelay().unwrap() {
        assert!(std::time::Instant::now() < patience, "no span with it began");
        sleep(Duration::from_millis(10));
    }
    // The shell tells of it, and so does the kernel once the shell ends; and who waits may be impatient.
    for signal in [Signal::HUP, Signal::HUP, Signal::INT, Signal::TERM] {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(!client.nodelay().unwrap());
    assert_eq!(parse(&output)["ended"]["how"], "interrupted");
}

#[test]
fn a_trial_without_a_socket_or_without_its_time_says_so() {
    if !may_trace("a_trial_without_a_socket_or_without_its_time_says_so") {
        return;
    }
    let output = taut().args(["trace", "--port", "9", "--try", "nodelay", "--for", "600ms"]).output().unwrap();
    assert!(text(&output.stdout).contains("No socket could be changed"), "{}", text(&output.stdout));
    let output = taut().args(["trace", "--try", "nodelay", "--", "true"]).output().unwrap();
    assert!(text(&output.stdout).contains("No socket could be changed"), "{}", text(&output.stdout));
    let output = taut().args(["trace", "--unit", "there-is-no-such-unit"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("systemctl status there-is-no-such-unit.service"));
}

#[test]
fn the_picture_has_a_track_for_each_direction_as_long_as_its_breakdown_says() {
    if !may_trace("the_picture_has_a_track_for_each_direction_as_long_as_its_breakdown_says") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.json");
    let (document, port) = write_write_read_with(false, &["--perfetto", path.to_str().unwrap()]);
    let picture: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let tracks = tracks(&picture);
    let worst = document["worst"].as_array().unwrap();
    // Both ends are traced, and each tells of both directions.
    assert_eq!((worst.len(), tracks.len()), (4, 4), "{document:#}");
    for (direction, slices) in worst.iter().zip(tracks.values()) {
        assert!(slices.windows(2).all(|pair| pair[0].1 == pair[1].0), "{slices:?}");
        let whole: u64 = slices.iter().map(|(begin, end)| end - begin).sum();
        let told = |key: &str| direction[key].as_u64().unwrap();
        assert_eq!((slices[0].0, whole), (told("begin_ns"), told("span_ns")));
    }
    // Each wait is a slice of its own, where it was.
    let client = 1 + worst.iter().position(|one| one["from"].as_str().unwrap().ends_with(&format!(":{port}"))).unwrap();
    let nagle = |event: &&Value| event["name"] == "Nagle's algorithm" && event["tid"] == client;
    let events = picture["traceEvents"].as_array().unwrap();
    let held = &sent_by(&document, port)["breakdown"][0];
    assert_eq!(events.iter().filter(nagle).count() as u64, held["episodes"].as_u64().unwrap(), "{held:#}");
    assert!(events.iter().any(|event| event["name"] == "FOUND nagle_delayed_ack" && event["ph"] == "i"));
    let names = events.iter().filter(|event| event["name"] == "thread_name");
    let names: Vec<&str> = names.map(|event| event["args"]["name"].as_str().unwrap()).collect();
    assert!(names.iter().any(|name| name.contains(", sent by ")), "{names:?}");
}

/// A trace can't be repeated, so this is said before it and not after.
#[test]
fn a_picture_that_can_not_be_written_is_an_error_before_anything_runs() {
    let output = taut().args(["trace", "--perfetto", "/nowhere/trace.json", "--", "echo", "ran"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there is no directory /nowhere"), "{}", text(&output.stderr));
    assert!(!text(&output.stdout).contains("ran"));
}

#[test]
fn the_page_has_the_findings_and_the_lanes_and_no_output_is_written_over_another() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let (path, other) = (page.to_str().unwrap(), directory.path().join(".").join("page.html"));
    let output =
        taut().args(["trace", "--html", path, "--perfetto"]).arg(&other).args(["--", "true"]).output().unwrap();
    assert_eq!((output.status.code(), page.exists()), (Some(2), false), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("--perfetto and --html name the same file"), "{}", text(&output.stderr));
    if !may_trace("the_page_has_the_findings_and_the_lanes_and_no_output_is_written_over_another") {
        return;
    }
    let (document, port) = write_write_read_with(false, &["--html", path]);
    let html = std::fs::read_to_string(&page).unwrap();
    let direction = sent_by(&document, port);
    let found = verdict(direction, "nagle_delayed_ack");
    assert!(html.contains(found["evidence"][0]["text"].as_str().unwrap().split(' ').next().unwrap()), "{found:#}");
    assert!(html.contains("nagle_delayed_ack") && html.contains("\"kind\":\"lanes\"") && html.contains("held-nagle"));
    let data = html.split("<script type=\"application/json\" id=\"charts\">").nth(1).unwrap();
    let charts: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let lanes = charts[0]["lanes"].as_array().unwrap();
    let worst = document["worst"].as_array().unwrap();
    assert_eq!(lanes.len(), worst.len());
    for (lane, direction) in lanes.iter().zip(worst) {
        let spans = lane["spans"].as_array().unwrap().iter();
        let whole: u64 = spans.map(|span| span[1].as_u64().unwrap()).sum();
        assert_eq!(whole, direction["span_ns"].as_u64().unwrap(), "{lane}");
    }
}

/// The finding and the breakdown of a trace come back from its file: all of JSON, and the text to the byte.
#[test]
fn what_was_recorded_is_explained_as_the_trace_told_it() {
    const NAME: &str = "what_was_recorded_is_explained_as_the_trace_told_it";
    if !may_trace(NAME) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.events");
    let file = path.to_str().unwrap();
    let explain = |more: &[&str]| taut().args(["explain", file]).args(more).output().unwrap();
    let (document, port) = write_write_read_with(false, &["--events", file]);
    let output = explain(&["--json", "--top", "200"]);
    let explained = parse(&output);
    assert_eq!(explained["traces"][0]["trace"], document);
    assert_eq!((explained["files"].as_array().unwrap().len(), &explained["traces"][0]["remarks"]), (0, &json!([])));
    let found = verdict(sent_by(&explained["traces"][0]["trace"], port), "nagle_delayed_ack")["verdict"].clone();
    assert_eq!(found, "found");
    assert_eq!(explain(&["--fail-on", "nagle_delayed_ack=1%"]).status.code(), Some(3));
    for wrong in
        [&["--diff", file][..], &["--join", file], &["--assert", "held(nagle)<1%"], &["--model"], &["--html", file]]
    {
        let output = explain(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", text(&output.stderr));
    }
    let page = directory.path().join("page.html");
    assert!(explain(&["--html", page.to_str().unwrap()]).status.success());
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("\"kind\":\"lanes\"") && page.contains("nagle_delayed_ack"));
    // Cut off within: what was read so far, and that it is cut off.
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let output = explain(&["--full"]);
    let told = text(&output.stdout);
    assert!(output.status.success() && told.contains("The file is cut off in the record at byte "), "{told}");
    assert!(
        told.contains("PARTIAL")
            && told.contains(&format!("port {}", document["traced"].as_str().unwrap().trim_start_matches("port "))),
        "{told}"
    );

    let serve = Serve::start("tcp://127.0.0.1:0");
    let paced = format!(
        "exec {} pace {} --peer-ack delayed --time 1s --rounds 1 >/dev/null 2>&1",
        env!("CARGO_BIN_EXE_taut"),
        serve.endpoints[0]
    );
    for full in [&[][..], &["--full"]] {
        let traced =
            taut().args(["trace", "--events", file]).args(full).args(["--", "sh", "-c", &paced]).output().unwrap();
        assert!(traced.status.success(), "{}", text(&traced.stderr));
        let output = explain(full);
        let told = text(&output.stdout);
        let (first, rest) = told.split_once('\n').unwrap();
        assert!(first.contains("recorded by"), "{told}");
        assert_eq!(rest, text(&traced.stdout));
        assert!(rest.contains("FOUND nagle_delayed_ack"), "{rest}");
    }
}
