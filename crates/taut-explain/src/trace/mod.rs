//! The ledger of a live trace: who held what a program wrote, from the states of its sockets at each event.
//!
//! A source reports writes, segments that leave, acknowledgements, reads, and after each of them the socket's
//! [state](taut_event::SocketState). Between two events the holder is the one that [`holder`](crate::socket::holder)
//! names for the state after the first, so each nanosecond has one. While nothing is to be sent it is somebody's
//! turn, which the next event tells. No events are kept.

mod call;
mod connection;
mod ends;
mod finding;
mod message;
mod parts;
mod place;
mod radio;
mod readiness;
mod report;
mod so_far;
mod tally;
mod thread;
mod wait;
mod writes;

#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use taut_event::{Address, Closed, Event, Flow, FlowId, FlowKey, Holder, Sink, Stamp, What};
use taut_time::Instant;

use connection::Connection;
pub use finding::{causes, holders};
pub use message::{MessageTimes, TracedMessages};
use radio::Radio;
pub use readiness::{ReadinessPart, TracedReadiness};
pub use report::{Releases, Traced, TracedDirection};
pub use so_far::FoundSoFar;
use thread::Threads;
pub use thread::{HeldByPrograms, TracedThread, TracedThreads};
pub use wait::TracedWait;
use wait::Waits;

use crate::engine::{Allowance, Causes, Held};

/// So many connections with the same ends are told apart.
const MOST_ALIKE: usize = 64;
/// Writes that wait for their last byte to leave, over all connections: 4 MiB. Of more the earliest of the same
/// connection are not followed.
const MOST_WAITING: usize = 1 << 18;

/// Takes the events of a live source, gives a [`Traced`].
#[derive(Debug)]
pub struct Trace {
    connections: Vec<Option<Box<Connection>>>,
    kept: usize,
    start: Option<u64>,
    end: u64,
    worst: Vec<Kept>,
    totals: BTreeMap<Holder, (u64, u64)>,
    causes: Causes,
    /// Those that are open, each as the end that is traced and the other one, with the number of its flow. Several have
    /// the same ends where each is in a network namespace of its own.
    open: HashMap<(Address, Address), Vec<u32>>,
    /// Writes of open connections that wait for their last byte to leave.
    waiting: usize,
    flows: u64,
    others: u64,
    directions: u64,
    /// Of those that are closed.
    closed: Written,
    /// Where pictures are wanted.
    pictures: Option<Allowance>,
    /// Channels of Bluetooth.
    radio: Radio,
    threads: Threads,
    waits: Waits,
}

/// A report that is kept.
#[derive(Debug)]
struct Kept {
    weight: u64,
    /// When the trace had begun, as far as was known: a connection may be told of only when it is accepted, with what
    /// came for it since it opened.
    start: u64,
    direction: TracedDirection,
}

impl Kept {
    /// All its begins counted from the trace's `start`.
    fn since(mut self, start: u64) -> TracedDirection {
        self.direction.begins_later(self.start.saturating_sub(start));
        self.direction
    }
}

/// Sums over what traced programs wrote by TCP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Written {
    /// Writes that the kernel took something of.
    pub writes: u64,
    /// Of them, those that were still in the socket when the call came back.
    pub held_writes: u64,
    /// Time in which something was held, over all connections, by holder in the order of [`Holder::ALL`].
    pub held_ns: [u64; Holder::ALL.len()],
}

impl Written {
    fn add(&mut self, connection: &Connection) {
        if connection.local().is_some() {
            return;
        }
        self.writes += connection.tally.writes;
        self.held_writes += connection.tally.held.count();
        let breakdown = connection.breakdown(taut_event::Direction::Forward);
        for (holder, sum) in Holder::ALL.into_iter().zip(&mut self.held_ns) {
            *sum = sum.saturating_add(breakdown.get(holder).map_or(0, |cell| cell.ns));
        }
    }

    /// What came after an earlier moment.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        self.writes -= earlier.writes.min(self.writes);
        self.held_writes -= earlier.held_writes.min(self.held_writes);
        self.held_ns.iter_mut().zip(earlier.held_ns).for_each(|(ns, before)| *ns = ns.saturating_sub(before));
        self
    }

    /// Time for which one holder had something.
    pub const fn held_by(&self, holder: Holder) -> u64 {
        self.held_ns[holder.index()]
    }
}

impl Trace {
    /// Keeps the reports of the `kept` directions whose data was held longest, and as many threads and waits.
    pub fn new(kept: usize) -> Self {
        Self {
            connections: Vec::new(),
            kept: kept.max(1),
            start: None,
            end: 0,
            worst: Vec::new(),
            totals: BTreeMap::new(),
            causes: Causes::default(),
            open: HashMap::new(),
            waiting: 0,
            flows: 0,
            others: 0,
            directions: 0,
            closed: Written::default(),
            pictures: None,
            radio: Radio::default(),
            threads: Threads::default(),
            waits: Waits::new(kept.max(1)),
        }
    }

