use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::observer::ObserverCost;
use super::tcp::TcpFacts;
use super::usual::{is_true, is_zero, yes};
use crate::placement::Placement;
use crate::stats::{Exceedance, Summary};

/// Messages sent on a schedule over one endpoint.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PaceRow {
    /// The peer.
    pub endpoint: String,
    /// Kind of link.
    pub transport: String,
    /// The command that repeats this row.
    pub command: String,
    /// Bytes of one message.
    pub message_bytes: u64,
    /// Time between intended sendings.
    pub period_ns: u64,
    /// Whether the transport was free to hold small writes back (Nagle's algorithm); absent where
    /// there is no such thing.
    pub nagle: Option<bool>,
    /// Who received, and how it acknowledged.
    pub peer: String,
    /// Messages sent.
    pub messages: u64,
    /// Segments or datagrams that carried them (`tcpi_data_segs_out`, retransmissions included).
    pub segments: Option<u64>,
    /// Messages per segment.
    pub messages_per_segment: Option<f64>,
    /// Intended to actual start of the sending call: our own lateness.
    pub send_lateness_ns: Option<Summary>,
    /// Duration of the sending call.
    pub send_call_ns: Option<Summary>,
    /// From the return of the sending call to the moment the bytes left the host.
    pub hold_ns: Option<Summary>,
    /// From leaving the host to the peer's acknowledgement.
    pub ack_ns: Option<Summary>,
    /// From the intended sending to the peer's program having read the whole message (its kernel, for a foreign peer).
    pub delivery_ns: Option<Summary>,
    /// Gap between segments that leave the host; where the transport gives no such timestamps, between sending calls.
    pub sender_gap_ns: Option<Summary>,
    /// Whether `sender_gap_ns` comes from the driver's timestamps (`left`) or from the sending calls (`write`).
    pub sender_gap_of: String,
    /// Gap between arrivals at the peer.
    pub receiver_gap_ns: Option<Summary>,
    /// Share of messages delivered later than a limit after their intended time, losses included.
    pub exceed: Vec<Exceedance>,
    /// Messages that never arrived.
    pub lost: u64,
    /// How far the peer's clock may be off ours: 0 when both are one clock; absent when the peer does not tell.
    pub clock_uncertainty_ns: Option<u64>,
    /// Time of messages in each layer, summed, by name of the layer.
    pub ledger_ns: Vec<(String, u64)>,
    /// Independent repetitions, each with a new link.
    pub rounds: Vec<PaceRound>,
    /// Of these the last ones whose events were dropped for want of room, once all other figures
    /// had been taken from them: the ledger and the findings are of the rounds before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_rounds: u64,
    /// The first messages of the last round, stage by stage, for drawing.
    pub excerpt: Vec<MessageExcerpt>,
    /// On which processors both ends ran; absent in virtual time and in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// What a broker on the way had of the messages' time; absent where there is none, or its reader does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<BrokerHold>,
    /// The TCP connection at the end of the last round.
    pub tcp: Option<TcpFacts>,
    /// Socket options in force, as the kernel has them.
    pub options: Vec<String>,
    /// What the observer costs a round trip over loopback on this host, measured just after; all
    /// times here are observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observer: Option<ObserverCost>,
}

/// How long messages were with a broker, as far as both ends can tell.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct BrokerHold {
    /// From leaving this host to the arrival in the reader's kernel, with the ways to the broker and from it.
    pub at_most_ns: Option<Summary>,
    /// From the broker's acknowledgement of the bytes to that arrival: the broker had them by then. 0 where that came
    /// later, as a delayed one does.
    pub at_least_ns: Option<Summary>,
    /// Messages that the reader took with the same call as later ones. Their arrival is that of the last of them, so
    /// what the broker seems to have held may have waited for the reader.
    pub read_together: u64,
}

/// One repetition of a pacing run.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PaceRound {
    /// Mean gap between segments that leave.
    pub sender_gap_mean_ns: Option<u64>,
    /// Mean gap between arrivals.
    pub receiver_gap_mean_ns: Option<u64>,
    /// Median of intended to read, of all messages; null where it falls on a lost one, or the peer does not tell.
    pub delivery_p50_ns: Option<u64>,
    /// Messages per segment.
    pub messages_per_segment: Option<f64>,
    /// Messages sent.
    pub messages: u64,
    /// Whether the round came to its end. One that the user or the peer cut short is counted in all
    /// messages together and is in no median and no interval across rounds.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub complete: bool,
}

/// When one message reached each stage, in ns from the first message's intended time; absent where unknown or never.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct MessageExcerpt {
    /// The schedule wanted it sent.
    pub intended: i64,
    /// The sending call began.
    pub write_begin: Option<i64>,
    /// The sending call came back.
    pub write_end: Option<i64>,
    /// The transport passed it to the queueing discipline.
    pub scheduled: Option<i64>,
    /// It left the host.
    pub left: Option<i64>,
    /// The peer acknowledged it.
    pub acked: Option<i64>,
    /// The peer's kernel had it.
    pub received: Option<i64>,
    /// The reader's kernel had it from a broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarded: Option<i64>,
    /// The peer's program had read it.
    pub read: Option<i64>,
}
