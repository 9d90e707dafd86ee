//! What the kernel keeps of one connection, and its reading.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Offsets in an entry. All counts only grow.
pub(super) mod at {
    /// When the first event was, and the last one, in ns of `CLOCK_MONOTONIC`.
    pub(in crate::counting) const FIRST: i16 = 0;
    pub(in crate::counting) const LAST: i16 = 8;
    /// Segments sent again.
    pub(in crate::counting) const LOSS: i16 = 16;
    /// First segments of a connection sent again.
    pub(in crate::counting) const HANDSHAKE: i16 = 40;
    pub(in crate::counting) const REFUSED: i16 = 64;
    pub(in crate::counting) const RESET: i16 = 72;
    /// Since when the last stall stands, in µs of `CLOCK_MONOTONIC`, and how much of it is counted.
    pub(in crate::counting) const STALL_SINCE: i16 = 80;
    pub(in crate::counting) const STALL: i16 = 88;
    /// Both ports: the peer's in network order, then the own one; and the family.
    pub(in crate::counting) const PORTS: i16 = 96;
    pub(in crate::counting) const FAMILY: i16 = 100;
    /// Who opened it: process and name; zeroes where that was not seen.
    pub(in crate::counting) const PID: i16 = 104;
    pub(in crate::counting) const NAME: i16 = 112;
    pub(in crate::counting) const LOCAL: i16 = 128;
    pub(in crate::counting) const PEER: i16 = 144;

    /// From a count of what takes time to that time, and to the longest one, in µs.
    pub(in crate::counting) const TIME: i16 = 8;
    pub(in crate::counting) const LONGEST: i16 = 16;
}

/// Length of an entry.
pub(super) const BYTES: usize = 160;

/// `AF_INET6`.
pub(super) const INET6: u16 = 10;

/// What is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub enum What {
    /// A segment was sent again.
    Loss,
    /// The first segment of a connection was sent again.
    Handshake,
    /// The peer answered the first segment with a reset: nobody listens there.
    Refused,
    /// The peer ended the connection by a reset, where this end had not closed it first.
    Reset,
}

impl What {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Loss, Self::Handshake, Self::Refused, Self::Reset];

    /// Where its count stands in an entry.
    pub(super) const fn at(self) -> i16 {
        match self {
            Self::Loss => at::LOSS,
            Self::Handshake => at::HANDSHAKE,
            Self::Refused => at::REFUSED,
            Self::Reset => at::RESET,
        }
    }

    /// Whether time is counted with it.
    pub(super) const fn takes_time(self) -> bool {
        matches!(self, Self::Loss | Self::Handshake)
    }
}

/// The counts of one kind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Sums {
    pub(super) events: u64,
    pub(super) lost_us: u64,
    pub(super) longest_us: u64,
}

/// An entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    /// In the order of [`What::ALL`].
    pub(super) sums: [Sums; What::ALL.len()],
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// Process and name of who opened it.
    pub(super) opener: Option<(i32, Vec<u8>)>,
}

/// Longer than the longest pause between two repeats of a segment (`TCP_RTO_MAX`, 2 min), however often one of them
/// could not leave the host: no stall that such an entry knows of goes on.
const LONGEST_PAUSE_NS: u64 = 600_000_000_000;

impl Entry {
    /// Whether nothing is lost if the kernel forgets it, once it was read: its connection has ended by a reset, or no
    /// stall that it is in the middle of goes on.
    pub(super) const fn is_over(&self, now_ns: u64) -> bool {
        let [_, _, refused, reset] = &self.sums;
        refused.events > 0 || reset.events > 0 || now_ns.saturating_sub(self.last_ns) > LONGEST_PAUSE_NS
    }

