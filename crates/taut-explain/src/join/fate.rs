//! What became of each segment of one direction of one connection, by both files.
//!
//! Bytes are counted and not packets, since devices cut segments up and put them together: what is at the nearer
//! place more often than at the farther one was lost between. Of what is at the farther place more often than once,
//! the receiver's acknowledgements there tell which one arrived.

use super::lane::{Block, Lane};

/// A byte that is on the way more often at once is not followed.
const MOST_AT_ONCE: usize = 32;
/// So many blocks of selective acknowledgements are looked at for one direction of a connection.
const MOST_LOOKED_AT: usize = 1 << 24;

/// What may be said of a transmission, as bits.
pub(super) mod bit {
    /// It left the nearer place and never came to the farther one.
    pub(in crate::join) const BETWEEN: u8 = 1;
    /// It passed the farther place and did not arrive.
    pub(in crate::join) const BEYOND: u8 = 2;
    /// It was sent although an earlier one had arrived.
    pub(in crate::join) const NEEDLESS: u8 = 4;
    /// Beyond, or its acknowledgement was lost: the receiver does not tell what arrived twice.
    pub(in crate::join) const UNDECIDED: u8 = 8;
    /// It passed this place and is not in the file.
    pub(in crate::join) const NOT_CAPTURED: u8 = 16;
    /// An earlier one has its bytes.
    pub(in crate::join) const REPEATED: u8 = 32;
}

/// Of a direction of a connection.
#[derive(Debug)]
pub(super) struct Fates {
    /// Of each transmission at the nearer place; `NOT_CAPTURED` means the farther one's file.
    pub(super) near: Vec<u8>,
    /// Of each at the farther place; `NOT_CAPTURED` means the nearer one's file.
    pub(super) far: Vec<u8>,
    /// Which one at the farther place it is, as far as one is.
    pub(super) partner: Vec<Option<u32>>,
    /// Bytes are on the way too often at once.
    pub(super) is_crowded: bool,
}

pub(super) struct Judge<'a> {
    near: &'a Lane,
    far: &'a Lane,
    /// No acknowledgement of a segment can come to the farther place sooner after it, in nanoseconds.
    least_loop: u64,
    fates: Fates,
    left_to_look_at: usize,
}

/// Both counted alike.
pub(super) fn judge(near: &Lane, far: &Lane, least_loop: u64) -> Fates {
    let fates = Fates {
        near: vec![0; near.data.len()],
        far: vec![0; far.data.len()],
        partner: vec![None; near.data.len()],
        is_crowded: false,
    };
    let mut judge = Judge { near, far, least_loop, fates, left_to_look_at: MOST_LOOKED_AT };
    judge.sweep();
    judge.fates
}

