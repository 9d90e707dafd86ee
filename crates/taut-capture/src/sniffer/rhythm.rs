//! When connection events of a link begin, and whose turn it is, by the times of its PDUs.

use taut_event::Direction;

/// The inter frame space, in nanoseconds (Core Specification, Vol 6, Part B, section 4.1.1).
const IFS_NS: u64 = 150_000;
/// A PDU that follows another one by the inter frame space does so within this, with the clock of the sniffer.
const TURN_NS: u64 = 50_000;
/// Longer than the longest PDU of LE 1M with two inter frame spaces.
const HOLE_NS: u64 = 2_600_000;
/// Unit of intervals.
const UNIT_NS: u64 = 1_250_000;
/// Shortest and longest interval (section 4.5.1), in units.
const UNITS: std::ops::RangeInclusive<u64> = 6..=3200;
/// Distances of anchors that are remembered.
const KEPT: usize = 8;
/// So many of them that agree tell an interval.
const ALIKE: usize = 4;
/// A PDU of the central that is missing between two of its own, with an answer to each, takes as long at least if it is
/// an update: on LE 2M 92 us, two empty PDUs, and four spaces, by the clock of the sniffer.
const HIDES_UPDATE_NS: u64 = 780_000 - TURN_NS;
/// Events that the central should leave at least between an update and its instant (section 5.1.1).
const NOTICE: u16 = 6;

/// The rhythm of a link.
#[derive(Clone, Debug, Default)]
pub(super) struct Rhythm {
    /// Interval in use, in nanoseconds; 0: not known.
    pub(super) interval_ns: u64,
    /// Whether a PDU told it.
    pub(super) is_told: bool,
    /// The latency that was told with it; `None` also once an update of it may have been missed.
    pub(super) latency: Option<u16>,
    /// What a PDU told that will hold.
    pending: Option<Update>,
    /// The begin of the newest event whose first PDU was seen, as far as it fits the interval.
    anchor: Option<u64>,
    /// When the first PDU that was seen of the newest event began, whether or not it fits.
    begin: Option<u64>,
    /// Whether that was the central's, and so an anchor.
    is_anchor: bool,
    end: u64,
    way: Option<Direction>,
    /// Number of the event that goes on, as the sniffer or the link's begin tells it.
    counter: Option<u16>,
    /// Newest distances of anchors in units, of which 0 is none.
    gaps: [u64; KEPT],
    next: usize,
}

/// LL_CONNECTION_UPDATE_IND.
#[derive(Clone, Copy, Debug)]
pub(super) struct Update {
    pub(super) interval_ns: u64,
    pub(super) latency: u16,
    /// Number of the event from which it holds.
    pub(super) instant: u16,
}

/// Where a PDU stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stands {
    pub(super) way: Direction,
    pub(super) begins_event: bool,
    pub(super) is_after_hole: bool,
    pub(super) unseen_events: u16,
    /// Whether it comes the inter frame space after the PDU before, within the event.
    pub(super) is_turn: bool,
    /// Whether it is where the next event begins.
    pub(super) is_next_anchor: bool,
}

impl Rhythm {
    /// What a PDU tells from the link's first event on, which has the number 0 (section 4.5.1).
    pub(super) const fn told(&mut self, interval_ns: u64, latency: u16) {
        (self.interval_ns, self.is_told) = (interval_ns, interval_ns > 0);
        (self.latency, self.counter) = (Some(latency), Some(u16::MAX));
    }

    /// What will hold. Where events have no numbers, its instant is as near as it should be.
    pub(super) fn will_be(&mut self, update: Update) {
        self.counter.get_or_insert_with(|| update.instant.wrapping_sub(NOTICE));
        self.pending = Some(update);
    }

    /// An update may have been sent that can't be read. Until one that was is done there is no other (section 5.1).
    pub(super) const fn may_be_other(&mut self) {
        if self.pending.is_none() {
            self.latency = None;
        }
    }

