//! What an agent has done, for those who collect figures.

use std::collections::BTreeMap;

use crate::figure::Measured;

/// What an agent has done since it began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentCounts {
    /// Whether it has its NATS server.
    pub is_connected: bool,
    /// Measurements that were begun, looks into pairs among them.
    pub begun: u64,
    /// Of these, those that brought a result.
    pub measured: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// Of these, those that were ended without a result, as their plan was over.
    pub stopped: u64,
    /// Measurements that were not begun, as its own limits are against them.
    pub refused: u64,
    /// Measurements that were not begun, as no such peer or no lease was there any more.
    pub unreached: u64,
    /// Results that wait for the server.
    pub waiting: u64,
    /// Results that the server has taken.
    pub taken: u64,
    /// Results that were dropped, since too many waited.
    pub dropped: u64,
    /// What came of each pair, looks not included. Of more than [`MOST_COUNTED`] those that were measured last.
    pub pairs: BTreeMap<CountedPair, PairCounts>,
}

/// Pairs of which an agent keeps figures: so many that they take about a megabyte at most.
pub const MOST_COUNTED: usize = 1000;

/// A work of a plan, measured to a peer.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct CountedPair {
    /// Who was asked, by its name.
    pub peer: String,
    /// Which of the plan's works it is, from 0.
    pub work: usize,
    /// What was measured: `echo udp`.
    pub what: String,
}

/// What came of a pair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairCounts {
    /// How often it was measured.
    pub measured: u64,
    /// How often that failed.
    pub failed: u64,
    /// Messages sent.
    pub messages: u64,
    /// Of these, those without a reply.
    pub lost: u64,
    /// What was measured last; `None` where that failed.
    pub last: Option<Measured>,
    /// When, among all of the agent's.
    turn: u64,
}

impl AgentCounts {
    /// Enters what came of a measurement of that pair; `None` where it failed.
    pub fn enter(&mut self, pair: CountedPair, measured: Option<Measured>) {
        // Each one that ended has ended after all before.
        let turn = self.measured + self.failed;
        if !self.pairs.contains_key(&pair) && self.pairs.len() >= MOST_COUNTED {
            let oldest = self.pairs.iter().min_by_key(|(_, counts)| counts.turn).map(|(pair, _)| pair.clone());
            if let Some(pair) = oldest {
                self.pairs.remove(&pair);
            }
        }
        let counts = self.pairs.entry(pair).or_default();
        counts.turn = turn;
        match &measured {
            Some(measured) => {
                counts.measured += 1;
                counts.messages = counts.messages.saturating_add(measured.sent);
                counts.lost = counts.lost.saturating_add(measured.lost);
            }
            None => counts.failed += 1,
        }
        counts.last = measured;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(number: usize) -> CountedPair {
        CountedPair { peer: format!("h{number}"), work: 0, what: "echo udp".to_owned() }
    }

    #[test]
    fn what_comes_of_a_pair_adds_up_and_its_last_result_stands() {
        let mut counts = AgentCounts::default();
        counts.enter(pair(1), Some(Measured { sent: 20, lost: 1, ..Measured::default() }));
        counts.enter(pair(1), Some(Measured { sent: 30, lost: 2, ..Measured::default() }));
        let of = |counts: &AgentCounts| counts.pairs[&pair(1)].clone();
        let found = of(&counts);
        assert_eq!((found.measured, found.failed, found.messages, found.lost), (2, 0, 50, 3));
        assert_eq!(found.last.map(|last| last.sent), Some(30));
        counts.enter(pair(1), None);
        let found = of(&counts);
        assert_eq!((found.measured, found.failed, found.messages, found.last), (2, 1, 50, None));
    }

    #[test]
    fn of_too_many_pairs_the_last_ones_stay() {
        let mut counts = AgentCounts::default();
        for number in (0..MOST_COUNTED).chain([0, MOST_COUNTED]) {
            counts.measured += 1;
            counts.enter(pair(number), Some(Measured::default()));
        }
        assert_eq!(counts.pairs.len(), MOST_COUNTED);
        // It was measured again meanwhile.
        let has = |number: usize| counts.pairs.contains_key(&pair(number));
        assert_eq!([0, 1, 2, MOST_COUNTED].map(has), [true, false, true, true]);
    }
}