impl Judge<'_> {
    /// Goes through the sequence from one beginning or end of a transmission to the next.
    fn sweep(&mut self) {
        let of = |lane: &'_ Lane, is_far: bool| -> Vec<(i64, i64, bool, u32)> {
            let sent = lane.data.iter().enumerate();
            sent.map(|(index, sent)| (sent.from, sent.to, is_far, index as u32)).collect()
        };
        let mut all = [of(self.near, false), of(self.far, true)].concat();
        all.sort_unstable();
        let mut places: Vec<i64> = all.iter().flat_map(|one| [one.0, one.1]).collect();
        places.sort_unstable();
        places.dedup();
        // Both with where they end.
        let mut open: [Vec<(i64, u32)>; 2] = Default::default();
        let mut next = 0;
        let mut crowded_to = i64::MIN;
        for pair in places.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            open.iter_mut().for_each(|open| open.retain(|&(end, _)| end > from));
            while let Some(&(_, end, is_far, index)) = all.get(next).filter(|one| one.0 == from) {
                let open = &mut open[usize::from(is_far)];
                if open.len() < MOST_AT_ONCE {
                    open.push((end, index))
                } else {
                    crowded_to = crowded_to.max(end)
                }
                next += 1;
            }
            if from < crowded_to {
                self.fates.is_crowded = true;
                continue;
            }
            let [near, far] = [&open[0], &open[1]].map(|open| {
                let mut indices: Vec<u32> = open.iter().map(|&(_, index)| index).collect();
                indices.sort_unstable();
                indices
            });
            self.bytes(from, to, near, &far);
        }
    }

    /// The same bytes, as often as each place has them, in order.
    fn bytes(&mut self, from: i64, to: i64, mut near: Vec<u32>, far: &[u32]) {
        let sent = near.len();
        near.retain(|&index| !self.near.data[index as usize].is_probe);
        let far = &far[..far.len().min(if near.len() < sent { near.len() } else { far.len() })];
        for &again in near.iter().skip(1) {
            self.fates.near[again as usize] |= bit::REPEATED;
        }
        let partners = self.pair(&near, far);
        for (&index, partner) in near.iter().zip(&partners) {
            let of_all = &mut self.fates.partner[index as usize];
            *of_all = of_all.or(partner.map(|place| far[place]));
        }
        for (place, &index) in far.iter().enumerate() {
            if !partners.contains(&Some(place)) {
                self.fates.far[index as usize] |= bit::NOT_CAPTURED;
            }
        }
        let covered = self.covered(from, to, far);
        self.between(to, &near, far, &partners, covered);
        if let Some(arrived) = self.beyond(from, to, far, covered) {
            // What left behind the one that arrived was not needed.
            let first = partners.iter().position(|partner| partner.is_some_and(|place| place as isize >= arrived));
            let is_it = first.is_some_and(|first| partners[first].is_some_and(|place| place as isize == arrived));
            for &index in near.iter().skip(first.map_or(near.len(), |first| first + usize::from(is_it))) {
                self.fates.near[index as usize] |= bit::NEEDLESS;
            }
        }
    }

    /// Which of the far ones each near one is: by what they have alike, and those without such by their order, from
    /// the last one, behind which nothing was sent any more.
    fn pair(&self, near: &[u32], far: &[u32]) -> Vec<Option<usize>> {
        let mut partners = vec![None; near.len()];
        let mut is_taken = vec![false; far.len()];
        let mark_of = |lane: &Lane, index: u32| lane.data[index as usize].mark;
        for (one, partner) in near.iter().zip(&mut partners).rev() {
            let mark = mark_of(self.near, *one);
            *partner = (0..far.len()).rev().find(|&place| !is_taken[place] && mark_of(self.far, far[place]) == mark);
            if let Some(place) = *partner {
                is_taken[place] = true;
            }
        }
        let mut free = (0..far.len()).rev().filter(|&place| !is_taken[place]);
        for partner in partners.iter_mut().rev().filter(|partner| partner.is_none()) {
            *partner = free.next();
        }
        partners
    }

    /// When the receiver first said, at the farther place, that these bytes had arrived: number and time.
    fn covered(&mut self, from: i64, to: i64, far: &[u32]) -> Option<(u32, u64)> {
        let all = self.far.covered(to).map(|told| (told.number, told.at));
        if far.len() < 2 {
            return all;
        }
        let begin = self.far.data[far[0] as usize].number;
        let end = all.map_or(u32::MAX, |(number, _)| number);
        let block = self.find(&self.far.blocks, begin, |block| block.number >= end || holds(block, from, to));
        self.left_to_look_at = block.1;
        block.0.filter(|block| block.number < end).map(|block| (block.number, block.at)).or(all)
    }

    /// The first block from a number on that is looked for, and how many may be looked at then.
    fn find(&self, of: &[Block], begin: u32, is_it: impl Fn(&Block) -> bool) -> (Option<Block>, usize) {
        let later = &of[of.partition_point(|block| block.number < begin)..];
        let place = later.iter().take(self.left_to_look_at).position(is_it);
        let looked_at = place.map_or(later.len(), |place| place + 1).min(self.left_to_look_at);
        (place.map(|place| later[place]), self.left_to_look_at - looked_at)
    }

    fn between(&mut self, to: i64, near: &[u32], far: &[u32], partners: &[Option<usize>], covered: Option<(u32, u64)>) {
        let missing = partners.iter().filter(|partner| partner.is_none()).count();
        if missing == 0 {
            return;
        }
        // The receiver had them before the farther file did, or without.
        let is_unseen = match (covered, far.first()) {
            (Some((number, _)), Some(&first)) => number < self.far.data[first as usize].number,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => self.near.covered(to).is_some(),
        };
        let mut unseen = usize::from(is_unseen);
        for (&index, _) in near.iter().zip(partners).rev().filter(|(_, partner)| partner.is_none()) {
            self.fates.near[index as usize] |= if unseen > 0 { bit::NOT_CAPTURED } else { bit::BETWEEN };
            unseen = unseen.saturating_sub(1);
        }
    }

    /// Which of the far ones arrived, if one is known to have; -1 if one before them.
    fn beyond(&mut self, from: i64, to: i64, far: &[u32], covered: Option<(u32, u64)>) -> Option<isize> {
        let (Some(&first), Some(&last)) = (far.first(), far.last()) else { return None };
        let number = |index: u32| self.far.data[index as usize].number;
        let Some((told, at)) = covered else {
            for &index in far.iter().filter(|&&index| index != last) {
                self.fates.far[index as usize] |= bit::UNDECIDED;
            }
            return None;
        };
        let may_cause = |index: u32, answer: u32, at: u64| {
            number(index) < answer && self.far.data[index as usize].at.saturating_add(self.least_loop) <= at
        };
        let before = far.iter().take_while(|&&index| may_cause(index, told, at)).count();
        // All came later than the receiver had the bytes, by a packet that the farther file lacks.
        if before == 0 && told < number(first) {
            return Some(-1);
        }
        let before = before.max(1);
        let later = far.get(before).copied();
        let mut doubled = 0;
        if before > 1 {
            let begin = number(first);
            let duplicates = &self.far.duplicates;
            let begin = duplicates.partition_point(|block| block.number < begin);
            let of_these = duplicates[begin..].iter().take(self.left_to_look_at);
            let of_these: Vec<&Block> = of_these.filter(|block| holds(block, from, to)).collect();
            let by_later = |block: &&&Block| later.is_some_and(|later| may_cause(later, block.number, block.at));
            let surely = of_these.iter().take_while(|block| !by_later(block)).count();
            // Each later one can have caused one only.
            doubled = surely.max(of_these.len().saturating_sub(far.len() - before));
            self.left_to_look_at -= (duplicates.len() - begin).min(self.left_to_look_at);
        }
        let arrived = before - 1 - doubled.min(before - 1);
        let (lost, arrived) = match self.far.speaks_sack {
            true => (bit::BEYOND, arrived),
            false => (bit::UNDECIDED, before - 1),
        };
        for &index in &far[..arrived] {
            self.fates.far[index as usize] |= lost;
        }
        Some(arrived as isize)
    }
}

fn holds(block: &Block, from: i64, to: i64) -> bool {
    block.from <= from && to <= block.to
}
