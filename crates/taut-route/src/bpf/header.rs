//! Headers of the datagrams that a program sends: Ethernet, IPv4 without options, UDP; prepared here, completed there.

use std::net::SocketAddrV4;

/// Bytes of the three headers (IEEE 802.3, RFC 791, RFC 768).
pub(super) const HEADER_BYTES: usize = 42;
/// Bytes of a sink in the table of sinks.
pub(super) const SINK_BYTES: usize = 64;
/// Offset in a sink of the sum of the IP header's words, that of the pseudo header's, and the device's number.
pub(super) const IP_SUM: usize = 48;
pub(super) const PSEUDO_SUM: usize = 52;
pub(super) const IFINDEX: usize = 56;

/// Where the datagrams of a sink go, as far as the kernel has found out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hop {
    /// Number of the device.
    pub ifindex: u32,
    /// Its address.
    pub own: [u8; 6],
    /// The address of the next host on the way.
    pub next: [u8; 6],
}

/// The headers with their lengths and checksums zero.
pub(super) fn headers(hop: Option<Hop>, from: SocketAddrV4, to: Option<SocketAddrV4>) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    if let Some(hop) = hop {
        bytes[..6].copy_from_slice(&hop.next);
        bytes[6..12].copy_from_slice(&hop.own);
    }
    // IPv4; version 4 with 5 words; do not fragment; time to live 64; UDP.
    bytes[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x00]);
    bytes[20..24].copy_from_slice(&[0x40, 0x00, 64, 17]);
    bytes[26..30].copy_from_slice(&from.ip().octets());
    bytes[34..36].copy_from_slice(&from.port().to_be_bytes());
    if let Some(to) = to {
        bytes[30..34].copy_from_slice(&to.ip().octets());
        bytes[36..38].copy_from_slice(&to.port().to_be_bytes());
    }
    bytes
}

/// Sum of the 16-bit words as they lie in memory, from which a checksum is folded in any byte order (RFC 1071, section 2).
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|word| u32::from(u16::from_ne_bytes([word[0], word[1]]))).sum()
}

/// Of the IP header.
pub(super) fn ip_sum(headers: &[u8; HEADER_BYTES]) -> u32 {
    sum(&headers[14..34])
}

/// Of the pseudo header of UDP (RFC 768) but for the length.
pub(super) fn pseudo_sum(headers: &[u8; HEADER_BYTES]) -> u32 {
    sum(&headers[26..34]) + sum(&[0, 17])
}

/// A sink's entry in the table; all zeroes while it is not known where it is.
pub(super) fn entry(hop: Option<Hop>, from: SocketAddrV4, to: SocketAddrV4) -> [u8; SINK_BYTES] {
    let mut entry = [0; SINK_BYTES];
    let Some(hop) = hop else { return entry };
    let headers = headers(Some(hop), from, Some(to));
    entry[..HEADER_BYTES].copy_from_slice(&headers);
    for (at, word) in [(IP_SUM, ip_sum(&headers)), (PSEUDO_SUM, pseudo_sum(&headers)), (IFINDEX, hop.ifindex)] {
        entry[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    entry
}
