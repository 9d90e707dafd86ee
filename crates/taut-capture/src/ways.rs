//! Which connection the newest packets of IPv4 were of, by the bytes of their headers: nearly all packets are of one
//! of these, and need neither be turned so that the smaller end is the first, nor sought in the table of all.

use crate::ends::{Ends, Hosts, Pair};

/// A power of two. A connection has two of them; 16 bytes each.
const KEPT: usize = 4096;

pub(crate) struct Ways(Box<[Way; KEPT]>);

#[derive(Clone, Copy)]
struct Way {
    hosts: u64,
    ports: u32,
    /// The connection's number, and in the lowest bit whether the source is the first end of its pair.
    what: u32,
}

const NONE: Way = Way { hosts: 0, ports: 0, what: u32::MAX };

/// Both are mixed, that connections whose addresses or ports count up don't meet. Where they do, or were made to,
/// the table of all answers.
#[inline(always)]
const fn place(hosts: u64, ports: u32) -> usize {
    let sum = (hosts ^ (ports as u64).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (sum >> (64 - KEPT.trailing_zeros())) as usize % KEPT
}

#[inline(always)]
const fn key(ends: &Ends<'_>) -> Option<(u64, u32)> {
    match ends.hosts {
        Hosts::V4(bytes) => Some((u64::from_ne_bytes(*bytes), u32::from_ne_bytes(*ends.ports))),
        Hosts::V6(_) => None,
    }
}

impl Ways {
    pub(crate) fn new() -> Self {
        Self(Box::new([NONE; KEPT]))
    }

    /// The connection's number, and whether the source is the first end of its pair.
    #[inline(always)]
    pub(crate) fn get(&self, ends: &Ends<'_>) -> Option<(u32, bool)> {
        let (hosts, ports) = key(ends)?;
        let way = &self.0[place(hosts, ports)];
        let is_it = way.hosts == hosts && way.ports == ports && way.what != NONE.what;
        is_it.then_some((way.what >> 1, way.what & 1 != 0))
    }

    pub(crate) fn set(&mut self, ends: &Ends<'_>, number: u32, from_is_first: bool) {
        let Some((hosts, ports)) = key(ends) else { return };
        self.0[place(hosts, ports)] = Way { hosts, ports, what: number << 1 | u32::from(from_is_first) };
    }

    /// The number is another connection's from now on.
    pub(crate) fn forget(&mut self, pair: &Pair) {
        for (hosts, ports) in pair.as_v4() {
            let way = &mut self.0[place(hosts, ports)];
            if (way.hosts, way.ports) == (hosts, ports) {
                *way = NONE;
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_known_until_its_connection_is_closed() {
        let hosts: [u8; 16] = std::array::from_fn(|index| index as u8);
        let (hosts, turned) = (hosts.first_chunk().unwrap(), hosts.last_chunk().unwrap());
        let ends = Ends { hosts: Hosts::V4(hosts), ports: &[0, 1, 0, 2] };
        let mut ways = Ways::new();
        let others = [
            Ends { ports: &[0, 1, 0, 3], ..ends },
            Ends { hosts: Hosts::V4(turned), ..ends },
            Ends { hosts: Hosts::V4(&[0; 8]), ports: &[0; 4] },
            Ends { hosts: Hosts::V6(&[0; 32]), ports: &[0; 4] },
        ];
        assert_eq!((ways.get(&ends), ways.get(&others[2])), (None, None));
        ways.set(&ends, 7, true);
        ways.set(&others[3], 8, true);
        assert_eq!(ways.get(&ends), Some((7, true)));
        assert!(others.iter().all(|other| ways.get(other).is_none()));
        ways.forget(&others[0].pair().0);
        assert_eq!(ways.get(&ends), Some((7, true)));
        ways.forget(&ends.pair().0);
        assert_eq!(ways.get(&ends), None);
        // The way back goes with it.
        ways.set(&Ends { hosts: Hosts::V4(&[4, 5, 6, 7, 0, 1, 2, 3]), ports: &[0, 2, 0, 1] }, 7, false);
        ways.forget(&ends.pair().0);
        assert!(ways.0.iter().all(|way| way.what == NONE.what));
    }

    #[test]
    fn connections_that_count_up_hardly_meet() {
        let places = (0..1000_u16).map(|number| {
            let [high, low] = number.to_be_bytes();
            place(u64::from_ne_bytes([10, 0, high, low, 10, 0, 0, 1]), u32::from_ne_bytes([high, low, 0, 80]))
        });
        assert!(places.collect::<std::collections::HashSet<_>>().len() > 750);
    }
}
