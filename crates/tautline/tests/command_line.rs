//! Help, man page, completions and schema, so that every change of the interface shows in review; usage errors and exit
//! codes.

mod support;

use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Serve, parse, run, run_json, taut, text, words};

fn stdout(line: &str) -> String {
    let output = run(line);
    assert!(output.status.success(), "taut {line}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn help_of_every_command() {
    let mut all = stdout("--help");
    for command in [
        "survey",
        "serve",
        "echo",
        "pace",
        "stream",
        "connections",
        "tune",
        "air",
        "air run",
        "air sweep",
        "air tune",
        "air parameters",
        "route",
        "web",
        "check",
        "doctor",
        "explain",
        "sockets",
        "trace",
        "watch",
        "demo",
        "report",
    ] {
        all.push_str(&format!("\n===== taut {command} --help\n\n{}", stdout(&format!("{command} --help"))));
    }
    for command in ["run", "check", "bench", "list", "stats", "stop"] {
        all.push_str(&format!("\n===== taut route {command} --help\n\n{}", stdout(&format!("route {command} --help"))));
    }
    insta::assert_snapshot!("help", all);
}

#[test]
fn man_page() {
    insta::assert_snapshot!("man", stdout("generate man"));
}

#[test]
fn completions() {
    for shell in ["bash", "zsh", "fish"] {
        insta::assert_snapshot!(format!("completions-{shell}"), stdout(&format!("generate completions {shell}")));
    }
}

#[test]
fn schema() {
    insta::assert_snapshot!("schema", stdout("generate schema"));
}

#[test]
fn what_json_prints_fits_the_schema() {
    let schema = serde_json::from_str(&stdout("generate schema")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let (server, directory) = Serve::on_all();
    let endpoints = server.endpoints.join(" ");
    let tcp = server.endpoint(0);
    let gate = directory.path().join("gate.toml");
    let head = format!("[workload]\ncommand = 'echo'\nendpoint = '{tcp}'\ntime = '100ms'\n");
    std::fs::write(&gate, format!("{head}[limits]\nassert = ['p50<1s']\n[findings]\nforbid = ['cork']\n")).unwrap();
    for line in [
        format!("echo {endpoints} --count 500"),
        format!("echo {tcp} --rate 500 --time 1s"),
        format!("pace {tcp} --time 1s"),
        format!("stream {tcp} --time 1s"),
        format!("tune {tcp} --rounds 5 --time 10ms"),
        "connections --connections 30 --active 1,5 --engines poll,epoll,glibc-aio --time 5ms --timeout 500ms"
            .to_owned(),
        "air run --time 1s".to_owned(),
        "echo air:paper-000 --count 50".to_owned(),
        "pace air:paper-000 --time 1s".to_owned(),
        "stream air:paper-000 --time 1s".to_owned(),
        "air tune --time 1s --keep phy,mtu".to_owned(),
        "doctor".to_owned(),
        format!("check {}", gate.display()),
        "sockets --time 100ms".to_owned(),
    ] {
        let document = run_json(&line);
        let errors: Vec<String> =
            validator.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "taut {line}: {errors:#?}");
    }
}

#[test]
fn every_wrong_line_is_a_usage_error_that_says_what_to_write() {
    for (line, says) in [
        ("echo", "ENDPOINT"),
        ("echo tpc://127.0.0.1:9", "tcp://HOST:PORT"),
        ("echo tcp://127.0.0.1:9 --size 0", "between 1 byte"),
        ("echo tcp://127.0.0.1:9 --assert p99", "p99"),
        ("echo tcp://127.0.0.1:9 --opt nagle", "nodelay"),
        ("echo tcp://127.0.0.1:9 --engine kqueue", "epoll"),
        ("echo tcp://127.0.0.1:9 --rate 0", "messages per second"),
        ("echo tcp://127.0.0.1:9 --join cork", "write-write-read"),
        ("echo tcp://127.0.0.1:9 --cpu 100000", "processor 100000"),
        ("pace", "ENDPOINT"),
        ("pace tcp://127.0.0.1:9 --period 10", "unit"),
        ("pace tcp://127.0.0.1:9 --peer-ack us=1", "8000"),
        ("pace --emulate-delack 56ms tcp://127.0.0.1:9", "cannot be used with"),
        ("connections --engines kqueue", "aio-wait"),
        ("connections --connections 5 --active 1,10", "10 can't be active"),
        ("connections --connections 50 --active 10 --by-connections 5", "of 5 connections"),
        ("connections udp://127.0.0.1:9", "tcp://HOST:PORT"),
        ("connections tcp://127.0.0.1:9 --server-cpu 0", "cannot be used with"),
        ("demo --case deadlock", "slow-reader"),
        ("demo xyz", "there are nagle, aio, latency, ble, route"),
        ("frobnicate", "there are survey, serve, echo,"),
        ("frobnicate serve", "there are survey, serve, echo,"),
        ("demo --for 0s", "more than zero"),
        ("demo --for 5s --explain", "cannot be used with"),
        ("serve --stall 2s/1s", "always stand still"),
        ("tune tcp://127.0.0.1:9 --workload write-write-read --split 4096", "shorter"),
        ("tune tcp://127.0.0.1:9 --rounds 4", "can't tell a gain from noise"),
        ("air run --btsnoop /nowhere", "there is no directory /nowhere"),
        ("explain", "FILE"),
        ("sockets --pid 0", "no number of a process"),
        ("sockets --port 65536", "65535"),
        ("explain x.pcap --fail-on nagle=1%", "nagle_delayed_ack"),
        ("explain x.pcap --fail-on loss=1", "CAUSE=SHARE%"),
        ("trace --fail-on dns_retry=1% -- true", "nagle_delayed_ack"),
        ("explain x.pcap --top 0", "1..=1000"),
        ("tune l2cap://00:11:22:33:44:55/129 --keep --rounds 2", "at least 5"),
    ] {
        let output = run(line);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "taut {line}: {error}");
        assert!(error.contains(says), "taut {line}: {error}");
        assert!(output.stdout.is_empty(), "taut {line}");
    }
}

