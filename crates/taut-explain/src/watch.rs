//! Losses that stand over several intervals: since when, and how much they took in all. And events that are counted
//! one by one.

use std::collections::BTreeMap;
use std::net::SocketAddr;

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

/// Events of one connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Events {
    /// How many.
    pub count: u64,
    /// Time lost by them.
    pub lost: Duration,
    /// The longest time lost at once.
    pub longest: Duration,
    /// When the first one was.
    pub first: Instant,
    /// When the last one was.
    pub last: Instant,
    /// This end, and the other one.
    pub ends: (SocketAddr, SocketAddr),
}

/// Events of one key: all of them, and those of the interval.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Count {
    /// All; with the ends of the connection of the last one.
    pub all: Events,
    /// How many of them in this interval.
    pub new: u64,
    /// Time lost by these.
    pub new_lost: Duration,
    /// Whether they are the first ones, or the first after a minute without any.
    pub is_new: bool,
}

/// A key whose last event was longer ago is not shown any more. These events are rare where little is wrong: of a path
/// that loses one segment in a thousand, a quiet connection tells a few times a minute.
const RECENT: Duration = Duration::from_secs(60);
/// Between two searches for keys that make room.
const SEARCH_PERIOD: Duration = Duration::from_secs(1);

/// Adds events up, each of which counts: what is told of a key grows until the end.
#[derive(Clone, Debug)]
pub struct Tally<K> {
    counts: BTreeMap<K, Count>,
    forgotten: u64,
    /// Where there is no room: before this no key can make any, so none is looked for.
    room_from: Instant,
}

impl<K: Clone + Ord> Default for Tally<K> {
    fn default() -> Self {
        Self { counts: BTreeMap::new(), forgotten: 0, room_from: Instant::from_nanos(0) }
    }
}

impl<K: Clone + Ord> Tally<K> {
    /// Adds events of a key.
    pub fn add(&mut self, key: K, events: Events) {
        if let Some(known) = self.counts.get_mut(&key) {
            let all = &mut known.all;
            known.is_new |= known.new == 0 && events.first.saturating_since(all.last) >= RECENT;
            let ends = if events.last >= all.last { events.ends } else { all.ends };
            *all = Events {
                count: all.count + events.count,
                lost: all.lost + events.lost,
                longest: all.longest.max(events.longest),
                first: all.first.min(events.first),
                last: all.last.max(events.last),
                ends,
            };
            known.new += events.count;
            known.new_lost += events.lost;
            return;
        }
        if self.counts.len() >= MOST && events.last >= self.room_from {
            self.make_room(events.last);
        }
        if self.counts.len() < MOST {
            self.counts.insert(key, Count { all: events, new: events.count, new_lost: events.lost, is_new: true });
        } else {
            self.forgotten += events.count;
        }
    }

    /// Processes that come and go are keys of their own: those of long ago make room. What an interval is still to tell
    /// stays, or no sum of intervals would have it.
    fn make_room(&mut self, now: Instant) {
        let before = self.counts.len();
        self.counts.retain(|_, known| known.new > 0 || now.saturating_since(known.all.last) < RECENT);
        self.forgotten += (before - self.counts.len()) as u64;
        // A scan of ports has a key for each port, and to go through all keys for each of them would take seconds.
        let told = self.counts.values().filter(|known| known.new == 0);
        let oldest = told.map(|known| known.all.last).min();
        let room_from = oldest.map_or(Instant::from_nanos(u64::MAX), |oldest| oldest + RECENT);
        self.room_from = room_from.max(now + SEARCH_PERIOD);
    }

    /// What the interval came to that ends now, and the next one begins: all keys with an event in it or of late, the
    /// longest time lost first.
    pub fn interval(&mut self, now: Instant) -> Vec<(K, Count)> {
        let is_shown = |count: &Count| count.new > 0 || now.saturating_since(count.all.last) < RECENT;
        let recent = self.counts.iter().filter(|&(_, count)| is_shown(count));
        let mut recent: Vec<(K, Count)> = recent.map(|(key, count)| (key.clone(), *count)).collect();
        recent.sort_by_key(|(_, count)| std::cmp::Reverse((count.all.lost, count.all.count)));
        for count in self.counts.values_mut() {
            (count.new, count.new_lost, count.is_new) = (0, Duration::ZERO, false);
        }
        // All are told now.
        self.room_from = Instant::from_nanos(0);
        recent
    }

    /// Events of keys that found no room, and keys that made room for others.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// All keys, the longest time lost first.
    pub fn finish(self) -> Vec<(K, Count)> {
        let mut all: Vec<(K, Count)> = self.counts.into_iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse((count.all.lost, count.all.count)));
        all
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

