//! What has been found of each pair so far.

use std::collections::HashMap;

use super::account::Account;
use super::message::{Found, Report};
use crate::outcome::{Explained, Failures, MeshOutcome, Reached};
use crate::pairs::Pair;

/// What is waited for: a work of a pair, or a look into it.
pub(super) type Wanted = (usize, usize, bool);

/// The outcome as it becomes, and the account of what it is made of. Whatever comes is taken in or counted.
pub(super) struct Board {
    pub(super) outcome: MeshOutcome,
    pub(super) account: Account,
    /// The hosts by name.
    numbers: HashMap<String, usize>,
    /// The pairs of each work, by their ends.
    places: HashMap<Pair, usize>,
    began_unix_ns: u64,
}

impl Board {
    pub(super) fn new(outcome: MeshOutcome, pairs: &[Pair], began_unix_ns: u64) -> Self {
        Self {
            numbers: outcome.hosts.iter().enumerate().map(|(number, host)| (host.name.clone(), number)).collect(),
            places: pairs.iter().enumerate().map(|(at, pair)| (*pair, at)).collect(),
            account: Account::default(),
            outcome,
            began_unix_ns,
        }
    }

    /// Whether it comes from a host of this mesh and is new.
    pub(super) fn is_new(&mut self, report: &Report) -> bool {
        if !self.numbers.contains_key(&report.agent) {
            self.account.strange();
            return false;
        }
        self.account.take(report)
    }

    /// Enters what was found; what that was, if anything was to be found there.
    pub(super) fn enter(&mut self, report: Report) -> Option<Wanted> {
        let times = [report.begin_unix_ns, report.end_unix_ns].map(|at| at.saturating_sub(self.began_unix_ns));
        let (work, peer) = match &report.found {
            Found::Measured { work, peer, .. }
            | Found::Explained { work, peer, .. }
            | Found::Failed { work, peer, .. }
            | Found::Refused { work, peer, .. } => (*work, peer),
            Found::Closed => return None,
        };
        let ends = self.numbers.get(&report.agent).zip(self.numbers.get(peer));
        let at = ends.and_then(|(&near, &far)| self.places.get(&Pair { near, far }).copied());
        let pair = at.and_then(|at| Some((at, self.outcome.works.get_mut(work)?.pairs.get_mut(at)?)));
        let Some((at, pair)) = pair else {
            self.account.strange();
            return None;
        };
        let (is_look, failed) = match report.found {
            Found::Measured { measured, .. } => {
                (pair.reached, pair.measured) = (Reached::Measured, Some(measured));
                (false, None)
            }
            Found::Explained { explained, .. } => {
                pair.explained = Some(explained);
                (true, None)
            }
            Found::Failed { look, why, .. } => (look, Some(why)),
            Found::Refused { look, why, .. } => (look, Some(format!("refused there: {why}"))),
            Found::Closed => return None,
        };
        match failed {
            Some(why) if is_look => pair.explained = Some(Explained { failed: Some(why), ..Explained::default() }),
            Some(why) => {
                let times = pair.failures.as_ref().map_or(0, |failures| failures.times).saturating_add(1);
                pair.failures = Some(Failures { times, why: why.clone() });
                (pair.reached, pair.measured) = (Reached::Failed(why), None);
            }
            None => {}
        }
        if let Some(explained) = pair.explained.as_mut().filter(|_| is_look) {
            [explained.begin_ns, explained.end_ns] = times;
        } else {
            (pair.begin_ns, pair.end_ns) = (Some(times[0]), Some(times[1]));
        }
        Some((work, at, is_look))
    }
}
