//! What a capture of the air says of a link of BR/EDR: how often data was sent again, and how long that took.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Sums over a capture.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Figures {
    /// Data packets, each counted once.
    pub(super) packets: u64,
    /// Times that one was sent again.
    pub(super) again: u64,
    /// POLL packets.
    pub(super) polls: u64,
    /// Of the packet that took longest: from its first sending to the end of its last.
    pub(super) longest_ns: u64,
    /// How often that one was sent.
    pub(super) longest_times: u64,
    /// Packets that took longer than [`LATE_NS`].
    pub(super) late: u64,
}

/// The limit of late messages, 50 ms.
pub(super) const LATE_NS: u64 = 50_000_000;

const ENHANCED_PACKET: u32 = 6;
/// Interface of BR/EDR.
const BASEBAND: [u8; 4] = [1, 0, 0, 0];
/// Flags and header of an enhanced packet's block.
const PACKET_AT: usize = 20;
/// The pseudo header of LINKTYPE_BLUETOOTH_BREDR_BB.
const HEADER_AT: usize = 16;
const FLAGS_AT: usize = 20;
const PAYLOAD_AT: usize = 22;
const PAYLOAD_PRESENT: u16 = 0x20;
/// ID packets have no header.
const NO_HEADER: u8 = 0xff;
const POLL: u32 = 1;
const FHS: u32 = 2;
const SLOT_NS: u64 = 625_000;

/// One data packet from its first sending on.
#[derive(Clone, Copy)]
struct Sending {
    seqn: bool,
    first_ns: u64,
    times: u64,
    late: bool,
}

/// Reads a capture of one piconet at a time.
pub(super) fn read(path: &Path) -> Result<Figures> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    figures(&bytes).with_context(|| format!("{} is no capture of ours", path.display()))
}

fn figures(mut bytes: &[u8]) -> Option<Figures> {
    let mut figures = Figures::default();
    // A slot of the central, by which directions are told apart: FHS begins in one.
    let mut origin = 0;
    let mut sending: [Option<Sending>; 2] = [None; 2];
    while !bytes.is_empty() {
        let kind = u32::from_le_bytes(*bytes.first_chunk()?);
        let length = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?) as usize;
        let block = bytes.get(8..length.checked_sub(4)?)?;
        bytes = bytes.get(length..)?;
        if kind != ENHANCED_PACKET || *block.first_chunk()? != BASEBAND {
            continue;
        }
        let word = |at: usize| block.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word));
        let at_ns = u64::from(word(4)?) << 32 | u64::from(word(8)?);
        let captured = word(12)? as usize;
        let packet = block.get(PACKET_AT..PACKET_AT + captured)?;
        if packet.get(4) == Some(&NO_HEADER) {
            continue;
        }
        let header = u32::from_le_bytes(*packet.get(HEADER_AT..)?.first_chunk()?);
        let flags = u16::from_le_bytes(*packet.get(FLAGS_AT..)?.first_chunk()?);
        match header >> 3 & 0xf {
            POLL => figures.polls += 1,
            FHS => (origin, sending) = (at_ns, [None; 2]),
            _ => {}
        }
        if flags & PAYLOAD_PRESENT == 0 {
            continue;
        }
        let seqn = header >> 9 & 1 == 1;
        let side = ((at_ns.saturating_sub(origin) + SLOT_NS / 2) / SLOT_NS % 2) as usize;
        let before = sending[side].filter(|before| before.seqn == seqn);
        let first = Sending { seqn, first_ns: at_ns, times: 0, late: false };
        let this = sending[side].insert(before.unwrap_or(first));
        this.times += 1;
        // On the air at 1 Mb/s, which is exact enough here: access code, header and payload.
        let end_ns = at_ns + 126_000 + 8_000 * packet.len().saturating_sub(PAYLOAD_AT) as u64;
        figures.count(this, end_ns);
    }
    Some(figures)
}

impl Figures {
    fn count(&mut self, sending: &mut Sending, end_ns: u64) {
        let took_ns = end_ns - sending.first_ns;
        self.packets += u64::from(sending.times == 1);
        self.again += u64::from(sending.times > 1);
        if took_ns > LATE_NS && !sending.late {
            sending.late = true;
            self.late += 1;
        }
        if took_ns > self.longest_ns {
            (self.longest_ns, self.longest_times) = (took_ns, sending.times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(at_ns: u64, rate: u8, header: u32, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![7, 0, 0, 0, rate, 0, 0, 0, 1, 2, 3, 0, 1, 2, 3, 4];
        packet.extend(header.to_le_bytes());
        packet.extend(if payload.is_empty() { 0u16 } else { PAYLOAD_PRESENT }.to_le_bytes());
        packet.extend(payload);
        let captured = packet.len() as u32;
        packet.resize(packet.len().next_multiple_of(4), 0);
        let length = (packet.len() + 32) as u32;
        let mut block = Vec::new();
        for word in [ENHANCED_PACKET, length, 1, (at_ns >> 32) as u32, at_ns as u32, captured, captured] {
            block.extend(word.to_le_bytes());
        }
        block.extend(packet);
        block.extend(length.to_le_bytes());
        block
    }

    #[test]
    fn repetitions_are_told_from_new_packets_by_direction() {
        let (fhs, data, other) = (2 << 3, 11 << 3, 11 << 3 | 1 << 9);
        let slot = |number: u64| 1_000_000_000 + number * SLOT_NS;
        let mut log = vec![block(slot(0), 0xff, 0, &[]), block(slot(2), 0, fhs, &[])];
        // The central's packet takes three attempts, the peripheral's one; then a new one of the central.
        for number in [4, 8, 12] {
            log.push(block(slot(number), 0x30, data, &[1; 40]));
        }
        log.push(block(slot(15), 0x30, data, &[1; 40]));
        log.push(block(slot(18), 0, POLL << 3, &[]));
        log.push(block(slot(20), 0x30, other, &[1; 40]));
        let figures = figures(&log.concat()).unwrap();
        assert_eq!((figures.packets, figures.again, figures.polls, figures.late), (3, 2, 1, 0));
        assert_eq!((figures.longest_ns, figures.longest_times), (8 * SLOT_NS + 126_000 + 320_000, 3));
        assert!(super::figures(&log.concat()[1..]).is_none());
    }

    #[test]
    fn what_takes_long_is_late_once() {
        let log: Vec<u8> = (0..60).flat_map(|turn| block(turn * 4 * SLOT_NS, 0x30, 11 << 3, &[1; 40])).collect();
        let figures = figures(&log).unwrap();
        assert_eq!((figures.packets, figures.again, figures.longest_times), (1, 59, 60));
        assert_eq!(figures.late, 1);
    }
}