    /// Of the directions that are kept it draws the time, too, with at most so many stretches in all. While connections
    /// are open, they have as many again.
    pub fn with_spans(mut self, limit: usize) -> Self {
        self.pictures = Some(Allowance::new(limit));
        self.radio.keep_trails(limit / self.kept);
        self
    }

    /// From now on it keeps the reports of so many directions, if that is more.
    pub(crate) fn keep(&mut self, kept: usize) {
        self.kept = self.kept.max(kept);
    }

    /// What it all came to, with the time until `end` for connections that are still open.
    pub fn finish(mut self, end: Instant) -> Traced {
        self.end = self.end.max(end.as_nanos());
        for index in 0..self.connections.len() {
            self.close(FlowId(index as u32), Closed::EndOfSource);
        }
        let whole = self.totals.values().fold(0_u64, |whole, (ns, _)| whole.saturating_add(*ns));
        let mut totals: Vec<Held> = self
            .totals
            .iter()
            .map(|(&holder, &(ns, episodes))| report::held(holder, ns, whole, episodes, Vec::new()))
            .collect();
        totals.sort_by_key(|held| std::cmp::Reverse(held.held_ns));
        Traced {
            span_ns: self.start.map_or(0, |start| self.end.saturating_sub(start)),
            connections: self.flows,
            others: self.others,
            directions: self.directions,
            totals,
            causes: self.causes.0,
            threads: self.threads.finish(self.waits.most),
            waits: self.waits.finish(self.start.unwrap_or_default()),
            start_ns: self.start,
            worst: self.worst.into_iter().map(|kept| kept.since(self.start.unwrap_or_default())).collect(),
            start: self.start.map(Instant::from_nanos),
        }
    }

    /// What the traced programs wrote so far, with the time as of the last event of each connection.
    pub fn written(&self) -> Written {
        let mut written = self.closed;
        self.connections.iter().flatten().for_each(|connection| written.add(connection));
        written
    }

    /// Something began no later than then.
    fn begins_by(&mut self, at: Option<u64>) {
        self.start = self.start.into_iter().chain(at).min();
    }

    /// A connection begins; if pictures are wanted, its stretches are kept.
    fn keep_trails(&mut self, index: usize) {
        let Some(pictures) = &mut self.pictures else { return };
        let all_get_less = pictures.opened();
        let first = if all_get_less { 0 } else { index };
        let open = self.connections.iter_mut().skip(first).flatten();
        let of_flows = if all_get_less { usize::MAX } else { 1 };
        open.take(of_flows).for_each(|connection| connection.keep_trails(pictures.each()));
    }

    fn report(&mut self, id: FlowId, connection: &Connection) {
        self.closed.add(connection);
        self.radio.socket_ends(id.0);
        self.begins_by(self.radio.begin(id.0));
        let start = self.start.unwrap_or_default();
        let most = self.pictures.as_ref().map(|pictures| pictures.of_reports(self.kept));
        for way in taut_event::Direction::BOTH {
            let Some(mut direction) = report::direction(connection, way, start) else { continue };
            self.directions += 1;
            let is_of_radio =
                way == taut_event::Direction::Forward && self.radio.tell(id.0, start, most, &mut direction);
            direction.verdicts.iter().for_each(|on| self.causes.add(on));
            let breakdown = connection.breakdown(way);
            self.programs(connection, way, &direction, is_of_radio, start);
            for held in &direction.breakdown {
                let Some(holder) = Holder::named(&held.holder) else { continue };
                let total = self.totals.entry(holder).or_default();
                // Of a file that was made up they may be as long as they like.
                *total = (total.0.saturating_add(held.held_ns), total.1 + held.episodes);
            }
            let weight = report::weight(direction.is_outgoing, &direction.verdicts);
            let is_worse = |kept: &Kept| (kept.weight, kept.direction.bytes) >= (weight, direction.bytes);
            let place = self.worst.partition_point(is_worse);
            if place < self.kept {
                if !is_of_radio {
                    direction.picture = most.and_then(|most| breakdown.picture(start, most));
                }
                self.worst.truncate(self.kept - 1);
                self.worst.insert(place, Kept { weight, start, direction });
            }
        }
        self.radio.forget(id.0);
    }

    /// What a direction's breakdown lays to programs, by thread. Of what is sent over Bluetooth the waits are those of
    /// the channel, if there is one: they are known now.
    fn programs(
        &mut self,
        connection: &Connection,
        way: taut_event::Direction,
        direction: &TracedDirection,
        is_of_radio: bool,
        start: u64,
    ) {
        if is_of_radio {
            let held = direction.breakdown.iter().filter_map(|held| Some((Holder::named(&held.holder)?, held.held_ns)));
            self.threads.add(&connection.users.laid_anew(held));
        } else {
            self.threads.add(connection.users.laid(way));
        }
        if wait::are_told_at_the_end(connection, way) {
            self.waits.add_longest(connection, way, &direction.breakdown, start);
        }
    }

