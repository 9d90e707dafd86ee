//! Who holds what one direction of a channel has, by the state that it is in.

use taut_event::{Holder, RadioLink};

use super::half::{Half, LEFT_OVER};
use super::turns::Question;

impl Half {
    /// The holder of a stretch up to `at`, with whether packets were left over; `gap` is since the last one went.
    pub(super) fn holder(
        &self,
        is_peers: bool,
        to_answer: Option<Question>,
        (at, gap): (u64, u64),
        link: &RadioLink,
    ) -> (Holder, bool) {
        if self.is_adrift {
            return (Holder::NotKnown, false);
        }
        let is_dry = self.is_dry();
        if self.is_classic {
            return self.holder_classic();
        }
        if !self.is_sent_here() {
            return (self.holder_there(is_dry, is_peers, to_answer, (at, gap), link), false);
        }
        if let Some(has_more) = self.has_more() {
            return self.holder_seen(has_more, is_peers);
        }
        let holder = match self.in_controller.len() {
            0 if self.hides() || self.lacks_credits() || self.tally.is_turnless => Holder::NotKnown,
            0 if is_dry => Holder::Credits,
            0 if is_peers => Holder::PeerTurn,
            // Of other channels: nobody can tell whether this one had anything to send.
            0 if self.is_full() || self.hides_any() => Holder::NotKnown,
            0 => Holder::SendingProgram,
            _ if self.left_over >= LEFT_OVER => return (Holder::ConnectionInterval, true),
            _ if self.lacks_credits() => Holder::NotKnown,
            // How many the last event left over is not known.
            _ if self.hides() && (is_dry || self.is_full) => Holder::NotKnown,
            _ if is_dry => Holder::Credits,
            _ if self.is_full => Holder::ControllerBuffers,
            _ => Holder::ConnectionInterval,
        };
        (holder, false)
    }

    /// Whether the kernel has more of the program than it gave to the controller, where that is seen.
    pub(super) fn has_more(&self) -> Option<bool> {
        self.program.as_ref().and_then(|program| program.has_more())
    }

    /// The same as [`holder`](Self::holder) where the program's writes are seen: a kernel that has more of it hands it
    /// over unless credits or the controller's buffers are missing.
    fn holder_seen(&self, has_more: bool, is_peers: bool) -> (Holder, bool) {
        let count = self.in_controller.len();
        // Where the controller did not tell how many it takes, it is full with as many as it had at most.
        let is_full = self.is_full || self.buffers == 0 && count > 0 && count >= self.most_in_controller;
        let holder = match count {
            0 if !has_more && is_peers => Holder::PeerTurn,
            // While there are no credits Linux takes no writes (`suspend`, net/bluetooth/l2cap_core.c).
            0 if !has_more && self.is_dry() => Holder::Credits,
            0 if !has_more => Holder::SendingProgram,
            _ if self.left_over >= LEFT_OVER && count > 0 => return (Holder::ConnectionInterval, true),
            _ if !has_more => Holder::ConnectionInterval,
            _ if self.lacks_credits() => Holder::NotKnown,
            _ if self.is_dry() => Holder::Credits,
            _ if is_full => Holder::ControllerBuffers,
            _ => Holder::HciQueue,
        };
        (holder, false)
    }

    /// Credits come: where their number was not known and the kernel took nothing of the program, with nothing of it
    /// left to send, there were none since it began to wait (`suspend`, net/bluetooth/l2cap_core.c).
    pub(super) fn learns_credits(&mut self, at: u64) {
        let since = self.program.as_ref().and_then(|program| program.refused_since(at));
        let Some(since) = since.filter(|_| self.lacks_credits() && !self.is_classic && !self.is_adrift) else { return };
        (self.credits, self.dry_since) = (Some(0), Some(since));
        for pending in self.pending.iter_mut().rev().take_while(|pending| pending.part.from >= since) {
            if pending.holder == Holder::NotKnown {
                pending.holder = Holder::Credits;
            }
        }
    }

    /// A write of the program begins: where it could have written before, it held what came since.
    pub(crate) fn write_begins(&mut self) {
        if !self.is_dry() {
            return;
        }
        for pending in self.pending.iter_mut().rev().take_while(|pending| pending.is_tentative) {
            (pending.holder, pending.is_tentative) = (Holder::SendingProgram, false);
        }
    }

    /// Who held what comes from the peer, of which only the arrival is seen.
    fn holder_there(
        &self,
        is_dry: bool,
        is_peers: bool,
        to_answer: Option<Question>,
        (at, gap): (u64, u64),
        link: &RadioLink,
    ) -> Holder {
        // Given credits travel to the peer in one event, and what they allow comes in the next one.
        let round = if self.is_freshly_granted { 2 } else { 1 };
        let interval = self.listens_ns(link);
        let is_within = |rounds: u64, since: u64| {
            interval > 0 && since <= interval.saturating_mul(rounds).saturating_add(interval / 8)
        };
        // An answer of which something has come is made.
        match to_answer.filter(|_| !self.is_amid_sdu()) {
            _ if self.lacks_credits() || self.tally.is_turnless => Holder::NotKnown,
            _ if is_dry => Holder::Credits,
            _ if is_peers => Holder::PeerTurn,
            // The question is not there yet.
            Some(Question { ahead: 1.., .. }) => Holder::PeerTurn,
            // Nobody can tell whether it is.
            Some(Question { is_behind_hidden: true, .. }) => Holder::NotKnown,
            // An answer that is made at once goes in the next event, behind all that the peer has sent before.
            Some(question) if is_within(1, gap.min(at.saturating_sub(question.since))) => Holder::ConnectionInterval,
            Some(_) if interval == 0 => Holder::NotKnown,
            Some(_) => Holder::SendingProgram,
            None if !is_within(round, gap) => Holder::NotKnown,
            None if self.is_freshly_granted => Holder::Credits,
            None => Holder::ConnectionInterval,
        }
    }
}
