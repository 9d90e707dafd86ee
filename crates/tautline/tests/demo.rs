//! `taut demo`: what it stages is what the other commands find, and nothing is found without the mistake.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use support::{is_root, run, skip, taut, text};

/// The objects that it prints, one a line.
fn objects(bytes: &[u8]) -> Vec<Value> {
    text(bytes)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// What `--explain` prints, if it was traced.
fn explained(test: &str, more: &[&str]) -> Option<[Value; 3]> {
    let output = taut().args(["demo", "--explain", "--json"]).args(more).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    if text(&output.stderr).contains("nothing can be traced here") {
        skip(test, text(&output.stderr).trim());
        return None;
    }
    Some(objects(&output.stdout).try_into().unwrap())
}

/// Causes that were found, of the worst direction first.
fn causes(document: &Value) -> Vec<&str> {
    let directions = document["explained"]["worst"].as_array().unwrap().iter();
    let verdicts = directions.flat_map(|direction| direction["verdicts"].as_array().unwrap());
    verdicts.filter(|on| on["verdict"] == "found").filter_map(|on| on["cause"].as_str()).collect()
}

#[test]
fn each_case_is_named_by_the_trace_and_cured_nothing_is() {
    const NAME: &str = "each_case_is_named_by_the_trace_and_cured_nothing_is";
    let cases = [
        ("nagle", &["nagle_delayed_ack"][..], 25_000_000),
        ("slow-reader", &["receive_window", "receiving_program"], 1_000_000),
        ("cork", &["cork"], 150_000_000),
    ];
    // Each waits for most of its time, so they do not disturb each other.
    thread::scope(|scope| {
        for (case, expected, least_ns) in cases {
            scope.spawn(move || {
                let Some([staged, found, ended]) = explained(NAME, &["--case", case]) else { return };
                assert_eq!(staged["staged"]["case"], case);
                let first = causes(&found).first().copied().unwrap_or_default();
                assert!(expected.contains(&first), "{case}: {found:#}");
                assert!(ended["ended"]["median_ns"].as_u64() > Some(least_ns), "{ended:#}");
                let Some([_, found, _]) = explained(NAME, &["--case", case, "--cured"]) else { return };
                let found = causes(&found);
                assert!(expected.iter().all(|cause| !found.contains(cause)), "{case}: {found:?}");
            });
        }
    });
}

/// The commands are those that it prints, with its own numbers.
#[test]
fn it_can_be_looked_at_with_the_lines_that_it_prints_and_ends_by_ctrl_c() {
    const NAME: &str = "it_can_be_looked_at_with_the_lines_that_it_prints_and_ends_by_ctrl_c";
    if !is_root() {
        return skip(NAME, "root reads the options of others");
    }
    let mut demo = taut().arg("demo").stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(demo.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with("STAGED: a slow program") && line.contains(&demo.id().to_string()), "{line}");
    let sockets = format!("taut sockets --pid {}", demo.id());
    while line.trim() != sockets {
        line.clear();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "no line `{sockets}`");
    }
    let looked = run(&format!("sockets --pid {} --time 2s", demo.id()));
    assert!(text(&looked.stdout).contains("nagle_delayed_ack"), "{}", text(&looked.stdout));
    kill(Pid::from_raw(demo.id() as i32), Signal::SIGINT).unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(130));
    assert!(rest.contains("requests of 64 bytes so far") && rest.contains("What was staged: the client"), "{rest}");
    assert!(rest.lines().all(|line| line.chars().count() <= 100), "{rest}");
}

