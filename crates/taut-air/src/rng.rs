//! The one source of randomness: a generator whose seed is an argument.

use crate::time::Nanos;

/// A SplitMix64 generator. Small and fast; equal seeds give equal streams. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream that belongs to `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for one part of a machine, so that what another part draws does not change it.
    pub fn fork(&self, part: u64) -> Self {
        let mut random = Self(self.0 ^ part.wrapping_mul(0xd134_2543_de82_ef95));
        random.next_u64();
        random
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, but not including, `bound`; 0 when `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// A number from 0.0 up to, but not including, 1.0.
    pub const fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`. Draws nothing when the answer is certain.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && (p >= 1.0 || self.unit() < p)
    }

    /// A time from `low` to `high`, evenly distributed. Draws nothing when they are equal.
    pub const fn between(&mut self, low: Nanos, high: Nanos) -> Nanos {
        if high <= low { low } else { low + self.below(high - low + 1) }
    }
}
