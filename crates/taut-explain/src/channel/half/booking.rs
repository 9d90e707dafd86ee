//! Stretches that are pending are booked, once it is known how much of them was air time.

use taut_event::Holder;

use super::{Half, Pending};
use crate::engine::Episode;

impl Half {
    /// Books what is pending, the last `air_ns` of it to the air.
    pub(super) fn settle(&mut self, air_ns: u64) {
        let whole: u64 = self.pending.iter().map(|pending| pending.part.length()).sum();
        let mut others = whole.saturating_sub(air_ns);
        self.tally.air_ns += whole - others;
        while let Some(mut pending) = self.pending.pop_front() {
            let length = pending.part.length();
            let own = length.min(others);
            others -= own;
            let whole = pending.part;
            pending.part.to = whole.from + own;
            self.book(pending);
            self.uses.add(&pending.link, length - own);
            self.put(Holder::Air, Episode { from: whole.from + own, ..whole }, pending.is_awaited);
        }
    }

    /// Books a part, and whether the program waited for room meanwhile.
    fn put(&mut self, holder: Holder, part: Episode, is_awaited: bool) {
        if let Some(program) = self.program.as_mut().filter(|_| is_awaited && part.from < part.to) {
            program.waited_ns[holder.index()] += part.length();
        }
        self.breakdown.book(holder, part);
    }

    pub(super) fn book(&mut self, pending: Pending) {
        let Pending { holder, is_queued, is_awaited, is_hidden, part, link, .. } = pending;
        if is_hidden && holder == Holder::NotKnown {
            self.tally.hidden_ns += part.length();
        }
        if matches!(holder, Holder::Credits | Holder::ControllerBuffers | Holder::ConnectionInterval) {
            self.uses.add(&link, part.length());
        }
        if holder != Holder::ConnectionInterval {
            self.tally.queued_ns += if is_queued { part.length() } else { 0 };
            self.put(holder, part, is_awaited);
            return;
        }
        // An event comes each interval, and the receiver need not listen to all: what waits longer was not waiting
        // for one.
        let waits = part.length().min(self.listens_ns(&link));
        let skips = waits.saturating_sub(link.interval_ns);
        self.tally.skipped_ns += skips;
        if is_queued {
            self.tally.queued_ns += part.length() - skips;
        } else {
            // What is longer is not for want of an event, and another interval would not make it shorter.
            self.tally.unqueued_ns += waits - skips;
            // A controller may report only in the next event that a packet is through.
            self.tally.overdue_ns += (part.length() - waits).saturating_sub(link.interval_ns);
        }
        let split = part.from + waits;
        self.put(holder, Episode { to: split, ..part }, is_awaited);
        self.put(Holder::Air, Episode { from: split, ..part }, is_awaited);
    }

    /// An answer came: what passed until then is over, whether or not anything follows.
    pub(in super::super) fn answered(&mut self) {
        if self.is_sent_here && self.in_controller.is_empty() {
            self.settle(0);
        }
    }

    /// Nothing more comes. What is waited for, by the sender or for a question's answer, was waited for until now;
    /// where nothing is, nobody held anything.
    pub(in super::super) fn ended(&mut self, at: u64, is_open: bool) {
        let is_dry = self.is_dry();
        if let (true, Some(since)) = (is_dry, self.dry_since) {
            self.tally.ungranted = Some(at.saturating_sub(since));
        }
        if is_dry || is_open || !self.in_controller.is_empty() || self.has_more() == Some(true) {
            self.settle(0);
        }
        self.pending.clear();
    }
}
