//! How fast the simulation is; one JSON object on stdout. `cargo xtask bench air` runs it.

use std::error::Error;
use std::fs;
use std::time::Instant;

use taut_air::{Scenario, Simulation};

const SECOND: u64 = 1_000_000_000;
const INTERVALS: [&str; 5] = ["112.5ms", "50ms", "25ms", "12.5ms", "7.5ms"];

fn main() -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::from_toml(include_str!("../../../scenarios/paper-000.toml"))?;
    let (events, wall, cpu) = run(&scenario, &INTERVALS, 60)?;
    print!("{{\"sweep\": {{\"events\": {events}, \"wall_s\": {wall:.6}, \"cpu_s\": {cpu:.6}}}, \"runs\": [");
    // The same link ten and a hundred times as long: neither memory nor the cost of an event may grow.
    for (index, seconds) in [60, 600, 6000].into_iter().enumerate() {
        let (events, wall, cpu) = run(&scenario, &["7.5ms"], seconds)?;
        let comma = if index > 0 { ", " } else { "" };
        print!(
            "{comma}{{\"virtual_s\": {seconds}, \"events\": {events}, \"wall_s\": {wall:.6}, \"cpu_s\": {cpu:.6}, \"peak_rss_bytes\": {}}}",
            peak_rss_bytes()?
        );
    }
    println!("]}}");
    Ok(())
}

fn run(scenario: &Scenario, intervals: &[&str], seconds: u64) -> Result<(u64, f64, f64), Box<dyn Error>> {
    let mut scenario = scenario.clone();
    let (begun, cpu_before) = (Instant::now(), cpu_s()?);
    let mut events = 0;
    for ci in intervals {
        scenario.set("ci", ci)?;
        events += Simulation::new(&scenario, 7)?.run(seconds * SECOND, &mut ()).connection_events;
    }
    Ok((events, begun.elapsed().as_secs_f64(), cpu_s()? - cpu_before))
}

/// Time that this process, of one thread, has had a core, in seconds.
fn cpu_s() -> Result<f64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/self/schedstat")?;
    let nanos: u64 = text.split(' ').next().ok_or("/proc/self/schedstat is empty")?.parse()?;
    Ok(nanos as f64 / 1e9)
}

/// Most memory that this process has had resident so far.
fn peak_rss_bytes() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM in /proc/self/status")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}
