//! From records to events: which socket each is of, whose that is, and who reads from it.

use std::collections::{HashMap, HashSet};

use taut_event::{
    AckSentBy, Closed, Coverage, Direction, Flow, FlowKey, Kind, Listening, Sink, SocketState, Stamp, Task, TaskId,
    Timer, What as Happened,
};
use taut_time::{Duration, Instant};

use super::calls::SENDS;
use super::layout::{Known, Layout, Others as OtherLayouts};
use super::other::Others;
use super::peers::Peers;
use super::readers::Readers;
use super::record::{Copied, Record, Segment, What};
use super::snapshot::{CLOSED, SYN_SENT, ahead};
use super::tcp::{Accept, CallBegun, Socket, is_connect};
use super::threads::Threads;
use super::told::{Ends, Events, FlowIds, address, ends};

/// Connections whose ports are remembered until they are forgotten. Of more the kernel drops what is used least.
const MOST_GONE: usize = 65_536;

/// Calls that send on a socket which is not connected; of more the earliest is forgotten.
const MOST_OPENING: usize = 1024;
/// Threads whose last wait for a processor is remembered; of more all are forgotten.
const MOST_RAN: usize = 16_384;
/// Names of processes of which a thread ended, until they are asked for.
const MOST_NAMES: usize = 65_536;

/// A peer may have sent so much more by the time at which a segment of it has come: more than is ever under way, and
/// little beside all numbers of TCP.
const MOST_AHEAD: i32 = 1 << 24;

/// Turns records into events.
#[derive(Debug)]
pub(super) struct Follower {
    sockets: HashMap<u64, Socket>,
    peers: Peers,
    /// Connections of the traced programs that were there before; with all set every socket is a traced one.
    wanted: HashSet<Ends>,
    takes_all: bool,
    /// Whether waits for a processor are seen.
    sees_readers: bool,
    readers: Readers,
    /// Threads that waited for one of several descriptors.
    pollers: HashSet<u32>,
    /// When each thread ran that had waited for a processor, the last time, and for how long it had waited.
    ran: HashMap<u32, (Instant, u64)>,
    timers: HashMap<u64, Timer>,
    ids: FlowIds,
    /// What is not TCP.
    pub(super) others: Others,
    lost: u64,
    /// How often records were found to be lost.
    gaps: u64,
    /// Whether something of what is being read was left out, nobody knows where.
    pub(super) is_doubtful: bool,
    /// Whether the record before was such a one.
    was_doubtful: bool,
    /// Process of each thread that made a call.
    pub(super) threads: Threads,
    /// Processes that were not there when it was last asked for these.
    pub(super) new_processes: Vec<u32>,
    /// Processes of which a thread ended, with their names.
    pub(super) ended: Vec<(u32, String)>,
    /// When connections that wait to be accepted are looked at again.
    next_look: Instant,
    /// Calls that may open the connection which they send on (TCP Fast Open): of each socket the thread, and when.
    opening: HashMap<u64, (u32, u64)>,
    /// Connections that are over, whose ports are to be forgotten.
    pub(super) gone: Vec<Ends>,
    pub(super) records: u64,
}

impl Follower {
    pub(super) fn new(takes_all: bool, sees_readers: bool, timers: HashMap<u64, Timer>) -> Self {
        Self {
            sees_readers,
            readers: Readers::default(),
            pollers: HashSet::new(),
            ran: HashMap::new(),
            sockets: HashMap::new(),
            peers: Peers::default(),
            wanted: HashSet::new(),
            takes_all,
            timers,
            ids: FlowIds::default(),
            others: Others::new(sees_readers),
            lost: 0,
            gaps: 0,
            is_doubtful: false,
            was_doubtful: false,
            threads: Threads::default(),
            new_processes: Vec::new(),
            ended: Vec::new(),
            next_look: Instant::default(),
            opening: HashMap::new(),
            gone: Vec::new(),
            records: 0,
        }
    }

    /// Sockets that were met and not closed, and calls on them that are going on.
    pub(super) fn counts(&self) -> (usize, usize) {
        let calls: usize = self.sockets.values().map(|socket| socket.calls.len()).sum();
        (self.sockets.len(), calls + self.others.calls() + self.pollers.len())
    }

    /// Forgets the threads that waited for one of several descriptors and are not there any more.
    pub(super) fn keep_pollers(&mut self, is_there: impl Fn(u32) -> bool) {
        self.pollers.retain(|thread| is_there(*thread));
    }

