//! A capture of bulk over many connections at once, as it is written.

use std::io::{BufWriter, Write};

use anyhow::{Context, Result};

/// Bytes kept of each packet where that is the headers only.
const KEPT: usize = 66;
/// What is kept of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kept {
    Headers,
    All,
}

const MSS: u32 = 1448;

/// Bulk over so many connections at once, an acknowledgement for two segments, with the timestamps option.
/// `told` is asked before each packet with how many there were.
pub(super) fn write(
    out: impl Write,
    kept: Kept,
    packets: u64,
    connections: u32,
    mut told: impl FnMut(u64),
) -> Result<()> {
    /// No client has this address.
    const SERVER: u32 = 1 << 20;
    let mut out = BufWriter::with_capacity(1 << 20, out);
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        out.write_all(&word.to_le_bytes())?;
    }
    // Each time the same of its bytes are written.
    let mut packet = [0_u8; 52 + MSS as usize];
    for index in 0..packets {
        told(index);
        let (flow, step) = ((index % u64::from(connections)) as u32, (index / u64::from(connections)) as u32);
        let at = 1_700_000_000_000_000_000 + index * 3_000;
        let (pair, phase) = (step.saturating_sub(3) / 3, step.saturating_sub(3) % 3);
        let sent = (2 * pair + phase.min(2)).wrapping_mul(MSS).wrapping_add(1);
        let stamp = (at / 1_000_000) as u32;
        let (is_client, flags, seq, ack, payload) = match (step, phase) {
            (0, _) => (true, 2, 0, 0, 0),
            (1, _) => (false, 18, 0, 1, 0),
            (2, _) => (true, 16, 1, 1, 0),
            (_, 2) => (false, 16, 1, sent, 0),
            _ => (true, if phase == 1 { 24 } else { 16 }, sent, 1, MSS),
        };
        let (from, to) = if is_client { (flow, SERVER) } else { (SERVER, flow) };
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
        let most = if kept == Kept::All { length } else { KEPT as u32 };
        for word in [(at / 1_000_000_000) as u32, (at % 1_000_000_000) as u32, most.min(length), length] {
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(&packet[..most.min(length) as usize])?;
    }
    out.flush().context("write the capture")
}
