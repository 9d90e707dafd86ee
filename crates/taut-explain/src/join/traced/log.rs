use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use taut_event::{Address, Closed, Direction as Way, Event, Flow, FlowId, FlowKey, Release, Sink, Stamp, What};
use taut_time::Instant;

use super::super::sightings::{FlowEnds, MOST_SIGHTINGS, Sightings};
use crate::engine::Explanation;
use crate::trace::{Trace, Traced};

/// Something that a trace saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) at: u64,
    /// Its connection, by the number that the capture's sightings have for it.
    pub(super) flow: u32,
    /// The same by the trace, which tells those with the same ends apart.
    pub(super) connection: u32,
    /// Whether the traced end is the first of its ends.
    pub(super) is_first: bool,
    pub(super) what: Marked,
    /// Bytes by TCP's own numbers, counted on beyond 2^32.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) thread: Option<u32>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Marked {
    WriteBegin,
    Written,
    Released(Release),
    Left,
    Acknowledged,
    Received,
    Read,
}

/// So many stretches of the trace's time are kept, 40 bytes each: where the capture lacks short ones, the trace has to
/// tell.
const MOST_STRETCHES: usize = 1 << 20;

/// So many directions of the trace are kept, 1 to 2 KiB each besides their stretches: where ports are used again, many
/// of its connections may be between the ends of one.
const MOST_DIRECTIONS: usize = 1 << 12;
/// Both ways of both ends.
const WAYS: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Open {
    flow: u32,
    /// Numbers of flows are given again, those of connections are not.
    connection: u32,
    is_first: bool,
    is_wanted: bool,
}

/// What a trace saw of the connections of a capture: a sink for its events.
///
/// Of the first [`MOST_SIGHTINGS`] events of these connections it keeps what is held against packets. Of those
/// connections of which the capture's report has directions it books the time as well.
#[derive(Debug)]
pub struct TraceLog<'a> {
    pub(super) sightings: &'a Sightings,
    pub(super) explanation: &'a Explanation,
    wanted: HashSet<FlowEnds>,
    trace: Trace,
    open: HashMap<u32, Open>,
    pub(super) marks: Vec<Mark>,
    pub(super) beyond: u64,
    opened: u32,
    /// Connections between ends that are wanted.
    of_wanted: usize,
    /// So many stretches are drawn of all directions together.
    pub(super) drawn: usize,
}

impl<'a> TraceLog<'a> {
    /// For a capture; stretches of the joined time are drawn up to `limit`, the longest ones.
    pub fn new(sightings: &'a Sightings, explanation: &'a Explanation, limit: usize) -> Self {
        let wanted: HashSet<FlowEnds> =
            explanation.worst.iter().filter_map(|direction| ends(&direction.from, &direction.to)).collect();
        let trace = Trace::new(WAYS * wanted.len().max(1)).with_spans(limit.max(MOST_STRETCHES));
        let (open, marks) = (HashMap::new(), Vec::new());
        Self { sightings, explanation, wanted, trace, open, marks, beyond: 0, opened: 0, of_wanted: 0, drawn: limit }
    }

    /// The time of the connections that are wanted, and what is held against packets.
    pub(super) fn finish(self, end: Instant) -> (Traced, Vec<Mark>) {
        (self.trace.finish(end), self.marks)
    }
}

/// Both ends of a connection of TCP, by their texts.
pub(super) fn ends(from: &str, to: &str) -> Option<FlowEnds> {
    let address = |text: &str| {
        let address: SocketAddr = text.parse().ok()?;
        Some(Address { ip: address.ip(), port: address.port() })
    };
    let (from, to) = (address(from)?, address(to)?);
    Some((from.min(to), from.max(to), false))
}

fn marked(event: &Event) -> Option<Marked> {
    Some(match (event.what, event.direction) {
        (What::Reached(Stamp::WriteBegin), _) => Marked::WriteBegin,
        (What::Reached(Stamp::WriteEnd), _) => Marked::Written,
        (What::Reached(Stamp::Scheduled), Way::Forward) => Marked::Left,
        (What::Reached(Stamp::Acknowledged), Way::Forward) => Marked::Acknowledged,
        (What::Reached(Stamp::Received), Way::Backward) => Marked::Received,
        (What::Reached(Stamp::Read), Way::Backward) => Marked::Read,
        (What::Released(release), _) => Marked::Released(release),
        _ => return None,
    })
}

impl Sink for TraceLog<'_> {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        let FlowKey::Tcp(own, peer) = flow.key else { return };
        let ends = (own.min(peer), own.max(peer), false);
        let Some(number) = self.sightings.flow_between(&ends) else { return };
        self.opened += 1;
        let open = Open {
            flow: number,
            connection: self.opened,
            is_first: own <= peer,
            is_wanted: self.wanted.contains(&ends),
        };
        self.open.insert(id.0, open);
        if open.is_wanted {
            // A port that is used again has several of them. Each end of one has a flow of its own.
            self.of_wanted += 1;
            self.trace.keep((WAYS / 2 * self.of_wanted).min(MOST_DIRECTIONS));
            self.trace.flow(id, flow);
        }
    }

    fn event(&mut self, event: &Event) {
        let Some(&Open { flow, connection, is_first, is_wanted }) = self.open.get(&event.flow.0) else { return };
        if is_wanted {
            self.trace.event(event);
        }
        let Some(what) = marked(event) else { return };
        if self.marks.len() >= MOST_SIGHTINGS {
            self.beyond += 1;
            return;
        }
        let (at, thread) = (event.at.as_nanos(), event.who.map(|task| task.0));
        let (from, to) = (event.bytes.start, event.bytes.end);
        self.marks.push(Mark { at, flow, connection, is_first, what, from, to, thread });
    }

    fn close(&mut self, id: FlowId, why: Closed) {
        if self.open.remove(&id.0).is_some_and(|open| open.is_wanted) {
            self.trace.close(id, why);
        }
    }
}
