use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::comparison::{Comparison, LossComparison};
use super::observer::ObserverCost;
use super::round::Round;
use super::tcp::TcpFacts;
use crate::placement::Placement;
use crate::stats::{Exceedance, Losses, Summary};

/// Round trips of messages over one endpoint.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct EchoRow {
    /// The peer.
    pub endpoint: String,
    /// Kind of link.
    pub transport: String,
    /// The command that repeats this row.
    pub command: String,
    /// How the process drove its I/O.
    pub engine: String,
    /// What one wait of the engine for a link that is ready costs, the median, measured just after;
    /// absent in virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_wait_ns: Option<u64>,
    /// Bytes of one message.
    pub message_bytes: u64,
    /// How a message was written: `write`, `write-write`, `writev` or `cork`.
    pub writes: String,
    /// Links open at once.
    pub connections: usize,
    /// Messages per second that the schedule asked for (open loop); absent when each message waited
    /// for the reply before (closed loop).
    pub rate_hz: Option<f64>,
    /// Round trip: from the actual sending to the reply (service time).
    pub rtt_ns: Option<Summary>,
    /// From the intended sending to the reply (response time); open loop only.
    pub response_ns: Option<Summary>,
    /// From the intended to the actual sending: our own lateness; open loop only.
    pub send_lateness_ns: Option<Summary>,
    /// Messages sent.
    pub sent: u64,
    /// Messages without a reply within the time-out.
    pub lost: u64,
    /// Of the lost ones, those whose reply came later still.
    pub late_replies: u64,
    /// Replies that came once more, to messages that had been answered.
    #[serde(default)]
    pub duplicates: u64,
    /// Messages that the schedule of an open loop planned and the sender never sent, since it was
    /// too far behind. Beside those sent, and later than every limit.
    pub unsent: u64,
    /// How many different numbers the messages could hold, where that was fewer than there were
    /// messages on a link: datagrams of fewer than 8 bytes to a plain server. A reply that comes so
    /// many messages late is taken for a later one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbers: Option<u64>,
    /// The time-out.
    pub timeout_ns: u64,
    /// Share of the messages sent whose reply took longer than a limit (response time in an open
    /// loop), losses included.
    pub exceed: Vec<Exceedance>,
    /// Quantile of all messages of all rounds pooled, and its time in ns, for drawing; of the
    /// response time in an open loop. It ends where the lost ones begin.
    pub curve: Vec<(f64, u64)>,
    /// Independent repetitions, each with new links.
    pub rounds: Vec<Round>,
    /// Against the first endpoint of the same command and the same kind of placement.
    pub compared: Option<Comparison>,
    /// What the observer costs, where a timeline was kept. The figures of this row are of rounds without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observer: Option<ObserverCost>,
    /// Its losses against those of the first endpoint; absent where neither loses any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_compared: Option<LossComparison>,
    /// Whether the transport was free to hold small writes back (Nagle's algorithm); absent where
    /// there is no such thing.
    pub nagle: Option<bool>,
    /// On which processors both ends ran; absent in virtual time and in older recordings. Only rows
    /// of the same kind of placement are held against each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// The first TCP connection of the last round, at its end.
    pub tcp: Option<TcpFacts>,
    /// Socket options in force, as the kernel has them.
    pub options: Vec<String>,
    /// How the peer acknowledged.
    pub peer_acks: String,
}

impl EchoRow {
    /// Messages that never came back, in an open loop with those never sent.
    pub const fn losses(&self) -> Losses {
        Losses { lost: self.lost.saturating_add(self.unsent), messages: self.sent.saturating_add(self.unsent) }
    }
}
