//! Ends of flows, as they stand in headers: most packets are told from others by their bytes alone.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use taut_event::Address;

/// Who sent a packet to whom.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ends<'a> {
    pub(crate) hosts: Hosts<'a>,
    /// Both ports, the source's first.
    pub(crate) ports: &'a [u8; 4],
}

/// Both addresses, the source's first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Hosts<'a> {
    V4(&'a [u8; 8]),
    V6(&'a [u8; 32]),
}

/// Both ends of a flow, the smaller first, whoever sends; as numbers, which are compared and hashed faster than an
/// address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Pair {
    /// Each address in two halves, one of IPv4 as one of IPv6 (RFC 4291, section 2.5.5.2).
    hosts: [[u64; 2]; 2],
    ports: [u16; 2],
}

const MAPPED: u64 = 0xffff << 32;

impl Ends<'_> {
    /// Its source.
    pub fn from(&self) -> Address {
        self.end(0)
    }

    /// Its destination.
    pub fn to(&self) -> Address {
        self.end(1)
    }

    /// Whether both ends have the same address and port: those of a socket that is connected to itself.
    #[inline(always)]
    pub(crate) fn are_one(&self) -> bool {
        let [a, b, c, d] = *self.ports;
        u16::from_ne_bytes([a, b]) == u16::from_ne_bytes([c, d])
            && match self.hosts {
                Hosts::V4(bytes) => bytes[..4] == bytes[4..],
                Hosts::V6(bytes) => bytes[..16] == bytes[16..],
            }
    }

    fn end(&self, index: usize) -> Address {
        let ip: IpAddr = match self.hosts {
            Hosts::V4(bytes) => Ipv4Addr::from_octets(bytes.as_chunks().0[index]).into(),
            Hosts::V6(bytes) => Ipv6Addr::from_octets(bytes.as_chunks().0[index]).into(),
        };
        Address { ip, port: u16::from_be_bytes(self.ports.as_chunks().0[index]) }
    }

    /// Both ends, and whether the source is the first of them.
    pub(crate) fn pair(&self) -> (Pair, bool) {
        let number = |index| {
            let Address { ip, port } = self.end(index);
            let halves = match ip {
                IpAddr::V4(ip) => [0, MAPPED | u64::from(ip.to_bits())],
                IpAddr::V6(ip) => [(ip.to_bits() >> 64) as u64, ip.to_bits() as u64],
            };
            (halves, port)
        };
        let (from, to) = (number(0), number(1));
        let (first, second) = if from <= to { (from, to) } else { (to, from) };
        (Pair { hosts: [first.0, second.0], ports: [first.1, second.1] }, from <= to)
    }
}

impl Pair {
    /// The bytes of both ways, where the addresses may be of IPv4: those of the first end as the source first.
    pub(crate) fn as_v4(&self) -> [(u64, u32); 2] {
        let [[_, first], [_, second]] = self.hosts;
        let hosts = [first as u32, second as u32];
        let way = |from: usize, to: usize| {
            let bytes = [hosts[from].to_be_bytes(), hosts[to].to_be_bytes()].concat();
            let ports = [self.ports[from].to_be_bytes(), self.ports[to].to_be_bytes()].concat();
            let hosts = bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            (hosts, ports.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes)))
        };
        [way(0, 1), way(1, 0)]
    }
}

impl Hash for Pair {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hosts.as_flattened().iter().for_each(|half| state.write_u64(*half));
        state.write_u32(u32::from(self.ports[0]) << 16 | u32::from(self.ports[1]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_are_one_pair_and_an_address_stays_what_it_was() {
        let v4 = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let v6 = [[0x20; 16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]];
        let (ports, turned_ports) = (&[0, 5, 0, 4], &[0, 4, 0, 5]);
        for is_v4 in [true, false] {
            for same in [true, false] {
                let other = usize::from(!same);
                let (there, back) = ([v4[0], v4[other]].concat(), [v4[other], v4[0]].concat());
                let (there_6, back_6) = ([v6[0], v6[other]].concat(), [v6[other], v6[0]].concat());
                let hosts = |v4: &'static [u8], v6: &'static [u8]| match is_v4 {
                    true => Hosts::V4(v4.try_into().unwrap()),
                    false => Hosts::V6(v6.try_into().unwrap()),
                };
                let there = Ends { hosts: hosts(there.leak(), there_6.leak()), ports };
                let back = Ends { hosts: hosts(back.leak(), back_6.leak()), ports: turned_ports };
                assert_eq!((there.from(), there.to()), (back.to(), back.from()));
                assert_eq!(there.pair().0, back.pair().0);
                assert_ne!(there.pair().1, back.pair().1);
            }
        }
        let ends = Ends { hosts: Hosts::V6(v6.as_flattened().try_into().unwrap()), ports };
        assert_eq!(ends.to().to_string(), "[::ffff:10.0.0.1]:4");
        let ends = Ends { hosts: Hosts::V4(v4.as_flattened().try_into().unwrap()), ports };
        assert_eq!((ends.from().to_string(), ends.to().to_string()), ("10.0.0.1:5".into(), "10.0.0.2:4".into()));
    }
}
