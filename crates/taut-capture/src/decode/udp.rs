//! The UDP header (RFC 768), and what of the payload tells about time: DNS, QUIC's long header, and numbers.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use taut_event::{ConnectionId, Content, Datagram as Seen, Dns, Numbered, QuicLong, RtpClock};

use super::header::{Skipped, UdpPacket};
use super::ip::Datagram;
use crate::bytes::{be16, be32};
use crate::ends::Ends;

const HEADER: usize = 8;
const DNS: u16 = 53;
const DNS_HEADER: usize = 12;
/// RFC 1035, section 2.3.4.
const LONGEST_NAME: usize = 255;

pub(super) fn packet<'a>(datagram: &Datagram<'a>) -> Result<UdpPacket<'a>, Skipped> {
    let header: &[u8; HEADER] = datagram.segment.first_chunk().ok_or(Skipped::Cut)?;
    let (kept, payload) = payload(datagram).ok_or(Skipped::Malformed)?;
    let payload = u32::try_from(payload).map_err(|_| Skipped::Malformed)?;
    let [ports @ .., _, _, _, _] = header;
    let ends = Ends { hosts: datagram.hosts, ports };
    if ends.are_one() {
        return Err(Skipped::ToItself);
    }
    let content = match dns(&ends, kept) {
        Some(dns) => Content::Dns(dns),
        None => content(kept, payload as usize),
    };
    let seen = Seen {
        hash: (kept.len() == payload as usize && payload > 0).then(|| hash(kept)),
        first: kept.first().copied(),
        is_fragmented: datagram.has_more,
        content,
    };
    Ok(UdpPacket { ends, payload, kept, identification: datagram.identification, seen })
}

/// What was kept of its payload, and how long that was.
pub(super) fn payload<'a>(datagram: &Datagram<'a>) -> Option<(&'a [u8], usize)> {
    let header: &[u8; HEADER] = datagram.segment.first_chunk()?;
    // Of a fragmented datagram the header has the length of the whole; 0 is a jumbogram (RFC 2675).
    let length = match usize::from(u16::from_be_bytes([header[4], header[5]])) {
        0 => datagram.length,
        length => length,
    };
    let kept = &datagram.segment[HEADER..datagram.segment.len().min(length).max(HEADER)];
    Some((kept, length.checked_sub(HEADER)?))
}

fn content(kept: &[u8], length: usize) -> Content {
    let quic = quic(kept).map(Content::Quic);
    let numbered = || rtp(kept, length).or_else(|| tautline(kept)).map(Content::Numbered);
    quic.or_else(numbered).unwrap_or(Content::Other)
}

/// RFC 3550, section 5.1. RTCP is none: beside it no stream has the payload types 64 to 95 (RFC 5761, section 4).
fn rtp(kept: &[u8], length: usize) -> Option<Numbered> {
    let header: &[u8; 12] = kept.first_chunk()?;
    let payload_type = header[1] & 0x7f;
    let (sources, has_extension) = (usize::from(header[0] & 0xf), header[0] & 0x10 != 0);
    let whole = 12 + 4 * sources + if has_extension { 4 } else { 0 };
    if header[0] >> 6 != 2 || (64..96).contains(&payload_type) || length < whole {
        return None;
    }
    let (sequence, stream) = (be16(header, 2)?, be32(header, 8)?);
    let rtp = RtpClock { timestamp: be32(header, 4)?, payload_type };
    Some(Numbered { stream: stream.into(), sequence: sequence.into(), rtp: Some(rtp) })
}

/// Data of Tautline's own protocol, version 1 (docs/protocol.md): session and number.
fn tautline(kept: &[u8]) -> Option<Numbered> {
    let header: &[u8; 24] = kept.first_chunk()?;
    let word = |at: usize| header[at..].first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    let is_data = header[..6] == *b"TAUT\x01\0";
    is_data.then_some(Numbered { stream: word(8)?, sequence: word(16)?, rtp: None })
}

fn hash(bytes: &[u8]) -> u32 {
    let mut hasher = FixedState::with_seed(1).build_hasher();
    hasher.write(bytes);
    (hasher.finish() >> 32) as u32
}

fn dns(ends: &Ends<'_>, payload: &[u8]) -> Option<Dns> {
    let header = payload.get(..DNS_HEADER)?;
    let flags = be16(header, 2)?;
    let is_answer = flags & 0x8000 != 0;
    let (server, client) = if is_answer { (ends.from(), ends.to()) } else { (ends.to(), ends.from()) };
    // A standard query with one question: all that resolvers send.
    if server.port != DNS || flags & 0x7800 != 0 || be16(header, 4)? > 1 {
        return None;
    }
    let (name, kind) = question(&payload[DNS_HEADER..]).unwrap_or_default();
    let code = (flags & 0xf) as u8;
    Some(Dns { id: be16(header, 0)?, is_answer, code, name, kind, server, port: client.port })
}

/// Name, as a number, and kind of the first question; a question has no compressed name.
fn question(bytes: &[u8]) -> Option<(u32, u16)> {
    let mut end = 0;
    while let Some(length @ 1..=63) = bytes.get(end).copied() {
        end += 1 + usize::from(length);
    }
    if end > LONGEST_NAME || bytes.get(end) != Some(&0) {
        return None;
    }
    let name = bytes.get(..end)?.to_ascii_lowercase();
    Some((hash(&name).max(1), be16(bytes, end + 1)?))
}

/// RFC 8999, section 5.1; RFC 9000, section 17.2; the bit that is fixed there is set in each version known so far.
fn quic(payload: &[u8]) -> Option<QuicLong> {
    let version = be32(payload, 1).filter(|&version| payload[0] & 0x80 != 0 && is_version(version))?;
    if version != 0 && payload[0] & 0x40 == 0 {
        return None;
    }
    let length = usize::from(*payload.get(5)?);
    let destination = ConnectionId::new(payload.get(6..6 + length)?)?;
    // The source's, of which the length has to fit.
    let source = usize::from(*payload.get(6 + length)?);
    (source <= 20 && payload.len() > 6 + length + source).then_some(QuicLong { version, destination })
}

/// Versions in use: 1 and 2, drafts, and those that stand for none (RFC 9000, section 15). A negotiation (0) is
/// too easily something else.
const fn is_version(version: u32) -> bool {
    matches!(version, 1 | 0x6b33_43cf) || version >> 8 == 0x00ff_0000 || version & 0x0f0f_0f0f == 0x0a0a_0a0a
}