    fn events(count: u64, ms: u64, at_s: u64, port: u16) -> Events {
        let (time, at) = (Duration::from_millis(ms), at(at_s));
        let ends = [port, 80].map(|port| SocketAddr::new([10, 0, 0, 1].into(), port));
        Events { count, lost: time, longest: time, first: at, last: at, ends: (ends[0], ends[1]) }
    }

    #[test]
    fn each_event_counts_and_what_is_long_ago_is_shown_at_the_end_only() {
        let mut tally = Tally::default();
        tally.add("loss", events(2, 400, 10, 1));
        tally.add("loss", events(1, 300, 11, 2));
        tally.add("refused", events(5, 0, 11, 3));
        let interval = tally.interval(at(12));
        let [("loss", loss), ("refused", refused)] = interval[..] else { panic!("{interval:?}") };
        assert_eq!((loss.all.count, loss.new, loss.is_new), (3, 3, true));
        assert_eq!((loss.all.lost, loss.all.longest), (Duration::from_millis(700), Duration::from_millis(400)));
        assert_eq!((loss.all.first, loss.all.last, loss.all.ends.0.port()), (at(10), at(11), 2));
        assert_eq!((refused.new, refused.new_lost), (5, Duration::ZERO));
        // It is shown on, with nothing new.
        tally.add("loss", events(1, 100, 13, 1));
        let interval = tally.interval(at(14));
        assert_eq!(
            interval.iter().map(|(_, count)| (count.all.count, count.new)).collect::<Vec<_>>(),
            [(4, 1), (5, 0)]
        );
        assert!(interval.iter().all(|(_, count)| !count.is_new));
        assert!(tally.interval(at(73)).is_empty());
        tally.add("loss", events(1, 100, 80, 1));
        let interval = tally.interval(at(81));
        assert_eq!(interval.iter().map(|(key, count)| (*key, count.is_new)).collect::<Vec<_>>(), [("loss", true)]);
        assert_eq!(
            tally.finish().iter().map(|(key, count)| (*key, count.all.count)).collect::<Vec<_>>(),
            [("loss", 5), ("refused", 5)]
        );
    }

    #[test]
    fn a_tally_has_an_end_and_those_of_long_ago_make_room() {
        let mut tally = Tally::default();
        (0..MOST as u64 + 3).for_each(|key| tally.add(key, events(1, 1, 10, 1)));
        assert_eq!((tally.interval(at(11)).len(), tally.forgotten()), (MOST, 3));
        tally.add(u64::MAX, events(1, 1, 100, 1));
        assert_eq!((tally.interval(at(101)).len(), tally.forgotten()), (1, 3 + MOST as u64));
    }

    /// In an interval of an hour more than a minute may lie between an event and its end.
    #[test]
    fn an_event_early_in_a_long_interval_is_told_at_its_end_and_once() {
        let mut tally = Tally::default();
        tally.add("refused", events(5, 0, 10, 1));
        let interval = tally.interval(at(3600));
        let [("refused", refused)] = interval[..] else { panic!("{interval:?}") };
        assert_eq!((refused.new, refused.all.count, refused.is_new), (5, 5, true));
        assert!(tally.interval(at(7200)).is_empty());
    }

    #[test]
    fn what_is_still_to_be_told_makes_no_room_for_others() {
        let mut tally = Tally::default();
        (0..MOST as u64).for_each(|key| tally.add(key, events(1, 1, 10, 1)));
        // Of the same interval, later by more than a minute, and of three events.
        tally.add(u64::MAX, events(3, 1, 100, 1));
        assert_eq!((tally.interval(at(101)).len(), tally.forgotten()), (MOST, 3));
        tally.add(u64::MAX, events(1, 1, 102, 1));
        assert_eq!((tally.interval(at(103)).len(), tally.forgotten()), (1, 3 + MOST as u64));
    }

    /// One that had an event of late keeps others from being looked through until it is old.
    #[test]
    fn room_is_looked_for_when_there_can_be_some() {
        let mut tally = Tally::default();
        (0..MOST as u64).for_each(|key| tally.add(key, events(1, 1, 10 + key % 2, 1)));
        tally.interval(at(12));
        tally.add(u64::MAX, events(1, 1, 20, 1));
        assert_eq!((tally.room_from, tally.forgotten()), (at(10) + RECENT, 1));
        tally.add(u64::MAX, events(1, 1, 70, 1));
        assert_eq!((tally.counts.len(), tally.forgotten()), (MOST / 2 + 1, 1 + MOST as u64 / 2));
    }
}
