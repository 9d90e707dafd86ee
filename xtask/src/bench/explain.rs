//! How fast `taut explain` reads, on a capture of 64 connections made here, beside tcptrace and tshark where Debian has
//! them; how fast whole packets; and whether its memory grows with the file, and with the connections.

mod capture;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use self::capture::Kept;
use super::outcome::{Outcome, median, table};
use super::process::pinned;
use super::setting::Setting;
use crate::shell;

/// Packets a second of CPU time, at least.
const PACKETS_PER_S: f64 = 5e6;
/// Bytes of whole packets a second of CPU time, at least.
const BYTES_PER_S: f64 = 2e9;
/// The other programs that read the same file: how they are called, and how many times as fast `taut` is at least.
/// All count each segment of each connection. tshark follows TCP with what it does by default, and prints nothing but
/// the connections (`-z conv,tcp`).
const PEERS: [Peer; 2] = [
    Peer { name: "tcptrace", arguments: &["-n", "-l"], file: None, times: 2.0, packets: PACKETS },
    Peer { name: "tshark", arguments: &["-n", "-q", "-z", "conv,tcp"], file: Some("-r"), times: 50.0, packets: SHORT },
];

struct Peer {
    name: &'static str,
    arguments: &'static [&'static str],
    /// The option in front of the file.
    file: Option<&'static str>,
    times: f64,
    /// Of the file that it reads.
    packets: u32,
}
/// Memory that a file four times as long may take more, as a share.
const GROWTH: f64 = 0.05;

const CONNECTIONS: u32 = 64;
/// Connections at once for the memory that each takes, and what they may take in all.
const MANY: u32 = 10_000;
const MOST_BYTES: u64 = 64_000_000 + 300 * MANY as u64;
const PACKETS: u32 = 2_000_000;
/// Of the shorter file, and of that with whole packets (0.5 GB).
const SHORT: u32 = PACKETS / 4;
/// Share of a long run after which memory should not grow any more.
const SETTLED: f64 = 0.1;

/// What belongs to `explain` alone.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "explain")]
#[group(id = "explain")]
pub(crate) struct Options {
    /// So many packets of 10,000 connections more, through a pipe: does memory grow? (10^9 take a quarter of an hour)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(60_000_000..=100_000_000_000))]
    events: Option<u64>,
}

pub(crate) fn run(setting: &Setting, options: &Options) -> Result<Outcome> {
    let directory = tempfile::tempdir()?;
    let [long, short, wide, whole] =
        ["long.pcap", "short.pcap", "wide.pcap", "whole.pcap"].map(|name| directory.path().join(name));
    let write = |path: &Path, packets: u32, connections| {
        capture::write(File::create(path)?, Kept::Headers, packets.into(), connections, |_| {})
    };
    write(&long, PACKETS, CONNECTIONS)?;
    write(&short, SHORT, CONNECTIONS)?;
    capture::write(File::create(&whole)?, Kept::All, SHORT.into(), CONNECTIONS, |_| {})?;
    let whole_bytes = fs::metadata(&whole)?.len() as f64;
    // So many packets of each that nothing is still growing.
    write(&wide, 600 * MANY, MANY)?;
    let taut = |file: &Path| {
        let mut command = pinned(setting.cores.client, setting.taut.file());
        command.args(["explain", "--json"]).arg(file);
        measured(&mut command)
    };
    let peers = PEERS.map(|peer| shell::find(peer.name).map(|_| peer));
    let (mut rates, mut whole_rates, mut growths) = (Vec::new(), Vec::new(), Vec::new());
    let mut peer_rates = [Vec::new(), Vec::new()];
    let mut memory = 0;
    for _ in 0..setting.rounds {
        let run = taut(&long)?;
        rates.push(f64::from(PACKETS) / run.cpu_s);
        growths.push(run.peak_bytes as f64 / taut(&short)?.peak_bytes as f64 - 1.0);
        memory = memory.max(run.peak_bytes);
        whole_rates.push(whole_bytes / taut(&whole)?.cpu_s);
        for (peer, rates) in peers.iter().zip(&mut peer_rates) {
            let Some(peer) = peer else { continue };
            let mut command = pinned(setting.cores.client, peer.name);
            command.args(peer.arguments).args(peer.file).arg(if peer.packets == PACKETS { &long } else { &short });
            rates.push(f64::from(peer.packets) / measured(&mut command)?.cpu_s);
        }
    }
    let (rate, whole_rate, growth) = (median(&rates), median(&whole_rates), median(&growths));
    let of_many = taut(&wide)?.peak_bytes;
    let mut rows = vec![
        row(
            "packets a second of CPU time",
            format!("{:.2} M", rate / 1e6),
            format!(">= {:.0} M", PACKETS_PER_S / 1e6),
            rate >= PACKETS_PER_S,
        ),
        row(
            "bytes of whole packets a second of CPU time",
            format!("{:.2} GB", whole_rate / 1e9),
            format!(">= {:.0} GB", BYTES_PER_S / 1e9),
            whole_rate >= BYTES_PER_S,
        ),
        row(
            "memory, file of 4 times the length",
            format!("{:+.1} %", growth * 100.0),
            format!("<= {:.0} %", GROWTH * 100.0),
            growth <= GROWTH,
        ),
        vec!["peak memory".to_owned(), format!("{:.1} MB", memory as f64 / 1e6), String::new(), String::new()],
        row(
            "peak memory, 10,000 connections at once",
            format!("{:.1} MB", of_many as f64 / 1e6),
            format!("<= {:.0} MB", MOST_BYTES as f64 / 1e6),
            of_many <= MOST_BYTES,
        ),
    ];
    let mut met = rate >= PACKETS_PER_S && whole_rate >= BYTES_PER_S && growth <= GROWTH && of_many <= MOST_BYTES;
    for ((peer, known), peer_rates) in PEERS.iter().zip(&peers).zip(&peer_rates) {
        if known.is_none() {
            rows.push(vec![peer.name.to_owned(), "is not installed".to_owned(), String::new(), String::new()]);
            continue;
        }
        let mut ratios: Vec<f64> = rates.iter().zip(peer_rates).map(|(taut, peer)| taut / peer).collect();
        ratios.sort_by(f64::total_cmp);
        let ratio = median(&ratios);
        met &= ratio >= peer.times;
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        let value = format!("{ratio:.2} ({least:.2} to {most:.2}; its own: {:.3} M)", median(peer_rates) / 1e6);
        let what = format!("times as fast as {} {}", peer.name, peer.arguments.join(" "));
        rows.push(row(&what, value, format!(">= {}", peer.times), ratio >= peer.times));
    }
    let mut piped = serde_json::Value::Null;
    if let Some(events) = options.events {
        let run = through_a_pipe(setting, events)?;
        let growth = run.peak_bytes as f64 / run.settled_bytes as f64 - 1.0;
        let is_met = growth <= GROWTH && run.peak_bytes <= MOST_BYTES;
        met &= is_met;
        rows.push(row(
            &format!("peak memory, {events} packets of 10,000 connections"),
            format!("{:.1} MB, {:+.1} % since a tenth", run.peak_bytes as f64 / 1e6, growth * 100.0),
            format!("<= {:.0} MB, <= {:.0} %", MOST_BYTES as f64 / 1e6, GROWTH * 100.0),
            is_met,
        ));
        piped = json!({
            "packets": events,
            "cpu_s": run.cpu_s,
            "peak_rss_bytes_after_a_tenth": run.settled_bytes,
            "peak_rss_bytes": run.peak_bytes,
        });
    }
    let json = json!({
        "packets": PACKETS,
        "connections": CONNECTIONS,
        "packets_per_cpu_s_by_round": rates,
        "whole_packet_bytes_per_cpu_s_by_round": whole_rates,
        "tcptrace_packets_per_cpu_s_by_round": peer_rates[0],
        "tshark_packets_per_cpu_s_by_round": peer_rates[1],
        "peak_rss_bytes": memory,
        "peak_rss_bytes_of_10000_connections": of_many,
        "memory_growth_by_round": growths,
        "through_a_pipe": piped,
    });
    Ok(Outcome { text: table(&["explain", "taut", "bar", ""], &rows), json, met: Some(met) })
}

