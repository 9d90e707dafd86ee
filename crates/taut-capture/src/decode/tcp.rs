//! The TCP header (RFC 9293) and its options.

use taut_event::{SackBlock, TimestampOption};

use super::header::{Skipped, TcpPacket};
use super::ip::Datagram;
use crate::bytes::{be16, be32};
use crate::ends::Ends;

const END: u8 = 0;
const NOTHING: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

#[inline]
pub(super) fn segment<'a>(datagram: &Datagram<'a>) -> Result<TcpPacket<'a>, Skipped> {
    let header: &[u8; 20] = datagram.segment.first_chunk().ok_or(Skipped::Cut)?;
    let [ports @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = header;
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let header_length = usize::from(header[12] >> 4) * 4;
    let payload = datagram.length.checked_sub(header_length).filter(|_| header_length >= 20);
    let payload = payload.and_then(|payload| u32::try_from(payload).ok()).ok_or(Skipped::Malformed)?;
    let mut packet = TcpPacket {
        ends: Ends { hosts: datagram.hosts, ports },
        sequence: word(4),
        acknowledgement: word(8),
        flags: header[13],
        window: half(14),
        payload,
        identification: datagram.identification,
        mss: 0,
        window_scale: None,
        timestamps: None,
        sacked_to: None,
        sack: None,
        permits_sack: false,
        options_are_cut: datagram.segment.len() < header_length,
    };
    let kept = datagram.segment.len().min(header_length);
    match &datagram.segment[20..kept] {
        [] => {}
        // Those of nearly all segments (RFC 7323, appendix A).
        &[NOTHING, NOTHING, TIMESTAMPS, 10, a, b, c, d, e, f, g, h] => {
            packet.timestamps = Some(both_stamps(&[a, b, c, d, e, f, g, h]));
        }
        others => options(others, &mut packet),
    }
    Ok(packet)
}

#[inline(always)]
const fn both_stamps(&[a, b, c, d, e, f, g, h]: &[u8; 8]) -> TimestampOption {
    TimestampOption { value: u32::from_be_bytes([a, b, c, d]), echo: u32::from_be_bytes([e, f, g, h]) }
}

/// Takes what is there; an option that is cut off ends the walk.
fn options(mut rest: &[u8], packet: &mut TcpPacket<'_>) {
    while let Some(&kind) = rest.first() {
        if kind == END {
            return;
        }
        if kind == NOTHING {
            rest = &rest[1..];
            continue;
        }
        let Some(option) = rest.get(1).and_then(|&length| rest.get(..length.max(2).into())) else { return };
        rest = &rest[option.len()..];
        match kind {
            MSS => packet.mss = be16(option, 2).unwrap_or_default(),
            WINDOW_SCALE => packet.window_scale = option.get(2).copied(),
            TIMESTAMPS => {
                packet.timestamps = option.get(2..).and_then(<[u8]>::first_chunk).map(both_stamps);
            }
            SACK_PERMITTED => packet.permits_sack = true,
            SACK => {
                let ends = (1..).map_while(|block| be32(option, 8 * block - 2));
                let above = |end: &u32| end.wrapping_sub(packet.acknowledgement);
                packet.sacked_to = ends.max_by_key(above);
                packet.sack = first_block(option, packet.acknowledgement);
            }
            _ => {}
        }
    }
}

/// A block at or below what is acknowledged, or within the one behind it, came twice (RFC 2883, section 4).
fn first_block(option: &[u8], acknowledged: u32) -> Option<SackBlock> {
    let (from, to) = be32(option, 2).zip(be32(option, 6))?;
    let is_after = |one: u32, other: u32| one.wrapping_sub(other) as i32 > 0;
    let is_within = |(left, right): (u32, u32)| !is_after(left, from) && !is_after(to, right);
    let second = be32(option, 10).zip(be32(option, 14));
    Some(SackBlock { from, to, is_duplicate: !is_after(to, acknowledged) || second.is_some_and(is_within) })
}
