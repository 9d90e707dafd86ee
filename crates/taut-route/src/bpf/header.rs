//! Headers of the datagrams that a program sends: Ethernet, IPv4 or IPv6 without options, UDP;
//! prepared here, completed there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Room for the headers of either version.
pub(super) const HEADER_ROOM: usize = 64;
/// The table of sinks begins with this host's own addresses on the device of the source:
/// Ethernet's, and the one by which IPv4 reaches all hosts there (0: none).
pub(super) const OWN_ETHERNET: usize = 0;
pub(super) const OWN_BROADCAST: usize = 8;
pub(super) const OWN_BYTES: usize = 16;
/// Bytes of a sink in the table of sinks.
pub(super) const SINK_BYTES: usize = 80;
/// Offset in a sink of the sum of the IPv4 header's words (IPv6: of both ports), that of the pseudo
/// header's, and the device's number.
pub(super) const FIRST_SUM: usize = 64;
pub(super) const PSEUDO_SUM: usize = 68;
pub(super) const IFINDEX: usize = 72;

/// Version of IP, and where things are in a frame of Ethernet (IEEE 802.3, RFC 791, RFC 8200, RFC 768).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ip {
    V4,
    V6,
}

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

impl Ip {
    pub(super) const fn of(address: SocketAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Bytes of all three headers.
    pub(super) const fn header_bytes(self) -> usize {
        self.udp() + 8
    }

    /// Offset of the header of UDP.
    pub(super) const fn udp(self) -> usize {
        self.target_at() + self.address_bytes()
    }

    /// Offset of the number of hosts that a datagram may still pass.
    pub(super) const fn hops_at(self) -> usize {
        match self {
            Self::V4 => 22,
            Self::V6 => 21,
        }
    }

    /// What stands behind the Ethernet addresses, in network byte order.
    pub(super) const fn ethertype(self) -> u16 {
        match self {
            Self::V4 => 0x0800,
            Self::V6 => 0x86dd,
        }
    }

    /// Offset of the length in the IP header, and how much more than that of the payload it is.
    pub(super) const fn length(self) -> (usize, usize) {
        match self {
            Self::V4 => (16, 28),
            Self::V6 => (18, 8),
        }
    }

    /// Bytes of the frame that the length in the IP header leaves out.
    pub(super) const fn before_length(self) -> usize {
        self.header_bytes() - self.length().1
    }

    pub(super) const fn sender_at(self) -> usize {
        match self {
            Self::V4 => 26,
            Self::V6 => 22,
        }
    }

    pub(super) const fn target_at(self) -> usize {
        self.sender_at() + self.address_bytes()
    }

    pub(super) const fn address_bytes(self) -> usize {
        match self {
            Self::V4 => 4,
            Self::V6 => 16,
        }
    }
}

/// This host on the device that the datagrams of a source come in on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Own {
    /// Ethernet address; zero on loopback.
    pub ethernet: [u8; 6],
    /// The address by which IPv4 reaches all hosts there, if it has one.
    pub broadcast: Option<Ipv4Addr>,
}

impl Own {
    pub(super) fn entry(self) -> [u8; OWN_BYTES] {
        let mut entry = [0; OWN_BYTES];
        entry[OWN_ETHERNET..OWN_ETHERNET + 6].copy_from_slice(&self.ethernet);
        let broadcast = self.broadcast.unwrap_or(Ipv4Addr::UNSPECIFIED).octets();
        entry[OWN_BROADCAST..OWN_BROADCAST + 4].copy_from_slice(&broadcast);
        entry
    }
}

/// The number that four bytes of an address are in memory.
pub(super) fn word(ip: IpAddr, index: usize) -> u32 {
    let octets = octets(ip);
    u32::from_ne_bytes([0, 1, 2, 3].map(|byte| octets[4 * index + byte]))
}

/// The bytes of an address.
pub(super) fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The headers with their lengths, checksums and hops zero. Both addresses are of the same version.
pub(super) fn headers(hop: Option<Hop>, from: SocketAddr, to: Option<SocketAddr>) -> [u8; HEADER_ROOM] {
    let mut bytes = [0; HEADER_ROOM];
    let ip = Ip::of(from);
    if let Some(hop) = hop {
        bytes[..6].copy_from_slice(&hop.next);
        bytes[6..12].copy_from_slice(&hop.own);
    }
    bytes[12..14].copy_from_slice(&ip.ethertype().to_be_bytes());
    match ip {
        Ip::V4 => {
            // Version 4 with 5 words; do not fragment; UDP.
            bytes[14] = 0x45;
            bytes[20..24].copy_from_slice(&[0x40, 0x00, 0, 17]);
        }
        Ip::V6 => {
            // Version 6; UDP.
            bytes[14] = 0x60;
            bytes[20] = 17;
        }
    }
    let mut put = |address: SocketAddr, at: usize, port: usize| {
        bytes[at..at + ip.address_bytes()].copy_from_slice(&octets(address.ip()));
        bytes[port..port + 2].copy_from_slice(&address.port().to_be_bytes());
    };
    put(from, ip.sender_at(), ip.udp());
    if let Some(to) = to {
        put(to, ip.target_at(), ip.udp() + 2);
    }
    bytes
}

/// Sum of the 16-bit words as they lie in memory, from which a checksum is folded in any byte order
/// (RFC 1071, section 2).
pub(super) fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|word| u32::from(u16::from_ne_bytes([word[0], word[1]]))).sum()
}

/// Of the IPv4 header; of the ports.
pub(super) fn first_sum(ip: Ip, headers: &[u8; HEADER_ROOM]) -> u32 {
    match ip {
        Ip::V4 => sum(&headers[14..34]),
        Ip::V6 => sum(&headers[54..58]),
    }
}

/// Of the pseudo header of UDP (RFC 768; RFC 8200, section 8.1) but for the length.
pub(super) fn pseudo_sum(ip: Ip, headers: &[u8; HEADER_ROOM]) -> u32 {
    sum(&headers[ip.sender_at()..ip.udp()]) + sum(&[0, 17])
}

/// A sink's entry in the table; all zeroes while it is not known where it is.
pub(super) fn entry(hop: Option<Hop>, from: SocketAddr, to: SocketAddr) -> [u8; SINK_BYTES] {
    let mut entry = [0; SINK_BYTES];
    let Some(hop) = hop else { return entry };
    let (ip, headers) = (Ip::of(from), headers(Some(hop), from, Some(to)));
    entry[..HEADER_ROOM].copy_from_slice(&headers);
    let words = [(FIRST_SUM, first_sum(ip, &headers)), (PSEUDO_SUM, pseudo_sum(ip, &headers)), (IFINDEX, hop.ifindex)];
    for (at, word) in words {
        entry[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    entry
}