    /// The next PDU, from `at` to `end`, with what the sniffer says of its sender and of the number of its event.
    pub(super) fn pdu(&mut self, at: u64, end: u64, way: Option<Direction>, counter: Option<u16>) -> Stands {
        let gap = at.saturating_sub(self.end);
        let is_turn = self.way.is_some() && is_turn(self.end, at);
        let is_near = self.is_near_anchor(at) || self.is_next(at);
        let begins_event = match (counter, self.counter) {
            (Some(counter), Some(last)) => counter != last,
            _ if self.way.is_none() => true,
            _ if is_turn => false,
            // Nobody is silent so long within an event.
            _ if self.interval_ns > 0 && gap > self.interval_ns / 2 => true,
            _ if is_near => way != Some(Direction::Backward),
            // The next event is there, or a shorter interval is. Within an event PDUs may have been missed.
            _ if self.interval_ns > 0 => gap > HOLE_NS && (self.is_past_anchor(at) || self.is_shorter(at)),
            // Without an interval a lost PDU looks as an anchor does; the distances of anchors sort that out.
            _ => way != Some(Direction::Backward) || gap > HOLE_NS,
        };
        let turn = if begins_event { None } else { self.way.map(Direction::reverse) };
        let way = way.or(turn).unwrap_or(Direction::Forward);
        // The central begins each event, and both take turns.
        let is_after_hole = if begins_event {
            way == Direction::Backward
        } else {
            !is_turn && self.way.is_some() && gap > IFS_NS || self.way == Some(way)
        };
        // Between two PDUs of the central its peripheral's is missing, and not always one of its own.
        let is_peripherals = !begins_event && way == Direction::Forward && self.way == Some(way);
        let unseen_events = if begins_event { self.unseen(at, counter) } else { 0 };
        if unseen_events > 0 || is_after_hole && !(is_peripherals && gap < HIDES_UPDATE_NS) {
            self.may_be_other();
        }
        if begins_event {
            let number = self.counter.map(|last| last.wrapping_add(unseen_events).wrapping_add(1));
            self.counter = counter.or(number);
            // With the interval as it was there is no other sign of it.
            let pending = self.pending;
            if let Some(update) = pending.filter(|update| self.holds(*update, self.interval_ns)) {
                self.take(update);
            }
            // Of the events behind an instant nothing keeps that there is another update in them.
            if unseen_events > 0 && pending.is_some_and(|update| self.is_behind(update)) {
                (self.pending, self.latency) = (None, None);
            }
            match way {
                Direction::Forward => self.anchor(at, is_near),
                // Its anchor was not seen, but it is none of those of which nothing was.
                Direction::Backward => (self.begin, self.is_anchor) = (Some(at), false),
            }
        }
        (self.end, self.way, self.counter) = (end.max(self.end), Some(way), counter.or(self.counter));
        let is_next_anchor = begins_event && is_near && unseen_events == 0;
        Stands { way, begins_event, is_after_hole, unseen_events, is_turn: is_turn && !begins_event, is_next_anchor }
    }

    fn is_near_anchor(&self, at: u64) -> bool {
        let Some(since) = self.anchor.map(|anchor| at.saturating_sub(anchor)) else { return false };
        if self.interval_ns == 0 || since < self.interval_ns / 2 {
            return false;
        }
        let beyond = since % self.interval_ns;
        // Both sleep clocks are within 500 parts in a million.
        let tolerance = (TURN_NS + since / 1000).min(self.interval_ns / 4);
        beyond.min(self.interval_ns - beyond) <= tolerance
    }

    /// Whether it is an interval behind the event before, wherever that began.
    fn is_next(&self, at: u64) -> bool {
        let tolerance = TURN_NS + self.interval_ns / 1000;
        let is_it = |begin| at.saturating_sub(begin).abs_diff(self.interval_ns) <= tolerance;
        self.interval_ns > 0 && self.begin.is_some_and(is_it)
    }

    /// Whether an event should have begun between the PDU before and this one.
    fn is_past_anchor(&self, at: u64) -> bool {
        let Some(anchor) = self.anchor else { return true };
        let number = |at: u64| at.saturating_sub(anchor) / self.interval_ns;
        number(at.saturating_add(TURN_NS)) > number(self.end)
    }

