//! The stretches behind a breakdown, in bounded memory: if there are too many, the shortest go.

use taut_event::Holder;

use super::episode::Episode;
use super::picture::{Picture, Span};

#[derive(Clone, Copy, Debug)]
struct Part {
    holder: Holder,
    episode: Episode,
    is_decided: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Trail {
    parts: Vec<Part>,
    limit: usize,
    left_out: u64,
    left_out_ns: u64,
}

impl Trail {
    /// Keeps fewer than this many stretches.
    pub(crate) const fn new(limit: usize) -> Self {
        Self { parts: Vec::new(), limit, left_out: 0, left_out_ns: 0 }
    }

    /// A part that continues the last one of its holder may lengthen it.
    pub(crate) fn add(&mut self, holder: Holder, episode: Episode, may_continue: bool, is_decided: bool) {
        if let Some(last) = self.parts.last_mut()
            && may_continue
            && (last.holder, last.is_decided, last.episode.to) == (holder, is_decided, episode.from)
        {
            (last.episode.to, last.episode.places.1) = (episode.to, episode.places.1);
            return;
        }
        self.parts.push(Part { holder, episode, is_decided });
        if self.parts.len() >= self.limit {
            self.thin_out(self.limit / 2);
        }
    }

    /// The newest part was none after all.
    pub(crate) fn take_back(&mut self, episode: Episode) {
        if let Some(last) = self.parts.last_mut()
            && last.episode.to == episode.to
            && last.episode.from < episode.from
        {
            // It lengthened one that was closed.
            (last.episode.to, last.episode.places.1) = (episode.from, episode.places.0);
            return;
        }
        let is_it = |last: &mut Part| (last.episode.from, last.episode.to) == (episode.from, episode.to);
        if self.parts.pop_if(is_it).is_none() {
            // It was short, and left out.
            self.left_out = self.left_out.saturating_sub(1);
            self.left_out_ns = self.left_out_ns.saturating_sub(episode.length());
        }
    }

    /// What was undecided is all of this holder, or stays as it was taken.
    pub(crate) fn decide(&mut self, all_of: Option<Holder>) {
        // Undecided ones are few and at the end, but for parts that were booked meanwhile.
        for part in self.parts.iter_mut().filter(|part| !part.is_decided) {
            (part.holder, part.is_decided) = (all_of.unwrap_or(part.holder), true);
        }
    }

    pub(crate) fn rename(&mut self, from: Holder, to: Holder) {
        self.parts.iter_mut().filter(|part| part.holder == from).for_each(|part| part.holder = to);
    }

    /// Changes how many are kept.
    pub(crate) fn limit(&mut self, limit: usize) {
        self.limit = limit;
        if self.parts.len() >= limit {
            self.thin_out(limit / 2);
        }
        self.parts.shrink_to(limit);
    }

    /// Leaves only so many of the longest.
    fn thin_out(&mut self, kept: usize) {
        let Some(cut) = self.parts.len().checked_sub(kept).filter(|&cut| cut > 0) else { return };
        let mut lengths: Vec<u64> = self.parts.iter().map(|part| part.episode.length()).collect();
        let longest_cut = *lengths.select_nth_unstable(cut - 1).1;
        // Of those that are as long as the longest one to go, the first ones go.
        let shorter = lengths.iter().filter(|&&length| length < longest_cut).count();
        let mut equal_to_go = cut - shorter;
        let (mut left_out, mut left_out_ns) = (0, 0_u64);
        self.parts.retain(|part| {
            let length = part.episode.length();
            let goes = length < longest_cut || length == longest_cut && equal_to_go > 0;
            if goes {
                equal_to_go -= usize::from(length == longest_cut);
                left_out += 1;
                left_out_ns = left_out_ns.saturating_add(length);
            }
            !goes
        });
        self.left_out += left_out;
        self.left_out_ns = self.left_out_ns.saturating_add(left_out_ns);
    }

