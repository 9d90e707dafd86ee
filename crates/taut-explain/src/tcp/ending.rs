//! The end of a direction: the last bytes' way, and what was still undecided.

use taut_event::Holder;

use super::half::{Half, MS};
use super::sample::Sample;
use super::sight::Lack;
use super::silence::Silence;
use crate::engine::Episode;

/// A silence as long as this at the end is told.
const STALL: u64 = 200 * MS;
/// What is so short, or half as long as what it sent before, and follows the peer's data at once may
/// only acknowledge it, as updates of HTTP/2 windows do.
const RECEIPT_BYTES: u64 = 64;
const RECEIPT_WITHIN: u64 = 10 * MS;

/// How a connection ended, as one direction needs to know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// Its last packet.
    pub(super) at: u64,
    pub(super) place: u64,
    /// An end of it acknowledged without data.
    pub(super) has_pure: bool,
    /// Whether this direction is that of the end that opened the connection.
    pub(super) is_client: bool,
    /// When data last passed the other way.
    pub(super) peer_data: Option<u64>,
    /// From the vantage point to the sender and back.
    pub(super) to_sender: u64,
}

impl Half {
    /// Nothing more comes.
    pub(super) fn finish(&mut self, end: End) {
        self.end_stretch(false);
        if let Some(held) = self.nagle.take() {
            self.breakdown.book(Holder::Nagle, held.part);
        }
        if self.tally.acks == 0 {
            // Nothing is known of who waited for what; the time was booked so.
            self.lack = Lack::All;
            self.breakdown.close();
            return;
        }
        if let Some(last) = self.last_data {
            let until = if self.is_outstanding() { end.at } else { self.acked_at.unwrap_or(last) };
            self.repair(until, self.tally.last_place, 0);
            self.book_up_to(Holder::Delivery, until, self.tally.last_place);
            if !self.is_outstanding() {
                self.stalled(last, end);
            }
        }
        if self.nagle_is_off() {
            self.breakdown.rename(Holder::Nagle, Holder::SendingProgram);
            self.tally.nagle_gaps = Sample::default();
            self.tally.nagle_doubt_ns = 0;
        }
        if self.breakdown.get(Holder::Cork).is_some_and(|cell| cell.episodes < 3) {
            self.breakdown.rename(Holder::Cork, Holder::SendingProgram);
        }
        if self.scale.is_doubtful() {
            self.breakdown.rename(Holder::ReceiveWindow, Holder::NotKnown);
        }
        self.look_back(end.has_pure);
        self.breakdown.close();
    }

    /// A wait that lasted until the end: for a window that stayed closed, or for an answer.
    fn stalled(&mut self, last: u64, end: End) {
        let Some((from, from_place)) = self.booked else { return };
        let is_closed = self.acks.last().is_some_and(|ack| ack.window == 0);
        // Without a probe there may have been nothing to send.
        if is_closed && self.probed_at > 0 && self.acked_at.is_none_or(|acked| self.probed_at >= acked) {
            self.book_up_to(Holder::ReceivingProgram, end.at, end.place);
            return;
        }
        let until = self.fin_at.unwrap_or(end.at).min(end.at);
        let is_last = end.peer_data.is_none_or(|at| at < last);
        if !end.is_client || !is_last || until < from.saturating_add(STALL) {
            return;
        }
        let silence = Episode { from, to: until, places: (from_place, end.place) };
        let length = u64::from(self.last_length);
        let before = self.tally.bytes.saturating_sub(length) / (self.tally.segments.max(2) - 1);
        let is_short = length < RECEIPT_BYTES.max(before / 2);
        let at_once = RECEIPT_WITHIN + end.to_sender;
        let is_receipt = is_short && end.peer_data.is_some_and(|at| last - at < at_once);
        // It went on before without having been answered, or never was.
        if self.unprompted > 0 || is_receipt || end.peer_data.is_none() {
            self.silence = Some(Box::new(Silence::Unclear(silence)));
            return;
        }
        self.silence = Some(Box::new(Silence::Unanswered(silence)));
        self.book_up_to(Holder::PeerTurn, until, end.place);
    }

    /// What was booked as if all acknowledgements were in the capture, if they are not.
    fn look_back(&mut self, has_pure: bool) {
        if !self.sight.has_acks() && self.tally.repeated_segments == 0 {
            self.lack = Lack::All;
            let all = Holder::ALL.into_iter().filter(|holder| !matches!(holder, Holder::Handshake | Holder::NotKnown));
            all.for_each(|holder| self.breakdown.rename(holder, Holder::NotKnown));
        } else if self.sight.lacks_pure(has_pure) {
            self.lack = Lack::Some;
            self.breakdown.rename(Holder::SendingProgram, Holder::NotKnown);
        } else if self.sight.is_patchy(self.tally.segments) {
            self.lack = Lack::Some;
        }
    }
}
