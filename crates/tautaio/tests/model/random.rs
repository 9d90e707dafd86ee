//! A small generator of random numbers, so that a seed gives the same choices on every machine.

/// xoshiro256++ by Blackman and Vigna.
pub(crate) struct Random([u64; 4]);

impl Random {
    /// One of a family: the same seed with another stream gives other numbers.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut state = seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self(std::array::from_fn(|_| split_mix(&mut state)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Below `bound`, which isn't zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from((u128::from(self.next()) * (bound as u128)) >> 64).expect("below a usize")
    }

    /// From `first` to `last`, both included.
    pub(crate) fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A transfer's length: mostly small, sometimes at the edges of pages and socket buffers.
    pub(crate) fn length(&mut self, most: usize) -> usize {
        let length = match self.below(16) {
            0 => 1,
            1..=8 => self.between(1, 256),
            9..=11 => self.between(1, 4096),
            12 => *self.pick(&[4095, 4096, 4097, 8192]),
            13 => self.between(1, 16_384),
            14 => *self.pick(&[65_535, 65_536, 65_537]),
            _ => self.between(1, 131_072),
        };
        length.min(most)
    }
}

/// Fills a buffer with bytes that only this number gives.
pub(crate) fn fill(buffer: &mut [u8], number: u64) {
    let mut state = number;
    for chunk in buffer.chunks_mut(8) {
        chunk.copy_from_slice(&split_mix(&mut state).to_le_bytes()[..chunk.len()]);
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