#[test]
fn nobody_there_is_a_failure_with_the_endpoint_in_it() {
    let port = support::free_port();
    for line in
        [format!("echo tcp://127.0.0.1:{port}"), format!("echo udp://127.0.0.1:{port}"), "stream unix:/nowhere".into()]
    {
        let output = run(&line);
        assert!(matches!(output.status.code(), Some(1 | 2)), "taut {line}");
        let error = text(&output.stderr);
        assert!(error.contains(line.split(' ').nth(1).unwrap()), "taut {line}: {error}");
    }
}

#[test]
fn a_threshold_missed_is_code_3_and_the_figures_are_printed_all_the_same() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let tcp = server.endpoint(0);
    let met = run(&format!("echo {tcp} --count 200 --assert p50<1s --assert lost<=0%"));
    assert_eq!(met.status.code(), Some(0), "{}", text(&met.stderr));
    let missed = run(&format!("echo {tcp} --count 200 --assert p50<1ns --json"));
    assert_eq!(missed.status.code(), Some(3));
    assert!(text(&missed.stderr).contains("p50<1ns"));
    assert_eq!(parse(&missed)["results"][0]["rtt_ns"]["count"], 200);
}

#[test]
fn a_threshold_on_what_a_plain_server_does_not_tell_is_refused() {
    let output = run("pace tcp://127.0.0.1:9 --plain --assert p99<1s");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("does not tell what arrived"), "{}", text(&output.stderr));
}

#[test]
fn no_colour_without_a_terminal_and_a_closed_pipe_is_no_error() {
    assert!(!stdout("doctor").contains('\x1b'));
    let status = std::process::Command::new("sh")
        .args(["-c", "\"$0\" doctor | head -n 1 >/dev/null; exit 0", env!("CARGO_BIN_EXE_taut")])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Also the help: who keeps it in a file wants to know that it is not there.
#[test]
fn what_cannot_be_written_is_a_failure() {
    for line in ["", "--help", "echo --help", "--version", "doctor", "air parameters", "generate schema"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = taut().args(words(line)).stdout(full).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "taut {line}: {error}");
        assert!(error.starts_with("taut: write to stdout: No space left"), "taut {line}: {error}");
    }
}

#[test]
fn a_recording_is_rendered_again_and_two_are_compared() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for name in ["before.json", "after.json"] {
        let output = run(&format!("echo {} --count 500 --json", server.endpoint(0)));
        std::fs::write(path(name), output.stdout).unwrap();
    }
    let report = |files: &[&str], html: &str| {
        let mut command = taut();
        command.arg("report").args(files.iter().map(|file| path(file))).arg("--html").arg(path(html));
        command.output().unwrap()
    };
    let one = report(&["before.json"], "one.html");
    assert!(one.status.success() && text(&one.stdout).contains(server.endpoint(0)), "{}", text(&one.stderr));
    let two = report(&["before.json", "after.json"], "two.html");
    assert!(two.status.success(), "{}", text(&two.stderr));
    for page in ["one.html", "two.html"] {
        assert!(std::fs::read_to_string(path(page)).unwrap().starts_with("<!"), "{page}");
    }
    std::fs::write(path("bad.json"), "{").unwrap();
    let bad = report(&["bad.json"], "bad.html");
    assert_eq!(bad.status.code(), Some(2));
    assert!(text(&bad.stderr).contains("bad.json"));
}

