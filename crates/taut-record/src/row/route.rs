use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::comparison::{Comparison, LossComparison};
use super::round::Round;
use crate::stats::{Losses, Summary};

/// From a sensor's event to the notification of its last sink, by one path.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct RouteRow {
    /// `naive` (everything opened and closed for each event), `kept-open`, on GPIO lines also
    /// `cdev` and `user` (what a route takes by itself); or where in the kernel: `xdp` (in the
    /// driver), `xdp-generic`, `tc`, `kthread`, `hardirq`.
    pub path: String,
    /// What the events went over.
    pub over: String,
    /// The command that repeats this row.
    pub command: String,
    /// The condition.
    pub when: String,
    /// Sinks notified of each event.
    pub sinks: usize,
    /// Routes at work on the device, this one included.
    #[serde(default = "one")]
    pub routes: usize,
    /// Over UDP from before the sensor's sending to the last notification, the sensor's own sending and receiving
    /// included; on GPIO lines from the edge to the output, both as the chip stamps them. None in a row of turns.
    pub edge_to_edge_ns: Option<Summary>,
    /// One turn of read, decide and write in a loop, without edges. None in a row from edge to edge.
    #[serde(default)]
    pub loop_ns: Option<Summary>,
    /// Quantile of all events of all rounds pooled, and its time in ns, for drawing. It ends where the lost ones begin.
    pub curve: Vec<(f64, u64)>,
    /// Events sent.
    pub sent: u64,
    /// Events of which not every sink was notified in time.
    pub lost: u64,
    /// Events that the path itself says it lost, those that would not have passed included; none where it can't know.
    #[serde(default)]
    pub reported_lost: Option<u64>,
    /// The time-out.
    pub timeout_ns: u64,
    /// Time from a notification to the next event; on GPIO lines from edge to edge, and 0 in a loop.
    pub gap_ns: u64,
    /// Independent repetitions, each with new sockets or a new program.
    pub rounds: Vec<Round>,
    /// Against `kept-open` with as many sinks.
    pub compared: Option<Comparison>,
    /// Its losses against those of that one; absent where neither loses any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_compared: Option<LossComparison>,
    /// Ratio of the 99th percentiles to those of `kept-open`, the median over the rounds.
    pub p99_ratio: Option<f64>,
    /// Processor of the sensor, which spins.
    pub sensor_core: Option<usize>,
    /// Processor of the thread under test.
    pub route_core: Option<usize>,
    /// `SCHED_FIFO` priority of the sensor.
    #[serde(default)]
    pub sensor_fifo: Option<u8>,
    /// `SCHED_FIFO` priority of the thread under test.
    #[serde(default)]
    pub route_fifo: Option<u8>,
}

const fn one() -> usize {
    1
}

impl RouteRow {
    /// Events of which not every sink was notified in time.
    pub const fn losses(&self) -> Losses {
        Losses { lost: self.lost, messages: self.sent }
    }

    /// What was timed: from edge to edge, or a turn.
    pub const fn times(&self) -> Option<&Summary> {
        match &self.edge_to_edge_ns {
            Some(summary) => Some(summary),
            None => self.loop_ns.as_ref(),
        }
    }
}
