//! IPv4 and IPv6 headers: where the header of the transport begins, and how long what follows is.

use super::header::Skipped;
use crate::bytes::be16;
use crate::ends::Hosts;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// A datagram that carries the protocol asked for.
pub(super) struct Datagram<'a> {
    pub(super) hosts: Hosts<'a>,
    pub(super) identification: Option<u16>,
    /// Header and payload of the transport, as much as was kept.
    pub(super) segment: &'a [u8],
    /// Their length on the wire.
    pub(super) length: usize,
    /// It is the first of several fragments.
    pub(super) has_more: bool,
}

/// `length` is what the capture says that the packet had from its IP header on.
#[inline(always)]
pub(super) fn datagram<const PROTOCOL: u8>(bytes: &[u8], length: usize) -> Result<Datagram<'_>, Skipped> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => version_4::<PROTOCOL>(bytes, length),
        Some(6) => version_6::<PROTOCOL>(bytes, length),
        _ => Err(Skipped::NotTcp),
    }
}

#[inline(always)]
fn version_4<const PROTOCOL: u8>(bytes: &[u8], length: usize) -> Result<Datagram<'_>, Skipped> {
    let header: &[u8; 20] = bytes.first_chunk().ok_or(Skipped::Cut)?;
    if header[9] != PROTOCOL {
        return Err(Skipped::NotTcp);
    }
    let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    if field(6) & 0x1fff != 0 {
        return Err(Skipped::Fragment);
    }
    let header_length = usize::from(header[0] & 0xf) * 4;
    // 0: the device was to fill it in (TSO), or the packet is longer than the field can say (BIG TCP).
    let total = match usize::from(field(2)) {
        0 => length,
        total => total,
    };
    if header_length < 20 || total < header_length {
        return Err(Skipped::Malformed);
    }
    let hosts: &[u8; 8] = header.last_chunk().ok_or(Skipped::Cut)?;
    Ok(Datagram {
        hosts: Hosts::V4(hosts),
        identification: Some(field(4)),
        segment: bytes.get(header_length..bytes.len().min(total).max(header_length)).ok_or(Skipped::Cut)?,
        length: total - header_length,
        has_more: field(6) & 0x2000 != 0,
    })
}

fn version_6<const PROTOCOL: u8>(bytes: &[u8], length: usize) -> Result<Datagram<'_>, Skipped> {
    let header: &[u8; 40] = bytes.first_chunk().ok_or(Skipped::Cut)?;
    // 0: a jumbogram, as BIG TCP makes them.
    let total = match usize::from(u16::from_be_bytes([header[4], header[5]])) {
        0 => length,
        payload => payload + 40,
    };
    let (mut next, mut at, mut has_more) = (header[6], 40, false);
    while next != PROTOCOL {
        let extension = bytes.get(at..at + 8).ok_or(Skipped::Cut)?;
        let long = match next {
            // RFC 8200: hop-by-hop options, routing, destination options; RFC 6275, 7401 and 5533.
            0 | 43 | 60 | 135 | 139 | 140 => (usize::from(extension[1]) + 1) * 8,
            44 if be16(extension, 2).is_some_and(|offset| offset & 0xfff8 != 0) => return Err(Skipped::Fragment),
            44 => {
                has_more = extension[3] & 1 != 0;
                8
            }
            // RFC 4302 counts in words of four bytes.
            51 => (usize::from(extension[1]) + 2) * 4,
            _ => return Err(Skipped::NotTcp),
        };
        next = extension[0];
        at += long;
    }
    let hosts: &[u8; 32] = header.last_chunk().ok_or(Skipped::Cut)?;
    let length = total.checked_sub(at).ok_or(Skipped::Malformed)?;
    let segment = bytes.get(at..bytes.len().min(total).max(at)).ok_or(Skipped::Cut)?;
    Ok(Datagram { hosts: Hosts::V6(hosts), identification: None, segment, length, has_more })
}