    /// A connection of a traced program, of which no call may be seen.
    pub(super) fn want(&mut self, ends: Ends) {
        self.wanted.insert(ends);
    }

    /// Nothing more is read, `lost` records in all found no room, and it is `at`. A connection of which
    /// nothing was read since some were lost may have been in another state ever since.
    pub(super) fn end(&mut self, lost: u64, at: Instant, sink: &mut impl Sink) {
        if lost > self.lost || self.is_doubtful || self.was_doubtful {
            self.lost = lost;
            self.gaps += 1;
        }
        // A table has no order, and two traces of the same are to tell the same.
        let number = |socket: &Socket| socket.flow.map(|flow| flow.0);
        let mut missed: Vec<&mut Socket> =
            self.sockets.values_mut().filter(|socket| socket.gaps != self.gaps).collect();
        missed.sort_unstable_by_key(|socket| number(socket));
        for socket in missed {
            socket.gaps = self.gaps;
            Events::new(at, None, socket.flow, sink).tell(Direction::Forward, Happened::Gap, 0, 0);
        }
        self.others.end(self.gaps, at, sink);
        // What was left in them may never be read: that a program closes these is not seen.
        let closed = self.sockets.iter().filter(|(_, socket)| socket.is_closed);
        let mut closed: Vec<(Option<u32>, u64)> = closed.map(|(&address, socket)| (number(socket), address)).collect();
        closed.sort_unstable();
        closed.into_iter().for_each(|(_, address)| self.forget(address, sink));
    }

    /// The connections whose first segment, or first data, was sent again since the last time.
    pub(super) fn unanswered(&mut self) -> Vec<(u64, Ends)> {
        let asked = |socket: &mut Socket| std::mem::take(&mut socket.is_unanswered) && socket.flow.is_some();
        let sockets =
            self.sockets.iter_mut().filter_map(|(&address, socket)| asked(socket).then_some((address, socket)));
        in_order(sockets.map(|(address, socket)| (address, socket.ends)))
    }

    /// Takes the bytes of one record.
    pub(super) fn take(&mut self, layout: &Layout, others: Option<&OtherLayouts>, bytes: &[u8], sink: &mut impl Sink) {
        let Some(record) = Record::parse(bytes) else { return };
        self.records += 1;
        // What was left out may have come after the last record of that look.
        let was_doubtful = std::mem::replace(&mut self.was_doubtful, self.is_doubtful);
        if record.lost > self.lost || self.is_doubtful || was_doubtful {
            self.lost = record.lost;
            self.gaps += 1;
        }
        match record.what {
            What::Ran => return self.ran(&record, sink),
            What::Polled => return self.polled(&record, sink),
            What::Named => return self.named(&record),
            What::Started => return self.started(&record, sink),
            _ => {}
        }
        let is_call = record.what.is_of_program();
        if record.what.copied() != Copied::Tcp {
            let Some(layouts) = others else { return };
            if is_call {
                self.meet_thread(&record);
            }
            let before = self.others.last_reader(record.socket);
            self.others.take(layouts, &record, self.gaps, &mut self.ids, sink);
            self.passed_on(before, self.others.last_reader(record.socket));
            self.readers.set(record.socket, self.others.reader(record.socket));
            return;
        }
        let Some(ends) = ends(layout, record.copies) else { return };
        let known = self.sockets.get(&record.socket);
        let is_closed = record.what == What::Close || layout.get(record.copies, Known::State) == CLOSED;
        if record.what == What::Return && !self.opening.is_empty() {
            self.opening.remove(&record.socket);
        }
        if is_closed && known.is_none() {
            self.may_open(&record);
            return;
        }
        // One that is closed gives its port back, and there may be something in it to read.
        let ends = known.filter(|known| is_closed && is_left_of(ends, known.ends)).map_or(ends, |known| known.ends);
        // An address of the kernel is used again; then the ends are others.
        if known.is_some_and(|known| known.ends != ends && !known.ends.1.ip().is_unspecified())
            && record.what != What::Close
        {
            self.forget(record.socket, sink);
        }
        // Only a traced program's own are seen while they open.
        let is_opening = layout.get(record.copies, Known::State) == SYN_SENT;
        let is_traced = is_call || is_opening || record.is_path() || self.takes_all || self.wanted.contains(&ends);
        self.meet(layout, &record, ends, is_traced, sink);
        let is_first = self.sockets.get(&record.socket).is_some_and(|socket| socket.seen_to.is_none());
        if is_call || is_connect(layout, &record, is_first) {
            self.meet_thread(&record);
        }
        if is_first && record.what == What::Queue && record.segment.is_syn {
            self.opens_by_call(&record, sink);
        }
        if record.what == What::Receive {
            let came_by = self.sent_by(ends, &record.segment);
            if let Some(socket) = self.sockets.get_mut(&record.socket) {
                socket.came_by = came_by;
            }
        }
        if is_call {
            self.accepts(&record, sink);
        }
        let timer = (record.timer != 0).then(|| self.timers.get(&record.timer).copied().unwrap_or(Timer::Other));
        let gaps = self.gaps;
        if let Some(socket) = self.sockets.get_mut(&record.socket) {
            let before = socket.reader;
            socket.take(layout, &record, timer, gaps, sink);
            let (reader, has_unread) = (socket.reader, socket.has_unread);
            self.passed_on(before, reader);
            self.readers.set(record.socket, reader.filter(|_| has_unread));
        }
        let Some(socket) = self.sockets.get_mut(&record.socket) else { return };
        // That it closed may be among what was lost, or was told while a call began on another processor.
        socket.is_closed |= is_closed;
        // What has come is still to be read.
        if socket.is_closed && !(socket.has_unread && socket.flow.is_some()) {
            self.forget(record.socket, sink);
        }
    }

