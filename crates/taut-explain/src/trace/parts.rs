//! The time of a connection, part by part. The last part is told when the next one has come: what is sent again shows
//! that what seemed to be on its way was lost.

use taut_event::{Direction as Way, Holder};

use crate::engine::{Breakdown, Episode};

/// Who holds data until an acknowledgement comes. While that, or what it would answer, is lost, nobody else holds it.
const UNTIL_ACKNOWLEDGED: [Holder; 7] = [
    Holder::Delivery,
    Holder::CongestionWindow,
    Holder::SlowStart,
    Holder::SendBuffer,
    Holder::ReceiveWindow,
    Holder::Nagle,
    Holder::NotKnown,
];
/// In one call the kernel gives a segment to its device, which may let it leave at once, and tells that it was sent
/// again. That takes less.
const ONE_CALL_NS: u64 = 100_000;
const FORWARD: usize = Way::Forward as usize;
/// So many parts are kept until it is known whether a loss probe was needless.
const MOST_DOUBTED: usize = 1024;

/// What is held, and for whom.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Load {
    /// The first byte, and the one after the last, where known.
    pub(super) bytes: Option<[u64; 2]>,
    /// The thread that wrote it, or that is to read it.
    pub(super) thread: Option<u32>,
}

/// A loss probe of which it is not known yet whether it was needless.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// The socket's count of needless repeats as it was sent.
    pub(super) duplicates: u32,
    /// All that had left by then.
    pub(super) sent_to: u64,
    /// When all of that was acknowledged.
    pub(super) reached: Option<u64>,
    /// A state was seen after that.
    pub(super) is_shown: bool,
    /// When more than that was acknowledged.
    pub(super) answered: Option<u64>,
}

/// What is known of that which a loss probe sent again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Probed {
    /// It was lost.
    Lost,
    /// The peer had it.
    Needless,
    NotKnown,
}

/// Some time of one direction, and whose it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) holder: Holder,
    pub(super) episode: Episode,
    pub(super) load: Load,
    /// By how much the load's thread had more of it than the others.
    lead: u64,
}

impl Part {
    fn new(holder: Holder, (from, to): (u64, u64), load: Load) -> Self {
        Self { holder, episode: Episode { from, to, places: (0, 0) }, load, lead: to - from }
    }

    /// It goes on with what the same holder had right after it. Its thread is the one that had more than half of it, if
    /// one had: with a majority vote over time, which needs no table of threads.
    fn go_on(&mut self, to: u64, load: Load) {
        let length = to - self.episode.to;
        self.episode.to = to;
        // After lost events it is known only of a part.
        self.load.bytes = match (self.load.bytes, load.bytes) {
            (Some([from, to]), Some([_, next])) => Some([from, to.max(next)]),
            (one, other) => one.or(other),
        };
        if self.load.thread == load.thread {
            self.lead += length;
        } else if length > self.lead {
            (self.load.thread, self.lead) = (load.thread, length - self.lead);
        } else {
            self.lead -= length;
        }
    }
}

/// Each nanosecond of both directions to one holder.
#[derive(Debug, Default)]
pub(super) struct Parts {
    breakdowns: [Breakdown; 2],
    /// What each of them is not told yet: the next part may continue it.
    open: [Option<Part>; 2],
    /// The part before the open one of what is sent, if that was the device's queue: it may have dropped what it had.
    queued: Option<Part>,
    /// Those in which data was held, and that are not taken yet.
    held: Vec<(Way, Part)>,
    /// A loss probe was sent, and it is not known yet whether it was needless: then this holder had the time before it.
    doubt: Option<Holder>,
    /// What is sent, part by part, since the doubt began.
    doubted: Vec<Part>,
}

/// Whether data waits meanwhile for more than its way, and it is known why.
pub(super) const fn is_held(holder: Holder) -> bool {
    !matches!(
        holder,
        Holder::SendingProgram | Holder::PeerTurn | Holder::Delivery | Holder::Handshake | Holder::NotKnown
    )
}

impl Parts {
    /// From now on it keeps so many stretches of each direction for a picture.
    pub(super) fn keep_trails(&mut self, limit: usize) {
        self.breakdowns.iter_mut().for_each(|breakdown| breakdown.keep_trail(limit));
    }

