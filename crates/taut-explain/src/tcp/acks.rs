//! What the receiver had acknowledged and granted, by the time at which it passed.

/// So many are kept; a path with more acknowledgements under way can't be followed from afar.
const CAPACITY: usize = 4096;

/// An acknowledgement, with what held before it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Ack {
    pub(super) at: u64,
    pub(super) una_before: u64,
    pub(super) una: u64,
    /// The right edge of the receive window; `u64::MAX` where it is not known.
    pub(super) edge_before: u64,
    pub(super) edge: u64,
    /// As it stands in the segment where its scale is not known.
    pub(super) window: u32,
    /// The scale of its window is known from the opening.
    pub(super) is_scaled: bool,
    /// What was left of the window before was less than half of the largest one so far.
    pub(super) is_shrunk: bool,
    /// It carried no data, so no program saw it.
    pub(super) is_pure: bool,
    pub(super) is_selective: bool,
    /// The clock of the timestamps option.
    pub(super) value: Option<u32>,
}

impl Ack {
    /// Whether it let the sender send more.
    pub(super) const fn rises(&self) -> bool {
        self.una > self.una_before || self.edge > self.edge_before
    }
}

/// The newest acknowledgements, numbered from the first one of the flow.
#[derive(Debug, Default)]
pub(super) struct AckLog {
    /// As they came, so that they lie in one piece.
    acks: Vec<Ack>,
    /// Number of the oldest one kept.
    first: u64,
    /// How many there are before it is worth while to look for those to forget: the oldest ones have long left the
    /// processor's cache.
    enough: usize,
}

impl AckLog {
    pub(super) fn push(&mut self, ack: Ack) {
        if self.acks.len() == 2 * CAPACITY {
            self.forget_first(CAPACITY);
        }
        if self.acks.capacity() == 0 {
            // A direction without data needs no more than the newest one.
            self.acks.reserve_exact(1);
        }
        self.acks.push(ack);
    }

    /// Puts one in the place of the newest, which said the same.
    pub(super) fn replace_last(&mut self, ack: Ack) {
        if let Some(last) = self.acks.last_mut() {
            *last = ack;
        }
    }

    /// May forget those that passed before a time, but for the last one of them, and none from the one
    /// before `end` on. So many stay at most as could not be forgotten, and twice that.
    #[inline(always)]
    pub(super) fn forget(&mut self, before: u64, end: u64) {
        if self.acks.len() > self.enough {
            self.look_for_old(before, end);
        }
    }