/// A file to be read that is not there is the user's to mend, as a wrong option is: code 2 of every command.
#[test]
fn a_missing_file_is_a_usage_error_of_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path().display();
    std::fs::write(directory.path().join("none.pcap"), "no capture").unwrap();
    for line in [
        "explain X",
        "explain none.pcap",
        "explain --join none.pcap X",
        "report X",
        "report X X --json",
        "report none.pcap",
        "check X",
        "mesh check X",
        "mesh run X --via {host} --out out",
        "mesh report X",
        "mesh report .",
        "route check X",
        "route run X",
        "pipe --config X",
        "air run X",
        "air sweep X --vary ci=15ms,30ms",
        "air attach X",
        "echo air:X",
        "web X",
    ] {
        let output = taut().current_dir(directory.path()).args(line.split(' ')).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "taut {line}: {error}");
        let named = ["X", "none.pcap", "mesh.json"].iter().any(|name| error.contains(name));
        assert!(named && output.stdout.is_empty(), "taut {line}: {error}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "something was made in {there}");
}

/// Who waits for a server that takes the connection and says nothing is asked to wait no longer,
/// and there are no figures.
#[test]
fn a_silent_server_does_not_keep_the_user() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    let lines = ["stream --direction down", "pace", "stream --place free", "connections --connections 2 --active 1"];
    let waits = ["echo", "echo --place free --timeout 30s", "echo --connections 3 --timeout 30s"];
    for line in lines.into_iter().chain(waits).chain(["tune", "tune --workload pace", "tune --workload stream"]) {
        let mut command = taut();
        command.args(line.split(' ')).args([&endpoint, "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let _link = listener.accept().unwrap();
        let began = Instant::now();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{line}: {}", text(&output.stderr));
        // A handshake is waited for 5 s and more.
        assert!(began.elapsed() < Duration::from_secs(4), "{line}: {:?}", began.elapsed());
        let document = parse(&output);
        assert_eq!(
            (&document["ended"]["how"], &document["results"]),
            (&"interrupted".into(), &Value::Array(Vec::new())),
            "{line}"
        );
    }
}

#[test]
fn without_a_command_it_says_what_to_run_for_which_question() {
    let output = run("");
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(2), ""));
    let screen = text(&output.stdout);
    assert_eq!(screen.lines().count(), 15, "{screen}");
    assert!(screen.contains("This host: Linux "), "{screen}");
}

#[test]
fn without_an_adapter_doctor_says_so_and_ends_with_4() {
    let is_there = std::fs::read_dir("/sys/class/bluetooth").is_ok_and(|mut adapters| adapters.next().is_some());
    if is_there {
        return support::skip("without_an_adapter_doctor_says_so_and_ends_with_4", "there is one; see lab_pi.rs");
    }
    let output = run("doctor --ble --json");
    let document = parse(&output);
    assert_eq!(output.status.code(), Some(4), "{document:#}");
    let rows = document["results"].as_array().unwrap();
    // No row of anything else.
    assert!(rows.iter().all(|row| row["workload"] == "check" && row["what"] != "open files"), "{document:#}");
    let lacks = rows.iter().find(|row| row["works"] == false).unwrap_or_else(|| panic!("{document:#}"));
    let has_bluetooth = std::path::Path::new("/sys/class/bluetooth").exists();
    let (what, remedy) =
        if has_bluetooth { ("adapters", "plug one in") } else { ("Bluetooth of this kernel", "modprobe bluetooth") };
    assert!(lacks["what"] == what && lacks["remedy"].as_str().unwrap().contains(remedy), "{lacks:#}");
}

#[test]
fn names_of_the_field_and_hosts_alone_are_understood() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let address = server.socket_address(0).to_string();
    for line in ["ping --count 200", "echo --count 200 --deadline 1ms", "echo --count 200 --peer-ack quickack"] {
        let output = run(&format!("{line} {address}"));
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains(&format!("tcp://{address}")), "{line}");
    }
    for (alias, name) in
        [("ping", "echo"), ("throughput", "stream"), ("crowd", "connections"), ("relay", "pipe"), ("ble", "air")]
    {
        assert_eq!(stdout(&format!("{alias} --help")), stdout(&format!("{name} --help")));
    }
    // What they were called before is understood, and not shown.
    let help = stdout("--help") + &stdout("echo --help") + &stdout("pace --help");
    for old in ["crowd ", "--exceed", "--foreign-peer", "--foreign-tick"] {
        assert!(!help.contains(old), "{old}");
    }
    let renamed = run(&format!("echo {address} --count 200 --exceed 1ms --json"));
    assert_eq!(parse(&renamed)["results"][0]["exceed"][0]["over_ns"], 1_000_000, "{}", text(&renamed.stderr));
    let renamed = run("pace --foreign-peer 56ms --foreign-tick 4ms tcp://127.0.0.1:9");
    assert!(text(&renamed.stderr).contains("--emulate-delack"), "{}", text(&renamed.stderr));
    let refused = run("echo https://localhost/");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("taut watch"), "{}", text(&refused.stderr));
}
