//! The reader's account: which results came, which are missing, and who said so.

use std::collections::BTreeMap;

use super::message::{Found, Report};
use crate::outcome::Results;

/// Lives of agents that are told apart; more are strange.
const MOST_LIVES: usize = 200_000;
/// Lives that are named because they did not close.
const MOST_NAMED: usize = 100;

/// One life of an agent under one plan.
#[derive(Debug, Default)]
struct Life {
    /// The one before its first.
    before: u64,
    highest: u64,
    taken: u64,
    again: u64,
    dropped: u64,
    is_closed: bool,
    /// It has orders, and nothing has come of it.
    is_awaited: bool,
}

/// What has come. An agent sends its results in their order, so that of each life the highest number tells all.
#[derive(Debug, Default)]
pub(super) struct Account {
    lives: BTreeMap<(String, u64, String), Life>,
    strange: u64,
}

impl Account {
    /// Says that this life of an agent has orders: it is unclosed until it says something else.
    pub(super) fn expect(&mut self, agent: &str, epoch: u64, plan: &str) {
        let key = (agent.to_owned(), epoch, plan.to_owned());
        self.lives.entry(key).or_insert_with(|| Life { is_awaited: true, ..Life::default() });
    }

    /// Takes a result into account; whether it is new.
    pub(super) fn take(&mut self, report: &Report) -> bool {
        let key = (report.agent.clone(), report.epoch, report.plan.clone());
        if self.lives.len() >= MOST_LIVES && !self.lives.contains_key(&key) {
            self.strange();
            return false;
        }
        let life = self.lives.entry(key).or_insert_with(|| Life {
            before: report.before,
            highest: report.before,
            ..Life::default()
        });
        if std::mem::take(&mut life.is_awaited) {
            (life.before, life.highest) = (report.before, report.before);
        }
        // What was sent again may come after later ones.
        if report.seq <= life.highest {
            life.again += 1;
            return false;
        }
        life.highest = report.seq;
        life.taken += 1;
        life.dropped = life.dropped.max(report.dropped);
        life.is_closed |= matches!(report.found, Found::Closed);
        true
    }

    /// Counts a message that is no result of this run.
    pub(super) const fn strange(&mut self) {
        self.strange = self.strange.saturating_add(1);
    }

    /// Whether each of these agents has closed this plan in its last life.
    pub(super) fn are_closed<'a>(&self, plan: &str, agents: impl IntoIterator<Item = &'a String>) -> bool {
        agents.into_iter().all(|agent| {
            let lives = self.lives.range((agent.clone(), 0, String::new())..=(agent.clone(), u64::MAX, "~".to_owned()));
            lives.rev().find(|((_, _, of), _)| of == plan).is_some_and(|(_, life)| life.is_closed)
        })
    }

    /// The sums. Closing messages are counted as results by nobody.
    pub(super) fn results(&self) -> Results {
        let mut sums = Results { strange: self.strange, ..Results::default() };
        for ((agent, epoch, _), life) in &self.lives {
            let missing = (life.highest - life.before).saturating_sub(life.taken);
            let dropped = life.dropped.min(missing);
            sums.taken += life.taken - u64::from(life.is_closed);
            sums.again = sums.again.saturating_add(life.again);
            sums.dropped = sums.dropped.saturating_add(dropped);
            sums.missing = sums.missing.saturating_add(missing - dropped);
            if !life.is_closed && sums.unclosed.len() < MOST_NAMED {
                sums.unclosed.push(format!("{agent} (since {})", epoch / 1_000_000_000));
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(epoch: u64, seq: u64, dropped: u64, is_last: bool) -> Report {
        let failed = Found::Failed { work: 0, peer: "b".to_owned(), look: false, why: String::new() };
        let found = if is_last { Found::Closed } else { failed };
        Report { dropped, ..Report::new("a", epoch, seq, 10, "p", found) }
    }

    #[test]
    fn gaps_are_told_and_nothing_counts_twice() {
        let mut account = Account::default();
        let taken: Vec<bool> = [report(1, 11, 0, false), report(1, 12, 0, false), report(1, 12, 0, false)]
            .iter()
            .chain(&[report(1, 15, 1, false), report(1, 16, 1, true)])
            .map(|report| account.take(report))
            .collect();
        assert_eq!(taken, [true, true, false, true, true]);
        let agents = ["a".to_owned()];
        assert!(account.are_closed("p", &agents) && !account.are_closed("q", &agents));
        let sums = account.results();
        assert_eq!((sums.taken, sums.again, sums.dropped, sums.missing), (3, 1, 1, 1));
        // A new life counts anew, and the old one stays closed.
        assert!(account.take(&report(2, 11, 0, false)));
        assert!(!account.are_closed("p", &agents) && account.results().unclosed.len() == 1);
    }

    #[test]
    fn a_life_of_which_nothing_came_is_told() {
        let mut account = Account::default();
        (1..=2).for_each(|epoch| account.expect("a", epoch, "p"));
        assert!(!account.are_closed("p", &["a".to_owned()]));
        assert!(account.take(&report(2, 11, 0, true)));
        // The first life was killed before it said anything, and nobody knows whether it had measured.
        let sums = account.results();
        assert_eq!((sums.taken, sums.missing, sums.unclosed.len()), (0, 0, 1));
        assert!(account.take(&report(1, 11, 0, true)));
        assert!(account.results().unclosed.is_empty() && account.are_closed("p", &["a".to_owned()]));
    }

    proptest! {
        /// Whatever is dropped by the agent, lost under way or sent twice: what was made is taken, dropped or missing.
        #[test]
        fn it_adds_up(fates in prop::collection::vec(0_u8..4, 1..80)) {
            let (mut account, mut dropped, mut taken) = (Account::default(), 0, 0);
            for (seq, fate) in (11_u64..).zip(&fates) {
                match fate {
                    0 => dropped += 1,
                    1 => {}
                    _ => {
                        let report = report(1, seq, dropped, false);
                        prop_assert!(account.take(&report));
                        taken += 1;
                        prop_assert!(*fate == 2 || !account.take(&report));
                    }
                }
            }
            let made = fates.len() as u64;
            account.take(&report(1, 11 + made, dropped, true));
            let sums = account.results();
            prop_assert_eq!((sums.taken, sums.dropped), (taken, dropped));
            prop_assert_eq!(sums.taken + sums.dropped + sums.missing, made);
        }
    }
}
