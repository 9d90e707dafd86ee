use std::time::{Duration, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_record::stats::{Percentile, Summary};
use taut_record::{EchoRow, Ended, PaceRow, PlacementKind, StreamRow};

use crate::units;

/// What one interval of a run came to: an object a line of `--jsonl`.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct IntervalDocument {
    /// Version of this form.
    pub format_version: u32,
    /// The command: `echo`, `pace` or `stream`.
    pub command: String,
    /// Number of the interval, from 0.
    pub interval: u64,
    /// Its begin by the wall clock, in nanoseconds since 1970-01-01 UTC.
    pub began_unix_ns: u64,
    /// How long it took, by a clock that nobody sets.
    pub duration_ns: u64,
    /// How it came to its end; anything but `complete` means that not all of it was measured.
    pub ended: Ended,
    /// Lines before this one that could not be written.
    pub lines_lost: u64,
    /// What was measured, one for each endpoint, engine and placement, always in the same order.
    pub results: Vec<IntervalRow>,
}

/// One row of an interval. What a command does not measure is absent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct IntervalRow {
    /// The peer.
    pub endpoint: String,
    /// How the process drove its I/O.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// How both ends stood to each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementKind>,
    /// Whether it was measured to the end of the interval.
    pub complete: bool,
    /// Messages sent, those included that the schedule planned and the sender never sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Of these, those that never came back or never arrived; absent where nobody tells what arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Of the lost ones, those whose reply came after the time-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_replies: Option<u64>,
    /// Of the lost ones, those that were never sent, since the sender was too far behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsent: Option<u64>,
    /// Round trip: from the actual sending to the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Summary>,
    /// From the intended sending to the reply; open loop only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_ns: Option<Summary>,
    /// From the intended sending to the arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_ns: Option<Summary>,
    /// Bytes that arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes sent that never arrived (datagrams).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_bytes: Option<u64>,
    /// Bits per second that arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_bps: Option<f64>,
}

impl From<EchoRow> for IntervalRow {
    fn from(row: EchoRow) -> Self {
        let losses = row.losses();
        Self {
            complete: row.rounds.iter().all(|round| round.complete),
            endpoint: row.endpoint,
            engine: Some(row.engine),
            placement: row.placement.map(|placement| placement.kind),
            messages: Some(losses.messages),
            lost: Some(losses.lost),
            late_replies: Some(row.late_replies),
            unsent: row.rate_hz.map(|_| row.unsent),
            rtt_ns: row.rtt_ns,
            response_ns: row.response_ns,
            ..Self::default()
        }
    }
}

impl From<PaceRow> for IntervalRow {
    fn from(row: PaceRow) -> Self {
        Self {
            complete: row.rounds.iter().all(|round| round.complete),
            endpoint: row.endpoint,
            placement: row.placement.map(|placement| placement.kind),
            messages: Some(row.messages),
            lost: row.delivery_ns.map(|_| row.lost),
            delivery_ns: row.delivery_ns,
            ..Self::default()
        }
    }
}

impl From<StreamRow> for IntervalRow {
    fn from(row: StreamRow) -> Self {
        Self {
            complete: row.rounds.iter().all(|round| round.complete),
            endpoint: row.endpoint,
            placement: row.placement.map(|placement| placement.kind),
            bytes: Some(row.bytes),
            lost_bytes: Some(row.lost_bytes),
            throughput_bps: Some(row.throughput_bps),
            ..Self::default()
        }
    }
}

impl IntervalDocument {
    /// One JSON object in one line.
    pub fn to_json(&self) -> String {
        // Keys are strings and nothing else can fail, so an error would be a bug of ours.
        serde_json::to_string(self).expect("an interval is JSON") + "\n"
    }

    /// Lines of text: its begin, and a row each.
    pub fn to_log(&self) -> String {
        let began = UNIX_EPOCH + Duration::from_nanos(self.began_unix_ns);
        let began = humantime::format_rfc3339_seconds(began);
        let mut log: String = self.results.iter().map(|row| format!("{began} {}\n", row.to_log())).collect();
        if let Ended::PeerGone(why) | Ended::Failed(why) = &self.ended {
            log.push_str(&format!("{began} FAILED: {why}\n"));
        }
        log
    }
}

impl IntervalRow {
    /// The times that the reader is after.
    pub(super) fn main(&self) -> Option<&Summary> {
        self.response_ns.as_ref().or(self.rtt_ns.as_ref()).or(self.delivery_ns.as_ref())
    }

    fn to_log(&self) -> String {
        let mut parts = vec![self.endpoint.clone()];
        parts.extend(self.engine.iter().map(|engine| format!("{engine} engine")));
        parts.extend(self.placement.map(|placement| placement.name().to_owned()));
        let name = parts.join(", ");
        let mut parts: Vec<String> = Vec::new();
        if let Some(times) = self.main() {
            let mut figure = |name: &str, percentile| {
                parts.extend(times.percentile(percentile).map(|value| format!("{name} {}", units::quantile(value))));
            };
            figure("p50", Percentile::P50);
            figure("p99", Percentile::P99);
            parts.push(format!("max {}", units::quantile(times.max)));
        }
        parts.extend(self.throughput_bps.map(units::bit_rate));
        parts.extend(self.messages.map(|messages| format!("{} messages", units::count(messages))));
        parts.extend(self.lost.map(|lost| format!("{} lost", units::count(lost))));
        if parts.is_empty() {
            parts.push("nothing measured".to_owned());
        }
        format!("{name}: {}", parts.join(", "))
    }
}
