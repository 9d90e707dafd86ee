//! Figures sent to a real collector of OpenTelemetry, and read back out of what it writes.

mod figures_support;
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use figures_support::collector::{Collector, Histogram, attribute, metrics};
use figures_support::{QUANTILES, known, near};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Serve, taut, text, words};
use taut_record::stats::{ExponentialHistogram, Quantile};
use taut_report::figures;

/// The points of a metric's only form.
fn points<'a>(request: &'a Value, name: &str, form: &str) -> &'a Vec<Value> {
    let found = metrics(request, name);
    assert_eq!(found.len(), 1, "{name}: {request:#}");
    found[0][form]["dataPoints"].as_array().unwrap_or_else(|| panic!("{name} is no {form}: {request:#}"))
}

/// The number of a point, which in the JSON of Protocol Buffers is a string where it is none.
fn number(point: &Value) -> f64 {
    let value = &point["asDouble"];
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_else(|| panic!("{point:#}"))
}

#[test]
fn what_a_collector_has_is_what_was_sent() {
    let Some(collector) = Collector::start("what_a_collector_has_is_what_was_sent") else { return };
    let (known, sums) = known();
    let sent = figures::otlp(&sums.families(), sums.span());
    let url = format!("{}/v1/metrics", collector.url());
    let mut answer = ureq::post(&url).content_type("application/json").send(sent.as_str()).unwrap();
    let said = answer.body_mut().read_to_string().unwrap();
    assert_eq!(figures::refused_by_otlp(said.as_bytes()), None, "{said}");
    let taken = collector.wait_for(1);
    assert_eq!(taken.len(), 1);
    for (endpoint, times) in &known {
        let of = |name: &str, form: &str| {
            let points = points(&taken[0], name, form).iter();
            points.filter(|point| attribute(point, "endpoint") == Some(*endpoint)).collect::<Vec<_>>()
        };
        let found = of("taut.round_trip", "exponentialHistogram");
        let [found] = found[..] else { panic!("{endpoint}: {found:?}") };
        let found = Histogram::of(found);
        // Each bucket, and so all that can be asked of them.
        let mut exact = ExponentialHistogram::new();
        exact.add(times);
        assert!(found.is(&exact), "{endpoint}: {found:?}");
        assert!(near(found.sum_s, exact.sum_s(), 1e-9), "{endpoint}: {} for {}", found.sum_s, exact.sum_s());
        let share = times.count() as f64 / times.messages() as f64;
        for q in QUANTILES {
            // They have no place for what never came.
            let exact = times.quantile(q * share).map_or(0.0, Quantile::as_f64) / 1e9;
            let found = found.quantile_s(q);
            assert!(near(found, exact, 0.011), "{endpoint} {q}: {found} for {exact}");
            println!("{endpoint} {q}: {found:.6e} s for {exact:.6e} s, {:+.2} %", 100.0 * (found / exact - 1.0));
        }
        for (name, exact) in [("taut.messages", times.messages()), ("taut.lost_messages", times.lost())] {
            assert_eq!(of(name, "sum").into_iter().map(number).collect::<Vec<_>>(), [exact as f64], "{endpoint}");
        }
        // What falls on a lost message is beyond every number.
        for point in of("taut.last_round_trip", "gauge") {
            let q: f64 = attribute(point, "quantile").unwrap().parse().unwrap();
            let exact = times.quantile(q).map_or(0.0, Quantile::as_f64) / 1e9;
            assert!(near(number(point), exact, 1e-9), "{endpoint} {q}: {point:#}");
        }
    }
}