    /// The stretches by time, from the beginning of the capture; at most so many of the longest.
    pub(crate) fn picture(&self, start: u64, most: usize) -> Picture {
        let mut own = self.clone();
        own.thin_out(most);
        own.parts.sort_by_key(|part| part.episode.from);
        let span = |Part { holder, episode, .. }: &Part| Span {
            holder: *holder,
            begin_ns: episode.from.saturating_sub(start),
            held_ns: episode.length(),
            frames: episode.places.into(),
        };
        Picture { spans: own.parts.iter().map(span).collect(), left_out: own.left_out, left_out_ns: own.left_out_ns }
    }
}

/// How many stretches the trails may have.
#[derive(Debug)]
pub(crate) struct Allowance {
    total: usize,
    open: usize,
    each: usize,
}

/// A trail of fewer stretches is no picture.
const LEAST_EACH: usize = 16;

impl Allowance {
    pub(crate) const fn new(total: usize) -> Self {
        let total = if total < LEAST_EACH { LEAST_EACH } else { total };
        Self { total, open: 0, each: total }
    }

    /// How many each direction of an open flow may have.
    pub(crate) const fn each(&self) -> usize {
        self.each
    }

    /// How many stay of each of so many reports.
    pub(crate) fn of_reports(&self, reports: usize) -> usize {
        (self.total / reports.max(1)).max(1)
    }

    /// One more flow. Whether all open ones get less.
    pub(crate) fn opened(&mut self) -> bool {
        self.open += 1;
        let is_less = 2 * self.open * self.each > self.total && self.each > LEAST_EACH;
        if is_less {
            self.each = (self.each / 2).max(LEAST_EACH);
        }
        is_less
    }

    /// One flow less. Those that open later get more if few are left.
    pub(crate) fn closed(&mut self) {
        self.open = self.open.saturating_sub(1);
        while 8 * self.open * self.each <= self.total && self.each < self.total {
            self.each = (2 * self.each).min(self.total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trail(limit: usize, lengths: &[u64]) -> Trail {
        let mut trail = Trail::new(limit);
        let mut at = 100;
        for &length in lengths {
            trail.add(Holder::PeerTurn, Episode { from: at, to: at + length, places: (1, 2) }, false, true);
            at += length;
        }
        trail
    }

    #[test]
    fn the_longest_stay_and_the_rest_is_counted() {
        let picture = trail(8, &[5, 900, 3, 3, 3, 700, 3, 3, 3, 3, 800]).picture(100, 3);
        let lengths: Vec<u64> = picture.spans.iter().map(|span| span.held_ns).collect();
        assert_eq!(lengths, [900, 700, 800]);
        assert_eq!((picture.left_out, picture.left_out_ns), (8, 26));
        assert_eq!(picture.spans[0].begin_ns, 5);
    }

    #[test]
    fn however_many_there_are_the_memory_is_bounded() {
        let trail = trail(1_000, &vec![7; 100_000]);
        assert!(trail.parts.len() < 1_000 && trail.parts.capacity() <= 1_024, "{}", trail.parts.capacity());
        assert_eq!(trail.left_out_ns + 7 * trail.parts.len() as u64, 700_000);
        let mut allowance = Allowance::new(100_000);
        let mut each = Vec::new();
        for _ in 0..16_384 {
            allowance.opened();
            each.push(allowance.each());
        }
        assert!(each.iter().enumerate().all(|(i, &each)| each <= LEAST_EACH || 2 * (i + 1) * each <= 100_000));
        (0..16_384).for_each(|_| allowance.closed());
        assert_eq!(allowance.each(), 100_000);
    }

    #[test]
    fn what_is_undecided_does_not_continue_what_is_decided() {
        let mut trail = Trail::new(16);
        let part = |from: u64, to: u64| Episode { from, to, places: (from, to) };
        trail.add(Holder::CongestionWindow, part(0, 5), true, true);
        trail.add(Holder::CongestionWindow, part(5, 7), true, false);
        trail.add(Holder::CongestionWindow, part(7, 9), true, false);
        trail.decide(Some(Holder::SendBufferOrCongestion));
        let spans = trail.picture(0, 16).spans;
        let held: Vec<(Holder, u64)> = spans.iter().map(|span| (span.holder, span.held_ns)).collect();
        assert_eq!(held, [(Holder::CongestionWindow, 5), (Holder::SendBufferOrCongestion, 4)]);
    }
}
