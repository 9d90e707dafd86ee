//! The clock of a capture, which may be set back, or stand far ahead in one packet.

use taut_event::Event;
use taut_time::Instant;

/// Jumps back by less come from the order in which packets of several queues or interfaces are
/// written; in nanoseconds. They are left to each flow.
const LEAST_STEP: u64 = 1_000_000_000;
/// A packet has fewer events; more are not waited for.
const MOST_HELD: usize = 64;

/// Gives each event a time on one timeline that goes on where the clock stepped: no time is booked
/// for a step.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// The highest time given so far.
    last: Option<u64>,
    /// By how much this timeline is ahead of the clock, since that was set back.
    lead: u64,
    /// How often the clock was set back, or stood far ahead in one packet.
    pub(super) steps: u64,
    /// The events of one packet with a time far ahead: the next packet tells whether the clock
    /// went on from there.
    held: Vec<Event>,
}

impl Clock {
    /// The events that were held, if `next` tells their time. Without a next one they stand as they are.
    pub(super) fn release(&mut self, next: Option<&Event>) -> Vec<Event> {
        let Some(first) = self.held.first() else { return Vec::new() };
        if next.is_some_and(|next| next.place == first.place) && self.held.len() < MOST_HELD {
            return Vec::new();
        }
        let at = self.of(first);
        let last = self.last.unwrap_or(at);
        // The next packet goes on from the one before.
        let is_astray = next.map(|next| self.of(next).saturating_add(LEAST_STEP)).is_some_and(|next| {
            let back_before = next < last;
            next < at && !back_before
        });
        let at = if is_astray { last } else { at };
        self.steps += u64::from(is_astray);
        self.last = Some(at);
        let mut held = std::mem::take(&mut self.held);
        held.iter_mut().for_each(|event| event.at = Instant::from_nanos(at));
        held
    }

    /// Whether events wait for the next one to tell their time.
    pub(super) const fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// The event's time, unless it is held.
    pub(super) fn read(&mut self, event: &Event) -> Option<u64> {
        let at = self.of(event);
        let last = self.last.unwrap_or(at);
        if self.holds() || at > last.saturating_add(LEAST_STEP) {
            self.held.push(*event);
            return None;
        }
        let is_set_back = at.saturating_add(LEAST_STEP) < last;
        if is_set_back {
            self.lead = self.lead.saturating_add(last - at);
            self.steps += 1;
        }
        let at = if is_set_back { last } else { at };
        self.last = Some(last.max(at));
        Some(at)
    }

    fn of(&self, event: &Event) -> u64 {
        event.at.as_nanos().saturating_add(self.lead)
    }
}
