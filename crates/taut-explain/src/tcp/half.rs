//! One direction of a connection: what its sender knew when it sent, and who held the data before.

use taut_event::{Event, Holder, Segment, SegmentFlags};

use super::acks::{Ack, AckLog, Echoes};
use super::holes::Holes;
use super::order::Order;
use super::scale::Scale;
use super::sight::{Lack, Sight};
use super::silence::Silence;
use super::state::{Class, Held, Known, Peer, Recovery, Restart, Sent};
use super::stretch::{Peaks, Stretch};
use super::tally::Tally;
use super::vantage::{LONGEST_LOOP, Loops};
use crate::engine::{Breakdown, Episode};

pub(super) const MS: u64 = 1_000_000;
/// So long a way to the sender is looked for, in nanoseconds, where the opening does not tell it.
const LONGEST_WAY: u64 = 1000 * MS;
/// The path takes segments apart by as much all the time, in nanoseconds.
const LEAST_APART: u64 = 5 * MS;
/// By so many ticks of a sender's clock it is known how long one is.
const LEAST_TICKS: u32 = 32;
/// Largest segment of Ethernet.
const ETHERNET_MSS: u64 = 1460;
/// Those of jumbo frames, with and without timestamps, over IPv4 and IPv6.
const JUMBO_MSS: std::ops::RangeInclusive<u64> = 8900..=8960;

/// The tracker of one direction.
#[derive(Debug)]
pub(crate) struct Half {
    pub(super) direction: usize,
    pub(crate) tally: Tally,
    pub(crate) breakdown: Breakdown,
    pub(super) acks: AckLog,
    pub(super) sight: Sight,
    /// What of the acknowledgements the capture lacks, once it is finished.
    pub(crate) lack: Lack,
    pub(super) holes: Holes,
    pub(super) order: Order,
    pub(super) mss: u64,
    pub(super) mss_is_agreed: bool,
    /// Up to where time is booked, and the packet there.
    pub(super) booked: Option<(u64, u64)>,
    pub(crate) span_start: Option<u64>,
    pub(super) last_data: Option<u64>,
    /// When the end of it was sent again, since it had been lost behind this place. 0: it was not.
    pub(super) asked_again: u64,
    pub(super) next: Option<u64>,
    una: Option<u64>,
    /// Position after the last byte, once its sender said so.
    fin: Option<u64>,
    edge: Option<u64>,
    /// The scale of the receive window, where the opening does not tell it.
    pub(crate) scale: Scale,
    pub(super) fin_at: Option<u64>,
    /// Bytes of the last segment of new data; none is longer (RFC 2675).
    pub(super) last_length: u32,
    /// When it last probed a closed window. 0: never.
    pub(super) probed_at: u64,
    /// How often it went on after a pause, all being acknowledged and nothing answered.
    pub(super) unprompted: u32,
    /// How it ended, if that was a wait.
    pub(crate) silence: Option<Box<Silence>>,
    /// What the sender knew when it last sent: the right edge, and the number of the ACK after.
    pub(super) edge_then: u64,
    pub(super) known_then: u64,
    pub(super) last_was_pushed: bool,
    pub(super) last_was_full: bool,
    /// What was sent since the last new data was its last segment again, and all of the time is booked for it.
    pub(super) is_lone_probe: bool,
    /// The last small segment: its end, and when it passed.
    pub(super) small: Option<(u64, u64)>,
    pub(super) peer_data: Option<u64>,
    /// When the last own segment without data passed, and what it echoed. 0: none.
    pub(super) bare_at: u64,
    pub(super) bare_echo: u32,
    pub(super) zero_window_at: Option<u64>,
    pub(super) acked_at: Option<u64>,
    /// The acknowledgement that let the last segment go, by its time, and the sender's clock then.
    /// 0: none, as for the clock.
    released_by: u64,
    value_then: u32,
    /// The first value of that clock, and when it passed, in milliseconds that come round; 0: none. How long a tick is
    /// follows from them.
    first_value: u32,
    first_value_ms: u32,
    pub(super) timing: Option<(u64, u64)>,
    pub(super) smoothed: Option<u64>,
    /// The same of those that no receiver delays, in microseconds. 0: none so far.
    pub(super) prompt_us: u32,
    pub(super) recovery: Option<Recovery>,
    pub(super) echoes: Echoes,
    pub(super) peaks: Peaks,
    pub(super) stretch: Option<Box<Stretch>>,
    pub(super) before: Option<Class>,
    pub(super) nagle: Option<Box<Held>>,
    /// When a pause ended that may have made the congestion window small.
    pub(super) restart: Option<Restart>,
}