    #[inline(never)]
    fn look_for_old(&mut self, before: u64, end: u64) {
        let passed = self.acks.partition_point(|ack| ack.at < before);
        let unknown = usize::try_from(end.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.forget_first(passed.min(unknown).saturating_sub(1));
        self.enough = (2 * self.acks.len() + 1).min(2 * CAPACITY - 1);
    }

    fn forget_first(&mut self, count: usize) {
        self.acks.drain(..count);
        self.first += count as u64;
    }

    /// The windows are scaled by so many bits, as has just been found out.
    pub(super) fn rescale(&mut self, bits: u32) {
        let mut before = u64::MAX;
        for ack in &mut self.acks {
            if !ack.is_scaled {
                ack.edge = ack.una + (u64::from(ack.window) << bits);
            }
            ack.edge_before = std::mem::replace(&mut before, ack.edge);
        }
    }

    pub(super) fn last(&self) -> Option<&Ack> {
        self.acks.last()
    }

    /// The number after the last one.
    pub(super) fn end(&self) -> u64 {
        self.first + self.acks.len() as u64
    }

    pub(super) fn get(&self, number: u64) -> Option<&Ack> {
        self.acks.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// The number after the last one that had passed by then.
    pub(super) fn passed_by(&self, at: u64) -> u64 {
        // Most often it is the newest one.
        if self.acks.last().is_none_or(|ack| ack.at <= at) {
            return self.end();
        }
        self.first + self.acks.partition_point(|ack| ack.at <= at) as u64
    }

    /// The number of the last one below `end` that passed at `from` or later, let the sender send
    /// more, and is wanted.
    pub(super) fn last_rise(&self, from: u64, end: u64, is_wanted: impl Fn(&Ack) -> bool) -> Option<u64> {
        let kept = &self.acks;
        let length = usize::try_from(end.saturating_sub(self.first)).ok()?.min(kept.len());
        let mut recent = kept[..length].iter().enumerate().rev().take_while(|(_, ack)| ack.at >= from);
        let (index, _) = recent.find(|(_, ack)| ack.rises() && is_wanted(ack))?;
        Some(self.first + index as u64)
    }
}

/// So many lags are kept.
const LAGS: usize = 8;

/// What the echoes of a sender told so far.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    /// When it was seen, and how long ago the acknowledgement had passed.
    pub(super) lags: Vec<(u64, u64)>,
    /// Which of them is the oldest, once there are as many as are kept.
    pub(super) oldest: usize,
    /// Number after the newest ACK that the sender is known to have had.
    pub(super) end: u64,
    pub(super) newest: Option<u32>,
}

impl Echoes {
    pub(super) fn lagged(&mut self, at: u64, lag: u64) {
        if self.lags.len() < LAGS {
            if self.lags.is_empty() {
                self.lags.reserve_exact(LAGS);
            }
            self.lags.push((at, lag));
        } else {
            self.lags[self.oldest] = (at, lag);
            self.oldest = (self.oldest + 1) % LAGS;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ack(at: u64) -> Ack {
        Ack {
            at,
            una_before: 0,
            una: 0,
            edge_before: 0,
            edge: 0,
            window: 0,
            is_scaled: true,
            is_shrunk: false,
            is_pure: true,
            is_selective: false,
            value: None,
        }
    }

    proptest! {
        /// Of those that passed before the time the last one stays, and all from the one before `end` on; those that
        /// may go do before there are more than twice as many as may not.
        #[test]
        fn what_is_kept_is_what_may_be_asked_for(
            steps in prop::collection::vec((0..3_u8, 0..50_u64, 0..40_u64), 1..60),
        ) {
            let (mut log, mut all, mut first, mut now) = (AckLog::default(), Vec::new(), 0_usize, 0);
            let (mut needed, mut before, mut end) = (0, 0, 0);
            // What had passed before the time may have passed after it then.
            let mut is_replaced = false;
            for (kind, wait, back) in steps {
                now += wait;
                match kind {
                    0 if log.last().is_some() => {
                        log.replace_last(ack(now));
                        is_replaced = true;
                        *all.last_mut().unwrap() = now;
                    }
                    1 => {
                        before = before.max(now.saturating_sub(back));
                        end = end.max(all.len().saturating_sub(back as usize % 3));
                        log.forget(before, end as u64);
                        while first + 1 < end && all.get(first + 1).is_some_and(|&at| at < before) {
                            first += 1;
                        }
                        needed = needed.max(all.len() - first);
                        let kept = (0..all.len() as u64).filter(|&number| log.get(number).is_some()).count();
                        prop_assert!(is_replaced || kept <= 2 * needed + 1, "{kept} where {needed} are needed");
                    }
                    _ => {
                        log.push(ack(now));
                        all.push(now);
                    }
                }
                let kept = (first..all.len()).map(|number| log.get(number as u64).map(|ack| ack.at));
                prop_assert!(kept.eq(all[first..].iter().map(|&at| Some(at))));
            }
        }
    }

    #[test]
    fn the_newest_are_kept_where_none_may_be_forgotten() {
        let mut log = AckLog::default();
        let count = 5 * CAPACITY as u64;
        for at in 0..count {
            log.push(ack(at));
            log.forget(at, 0);
            assert!(log.acks.len() <= 2 * CAPACITY);
        }
        let newest = count - CAPACITY as u64..count;
        assert!(newest.clone().all(|number| log.get(number).is_some_and(|ack| ack.at == number)));
        assert_eq!(log.end(), count);
        log.forget(count, count);
        assert_eq!(log.get(count - 2), None);
    }
}
