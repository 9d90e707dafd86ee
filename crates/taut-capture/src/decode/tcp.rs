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
const MPTCP: u8 = 30;

#[inline(always)]
pub(super) fn segment<'a>(datagram: &Datagram<'a>) -> Result<TcpPacket<'a>, Skipped> {
    let header: &'a [u8; 20] = datagram.segment.first_chunk().ok_or(Skipped::Cut)?;
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let [ports @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = header;
    let ends = Ends { hosts: datagram.hosts, ports };
    if ends.are_one() {
        return Err(Skipped::ToItself);
    }
    let header_length = usize::from(header[12] >> 4) * 4;
    let payload = datagram.length.checked_sub(header_length).filter(|_| header_length >= 20);
    let payload = payload.and_then(|payload| u32::try_from(payload).ok()).ok_or(Skipped::Malformed)?;
    let kept = datagram.segment.len().min(header_length);
    let options = datagram.segment.get(20..kept).unwrap_or_default();
    let (timestamps, others) = match options.as_chunks() {
        // Those of nearly all segments (RFC 7323, appendix A).
        ([[NOTHING, NOTHING, TIMESTAMPS, 10], value, echo], []) => (
            Some(u64::from(u32::from_be_bytes(*value)) << 32 | u64::from(u32::from_be_bytes(*echo))),
            Others::default(),
        ),
        ([], []) => (None, Others::default()),
        _ => (stamps(options), others(options, word(8))),
    };
    Ok(TcpPacket {
        ends,
        sequence: word(4),
        acknowledgement: word(8),
        flags: header[13],
        window: half(14),
        payload,
        identification: datagram.identification,
        mss: others.mss,
        window_scale: others.window_scale,
        timestamps: timestamps.map(|both| TimestampOption { value: (both >> 32) as u32, echo: both as u32 }),
        sacked_to: others.sacked_to,
        sack: others.sack,
        permits_sack: others.permits_sack,
        is_subflow: others.is_subflow,
        options_are_cut: datagram.segment.len() < header_length,
    })
}

/// Options but timestamps; see [`TcpPacket`].
#[derive(Default)]
struct Others {
    mss: u16,
    window_scale: Option<u8>,
    sacked_to: Option<u32>,
    sack: Option<SackBlock>,
    permits_sack: bool,
    is_subflow: bool,
}

/// Hands over each option that is there, with its kind and length; one that is cut off ends the walk.
fn walk<'a>(mut rest: &'a [u8], mut take: impl FnMut(u8, &'a [u8])) {
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
        take(kind, option);
    }
}

/// The sender's own clock in the upper half, its echo in the lower one. It is apart, and a number, since what comes
/// back in registers is there at once.
#[inline(never)]
fn stamps(options: &[u8]) -> Option<u64> {
    let mut stamps = None;
    walk(options, |kind, option| {
        if kind == TIMESTAMPS {
            stamps = option.get(2..).and_then(<[u8]>::first_chunk).map(|bytes| u64::from_be_bytes(*bytes));
        }
    });
    stamps
}

#[inline(never)]
fn others(options: &[u8], acknowledgement: u32) -> Others {
    let mut others = Others::default();
    walk(options, |kind, option| match kind {
        MSS => others.mss = be16(option, 2).unwrap_or_default(),
        WINDOW_SCALE => others.window_scale = option.get(2).copied(),
        SACK_PERMITTED => others.permits_sack = true,
        MPTCP => others.is_subflow = true,
        SACK => {
            let ends = (1..).map_while(|block| be32(option, 8 * block - 2));
            // What came twice stands below.
            let above = |end: &u32| end.wrapping_sub(acknowledgement) as i32;
            others.sacked_to = ends.filter(|end| above(end) > 0).max_by_key(above);
            others.sack = first_block(option, acknowledgement);
        }
        _ => {}
    });
    others
}

/// A block at or below what is acknowledged, or within the one behind it, came twice (RFC 2883, section 4).
fn first_block(option: &[u8], acknowledged: u32) -> Option<SackBlock> {
    let (from, to) = be32(option, 2).zip(be32(option, 6))?;
    let is_after = |one: u32, other: u32| one.wrapping_sub(other) as i32 > 0;
    let is_within = |(left, right): (u32, u32)| !is_after(left, from) && !is_after(to, right);
    let second = be32(option, 10).zip(be32(option, 14));
    Some(SackBlock { from, to, is_duplicate: !is_after(to, acknowledged) || second.is_some_and(is_within) })
}
