//! What a controller keeps for encryption.

use crate::rng::Random;

/// What a controller has of its own for encryption.
#[derive(Clone, Debug)]
pub(super) struct Security {
    /// What [`LE_RAND`](crate::hci::command::LE_RAND) and the links' secrets are drawn from. Whoever knows the seed
    /// knows them.
    pub(super) random: Random,
    /// Set Event Mask and LE Set Event Mask, of which only the events of encryption take notice:
    /// the others are always told.
    pub(super) mask: u64,
    pub(super) le_mask: u64,
}

/// The masks after a reset (7.3.1, 7.8.1).
pub(super) const DEFAULT_MASK: u64 = 0x0000_1fff_ffff_ffff;
pub(super) const DEFAULT_LE_MASK: u64 = 0x1f;
impl Security {
    pub(super) const fn new(random: Random) -> Self {
        Self { random, mask: DEFAULT_MASK, le_mask: DEFAULT_LE_MASK }
    }

    pub(super) const fn reset(&mut self) {
        (self.mask, self.le_mask) = (DEFAULT_MASK, DEFAULT_LE_MASK);
    }

    pub(super) const fn set_mask(&mut self, mask: [u8; 8]) {
        self.mask = u64::from_le_bytes(mask);
    }

    pub(super) const fn set_le_mask(&mut self, mask: [u8; 8]) {
        self.le_mask = u64::from_le_bytes(mask);
    }
}
