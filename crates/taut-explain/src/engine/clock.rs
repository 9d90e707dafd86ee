//! The clock of a capture, which may be set back, stand far ahead in a few packets, or be set for the
//! first time while the capture runs.

use taut_event::Event;
use taut_time::Instant;

/// Jumps back by less come from the order in which packets of several queues or interfaces are
/// written; in nanoseconds. They are left to each flow.
const LEAST_STEP: u64 = 1_000_000_000;
/// A packet has fewer events; more are not waited for.
const MOST_HELD: usize = 64;
/// So many events may have a time far behind, and so soon after them the clock goes on as before, in nanoseconds.
const MOST_ASTRAY: u8 = 16;
const SOON: u64 = 10_000_000_000;
/// A pause as long as this, in nanoseconds, is told from a clock that stands ahead by more packets.
const LONG_PAUSE: u64 = 3_600_000_000_000;
const MOST_PACKETS: u32 = 4;
/// 2001-09-09, in nanoseconds since 1970. A clock that says less was never set: boards without a
/// battery begin at 1970, and learn the time from the network.
const WAS_SET: u64 = 1_000_000_000_000_000_000;
/// The year 2554. Only damaged times are later, and clocks that step back again and again; hours that are added to
/// a time do not overflow.
const LATEST: u64 = u64::MAX - (1 << 50);

/// Gives each event a time on one timeline that goes on where the clock stepped: no time is booked
/// for a step.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// The highest time given so far.
    last: Option<u64>,
    /// By how much this timeline is ahead of the clock, since that was set back.
    lead: u64,
    /// The same before it was set back the last time, and how many events may still tell that it was not: the packets
    /// before had a time far behind.
    before: (u64, u8),
    /// By how much it is behind the clock, since that was set for the first time.
    lag: u64,
    /// How often the clock was set, or stood far ahead in a few packets.
    pub(super) steps: u64,
    /// The events of packets with a time far ahead: the next packets tell whether the clock went on
    /// from there.
    held: Vec<Event>,
    /// Of so many packets.
    packets: u32,
}

impl Clock {
    /// The events that were held, if `next` tells their time. Without a next one they stand as they are.
    pub(super) fn release(&mut self, next: Option<&Event>) -> Vec<Event> {
        let (Some(first), Some(newest)) = (self.held.first(), self.held.last()) else { return Vec::new() };
        let is_full = self.held.len() >= MOST_HELD;
        if next.is_some_and(|next| next.place == newest.place) && !is_full {
            return Vec::new();
        }
        let at = self.of(first);
        let last = self.last.unwrap_or(at);
        let soon = next.map(|next| self.of(next).saturating_add(LEAST_STEP));
        // The next packet goes on from the one before.
        let is_astray = soon.is_some_and(|soon| soon < at && soon >= last);
        let is_ahead = soon.is_some_and(|soon| soon >= at);
        if is_ahead && at > last.saturating_add(LONG_PAUSE) && self.packets < MOST_PACKETS && !is_full {
            self.packets += 1;
            return Vec::new();
        }
        let is_first_set = !is_astray && last < WAS_SET && at >= WAS_SET;
        if is_first_set {
            self.lag = self.lag.saturating_add(at - last);
        }
        self.steps += u64::from(is_astray || is_first_set);
        self.packets = 0;
        let mut held = std::mem::take(&mut self.held);
        let mut reached = last;
        for event in &mut held {
            reached = if is_astray { last } else { reached.max(self.of(event)) };
            event.at = Instant::from_nanos(reached);
        }
        self.last = Some(reached);
        held
    }

    /// Whether events wait for the next one to tell their time.
    pub(super) const fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether an event's time is as it stands, as of nearly all: the clock was not set so far, nor is it now.
    #[inline(always)]
    pub(super) fn goes_on(&mut self, at: u64) -> bool {
        let is_plain = self.lead == 0 && self.lag == 0 && self.held.is_empty() && at <= LATEST;
        let Some(last) = self.last.filter(|&last| is_plain && at.abs_diff(last) <= LEAST_STEP) else { return false };
        self.last = Some(last.max(at));
        true
    }

    /// The event's time, unless it is held.
    pub(super) fn read(&mut self, event: &Event) -> Option<u64> {
        let last = self.last.unwrap_or_else(|| self.of(event));
        self.may_go_on_as_before(event, last);
        let at = self.of(event);
        if self.holds() || at > last.saturating_add(LEAST_STEP) {
            self.held.push(*event);
            return None;
        }
        let is_set_back = at.saturating_add(LEAST_STEP) < last;
        if is_set_back {
            self.before = (self.lead, MOST_ASTRAY);
            self.lead = self.lead.saturating_add(last - at);
            self.steps += 1;
        }
        let at = if is_set_back { last } else { at };
        self.last = Some(last.max(at));
        Some(at)
    }

    /// After few packets with a time far behind the clock is where it was.
    fn may_go_on_as_before(&mut self, event: &Event, last: u64) {
        let (lead, left) = self.before;
        if left == 0 || self.holds() {
            return;
        }
        self.before.1 -= 1;
        let at = event.at.as_nanos().saturating_add(lead).saturating_sub(self.lag);
        let goes_on = at.saturating_add(LEAST_STEP) >= last && at <= last.saturating_add(SOON);
        if goes_on && self.of(event) > last.saturating_add(SOON) {
            (self.lead, self.before) = (lead, (0, 0));
        }
    }

    fn of(&self, event: &Event) -> u64 {
        event.at.as_nanos().saturating_add(self.lead).saturating_sub(self.lag).min(LATEST)
    }
}