    pub(super) const fn breakdown(&self, way: Way) -> &Breakdown {
        &self.breakdowns[way as usize]
    }

    /// One of those in which data was held, and that were told since they were last taken.
    pub(super) fn take_held(&mut self) -> Option<(Way, Part)> {
        self.held.pop()
    }

    pub(super) fn book(&mut self, way: Way, holder: Holder, (from, to): (u64, u64), load: Load) {
        if from >= to {
            return;
        }
        let open = &mut self.open[way as usize];
        match open {
            Some(part) if part.holder == holder && part.episode.to == from => part.go_on(to, load),
            _ => {
                if let Some(done) = open.replace(Part::new(holder, (from, to), load)) {
                    self.close(way, done);
                }
            }
        }
    }

    /// What waited for an acknowledgement until now was lost: from `from` on it waited for a timer. If `is_dropped`,
    /// the device's queue has it no more, and it had not left that.
    pub(super) fn was_lost(&mut self, by: Holder, from: u64, at: u64, is_dropped: bool) {
        let Some(part) = self.open[FORWARD].filter(|part| part.episode.to == at && from < at) else { return };
        let holder = part.holder;
        let is_lost = UNTIL_ACKNOWLEDGED.contains(&holder) || is_dropped && matches!(holder, Holder::DeviceQueue);
        // What is sent again may have left the queue just now.
        let is_just_now = is_dropped && part.episode.length() <= ONE_CALL_NS && (is_lost || holder == by);
        let queued = self.queued.take_if(|queued| is_just_now && queued.episode.to == part.episode.from);
        if !is_lost && queued.is_none() {
            return;
        }
        self.open[FORWARD] = None;
        if by == Holder::TailLossProbe {
            // What the device's queue has dropped is lost.
            let is_dropped = is_dropped && (queued.is_some() || holder == Holder::DeviceQueue);
            self.doubt = Some(holder).filter(|_| !is_dropped);
        }
        for Part { holder, episode, load, .. } in queued.into_iter().chain([part]) {
            let lost_from = from.clamp(episode.from, episode.to);
            self.book(Way::Forward, holder, (episode.from, lost_from), load);
            self.book(Way::Forward, by, (lost_from, episode.to), load);
        }
    }

    /// What became known of the last loss probe. If it was needless, nothing was lost, and the time before goes back to
    /// who seemed to have it.
    pub(super) fn settle_probe(&mut self, probed: Probed) {
        let Some(before) = self.doubt.take() else { return };
        let anew = |part: &mut Part| {
            if part.holder == Holder::TailLossProbe {
                part.holder = match probed {
                    Probed::Lost => Holder::TailLossProbe,
                    Probed::Needless => before,
                    Probed::NotKnown => Holder::NotKnown,
                };
            }
        };
        self.open[FORWARD].iter_mut().for_each(anew);
        let mut parts: Vec<Part> = Vec::new();
        for mut part in std::mem::take(&mut self.doubted) {
            anew(&mut part);
            match parts.last_mut() {
                Some(last) if last.holder == part.holder && last.episode.to == part.episode.from => {
                    last.go_on(part.episode.to, part.load);
                }
                _ => parts.push(part),
            }
        }
        parts.into_iter().for_each(|part| self.tell(Way::Forward, part));
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self) {
        for way in Way::BOTH {
            if let Some(done) = self.open[way as usize].take() {
                self.close(way, done);
            }
        }
        self.close_queued();
        self.breakdowns.iter_mut().for_each(Breakdown::close);
    }

    /// A part is over.
    fn close(&mut self, way: Way, done: Part) {
        if way == Way::Forward {
            self.close_queued();
            if done.holder == Holder::DeviceQueue {
                self.queued = Some(done);
                return;
            }
        }
        self.tell(way, done);
    }

    fn close_queued(&mut self) {
        if let Some(queued) = self.queued.take() {
            self.tell(Way::Forward, queued);
        }
    }

    fn tell(&mut self, way: Way, part: Part) {
        if way == Way::Forward && self.doubt.is_some() {
            self.doubted.push(part);
            if self.doubted.len() >= MOST_DOUBTED {
                self.settle_probe(Probed::NotKnown);
            }
            return;
        }
        self.breakdowns[way as usize].book(part.holder, part.episode);
        if is_held(part.holder) {
            self.held.push((way, part));
        }
    }
}
