//! What a link did on the air while somebody held a program's data.

use std::collections::BTreeMap;

use taut_event::Holder;

use super::air::Slot;
use super::split::{Doing, Moment, events};
use super::told::Meanwhile;

impl Meanwhile {
    const fn of(&mut self, what: Did) -> &mut u64 {
        match what {
            Did::Data(Doing::OnAir) => &mut self.on_air_ns,
            Did::Data(Doing::Repeats) => &mut self.repeats_ns,
            Did::Data(Doing::WaitsForEvent) => &mut self.waits_for_event_ns,
            Did::Data(Doing::ClosedEarly) => &mut self.closed_early_ns,
            Did::Data(Doing::InEvent) => &mut self.in_event_ns,
            Did::Data(Doing::ReportsLate) => &mut self.reported_late_ns,
            Did::Data(Doing::NotKnown) | Did::NotKnown => &mut self.not_known_ns,
            Did::NothingBetween => &mut self.nothing_between_events_ns,
            Did::NothingInEvent => &mut self.nothing_in_event_ns,
        }
    }
}

/// What a link did at a moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Did {
    /// Its sender's controller had data of this direction.
    Data(Doing),
    NothingBetween,
    NothingInEvent,
    NotKnown,
}

/// What a link did from the first to the last of what the sniffer has of it, without a gap.
#[derive(Debug)]
pub(super) struct Timeline(Vec<(u64, u64, Did)>);

impl Timeline {
    /// By what was on the air, and by what the sender's controller did with its data, which is in order.
    pub(super) fn of(slots: &[Slot], moments: &[Moment]) -> Self {
        let (events, pauses) = events(slots);
        let in_event = events.into_iter().map(|[from, to]| (from, to, Did::NothingInEvent));
        let mut idle: Vec<(u64, u64, Did)> =
            in_event.chain(pauses.into_iter().map(|[from, to]| (from, to, Did::NothingBetween))).collect();
        idle.sort_by_key(|(from, ..)| *from);
        let mut all: Vec<(u64, u64, Did)> = Vec::with_capacity(2 * moments.len() + idle.len());
        let Some(&(start, ..)) = idle.first() else { return Self(all) };
        let end = idle.iter().map(|(_, to, _)| *to).max().unwrap_or(start);
        let (mut at, mut next) = (start, 0);
        // Up to a time without data.
        let mut fill = |all: &mut Vec<(u64, u64, Did)>, at: &mut u64, until: u64| {
            while *at < until {
                while idle.get(next).is_some_and(|(_, to, _)| *to <= *at) {
                    next += 1;
                }
                let (to, what) = match idle.get(next) {
                    Some(&(from, to, what)) if from <= *at => (to, what),
                    Some(&(from, ..)) => (from, Did::NotKnown),
                    None => (until, Did::NotKnown),
                };
                all.push((*at, to.min(until), what));
                *at = to.min(until);
            }
        };
        for moment in moments {
            fill(&mut all, &mut at, moment.from.min(end));
            let (from, to) = (moment.from.max(at), moment.to.min(end));
            if from < to {
                all.push((from, to, Did::Data(moment.what)));
                at = to;
            }
        }
        fill(&mut all, &mut at, end);
        Self(all)
    }

    /// What it did while each holder had the data, and for how long the holders had them outside of its time. The
    /// stretches are in order.
    pub(super) fn rows(&self, spans: &[(u64, u64, Holder)]) -> (BTreeMap<Holder, Meanwhile>, u64) {
        let mut rows: BTreeMap<Holder, Meanwhile> = BTreeMap::new();
        let (mut place, mut outside_ns) = (0, 0);
        for &(from, to, holder) in spans {
            while self.0.get(place).is_some_and(|(_, end, _)| *end <= from) {
                place += 1;
            }
            let within = self.0[place..].iter().take_while(|(begin, ..)| *begin < to);
            let mut seen_ns = 0;
            for &(begin, end, what) in within {
                let held = end.min(to) - begin.max(from);
                *rows.entry(holder).or_default().of(what) += held;
                seen_ns += held;
            }
            outside_ns += to - from - seen_ns;
        }
        (rows, outside_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn slot(at: u64, marks: u16) -> Slot {
        Slot { at: at * MS, air_ns: MS as u32, marks }
    }

    #[test]
    fn each_moment_of_a_holder_has_what_the_air_did() {
        // Events at 10, 40 and 70 ms of 3 ms each; before the last one something was missed.
        let slots = [
            slot(10, Slot::BEGINS),
            slot(12, Slot::BACKWARD),
            slot(40, Slot::BEGINS),
            slot(42, Slot::BACKWARD),
            slot(70, Slot::BEGINS | Slot::HOLE),
            slot(72, Slot::BACKWARD),
        ];
        let moments = [
            Moment { from: 5 * MS, to: 11 * MS, what: Doing::OnAir },
            Moment { from: 20 * MS, to: 41 * MS, what: Doing::WaitsForEvent },
        ];
        let timeline = Timeline::of(&slots, &moments);
        let spans = [
            (0, 15 * MS, Holder::Air),
            (15 * MS, 30 * MS, Holder::Credits),
            (30 * MS, 42 * MS, Holder::Air),
            (42 * MS, 80 * MS, Holder::Credits),
        ];
        let (rows, outside_ns) = timeline.rows(&spans);
        let air = Meanwhile {
            on_air_ns: MS,
            nothing_in_event_ns: 3 * MS,
            nothing_between_events_ns: 2 * MS,
            waits_for_event_ns: 11 * MS,
            ..Meanwhile::default()
        };
        let credits = Meanwhile {
            nothing_between_events_ns: 5 * MS,
            waits_for_event_ns: 10 * MS,
            nothing_in_event_ns: 4 * MS,
            not_known_ns: 27 * MS,
            ..Meanwhile::default()
        };
        assert_eq!((rows[&Holder::Air], rows[&Holder::Credits]), (air, credits));
        // Before the first PDU, and behind the last one.
        assert_eq!(outside_ns, 10 * MS + 7 * MS);
        let all: u64 = rows.values().map(Meanwhile::sum).sum();
        assert_eq!(all + outside_ns, 80 * MS);
    }

    #[test]
    fn without_anything_on_the_air_all_is_outside() {
        let (rows, outside_ns) = Timeline::of(&[], &[]).rows(&[(3, 8, Holder::Air)]);
        assert_eq!((rows.len(), outside_ns), (0, 5));
    }
}