    /// `None` for what is too short.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let part = |at: i16| &bytes[usize::from(at.unsigned_abs())..];
        let number = |at: i16| part(at).first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        let half = |at: i16| part(at).first_chunk().map_or(0, |word| u16::from_ne_bytes(*word));
        let address = |at: i16| match half(at::FAMILY) {
            INET6 => part(at).first_chunk().map(|octets| IpAddr::from(Ipv6Addr::from_octets(*octets)).to_canonical()),
            _ => part(at).first_chunk().map(|octets| IpAddr::from(Ipv4Addr::from_octets(*octets))),
        };
        let sums = What::ALL.map(|what| Sums {
            events: number(what.at()),
            lost_us: if what.takes_time() { number(what.at() + at::TIME) } else { 0 },
            longest_us: if what.takes_time() { number(what.at() + at::LONGEST) } else { 0 },
        });
        let name = part(at::NAME)[..16].split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
        let pid = i32::try_from(number(at::PID)).ok().filter(|&pid| pid > 0);
        Some(Self {
            first_ns: number(at::FIRST),
            last_ns: number(at::LAST),
            sums,
            local: SocketAddr::new(address(at::LOCAL)?, half(at::PORTS + 2)),
            peer: SocketAddr::new(address(at::PEER)?, u16::from_be(half(at::PORTS))),
            opener: pid.map(|pid| (pid, name)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read() {
        let mut bytes = [0; BYTES];
        let mut put = |at: i16, value: &[u8]| bytes[at as usize..][..value.len()].copy_from_slice(value);
        put(at::FIRST, &5_u64.to_ne_bytes());
        put(at::LAST, &9_u64.to_ne_bytes());
        put(at::LOSS, &[1_u64, 2, 3].map(u64::to_ne_bytes).concat());
        put(at::HANDSHAKE, &[4_u64, 5, 6].map(u64::to_ne_bytes).concat());
        put(at::REFUSED, &[7_u64, 8].map(u64::to_ne_bytes).concat());
        put(at::PORTS, &80_u16.to_be_bytes());
        put(at::PORTS + 2, &4000_u16.to_ne_bytes());
        put(at::FAMILY, &2_u16.to_ne_bytes());
        put(at::PID, &77_u64.to_ne_bytes());
        put(at::NAME, b"curl\0old");
        put(at::LOCAL, &[10, 0, 0, 1]);
        put(at::PEER, &[10, 0, 0, 2]);
        let entry = Entry::parse(&bytes).unwrap();
        let sums = |events, lost_us, longest_us| Sums { events, lost_us, longest_us };
        assert_eq!((entry.first_ns, entry.last_ns), (5, 9));
        assert_eq!(entry.sums, [sums(1, 2, 3), sums(4, 5, 6), sums(7, 0, 0), sums(8, 0, 0)]);
        let ends = ["10.0.0.1:4000", "10.0.0.2:80"].map(|end| end.parse().unwrap());
        assert_eq!([entry.local, entry.peer], ends);
        assert_eq!(entry.opener, Some((77, b"curl".to_vec())));
        // An address of IPv4 in one of IPv6 is the same.
        bytes[at::FAMILY as usize..][..2].copy_from_slice(&INET6.to_ne_bytes());
        for (at, last) in [(at::LOCAL, 1), (at::PEER, 2)] {
            let octets = [[0; 10].as_slice(), &[255, 255, 10, 0, 0, last]].concat();
            bytes[at as usize..][..16].copy_from_slice(&octets);
        }
        bytes[at::PID as usize..][..8].fill(0);
        let entry = Entry::parse(&bytes).unwrap();
        assert_eq!(([entry.local, entry.peer], entry.opener), (ends, None));
        assert_eq!(Entry::parse(&bytes[1..]), None);
    }

    #[test]
    fn an_entry_is_kept_while_its_connection_may_go_on() {
        let mut bytes = [0; BYTES];
        let mut put = |at: i16, number: u64| bytes[at as usize..][..8].copy_from_slice(&number.to_ne_bytes());
        put(at::LAST, 1_000_000_000);
        put(at::LOSS, 3);
        let lossy = Entry::parse(&bytes).unwrap();
        let later = lossy.last_ns + LONGEST_PAUSE_NS;
        // A clock of another processor may be a little behind.
        assert!(!lossy.is_over(0) && !lossy.is_over(later) && lossy.is_over(later + 1));
        for at in [at::REFUSED, at::RESET] {
            let mut bytes = bytes;
            bytes[at as usize..][..8].copy_from_slice(&1_u64.to_ne_bytes());
            assert!(Entry::parse(&bytes).unwrap().is_over(lossy.last_ns));
        }
    }
}
