//! The main job, and throughput.

mod support;

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
    assert!(of("pace") >= 3 && of("stream") == 3 && of("tune") >= 10);
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