/// The size of a full segment, by a payload of this length, where the handshake does not tell it.
/// Longer payloads are several segments at once (TSO, GRO).
const fn likely_mss(len: u64, has_timestamps: bool) -> u64 {
    match len {
        ..=ETHERNET_MSS => len,
        _ if *JUMBO_MSS.start() <= len && len <= *JUMBO_MSS.end() => len,
        _ if has_timestamps => ETHERNET_MSS - 12,
        _ => ETHERNET_MSS,
    }
}

/// When an acknowledgement passed at the earliest that let this go.
const fn earliest(sent: &Sent, lag: u64, slack: u64) -> u64 {
    sent.at.saturating_sub(lag + slack + if lag < MS { 0 } else { lag * 15 / 100 })
}

impl Half {
    pub(crate) fn new(direction: usize) -> Self {
        Self {
            direction,
            tally: Tally::default(),
            breakdown: Breakdown::default(),
            acks: AckLog::default(),
            sight: Sight::default(),
            lack: Lack::Nothing,
            holes: Holes::default(),
            order: Order::default(),
            mss: 1448,
            mss_is_agreed: false,
            booked: None,
            span_start: None,
            last_data: None,
            asked_again: 0,
            next: None,
            una: None,
            fin: None,
            edge: None,
            scale: Scale::default(),
            fin_at: None,
            last_length: 0,
            probed_at: 0,
            unprompted: 0,
            silence: None,
            edge_then: u64::MAX,
            known_then: 0,
            last_was_pushed: false,
            last_was_full: false,
            is_lone_probe: false,
            small: None,
            peer_data: None,
            bare_at: 0,
            bare_echo: 0,
            zero_window_at: None,
            acked_at: None,
            released_by: 0,
            value_then: 0,
            first_value: 0,
            first_value_ms: 0,
            timing: None,
            smoothed: None,
            prompt_us: 0,
            recovery: None,
            echoes: Echoes::default(),
            peaks: Peaks::default(),
            stretch: None,
            before: None,
            nagle: None,
            restart: None,
        }
    }

    /// Time before its first byte: the handshake.
    pub(super) fn opened(&mut self, from: (u64, u64), to: (u64, u64)) {
        if self.booked.is_none() {
            self.span_start = Some(from.0);
            self.breakdown.book(Holder::Handshake, Episode { from: from.0, to: to.0, places: (from.1, to.1) });
            self.booked = Some((to.0.max(from.0), to.1));
        } else if self.tally.segments == 1 && self.last_data.is_some_and(|sent| sent <= from.0) {
            // Its SYN had data, and what comes next waits for the answer all the same.
            let answered = self.acked_at.map_or(to.0, |at| at.min(to.0));
            self.book_up_to(Holder::Handshake, answered, to.1);
        }
    }

    /// Largest segment, agreed on or seen.
    pub(crate) const fn agreed_mss(&self) -> u64 {
        self.mss
    }

    /// Whether so many bytes are whole segments: if not, no more was waiting, or something made it leave early.
    #[inline(always)]
    pub(super) const fn is_whole(&self, length: u64) -> bool {
        // Most are one, and to divide takes long.
        length == self.mss || length.is_multiple_of(if self.mss == 0 { 1 } else { self.mss })
    }

    /// How many segments so many bytes take.
    pub(super) const fn segments_in(&self, length: u64) -> u64 {
        // As above.
        if length <= self.mss { 1 } else { length.div_ceil(if self.mss == 0 { 1 } else { self.mss }) }
    }

    /// When its last data left that is not known to be lost.
    pub(super) fn asked_at(&self) -> Option<u64> {
        self.last_data.map(|at| at.max(self.asked_again))
    }

    pub(super) fn is_outstanding(&self) -> bool {
        self.next.zip(self.una).is_some_and(|(next, una)| una < next)
    }

    /// Whether all bytes before this position have passed, but for holes.
    pub(super) fn has_passed(&self, end: u64) -> bool {
        self.next.is_some_and(|next| end <= next)
    }

