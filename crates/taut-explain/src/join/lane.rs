//! One direction of one connection, as one of both files has it.

use std::collections::HashMap;

use super::matching::is_copy;
use super::sightings::{Seen, Sightings};

/// A segment with data, SYN or FIN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transmission {
    /// Among the sightings of its file.
    pub(super) number: u32,
    pub(super) at: u64,
    /// What it takes of the sequence, counted on beyond 2^32.
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) mark: u64,
    /// A single byte that had been acknowledged: it asks whether the peer is there.
    pub(super) is_probe: bool,
}

/// What the receiver said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) number: u32,
    pub(super) at: u64,
    /// All before this has arrived: the most that was said so far.
    pub(super) to: i64,
}

/// A block that the receiver acknowledged selectively.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) number: u32,
    pub(super) at: u64,
    pub(super) from: i64,
    pub(super) to: i64,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) data: Vec<Transmission>,
    pub(super) told: Vec<Told>,
    /// What arrived beyond `told`, in order.
    pub(super) blocks: Vec<Block>,
    /// What arrived once more.
    pub(super) duplicates: Vec<Block>,
    /// The receiver tells what arrived once more, as far as is known.
    pub(super) speaks_sack: bool,
    /// Where the packet begins that both files have.
    pub(super) anchor: i64,
}

impl Lane {
    /// Of the segments with these numbers, which are those of one connection: those that go as `anchor` does, and
    /// what was answered.
    pub(super) fn of(file: &Sightings, numbers: &[u32], anchor: u32, is_doubled: bool) -> Self {
        let is_from_first = file.seen[anchor as usize].is_from_first;
        let mut lane = Self::default();
        let mut permits = [false; 2];
        let mut known: HashMap<u64, u32> = HashMap::new();
        let mut highest: Option<i64> = None;
        let mut acknowledged = i64::MIN;
        for &number in numbers {
            let seen = &file.seen[number as usize];
            let before = known.insert(seen.mark, number);
            if before.is_some_and(|before| is_copy(&file.seen[before as usize], seen, is_doubled)) {
                continue;
            }
            permits[usize::from(seen.is_from_first == is_from_first)] |= seen.permits_sack;
            if seen.is_from_first == is_from_first {
                let from = near(highest, seen.sequence);
                let to = from + i64::from(seen.length);
                if number == anchor {
                    lane.anchor = from;
                }
                highest = Some(highest.unwrap_or(from).max(to));
                if seen.length > 0 {
                    let is_probe = seen.may_be_probe && to <= acknowledged;
                    lane.data.push(Transmission { number, at: seen.at, from, to, mark: seen.mark, is_probe });
                }
            } else if seen.acknowledges {
                let to = near(highest, seen.acknowledgement);
                highest = highest.or(Some(to));
                acknowledged = acknowledged.max(to);
                lane.told.push(Told { number, at: seen.at, to: acknowledged });
                lane.block(file, number, seen, to);
            }
        }
        lane.speaks_sack |= permits == [true; 2];
        lane
    }

    fn block(&mut self, file: &Sightings, number: u32, seen: &Seen, acknowledged: i64) {
        let Ok(place) = file.sacks.binary_search_by_key(&number, |(number, _)| *number) else { return };
        let sack = file.sacks[place].1;
        let (from, to) = (near(Some(acknowledged), sack.from), near(Some(acknowledged), sack.to));
        let block = Block { number, at: seen.at, from, to };
        self.speaks_sack = true;
        if sack.is_duplicate {
            self.duplicates.push(block);
        } else {
            self.blocks.push(block);
        }
    }

    /// Counts the sequence from where the other file does.
    pub(super) fn count_as(&mut self, other: &Self) {
        let by = other.anchor - self.anchor;
        self.data.iter_mut().for_each(|sent| (sent.from, sent.to) = (sent.from + by, sent.to + by));
        self.told.iter_mut().for_each(|told| told.to += by);
        let blocks = self.blocks.iter_mut().chain(&mut self.duplicates);
        blocks.for_each(|block| (block.from, block.to) = (block.from + by, block.to + by));
    }

    /// When all before this position was acknowledged.
    pub(super) fn covered(&self, to: i64) -> Option<Told> {
        self.told.get(self.told.partition_point(|told| told.to < to)).copied()
    }
}

/// The position with these 32 bits that is nearest to a known one.
pub(super) fn near(known: Option<i64>, number: u32) -> i64 {
    known.map_or_else(|| i64::from(number), |known| known + i64::from(number.wrapping_sub(known as u32) as i32))
}
