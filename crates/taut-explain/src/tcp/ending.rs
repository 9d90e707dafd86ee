//! The end of a direction: the last bytes' way, and what was still undecided.

use taut_event::Holder;

use super::half::Half;
use super::sample::Sample;
use super::sight::Lack;

impl Half {
    /// Nothing more comes. `has_pure`: an end of the connection acknowledged without data.
    pub(super) fn finish(&mut self, at: u64, has_pure: bool) {
        self.end_stretch(false);
        if let Some(part) = self.nagle.take() {
            self.breakdown.book(Holder::Nagle, part);
        }
        if self.tally.acks == 0 {
            // Nothing is known of who waited for what; the time was booked so.
            self.lack = Lack::All;
            self.breakdown.close();
            return;
        }
        if let Some(last) = self.last_data {
            let end = if self.is_outstanding() { at } else { self.acked_at.unwrap_or(last) };
            self.repair(end, self.tally.last_place, 0);
            self.book_up_to(Holder::Delivery, end, self.tally.last_place);
        }
        if self.nagle_is_off() {
            self.breakdown.rename(Holder::Nagle, Holder::SendingProgram);
            self.tally.nagle_gaps = Sample::default();
            self.tally.nagle_doubt_ns = 0;
        }
        if self.breakdown.get(Holder::Cork).is_some_and(|cell| cell.episodes < 3) {
            self.breakdown.rename(Holder::Cork, Holder::SendingProgram);
        }
        self.look_back(has_pure);
        self.breakdown.close();
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
