//! The main job, and throughput.

mod support;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Serve, is_root, parse, run_json, skip, taut, text};

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn demo(arguments: &[&str]) -> Running {
    Running(taut().arg("demo").args(arguments).args(["--for", "10m"]).stdout(Stdio::null()).spawn().unwrap())
}

/// The losses of a process that were found among the live connections.
fn losses_of(document: &Value, pid: u32) -> Vec<&Value> {
    let rows = document["results"].as_array().unwrap();
    let watched = rows.iter().find(|row| row["workload"] == "watch").expect("live connections");
    watched["losses"].as_array().unwrap().iter().filter(|loss| loss["pid"] == pid).collect()
}

#[test]
fn survey_names_the_sick_program_beside_it_not_the_cured_one_and_measures_every_local_path() {
    let (sick, cured) = (demo(&[]), demo(&["--cured"]));
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("survey.html");
    let output = taut().args(["survey", "--json", "--html"]).arg(&page).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = parse(&output);
    assert_eq!(document["ended"]["how"], "complete");
    let lost = losses_of(&document, sick.0.id());
    let nagle = lost.iter().find(|loss| loss["cause"] == "nagle_delayed_ack").unwrap_or_else(|| panic!("{document:#}"));
    assert!(nagle["worst_share"].as_f64() > Some(0.2), "{nagle:#}");
    let cured = losses_of(&document, cured.0.id());
    assert!(cured.iter().all(|loss| loss["cause"] != "nagle_delayed_ack"), "{cured:#?}");
    let trace = format!("taut trace --pid {} --try nodelay", sick.0.id());
    let findings = document["findings"].as_array().unwrap();
    let advice = findings.iter().find(|finding| finding["remedy"].as_str().unwrap().contains(&trace));
    assert_eq!(advice.map(|finding| &finding["share_of"]), Some(&Value::from("connection_time")), "{findings:#?}");
    let rows = document["results"].as_array().unwrap();
    let of = |workload: &str| rows.iter().filter(|row| row["workload"] == workload).count();
    assert!(of("floor") >= 4 && of("check") >= 8, "floor {}, check {}", of("floor"), of("check"));
    let settings: Vec<&Value> = rows.iter().filter(|row| row["workload"] == "setting").collect();
    assert!(
        settings.iter().any(|row| row["name"] == "net.ipv4.tcp_wmem" && row["verdict"] == "clear"),
        "{settings:#?}"
    );
    for transport in ["tcp", "udp", "unix", "unix-dgram"] {
        assert!(rows.iter().any(|row| row["workload"] == "echo" && row["transport"] == transport), "{transport}");
    }
    // Where there are two processors, each echo and stream has a row for both ends on one and a row for one each.
    let placed = if rustix::thread::sched_getaffinity(None).unwrap().count() > 1 { 2 } else { 1 };
    assert_eq!(of("stream"), 3 * placed);
    // What is staged belongs to `taut demo`.
    assert_eq!(of("pace") + of("tune") + of("crowd") + of("route") + of("air"), 0);
    for kind in ["same_core", "two_cores"].iter().filter(|_| placed == 2) {
        let echoes = rows.iter().filter(|row| row["workload"] == "echo" && row["placement"]["kind"] == *kind);
        assert!(echoes.clone().count() >= 6, "{kind}");
        // Each but the first is held against another row of its kind.
        for row in echoes.filter(|row| !row["compared"].is_null()) {
            let with = row["compared"]["with"].as_str().unwrap();
            assert!(with.ends_with(&kind.replace('_', " ")), "{row:#}");
        }
    }
    for row in rows.iter().filter(|row| row["command"].is_string()) {
        assert!(row["command"].as_str().unwrap().starts_with("taut "), "{row:#}");
    }
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.len() < 600 * 1024, "{} bytes", html.len());
    assert!(html.contains("Connections of this host"));
}

#[test]
fn streams_run_in_all_directions_on_all_transports() {
    let (server, _directory) = Serve::on_all();
    for (index, endpoint) in server.endpoints.iter().enumerate() {
        let is_stream = [0, 2, 4].contains(&index);
        for direction in if is_stream { &["up", "down", "both"][..] } else { &["up"] } {
            let line = format!("stream {endpoint} --direction {direction} --time 600ms --rounds 2 --connections 2");
            let row = run_json(&line)["results"][0].clone();
            assert!(row["throughput_bps"].as_f64().unwrap() > 1e7, "{row:#}");
            assert!(row["peer_cpu_ns"].is_u64() && row["bytes_per_cpu_second"].as_f64().unwrap() > 0.0, "{row:#}");
            if is_stream && *direction != "down" {
                assert_eq!(row["lost_bytes"], 0, "{row:#}");
            }
        }
    }
}

