//! The facts of the host that bear on its figures, from the kernel.

use std::fs;

use taut_link::affinity;
use taut_record::{Floor, HostFacts};

/// Reads the facts; what can't be read stands as `unknown`.
pub fn host_facts(floor: Floor) -> HostFacts {
    let uname = rustix::system::uname();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    HostFacts {
        tautline: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        machine: uname.machine().to_string_lossy().into_owned(),
        processor: processor(),
        cores: online_cores().unwrap_or(cores),
        allowed_cores: affinity::allowed_cores(),
        clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        load_1min: line("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        tcp_congestion_control: line("/proc/sys/net/ipv4/tcp_congestion_control"),
        tcp_autocorking: line("/proc/sys/net/ipv4/tcp_autocorking") == "1",
        root: rustix::process::geteuid().is_root(),
        floor,
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
