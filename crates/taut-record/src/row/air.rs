use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::Summary;

/// A Bluetooth LE link in virtual time.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct AirRow {
    /// Name of the scenario: a file, or one that is built in.
    pub scenario: String,
    /// The command that repeats this row.
    pub command: String,
    /// Where chance begins; the same seed gives the same run.
    pub seed: u64,
    /// Parameters that were set or varied on the command line, by name, in that order.
    pub set: Vec<AirSetting>,
    /// Links of one central; the figures are those of all together.
    pub links: usize,
    /// Connection interval.
    pub ci_ns: u64,
    /// `1m`, `2m`, `s2` or `s8`.
    pub phy: String,
    /// Longest payload of a link layer PDU.
    pub length_bytes: u64,
    /// Whether the link is encrypted, so that every PDU with a payload carries a MIC of 4 bytes.
    pub encrypted: bool,
    /// Largest SDU of the channel.
    pub mtu_bytes: u64,
    /// Largest L2CAP payload of one PDU of the channel.
    pub mps_bytes: u64,
    /// Credits that the receiver gave with the channel.
    pub initial_credits: u64,
    /// Virtual time of the run.
    pub duration_ns: u64,
    /// Bits of the application per second that the receiving program read.
    pub throughput_bps: f64,
    /// The most that this channel allows on this PHY, with every PDU full and no time between connection events.
    pub limit_bps: f64,
    /// The same, with whole exchanges only in each connection event.
    pub quantised_limit_bps: f64,
    /// Connection events.
    pub connection_events: u64,
    /// Connection events by the number of PDUs with data in them: those with none, with one, and so on.
    pub events_by_pdus: Vec<u64>,
    /// Time of an SDU: from the sending call that wrote it until the receiving program had read it.
    pub sdu_latency_ns: Option<Summary>,
    /// Where the time of the run went: every nanosecond under exactly one name, so that the values
    /// sum to `duration_ns`.
    pub ledger_ns: BTreeMap<String, u64>,
    /// What was counted.
    pub counters: BTreeMap<String, u64>,
    /// Some connection events as they were on the air, for drawing.
    pub excerpt: Option<AirExcerpt>,
}

/// A parameter of a scenario with its value, as on the command line.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct AirSetting {
    /// Its name.
    pub name: String,
    /// Its value, with its unit.
    pub value: String,
}

/// Connection events one after another.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct AirExcerpt {
    /// Why these were chosen.
    pub what: String,
    /// The events.
    pub events: Vec<AirEventExcerpt>,
}

/// A connection event: what was on the air from its anchor to the next one, and who held the data while nothing was.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct AirEventExcerpt {
    /// Its number since the connection began.
    pub number: u64,
    /// Its anchor since the run began.
    pub anchor_ns: u64,
    /// Why it closed.
    pub closed: String,
    /// What was on the air.
    pub pdus: Vec<AirPdu>,
    /// When nothing was, by holder.
    pub idle: Vec<AirIdle>,
}

/// A PDU on the air.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct AirPdu {
    /// From the anchor to the start of its preamble.
    pub start_ns: u64,
    /// Time on the air.
    pub duration_ns: u64,
    /// `central` or `peripheral`.
    pub sender: String,
    /// `data`, `credit`, `signalling`, `control` or `empty`.
    pub kind: String,
    /// Bytes of its payload.
    pub payload_bytes: u64,
    /// The `more data` bit.
    pub more_data: bool,
    /// Whether it had been sent before.
    pub retransmission: bool,
    /// Whether it arrived whole.
    pub received: bool,
    /// What it carries, in words.
    pub what: String,
}

/// A time in which nothing was on the air.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct AirIdle {
    /// From the anchor.
    pub start_ns: u64,
    /// How long.
    pub duration_ns: u64,
    /// Who held the data, by its name in the ledger.
    pub holder: String,
}

/// A change of a scenario's parameters that was tried on the way to the limit.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct AirChangeRow {
    /// Name of the scenario.
    pub scenario: String,
    /// The command that repeats this row, with all changes kept before it.
    pub command: String,
    /// The parameters changed.
    pub set: Vec<AirSetting>,
    /// Where such a change is made: a socket option, the kernel, another adapter.
    pub place: String,
    /// Throughput before.
    pub before_bps: f64,
    /// Throughput with the change.
    pub throughput_bps: f64,
    /// The most that the channel allows with the change.
    pub limit_bps: f64,
    /// What held the link most before, by its name in the ledger.
    pub held_by: String,
    /// Whether it was kept.
    pub kept: bool,
    /// How it is put in force on a real host.
    pub apply: String,
}
