//! A link of a controller, and the controller's buffers.

use std::collections::VecDeque;

use taut_air::l2cap::Reassembly;
use taut_event::RadioLink;

use super::avdtp::Streams;
use super::hidden::{Hidden, goes_within};

/// So many packets are remembered until the controller tells that they went.
const MOST_QUEUED: usize = 4096;
/// So many requests for channels may wait for an answer.
const MOST_ASKED: usize = 16;

/// So many links that ended lately are remembered.
const MOST_ENDED: usize = 64;
/// No thread of a host logs so much later than another one.
const JUST_NS: u64 = 1_000_000_000;

/// An adapter with its links.
#[derive(Debug, Default)]
pub(super) struct Adapter {
    pub(super) index: u16,
    /// Packets that the controller has in the buffers for links of LE alone, and in those for others.
    pub(super) in_use: [u16; 2],
    /// Packets for links of LE alone that it takes; 0: not seen, or none.
    pub(super) of: u16,
    /// Longest packet for links of LE; 0: not seen, or the same as for others.
    pub(super) length: u16,
    /// Packets that it takes for links of BR/EDR, and for all where it has none for LE alone; 0: not seen.
    pub(super) shared: u16,
    pub(super) is_full: [bool; 2],
    /// Whether there ever was a Number Of Completed Packets.
    pub(super) tells_completions: bool,
    pub(super) links: Vec<Link>,
    /// Handles of links that ended lately, and when.
    pub(super) ended: Vec<(u16, u64)>,
}

impl Adapter {
    /// The link of a handle is over, if there is one.
    pub(super) fn ends(&mut self, handle: u16, at: u64) {
        let Some(index) = self.links.iter().position(|link| link.handle == handle) else { return };
        let link = self.links.remove(index);
        let pool = self.pool(link.is_classic);
        self.in_use[pool] = self.in_use[pool].saturating_sub(link.queue.len() as u16);
        self.ended.retain(|&(ended, when)| ended != handle && at.saturating_sub(when) < JUST_NS);
        if self.ended.len() == MOST_ENDED {
            self.ended.remove(0);
        }
        self.ended.push((handle, at));
    }

    /// Whether what is sent to a handle was meant for a link that is just over: a host may log that in one thread, and
    /// what it sends in another.
    pub(super) fn has_just_ended(&self, handle: u16, at: u64) -> bool {
        let is_it = |&(ended, when): &(u16, u64)| ended == handle && at.saturating_sub(when) < JUST_NS;
        self.ended.iter().any(is_it) && !self.links.iter().any(|link| link.handle == handle)
    }

    /// Which buffers a link's packets take: 0 those for LE alone, 1 the others.
    pub(super) const fn pool(&self, is_classic: bool) -> usize {
        if is_classic || self.of == 0 { 1 } else { 0 }
    }

    /// So many packets fit into them; 0: not seen.
    pub(super) const fn buffers(&self, pool: usize) -> u16 {
        if pool == 0 { self.of } else { self.shared }
    }
}

/// A link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) handle: u16,
    pub(super) is_classic: bool,
    pub(super) peer: Option<[u8; 6]>,
    pub(super) facts: RadioLink,
    /// Whether its channels know its mode.
    pub(super) is_mode_told: bool,
    /// The slots of the channels whose packets the controller has, oldest first.
    pub(super) queue: VecDeque<Option<usize>>,
    /// Whether it may have more, which the log lacks.
    pub(super) hidden: Option<Hidden>,
    /// In this time the controller was through with a packet when the interval was last known.
    went_within_ns: u64,
    /// What its channels were told of that: of this link, and of any that takes the same buffers. `None`: not all the
    /// same.
    pub(super) hidden_told: Option<[bool; 2]>,
    /// Whether packets of the log were lost.
    pub(super) is_lossy: bool,
    pub(super) signalling: [Reassembly; 2],
    pub(super) current: [Option<Current>; 2],
    /// Whether a PDU may be under way of which the log lacks the begin.
    pub(super) is_amid: [bool; 2],
    /// Whether the header of the PDU under way was not kept.
    pub(super) is_headless: [bool; 2],
    pub(super) asked: VecDeque<Asked>,
    pub(super) streams: Streams,
}

/// The PDU under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    pub(super) cid: u16,
    pub(super) slot: Option<usize>,
    /// Bytes that it still lacks, with its header.
    pub(super) left: usize,
    /// Bytes before the program's, without the header of L2CAP, and behind them.
    pub(super) around: [usize; 2],
}