    /// What made the peer of these ends send a segment that has come, where it is seen, too.
    fn sent_by(&self, ends: Ends, segment: &Segment) -> AckSentBy {
        let addresses = self.peers.of(ends);
        if let [only] = addresses {
            return self.sockets.get(only).map_or(AckSentBy::NotSeen, |peer| peer.sent_by);
        }
        // Of several with the same ends the one is meant that has sent as far as the segment goes, and hardly further:
        // the numbers of two that were opened one soon after the other begin close together.
        let more = |peer: &Socket| peer.seen_to.map(|seen| ahead(seen, segment.end));
        let peers = addresses.iter().filter_map(|address| self.sockets.get(address));
        let sent = peers.filter_map(|peer| Some((more(peer)?, peer.sent_by)));
        let mut sent: Vec<(i32, AckSentBy)> = sent.filter(|(more, _)| (0..MOST_AHEAD).contains(more)).collect();
        sent.sort_unstable_by_key(|(more, _)| *more);
        match sent[..] {
            [(_, by)] => by,
            [(nearest, by), (next, _), ..] if nearest < next => by,
            _ => AckSentBy::NotSeen,
        }
    }

    /// A call sends on a socket that is not connected: it may open the connection.
    fn may_open(&mut self, record: &Record<'_>) {
        if record.what != What::Call || !SENDS.contains(&i64::from(record.number)) {
            return;
        }
        if self.opening.len() >= MOST_OPENING && !self.opening.contains_key(&record.socket) {
            let earliest = self.opening.iter().min_by_key(|(_, (_, ns))| *ns).map(|(&socket, _)| socket);
            if let Some(earliest) = earliest {
                self.opening.remove(&earliest);
            }
        }
        self.opening.insert(record.socket, (record.thread, record.ns));
    }

    /// The first segment leaves: what a call writes had begun before there was a connection.
    fn opens_by_call(&mut self, record: &Record<'_>, sink: &mut impl Sink) {
        let Some((thread, ns)) = self.opening.remove(&record.socket) else { return };
        let Some(socket) = self.sockets.get_mut(&record.socket) else { return };
        let first = record.segment.seq.wrapping_add(1);
        socket.calls.push(CallBegun { thread, is_send: true, write_seq: first, copied_seq: 0 });
        let from = socket.out.of(first);
        let mut events = Events::new(Instant::from_nanos(ns), Some(TaskId(thread)), socket.flow, sink);
        events.tell(Direction::Forward, Happened::Reached(Stamp::WriteBegin), from, from);
        let opening = SocketState { is_opening: true, ..SocketState::default() };
        events.tell(Direction::Forward, Happened::State(opening), 0, 0);
    }

    /// A thread has ended, and its process may be gone by now.
    fn named(&mut self, record: &Record<'_>) {
        self.threads.end(record.thread, record.process);
        self.pollers.remove(&record.thread);
        self.ran.remove(&record.thread);
        let end = record.name.iter().position(|&byte| byte == 0).unwrap_or(record.name.len());
        if self.ended.len() < MOST_NAMES {
            self.ended.push((record.process, String::from_utf8_lossy(&record.name[..end]).into_owned()));
        }
    }

