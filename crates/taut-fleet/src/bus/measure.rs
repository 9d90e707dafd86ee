//! One measurement, in a process of its own that ends with its stdin, so at this one's death too.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::process::{Running, Waited};
use crate::reply::{document, explained};
use crate::task::{self, LOOK, MARGIN, NO_DOCUMENT};
use crate::work::Work;

use super::lease::Deadline;
use super::message::Found;

/// A plan's patience beyond this is none of an agent's, whose own limit of time is to mean something.
const MOST_PATIENCE: Duration = Duration::from_secs(20);

/// What is measured, with all that it takes.
pub(super) struct Measurement {
    /// The program.
    pub(super) taut: String,
    pub(super) number: usize,
    pub(super) work: Work,
    pub(super) peer: String,
    pub(super) endpoint: String,
    /// Of a look.
    pub(super) period: Option<Duration>,
    /// How long it may take in any case.
    pub(super) most: Duration,
    pub(super) patience: Duration,
}

impl Measurement {
    /// After which it is ended.
    fn limit(&self) -> Duration {
        let longest = if self.period.is_some() { LOOK } else { self.work.longest().min(self.most) };
        longest.saturating_add(MARGIN).saturating_add(self.patience.min(MOST_PATIENCE))
    }

    /// Measures; `None` where it was stopped. Where it has leases it is over before others may begin.
    pub(super) fn run(self, stop: &AtomicBool, deadline: Option<&Deadline>) -> Option<Found> {
        let words = match self.period {
            Some(period) => task::look(period, self.endpoint.clone()),
            None => task::measure(&self.work, self.endpoint.clone()),
        };
        let words: Vec<String> =
            [self.taut.clone()].into_iter().chain(words).chain(["--while-stdin-open".to_owned()]).collect();
        let (work, peer, look) = (self.number, self.peer.clone(), self.period.is_some());
        match self.found(&words, stop, deadline) {
            Ok(found) => found,
            Err(why) => Some(Found::Failed { work, peer, look, why }),
        }
    }

    fn found(self, words: &[String], stop: &AtomicBool, deadline: Option<&Deadline>) -> Result<Option<Found>, String> {
        let limit = self.limit();
        let mut running = Running::start(words, Stdio::piped()).map_err(|error| format!("{}: {error}", self.taut))?;
        let is_stopped = || stop.load(Ordering::Relaxed);
        let is_over = || is_stopped() || deadline.is_some_and(Deadline::is_over);
        let done = match running.wait_unless(limit, &is_over).map_err(|error| error.to_string())? {
            Waited::Done(done) => done,
            Waited::TooLong => return Err(format!("it was not over within {limit:?}")),
            Waited::Stopped if is_stopped() => return Ok(None),
            Waited::Stopped => return Err("it was ended before its lease was over".to_owned()),
        };
        let Some(document) = document(&done.stdout) else {
            return Err(if done.status.success() { NO_DOCUMENT.to_owned() } else { done.last_words });
        };
        let (work, peer) = (self.number, self.peer);
        Ok(Some(match self.period {
            None => Found::Measured { work, peer, measured: task::measured(&document.value)? },
            Some(_) => Found::Explained { work, peer, explained: explained(&document.value)? },
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    fn measurement(taut: String) -> Measurement {
        Measurement {
            taut,
            number: 0,
            work: toml::from_str("echo = \"udp\"").unwrap(),
            peer: "b".to_owned(),
            endpoint: "udp://127.0.0.1:1".to_owned(),
            period: None,
            most: Duration::from_secs(5),
            patience: Duration::from_secs(600),
        }
    }

    #[test]
    fn a_plan_s_patience_does_not_undo_an_agent_s_limit() {
        assert_eq!(measurement(String::new()).limit(), Duration::from_secs(5) + MARGIN + MOST_PATIENCE);
    }

    /// Whatever keeps the agent itself from ending it.
    #[test]
    fn it_ends_with_its_lease() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("taut");
        // Written by another process: what this one has open for writing might be another test's child's as well.
        let write = "printf '#!/bin/sh\nexec sleep 30\n' >\"$0\" && chmod 700 \"$0\"";
        assert!(Command::new("sh").args(["-c", write]).arg(&script).status().unwrap().success());
        let (begin, never) = (Instant::now(), AtomicBool::new(false));
        let deadline = Deadline::after(Duration::from_millis(100));
        let found = measurement(script.to_str().unwrap().to_owned()).run(&never, Some(&deadline));
        let Some(Found::Failed { why, .. }) = found else { panic!("{found:?}") };
        assert!(why.contains("its lease") && begin.elapsed() < Duration::from_secs(20), "{why}");
    }
}