    pub(super) fn is_acknowledged(&self, end: u64) -> bool {
        self.una.is_some_and(|una| end <= una)
    }

    /// Whether none of its data has been seen so far, nor its opening.
    const fn has_not_begun(&self) -> bool {
        self.tally.segments == 0 && self.booked.is_none()
    }

    pub(super) fn unseen_bytes(&self) -> u64 {
        self.holes.unseen_bytes
    }

    /// The receiver of this direction acknowledges.
    pub(super) fn acknowledged(&mut self, event: &Event, segment: &Segment, loops: &mut Loops) {
        let at = event.at.as_nanos();
        self.tally.acks += 1;
        self.tally.came_twice(segment.came_twice);
        let is_pure = event.bytes.is_empty();
        let is_first = self.una.is_none();
        // A FIN has a number, and no byte.
        let ack = if self.fin == Some(segment.ack.wrapping_sub(1)) { segment.ack - 1 } else { segment.ack };
        let una_before = self.una.unwrap_or(ack);
        let una = una_before.max(ack);
        let window = self.scale.window(segment);
        let granted = segment.ack + u64::from(window.unwrap_or(segment.window));
        let (edge_before, edge) = match (window.is_some(), segment.window) {
            (true, _) => {
                let before = self.edge.filter(|&edge| edge != u64::MAX).unwrap_or(granted);
                // The newest counts, even when it takes back what was granted.
                (before, if ack < una_before { before } else { granted })
            }
            // Without the scale a window of 0 is known to be one, and no other.
            (false, 0) => (self.edge.unwrap_or(u64::MAX), segment.ack),
            (false, _) => (self.edge.unwrap_or(u64::MAX), u64::MAX),
        };
        (self.una, self.edge) = (Some(una), Some(edge));
        let known_edge = segment.window_is_scaled.then_some(granted);
        self.sight.acknowledged(at, segment, is_pure && !is_first, known_edge);
        match self.next {
            Some(next) if una > next => {
                // What went before the first data that was seen is not missing from among it.
                self.holes.unseen_bytes += if self.has_not_begun() { 0 } else { una - next };
                self.next = Some(una);
            }
            None => self.next = Some(una),
            Some(_) => {}
        }
        if una > una_before {
            self.holes.acknowledged(una);
            self.acked_at = Some(at);
            self.time(at, una, una - una_before, loops);
        }
        if segment.came_twice > 0 {
            self.came_twice();
        }
        self.may_end_repair(una, at);
        let is_reset = segment.flags.has(SegmentFlags::RST);
        if segment.window == 0 && !is_reset {
            self.tally.zero_windows += u64::from(self.acks.last().is_none_or(|last| last.window != 0));
            self.zero_window_at = Some(at);
        }
        let left = edge_before.saturating_sub(una_before);
        let is_shrunk = left.saturating_mul(2) < u64::from(self.tally.largest_window);
        // A SYN grants no more than 65,535 bytes, whatever the buffer (RFC 7323, section 2.2).
        if let Some(window) = window.filter(|_| !segment.flags.has(SegmentFlags::SYN)) {
            self.tally.largest_window = self.tally.largest_window.max(window);
        }
        if !is_pure {
            self.peer_data = Some(at);
        }
        let ack = Ack {
            at,
            una_before,
            una,
            edge_before,
            edge,
            window: segment.window,
            is_scaled: segment.window_is_scaled,
            is_shrunk,
            is_pure,
            is_selective: segment.sacked_to > una,
            value: segment.timestamps.map(|stamps| stamps.value),
        };
        // A direction without data under way is acknowledged with each segment of the other one.
        // Of the newest one it is asked last: it may have left the processor's cache.
        let says_nothing_new = |last: &Ack| !last.rises() && last.window == ack.window;
        let is_repeat = !ack.rises() && !self.is_outstanding() && self.acks.last().is_some_and(says_nothing_new);
        if is_repeat {
            self.acks.replace_last(ack);
        } else {
            self.acks.push(ack);
        }
    }