    /// Connections that wait to be accepted, and whose queue is to be looked at now, since they wait for long or the
    /// trace ends. All are looked at together, and then none for so long.
    pub(super) fn awaiting(&mut self, now: Instant, every: Duration, is_end: bool) -> Vec<(u64, Ends)> {
        if now < self.next_look && !is_end {
            return Vec::new();
        }
        let awaits = |socket: &Socket| {
            matches!(socket.accept, Accept::Waits { look, .. } if is_end || look <= now) && !socket.is_closed
        };
        let found = self.sockets.iter().filter(|(_, socket)| awaits(socket));
        let found = in_order(found.map(|(&address, socket)| (address, socket.ends)));
        if !found.is_empty() {
            self.next_look = now + every;
        }
        found
    }

    /// Somebody has accepted the connection by now.
    pub(super) fn look_no_more(&mut self, address: u64) {
        if let Some(Socket { accept: Accept::Waits { look, .. }, .. }) = self.sockets.get_mut(&address) {
            *look = Instant::from_nanos(u64::MAX);
        }
    }

    /// Tells of the socket that is to accept a connection. At the end no program will be seen to do that.
    pub(super) fn listens(&mut self, address: u64, queue: Listening, at: Instant, is_end: bool, sink: &mut impl Sink) {
        if is_end && self.sockets.get(&address).is_some_and(|socket| socket.is_awaited) {
            self.begin_flow(address, at, sink);
        }
        let gaps = self.gaps;
        let Some(socket) = self.sockets.get_mut(&address) else { return };
        let mut early = std::mem::take(&mut socket.early);
        let mut events = Events::new(at, None, socket.flow, sink);
        events.early = socket.is_awaited.then_some(&mut early);
        if socket.gaps != gaps {
            socket.gap(gaps, &mut events);
        }
        events.tell(Direction::Forward, Happened::Listens(queue), 0, 0);
        socket.early = early;
    }

    /// A segment has left the queue of its device. After lost records the socket's own next record tells what is so.
    fn started(&mut self, record: &Record<'_>, sink: &mut impl Sink) {
        let Some(socket) = self.sockets.get_mut(&record.socket) else { return };
        let state = socket.last.left(&record.segment, record.ns);
        if let Some(state) = state.filter(|_| socket.gaps == self.gaps) {
            let mut events = Events::new(Instant::from_nanos(record.ns), None, socket.flow, sink);
            events.tell(Direction::Forward, Happened::State(state), 0, 0);
        }
    }

    /// A thread has waited for a processor: what it is to read has, and what woke it up.
    fn ran(&mut self, record: &Record<'_>, sink: &mut impl Sink) {
        let thread = record.thread;
        if self.ran.len() >= MOST_RAN && !self.ran.contains_key(&thread) {
            self.ran.clear();
        }
        self.ran.insert(thread, (Instant::from_nanos(record.ns), record.result.unsigned_abs()));
        let woken_by = Some(record.socket).filter(|by| self.readers.waits_for(thread).all(|socket| socket != *by));
        for socket in self.readers.waits_for(thread).chain(woken_by) {
            self.tell_reader(socket, record, Task::Ran { waited_ns: record.result.unsigned_abs() }, sink);
        }
    }

    /// A thread accepts a connection. While it was ready to run and had no processor, the connection waited for that.
    fn accepts(&self, record: &Record<'_>, sink: &mut impl Sink) {
        let Some(&(at, waited_ns)) = self.ran.get(&record.thread) else { return };
        let Some(socket) = self.sockets.get(&record.socket).filter(|socket| socket.gaps == self.gaps) else { return };
        if matches!(socket.accept, Accept::Waits { since, .. } if since < at) {
            let ran = Happened::Task(Task::Ran { waited_ns });
            Events::new(at, Some(TaskId(record.thread)), socket.flow, sink).tell(Direction::Backward, ran, 0, 0);
        }
    }

    /// A thread has learned that it can read from sockets, or has waited in vain.
    fn polled(&mut self, record: &Record<'_>, sink: &mut impl Sink) {
        self.pollers.insert(record.thread);
        let waited_ns = record.ns.saturating_sub(record.socket);
        for socket in self.readers.told(record.thread, record.process, |thread| self.threads.process_of(thread)) {
            let is_ready = record.result > 0;
            let task = if is_ready { Task::Polled { waited_ns } } else { Task::TimedOut { waited_ns } };
            self.tell_reader(socket, record, task, sink);
        }
    }

