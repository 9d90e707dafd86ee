//! A program of `taut demo` at work.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::taut;

/// Ended when dropped.
pub(crate) struct Staged {
    child: Child,
    /// Where its server listened.
    pub(crate) port: u16,
}

impl Staged {
    pub(crate) fn start(case: &str) -> Self {
        Self::by(taut(), case)
    }

    /// The same by a command that ends in a call of `taut`.
    pub(crate) fn by(mut command: Command, case: &str) -> Self {
        command.args(["demo", "--json", "--for", "60s", "--case", case]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("`{line}`: {error}"));
        let port = told["staged"]["port"].as_u64().unwrap() as u16;
        Self { child, port }
    }

    /// The number of the process that was started.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
