//! What the tests of live traces share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod ring;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{parse, skip, taut, text};

/// Whether this user may trace here; else the test is skipped.
pub(crate) fn may_trace(test: &str) -> bool {
    let output = taut().args(["trace", "--", "true"]).output().unwrap();
    match output.status.code() {
        Some(0) => true,
        Some(4) => {
            skip(test, text(&output.stderr).trim());
            false
        }
        code => panic!("{code:?}: {}", text(&output.stderr)),
    }
}

/// A trace that is attached, until it is asked for what it saw.
pub(crate) struct Traced(Child);

impl Traced {
    pub(crate) fn start(port: u16) -> Self {
        Self::of(&["--port", &port.to_string()])
    }

    pub(crate) fn of(what: &[&str]) -> Self {
        let mut command = taut();
        command.args(["trace", "--json", "--top", "200"]).args(what).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("tracing p"), "{line}");
        Self(child)
    }

    pub(crate) fn finish(self) -> Value {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGINT).unwrap();
        let output = self.0.wait_with_output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        let document = parse(&output);
        assert_eq!(document["lost_records"], 0);
        adds_up(&document);
        document
    }
}

/// The parts of each direction add up to its time, to the nanosecond.
pub(crate) fn adds_up(document: &Value) {
    let directions = document["worst"].as_array().unwrap();
    for direction in directions {
        let parts: u64 =
            direction["breakdown"].as_array().unwrap().iter().map(|held| held["held_ns"].as_u64().unwrap()).sum();
        assert_eq!(parts, direction["span_ns"].as_u64().unwrap(), "{direction}");
    }
}

/// The direction in which this port sends.
pub(crate) fn sent_by(document: &Value, port: u16) -> &Value {
    let end = format!(":{port}");
    let mut directions = document["worst"].as_array().unwrap().iter();
    let found = directions.find(|one| one["is_outgoing"] == true && one["from"].as_str().unwrap().ends_with(&end));
    found.unwrap_or_else(|| panic!("{document:#}"))
}

pub(crate) fn verdict<'a>(direction: &'a Value, cause: &str) -> &'a Value {
    let mut verdicts = direction["verdicts"].as_array().unwrap().iter();
    verdicts.find(|on| on["cause"] == cause).unwrap()
}

/// Whether events of this connection were missed: there are kernels that run no program in an interrupt that comes
/// while a certain process is current.
pub(crate) fn has_gap(direction: &Value) -> bool {
    direction["remarks"].as_array().unwrap().iter().any(|remark| remark.as_str().unwrap().contains("were missed"))
}
