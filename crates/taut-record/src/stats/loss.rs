use std::cmp::Ordering;

/// Messages of which some never came.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Losses {
    /// Messages that never came.
    pub lost: u64,
    /// All messages, lost ones included.
    pub messages: u64,
}

impl Losses {
    /// Those of several rounds together.
    pub fn sum(rounds: impl IntoIterator<Item = Self>) -> Self {
        rounds.into_iter().fold(Self::default(), |all, one| Self {
            lost: all.lost.saturating_add(one.lost),
            messages: all.messages.saturating_add(one.messages),
        })
    }

    /// Lost messages of all, from 0 to 1; 0 of none.
    pub fn share(self) -> f64 {
        if self.messages == 0 { 0.0 } else { self.lost as f64 / self.messages as f64 }
    }

    /// What a file says may be anything: not more lost than sent, and no number that would take long to sum up to.
    fn tamed(self) -> Self {
        let messages = self.messages.min(1 << 40);
        Self { lost: self.lost.min(messages), messages }
    }
}

/// Probability with which two that lose alike are told apart all the same.
const MISTAKEN: f64 = 0.05;

/// Whether `mine` loses a smaller or larger share than `other` beyond chance, each message being
/// lost by itself: Fisher's exact test, two-sided, at 95 %. `None` when that can't be told. Losses
/// in bursts are fewer independent cases than messages, so there it is too sure of itself.
pub fn losses_differ(mine: Losses, other: Losses) -> Option<Ordering> {
    losses_differ_at(mine, other, MISTAKEN)
}

/// The same, with the probability `mistaken` that two that lose alike are told apart all the same.
pub fn losses_differ_at(mine: Losses, other: Losses, mistaken: f64) -> Option<Ordering> {
    let [mine, other] = [mine, other].map(Losses::tamed);
    let lost = mine.lost + other.lost;
    if lost == 0 || mine.messages == 0 || other.messages == 0 {
        return None;
    }
    let (below, above) = tails(mine.lost, mine.messages, lost, mine.messages + other.messages);
    let order = if below < above { Ordering::Less } else { Ordering::Greater };
    (2.0 * below.min(above) < mistaken).then_some(order)
}

/// P(X <= x) and P(X >= x) of the hypergeometric distribution: `x` of the `lost` among `all` fall
/// on the `mine`. Terms are taken relative to the largest, from there outwards until they no longer
/// count, so that nothing under- or overflows.
fn tails(x: u64, mine: u64, lost: u64, all: u64) -> (f64, f64) {
    /// Of the largest term; all terms beyond one of these sum to less than what is rounded off.
    const NEGLIGIBLE: f64 = 1e-20;
    let (least, most) = (lost.saturating_sub(all - mine), lost.min(mine));
    let mode = (((lost + 1) as f64 * (mine + 1) as f64 / (all + 2) as f64) as u64).clamp(least, most);
    // The term after `k` over that of `k`.
    let step = |k: u64| (lost - k) as f64 * (mine - k) as f64 / ((k + 1) as f64 * (all - mine + k + 1 - lost) as f64);
    let (mut below, mut above, mut total) = (0.0, 0.0, 0.0);
    let mut add = |k: u64, term: f64| {
        total += term;
        below += if k <= x { term } else { 0.0 };
        above += if k >= x { term } else { 0.0 };
        term > NEGLIGIBLE
    };
    let (mut k, mut term) = (mode, 1.0);
    while add(k, term) && k < most {
        term *= step(k);
        k += 1;
    }
    (k, term) = (mode, 1.0);
    while k > least {
        term /= step(k - 1);
        k -= 1;
        if !add(k, term) {
            break;
        }
    }
    (below / total, above / total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differ(mine: (u64, u64), other: (u64, u64)) -> Option<Ordering> {
        let losses = |(lost, messages)| Losses { lost, messages };
        losses_differ(losses(mine), losses(other))
    }

    #[test]
    fn losses_beyond_chance_are_told_and_others_are_not() {
        assert_eq!(differ((160, 400), (0, 400)), Some(Ordering::Greater));
        assert_eq!(differ((0, 400), (160, 400)), Some(Ordering::Less));
        assert_eq!(differ((1, 100_000), (0, 100_000)), None);
        assert_eq!(differ((20, 2_000), (0, 2_000)), Some(Ordering::Greater));
        assert_eq!(differ((20, 2_000), (24, 2_000)), None);
        // The same shares of unlike numbers, and of numbers far beyond what a power of a half can hold.
        assert_eq!(differ((30, 3_000), (1, 100)), None);
        assert_eq!(differ((1_000_000, 2_000_000), (1_000_500, 2_000_000)), None);
        assert_eq!(differ((1_010_000, 2_000_000), (1_000_000, 2_000_000)), Some(Ordering::Greater));
        assert_eq!(differ((0, 100), (0, 100)), None);
        assert_eq!(differ((0, 0), (5, 5)), None);
        assert_eq!(differ((50, 50), (50, 50)), None);
        // From a damaged file.
        assert_eq!(differ((u64::MAX, 5), (0, u64::MAX)), Some(Ordering::Greater));
    }

    /// Against sums of exact binomial coefficients: of 12 messages, 5 mine, 4 are lost.
    #[test]
    fn tails_are_those_of_the_hypergeometric_distribution() {
        let choose = |n: u64, k: u64| (0..k).fold(1, |product, i| product * (n - i) / (i + 1));
        let of = |k: u64| (choose(5, k) * choose(7, 4 - k)) as f64 / choose(12, 4) as f64;
        for x in 0..=4 {
            let (below, above) = tails(x, 5, 4, 12);
            let (exact_below, exact_above): (f64, f64) = ((0..=x).map(of).sum(), (x..=4).map(of).sum());
            assert!((below - exact_below).abs() < 1e-12 && (above - exact_above).abs() < 1e-12, "{x}");
        }
    }

    /// Of 2,000 pairs that lose alike, at most 5 % may be told apart.
    #[test]
    fn what_loses_alike_is_seldom_told_apart() {
        let mut state = 7_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1_u64 << 31) as f64
        };
        let mut loses = || Losses { lost: (0..500).filter(|_| draw() < 0.02).count() as u64, messages: 500 };
        let mistaken = (0..2_000).filter(|_| losses_differ(loses(), loses()).is_some()).count();
        assert!(mistaken <= 100, "{mistaken}");
    }
}
