//! A capture made here of requests whose pieces are held or not, and how it is explained.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::packets::{Tcp, ipv4, pcap};
use crate::support::taut;

pub(crate) const MS: u64 = 1_000_000;

/// A client that writes each request in two pieces, to a server whose delayed ACK takes 40 ms.
pub(crate) fn capture() -> Vec<u8> {
    requests(true)
}

/// The same, or with `TCP_NODELAY`: then the second piece leaves right behind the first.
pub(crate) fn requests(is_held: bool) -> Vec<u8> {
    pcap(false, true, 101, &packets_of(is_held))
}

pub(crate) fn packets_of(is_held: bool) -> Vec<(u64, Vec<u8>)> {
    let begin = 1_700_000_000_000_000_000;
    let mut packets = Vec::new();
    let mut next = [1_u32; 2];
    let mut packet = |at: u64, end: usize, flags: u8, payload: usize| {
        let syn = u32::from(flags & 2 != 0);
        let options = if syn == 1 { vec![2, 4, 5, 0xb4, 3, 3, 7, 0] } else { Vec::new() };
        let tcp = Tcp {
            from: [4000, 80][end],
            to: [80, 4000][end],
            seq: next[end] - syn,
            ack: if flags & 16 == 0 { 0 } else { next[1 - end] },
            flags,
            window: 1000,
            options,
        };
        next[end] += payload as u32;
        let mut bytes = ipv4(&tcp, payload);
        // Each packet has an identification of its own.
        bytes[4..6].copy_from_slice(&(packets.len() as u16 + 1).to_be_bytes());
        packets.push((begin + at, bytes));
    };
    packet(0, 0, 2, 0);
    packet(2 * MS, 1, 18, 0);
    packet(2 * MS + 20_000, 0, 16, 0);
    let mut at = 5 * MS;
    for _ in 0..20 {
        packet(at, 0, 24, 40);
        if is_held {
            packet(at + 42 * MS, 1, 16, 0);
        }
        packet(at + if is_held { 42 * MS + 20_000 } else { 15_000 }, 0, 24, 160);
        packet(at + 45 * MS, 1, 24, 100);
        packet(at + 45 * MS + 10_000, 0, 16, 0);
        at += 50 * MS;
    }
    packets
}

pub(crate) fn file(directory: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

pub(crate) fn explain(path: &Path, more: &[&str]) -> Output {
    taut().arg("explain").arg(path).args(more).output().unwrap()
}
