//! The packets that are on their way and need an acknowledgement.

use std::collections::{BTreeMap, BTreeSet};

/// So many are followed at once; a hundred megabytes.
const MOST: usize = 1 << 16;
/// Of so many that were taken for lost it is known whether they arrived.
const MOST_LOST: usize = 4096;

/// Packets of application data that were sent.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// By their numbers: bytes, and whether there is data in them.
    packets: BTreeMap<u64, (u32, bool)>,
    bytes: u64,
    lost: BTreeSet<u64>,
    /// There were more than are followed, so the sum is not known.
    pub(super) is_beyond: bool,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrived {
    /// Of a packet with data, or of one that was taken for lost.
    pub(super) has_data: bool,
    /// Packets that had been taken for lost.
    pub(super) spurious: u64,
    /// The highest number among those that were on their way.
    pub(super) highest: Option<u64>,
}

impl Flight {
    pub(super) fn sent(&mut self, number: u64, length: u32, has_data: bool) {
        if let Some((length, _)) = self.packets.insert(number, (length, has_data)) {
            self.bytes -= u64::from(length);
        }
        self.bytes += u64::from(length);
        if self.packets.len() > MOST {
            self.is_beyond = true;
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some((_, (length, _))) = self.packets.pop_first() {
            self.bytes -= u64::from(length);
        }
    }

    pub(super) fn acknowledged(&mut self, from: u64, to: u64) -> Arrived {
        let mut arrived = Arrived::default();
        while let Some((&number, &(length, has_data))) = self.packets.range(from..=to).next() {
            self.packets.remove(&number);
            self.bytes -= u64::from(length);
            arrived.has_data |= has_data;
            arrived.highest = Some(number);
        }
        while let Some(&number) = self.lost.range(from..=to).next() {
            self.lost.remove(&number);
            arrived.spurious += 1;
        }
        arrived
    }

    /// Whether it was on its way with data.
    pub(super) fn lost(&mut self, number: u64) -> bool {
        let Some((length, has_data)) = self.packets.remove(&number) else { return false };
        self.bytes -= u64::from(length);
        if has_data {
            self.lost.insert(number);
            if self.lost.len() > MOST_LOST {
                self.lost.pop_first();
            }
        }
        has_data
    }

    /// Nothing is on its way.
    pub(super) fn is_over(&mut self) {
        self.packets.clear();
        self.bytes = 0;
        self.is_beyond = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}
