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
    /// As they came, so that they lie in one piece: those before `start` are forgotten, and at most as many as are not.
    acks: Vec<Ack>,
    start: usize,
    /// Number of the oldest one kept.
    first: u64,
    /// When the second oldest one passed. It is here too since it has long left the processor's cache where it is
    /// kept, and each segment asks for it.
    second_at: Option<u64>,
}

impl AckLog {
    #[inline(always)]
    fn kept(&self) -> &[Ack] {
        &self.acks[self.start..]
    }

    pub(super) fn push(&mut self, ack: Ack) {
        if self.kept().len() == CAPACITY {
            self.forget_oldest();
        }
        if self.kept().len() == 1 {
            self.second_at = Some(ack.at);
        }
        if self.acks.capacity() == 0 {
            // A direction without data needs no more than the newest one.
            self.acks.reserve_exact(1);
        }
        self.acks.push(ack);
    }

    /// Puts one in the place of the newest, which said the same.
    pub(super) fn replace_last(&mut self, ack: Ack) {
        if self.kept().len() == 2 {
            self.second_at = Some(ack.at);
        }
        if let Some(last) = self.acks.last_mut() {
            *last = ack;
        }
    }

    /// Forgets those that passed before a time, but for the last one of them, and none from the one
    /// before `end` on.
    pub(super) fn forget(&mut self, before: u64, end: u64) {
        while self.first + 1 < end && self.second_at.is_some_and(|at| at < before) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        self.start += 1;
        self.first += 1;
        if 2 * self.start >= self.acks.len() {
            self.acks.drain(..self.start);
            self.start = 0;
        }
        self.second_at = self.kept().get(1).map(|ack| ack.at);
    }

    /// The windows are scaled by so many bits, as has just been found out.
    pub(super) fn rescale(&mut self, bits: u32) {
        let mut before = u64::MAX;
        for ack in &mut self.acks[self.start..] {
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
        self.first + self.kept().len() as u64
    }

    pub(super) fn get(&self, number: u64) -> Option<&Ack> {
        self.kept().get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// The number after the last one that had passed by then.
    pub(super) fn passed_by(&self, at: u64) -> u64 {
        // Most often it is the newest one.
        if self.acks.last().is_none_or(|ack| ack.at <= at) {
            return self.end();
        }
        self.first + self.kept().partition_point(|ack| ack.at <= at) as u64
    }

    /// The last of those numbered below `end` that passed at `from` or later, let the sender send
    /// more, and is wanted.
    pub(super) fn last_rise(&self, from: u64, end: u64, is_wanted: impl Fn(&Ack) -> bool) -> Option<Ack> {
        let kept = self.kept();
        let length = usize::try_from(end.saturating_sub(self.first)).ok()?.min(kept.len());
        let recent = kept[..length].iter().rev().take_while(|ack| ack.at >= from);
        recent.filter(|ack| ack.rises()).find(|ack| is_wanted(ack)).copied()
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
        /// All that passed before the time go but the last of them, and none from the one before `end` on.
        #[test]
        fn what_is_kept_is_what_may_be_asked_for(
            steps in prop::collection::vec((0..3_u8, 0..50_u64, 0..40_u64), 1..60),
        ) {
            let (mut log, mut all, mut first, mut now) = (AckLog::default(), Vec::new(), 0_usize, 0);
            for (kind, wait, back) in steps {
                now += wait;
                match kind {
                    0 if log.last().is_some() => {
                        log.replace_last(ack(now));
                        *all.last_mut().unwrap() = now;
                    }
                    1 => {
                        let (before, end) = (now.saturating_sub(back), all.len().saturating_sub(back as usize % 3));
                        log.forget(before, end as u64);
                        while first + 1 < end && all.get(first + 1).is_some_and(|&at| at < before) {
                            first += 1;
                        }
                    }
                    _ => {
                        log.push(ack(now));
                        all.push(now);
                    }
                }
                let kept = (0..all.len() as u64).map(|number| log.get(number).map(|ack| ack.at));
                let wanted = all.iter().enumerate().map(|(number, &at)| (number >= first).then_some(at));
                prop_assert!(kept.eq(wanted));
            }
        }
    }
}
