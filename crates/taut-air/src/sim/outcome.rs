use alloc::vec::Vec;

use super::Latencies;
use crate::ledger::Ledger;
use crate::time::Nanos;

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Virtual time from the beginning of the writing. 0 when the channels never came up.
    pub duration_ns: Nanos,
    /// Application bits per second that the readers got, all links together.
    pub throughput_bps: f64,
    /// What the links could carry at most, by [`Limit::bps`](crate::Limit::bps).
    pub limit_bps: f64,
    /// The same with whole exchanges in every interval, by [`Limit::quantised_bps`](crate::Limit::quantised_bps).
    pub quantised_limit_bps: f64,
    /// Where the time went; its sum is `duration_ns`.
    pub ledger: Ledger,
    /// Connection events, all links together.
    pub connection_events: u64,
    /// Of them, those with 0, 1, 2, … data PDUs from the sender, repetitions not counted; the last
    /// entry holds also those with more.
    pub events_by_data_pdus: Vec<u64>,
    /// From the `send` that took an SDU to the reader's having it.
    pub sdu_latency: Latencies,
    /// Everything counted.
    pub counters: Counters,
    /// What was agreed on the first link; `None` when the channel never came up.
    pub negotiated: Option<Negotiated>,
    /// HCI's reason when a link was lost.
    pub disconnected: Option<u8>,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Bytes that programs read.
    pub bytes_read: u64,
    /// SDUs that `send` took.
    pub sdus_written: u64,
    /// SDUs that programs read.
    pub sdus_read: u64,
    /// SDUs that were not what had been written: 0, or a machine is wrong.
    pub sdus_damaged: u64,
    /// Data PDUs of the channels, repetitions not counted.
    pub data_pdus: u64,
    /// Data, signalling and control PDUs sent again.
    pub retransmissions: u64,
    /// PDUs received with a wrong CRC.
    pub crc_errors: u64,
    /// PDUs not found by the receiver.
    pub missed: u64,
    /// Empty PDUs.
    pub empty_pdus: u64,
    /// Credits given back.
    pub credits_granted: u64,
    /// Indications that they came in.
    pub credit_packets: u64,
    /// Times that the writing program found its socket not writable for want of credits.
    pub blocked_on_credits: u64,
    /// Times that it did for a full send buffer.
    pub blocked_on_send_buffer: u64,
}

/// What the two sides agreed on, from the sender's point of view.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Negotiated {
    /// Longest SDU that the receiver takes.
    pub mtu: u16,
    /// Longest PDU payload that the receiver takes.
    pub mps: u16,
    /// Credits that it gave at first.
    pub initial_credits: u16,
    /// Longest payload of a data PDU.
    pub length: u16,
}
