//! What was lost, is sent again, and how long the repair lasts.

use std::num::NonZeroU64;

use taut_event::Holder;

use super::half::{Half, MS};
use super::holes::Late;
use super::order::Sending;
use super::state::{Class, Known, Recovery, Sent};
use super::vantage::Loops;

/// The least timer of Windows, in nanoseconds; that of Linux is 200 ms (`TCP_RTO_MIN`, include/net/tcp.h). Of a sender
/// that takes a second (RFC 6298, section 2.4) the rest counts as its program's.
const FIRST_TIMER: u64 = 300 * MS;

impl Half {
    /// A segment that is not beyond what has passed.
    pub(super) fn late(&mut self, sent: &Sent, sending: Sending, next: u64, una: u64, edge: u64, loops: &Loops) {
        // From now on what came twice may be this one.
        self.is_lone_probe = false;
        if sent.len() <= 1 && sent.end <= una {
            return self.tally.keep_alive();
        }
        let late = self.holes.late(sent.start, sent.end, sent.at);
        let (to_sender, is_at_sender) = (loops.to_sender(self.direction), loops.is_at_sender(self.direction));
        let segments = self.segments_in(sent.len());
        match late {
            Late::Fills { after } => {
                self.tally.bytes += sent.len();
                // A repetition takes about a round trip from here to its sender and back.
                let is_soon = !is_at_sender && after < to_sender / 2 || after < MS;
                if sending == Sending::First || sending == Sending::Unclear && is_soon {
                    self.tally.reordered += 1;
                    return;
                }
                if sending == Sending::Unclear && after < (150 * MS).max(2 * self.round_trip(loops)) {
                    self.tally.unclear_segments += segments;
                }
            }
            // What left before others that have passed, and has passed itself: a copy, of the network or the capture.
            Late::Repeated if sending == Sending::First => return,
            Late::Repeated if sending == Sending::Unclear && self.is_part_of_newest(sent, next, loops) => return,
            Late::Repeated => {
                // Acknowledged, as the sender knew: it was needless, and held nothing up.
                let long_ago = self.acks.passed_by(sent.at.saturating_sub(2 * to_sender + 10 * MS));
                let known = long_ago.checked_sub(1).and_then(|number| self.acks.get(number));
                if known.is_some_and(|ack| sent.end <= ack.una) {
                    return self.tally.was_needless(segments, sent.len());
                }
                if edge.saturating_sub(una) < self.mss && next.saturating_sub(una) <= self.mss {
                    return self.probe(sent);
                }
            }
        }
        if late == Late::Repeated {
            self.tally.had_passed(segments);
            if sent.end == next && una < next && loops.position(self.direction) < 0.5 {
                self.asked_again = sent.at;
            }
        }
        self.tally.repeated_segments += segments;
        self.tally.repeated_bytes += sent.len();
        self.timing = None;
        let booked = self.booked.map_or(sent.at, |(at, _)| at);
        let last_ack = self.acks.last().copied();
        let quiet_from = booked.max(last_ack.map_or(0, |ack| ack.at)).min(sent.at);
        let quiet = sent.at - quiet_from;
        let round_trip = self.round_trip(loops);
        let in_flight = next.saturating_sub(una);
        let by_timer = quiet > (150 * MS).max(round_trip * 3 / 2);
        let is_selective = last_ack.is_some_and(|ack| ack.is_selective);
        let by_probe = quiet > (4 * MS).max(round_trip * 6 / 5) && !is_selective && in_flight <= 4 * self.mss;
        self.end_stretch(true);
        let is_tail = sent.end == next && sent.start > una;
        let is_first = self.recovery.as_ref().is_none_or(Recovery::is_over);
        let may_be_needless = sent.end == next && !by_timer && !is_selective && is_first;
        if by_timer || by_probe {
            let holder = match by_timer && !is_tail {
                true => Holder::RetransmissionTimeout,
                false => Holder::TailLossProbe,
            };
            self.tally.timeouts += u64::from(holder == Holder::RetransmissionTimeout);
            self.tally.tail_probes += u64::from(holder == Holder::TailLossProbe);
            self.book_up_to(Holder::LossRecovery, quiet_from, sent.place);
            self.book_up_to(holder, sent.at, sent.place);
        } else {
            self.book_up_to(Holder::LossRecovery, sent.at, sent.place);
        }
        let is_alone = |holder: &Holder| self.breakdown.open_since(*holder) == Some(booked);
        self.is_lone_probe = may_be_needless && [Holder::LossRecovery, Holder::TailLossProbe].iter().any(is_alone);
        self.before = Some(Class::Hold(Holder::LossRecovery));
        match &mut self.recovery {
            Some(recovery) if !recovery.is_over() => recovery.repaired = recovery.repaired.max(sent.end),
            recovery => {
                let until = NonZeroU64::new(next).unwrap_or(NonZeroU64::MIN);
                *recovery = Some(Recovery { until, repaired: sent.end, ended: 0 });
            }
        }
    }

