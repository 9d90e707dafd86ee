//! `taut explain --assert` of percentiles: what holds, what is missed, and what can't be told.

#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../../taut-capture/tests/packets/mod.rs"]
mod packets;
mod support;

use std::path::{Path, PathBuf};
use std::process::Output;

use packets::{Tcp, ipv4, pcap};
use support::{taut, text};

const MS: u64 = 1_000_000;

/// Requests and their answers over a path of 2 ms, seen at the client. The server thinks for 980 µs, and of one in
/// fifty requests for 30 ms; the client asks again after 5 ms, which is nobody's answer.
fn turns(count: u64) -> Vec<u8> {
    let begin = 1_700_000_000_000_000_000;
    let mut packets = Vec::new();
    let mut next = [1_u32; 2];
    let mut packet = |at: u64, end: usize, flags: u8, payload: usize| {
        let syn = u32::from(flags & 2 != 0);
        let options = if syn == 1 { vec![2, 4, 5, 0xb4, 3, 3, 7, 0] } else { Vec::new() };
        let (seq, ack) = (next[end] - syn, if flags & 16 == 0 { 0 } else { next[1 - end] });
        let tcp = Tcp { from: [4000, 80][end], to: [80, 4000][end], seq, ack, flags, window: 1000, options };
        next[end] += payload as u32;
        let mut bytes = ipv4(&tcp, payload);
        bytes[4..6].copy_from_slice(&(packets.len() as u16 + 1).to_be_bytes());
        packets.push((begin + at, bytes));
    };
    packet(0, 0, 2, 0);
    packet(2 * MS, 1, 18, 0);
    packet(2 * MS + 20_000, 0, 16, 0);
    let mut at = 5 * MS;
    for turn in 0..count {
        let think = if turn % 50 == 49 { 30 * MS } else { 980_000 };
        packet(at, 0, 24, 40);
        packet(at + 2 * MS + think, 1, 24, 100);
        packet(at + 2 * MS + think + 10_000, 0, 16, 0);
        at += 7 * MS + think;
    }
    pcap(false, true, 101, &packets)
}

fn file(directory: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn explain(path: &Path, more: &[&str]) -> Output {
    taut().arg("explain").arg(path).args(more).output().unwrap()
}

#[test]
fn a_limit_on_a_percentile_is_code_3_and_the_direction_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "trace.pcap", &turns(200));
    let met = ["--assert", "p90(turn)<1ms", "--assert", "max(turn)<=30ms", "--assert", "p50(rtt)<4ms"];
    let met = explain(&path, &met);
    assert_eq!((met.status.code(), text(&met.stderr).as_str()), (Some(0), ""));
    let missed = explain(&path, &["--assert", "p99(turn)<20ms", "--assert", "p90(turn)<1ms"]);
    assert_eq!(missed.status.code(), Some(3));
    let told = text(&missed.stderr);
    assert!(told.contains("`p99(turn)<20ms` does not hold: it is 30.0 ms of 10.0.15.160:4000 > "), "{told}");
    assert!(!told.contains("p90"), "{told}");
    let full = text(&explain(&path, &["--full"]).stdout);
    assert!(full.contains("turn: 200 times, p50 98"), "{full}");
}

#[test]
fn what_is_too_little_for_a_percentile_does_not_pass() {
    let directory = tempfile::tempdir().unwrap();
    let few = turns(20);
    let path = file(directory.path(), "trace.pcap", &few);
    for (limit, why) in [
        ("p99(turn)<1h", "there are 20 times, and it takes 100"),
        ("p99.9(turn)<1h", "there are 20 times, and it takes 1,000"),
        ("max(completion)<1h", "there is no completion"),
    ] {
        let output = explain(&path, &["--assert", limit]);
        assert_eq!(output.status.code(), Some(3), "{limit}");
        assert!(text(&output.stderr).contains(why), "{limit}: {}", text(&output.stderr));
    }
    let none = explain(&file(directory.path(), "none.pcap", &few[..24]), &["--assert", "p50(turn)<1h"]);
    assert_eq!(none.status.code(), Some(3));
    assert!(text(&none.stderr).contains("can't be told"), "{}", text(&none.stderr));
    let typo = explain(&path, &["--assert", "p98(turn)<1ms"]);
    assert!(!typo.status.success() && text(&typo.stderr).contains("RANK of p50, p90, p99"), "{}", text(&typo.stderr));
}

#[test]
fn a_capture_without_data_meets_no_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), "empty.pcap", &pcap(false, true, 101, &[]));
    for limit in ["held(nagle)<1%", "longest(peer_turn)<20ms", "p50(turn)<1ms"] {
        let output = explain(&path, &["--assert", limit]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(&format!("`{limit}` can't be told, so it does not hold")), "{said}");
    }
    let output = explain(&path, &["--fail-on", "nagle_delayed_ack=1%"]);
    assert_eq!(output.status.code(), Some(0), "nothing was found: {output:?}");
}
