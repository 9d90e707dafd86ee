//! Who held the data between two segments of new data. The order of the rules is their precedence;
//! docs/explain.md has each with its reason.

use taut_event::Holder;

use super::acks::Ack;
use super::half::{Half, MS};
use super::state::{Class, Held, Known, Restart, Sent, Shut};
use super::stretch::{Gated, Stretch};
use super::vantage::Loops;
use crate::engine::Episode;

/// Shorter gaps are no waits, in nanoseconds.
const SHORTEST_WAIT: u64 = 300_000;
/// RFC 6928.
const INITIAL_WINDOW_SEGMENTS: u64 = 10;
const SMALL_WINDOW_SEGMENTS: u64 = INITIAL_WINDOW_SEGMENTS + 1;
/// So many holds of Nagle's algorithm are no chance.
const LEAST_HELD: u64 = 3;
/// Linux keeps a corked segment for so long (tcp(7), `TCP_CORK`), and a little for the timer.
const CORK: std::ops::Range<u64> = 198 * MS..213 * MS;

impl Half {
    pub(super) fn classify(&mut self, sent: &Sent, next: u64, known: &Known, loops: &Loops) -> Class {
        let Some((last, _)) = self.booked else { return Class::Burst };
        let gap = sent.at.saturating_sub(last);
        if self.tally.acks == 0 {
            return Class::Hold(Holder::NotKnown);
        }
        let round_trip = loops.round_trip();
        let is_new_release = self.release(known).is_some_and(|ack| ack.at + known.lag > last) && gap > known.slack;
        if gap < SHORTEST_WAIT.max(round_trip / 50) && !is_new_release {
            return Class::Burst;
        }
        if known.left_with_last {
            // What held them both held this one, unless that was over when they left.
            let is_programs =
                matches!(self.before, Some(Class::Hold(Holder::SendingProgram | Holder::PeerTurn)) | None);
            return if is_programs { Class::Hold(Holder::PathQueue) } else { Class::Burst };
        }
        if let Some(shut) = self.receive_window(sent, next, known) {
            self.scale.used_up();
            self.tally.used_up_window = self.tally.used_up_window.max(shut.window);
            let Some(opened) = shut.opened.filter(|&opened| opened + known.slack < sent.at) else {
                return Class::Hold(shut.by);
            };
            // All had gone that was there; what it was open for is somebody else's time.
            self.settle_nagle(Class::Hold(shut.by));
            self.end_stretch(false);
            self.book(Class::Hold(shut.by), opened, sent.place);
            return self.program(opened.max(last), sent.at);
        }
        let mss = self.mss.max(1);
        let is_small = !self.is_whole(sent.len());
        let is_off = self.nagle_is_off();
        let flight_now = next.saturating_sub(known.una);
        if self.is_filled_up(sent, flight_now, known, loops) {
            return Class::Nagle;
        }
        let at_sender = loops.is_at_sender(self.direction);
        let release = self.release(known).filter(|ack| ack.is_pure || !is_small && flight_now >= 2 * mss);
        let Some(&ack) = release else {
            return self.unreleased(sent, next, known, loops);
        };
        let flight_before = next.saturating_sub(ack.una_before);
        let reaction = sent.at.saturating_sub(ack.at);
        let was_covered = self.small.is_some_and(|(end, _)| ack.una_before < end && end <= ack.una);
        // A busy host or path answers late. Where Nagle's algorithm can have held, by a small part
        // of the wait is near enough.
        let held_alone = was_covered && flight_before < mss;
        let tolerance = 1_500_000.max(known.lag / 5).max(if held_alone { gap / 10 } else { 0 });
        if !at_sender && is_small && reaction.abs_diff(known.lag) > tolerance {
            return self.program(last, sent.at);
        }
        if is_small && sent.len() < mss && (was_covered || (1..mss).contains(&flight_before)) {
            if is_off || self.left_bare(&ack, sent, known) {
                return self.program(last, sent.at);
            }
            if let Some((_, then)) = self.small {
                self.tally.nagle_answers.add(ack.at.saturating_sub(then));
                self.tally.nagle_gaps.add(gap);
            }
            return Class::Nagle;
        }
        let is_near = flight_before < 4 * mss || self.writes_parts();
        if is_small && is_near && is_off || self.had_sent_all(flight_before) {
            return self.program(last, sent.at);
        }
        if ack.edge == u64::MAX {
            // The window that an acknowledgement opened may as well be the receiver's.
            return Class::Hold(Holder::NotKnown);
        }
        let had_room = self.edge_then.saturating_sub(next) >= 2 * mss;
        Class::Gated(if self.last_was_pushed && had_room { Gated::WindowOrBuffer } else { Gated::Window })
    }