/// The process that a process started with this word in its command line, once it is there.
fn child_of(child: &mut Child, word: &str) -> Pid {
    let (parent, begin) = (child.id(), Instant::now());
    loop {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        let found = children.split_whitespace().find(|child| {
            let line = std::fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
            line.split('\0').any(|argument| argument == word)
        });
        if let Some(found) = found {
            return Pid::from_raw(found.parse().unwrap()).unwrap();
        }
        assert!(child.try_wait().unwrap().is_none() && begin.elapsed() < Duration::from_secs(120), "no {word}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A survey of a host without connections, ended by Ctrl-C once its own traffic has begun.
fn interrupted(state: &Path) -> Output {
    let taut = env!("CARGO_BIN_EXE_taut");
    let mut command = if is_root() {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "ip link set lo up && exec \"$0\" survey", taut]);
        command
    } else {
        let mut command = Command::new(taut);
        command.arg("survey");
        command
    };
    command.env("XDG_STATE_HOME", state).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child_of(&mut child, "serve");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_survey_of_an_idle_host_says_so_in_a_line_and_keeps_what_it_has_on_ctrl_c() {
    const NAME: &str = "a_survey_of_an_idle_host_says_so_in_a_line_and_keeps_what_it_has_on_ctrl_c";
    let state = tempfile::tempdir().unwrap();
    let output = interrupted(state.path());
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let answer = text(&output.stdout);
    assert!(answer.starts_with("PARTIAL: interrupted\n"), "{answer}");
    assert!(answer.lines().count() <= 25, "{answer}");
    let recording = state.path().join("taut/survey-partial.json");
    assert!(answer.ends_with(&format!("taut report {}\n", recording.display())), "{answer}");
    assert!(answer.lines().rev().skip(1).all(|line| line.chars().count() <= 100), "{answer}");
    let report = taut().arg("report").arg(&recording).output().unwrap();
    assert!(report.status.success(), "{}", text(&report.stderr));
    let report = text(&report.stdout);
    assert!(report.contains("Connections of this host\n") && report.contains("What works here\n"), "{report}");
    if !is_root() {
        return skip(NAME, "the rest takes root, for a network without connections");
    }
    let idle = answer.lines().find(|line| line.starts_with("connections ")).unwrap();
    assert!(idle.contains("This host had no TCP connection in 5"), "{answer}");
}

#[test]
fn a_survey_without_rights_whose_server_dies_keeps_what_it_has_and_names_what_failed() {
    let taut = env!("CARGO_BIN_EXE_taut");
    // Another user may not be allowed to run the program where it was built.
    let nobody = ["--reuid", "65534", "--clear-groups", taut];
    let may = Command::new("setpriv").args(nobody).arg("--version").output().is_ok_and(|done| done.status.success());
    let mut command = if is_root() && may { Command::new("setpriv") } else { Command::new(taut) };
    command.args(if is_root() && may { &nobody[..] } else { &[] });
    let mut child = command.args(["survey", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let server = child_of(&mut child, "serve");
    // The round trips take 6 s, and a second later frames are on their way.
    thread::sleep(Duration::from_millis(8_000));
    kill_process(server, Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let document = parse(&output);
    assert_eq!(document["ended"]["how"], "failed");
    let why = document["ended"]["why"].as_str().unwrap();
    assert!(why.contains("throughput: "), "{why}");
    let rows = document["results"].as_array().unwrap();
    let of = |workload: &str| rows.iter().filter(|row| row["workload"] == workload).count();
    assert!(of("check") >= 8 && of("watch") == 1 && of("echo") >= 4, "{why}");
}

/// A recording of format 2, whose survey staged its stalls itself.
#[test]
fn an_old_survey_is_rendered_as_it_was() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/survey-2.json");
    let output = taut().args(["report", path]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = text(&output.stdout);
    for part in
        ["Round trips", "Periodic sending", "Many connections, few active", "Settings tried", "LE link in virtual"]
    {
        assert!(report.contains(part), "{part}\n{report}");
    }
    assert!(report.contains("[nagle_delayed_ack]") && !report.contains("Connections of this host"), "{report}");
}

/// A container may have it so.
#[test]
fn where_loopback_is_down_doctor_ends_and_says_what_is_missing() {
    const NAME: &str = "where_loopback_is_down_doctor_ends_and_says_what_is_missing";
    if !is_root() {
        return skip(NAME, "takes root, for a network namespace");
    }
    let mut command = Command::new("timeout");
    let output = command
        .args(["60", "unshare", "--net"])
        .arg(env!("CARGO_BIN_EXE_taut"))
        .args(["doctor", "--json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document = parse(&output);
    let mut checks = document["results"].as_array().unwrap().iter();
    let observer = checks.find(|check| check["what"] == "observer of writes").unwrap();
    assert_eq!((&observer["works"], &observer["remedy"]), (&false.into(), &"bring the loopback interface up".into()));
}
