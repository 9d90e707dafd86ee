//! Packets that a controller may have and the log lacks: of before the log, or of before a loss.

use taut_event::RadioLink;

/// A controller that has packets of a link is through with one within this time, where the peer is in reach: the
/// longest connection interval is 4 s (Core Specification, Vol 6, Part B, section 4.5.1), but hardly any is longer.
const GOES_WITHIN_NS: u64 = 1_000_000_000;
/// It has them no longer than this where nothing of the peer is heard: then the link is over (the largest supervision
/// timeout; Core Specification, Vol 4, Part E, section 6.21).
const LONGEST_SUPERVISION_NS: u64 = 40_900_000_000;

/// There may be such packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hidden {
    /// When the controller last took a packet of the link, or told that some were through.
    since: u64,
    /// Whether the peer was heard meanwhile.
    is_peer_heard: bool,
}

impl Hidden {
    /// From a moment on.
    pub(super) const fn new(at: u64) -> Self {
        Self { since: at, is_peer_heard: false }
    }

    /// The controller took a packet, or is through with some (with which the peer is heard).
    pub(super) fn moves(&mut self, at: u64, is_peer_heard: bool) {
        self.since = at;
        self.is_peer_heard |= is_peer_heard;
    }

    /// Something came from the peer.
    pub(super) fn hears(&mut self) {
        self.is_peer_heard = true;
    }

    /// Whether a controller that had packets would have been through with one by now, which takes so long.
    pub(super) fn is_through(&self, at: u64, within_ns: u64) -> bool {
        self.is_over(at) || self.is_peer_heard && at.saturating_sub(self.since) > within_ns
    }

    /// Whether no link would have lasted until now without a word.
    pub(super) fn is_over(&self, at: u64) -> bool {
        at.saturating_sub(self.since) > LONGEST_SUPERVISION_NS
    }
}

/// In this time a controller that has packets of a link is through with one.
pub(super) fn goes_within(facts: &RadioLink) -> u64 {
    let event = facts.interval_ns.saturating_mul(1 + u64::from(facts.latency)).max(facts.sniff_ns);
    GOES_WITHIN_NS.max(event.saturating_add(event / 4))
}
