//! QEMU's monitor (QEMU Machine Protocol) on its standard input and output.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// A machine's monitor, from its greeting on.
pub(super) struct Monitor {
    input: ChildStdin,
    lines: Receiver<Value>,
    deadline: Instant,
}

/// How often a state is asked for that brings no event.
const LOOK: Duration = Duration::from_millis(5);

impl Monitor {
    /// Takes it; all that is asked of it has to be done within `time`.
    ///
    /// # Errors
    /// The machine ended, or did not answer in time.
    pub(super) fn new(input: ChildStdin, output: ChildStdout, time: Duration) -> Result<Self> {
        let (said, lines) = mpsc::channel();
        // It ends with the machine.
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for line in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if said.send(line).is_err() {
                    break;
                }
            }
        });
        let mut monitor = Self { input, lines, deadline: Instant::now() + time };
        monitor.wait(|line| line.get("QMP").is_some())?;
        monitor.ask("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// What a command returns; events meanwhile are dropped.
    ///
    /// # Errors
    /// It failed, or the machine did.
    pub(super) fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let line = json!({ "execute": command, "arguments": arguments });
        // The machine has ended if it can't be written to; what is read next says so.
        let _ = writeln!(self.input, "{line}");
        let mut answer = self.wait(|line| line.get("return").is_some() || line.get("error").is_some())?;
        if let Some(error) = answer.get("error") {
            bail!("{command}: {}", error["desc"].as_str().unwrap_or_default());
        }
        Ok(answer["return"].take())
    }

    /// Asks until the field `status` of the answer is none of these; that which it is then.
    ///
    /// # Errors
    /// As for [`ask`](Self::ask).
    pub(super) fn status(&mut self, command: &str, passing: &[&str]) -> Result<String> {
        loop {
            let answer = self.ask(command, &json!({}))?;
            let status = answer["status"].as_str().unwrap_or_default();
            if !status.is_empty() && !passing.contains(&status) {
                return Ok(status.to_owned());
            }
            thread::sleep(LOOK);
        }
    }

    fn wait(&self, is_it: impl Fn(&Value) -> bool) -> Result<Value> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).context("QEMU's monitor has ended or is too late")?;
            if is_it(&line) {
                return Ok(line);
            }
        }
    }
}
