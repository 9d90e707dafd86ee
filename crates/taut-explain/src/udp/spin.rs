//! The spin bit of QUIC (RFC 9000, section 17.4): it changes once in a round trip, in each direction.

use crate::tcp::Sample;

/// Bits of the first byte of a packet with a short header.
const FORM: u8 = 0xc0;
const SHORT: u8 = 0x40;
const SPIN: u8 = 0x20;

/// Fewer changes tell nothing.
const LEAST_CHANGES: u64 = 4;

/// What the spin bit of one direction does.
#[derive(Clone, Debug, Default)]
pub(super) struct Spin {
    packets: u64,
    changes: u64,
    last: Option<bool>,
    /// When it changed last.
    since: Option<u64>,
    round_trips: Sample,
}

impl Spin {
    /// A packet's first byte. Packets with a long header have no spin bit.
    pub(super) fn packet(&mut self, at: u64, first: u8) {
        if first & FORM != SHORT {
            return;
        }
        self.packets += 1;
        let bit = first & SPIN != 0;
        if self.last.replace(bit).is_some_and(|last| last != bit) {
            self.changes += 1;
            if let Some(since) = self.since.replace(at) {
                self.round_trips.add(at.saturating_sub(since));
            }
        }
    }

    /// The median round trip, if the bit spins: an end that does not want to may also set it by chance (section 17.4).
    pub(super) fn round_trip(&self) -> Option<u64> {
        let is_chance = 4 * self.changes > self.packets;
        if self.changes < LEAST_CHANGES || is_chance { None } else { self.round_trips.median() }
    }

    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(packets: u64, each: u64, bit: impl Fn(u64) -> bool) -> Spin {
        let mut spin = Spin::default();
        (0..packets).for_each(|n| spin.packet(n * each, SHORT | if bit(n) { SPIN } else { 0 }));
        spin
    }

    #[test]
    fn a_change_is_a_round_trip() {
        assert_eq!(spin(100, 1_000, |n| n / 10 % 2 == 0).round_trip(), Some(10_000));
        // A long header in between is none of its packets.
        let mut spun = spin(100, 1_000, |n| n / 10 % 2 == 0);
        spun.packet(101_000, 0xe0);
        assert_eq!(spun.changes(), 9);
    }

    #[test]
    fn a_bit_that_stands_or_is_drawn_does_not_spin() {
        assert_eq!(spin(100, 1_000, |_| true).round_trip(), None);
        assert_eq!(spin(100, 1_000, |n| n * 7 % 5 < 2).round_trip(), None);
        assert_eq!(spin(12, 1_000, |n| n / 4 % 2 == 0).round_trip(), None);
    }
}
