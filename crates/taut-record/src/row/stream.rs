use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tcp::TcpFacts;
use super::usual::{is_true, is_zero, yes};
use crate::placement::Placement;

/// Throughput over one endpoint.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct StreamRow {
    /// The peer.
    pub endpoint: String,
    /// Kind of link.
    pub transport: String,
    /// The command that repeats this row.
    pub command: String,
    /// `up` (to the peer), `down` or `both`.
    pub direction: String,
    /// Links open at once.
    pub connections: usize,
    /// Bytes of one write.
    pub block_bytes: u64,
    /// Bits per second that arrived at the receiver, both directions added. The median over the rounds.
    pub throughput_bps: f64,
    /// Interval of the throughput across rounds.
    pub throughput_bps_ci: Option<(f64, f64)>,
    /// Its level: the probability, from 0 to 1, that such an interval covers the median of what the
    /// rounds are a sample of.
    #[serde(default)]
    pub throughput_bps_ci_level: Option<f64>,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Where all these bytes were counted.
    #[serde(default)]
    pub counted: Counted,
    /// Bytes sent that never arrived (datagrams).
    pub lost_bytes: u64,
    /// Bytes that this host's kernel took on links that broke before the peer could tell what had arrived, or that
    /// a plain peer's kernel had not acknowledged at the end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unconfirmed_bytes: u64,
    /// Where the bytes to a plain peer were taken in few large steps: then the links of a round go
    /// on in the next one, and the rate of a single round may be off by a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coarse: Option<Coarse>,
    /// CPU time of this process.
    pub cpu_ns: u64,
    /// CPU time that the peer spent on these links, where it tells.
    pub peer_cpu_ns: Option<u64>,
    /// Bytes that arrived for one second of CPU time, both sides added where the peer tells.
    pub bytes_per_cpu_second: f64,
    /// Independent repetitions, each with new links.
    pub rounds: Vec<StreamRound>,
    /// On which processors both ends ran; absent in virtual time and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// The first TCP connection of the last round, at its end.
    pub tcp: Option<TcpFacts>,
    /// Socket options in force, as the kernel has them.
    pub options: Vec<String>,
}

/// Where the bytes of a throughput run were counted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// By the program that received them.
    #[default]
    Received,
    /// By this host's kernel, as the peer's kernel acknowledged them (`tcpi_bytes_acked`); whether the peer's program
    /// read them is not known. A plain peer over TCP.
    Acknowledged,
    /// As this host's socket took them: what the kind of link tells of a plain peer that is not reached by TCP.
    Taken,
}

/// How much at a time a plain peer's kernel takes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Coarse {
    /// Steps in the time that counts, of the round with the fewest.
    pub steps: u64,
    /// Bytes of the largest step.
    pub step_bytes: u64,
}

impl Coarse {
    /// The fewer and the larger steps of two.
    pub fn coarser(self, other: Self) -> Self {
        Self { steps: self.steps.min(other.steps), step_bytes: self.step_bytes.max(other.step_bytes) }
    }
}

/// One repetition of a throughput run.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct StreamRound {
    /// Bits per second that arrived, what came with the first arrival left out; of a plain peer from the last progress
    /// in the first half of the round to the last in its second half, so that filling the buffers counts for nothing.
    pub throughput_bps: f64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// The time that the rate is of, longest of all links: from the first byte to the last, and no
    /// less than the time of sending; where it broke off, until then.
    pub duration_ns: u64,
    /// Whether the round came to its end. One that the user or the peer cut short is counted in `bytes` and is in no
    /// interval.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub complete: bool,
}
