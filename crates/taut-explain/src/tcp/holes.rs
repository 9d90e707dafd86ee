//! Bytes that were passed over: lost before the vantage point, or not captured.

/// More at once are not told apart.
const KEPT: usize = 32;

/// A range that did not pass, and when that was seen.
#[derive(Clone, Copy, Debug)]
struct Hole {
    start: u64,
    end: u64,
    since: u64,
}

/// What of a direction's bytes has not passed so far.
#[derive(Debug, Default)]
pub(super) struct Holes {
    open: Vec<Hole>,
    /// Bytes that were acknowledged and never seen: the capture lacks them.
    pub(super) unseen_bytes: u64,
}

/// How a segment below the highest position came about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Late {
    /// It was seen before.
    Repeated,
    /// It fills a hole, so much later.
    Fills {
        /// Since the hole was seen.
        after: u64,
    },
}

impl Holes {
    pub(super) fn passed_over(&mut self, start: u64, end: u64, at: u64) {
        if self.open.len() == KEPT {
            self.open.remove(0);
        }
        self.open.push(Hole { start, end, since: at });
    }

    pub(super) fn late(&mut self, start: u64, end: u64, at: u64) -> Late {
        let Some(index) = self.open.iter().position(|hole| start < hole.end && hole.start < end) else {
            return Late::Repeated;
        };
        let hole = self.open.swap_remove(index);
        if hole.start < start {
            self.open.push(Hole { end: start, ..hole });
        }
        if end < hole.end && self.open.len() < KEPT {
            self.open.push(Hole { start: end, ..hole });
        }
        Late::Fills { after: at.saturating_sub(hole.since) }
    }

    /// All before `una` reached the receiver, whatever was seen of it.
    pub(super) fn acknowledged(&mut self, una: u64) {
        let mut unseen = 0;
        self.open.retain_mut(|hole| {
            unseen += una.min(hole.end).saturating_sub(hole.start);
            hole.start = hole.start.max(una);
            hole.start < hole.end
        });
        self.unseen_bytes += unseen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_is_filled_or_was_not_captured() {
        let mut holes = Holes::default();
        holes.passed_over(100, 200, 5);
        assert_eq!(holes.late(0, 50, 6), Late::Repeated);
        assert_eq!(holes.late(120, 150, 9), Late::Fills { after: 4 });
        holes.acknowledged(130);
        assert_eq!(holes.unseen_bytes, 20);
        holes.acknowledged(500);
        assert_eq!(holes.unseen_bytes, 70);
        assert_eq!(holes.late(150, 200, 20), Late::Repeated);
    }
}
