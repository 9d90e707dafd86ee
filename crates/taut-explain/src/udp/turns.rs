//! Whether a side waits for its peer before it sends again, or sends by a clock of its own.

/// Fewer gaps tell nothing.
const LEAST_GAPS: u64 = 8;
/// Standard errors that the slope has to be away from a half.
const SURE: f64 = 2.0;
/// Least part of the variance of what the peer takes that the own time has where both send by clocks.
const OWN_PART: f64 = 0.1;
/// Highest correlation of neighbours where a side sends by a clock.
const OF_A_CLOCK: f64 = -0.25;

/// What a side does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Rhythm {
    /// The longer the peer takes, the later the next datagram: it waits.
    Waits,
    /// It sends when it would have sent anyway.
    OwnClock,
    /// Too few gaps, or too even ones; or the times fit both.
    NotKnown,
}

/// The regression of the gaps between two datagrams of a side on the time that the peer took in them: its slope is 1
/// where the side waits for the peer, and 0 where it does not.
///
/// The slope is high as well where both send by clocks, this side not on the dot and the peer on the dot. But then the
/// time from the peer's datagram to the next own one varies as much as what the peer seems to take; and what makes one
/// gap longer makes the next one shorter, so that neighbours have a negative correlation (a half where the lateness is
/// drawn each time). Where a side waits, gaps do not depend on the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    gaps: u64,
    mean_taken: f64,
    mean_gap: f64,
    squares_taken: f64,
    squares_gap: f64,
    products: f64,
    /// The gap before, and the products of neighbours, each less the mean so far.
    last_gap: f64,
    neighbours: f64,
}

impl Turns {
    /// A gap of so many nanoseconds, of which the peer had taken the first so many.
    pub(super) fn add(&mut self, taken: u64, gap: u64) {
        self.gaps += 1;
        let (taken, gap, count) = (taken as f64, gap as f64, self.gaps as f64);
        let (off_taken, off_gap) = (taken - self.mean_taken, gap - self.mean_gap);
        self.mean_taken += off_taken / count;
        self.mean_gap += off_gap / count;
        self.squares_taken += off_taken * (taken - self.mean_taken);
        self.squares_gap += off_gap * (gap - self.mean_gap);
        self.products += off_taken * (gap - self.mean_gap);
        if self.gaps > 1 {
            self.neighbours += (gap - self.mean_gap) * (self.last_gap - self.mean_gap);
        }
        self.last_gap = gap;
    }

    pub(super) fn rhythm(&self) -> Rhythm {
        if self.gaps < LEAST_GAPS || self.squares_taken <= 0.0 {
            return Rhythm::NotKnown;
        }
        let slope = self.products / self.squares_taken;
        let rest = (self.squares_gap - slope * self.products).max(0.0);
        let error = SURE * (rest / (self.gaps - 2) as f64 / self.squares_taken).sqrt();
        let correlation = self.neighbours / self.squares_gap;
        let own = self.squares_gap - 2.0 * self.products + self.squares_taken;
        let may_be_a_clock =
            own >= OWN_PART * self.squares_taken && correlation - SURE / (self.gaps as f64).sqrt() <= OF_A_CLOCK;
        match slope {
            low if low + error < 0.5 => Rhythm::OwnClock,
            high if high - error > 0.5 && !may_be_a_clock => Rhythm::Waits,
            _ => Rhythm::NotKnown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rhythm(gaps: impl IntoIterator<Item = (u64, u64)>) -> Rhythm {
        let mut turns = Turns::default();
        gaps.into_iter().for_each(|(taken, gap)| turns.add(taken, gap));
        turns.rhythm()
    }

    /// The same each time, and as if drawn: 0 to 999 (SplitMix64).
    fn noise(n: u64) -> u64 {
        let mixed = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n << 7).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33) % 1000
    }

    /// How often each comes out of 50 draws of so many gaps.
    fn of_fifty(gaps: u64, gap: impl Fn(&dyn Fn(u64) -> u64, u64) -> (u64, u64)) -> [usize; 3] {
        let all: Vec<Rhythm> = (0..50)
            .map(|run| {
                let draw = |index: u64| noise(run * 10_000 + index);
                rhythm((0..gaps).map(|n| gap(&draw, n)))
            })
            .collect();
        [Rhythm::Waits, Rhythm::OwnClock, Rhythm::NotKnown].map(|one| all.iter().filter(|&&is| is == one).count())
    }

    #[test]
    fn who_waits_sends_later_when_the_peer_is_late() {
        // As the peer, the own time varies; less; or hardly, and then a few gaps are enough.
        let waits = of_fifty(400, |draw, n| (5_000 + draw(n), 9_000 + draw(n) + draw(n + 500)));
        assert!(waits[0] >= 45 && waits[1] == 0, "{waits:?}");
        assert_eq!(of_fifty(20, |draw, n| (5_000 + draw(n), 9_000 + draw(n) + draw(n + 500) / 8))[0], 50);
    }

    #[test]
    fn who_sends_by_a_clock_does_so_whenever_the_answer_comes() {
        assert_eq!(of_fifty(40, |draw, n| (5_000 + draw(n), 20_000 + draw(n + 500) / 4))[1], 50);
        assert_eq!(of_fifty(40, |draw, n| (5_000 + draw(n), 1_000_000))[1], 50);
    }

    /// Both by a clock: what makes a gap longer is the own lateness, which is part of what the peer seems to take.
    #[test]
    fn who_is_not_on_the_dot_does_not_wait() {
        for gaps in [10, 40, 200] {
            let late =
                |draw: &dyn Fn(u64) -> u64, n| (5_000 - draw(n) + draw(n + 500) / 10, 20_000 + draw(n + 1) - draw(n));
            assert_eq!(of_fifty(gaps, late)[0], 0, "{gaps} gaps");
        }
    }

    #[test]
    fn too_few_or_too_even_gaps_tell_nothing() {
        assert_eq!(rhythm((0..7).map(|n| (5_000 + noise(n), 9_000 + noise(n)))), Rhythm::NotKnown);
        assert_eq!(rhythm((0..50).map(|_| (5_000, 20_000))), Rhythm::NotKnown);
        assert_eq!(rhythm((0..20).map(|n| (noise(n), 90 * noise(n + 300)))), Rhythm::NotKnown);
    }
}