    /// A sample of the round trip, when the acknowledgement covers the segment that was timed.
    fn time(&mut self, at: u64, una: u64, acked: u64, loops: &mut Loops) {
        let Some((_, sent)) = self.timing.take_if(|(end, _)| una >= *end) else { return };
        let loop_ns = at.saturating_sub(sent).min(LONGEST_LOOP);
        loops.saw_answer(1 - self.direction, loop_ns);
        if loops.known_to_sender(self.direction).is_none() {
            return;
        }
        let behind = if loops.is_at_sender(self.direction) { 0 } else { self.lag(at, loops) };
        let round_trip = loop_ns + behind;
        self.tally.round_trips.add(round_trip);
        self.tally.least_round_trip = Some(self.tally.least_round_trip.unwrap_or(u64::MAX).min(round_trip));
        self.smoothed = Some(self.smoothed.map_or(round_trip, |smoothed| (7 * smoothed + round_trip) / 8));
        // What a receiver may have waited with is no queue of the path: of two segments it says so at once (RFC 1122,
        // section 4.2.3.2).
        if acked >= 2 * self.mss || self.next.is_some_and(|next| next >= una + self.mss) {
            let sample = u32::try_from(round_trip / 1000).unwrap_or(u32::MAX).max(1);
            let so_far = if self.prompt_us == 0 { sample } else { self.prompt_us };
            self.prompt_us = so_far - so_far / 8 + sample / 8;
        }
    }

    pub(super) fn round_trip(&self, loops: &Loops) -> u64 {
        self.smoothed.unwrap_or_else(|| loops.round_trip())
    }

    /// The sender sends a segment of this direction.
    pub(super) fn sent(&mut self, event: &Event, segment: &Segment, loops: &mut Loops, peer: Peer) {
        let (start, end) = (event.bytes.start, event.bytes.end);
        let sent = Sent { at: event.at.as_nanos(), place: event.place, start, end };
        if segment.flags.has(SegmentFlags::FIN) {
            self.fin = Some(end);
            self.fin_at.get_or_insert(sent.at);
        }
        if event.bytes.is_empty() {
            return self.without_data(&sent, segment);
        }
        // What was on the way when the capture began does not lack in it.
        let is_begin = self.has_not_begun();
        self.tally.segments += 1;
        self.tally.last_place = sent.place;
        if self.tally.first_place == 0 {
            self.tally.first_place = sent.place;
        }
        if self.booked.is_none() {
            self.span_start = Some(sent.at);
            self.booked = Some((sent.at, sent.place));
        }
        let next = *self.next.get_or_insert(start);
        let una = *self.una.get_or_insert(start);
        let edge = self.edge.unwrap_or(u64::MAX);
        let is_unseen = self.sight.sent(sent.at, segment, end, self.mss);
        if sent.len() <= 1 && edge <= start {
            self.order.passed_besides(segment);
            return self.probe(&sent);
        }
        if end <= next {
            let sending = self.order.of(segment);
            self.order.passed_besides(segment);
            return self.late(&sent, sending, next, una, edge, loops);
        }
        if start > next && !is_begin {
            self.holes.passed_over(next, start, sent.at);
        }
        if !self.mss_is_agreed {
            let so_far = if self.tally.bytes == 0 { 0 } else { self.mss };
            self.mss = so_far.max(likely_mss(sent.len(), segment.timestamps.is_some())).max(500);
        }
        if let Some(asked_at) = peer.asked_at {
            let think = sent.at.saturating_sub(asked_at).saturating_sub(loops.to_sender(self.direction));
            self.tally.answers.add(think);
        }
        self.follow(sent.at, segment, loops);
        let known = self.known(&sent, segment, loops);
        let may_be_again = !peer.is_owed && start == next;
        if !may_be_again || !self.was_lost(&sent, self.order.lacking_before(segment), &known, loops) {
            let class = match loops.known_to_sender(self.direction) {
                Some(_) => self.classify(&sent, next, &known, loops),
                None => self.unplaced(&sent),
            };
            let class = match class {
                // What let it go is not in the capture.
                Class::Hold(_) | Class::Gated(_) | Class::Nagle if is_unseen => Class::Hold(Holder::NotKnown),
                class => class,
            };
            self.place(class, &sent, &known, loops);
        }
        self.note(&sent, segment, &known, loops);
    }

    /// A segment without data: an acknowledgement, a probe, or a keep-alive.
    fn without_data(&mut self, sent: &Sent, segment: &Segment) {
        if let Some(stamps) = segment.timestamps {
            (self.bare_at, self.bare_echo) = (sent.at, stamps.echo);
        }
        self.order.passed_besides(segment);
        let below = self.una.is_some_and(|una| sent.start + 1 == una);
        if below && self.next.is_some_and(|next| sent.start < next) {
            if self.acks.last().is_some_and(|ack| ack.window == 0) {
                self.tally.window_probes += 1;
                self.probed_at = sent.at.max(1);
            } else {
                self.tally.keep_alives += 1;
            }
        }
    }

