//! Losses that stand over several intervals: since when, and how much they took in all.

use std::collections::BTreeMap;

use taut_time::{Duration, Instant};

/// A loss from the interval in which it was met first to the one in which it was met last.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Episode<K> {
    /// Who loses, and to what.
    pub key: K,
    /// Begin of the first interval.
    pub began: Instant,
    /// End of the last interval.
    pub last: Instant,
    /// Time lost in it.
    pub lost: Duration,
}

impl<K> Episode<K> {
    /// How long it stood.
    pub fn stood(&self) -> Duration {
        self.last.saturating_since(self.began)
    }
}

/// What an interval changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Changes<K> {
    /// Those that stand since this interval.
    pub begun: Vec<K>,
    /// Those that are over.
    pub ended: Vec<Episode<K>>,
}

/// All episodes of one loss.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Total<K> {
    /// Who loses, and to what.
    pub key: K,
    /// How often it began.
    pub episodes: u64,
    /// Time in which it stood.
    pub stood: Duration,
    /// Time lost.
    pub lost: Duration,
}

/// Follows losses from interval to interval.
#[derive(Clone, Debug)]
pub struct Watch<K> {
    standing: BTreeMap<K, Episode<K>>,
    totals: BTreeMap<K, Total<K>>,
    forgotten: u64,
}

/// A loss that is not met for so long is over: a program may have nothing to send for a while.
const QUIET: Duration = Duration::from_secs(5);
/// Losses that are kept, of those that stand and of all: a host that is attacked has no end of them.
const MOST: usize = 10_000;

impl<K: Clone + Ord> Default for Watch<K> {
    fn default() -> Self {
        Self { standing: BTreeMap::new(), totals: BTreeMap::new(), forgotten: 0 }
    }
}

impl<K: Clone + Ord> Watch<K> {
    /// Books what was lost in an interval. Of a key that comes twice, both times count.
    pub fn interval(
        &mut self,
        from: Instant,
        to: Instant,
        losses: impl IntoIterator<Item = (K, Duration)>,
    ) -> Changes<K> {
        let mut begun = Vec::new();
        for (key, lost) in losses {
            if let Some(episode) = self.standing.get_mut(&key) {
                episode.last = to;
                episode.lost += lost;
            } else if self.standing.len() < MOST {
                begun.push(key.clone());
                self.standing.insert(key.clone(), Episode { key, began: from, last: to, lost });
            } else {
                self.forgotten += 1;
            }
        }
        let mut ended = Vec::new();
        self.standing.retain(|_, episode| {
            let is_over = to.saturating_since(episode.last) >= QUIET;
            if is_over {
                ended.push(episode.clone());
            }
            !is_over
        });
        ended.iter().for_each(|episode| self.add_up(episode));
        Changes { begun, ended }
    }

    fn add_up(&mut self, episode: &Episode<K>) {
        if self.totals.len() >= MOST && !self.totals.contains_key(&episode.key) {
            self.forgotten += 1;
            return;
        }
        let key = &episode.key;
        let none = Total { key: key.clone(), episodes: 0, stood: Duration::ZERO, lost: Duration::ZERO };
        let total = self.totals.entry(key.clone()).or_insert(none);
        total.episodes += 1;
        total.stood += episode.stood();
        total.lost += episode.lost;
    }

    /// The episode of a loss that stands.
    pub fn standing(&self, key: &K) -> Option<&Episode<K>> {
        self.standing.get(key)
    }

    /// Losses that found no room: more stood at once, or were met in all, than are kept.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// All losses, the longest time lost first; those that stand end here.
    pub fn finish(mut self) -> (Vec<Total<K>>, u64) {
        for episode in std::mem::take(&mut self.standing).into_values() {
            self.add_up(&episode);
        }
        let mut totals: Vec<Total<K>> = self.totals.into_values().collect();
        totals.sort_by_key(|total| std::cmp::Reverse(total.lost));
        (totals, self.forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn interval(watch: &mut Watch<&'static str>, from: u64, losses: &[(&'static str, u64)]) -> Changes<&'static str> {
        let losses = losses.iter().map(|(key, ms)| (*key, Duration::from_millis(*ms)));
        watch.interval(at(from), at(from + 2), losses)
    }

    #[test]
    fn a_loss_begins_once_stands_over_a_pause_and_ends_where_it_was_met_last() {
        let mut watch = Watch::default();
        assert_eq!(interval(&mut watch, 0, &[]).begun, [""; 0]);
        assert_eq!(interval(&mut watch, 2, &[("nagle", 500), ("nagle", 100)]).begun, ["nagle"]);
        assert_eq!(interval(&mut watch, 4, &[("nagle", 700), ("loss", 1)]).begun, ["loss"]);
        assert_eq!(watch.standing(&"nagle").map(Episode::stood), Some(Duration::from_secs(4)));
        // A pause of two intervals.
        for from in [6, 8] {
            let changes = interval(&mut watch, from, &[]);
            assert!(changes.begun.is_empty() && changes.ended.is_empty());
        }
        assert!(interval(&mut watch, 10, &[("nagle", 200)]).begun.is_empty());
        for from in [12, 14] {
            assert!(interval(&mut watch, from, &[]).ended.is_empty());
        }
        let ended = interval(&mut watch, 16, &[("nagle", 0)]).ended;
        assert!(ended.is_empty(), "met again, without time");
        let mut all = Vec::new();
        for from in [18, 20, 22] {
            all.extend(interval(&mut watch, from, &[]).ended);
        }
        let expected = Episode { key: "nagle", began: at(2), last: at(18), lost: Duration::from_millis(1500) };
        assert_eq!(all, [expected]);
        assert_eq!(interval(&mut watch, 24, &[("nagle", 10)]).begun, ["nagle"]);
        let (totals, forgotten) = watch.finish();
        let nagle =
            Total { key: "nagle", episodes: 2, stood: Duration::from_secs(18), lost: Duration::from_millis(1510) };
        let loss = Total { key: "loss", episodes: 1, stood: Duration::from_secs(2), lost: Duration::from_millis(1) };
        assert_eq!((totals, forgotten), (vec![nagle, loss], 0));
    }

    #[test]
    fn there_is_an_end_to_what_it_keeps() {
        let mut watch = Watch::default();
        let losses = |from: u64| (0..MOST as u64 + 5).map(move |number| (from + number, Duration::from_millis(1)));
        assert_eq!(watch.interval(at(0), at(2), losses(0)).begun.len(), MOST);
        assert_eq!(watch.forgotten(), 5);
        assert_eq!(watch.interval(at(20), at(22), []).ended.len(), MOST);
        watch.interval(at(22), at(24), losses(1_000_000));
        let (totals, forgotten) = watch.finish();
        assert_eq!((totals.len(), forgotten), (MOST, 10 + MOST as u64));
    }
}
