//! What a terminal gets: colour and a bar unless it is read line by line, and no line that is wider than it, but for
//! lines to copy.

mod support;
mod trace_support;

use std::fs;
use std::process::Stdio;

use support::terminal::{Seen, Terminal};
use support::{Serve, taut, words};
use trace_support::may_trace;

const COLUMNS: u16 = 80;

fn start(line: &str, environment: &[(&str, &str)]) -> Seen {
    let mut command = taut();
    command.args(words(line));
    Terminal::new(COLUMNS, 24).start(command, environment)
}

/// Does it, which is to succeed, or to miss what it was asked for.
fn told(line: &str, environment: &[(&str, &str)]) -> String {
    let (code, told) = start(line, environment).end();
    assert!(matches!(code, Some(0 | 3)), "taut {line}: {code:?}\n{told}");
    told
}

#[test]
fn colour_and_bars_are_left_out_where_a_terminal_is_read_line_by_line() {
    let server = Serve::start("tcp://127.0.0.1:0");
    let line = format!("stream {} --time 2s", server.endpoint(0));
    let coloured = told(&line, &[]);
    assert!(coloured.contains("\x1b[1mThroughput"), "{coloured:?}");
    assert!(coloured.contains("[==") && coloured.contains("> "), "no bar: {coloured:?}");
    for plain in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let told = told(&line, &[plain]);
        assert!(!told.contains('\x1b') && !told.contains('\r'), "{plain:?}: {told:?}");
        // What it does is said in a line.
        assert!(told.starts_with("taut: stream\n") && told.contains("\nThroughput\n"), "{plain:?}: {told:?}");
    }
    // An empty one says nothing (no-color.org).
    assert!(told(&line, &[("NO_COLOR", "")]).contains("\x1b["));
}

#[test]
fn messages_have_no_colour_there_either() {
    for (plain, is_plain) in [(("TERM", "xterm"), false), (("NO_COLOR", "1"), true), (("TERM", "dumb"), true)] {
        for line in ["--help", "echo tpc://127.0.0.1:9", "doctor"] {
            let (_, told) = start(line, &[plain]).end();
            assert_eq!(told.contains('\x1b'), !is_plain, "taut {line} with {plain:?}: {told:?}");
        }
    }
}

#[test]
fn progress_tells_the_time_left() {
    for (environment, shown) in [(("TERM", "xterm"), " s left"), (("TERM", "dumb"), "taut: ")] {
        let mut seen = start("demo nagle", &[environment]);
        assert!(seen.read_until(" s left"), "{}", seen.text);
        assert!(seen.text.contains(shown) && seen.text.contains("128 bytes every 10 ms"), "{}", seen.text);
        seen.child.kill().unwrap();
        seen.end();
    }
}

#[test]
fn a_trace_shows_what_it_has_found_while_it_goes_on() {
    if !may_trace("a_trace_shows_what_it_has_found_while_it_goes_on") {
        return;
    }
    let mut slow = taut().args(["demo", "--for", "10m"]).stdout(Stdio::null()).spawn().unwrap();
    let line = format!("trace --pid {} --for 10s", slow.id());
    let mut seen = start(&line, &[]);
    assert!(seen.read_until("s so far: "), "{}", seen.text);
    assert!(seen.read_until("nagle_delayed_ack"), "{}", seen.text);
    // What is found at the end begins with another line.
    assert!(!seen.text.contains("connections,"), "{}", seen.text);
    let (code, told) = seen.end();
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("HELD  SHARE  CAUSE"), "{told:?}");
    // Read line by line, it tells the end alone.
    let plain = self::told(&line, &[("NO_COLOR", "1")]);
    slow.kill().unwrap();
    slow.wait().unwrap();
    assert!(!plain.contains("so far") && plain.contains("Ctrl-C ends it"), "{plain}");
}

/// Commands and calls are one line, however long, so that they can be copied.
fn is_to_copy(line: &str) -> bool {
    let line = line.trim_start();
    let line = line.strip_prefix("command: ").unwrap_or(line);
    ["taut ", "sudo taut ", "sudo -E taut "].iter().any(|start| line.starts_with(start))
}

#[test]
fn tables_fit_a_terminal_of_80_columns() {
    let (server, directory) = Serve::on_all();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let endpoint = |index: usize| server.endpoint(index);
    let gate = path("gate.toml");
    let text = format!(
        "[workload]\ncommand = 'echo'\nendpoint = '{}'\ncount = 300\n[limits]\nassert = ['p50<1ns', 'lost<0.1%']\n\
         [findings]\nforbid = ['nagle_delayed_ack', 'cork']\n",
        endpoint(0)
    );
    fs::write(&gate, text).unwrap();
    let all = server.endpoints.join(" ");
    let mut lines = vec![
        format!("echo {all} --count 300 --deadline 1us,1ms,16.7ms"),
        format!("echo {} {} --rate 500 --time 1s", endpoint(0), endpoint(4)),
        format!("pace {} --time 1s --period 2ms", endpoint(4)),
        format!("pace {} --time 1s --nagle on --peer-ack delayed", endpoint(0)),
        format!("stream {} --time 500ms", endpoint(4)),
        format!("stream {} --time 500ms --direction both", endpoint(0)),
        format!("tune {} --time 20ms", endpoint(4)),
        format!("tune {} --workload write-write-read --time 100ms --rounds 5", endpoint(0)),
        "connections --connections 300 --active 1,10 --engines poll,epoll,glibc-aio --time 5ms --timeout 500ms"
            .to_owned(),
        format!("check {gate}"),
        "air run --time 1s".to_owned(),
        "air tune --time 1s".to_owned(),
        "air parameters".to_owned(),
        "doctor".to_owned(),
        "demo --explain".to_owned(),
        "demo --case cork --explain".to_owned(),
        "watch --once".to_owned(),
    ];
    let mut slow = taut().args(["demo", "--for", "10m"]).stdout(Stdio::null()).spawn().unwrap();
    lines.push(format!("sockets --pid {}", slow.id()));
    if may_trace("tables_fit_a_terminal_of_80_columns") {
        lines.push(format!("trace --pid {} --for 2s", slow.id()));
        lines.push(format!("trace --pid {} --for 2s --full", slow.id()));
    }
    let mut wide = Vec::new();
    for line in &lines {
        let told = told(line, &[("TERM", "dumb")]);
        assert!(told.lines().count() > 3, "taut {line}: {told}");
        let is_wide = |told: &&str| told.chars().count() > usize::from(COLUMNS) && !is_to_copy(told);
        let found: Vec<&str> = told.lines().filter(is_wide).collect();
        if !found.is_empty() {
            wide.push(format!("taut {line}\n{}", found.join("\n")));
        }
    }
    slow.kill().unwrap();
    slow.wait().unwrap();
    assert!(wide.is_empty(), "{}", wide.join("\n\n"));
}
