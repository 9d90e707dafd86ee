//! Packets that a controller may have and the log lacks: of before the log, or of before a loss.

use taut_event::{Direction, L2cap, RadioLink, Sink};

use super::Bluetooth;
use super::channel::Channel;
use super::link::{Adapter, Link};
use super::out::{NO_BYTES, Out};

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
    /// In this time it would be through with one.
    goes_within_ns: u64,
}

impl Hidden {
    /// From a moment on; with the link as it was last known.
    pub(super) fn new(at: u64, facts: &RadioLink) -> Self {
        Self { since: at, is_peer_heard: false, goes_within_ns: goes_within(facts) }
    }
}

impl Link {
    /// The controller took a packet, or is through with some (with which the peer is heard).
    pub(super) fn moves(&mut self, at: u64, is_peer_heard: bool) {
        if let Some(hidden) = &mut self.hidden {
            hidden.since = at;
            hidden.is_peer_heard |= is_peer_heard;
        }
    }

    /// Something came from the peer.
    pub(super) fn hears(&mut self) {
        if let Some(hidden) = &mut self.hidden {
            hidden.is_peer_heard = true;
        }
    }

    /// Whether a controller that had packets would have been through with one by now.
    fn is_drained(&self, at: u64) -> bool {
        self.queue.is_empty()
            && self.hidden.is_some_and(|hidden| {
                let wait = goes_within(&self.facts).max(hidden.goes_within_ns);
                let wait = if hidden.is_peer_heard { wait } else { LONGEST_SUPERVISION_NS };
                at.saturating_sub(hidden.since) > wait
            })
    }
}

fn goes_within(facts: &RadioLink) -> u64 {
    let event = facts.interval_ns.saturating_mul(1 + u64::from(facts.latency)).max(facts.sniff_ns);
    GOES_WITHIN_NS.max(event.saturating_add(event / 4))
}

impl Adapter {
    /// Whether packets are hidden of any link that takes the buffers which such a link takes.
    pub(super) fn hides(&self, is_classic: bool) -> bool {
        let pool = self.pool(is_classic);
        self.links.iter().any(|link| link.hidden.is_some() && self.pool(link.is_classic) == pool)
    }

    /// Forgets what can't be hidden any more.
    fn uncovers(&mut self, at: u64) {
        // Where the log's packets take all buffers, there are no others.
        let is_full = [false, true].map(|is_classic| self.is_full[self.pool(is_classic)]);
        for link in &mut self.links {
            if link.is_drained(at) || is_full[usize::from(link.is_classic)] {
                link.hidden = None;
            }
        }
    }
}

impl Bluetooth {
    /// Tells the channels of an adapter if packets are hidden, or are no longer.
    pub(super) fn hidden(&mut self, adapter: usize, out: &mut Out<'_, impl Sink>) {
        let owner = &mut self.adapters[adapter];
        owner.uncovers(out.place.at.as_nanos());
        let of_any = [false, true].map(|is_classic| owner.hides(is_classic));
        for link in &mut owner.links {
            let (of_link, of_any) = (link.hidden.is_some(), of_any[usize::from(link.is_classic)]);
            if std::mem::replace(&mut link.hidden_told, [of_link, of_any]) == [of_link, of_any] {
                continue;
            }
            let is_its = |its: &&Channel| (its.adapter, its.handle) == (owner.index, link.handle);
            for its in self.channels.iter().flatten().filter(is_its) {
                out.tell(its.flow, Direction::Forward, L2cap::Hidden { of_link, of_any }, NO_BYTES);
            }
        }
    }
}