    /// A byte beyond the window, or again while it was closed: only the receiving program can open it.
    pub(super) fn probe(&mut self, sent: &Sent) {
        self.tally.window_probes += 1;
        self.probed_at = sent.at.max(1);
        self.book(Class::Hold(Holder::ReceivingProgram), sent.at, sent.place);
    }

    /// What the sender knew when it sent this.
    fn known(&mut self, sent: &Sent, segment: &Segment, loops: &Loops) -> Known {
        if loops.is_at_sender(self.direction) {
            let lag = loops.to_sender(self.direction);
            let (slack, end) = (600_000.max(lag / 10), self.acks.end());
            let (una, edge, unscaled) = self.known_by(self.acks.last(), sent);
            let release = self.acks.last_rise(earliest(sent, lag, slack), end, |_| true);
            return Known { lag, slack, end, una, edge, unscaled, release, left_with_last: false };
        }
        let lag = self.lag(sent.at, loops);
        let slack = 1_500_000.max(lag * 12 / 100);
        let passed = self.acks.passed_by((sent.at + slack).saturating_sub(lag));
        // None newer than the one that it echoes.
        let end = if segment.timestamps.is_some() { passed.min(self.echoes.end) } else { passed };
        let newest = end.checked_sub(1).and_then(|number| self.acks.get(number));
        let (una, edge, unscaled) = self.known_by(newest, sent);
        let echo = segment.timestamps.map(|stamps| stamps.echo);
        // One that it did not have yet did not release it, nor one before the newest that it had.
        let is_newest = |ack: &Ack| echo.is_none_or(|echo| ack.value.is_none_or(|value| value == echo));
        let release = self.acks.last_rise(earliest(sent, lag, slack), end, is_newest);
        // What left 2 ms after another one by the sender's own clock was not released with it.
        let (released_by, value_then) = (self.released_by, self.value_then);
        self.released_by = release.and_then(|number| self.acks.get(number)).map_or(0, |ack| ack.at);
        self.value_then = segment.timestamps.map_or(0, |stamps| stamps.value);
        let is_later = value_then != 0 && (2..1 << 31).contains(&self.value_then.wrapping_sub(value_then));
        let is_used = is_later && self.released_by == released_by;
        if self.first_value_ms == 0 && self.value_then != 0 {
            (self.first_value, self.first_value_ms) = (self.value_then, ((sent.at / MS) as u32).max(1));
        }
        let left_with_last = value_then != 0 && self.left_together(value_then, sent.at);
        Known { lag, slack, end, una, edge, unscaled, release: release.filter(|_| !is_used), left_with_last }
    }

    /// The ACK that let the sender send a segment, if one did just then.
    pub(super) fn release(&self, known: &Known) -> Option<&Ack> {
        known.release.and_then(|number| self.acks.get(number))
    }

    /// What was acknowledged and granted up to the newest acknowledgement that the sender had; and the window as it
    /// stands there, where its scale is not known.
    fn known_by(&self, newest: Option<&Ack>, sent: &Sent) -> (u64, u64, Option<u32>) {
        match newest {
            Some(ack) => (ack.una, ack.edge, (!ack.is_scaled).then_some(ack.window)),
            None => (self.una.unwrap_or(sent.start), self.edge.unwrap_or(u64::MAX), None),
        }
    }

    /// Whether the sender's clock ticked by far less since the last segment than the time that passed here.
    fn left_together(&self, value_then: u32, at: u64) -> bool {
        let Some(gap) = self.last_data.and_then(|last| at.checked_sub(last)) else { return false };
        let ticks = self.value_then.wrapping_sub(value_then);
        let all = self.value_then.wrapping_sub(self.first_value);
        if gap < LEAST_APART || !(LEAST_TICKS..1 << 31).contains(&all) {
            return false;
        }
        let passed_ms = ((at / MS) as u32).wrapping_sub(self.first_value_ms);
        let tick = u64::from(passed_ms) * MS / u64::from(all);
        // Either end of the ticks may have been just before the next one.
        u64::from(ticks).saturating_add(1).saturating_mul(tick).saturating_mul(4) <= gap
    }