    /// Of a sender that may be any way off nobody knows what it knew. But after a part of a segment
    /// with PSH it had no more to send.
    pub(super) fn unplaced(&self, sent: &Sent) -> Class {
        let last = self.booked.map_or(sent.at, |(last, _)| last);
        match () {
            () if sent.at.saturating_sub(last) < SHORTEST_WAIT => Class::Burst,
            () if !self.last_was_pushed || self.last_was_full || self.is_outstanding() => Class::Hold(Holder::NotKnown),
            // Nagle's algorithm may have held it until an acknowledgement was there.
            () if sent.len() < self.mss && sent.at - last < 250 * MS => Class::Hold(Holder::NotKnown),
            () => self.program(last, sent.at),
        }
    }

    /// Whether its sender knew this acknowledgement when it sent a segment without data, well before this one: had
    /// this one waited, it would have gone in its place.
    fn left_bare(&self, ack: &Ack, sent: &Sent, known: &Known) -> bool {
        let at = self.bare_at;
        let knew = ack.value.is_some_and(|value| self.bare_echo.wrapping_sub(value) as i32 >= 0);
        // A clock of the other end may say the same of what came a little before.
        knew && at > ack.at + known.lag / 4 * 3 && at + 1_500_000 < sent.at
    }

    /// The window left no room for this segment, until an acknowledgement moved its edge; with how large it was
    /// before, if it is the receiver's buffer that held.
    fn receive_window(&self, sent: &Sent, next: u64, known: &Known) -> Option<Shut> {
        let need = sent.len().min(self.mss);
        let was_full = self.edge_then.saturating_sub(next) < need;
        let released = self.release(known).filter(|ack| ack.edge_before.saturating_sub(next) < need || was_full);
        let before = || {
            let mut since = (self.known_then..known.end).filter_map(|number| self.acks.get(number));
            was_full.then(|| since.find(|ack| ack.edge.saturating_sub(next) >= need))?
        };
        // Behind a segment with PSH nothing waited for the window: what opened it wide long ago held nothing since.
        let is_all = released.is_none() && self.last_was_pushed;
        let wide = need.max(u64::from(self.tally.largest_window) / 2);
        let is_wide = |ack: &&Ack| ack.edge.saturating_sub(next) >= wide;
        let opened_wide = || (self.known_then..known.end).filter_map(|number| self.acks.get(number)).find(is_wide);
        let opened_at = if is_all { opened_wide().map(|ack| ack.at + known.lag) } else { None };
        let opened = released.or_else(before);
        let last = self.last_data.unwrap_or(0).saturating_sub(known.lag);
        let was_zero = self.zero_window_at.is_some_and(|at| at >= last && at < sent.at);
        let Some(ack) = opened else {
            // A part of a segment, as large as the room there was: the persist timer made it.
            let persisted = known.edge.saturating_sub(next) == sent.len() && sent.len() < self.mss;
            let is_late = self.last_data.is_some_and(|last| sent.at - last > 150 * MS);
            return (persisted && is_late).then_some(Shut { by: Holder::ReceivingProgram, window: 0, opened: None });
        };
        let window = ack.edge_before.saturating_sub(ack.una_before);
        let is_late = was_zero || ack.is_shrunk;
        let window = u32::try_from(window).unwrap_or(u32::MAX);
        let (by, window) = if is_late { (Holder::ReceivingProgram, 0) } else { (Holder::ReceiveWindow, window) };
        Some(Shut { by, window, opened: opened_at })
    }

    /// No acknowledgement made the sender send just then.
    fn unreleased(&mut self, sent: &Sent, next: u64, known: &Known, loops: &Loops) -> Class {
        let last = self.booked.map_or(sent.at, |(last, _)| last);
        let gap = sent.at.saturating_sub(last);
        let mss = self.mss.max(1);
        let is_small = !self.is_whole(sent.len());
        let in_flight = next.saturating_sub(known.una);
        if in_flight == 0 {
            let was_prompted = self.peer_data.is_some_and(|then| self.last_data.is_none_or(|last| then > last));
            let is_unprompted = !was_prompted && self.last_data.is_some() && gap > self.round_trip(loops) + 10 * MS;
            self.unprompted = self.unprompted.saturating_add(is_unprompted.into());
            let is_corked = CORK.contains(&gap) && is_small && self.last_was_full && !self.last_was_pushed;
            return if is_corked { Class::Hold(Holder::Cork) } else { self.program(last, sent.at) };
        }
        self.sight.waited();
        let may_hold = sent.len() >= mss && !self.nagle_is_off() && self.small_is_out(sent, known, loops);
        if may_hold && in_flight < 4 * mss && self.tally.small_segments >= 5 {
            return Class::Nagle;
        }
        if sent.len() >= mss && gap < self.round_trip(loops) * 3 / 4 && !self.had_sent_all(in_flight) {
            return Class::Gated(Gated::Paced);
        }
        let class = self.program(last, sent.at);
        let may_stand_still = class == Class::Hold(Holder::SendingProgram) && in_flight >= 4 * mss;
        if may_stand_still && self.stood_still(last, sent, known, loops) {
            return Class::Hold(Holder::NotKnown);
        }
        class
    }

