use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::{Losses, MOST_FALSE, losses_differ_at};

/// Losses of two things measured in turn.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct LossComparison {
    /// What it is held against.
    pub with: String,
    /// Share of the messages that were lost, from 0 to 1; in an open loop, of those planned that
    /// were lost or never sent.
    pub lost_share: f64,
    /// The same of what it is held against.
    pub lost_share_of_other: f64,
    /// Whether the two differ beyond chance, each message being lost by itself (Fisher's exact test, two-sided;
    /// at most 5 % false ones in a run, however many are compared). Then nothing is said of which is shorter.
    pub differs: bool,
}

impl LossComparison {
    /// Holds losses of one of `others` against those of their base; `None` where there are none.
    pub fn of(mine: Losses, other: Losses, others: usize, with: impl Into<String>) -> Option<Self> {
        (mine.lost + other.lost > 0).then(|| Self {
            with: with.into(),
            lost_share: mine.share(),
            lost_share_of_other: other.share(),
            differs: losses_differ_at(mine, other, MOST_FALSE / others.max(1) as f64).is_some(),
        })
    }
}

/// Two things measured in turn, round by round.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Comparison {
    /// What it is held against.
    pub with: String,
    /// Ratio of the medians: below 1 means that this row is shorter. The median over the rounds.
    pub p50_ratio: f64,
    /// Interval of that ratio across rounds.
    pub p50_ratio_ci: (f64, f64),
    /// Probability with which such an interval covers the ratio; absent in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ratio_level: Option<f64>,
    /// What can be said.
    pub verdict: Verdict,
    /// Rounds that a verdict takes, where there were fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_needed: Option<usize>,
}

impl Comparison {
    /// Without a verdict on times where the losses differ.
    pub fn beside(self, losses: Option<&LossComparison>) -> Self {
        let differs = losses.is_some_and(|losses| losses.differs);
        Self { verdict: if differs { Verdict::LossesDiffer } else { self.verdict }, ..self }
    }
}

/// What a comparison allows to say.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The times are shorter.
    Shorter,
    /// The times are longer.
    Longer,
    /// The interval across rounds holds "no difference".
    CannotTellApart,
    /// It could not be tried here.
    NotAvailable,
    /// With so few rounds equal things would be told apart too often.
    TooFewRounds,
    /// One loses more than the other, so that their times are no fair comparison.
    LossesDiffer,
}