fn row(what: &str, value: String, bar: String, met: bool) -> Vec<String> {
    vec![what.to_owned(), value, bar, if met { "met" } else { "MISSED" }.to_owned()]
}

struct Run {
    cpu_s: f64,
    peak_bytes: u64,
    /// The most so far when a tenth of what goes through a pipe had been written.
    settled_bytes: u64,
}

/// Runs a command to its end, with its CPU time and the most memory that it had.
fn measured(command: &mut Command) -> Result<Run> {
    watched(command, |_| Ok(()), || false)
}

/// Packets that no file has room for.
fn through_a_pipe(setting: &Setting, packets: u64) -> Result<Run> {
    let written = AtomicU64::new(0);
    let mut command = pinned(setting.cores.client, setting.taut.file());
    command.args(["explain", "--json", "-"]).stdin(Stdio::piped());
    thread::scope(|scope| {
        let begin = |child: &mut Child| {
            let to = child.stdin.take().context("its stdin")?;
            let written = &written;
            let told = |index| written.store(index, Ordering::Relaxed);
            scope.spawn(move || capture::write(to, Kept::Headers, packets, MANY, told));
            Ok(())
        };
        let least = (packets as f64 * SETTLED) as u64;
        watched(&mut command, begin, || written.load(Ordering::Relaxed) < least)
    })
}

/// The same, with something to do once it runs; `is_young` says whether memory may still grow.
fn watched(
    command: &mut Command,
    begin: impl FnOnce(&mut Child) -> Result<()>,
    is_young: impl Fn() -> bool,
) -> Result<Run> {
    let before = cpu_of_children()?;
    let mut child =
        command.stdout(Stdio::null()).spawn().with_context(|| format!("cannot run `{}`", shell::line(command)))?;
    begin(&mut child)?;
    let status = format!("/proc/{}/status", child.id());
    let (mut peak_kib, mut settled_kib) = (0, 0);
    let ended = loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak_kib = kib.unwrap_or(0).max(peak_kib);
        if is_young() || settled_kib == 0 {
            settled_kib = peak_kib;
        }
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        thread::sleep(Duration::from_millis(5));
    };
    ensure!(ended.success(), "`{}` failed: {ended}", shell::line(command));
    Ok(Run { cpu_s: cpu_of_children()? - before, peak_bytes: peak_kib * 1024, settled_bytes: settled_kib * 1024 })
}

/// CPU time of the children that have ended, in seconds (proc_pid_stat(5), `cutime` and `cstime`).
fn cpu_of_children() -> Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3).and_then(|ticks| ticks.parse::<f64>().ok());
    let sum = ticks(16).zip(ticks(17)).context("/proc/self/stat has no times of children")?;
    Ok((sum.0 + sum.1) / rustix::param::clock_ticks_per_second() as f64)
}
