use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What of the machine bears on its figures.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct HostFacts {
    /// Version of Tautline.
    pub tautline: String,
    /// Kernel release, as `uname -r` has it.
    pub kernel: String,
    /// Machine, as `uname -m` has it.
    pub machine: String,
    /// Processor's name.
    pub processor: String,
    /// Processors on line.
    pub cores: usize,
    /// Processors that this process may run on.
    pub allowed_cores: Vec<usize>,
    /// Clock source of the kernel.
    pub clocksource: String,
    /// Load average over the last minute when the command began: 1.0 is one busy core.
    pub load_1min: f64,
    /// Congestion control of new TCP connections.
    pub tcp_congestion_control: String,
    /// Whether the kernel merges small TCP writes while an earlier packet is still in the queueing
    /// discipline or driver.
    pub tcp_autocorking: bool,
    /// Whether the command ran as root.
    pub root: bool,
    /// What the tool itself costs, measured just before.
    pub floor: Floor,
}

/// What the tool and the host cost when nothing is measured. Of what sleeps while it waits, no figure below this means
/// anything; what spins may be quicker.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Floor {
    /// One read of the clock.
    pub clock_read_ns: u64,
    /// How late an absolute sleep ends, p50.
    pub sleep_late_p50_ns: u64,
    /// How late an absolute sleep ends, p99.
    pub sleep_late_p99_ns: u64,
    /// Round trip of one byte between two threads over a socket pair, p50.
    pub empty_exchange_p50_ns: u64,
}
