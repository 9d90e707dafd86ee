use std::fs;

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

impl HostFacts {
    /// Reads the facts; what can't be read stands as `unknown`.
    pub fn read(floor: Floor) -> Self {
        let uname = rustix::system::uname();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            tautline: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: uname.release().to_string_lossy().into_owned(),
            machine: uname.machine().to_string_lossy().into_owned(),
            processor: processor(),
            cores: online_cores().unwrap_or(cores),
            allowed_cores: crate::placement::allowed_cores(),
            clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            load_1min: line("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
            tcp_congestion_control: line("/proc/sys/net/ipv4/tcp_congestion_control"),
            tcp_autocorking: line("/proc/sys/net/ipv4/tcp_autocorking") == "1",
            root: rustix::process::geteuid().is_root(),
            floor,
        }
    }
}

fn line(path: &str) -> String {
    fs::read_to_string(path)
        .ok()
        .and_then(|text| text.lines().next().map(|line| line.trim().to_owned()))
        .unwrap_or_else(|| "unknown".to_owned())
}

fn online_cores() -> Option<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    text.trim()
        .split(',')
        .map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
        })
        .sum()
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned()))
        .unwrap_or_else(|| "unknown".to_owned())
}