    /// A part of the newest segment, sooner than anything could tell its sender of a loss: the capture has that one in
    /// its parts, too, as before and behind a network card that cuts it.
    fn is_part_of_newest(&self, sent: &Sent, next: u64, loops: &Loops) -> bool {
        let newest = u64::from(self.last_length);
        let is_part = sent.len() < newest && sent.start + newest >= next;
        let is_soon = |last: u64| sent.at.saturating_sub(last) < loops.round_trip() / 2;
        is_part && loops.are_known() && self.last_data.is_some_and(is_soon)
    }

    pub(super) const fn is_repairing(&self) -> bool {
        self.recovery.is_some()
    }

    /// New data after a wait, and its sender's identifications tell of a packet before it that has not passed. With
    /// nothing to acknowledge that had data, and these are the next bytes: they were lost before this place, and sent
    /// again by a timer, which is not shorter than two round trips (RFC 8985, section 7.2).
    pub(super) fn was_lost(&mut self, sent: &Sent, lacking: u16, known: &Known, loops: &Loops) -> bool {
        let Some((from, _)) = self.booked.filter(|_| lacking > 0) else { return false };
        let answered = self.peer_data.map_or(from, |at| at.saturating_add(known.lag)).clamp(from, sent.at.max(from));
        // For each packet that lacks a timer ran out, twice as long as the one before; until then there was nothing to
        // send.
        let timers = (1_u64 << lacking.min(16)) - 1;
        let timers = (FIRST_TIMER + 3 * self.round_trip(loops)).saturating_mul(timers);
        let begun = answered.max(sent.at.saturating_sub(timers));
        let wait = sent.at.saturating_sub(begun);
        let is_afar = loops.known_to_sender(self.direction).is_some() && !loops.is_at_sender(self.direction);
        if !is_afar || wait < (4 * MS).max(2 * loops.round_trip()) {
            return false;
        }
        self.end_stretch(true);
        self.repair(answered, sent.place, known.lag);
        self.book_up_to(Holder::PeerTurn, answered, sent.place);
        self.book(Class::Hold(Holder::SendingProgram), begun, sent.place);
        let by_timer = wait > (150 * MS).max(3 * self.round_trip(loops));
        let holder = if by_timer { Holder::RetransmissionTimeout } else { Holder::TailLossProbe };
        self.book_up_to(holder, sent.at, sent.place);
        self.tally.timeouts += u64::from(by_timer);
        self.tally.tail_probes += u64::from(!by_timer);
        self.tally.repeated_segments += 1;
        self.tally.repeated_bytes += sent.len();
        self.timing = None;
        self.before = Some(Class::Hold(Holder::LossRecovery));
        let until = NonZeroU64::new(sent.end).unwrap_or(NonZeroU64::MIN);
        self.recovery = Some(Recovery { until, repaired: sent.end, ended: 0 });
        true
    }

    /// The receiver had before what came again. If that was the last segment alone, nothing was lost: what the sender
    /// waited for is what let it go on (RFC 8985, section 7.4).
    pub(super) fn came_twice(&mut self) {
        if !std::mem::take(&mut self.is_lone_probe) {
            return;
        }
        let from = [Holder::LossRecovery, Holder::TailLossProbe].into_iter();
        if let Some(from) = from.filter_map(|holder| self.breakdown.take_back(holder)).next() {
            (self.booked, self.recovery, self.before) = (Some(from), None, None);
        }
    }

    /// All before `una` is acknowledged.
    pub(super) fn may_end_repair(&mut self, una: u64, at: u64) {
        let Some(recovery) = &mut self.recovery else { return };
        if recovery.is_over() || una < recovery.until.get() {
            return;
        }
        // What was found lost meanwhile has to be repaired as well: a sender begins anew at once (RFC 6675, section 5;
        // `tcp_time_to_recover`, net/ipv4/tcp_input.c).
        match self.next.and_then(NonZeroU64::new).filter(|_| una < recovery.repaired) {
            Some(next) => recovery.until = next,
            None => recovery.ended = at.max(1),
        }
    }

    /// Books the part of a gap in which losses were still being repaired.
    pub(super) fn repair(&mut self, at: u64, place: u64, lag: u64) {
        let Some(recovery) = self.recovery else { return };
        let ended = if recovery.is_over() { recovery.ended.saturating_add(lag) } else { u64::MAX };
        self.book_up_to(Holder::LossRecovery, ended.min(at), place);
        if at >= ended {
            self.recovery = None;
        }
    }
}