    /// More may have waited behind the last segment, and no acknowledgement came for half a round trip, though one was
    /// due: the path or a whole host stood still.
    fn stood_still(&self, last: u64, sent: &Sent, known: &Known, loops: &Loops) -> bool {
        let round_trip = self.round_trip(loops);
        let had_more = self.last_was_full || !self.last_was_pushed;
        let newest = known.end.checked_sub(1).and_then(|number| self.acks.get(number));
        let heard = newest.map_or(0, |ack| ack.at + known.lag);
        let oldest = self.timing.filter(|&(end, _)| end > known.una).map_or(last, |(_, at)| at.min(last));
        // Those that come all the time come when they are due.
        let slack = if heard + round_trip / 4 >= last { 0 } else { round_trip / 8 };
        let is_due = sent.at > oldest + round_trip + slack;
        had_more && sent.at > heard + round_trip / 2 && is_due
    }

    /// Further writes made a whole segment of what Nagle's algorithm held. It lets those go while a small one is out
    /// (`tcp_nagle_check`, net/ipv4/tcp_output.c), with an acknowledgement only by chance. That it is at work most of
    /// the small ones show, which left just when the one before was acknowledged; and so little in flight no congestion
    /// window held that was not made smaller by a loss (RFC 6928).
    fn is_filled_up(&self, sent: &Sent, in_flight: u64, known: &Known, loops: &Loops) -> bool {
        let segments = if self.tally.repeated_segments == 0 { INITIAL_WINDOW_SEGMENTS } else { 4 };
        if sent.len() < self.mss || in_flight >= segments * self.mss || !self.small_is_out(sent, known, loops) {
            return false;
        }
        let held = self.tally.nagle_gaps.count();
        held >= LEAST_HELD && 2 * held >= self.tally.small_segments && !self.nagle_is_off()
    }

    /// A part of a segment with PSH leaves when there is no more to send. Where so little was in flight, no
    /// congestion window had held it (the initial one is ten segments, RFC 6928), but for one after losses.
    fn had_sent_all(&self, in_flight: u64) -> bool {
        self.last_was_pushed && !self.last_was_full && in_flight < 4 * self.mss && !self.is_repairing()
    }

    /// Nearly all segments are parts, and nothing waited behind the one before: what waits for a window is put together
    /// into whole ones.
    fn writes_parts(&self) -> bool {
        let (segments, small_segments) = (self.tally.segments, self.tally.small_segments);
        segments >= 5 && small_segments >= segments - segments / 8 && self.last_was_pushed && !self.last_was_full
    }

    /// A program had to act: the peer's, when its data came meanwhile. The first request may come with the end of the
    /// opening.
    fn program(&self, last: u64, at: u64) -> Class {
        let is_first = self.last_data.is_none();
        let peer_acted = self.peer_data.is_some_and(|then| (then > last || is_first && then == last) && then <= at);
        Class::Hold(if peer_acted { Holder::PeerTurn } else { Holder::SendingProgram })
    }

    /// Books a gap under what its class comes to.
    pub(super) fn place(&mut self, class: Class, sent: &Sent, known: &Known, loops: &Loops) {
        let class = match class {
            Class::Burst => self.before.unwrap_or(Class::Burst),
            class => {
                self.settle_nagle(class);
                class
            }
        };
        self.repair(sent.at, sent.place, known.lag);
        let Some((from, from_place)) = self.booked else { return };
        if from >= sent.at {
            self.booked = Some((from.max(sent.at), sent.place));
            self.before = Some(class);
            return;
        }
        let part = Episode { from, to: sent.at, places: (from_place, sent.place) };
        match class {
            Class::Gated(gated) => self.gated(gated, part, sent, known, loops),
            Class::Nagle => {
                self.end_stretch(false);
                // Behind a segment without PSH more waits (RFC 9293, section 3.9.1).
                let is_filled = sent.len() >= self.mss;
                let first_in = self.last_was_pushed.then(|| self.tally.first_write_in(sent.len(), is_filled));
                self.nagle = Some(Box::new(Held { part, first_in }));
                self.booked = Some((sent.at, sent.place));
            }
            Class::Hold(Holder::PeerTurn) => {
                self.end_stretch(false);
                // Until the answer was with the sender; after that it is the sender's own time.
                let answered = self.peer_data.map_or(sent.at, |at| at + known.lag).clamp(from, sent.at);
                self.book_up_to(Holder::PeerTurn, answered, sent.place);
                self.book_up_to(Holder::SendingProgram, sent.at, sent.place);
                self.paused(part);
            }
            Class::Hold(holder) => {
                self.end_stretch(false);
                self.book_up_to(holder, sent.at, sent.place);
                if holder == Holder::SendingProgram {
                    self.paused(part);
                }
            }
            Class::Burst => self.book_up_to(Holder::SendingProgram, sent.at, sent.place),
        }
        self.before = Some(match class {
            Class::Hold(Holder::PeerTurn) | Class::Nagle => Class::Hold(Holder::SendingProgram),
            other => other,
        });
    }

