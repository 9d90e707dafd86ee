//! What a mesh came to: the part of its document that is told the same in text, JSON and pages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::figure::{Figure, Measured};

/// What a mesh came to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct MeshOutcome {
    /// The hosts, in the order of the plan.
    pub hosts: Vec<HostOutcome>,
    /// What was measured, in the order of the plan.
    pub works: Vec<WorkOutcome>,
    /// Of agents: what became of their results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Results>,
}

/// An account of results, from the agents that made them to the one who gathered them.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Results {
    /// Results that were taken, each once.
    pub taken: u64,
    /// Results that came once more, and were not taken again.
    pub again: u64,
    /// Results that are missing and whose agents said that they had to drop them.
    pub dropped: u64,
    /// Results that are missing, and nobody said so.
    pub missing: u64,
    /// Lives of agents that ended without saying which result was their last: there may have been more.
    pub unclosed: Vec<String>,
    /// Messages that are no results of this run's agents.
    pub strange: u64,
}

impl Results {
    /// Whether any was lost, or may have been.
    pub fn has_losses(&self) -> bool {
        self.dropped > 0 || self.missing > 0 || !self.unclosed.is_empty()
    }
}

/// A host of a mesh.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct HostOutcome {
    /// Its name.
    pub name: String,
    /// What the others dial.
    pub address: String,
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// The version of Tautline over there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why nothing could be measured there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// One work of a plan.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct WorkOutcome {
    /// `echo` or `stream`.
    pub work: String,
    /// `tcp` or `udp`.
    pub transport: String,
    /// When a pair is named, as the plan has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn: Option<String>,
    /// Whether it was alone on its hosts.
    pub alone_on_host: bool,
    /// Whether it was alone in the racks of its hosts.
    pub alone_in_rack: bool,
    /// What stands for a pair in the matrix.
    pub figure: Figure,
    /// What is usual in this mesh.
    pub usual: Vec<Usual>,
    /// The pairs, in the order of the plan.
    pub pairs: Vec<PairOutcome>,
}

/// What is usual between hosts: the median over the pairs.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Usual {
    /// Between which.
    pub between: Between,
    /// Of what.
    pub figure: Figure,
    /// Nanoseconds, messages, or bits per second.
    pub value: f64,
    /// Pairs that were measured.
    pub pairs: usize,
}

/// Pairs that are alike.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Between {
    /// Hosts of which at least one has no rack.
    Hosts,
    /// Hosts of one rack.
    OneRack,
    /// Hosts of different racks.
    Racks,
}

/// One pair.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PairOutcome {
    /// Who asked, by its number among the hosts.
    pub near: usize,
    /// Who answered.
    pub far: usize,
    /// When its measurement began, since the mesh did; absent where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_ns: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_ns: Option<u64>,
    /// Whether it was measured.
    pub reached: Reached,
    /// What was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// What it is beyond.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misses: Vec<Miss>,
    /// The figure of the matrix beside what is usual between such hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_usual: Option<f64>,
    /// What a look into it found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<Explained>,
    /// Of agents: what came to nothing, also where a later measurement did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<Failures>,
}

/// Measurements of a pair that came to nothing.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Failures {
    /// How many.
    pub times: u64,
    /// Why the last of them did.
    pub why: String,
}

/// Whether a pair was measured.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "how", content = "why")]
pub enum Reached {
    /// It was.
    Measured,
    /// It was tried.
    Failed(String),
    /// It was not tried.
    NotRun(String),
}

/// A threshold that a pair is beyond.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Miss {
    /// The threshold, of several that all hold the first.
    pub threshold: String,
    /// What it looks at.
    pub figure: Figure,
    /// What was found: nanoseconds, messages, or bits per second; null where it falls on a lost message.
    pub value: Option<f64>,
    /// What is usual, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual: Option<f64>,
}

/// What `taut pace` saw of a pair.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Explained {
    /// When it began, since the mesh did.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Why there is nothing more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The layer that has most of the messages' time: `program`, `call`, `socket`, `driver`, `medium`, `peer program`,
    /// or `medium or peer program` where the peer's kernel does not tell when a message came (UDP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// Its share, from 0 to 1.
    #[serde(default)]
    pub layer_share: f64,
    /// From the intended sending of a message to its being read, median; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_p50_ns: Option<u64>,
    /// Messages sent.
    pub messages: u64,
    /// Of these, messages that never arrived.
    pub lost: u64,
    /// Findings, worst first.
    pub findings: Vec<Explanation>,
}

/// A finding in words.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Explanation {
    /// Short name of the cause.
    pub cause: String,
    /// The cause in a sentence.
    pub summary: String,
    /// What to do about it.
    pub remedy: String,
}

impl MeshOutcome {
    /// Whether any pair is beyond a threshold.
    pub fn has_misses(&self) -> bool {
        self.works.iter().flat_map(|work| &work.pairs).any(|pair| !pair.misses.is_empty())
    }

    /// Whether a host or a pair could not be measured, though it was tried, or results are missing.
    pub fn has_failed(&self) -> bool {
        let failed = |pair: &PairOutcome| matches!(pair.reached, Reached::Failed(_));
        self.hosts.iter().any(|host| host.failed.is_some())
            || self.results.as_ref().is_some_and(|results| results.missing > 0)
            || self.works.iter().flat_map(|work| &work.pairs).any(failed)
    }
}

impl WorkOutcome {
    /// Numbers of the pairs that are beyond a threshold, worst first: who loses most, then who is furthest from what
    /// is usual, in any figure that is beyond one.
    pub fn worst(&self) -> Vec<usize> {
        let mut worst: Vec<usize> =
            (0..self.pairs.len()).filter(|&number| !self.pairs[number].misses.is_empty()).collect();
        worst.sort_by(|&a, &b| self.pairs[b].badness().total_cmp(&self.pairs[a].badness()));
        worst
    }
}

impl PairOutcome {
    fn badness(&self) -> f64 {
        let beside_usual = |miss: &Miss| {
            let ratio = match (miss.value, miss.usual) {
                // A loss costs a time-out, which is beyond all that is usual.
                (None, _) => 1e6,
                (Some(value), Some(usual)) if usual > 0.0 => value / usual,
                _ => 1.0,
            };
            if miss.figure == Figure::Throughput { 1.0 / ratio.max(1e-9) } else { ratio }
        };
        let lost = self.measured.as_ref().map_or(0.0, Measured::lost_share);
        self.misses.iter().map(beside_usual).fold(0.0, f64::max) + lost * 1e6
    }
}
