//! One measurement, in a process of its own that ends with its stdin, so at this one's death too.

use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::process::{Running, Waited};
use crate::reply::{document, explained};
use crate::task::{self, LOOK, MARGIN, NO_DOCUMENT};
use crate::work::Work;

use super::message::Found;

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
    /// Measures; `None` where it was stopped.
    pub(super) fn run(self, stop: &AtomicBool) -> Option<Found> {
        let (words, longest) = match self.period {
            Some(period) => (task::look(period, self.endpoint.clone()), LOOK),
            None => (task::measure(&self.work, self.endpoint.clone()), self.work.longest().min(self.most)),
        };
        let words: Vec<String> =
            [self.taut.clone()].into_iter().chain(words).chain(["--while-stdin-open".to_owned()]).collect();
        let limit = longest.saturating_add(MARGIN).saturating_add(self.patience);
        let (work, peer, look) = (self.number, self.peer.clone(), self.period.is_some());
        match self.found(&words, limit, stop) {
            Ok(found) => found,
            Err(why) => Some(Found::Failed { work, peer, look, why }),
        }
    }

    fn found(self, words: &[String], limit: Duration, stop: &AtomicBool) -> Result<Option<Found>, String> {
        let mut running = Running::start(words, Stdio::piped()).map_err(|error| format!("{}: {error}", self.taut))?;
        let done = match running.wait(limit, stop).map_err(|error| error.to_string())? {
            Waited::Done(done) => done,
            Waited::TooLong => return Err(format!("it was not over within {limit:?}")),
            Waited::Stopped => return Ok(None),
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