    /// Whether an event that begins here would be a whole number of units behind the one before.
    fn is_shorter(&self, at: u64) -> bool {
        self.begin.is_none_or(|begin| units(at.saturating_sub(begin)).is_some())
    }

    /// Events since the newest one that was seen, of which nothing was.
    fn unseen(&self, at: u64, counter: Option<u16>) -> u16 {
        if let (Some(counter), Some(last)) = (counter, self.counter) {
            // A counter that goes back began anew.
            return Some(counter.wrapping_sub(last)).filter(|&ahead| ahead < 1 << 15).unwrap_or(1).saturating_sub(1);
        }
        let Some(since) = self.begin.map(|begin| at.saturating_sub(begin)) else { return 0 };
        let is_pending = |update: Update| units(since) == Some(units_of(update.interval_ns));
        if self.interval_ns == 0 || self.pending.is_some_and(|update| is_pending(update) && self.has_come(update, 1)) {
            return 0;
        }
        u16::try_from(((since + self.interval_ns / 2) / self.interval_ns).saturating_sub(1)).unwrap_or(u16::MAX)
    }

    /// Whether the instant of an update is there, so many events from now on.
    fn has_come(&self, update: Update, ahead: u16) -> bool {
        let number = self.counter.map(|counter| counter.wrapping_add(ahead));
        // Instants that are to come are less than half of all numbers ahead (section 5.1.1).
        number.is_some_and(|number| number.wrapping_sub(update.instant) < 1 << 15)
    }

    /// Whether the event before this one is behind the instant of an update, or is that itself.
    fn is_behind(&self, update: Update) -> bool {
        self.counter.is_some_and(|counter| (1..1 << 15).contains(&counter.wrapping_sub(update.instant)))
    }

    /// Whether an update holds, as events are so far apart.
    fn holds(&self, update: Update, apart_ns: u64) -> bool {
        units_of(update.interval_ns) == units_of(apart_ns) && self.has_come(update, 0)
    }

    const fn take(&mut self, update: Update) {
        (self.interval_ns, self.is_told) = (update.interval_ns, true);
        (self.latency, self.pending) = (Some(update.latency), None);
    }

    /// An event begins, near to where the interval has it or not.
    fn anchor(&mut self, at: u64, is_near: bool) {
        if is_near || self.interval_ns == 0 || self.anchor.is_none() {
            self.anchor = Some(at);
        }
        let is_anchor = std::mem::replace(&mut self.is_anchor, true);
        let Some(before) = self.begin.replace(at).filter(|_| is_anchor) else { return };
        let Some(gap) = units(at.saturating_sub(before)) else { return };
        if let Some(update) = self.pending.filter(|update| self.holds(*update, gap * UNIT_NS)) {
            self.take(update);
            self.anchor = Some(at);
        }
        self.gaps[self.next] = gap;
        self.next = (self.next + 1) % KEPT;
        let known = units_of(self.interval_ns);
        if known > 0 && gap % known == 0 {
            self.anchor = Some(at);
        }
        let alike = self.gaps.iter().filter(|&&other| other == gap).count();
        // Where events are not seen, anchors are several intervals apart.
        let may_be_several = known > 0 && gap % known == 0;
        if gap != known && (alike == KEPT || alike >= ALIKE && !may_be_several) {
            (self.interval_ns, self.is_told, self.latency) = (gap * UNIT_NS, false, None);
            self.anchor = Some(at);
        }
    }
}

/// Whether a PDU that begins `at` is the answer to one that has ended then.
pub(super) const fn is_turn(end: u64, at: u64) -> bool {
    at.saturating_sub(end).abs_diff(IFS_NS) <= TURN_NS
}

const fn units_of(interval_ns: u64) -> u64 {
    interval_ns / UNIT_NS
}

