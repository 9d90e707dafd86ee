//! What the tests of live traces share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod first;
pub(crate) mod loaded;
pub(crate) mod ring;
pub(crate) mod staged;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

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

/// A trace that is attached, until it is asked for what it saw; killed when dropped.
pub(crate) struct Traced(Option<Child>);

impl Traced {
    pub(crate) fn start(port: u16) -> Self {
        Self::of(&["--port", &port.to_string()])
    }

    pub(crate) fn of(what: &[&str]) -> Self {
        Self::by(taut(), what)
    }

    /// The same by a command that ends in a call of `taut`.
    pub(crate) fn by(mut command: Command, what: &[&str]) -> Self {
        command.args(["trace", "--json", "--top", "200"]).args(what).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("tracing "), "{line}");
        Self(Some(child))
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.id() as i32), signal).unwrap();
    }

    pub(crate) fn finish(self) -> Value {
        let document = self.end();
        assert_eq!(document["lost_records"], 0);
        document
    }

    /// What it saw, whether or not records were lost.
    pub(crate) fn end(self) -> Value {
        self.signal(Signal::SIGINT);
        self.wait()
    }

    /// The same of one that ends by itself.
    pub(crate) fn wait(mut self) -> Value {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        let document = parse(&output);
        adds_up(&document);
        document
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
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

/// The direction in which a client sends to this port.
pub(crate) fn sent_to(document: &Value, port: u16) -> &Value {
    let end = format!(":{port}");
    let mut directions = document["worst"].as_array().unwrap().iter();
    let found = directions.find(|one| one["is_outgoing"] == true && one["to"].as_str().unwrap().ends_with(&end));
    found.unwrap_or_else(|| panic!("{document:#}"))
}

/// The causes that were found in a direction, worst first.
pub(crate) fn found(direction: &Value) -> Vec<&str> {
    let verdicts = direction["verdicts"].as_array().unwrap().iter();
    verdicts.filter(|on| on["verdict"] == "found").map(|on| on["cause"].as_str().unwrap()).collect()
}

/// Time in ns that somebody holds.
pub(crate) fn held_ns(direction: &Value, holder: &str) -> u64 {
    let mut held = direction["breakdown"].as_array().unwrap().iter();
    held.find(|held| held["holder"] == holder).map_or(0, |held| held["held_ns"].as_u64().unwrap())
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
