//! How fast `taut explain` reads, on a capture of 64 connections made here, beside tcptrace where Debian has it; and
//! whether its memory grows with the file, and with the connections.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::outcome::{Outcome, median, table};
use super::process::pinned;
use super::setting::Setting;
use crate::shell;

/// Packets a second of CPU time, at least.
const PACKETS_PER_S: f64 = 5e6;
/// How many times as fast as tcptrace, at least.
const TIMES: f64 = 2.0;
/// Memory that a file four times as long may take more, as a share.
const GROWTH: f64 = 0.05;

const CONNECTIONS: u32 = 64;
/// Connections at once for the memory that each takes, and what they may take in all.
const MANY: u32 = 10_000;
const MOST_BYTES: u64 = 64_000_000 + 300 * MANY as u64;
const PACKETS: u32 = 2_000_000;
/// Bytes kept of each packet: the headers.
const KEPT: usize = 66;
const MSS: u32 = 1448;

pub(crate) fn run(setting: &Setting) -> Result<Outcome> {
    let directory = tempfile::tempdir()?;
    let [long, short, wide] = ["long.pcap", "short.pcap", "wide.pcap"].map(|name| directory.path().join(name));
    write_capture(&long, PACKETS, CONNECTIONS)?;
    write_capture(&short, PACKETS / 4, CONNECTIONS)?;
    // So many packets of each that nothing is still growing.
    write_capture(&wide, 600 * MANY, MANY)?;
    let taut = |file: &Path| {
        let mut command = pinned(setting.cores.client, setting.taut.file());
        command.args(["explain", "--json"]).arg(file);
        measured(&mut command)
    };
    let has_peer = shell::find("tcptrace").is_some();
    let (mut rates, mut peers, mut growths) = (Vec::new(), Vec::new(), Vec::new());
    let mut memory = 0;
    for _ in 0..setting.rounds {
        let run = taut(&long)?;
        rates.push(f64::from(PACKETS) / run.cpu_s);
        growths.push(run.peak_bytes as f64 / taut(&short)?.peak_bytes as f64 - 1.0);
        memory = memory.max(run.peak_bytes);
        if has_peer {
            let mut command = pinned(setting.cores.client, "tcptrace");
            command.args(["-n", "-l"]).arg(&long);
            peers.push(f64::from(PACKETS) / measured(&mut command)?.cpu_s);
        }
    }
    let (rate, growth) = (median(&rates), median(&growths));
    let of_many = taut(&wide)?.peak_bytes;
    let mut rows = vec![
        row(
            "packets a second of CPU time",
            format!("{:.2} M", rate / 1e6),
            format!(">= {:.0} M", PACKETS_PER_S / 1e6),
            rate >= PACKETS_PER_S,
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
    let mut met = rate >= PACKETS_PER_S && growth <= GROWTH && of_many <= MOST_BYTES;
    if has_peer {
        let ratios: Vec<f64> = rates.iter().zip(&peers).map(|(taut, peer)| taut / peer).collect();
        let ratio = median(&ratios);
        met &= ratio >= TIMES;
        let value = format!("{ratio:.2} (tcptrace: {:.2} M)", median(&peers) / 1e6);
        rows.push(row("times as fast as tcptrace -n -l", value, format!(">= {TIMES}"), ratio >= TIMES));
    } else {
        rows.push(vec!["tcptrace".to_owned(), "is not installed".to_owned(), String::new(), String::new()]);
    }
    let json = json!({
        "packets": PACKETS,
        "connections": CONNECTIONS,
        "packets_per_cpu_s_by_round": rates,
        "tcptrace_packets_per_cpu_s_by_round": peers,
        "peak_rss_bytes": memory,
        "peak_rss_bytes_of_10000_connections": of_many,
        "memory_growth_by_round": growths,
    });
    Ok(Outcome { text: table(&["explain", "taut", "bar", ""], &rows), json, met: Some(met) })
}

fn row(what: &str, value: String, bar: String, met: bool) -> Vec<String> {
    vec![what.to_owned(), value, bar, if met { "met" } else { "MISSED" }.to_owned()]
}

struct Run {
    cpu_s: f64,
    peak_bytes: u64,
}

/// Runs a command to its end, with its CPU time and the most memory that it had.
fn measured(command: &mut Command) -> Result<Run> {
    let before = cpu_of_children()?;
    let mut child =
        command.stdout(Stdio::null()).spawn().with_context(|| format!("cannot run `{}`", shell::line(command)))?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0;
    let ended = loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak_kib = kib.unwrap_or(0).max(peak_kib);
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        thread::sleep(Duration::from_millis(5));
    };
    ensure!(ended.success(), "`{}` failed: {ended}", shell::line(command));
    Ok(Run { cpu_s: cpu_of_children()? - before, peak_bytes: peak_kib * 1024 })
}

/// CPU time of the children that have ended, in seconds (proc_pid_stat(5), `cutime` and `cstime`).
fn cpu_of_children() -> Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3).and_then(|ticks| ticks.parse::<f64>().ok());
    let sum = ticks(16).zip(ticks(17)).context("/proc/self/stat has no times of children")?;
    Ok((sum.0 + sum.1) / rustix::param::clock_ticks_per_second() as f64)
}

