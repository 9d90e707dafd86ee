//! The longest single waits of a trace, over all directions: so that one can be looked up in a log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_event::{Direction as Way, Holder};

use super::connection::Connection;
use super::ends::Ends;
use super::parts::{Load, is_held};
use crate::engine::Held;

/// One stretch in which the same holder had data. The turn of a program, delivery, the handshake and what is not known
/// are none.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TracedWait {
    /// From the beginning of the trace.
    pub begin_ns: u64,
    /// How long.
    pub held_ns: u64,
    /// Who had the data, as in the breakdown: `nagle`.
    pub holder: String,
    /// Which end has to act.
    pub side: String,
    /// Address and port of the sender.
    pub from: String,
    /// Address and port of the receiver.
    pub to: String,
    /// What it is: `tcp`, `udp`, `unix`, `pipe`, `l2cap`, `rfcomm` or `sco`.
    pub transport: String,
    /// Whether the traced socket is the sender.
    pub is_outgoing: bool,
    /// The bytes that waited: the first, and the one after the last, counted from the first byte of this direction that
    /// the trace saw. Both are the same where only the place is known.
    pub bytes: Option<[u64; 2]>,
    /// Of what is sent the thread that wrote last; of what was received the one that then read, or ran, or else the
    /// only one that ever read. Where it changed meanwhile, the one that had more than half of the time, if one had.
    pub thread: Option<u32>,
    /// Name and number of its process, where known.
    pub program: Option<String>,
}

/// The longest ones so far. Until the end their begin is on the clock of the trace.
#[derive(Debug)]
pub(super) struct Waits {
    /// So many are kept.
    pub(super) most: usize,
    longest: Vec<TracedWait>,
}

/// Whether the waits of a direction are told when it is over.
pub(super) fn are_told_at_the_end(connection: &Connection, way: Way) -> bool {
    way == Way::Forward && connection.is_bluetooth()
}

impl Waits {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, longest: Vec::new() }
    }

    /// What a connection has told since the last time.
    pub(super) fn take_from(&mut self, connection: &mut Connection) {
        while let Some((way, part)) = connection.take_held() {
            if !are_told_at_the_end(connection, way) {
                let time = (part.episode.from, part.episode.length());
                self.add(|| Ends::of(connection, way), way, part.holder, time, part.load);
            }
        }
    }

    /// The longest ones of each holder, where no others are known.
    pub(super) fn add_longest(&mut self, connection: &Connection, way: Way, breakdown: &[Held], start: u64) {
        let load = Load { bytes: None, thread: connection.users.of_wait(way, Holder::HciQueue) };
        for held in breakdown {
            let Some(holder) = Holder::named(&held.holder).filter(|&holder| is_held(holder)) else { continue };
            for stall in &held.longest {
                let time = (start.saturating_add(stall.begin_ns), stall.held_ns);
                self.add(|| Ends::of(connection, way), way, holder, time, load);
            }
        }
    }

    fn add(
        &mut self,
        ends: impl FnOnce() -> Option<Ends>,
        way: Way,
        holder: Holder,
        (begin_ns, held_ns): (u64, u64),
        load: Load,
    ) {
        // Most are shorter than those that are kept.
        if self.longest.len() >= self.most && self.longest.last().is_some_and(|least| least.held_ns >= held_ns) {
            return;
        }
        let Some(Ends { transport, from, to }) = ends() else { return };
        let place = self.longest.partition_point(|known| known.held_ns >= held_ns);
        self.longest.truncate(self.most - 1);
        let wait = TracedWait {
            begin_ns,
            held_ns,
            holder: holder.name().to_owned(),
            side: holder.side().to_string(),
            from,
            to,
            transport: transport.to_owned(),
            is_outgoing: way == Way::Forward,
            bytes: load.bytes,
            thread: load.thread,
            program: None,
        };
        self.longest.insert(place, wait);
    }

    /// From the trace's `start`.
    pub(super) fn finish(mut self, start: u64) -> Vec<TracedWait> {
        self.longest.iter_mut().for_each(|wait| wait.begin_ns = wait.begin_ns.saturating_sub(start));
        self.longest
    }
}
