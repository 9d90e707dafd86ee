use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::comparison::{Comparison, Verdict};
use crate::placement::Placement;
use crate::stats::Summary;

/// Many links of which some are active, served by one engine. Each exchange is a message on each of
/// `active` links drawn at random, and the wait for all replies.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct CrowdRow {
    /// Who ran the server under test: a `taut serve`, or with port 0 the command itself, there.
    pub endpoint: String,
    /// Kind of link.
    pub transport: String,
    /// The command that repeats this row.
    pub command: String,
    /// How the server under test drove its I/O.
    pub engine: String,
    /// Links open at once.
    pub connections: usize,
    /// Links with a message under way at once.
    pub active: usize,
    /// Bytes of one message.
    pub message_bytes: u64,
    /// Round trip of a message: from its sending to its reply. Of a round in which links starved only the lost messages
    /// count; absent when no round was answered in whole.
    pub rtt_ns: Option<Summary>,
    /// CPU time of the server's process, all threads, for one message. The median over the rounds.
    pub cpu_ns_per_message: Option<f64>,
    /// Interval of that across rounds; absent with fewer than five.
    pub cpu_ns_per_message_ci: Option<(f64, f64)>,
    /// Its level: the probability, from 0 to 1, that such an interval covers the median of what the
    /// rounds are a sample of.
    #[serde(default)]
    pub cpu_ns_per_message_ci_level: Option<f64>,
    /// Threads of the server's process, the most of all rounds.
    pub threads: Option<u32>,
    /// Resident memory of the server's process, the most of all rounds.
    pub rss_bytes: Option<u64>,
    /// Exchanges answered in whole.
    pub exchanges: u64,
    /// Messages sent, those of the roll call only when it found a starved link.
    pub sent: u64,
    /// Messages without a reply.
    pub lost: u64,
    /// How long no reply at all came before messages counted as lost.
    pub timeout_ns: u64,
    /// That links got no answer from this engine, in this row or in another one of it; it was not
    /// tried again after that.
    pub starved: Option<Starvation>,
    /// Why the engine could not be tried, or not any further.
    pub why_not: Option<String>,
    /// Independent repetitions, each with a new server and new links.
    pub rounds: Vec<CrowdRound>,
    /// The round trip against that of the first engine of the same command.
    pub compared: Option<Comparison>,
    /// The CPU time of a message against that of `uring`, or of the first engine where that was not tried.
    pub cpu_compared: Option<CpuComparison>,
    /// Processor that the client stayed on.
    pub client_core: Option<usize>,
    /// Processor that the server under test stayed on, where it was put on one.
    pub server_core: Option<usize>,
    /// How the two stood to each other; absent in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Whether the client, on a processor of its own, asked for replies without ever sleeping: then
    /// its own waking up is not in the round trips.
    pub client_spins: bool,
}

/// Links that got no answer.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Starvation {
    /// Links open at once.
    pub connections: u64,
    /// Links on which a message was sent.
    pub asked: u64,
    /// Of these, links that were answered.
    pub answered: u64,
    /// How long no reply came when that was found.
    pub waited_ns: u64,
    /// Threads of the server's process then.
    pub threads: u32,
}

/// One repetition of a crowd.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct CrowdRound {
    /// Median round trip; null when links starved.
    pub p50_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// Longest.
    pub max_ns: Option<u64>,
    /// CPU time of the server's process for one message.
    pub cpu_ns_per_message: Option<f64>,
    /// Threads of the server's process.
    pub threads: u32,
    /// Resident memory of the server's process.
    pub rss_bytes: u64,
    /// Exchanges answered in whole.
    pub exchanges: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages without a reply.
    pub lost: u64,
}

/// CPU time of two things measured in turn, round by round.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct CpuComparison {
    /// What it is held against.
    pub with: String,
    /// Ratio of the CPU times of a message: below 1 means that this row takes less. The median over the rounds.
    pub ratio: f64,
    /// Interval of that ratio across rounds.
    pub ratio_ci: (f64, f64),
    /// Probability with which such an interval covers the ratio; absent in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_level: Option<f64>,
    /// What can be said.
    pub verdict: Verdict,
    /// Rounds that a verdict takes, where there were fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_needed: Option<usize>,
}