/// A request for a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) way: usize,
    pub(super) identifier: u8,
    pub(super) slot: usize,
    pub(super) source: u16,
    /// Longest SDU, longest PDU and credits.
    pub(super) limits: [u16; 3],
}

/// What a link begins with, until more is known.
const NOT_KNOWN: RadioLink = RadioLink {
    interval_ns: 0,
    latency: 0,
    is_central: None,
    phy: [1; 2],
    length: [27; 2],
    is_encrypted: false,
    from_start: false,
    sniff_ns: 0,
};

impl Link {
    pub(super) fn new(handle: u16) -> Self {
        Self {
            handle,
            is_classic: false,
            peer: None,
            facts: NOT_KNOWN,
            is_mode_told: true,
            queue: VecDeque::new(),
            hidden: None,
            went_within_ns: 0,
            hidden_told: Some([false; 2]),
            is_lossy: false,
            signalling: Default::default(),
            current: [None; 2],
            is_amid: [true; 2],
            is_headless: [false; 2],
            asked: VecDeque::new(),
            streams: Streams::default(),
        }
    }

    /// The log has its begin.
    pub(super) const fn begins(&mut self) {
        (self.facts.from_start, self.hidden, self.is_amid) = (true, None, [false; 2]);
    }

    /// Packets of the log were lost: with them perhaps the link's end and another one's begin, or a change of its
    /// interval, PHY or lengths.
    pub(super) fn loses_packets(&mut self, at: u64) {
        self.may_hide(at);
        self.is_lossy = true;
        self.peer = None;
        let RadioLink { is_central, is_encrypted, sniff_ns, .. } = self.facts;
        self.facts = RadioLink { is_central, is_encrypted, sniff_ns, ..NOT_KNOWN };
    }

    /// From now on its controller may have packets that the log lacks.
    pub(super) fn may_hide(&mut self, at: u64) {
        self.hidden = Some(Hidden::new(at));
        if self.facts.interval_ns > 0 {
            self.went_within_ns = goes_within(&self.facts);
        }
        // Channels may be told of a loss, which says the same.
        self.hidden_told = None;
    }

    /// Remembers a packet, and tells whether the oldest one had to be forgotten for it.
    pub(super) fn queued(&mut self, slot: Option<usize>, at: u64) -> bool {
        let is_many = self.queue.len() == MOST_QUEUED;
        if is_many {
            self.queue.pop_front();
            self.may_hide(at);
        }
        self.queue.push_back(slot);
        is_many
    }

    pub(super) fn asks(&mut self, asked: Asked) {
        if self.asked.len() == MOST_ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back(asked);
    }

    /// The request that an answer in direction `way` is for.
    pub(super) fn answered(&mut self, way: usize, identifier: u8) -> Option<Asked> {
        let index = self.asked.iter().position(|asked| asked.way != way && asked.identifier == identifier)?;
        self.asked.remove(index)
    }
}

impl Link {
    /// The controller took a packet, or is through with some (with which the peer is heard).
    pub(super) fn moves(&mut self, at: u64, is_peer_heard: bool) {
        self.hidden.iter_mut().for_each(|hidden| hidden.moves(at, is_peer_heard));
    }

    /// Something came from the peer.
    pub(super) fn hears(&mut self) {
        self.hidden.iter_mut().for_each(Hidden::hears);
    }

    /// Whether a controller that had packets would have been through with one by now. Those of the log are no sign that
    /// it has more where no link would have lasted so long: it tells of none any more.
    fn is_drained(&self, at: u64) -> bool {
        self.hidden.is_some_and(|hidden| match self.queue.is_empty() {
            true => hidden.is_through(at, goes_within(&self.facts).max(self.went_within_ns)),
            false => hidden.is_over(at),
        })
    }
}

impl Adapter {
    /// Whether packets are hidden of any link that takes the buffers which such a link takes.
    pub(super) fn hides(&self, is_classic: bool) -> bool {
        let pool = self.pool(is_classic);
        self.links.iter().any(|link| link.hidden.is_some() && self.pool(link.is_classic) == pool)
    }

    /// Forgets what can't be hidden any more.
    pub(super) fn uncovers(&mut self, at: u64) {
        // Where the log's packets take all buffers, there are no others.
        let pools = [false, true].map(|is_classic| self.pool(is_classic));
        for link in &mut self.links {
            let pool = pools[usize::from(link.is_classic)];
            if link.is_drained(at) {
                self.in_use[pool] = self.in_use[pool].saturating_sub(link.queue.len() as u16);
                link.queue.clear();
                link.hidden = None;
            } else if self.is_full[pool] {
                link.hidden = None;
            }
        }
    }
}