/// Bulk over so many connections at once, an acknowledgement for two segments, with the timestamps option.
fn write_capture(path: &Path, packets: u32, connections: u32) -> Result<()> {
    /// No client has this address.
    const SERVER: u32 = 1 << 20;
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 96, 101] {
        out.write_all(&word.to_le_bytes())?;
    }
    for index in 0..packets {
        let (flow, step) = (index % connections, index / connections);
        let at = 1_700_000_000_000_000_000 + u64::from(index) * 3_000;
        let (pair, phase) = (step.saturating_sub(3) / 3, step.saturating_sub(3) % 3);
        let sent = 1 + (2 * pair + phase.min(2)).wrapping_mul(MSS);
        let stamp = (at / 1_000_000) as u32;
        let (is_client, flags, seq, ack, payload) = match (step, phase) {
            (0, _) => (true, 2, 0, 0, 0),
            (1, _) => (false, 18, 0, 1, 0),
            (2, _) => (true, 16, 1, 1, 0),
            (_, 2) => (false, 16, 1, sent, 0),
            _ => (true, if phase == 1 { 24 } else { 16 }, sent, 1, MSS),
        };
        let (from, to) = if is_client { (flow, SERVER) } else { (SERVER, flow) };
        let mut packet = [0_u8; KEPT];
        packet[..2].copy_from_slice(&[0x45, 0]);
        packet[2..4].copy_from_slice(&((52 + payload) as u16).to_be_bytes());
        packet[4..6].copy_from_slice(&(step as u16 | 1).to_be_bytes());
        packet[8..10].copy_from_slice(&[64, 6]);
        packet[12..16].copy_from_slice(&(0x0a00_0000 + from).to_be_bytes());
        packet[16..20].copy_from_slice(&(0x0a00_0000 + to).to_be_bytes());
        packet[20..22].copy_from_slice(&(from as u16 + 1).to_be_bytes());
        packet[22..24].copy_from_slice(&(to as u16 + 1).to_be_bytes());
        packet[24..28].copy_from_slice(&seq.to_be_bytes());
        packet[28..32].copy_from_slice(&ack.to_be_bytes());
        packet[32..36].copy_from_slice(&[0x80, flags, 0xff, 0xff]);
        packet[40..44].copy_from_slice(&[1, 1, 8, 10]);
        packet[44..48].copy_from_slice(&stamp.to_be_bytes());
        let length = 52 + payload;
        for word in [(at / 1_000_000_000) as u32, (at % 1_000_000_000) as u32, (KEPT as u32).min(length), length] {
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(&packet[..KEPT.min(length as usize)])?;
    }
    out.flush().context("write the capture")
}
