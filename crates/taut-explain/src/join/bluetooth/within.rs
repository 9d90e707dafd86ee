//! What of two files is of the stretch that is joined. A time behind a step of a clock is on another line, be it that
//! of a PDU itself, of its acknowledgement, or of its report.

use std::collections::HashSet;

use super::crossings::Crossings;
use super::pair::{Crossing, Paired, PairedLink, PairedWay, Tells};
use crate::join::stretches::Placed;

/// Which PDUs, acknowledgements and reports of controllers are of the stretch.
pub(super) struct Within {
    /// Of which PDU it has which time.
    joined: HashSet<(u32, u32)>,
    /// The first and the last of its packets in each file.
    frames: [[u64; 2]; 2],
    /// There are times on other lines.
    is_parted: bool,
    is_told_early: bool,
    next: u32,
    /// Reports of PDUs that are joined, and that are not.
    pub(super) left_out: u64,
}

impl Within {
    pub(super) fn of(
        points: &[Placed],
        is_parted: bool,
        is_told_early: bool,
        (paired, reference, other): (&Paired, &Crossings, &Crossings),
    ) -> Self {
        let joined: HashSet<(u32, u32)> =
            points.iter().map(|placed| (placed.found.reference, placed.found.other)).collect();
        let mut frames = [[u64::MAX, 0]; 2];
        let ways = paired.all.iter().flat_map(|link| link.ways.iter().map(move |way| (link, way)));
        let all = ways.flat_map(|(link, way)| Paired::crossings(link, way, reference, other));
        for (number, crossing) in (0_u32..).zip(all) {
            for what in [Tells::Begin, Tells::Last, Tells::Report] {
                if joined.contains(&(number, what as u32)) {
                    for (range, frame) in frames.iter_mut().zip(crossing.frames(what)) {
                        *range = [range[0].min(frame), range[1].max(frame)];
                    }
                }
            }
        }
        Self { joined, frames, is_parted, is_told_early, next: 0, left_out: 0 }
    }

    /// The first and the last packet of the stretch in one of the files; nothing if all is of it.
    pub(super) fn frames(&self, file: usize) -> Option<[u64; 2]> {
        self.is_parted.then_some(self.frames[file])
    }

    fn has_frame(&self, file: usize, frame: u64) -> bool {
        self.frames(file).is_none_or(|[first, last]| (first..=last).contains(&frame))
    }

    /// Of PDUs in the order of [`Paired::stretches`], those of the stretch.
    pub(super) fn checked<'a>(
        &mut self,
        crossing: Crossing<'a>,
        link: &PairedLink,
        way: &PairedWay,
        (reference, other): (&Crossings, &Crossings),
    ) -> Option<Crossing<'a>> {
        let is_air = [reference.links[link.links[0]].is_air(), other.links[link.links[1]].is_air()];
        let number = self.next;
        self.next += 1;
        let has = |what: Tells| self.joined.contains(&(number, what as u32));
        if self.is_parted && !Tells::of(is_air, way.goes_there).iter().all(|&what| has(what)) {
            return None;
        }
        let is_joined = if self.is_told_early {
            let frames = crossing.frames(Tells::Report);
            (0..2).all(|file| self.has_frame(file, frames[file]))
        } else {
            has(Tells::Report)
        };
        self.left_out += u64::from(crossing.is_reported && !is_joined);
        let of_air = [crossing.reference.done_frame, crossing.other.done_frame];
        let is_acknowledged = (0..2).filter(|&file| is_air[file]).all(|file| self.has_frame(file, of_air[file]));
        Some(Crossing {
            is_reported: crossing.is_reported && is_joined && is_acknowledged,
            is_acknowledged,
            ..crossing
        })
    }
}
