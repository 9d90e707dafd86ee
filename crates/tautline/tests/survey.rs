//! The main job, and throughput.

mod support;

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use support::{Serve, causes, parse, run_json, taut, text};

#[test]
fn survey_measures_explains_and_reports_every_local_path() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("survey.html");
    let output = taut().args(["survey", "--json", "--html"]).arg(&page).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = parse(&output);
    assert_eq!(document["ended"]["how"], "complete");
    let rows = document["results"].as_array().unwrap();
    let of = |workload: &str| rows.iter().filter(|row| row["workload"] == workload).count();
    assert!(of("floor") >= 4 && of("check") >= 8, "floor {}, check {}", of("floor"), of("check"));
    for transport in ["tcp", "udp", "unix", "unix-dgram"] {
        assert!(rows.iter().any(|row| row["workload"] == "echo" && row["transport"] == transport), "{transport}");
    }
    // Where there are two processors, each echo and stream has a row for both ends on one and a row for one each.
    let placed = if rustix::thread::sched_getaffinity(None).unwrap().count() > 1 { 2 } else { 1 };
    assert!(of("pace") >= 3 && of("stream") == 3 * placed && of("tune") >= 10);
    for kind in ["same_core", "two_cores"].iter().filter(|_| placed == 2) {
        let echoes = rows.iter().filter(|row| row["workload"] == "echo" && row["placement"]["kind"] == *kind);
        assert!(echoes.clone().count() >= 6, "{kind}");
        // Each but the first is held against another row of its kind.
        for row in echoes.filter(|row| !row["compared"].is_null()) {
            let with = row["compared"]["with"].as_str().unwrap();
            assert!(with.ends_with(&kind.replace('_', " ")), "{row:#}");
        }
    }
    assert!(causes(&document).contains(&"nagle_delayed_ack"));
    let crowd: Vec<_> = rows.iter().filter(|row| row["workload"] == "crowd").collect();
    assert_eq!(crowd.len(), 5);
    assert!(crowd.iter().all(|row| row["rtt_ns"].is_object() != row["why_not"].is_string()), "{crowd:#?}");
    for row in rows.iter().filter(|row| row["command"].is_string()) {
        assert!(row["command"].as_str().unwrap().starts_with("taut "), "{row:#}");
    }
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.len() < 600 * 1024, "{} bytes", html.len());
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

/// The process that a process started with this word in its command line.
fn child_of(parent: u32, word: &str) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children.split_whitespace().find_map(|child| {
        let line = std::fs::read_to_string(format!("/proc/{child}/cmdline")).ok()?;
        line.split('\0').any(|argument| argument == word).then(|| child.parse().ok())?
    })
}

#[test]
fn a_survey_whose_server_dies_keeps_what_it_has_and_names_what_failed() {
    let child = taut().args(["survey", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let server = loop {
        if let Some(server) = child_of(child.id(), "serve") {
            break rustix::process::Pid::from_raw(server).unwrap();
        }
        thread::sleep(Duration::from_millis(20));
    };
    // The round trips take 9 s, and a second later frames are on their way.
    thread::sleep(Duration::from_millis(12_500));
    rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let document = parse(&output);
    assert_eq!(document["ended"]["how"], "failed");
    let why = document["ended"]["why"].as_str().unwrap();
    assert!(why.contains("throughput: ") && why.contains("write-write-read: "), "{why}");
    let rows = document["results"].as_array().unwrap();
    let of = |workload: &str| rows.iter().filter(|row| row["workload"] == workload).count();
    // What came before, and what needs no server.
    assert!(of("check") >= 8 && of("echo") >= 4 && of("crowd") == 5 && of("air") == 5, "{why}");
}