#[test]
fn without_the_right_to_trace_samples_tell_it() {
    const NAME: &str = "without_the_right_to_trace_samples_tell_it";
    if !is_root() || !support::has("setpriv") {
        return skip(NAME, "takes root and setpriv(1), to give the right away");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_taut"), "demo", "--explain", "--json"]);
    let output = command.output().unwrap();
    if text(&output.stderr).contains("Permission denied") {
        return skip(NAME, "another user may not run the program where it was built");
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let [_, found, _]: [Value; 3] = objects(&output.stdout).try_into().unwrap();
    let mut sockets = found["explained"]["sockets"].as_array().unwrap().iter();
    assert!(sockets.any(|socket| socket["suspicions"][0]["cause"] == "nagle_delayed_ack"), "{found:#}");
}

#[test]
fn for_a_time_it_runs_and_says_what_its_requests_took() {
    let output = run("demo --for 1s --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let [staged, ended]: [Value; 2] = objects(&output.stdout).try_into().unwrap();
    assert!(staged["staged"]["commands"].as_array().unwrap().len() >= 4);
    assert!(ended["ended"]["requests"].as_u64() > Some(0) && ended["ended"]["interrupted"] == false, "{ended}");
}

/// What a repetition has beside what was published.
fn published(document: &Value) -> Value {
    let mut rows = document["results"].as_array().unwrap().iter();
    rows.find(|row| row["workload"] == "published").unwrap_or_else(|| panic!("{document:#}")).clone()
}

fn experiment(name: &str) -> Value {
    let output = run(&format!("demo {name} --json"));
    assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["command"], format!("demo {name}"));
    published(&document)
}

/// Both values of the figure whose name begins so.
fn both(published: &Value, figure: &str) -> (f64, f64) {
    let mut figures = published["figures"].as_array().unwrap().iter();
    let row = figures.find(|row| row["figure"].as_str().unwrap().starts_with(figure)).unwrap();
    (row["published"].as_f64().unwrap(), row["here"].as_f64().unwrap_or_else(|| panic!("{row:#}")))
}

#[test]
fn an_experiment_in_virtual_time_shows_its_figures_beside_those_published() {
    let (there, here) = both(&experiment("ble"), "throughput at an interval of 7.5 ms");
    assert!((here / there - 1.0).abs() < 0.05, "{here} for {there}");
    let output = run("demo ble");
    let shown = text(&output.stdout);
    assert!(shown.contains("225 kbit/s") && shown.contains("It means: "), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
}

#[test]
fn an_experiment_over_loopback_shows_its_figures_beside_those_published() {
    let published = experiment("latency");
    let (there, here) = both(&published, "tcp: p50");
    assert!(there > 1e6 && here > 0.0 && here < 1e8, "{published:#}");
    assert!(published["figures"].as_array().unwrap().iter().any(|row| row["here"].is_null()), "no RFCOMM here");
}

#[test]
fn an_experiment_on_nagle_gives_the_gap_of_the_receivers_timer() {
    let published = experiment("nagle");
    let mut figures = published["figures"].as_array().unwrap().iter();
    let linux = figures.rfind(|row| row["figure"] == "mean gap, Nagle on, to Linux with delayed ACKs").unwrap();
    // The kernel's timer never ends early.
    assert!(linux["here"].as_f64() > Some(20e6), "{linux:#}");
}

/// With so few descriptors that there are few connections, which is quicker.
#[test]
fn an_experiment_with_a_server_of_many_connections_shows_both_engines() {
    let script = "ulimit -n 600; exec \"$0\" demo aio --json";
    let output = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_taut")]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let published = published(&serde_json::from_slice(&output.stdout).unwrap());
    let figures = published["figures"].as_array().unwrap();
    for name in ["poll: round trip, 1 active", "network AIO to poll, 1 active"] {
        let figure = figures.iter().find(|row| row["figure"].as_str() == Some(name)).unwrap();
        assert!(figure["here"].as_f64() > Some(0.0), "{figure:#}");
    }
}

#[test]
fn an_experiment_with_a_virtual_cable_shows_all_ways_or_says_what_it_takes() {
    let output = run("demo route --json");
    if !output.status.success() {
        assert!(text(&output.stderr).contains("sudo taut demo route"), "{}", text(&output.stderr));
        return;
    }
    let published = published(&serde_json::from_slice(&output.stdout).unwrap());
    assert!(both(&published, "kept open").1 > 0.0);
}