    /// After lost records nothing is told: how it was until then is not known.
    fn tell_reader(&self, socket: u64, record: &Record<'_>, task: Task, sink: &mut impl Sink) {
        let flow = match self.sockets.get(&socket) {
            // What is left in one that is closed may never be read, and its thread has other things to do.
            Some(socket) => socket.flow.filter(|_| socket.gaps == self.gaps && !socket.is_closed),
            None => self.others.flow(socket, self.gaps),
        };
        let (at, who) = (Instant::from_nanos(record.ns), Some(TaskId(record.thread)));
        Events::new(at, who, flow, sink).tell(Direction::Backward, Happened::Task(task), 0, 0);
    }

    /// The last reader of a socket may be another one now.
    fn passed_on(&mut self, before: Option<u32>, now: Option<u32>) {
        let (Some(before), Some(now)) = (before, now) else { return };
        let [of_before, process] = [before, now].map(|thread| self.threads.process_of(thread));
        if let Some(process) = process.filter(|_| before != now && of_before == process) {
            self.readers.share(process);
        }
    }

    fn meet_thread(&mut self, record: &Record<'_>) {
        if self.threads.meet(record.thread, record.process) {
            self.new_processes.push(record.process);
        }
    }

    fn meet(&mut self, layout: &Layout, record: &Record<'_>, ends: Ends, is_traced: bool, sink: &mut impl Sink) {
        let gaps = self.gaps;
        let socket = self.sockets.entry(record.socket).or_insert_with(|| Socket::new(layout, record, ends, gaps));
        let before = std::mem::replace(&mut socket.ends, ends);
        if before != ends {
            self.peers.forget(before, record.socket);
        }
        self.peers.meet(ends, record.socket);
        // A call on what is over, or on what was never connected, is no connection.
        let is_over = record.what == What::Close || layout.get(record.copies, Known::State) == CLOSED;
        if is_traced && socket.flow.is_none() && !is_over {
            self.begin_flow(record.socket, Instant::from_nanos(record.ns), sink);
        }
    }

    /// A socket is one that is traced, and what is kept of it is told.
    fn begin_flow(&mut self, socket: u64, at: Instant, sink: &mut impl Sink) {
        let Some(socket) = self.sockets.get_mut(&socket) else { return };
        let id = self.ids.take();
        socket.flow = Some(id);
        let coverage = Coverage::of(&[Kind::Writes, Kind::Reads, Kind::KernelStamps, Kind::Queues, Kind::Releases]);
        let coverage = if self.sees_readers { coverage.and(Coverage::of(&[Kind::Tasks])) } else { coverage };
        let key = FlowKey::Tcp(address(socket.ends.0), address(socket.ends.1));
        sink.flow(id, &Flow { key, from_start: false, coverage });
        socket.is_awaited = false;
        let early = std::mem::take(&mut socket.early);
        Events::new(at, None, Some(id), sink).tell_early(early);
    }

    fn forget(&mut self, address: u64, sink: &mut impl Sink) {
        let Some(socket) = self.sockets.remove(&address) else { return };
        self.peers.forget(socket.ends, address);
        // These ports may be somebody else's next, or are another one's still, in another network namespace.
        if !self.peers.has(socket.ends) {
            self.wanted.remove(&socket.ends);
            if self.gone.len() < MOST_GONE {
                self.gone.push(socket.ends);
            }
        }
        self.readers.set(address, None);
        if let Some(id) = socket.flow {
            sink.close(id, Closed::Ended);
            self.ids.give_back(id);
        }
    }
}

/// Sockets by their addresses and ports: they come from a table, which has no order.
fn in_order(sockets: impl Iterator<Item = (u64, Ends)>) -> Vec<(u64, Ends)> {
    let mut sockets: Vec<(u64, Ends)> = sockets.collect();
    sockets.sort_unstable_by_key(|(address, ends)| (*ends, *address));
    sockets
}

/// Whether a socket with these ends may be the one that had the others before it was closed.
fn is_left_of(ends: Ends, before: Ends) -> bool {
    ends.0.port() == 0 && ends.0.ip() == before.0.ip() && ends.1 == before.1
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