    /// The other end of a connection that begins between traced ends of this host, if only one can be that. One that
    /// had its other end is what is left of an earlier connection between these ports.
    fn twin_of(&self, own: Address, peer: Address) -> Option<u32> {
        let others = self.open.get(&(peer, own)).filter(|_| own != peer)?;
        let mut alone = others.iter().copied().filter(|id| !self.has_met_peer(*id));
        alone.next().filter(|_| alone.next().is_none())
    }

    /// The other end of a connection is traced, too, from now on, or is so no longer.
    fn joins(&mut self, id: u32, peer: Option<u32>) {
        if let Some(connection) = self.connections.get_mut(id as usize).and_then(Option::as_mut) {
            connection.peer = peer;
            connection.messages.is_peer_traced = peer.is_some();
            connection.has_met_peer |= peer.is_some();
        }
    }

    /// A connection is over, or its number is that of another one: nobody's other end has it any more.
    fn forget_ends(&mut self, id: u32, connection: &Connection) {
        if let FlowKey::Tcp(own, peer) = connection.flow.key
            && let Entry::Occupied(mut same) = self.open.entry((own, peer))
        {
            same.get_mut().retain(|open| *open != id);
            if same.get().is_empty() {
                same.remove();
            }
        }
        if let Some(peer) = connection.peer {
            self.joins(peer, None);
        }
    }

    /// Whether the other end of a connection is, or was, traced.
    fn has_met_peer(&self, id: u32) -> bool {
        self.connections.get(id as usize).and_then(Option::as_ref).is_some_and(|connection| connection.has_met_peer)
    }
}

impl Sink for Trace {
    fn flow(&mut self, id: FlowId, flow: &Flow) {
        // What a link carries besides the channels of sockets is nobody's here.
        if matches!(flow.key, FlowKey::Link(_)) {
            return;
        }
        if let Some(key) = radio::key(flow) {
            return self.radio.opens(id.0, key, *flow);
        }
        let index = id.0 as usize;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        if let Some(before) = self.connections[index].replace(Box::new(Connection::new(*flow))) {
            self.waiting -= before.waiting();
            self.forget_ends(id.0, &before);
        }
        self.keep_trails(index);
        // Both ends of a connection on this host may be traced: it is one.
        let twin = match flow.key {
            FlowKey::Tcp(own, peer) => {
                let same = self.open.entry((own, peer)).or_default();
                if same.len() < MOST_ALIKE {
                    same.push(id.0);
                }
                self.twin_of(own, peer)
            }
            _ => None,
        };
        if let Some(twin) = twin {
            self.joins(id.0, Some(twin));
            self.joins(twin, Some(id.0));
        }
        let is_other = matches!(flow.key, FlowKey::Local(_));
        self.others += u64::from(is_other);
        self.flows += u64::from(twin.is_none() && !is_other);
    }

    fn event(&mut self, event: &Event) {
        let at = event.at.as_nanos();
        if matches!(event.what, What::Hci(_)) {
            return;
        }
        if self.radio.has(event.flow.0) {
            return self.radio.event(event);
        }
        self.begins_by(Some(at));
        self.end = self.end.max(at);
        if let Some(Some(connection)) = self.connections.get_mut(event.flow.0 as usize) {
            let waited = connection.waiting();
            connection.event(event, self.waiting < MOST_WAITING);
            self.waits.take_from(connection);
            self.waiting = self.waiting + connection.waiting() - waited;
            match event.what {
                What::IsEnd(end) => {
                    self.radio.joins(event.flow.0, &end, connection, at);
                    self.begins_by(self.radio.begin(event.flow.0));
                }
                What::Reached(Stamp::Read) | What::Gap if connection.messages.is_peer_traced => {
                    let peer = connection.peer;
                    let peer = peer.and_then(|id| self.connections.get_mut(id as usize)?.as_mut());
                    if let Some(peer) = peer {
                        match event.what {
                            What::Gap => peer.messages.loses_reads(),
                            _ => peer.messages.read(at, event.bytes.end),
                        }
                    }
                }
                _ if connection.is_bluetooth() => self.radio.program(event.flow.0, event, connection),
                _ => {}
            }
        }
    }

    fn close(&mut self, id: FlowId, why: Closed) {
        if self.radio.has(id.0) {
            return self.radio.ends(id.0);
        }
        let Some(mut connection) = self.connections.get_mut(id.0 as usize).and_then(Option::take) else { return };
        self.waiting -= connection.waiting();
        self.forget_ends(id.0, &connection);
        connection.finish((why == Closed::EndOfSource).then_some(self.end));
        self.waits.take_from(&mut connection);
        if let Some(pictures) = &mut self.pictures {
            pictures.closed();
        }
        self.report(id, &connection);
    }
}