    /// Books the time since the last part; a repair of losses that was going on comes first.
    pub(super) fn book(&mut self, class: Class, at: u64, place: u64) {
        let holder = match class {
            Class::Hold(holder) => holder,
            Class::Gated(_) => Holder::CongestionWindow,
            Class::Nagle => Holder::Nagle,
            Class::Burst => Holder::SendingProgram,
        };
        self.repair(at, place, 0);
        self.book_up_to(holder, at, place);
    }

    pub(super) fn book_up_to(&mut self, holder: Holder, at: u64, place: u64) {
        let Some((from, from_place)) = self.booked else { return };
        if at > from {
            self.breakdown.book(holder, Episode { from, to: at, places: (from_place, place) });
            self.booked = Some((at, place));
        }
    }

    pub(super) fn end_stretch(&mut self, was_lossy: bool) {
        // Most have none, and to ask for it is less than to take it.
        if self.stretch.is_some()
            && let Some(stretch) = self.stretch.take()
        {
            stretch.end(&mut self.breakdown, was_lossy);
        }
    }

    fn note(&mut self, sent: &Sent, segment: &Segment, known: &Known, loops: &Loops) {
        let next = self.next.unwrap_or(sent.start);
        self.tally.bytes += sent.end - sent.start.max(next);
        let flight = sent.end.saturating_sub(known.una);
        self.tally.peak_flight = self.tally.peak_flight.max(flight);
        let round_trip = self.round_trip(loops);
        self.peaks.flight(sent.at, flight, round_trip);
        self.edge_then = known.edge;
        if let Some(window) = known.unscaled
            && let Some(bits) = self.scale.flight(flight, window, self.mss)
        {
            self.acks.rescale(bits);
            self.edge = self.acks.last().map(|ack| ack.edge);
            self.edge_then = self.acks.get(known.end - 1).map_or(known.edge, |ack| ack.edge);
            self.breakdown.rename(Holder::ReceiveWindow, Holder::CongestionWindow);
        }
        if let Some(stretch) = &mut self.stretch {
            stretch.flight(sent.at, flight);
        }
        self.last_was_full = self.is_whole(sent.len());
        self.is_lone_probe = false;
        if !self.last_was_full {
            self.tally.small_segments += 1;
            if self.small_is_out(sent, known, loops) {
                self.tally.small_beside_small += 1;
            }
            if known.una >= next && known.release.is_none() && sent.len() < self.mss {
                let length = u16::try_from(sent.len()).unwrap_or(u16::MAX);
                self.tally.lone = [length, self.tally.lone[0], self.tally.lone[1]];
            }
            self.small = Some((sent.end, sent.at));
        }
        self.timing.get_or_insert((sent.end, sent.at));
        self.known_then = known.end;
        self.last_was_pushed = segment.flags.has(SegmentFlags::PSH);
        self.last_data = Some(sent.at);
        self.last_length = u32::try_from(sent.len()).unwrap_or(u32::MAX);
        self.order.passed(segment, self.segments_in(sent.len()));
        self.next = Some(next.max(sent.end));
        // All that a later segment may still look back to.
        let is_sought = segment.timestamps.is_some() && loops.known_to_sender(self.direction).is_none();
        let back = if is_sought { LONGEST_WAY } else { 3 * known.lag + 50 * MS };
        self.acks.forget(sent.at.saturating_sub(back), known.end);
    }

    /// A part of a segment was not acknowledged, as its sender knew at the latest.
    pub(super) fn small_is_out(&self, sent: &Sent, known: &Known, loops: &Loops) -> bool {
        let una = if loops.is_at_sender(self.direction) {
            known.una
        } else {
            let passed = self.acks.passed_by((sent.at + MS / 10).saturating_sub(known.lag));
            passed.checked_sub(1).and_then(|number| self.acks.get(number)).map_or(known.una, |ack| ack.una)
        };
        self.small.is_some_and(|(end, _)| end > una)
    }

    /// With the algorithm no small segment leaves while another one is on its way.
    pub(super) fn nagle_is_off(&self) -> bool {
        let (beside, small) = (self.tally.small_beside_small, self.tally.small_segments);
        beside >= 3 && beside * 100 > small * 3
    }
}
