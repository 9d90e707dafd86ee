//! Loss probes (TLP, RFC 8985): what one sends again was lost, or the peer had it and only acknowledged late.

use taut_event::SocketState;

use super::Connection;
use crate::trace::parts::{Probe, Probed};

impl Connection {
    /// A probe sends something again.
    pub(super) fn probes(&mut self, state: &SocketState) {
        let (duplicates, sent_to) = (state.duplicates, self.left_to);
        self.probe = Some(Probe { duplicates, sent_to, reached: None, is_shown: false, answered: None });
    }

    /// All up to there is acknowledged. The answer to the probe came no later than that to what left after it.
    pub(super) fn probe_acknowledged(&mut self, at: u64, to: u64) {
        let Some(probe) = &mut self.probe else { return };
        if to >= probe.sent_to {
            probe.reached.get_or_insert(at);
        }
        if to > probe.sent_to {
            probe.answered.get_or_insert(at);
        }
    }

    /// The peer tells in its answer whether it had the segment already. An acknowledgement is worked in only after its
    /// event, so the next one shows what it told. After the end of either direction there is no such event: then the
    /// state shows what is acknowledged, and that was worked in.
    pub(super) fn settle_probe(&mut self, at: u64, state: &SocketState) {
        let acknowledged = self.left_to.saturating_sub(state.in_flight_bytes.into());
        let Some(probe) = &mut self.probe else { return };
        let is_after = |then: Option<u64>| then.is_some_and(|then| at > then);
        let is_worked_in = |then: Option<u64>, is_acknowledged: bool| then.is_none() && is_acknowledged;
        probe.is_shown |= is_after(probe.reached) || is_worked_in(probe.reached, acknowledged >= probe.sent_to);
        let is_needless = state.duplicates > probe.duplicates;
        let is_answered = is_after(probe.answered) || is_worked_in(probe.answered, acknowledged > probe.sent_to);
        if is_needless || is_answered {
            self.probe = None;
            self.parts.settle_probe(if is_needless { Probed::Needless } else { Probed::Lost });
        }
    }

    /// What came meanwhile is not known.
    pub(super) fn probe_is_lost_sight_of(&mut self) {
        self.probe = None;
        self.parts.settle_probe(Probed::NotKnown);
    }

    /// Nothing more comes, and the last probe may never be answered.
    pub(super) fn probe_ends(&mut self) {
        let is_shown = self.probe.take().is_some_and(|probe| probe.is_shown);
        self.parts.settle_probe(if is_shown { Probed::Lost } else { Probed::NotKnown });
    }
}
