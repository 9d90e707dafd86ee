use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_record::stats::{Percentile, Quantile, Summary};
use taut_record::{Recording, Row};

/// What of a pair is held against a threshold.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Figure {
    /// Shortest round trip.
    Min,
    /// Mean round trip.
    Mean,
    /// Median.
    P50,
    /// 90 % took no longer.
    P90,
    /// 99 % took no longer.
    P99,
    /// 99.9 % took no longer.
    P999,
    /// 99.99 % took no longer.
    P9999,
    /// Longest.
    Max,
    /// Messages without a reply.
    Lost,
    /// Bits per second that arrived.
    Throughput,
}

/// What was measured of a pair.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Measured {
    /// Round trips; absent of a stream, and where nothing came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<Summary>,
    /// Messages sent.
    pub sent: u64,
    /// Messages without a reply.
    pub lost: u64,
    /// Bits per second that arrived; of a stream only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_bps: Option<f64>,
}

impl Figure {
    /// All, in the order of help texts.
    pub const ALL: [Self; 10] = [
        Self::Min,
        Self::Mean,
        Self::P50,
        Self::P90,
        Self::P99,
        Self::P999,
        Self::P9999,
        Self::Max,
        Self::Lost,
        Self::Throughput,
    ];

    /// As it stands in a plan.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p999",
            Self::P9999 => "p9999",
            Self::Max => "max",
            Self::Lost => "lost",
            Self::Throughput => "throughput",
        }
    }

    /// Which percentile it is, if it is one.
    pub const fn percentile(self) -> Option<Percentile> {
        Some(match self {
            Self::P50 => Percentile::P50,
            Self::P90 => Percentile::P90,
            Self::P99 => Percentile::P99,
            Self::P999 => Percentile::P999,
            Self::P9999 => Percentile::P9999,
            Self::Min | Self::Mean | Self::Max | Self::Lost | Self::Throughput => return None,
        })
    }

    /// Its value: nanoseconds, messages, or bits per second. What falls on a lost message is infinite, and so is every
    /// time where nothing came back; `None` where there is no such figure.
    pub fn of(self, measured: &Measured) -> Option<f64> {
        let time = |ns: Option<u64>| ns.map_or(f64::INFINITY, |ns| ns as f64);
        let times = measured.rtt_ns.as_ref();
        match self {
            Self::Lost => Some(measured.lost as f64).filter(|_| measured.throughput_bps.is_none()),
            Self::Throughput => measured.throughput_bps,
            _ if measured.throughput_bps.is_some() => None,
            Self::Min => Some(time(times.and_then(|times| times.min))),
            Self::Mean => Some(time(times.and_then(|times| times.mean))),
            Self::Max => Some(times.map_or(f64::INFINITY, |times| times.max.as_f64())),
            _ => match times {
                None => Some(f64::INFINITY),
                Some(times) => times.percentile(self.percentile()?).map(Quantile::as_f64),
            },
        }
    }
}

impl Measured {
    /// The figures of the one row of a recording.
    ///
    /// # Errors
    /// Where there is no row of round trips or of throughput.
    pub fn of(recording: &Recording) -> Result<Self, String> {
        let row = recording.results.first().ok_or("it has no results")?;
        match row {
            Row::Echo(row) => Ok(Self {
                rtt_ns: row.response_ns.or(row.rtt_ns),
                sent: row.losses().messages,
                lost: row.losses().lost,
                throughput_bps: None,
            }),
            Row::Stream(row) => Ok(Self { throughput_bps: Some(row.throughput_bps), ..Self::default() }),
            _ => Err("it is no recording of echo or stream".to_owned()),
        }
    }

    /// Share of the messages that were lost, from 0 to 1.
    pub fn lost_share(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost as f64 / self.sent as f64 }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
