//! What an agent has done so far, for whoever wants to know meanwhile.

use std::sync::{Mutex, PoisonError};

use super::message::Found;
use super::unsent::Unsent;
use crate::counts::{AgentCounts, CountedPair};
use crate::work::Work;

/// Counts of an agent at work, which another thread may read.
#[derive(Debug, Default)]
pub struct AgentTally {
    counts: Mutex<AgentCounts>,
}

impl AgentTally {
    /// What has been done so far.
    pub fn so_far(&self) -> AgentCounts {
        self.with(|counts| counts.clone())
    }

    pub(super) fn connected(&self, is_connected: bool) {
        self.with(|counts| counts.is_connected = is_connected);
    }

    pub(super) fn begun(&self) {
        self.with(|counts| counts.begun += 1);
    }

    /// Counts what came of a measurement that was begun; nothing where it was stopped.
    pub(super) fn ended(&self, work: &Work, found: Option<&Found>) {
        let pair = |peer: &str, number: usize| CountedPair {
            peer: peer.to_owned(),
            work: number,
            what: format!("{} {}", work.kind.name(), work.transport.name()),
        };
        self.with(|counts| match found {
            Some(Found::Measured { work, peer, measured }) => {
                counts.measured += 1;
                counts.enter(pair(peer, *work), Some(measured.clone()));
            }
            Some(Found::Explained { .. }) => counts.measured += 1,
            Some(Found::Failed { work, peer, look, .. }) => {
                counts.failed += 1;
                if !look {
                    counts.enter(pair(peer, *work), None);
                }
            }
            Some(Found::Refused { .. } | Found::Closed) | None => counts.stopped += 1,
        });
    }

    /// Counts a task of which no measurement was begun.
    pub(super) fn not_begun(&self, found: &Found) {
        self.with(|counts| match found {
            Found::Refused { .. } => counts.refused += 1,
            _ => counts.unreached += 1,
        });
    }

    pub(super) fn taken(&self) {
        self.with(|counts| counts.taken += 1);
    }

    /// Takes over how many results wait, and how many were dropped.
    pub(super) fn queue(&self, unsent: &Unsent) {
        let (waiting, dropped) = (unsent.results() as u64, unsent.all_dropped());
        self.with(|counts| (counts.waiting, counts.dropped) = (waiting, dropped));
    }

    fn with<T>(&self, f: impl FnOnce(&mut AgentCounts) -> T) -> T {
        // Numbers are whole whoever panicked beside them.
        f(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_begun_ends_in_one_way() {
        let tally = AgentTally::default();
        let work: Work = toml::from_str("echo = \"udp\"").unwrap();
        let failed = |look| Found::Failed { work: 3, peer: "b".to_owned(), look, why: String::new() };
        let refused = Found::Refused { work: 3, peer: "b".to_owned(), look: false, why: String::new() };
        let measured = Found::Measured { work: 3, peer: "b".to_owned(), measured: Default::default() };
        for found in [Some(&failed(false)), Some(&failed(true)), Some(&measured), None] {
            tally.begun();
            tally.ended(&work, found);
        }
        tally.not_begun(&refused);
        tally.not_begun(&failed(false));
        let counts = tally.so_far();
        assert_eq!((counts.begun, counts.measured, counts.failed, counts.stopped), (4, 1, 2, 1));
        assert_eq!((counts.refused, counts.unreached), (1, 1));
        let pairs: Vec<_> = counts.pairs.iter().map(|(pair, counts)| (pair.clone(), counts.failed)).collect();
        assert_eq!(pairs, [(CountedPair { peer: "b".to_owned(), work: 3, what: "echo udp".to_owned() }, 1)]);
    }
}