/// A distance in whole units, if it is near enough to that.
fn units(gap: u64) -> Option<u64> {
    let units = (gap + UNIT_NS / 2) / UNIT_NS;
    let tolerance = TURN_NS + gap / 1000;
    (UNITS.contains(&units) && gap.abs_diff(units * UNIT_NS) <= tolerance).then_some(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const EMPTY: u64 = 80_000;

    /// An exchange of empty PDUs in each event, the sender told or not; where each stands.
    fn events(rhythm: &mut Rhythm, begins: impl Iterator<Item = u64>, is_told: bool) -> Vec<Stands> {
        let way = |way| is_told.then_some(way);
        begins
            .flat_map(|at| {
                let answer = at + EMPTY + IFS_NS;
                let first = rhythm.pdu(at, at + EMPTY, way(Direction::Forward), None);
                [first, rhythm.pdu(answer, answer + EMPTY, way(Direction::Backward), None)]
            })
            .collect()
    }

    #[test]
    fn turns_and_interval_are_found_by_the_times_alone() {
        for interval in [7 * MS + MS / 2, 30 * MS, 400 * MS] {
            let mut rhythm = Rhythm::default();
            let stands = events(&mut rhythm, (0..20).map(|n| MS + n * interval), false);
            assert_eq!((rhythm.interval_ns, rhythm.is_told), (interval, false));
            assert!(stands.iter().step_by(2).all(|stands| stands.begins_event && stands.way == Direction::Forward));
            assert!(stands.iter().skip(1).step_by(2).all(|it| !it.begins_event && it.way == Direction::Backward));
            assert!(stands.iter().all(|stands| !stands.is_after_hole && stands.unseen_events == 0));
        }
    }

    #[test]
    fn events_that_were_not_seen_are_counted() {
        let mut rhythm = Rhythm::default();
        rhythm.told(30 * MS, 0);
        let stands = events(&mut rhythm, [0, 1, 2, 5, 6].map(|n| n * 30 * MS).into_iter(), true);
        let unseen: Vec<u16> = stands.iter().map(|stands| stands.unseen_events).collect();
        assert_eq!(unseen, [0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
        assert!(rhythm.is_told);
    }

    #[test]
    fn a_pdu_within_an_event_that_was_not_seen_is_a_hole() {
        let mut rhythm = Rhythm::default();
        rhythm.told(30 * MS, 0);
        let way = Some(Direction::Forward);
        rhythm.pdu(0, EMPTY, way, None);
        let third = rhythm.pdu(2 * (EMPTY + IFS_NS), MS, way, None);
        assert!(!third.begins_event && third.is_after_hole);
        let late = rhythm.pdu(30 * MS + EMPTY + IFS_NS, 31 * MS, Some(Direction::Backward), None);
        assert!(late.begins_event && late.is_after_hole);
    }

    #[test]
    fn an_update_that_was_told_holds_once_it_is_seen_and_one_that_was_not_is_found() {
        let mut rhythm = Rhythm::default();
        rhythm.told(30 * MS, 0);
        events(&mut rhythm, (0..5).map(|n| n * 30 * MS), true);
        rhythm.will_be(Update { interval_ns: 60 * MS, latency: 4, instant: 5 });
        let stands = events(&mut rhythm, (3..5).map(|n| n * 60 * MS), true);
        assert_eq!((rhythm.interval_ns, rhythm.is_told, rhythm.latency), (60 * MS, true, Some(4)));
        assert!(stands.iter().all(|stands| stands.unseen_events == 0));
        events(&mut rhythm, (1..6).map(|n| 300 * MS + n * 45 * MS), true);
        assert_eq!((rhythm.interval_ns, rhythm.is_told, rhythm.latency), (45 * MS, false, None));
    }

    #[test]
    fn an_update_of_the_latency_alone_holds_from_its_instant_on() {
        // Of a link whose begin was not seen the events have no numbers.
        for is_from_start in [true, false] {
            let mut rhythm = Rhythm::default();
            if is_from_start {
                rhythm.told(30 * MS, 0);
            }
            events(&mut rhythm, (0..6).map(|n| n * 30 * MS), true);
            let before = rhythm.latency;
            rhythm.will_be(Update { interval_ns: 30 * MS, latency: 9, instant: 11 });
            // One event is not seen.
            events(&mut rhythm, [6, 8, 9, 10].map(|n| n * 30 * MS).into_iter(), true);
            assert_eq!(rhythm.latency, before);
            events(&mut rhythm, [330 * MS].into_iter(), true);
            assert_eq!((rhythm.interval_ns, rhythm.is_told, rhythm.latency), (30 * MS, true, Some(9)));
        }
    }

    #[test]
    fn an_update_of_the_latency_may_be_in_what_was_missed() {
        let (there, back) = (Direction::Forward, Direction::Backward);
        // What is seen of the second event, and whether an update may be in what is not.
        for (seen, hides) in [
            (&[(0, there), (230, back)][..], false),
            (&[(0, there)], false),
            (&[], true),
            (&[(230, back)], true),
            // The answer between two PDUs of the central, and with it one of them.
            (&[(0, there), (460, there)], false),
            (&[(0, there), (1016, there)], true),
            (&[(0, there), (786, back)], true),
        ] {
            let mut rhythm = Rhythm::default();
            rhythm.told(30 * MS, 0);
            events(&mut rhythm, [0].into_iter(), true);
            for &(at_us, way) in seen {
                let at = 30 * MS + at_us * 1000;
                rhythm.pdu(at, at + EMPTY, Some(way), None);
            }
            events(&mut rhythm, (2..6).map(|n| n * 30 * MS), true);
            assert_eq!(rhythm.latency, Some(0).filter(|_| !hides), "{seen:?}");
        }
    }

    #[test]
    fn an_event_that_was_missed_before_the_instant_is_not_the_new_interval() {
        let mut rhythm = Rhythm::default();
        rhythm.told(30 * MS, 0);
        events(&mut rhythm, (0..6).map(|n| n * 30 * MS), true);
        rhythm.will_be(Update { interval_ns: 60 * MS, latency: 4, instant: 12 });
        let stands = events(&mut rhythm, [6, 8, 9, 10, 11].map(|n| n * 30 * MS).into_iter(), true);
        assert_eq!(stands.iter().map(|stands| stands.unseen_events).sum::<u16>(), 1);
        assert_eq!((rhythm.interval_ns, rhythm.latency), (30 * MS, Some(0)));
        // The event of the instant lies in a window of its own.
        events(&mut rhythm, (0..3).map(|n| 361 * MS + n * 60 * MS), true);
        assert_eq!((rhythm.interval_ns, rhythm.is_told, rhythm.latency), (60 * MS, true, Some(4)));
    }

    #[test]
    fn anchors_that_move_are_found_again() {
        let mut rhythm = Rhythm::default();
        rhythm.told(30 * MS, 0);
        let begins = (0..5).map(|n| n * 30 * MS).chain((5..20).map(|n| n * 30 * MS + 10 * MS));
        let stands = events(&mut rhythm, begins, true);
        assert_eq!(stands.iter().filter(|stands| stands.begins_event).count(), 20);
        assert!(stands.iter().all(|stands| stands.unseen_events == 0));
    }

    #[test]
    fn pdus_that_were_missed_within_an_event_begin_none() {
        let mut rhythm = Rhythm::default();
        rhythm.told(30 * MS, 0);
        let mut begins = 0;
        let mut unseen = 0;
        for event in 0..100 {
            let mut at = event * 30 * MS;
            for exchange in 0..8 {
                // Of each event but some one and a half exchanges of 2.4 ms are missed, each time others.
                let missed = [exchange == 1 + event % 6, exchange == 2 + event % 6];
                for (way, is_missed) in [(Direction::Forward, missed[0]), (Direction::Backward, missed[0] || missed[1])]
                {
                    let end = at + 900_000 + event * 1000;
                    if !is_missed {
                        let stands = rhythm.pdu(at, end, Some(way), None);
                        begins += u64::from(stands.begins_event);
                        unseen += u64::from(stands.unseen_events);
                    }
                    at = end + IFS_NS;
                }
            }
        }
        assert!((100..110).contains(&begins), "{begins}");
        assert_eq!((unseen, rhythm.interval_ns), (0, 30 * MS));
    }

    #[test]
    fn a_sniffer_that_counts_events_is_believed() {
        let mut rhythm = Rhythm::default();
        let mut pdu = |at, way, counter| rhythm.pdu(at, at + EMPTY, Some(way), Some(counter));
        assert!(pdu(0, Direction::Forward, 65_534).begins_event);
        assert!(!pdu(MS, Direction::Backward, 65_534).begins_event);
        assert_eq!(pdu(2 * MS, Direction::Forward, 1).unseen_events, 2);
        assert_eq!(pdu(3 * MS, Direction::Forward, 0).unseen_events, 0);
    }

    #[test]
    fn behind_an_instant_that_was_not_seen_there_may_be_another_update() {
        for interval in [30, 60] {
            let mut rhythm = Rhythm::default();
            rhythm.told(30 * MS, 0);
            events(&mut rhythm, (0..6).map(|n| n * 30 * MS), true);
            rhythm.will_be(Update { interval_ns: interval * MS, latency: 0, instant: 12 });
            events(&mut rhythm, (60..70).map(|n| n * 30 * MS), true);
            assert_eq!(rhythm.latency, None, "{interval}");
        }
    }

    #[test]
    fn an_event_of_which_only_the_peripheral_was_seen_is_none_that_was_not() {
        let mut rhythm = Rhythm::default();
        rhythm.told(30 * MS, 0);
        for event in 0..100 {
            let at = event * 30 * MS;
            if event % 10 != 5 {
                rhythm.pdu(at, at + EMPTY, Some(Direction::Forward), None);
            }
            let at = at + EMPTY + IFS_NS;
            let answer = rhythm.pdu(at, at + EMPTY, Some(Direction::Backward), None);
            assert_eq!((answer.begins_event, answer.unseen_events), (event % 10 == 5, 0), "{event}");
        }
        assert_eq!(rhythm.counter, Some(99));
    }

    /// Of three events in five.
    #[test]
    fn events_in_a_row_of_which_only_the_peripheral_was_seen_are_each_one() {
        let mut rhythm = Rhythm::default();
        rhythm.told(30 * MS, 0);
        for event in 0..100 {
            let at = event * 30 * MS;
            let is_whole = event % 5 < 2;
            if is_whole {
                let first = rhythm.pdu(at, at + EMPTY, Some(Direction::Forward), None);
                assert_eq!((first.begins_event, first.unseen_events), (true, 0), "{event}");
            }
            let at = at + EMPTY + IFS_NS;
            let answer = rhythm.pdu(at, at + EMPTY, Some(Direction::Backward), None);
            assert_eq!((answer.begins_event, answer.unseen_events), (!is_whole, 0), "{event}");
        }
        assert_eq!(rhythm.counter, Some(99));
    }

    /// Of each second event the long PDU of the central is missing: its answer is no anchor.
    #[test]
    fn distances_are_those_of_anchors_that_were_seen() {
        let mut rhythm = Rhythm::default();
        rhythm.told(400 * MS, 0);
        for event in 0..40 {
            let at = event * 400 * MS;
            let end = at + 2_120_000;
            if event % 2 == 0 {
                rhythm.pdu(at, end, Some(Direction::Forward), None);
            }
            rhythm.pdu(end + IFS_NS, end + IFS_NS + EMPTY, Some(Direction::Backward), None);
        }
        assert_eq!((rhythm.interval_ns, rhythm.is_told), (400 * MS, true));
    }

    /// Senders are not told, and of each third event the PDU of the central is missing, of the first one too.
    #[test]
    fn anchors_are_those_of_the_central_again_where_some_of_its_pdus_are_missing() {
        let mut rhythm = Rhythm::default();
        rhythm.told(30 * MS, 0);
        let mut begins = 0;
        for event in 0..300 {
            let at = event * 30 * MS;
            let mut ways = Vec::new();
            for (at, is_missing) in [(at, event % 3 == 0 || event % 10 == 1), (at + EMPTY + IFS_NS, false)] {
                if !is_missing {
                    let stands = rhythm.pdu(at, at + EMPTY, None, None);
                    ways.push(stands.way);
                    begins += usize::from(stands.begins_event);
                    assert_eq!(stands.unseen_events, 0, "{event}");
                }
            }
            assert!(ways.len() < 2 || ways == Direction::BOTH, "{event}: {ways:?}");
        }
        assert_eq!(begins, 300);
    }
}