    /// A long pause lets the congestion window be made small again.
    fn paused(&mut self, part: Episode) {
        if part.length() > 200 * MS {
            let flight_before = self.peaks.take_burst();
            self.restart = Some(Restart { at: part.to, flight_before, was_small: false });
        }
    }

    /// When the write came that Nagle's algorithm held, a capture does not show. Before the peer's
    /// turn it was right after the one before, and where more waited behind that, it was there. Else it may have been
    /// at any time: of N equal writes the first comes after a part of 1/2N of the gap (half of it, if there was one),
    /// or 1/(2N - 1) where the last one ends it, and the rest is booked.
    fn settle_nagle(&mut self, next: Class) {
        let Some(held) = self.nagle.take() else { return };
        let part = held.part;
        let Some(first_in) = held.first_in.filter(|_| next != Class::Hold(Holder::PeerTurn)) else {
            self.breakdown.book(Holder::Nagle, part);
            return;
        };
        let middle = part.from + part.length() / first_in;
        self.breakdown.book(Holder::SendingProgram, Episode { to: middle, ..part });
        self.breakdown.book(Holder::Nagle, Episode { from: middle, ..part });
        self.tally.nagle_doubt_ns += (middle - part.from).min(part.to - middle);
    }

    /// Congestion control held the data; which part of it?
    fn gated(&mut self, gated: Gated, part: Episode, sent: &Sent, known: &Known, loops: &Loops) {
        let next = self.next.unwrap_or(sent.start);
        let flight = next.saturating_sub(self.release(known).map_or(known.una, |ack| ack.una_before));
        let round_trip = self.round_trip(loops);
        let is_queued = u64::from(self.prompt_us) * 1000 > 2 * loops.round_trip() + 5 * MS;
        let small_window = SMALL_WINDOW_SEGMENTS * self.mss;
        if self.restart.is_some_and(|restart| sent.at > restart.at + 8 * round_trip) {
            self.restart = None;
        }
        // The first round trip after the pause tells whether the window had been made small: it is halved for each
        // timeout that passes in the pause, down to 10 segments (`tcp_cwnd_restart`, net/ipv4/tcp_output.c).
        if let Some(restart) = self.restart.take_if(|restart| !restart.was_small) {
            let (peak, before) = (self.tally.peak_flight, u64::from(restart.flight_before));
            let is_halved = gated != Gated::Paced && 2 * flight <= before;
            let smaller_than = match () {
                () if flight <= small_window && peak > 2 * small_window => Some(peak),
                () if is_halved && before > 2 * small_window => Some(before),
                () => None,
            };
            self.restart = smaller_than.map(|flight| {
                let flight_before = u32::try_from(flight).unwrap_or(u32::MAX);
                Restart { flight_before, was_small: true, ..restart }
            });
        }
        let was_more = self.restart.filter(|restart| restart.was_small).map(|restart| u64::from(restart.flight_before));
        let holder = match () {
            () if was_more.is_some_and(|peak| 2 * flight < peak) => Holder::AfterIdle,
            () if is_queued => Holder::PathQueue,
            () if self.peaks.is_growing() => Holder::SlowStart,
            () => {
                if self.stretch.as_ref().is_some_and(|stretch| stretch.is_full()) {
                    self.end_stretch(false);
                }
                let begin = || Box::new(Stretch::begin(part.from, part.places.0, loops.round_trip()));
                self.stretch.get_or_insert_with(begin).add(gated, part, &mut self.breakdown);
                self.booked = Some((sent.at, sent.place));
                return;
            }
        };
        self.end_stretch(false);
        self.book_up_to(holder, sent.at, sent.place);
    }
}