/// The program itself, from its measurement to the file.
#[test]
fn taut_echo_is_read_back_within_the_width_of_a_bucket() {
    let Some(collector) = Collector::start("taut_echo_is_read_back_within_the_width_of_a_bucket") else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lines");
    let server = Serve::start("tcp://127.0.0.1:0");
    let line = format!("echo {} --rate 500 --place free --every 2s --for 2s", server.endpoint(0));
    let mut command = taut();
    command.args(words(&line)).args(["--otlp", &collector.url(), "--jsonl"]).arg(&file);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Sums: the first request has the first line alone.
    let taken = collector.wait_for(1);
    let lines = fs::read_to_string(&file).unwrap();
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    for (name, key) in [("taut.round_trip", "rtt_ns"), ("taut.response", "response_ns")] {
        let [point] = &points(&taken[0], name, "exponentialHistogram")[..] else { panic!("{:#}", taken[0]) };
        assert_eq!(attribute(point, "endpoint"), Some(server.endpoint(0)));
        let (found, row) = (Histogram::of(point), &first["results"][0][key]);
        assert!(found.count > 500 && row["count"] == found.count, "{first:#}");
        for (q, percentile) in [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p999")] {
            let (found, exact) = (found.quantile_s(q), row[percentile].as_f64().unwrap() / 1e9);
            assert!(near(found, exact, 0.011), "{name} {percentile}: {found} for {exact}");
        }
    }
}

#[test]
fn every_command_with_intervals_is_taken() {
    let Some(mut collector) = Collector::start("every_command_with_intervals_is_taken") else { return };
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("numbers");
    fs::write(&input, "1\n2\n").unwrap();
    let server = Serve::start("tcp://127.0.0.1:0");
    let endpoint = server.endpoint(0);
    let lines = [
        (format!("pace {endpoint} --place free --every 500ms --for 500ms"), "taut.delivery"),
        (format!("stream {endpoint} --place free --every 500ms --for 500ms"), "taut.stream"),
        ("watch --port 1 --every 500ms --for 400ms".to_owned(), "taut.connections"),
        (format!("route run --from lines:{} --to file:/dev/null --every 1m", input.display()), "taut.route_events"),
        ("pipe exec:true exec:true --every 1m".to_owned(), "taut.pipe"),
    ];
    for (line, name) in &lines {
        let mut command = taut();
        command.args(words(line)).args(["--otlp", &collector.url()]).env("XDG_RUNTIME_DIR", directory.path());
        // What is not taken in time makes a code of its own.
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        let begin = Instant::now();
        while !collector.taken().iter().any(|request| !metrics(request, name).is_empty()) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{line}: no {name}");
            thread::sleep(Duration::from_millis(20));
        }
    }
    collector.stop();
}

/// What waits for it goes when it is back: nothing is lost.
#[test]
fn a_collector_that_is_away_gets_all_when_it_is_back() {
    let Some(mut collector) = Collector::start("a_collector_that_is_away_gets_all_when_it_is_back") else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lines");
    let server = Serve::start("tcp://127.0.0.1:0");
    let mut command = taut();
    let line = format!("echo {} --rate 100 --place free --every 500ms", server.endpoint(0));
    command.args(words(&line)).args(["--otlp", &collector.url(), "--jsonl"]).arg(&file);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    collector.wait_for(2);
    collector.stop();
    let lines = || fs::read_to_string(&file).unwrap().lines().count();
    let wait_for_lines = |count: usize| {
        let begin = Instant::now();
        while lines() < count {
            assert!(begin.elapsed() < Duration::from_secs(60), "{} of {count} lines", lines());
            thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for_lines(lines() + 3);
    collector.start_again();
    let taken = collector.taken().len();
    collector.wait_for(taken + 3);
    // That it takes again what it is sent is told with the next interval.
    wait_for_lines(lines() + 2);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("taken again; 0 dropped so far"), "{said}");
    collector.stop();
    // The end of each interval, by its line and by what the collector has.
    let lines = fs::read_to_string(&file).unwrap();
    let end = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["began_unix_ns"].as_u64().unwrap() + line["duration_ns"].as_u64().unwrap()
    };
    let ends: BTreeSet<u64> = lines.lines().map(end).collect();
    let told = |request: &Value| {
        let points = points(request, "taut.round_trip", "exponentialHistogram");
        points[0]["timeUnixNano"].as_str().unwrap().parse::<u64>().unwrap()
    };
    let taken: BTreeSet<u64> = collector.taken().iter().map(told).collect();
    assert_eq!(taken, ends, "{said}");
}
