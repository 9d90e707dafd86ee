//! From records to events, of what is not TCP: Unix sockets, sockets of UDP and Bluetooth, and
//! pipes.
//!
//! These are known by their calls, by what comes into a receive queue, and by whether something waits to be read and
//! whether there is room at each of these moments. A state is told before the end of a write and after that of a read.

use std::collections::HashMap;

use taut_event::{
    Call, ChannelEnd, Closed, Coverage, Direction, Flow, FlowId, FlowKey, Kind, LocalKey, LocalKind, Sink, SocketState,
    Stamp, TaskId, What as Happened,
};
use taut_time::Instant;

use super::layout::{Known, Layout, Others as Layouts};
use super::record::{Copied, Record, What};
use super::told::{Events, FlowIds, address, ends, is_send};

/// So many are followed at once.
const MOST: usize = 4096;
/// Threads in a call on one of them at once.
const MOST_CALLS: usize = 64;
/// `AF_UNIX` and `AF_BLUETOOTH`.
const UNIX: u64 = 1;
const BLUETOOTH: u64 = 31;
/// Protocols of Bluetooth (bluetooth.h); others carry no data of programs.
const PROTOCOLS: [(u64, LocalKind); 3] = [(0, LocalKind::L2cap), (2, LocalKind::Sco), (3, LocalKind::Rfcomm)];
/// `SOCK_STREAM`.
const STREAM: u64 = 1;
/// The calls whose result counts datagrams.
const OF_MANY: [i64; 2] = [libc::SYS_sendmmsg, libc::SYS_recvmmsg];

/// Those that calls were made on, by the address of the socket or the pipe.
#[derive(Debug, Default)]
pub(super) struct Others {
    known: HashMap<u64, Other>,
    /// Whether waits for a processor are seen.
    sees_readers: bool,
    /// Those that found no place.
    pub(super) left_out: u64,
    /// Whether there ever was a socket of Bluetooth.
    pub(super) has_bluetooth: bool,
}

#[derive(Debug)]
struct Other {
    key: LocalKey,
    flow: FlowId,
    /// Its first call.
    met: Instant,
    /// Bytes that were written and read.
    out: u64,
    inward: u64,
    /// Threads in a call on it, and what was taken of the room when it began.
    calls: Vec<(u32, u32)>,
    /// The thread that read last, or is about to.
    reader: Option<u32>,
    /// Whether something waits to be read.
    has_unread: bool,
    gaps: u64,
    /// Of a socket of Bluetooth that has no name yet: its process.
    unnamed: Option<u32>,
}

/// A socket of Bluetooth whose channel is to be asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Unnamed {
    pub(super) address: u64,
    pub(super) process: u32,
    pub(super) inode: u64,
}

impl Others {
    pub(super) fn new(sees_readers: bool) -> Self {
        Self { sees_readers, ..Self::default() }
    }

    /// The flow of what stands at this address, unless records were lost since its last one.
    pub(super) fn flow(&self, address: u64, gaps: u64) -> Option<FlowId> {
        self.known.get(&address).filter(|other| other.gaps == gaps).map(|other| other.flow)
    }

    /// When the first call was seen on what has this inode.
    pub(super) fn first_call(&self, inode: u64) -> Option<Instant> {
        self.known.values().filter(|other| other.key.inode == inode).map(|other| other.met).min()
    }

    /// Who read there last, or is about to.
    pub(super) fn last_reader(&self, address: u64) -> Option<u32> {
        self.known.get(&address).and_then(|other| other.reader)
    }

    /// Who is to read what waits there.
    pub(super) fn reader(&self, address: u64) -> Option<u32> {
        self.known.get(&address).and_then(|other| other.reader.filter(|_| other.has_unread))
    }

    /// Sockets of Bluetooth of which it is not told yet which channel they are an end of.
    pub(super) fn unnamed(&self) -> Vec<Unnamed> {
        let unnamed = self
            .known
            .iter()
            .filter_map(|(&address, other)| Some(Unnamed { address, process: other.unnamed?, inode: other.key.inode }));
        let mut unnamed: Vec<Unnamed> = unnamed.collect();
        unnamed.sort_unstable_by_key(|one| (one.inode, one.address));
        unnamed
    }

    /// Tells which channel such a socket is an end of.
    pub(super) fn name(&mut self, address: u64, end: ChannelEnd, at: Instant, sink: &mut impl Sink) {
        let Some(other) = self.known.get_mut(&address) else { return };
        other.unnamed = None;
        let mut events = Events::new(at, None, Some(other.flow), sink);
        events.tell(Direction::Forward, Happened::IsEnd(end), 0, 0);
    }

    /// Calls that are going on.
    pub(super) fn calls(&self) -> usize {
        self.known.values().map(|other| other.calls.len()).sum()
    }

    /// Records were lost, and nothing more is read.
    pub(super) fn end(&mut self, gaps: u64, at: Instant, sink: &mut impl Sink) {
        let mut missed: Vec<&mut Other> = self.known.values_mut().filter(|other| other.gaps != gaps).collect();
        // A table has no order.
        missed.sort_unstable_by_key(|other| other.flow.0);
        for other in missed {
            other.gaps = gaps;
            Events::new(at, None, Some(other.flow), sink).tell(Direction::Forward, Happened::Gap, 0, 0);
        }
    }

    /// Takes a record. `gaps` is how often records were found to be lost.
    pub(super) fn take(
        &mut self,
        layouts: &Layouts,
        record: &Record<'_>,
        gaps: u64,
        ids: &mut FlowIds,
        sink: &mut impl Sink,
    ) {
        if matches!(record.what, What::SocketCall | What::PipeCall) {
            self.meet(layouts, record, gaps, ids, sink);
        }
        if let Some(other) = self.known.get_mut(&record.socket) {
            other.take(layouts, record, gaps, sink);
        }
    }

    fn meet(&mut self, layouts: &Layouts, record: &Record<'_>, gaps: u64, ids: &mut FlowIds, sink: &mut impl Sink) {
        let Some(key) = key(layouts, record) else { return };
        let mut met = Instant::from_nanos(record.ns);
        if let Some(known) = self.known.get(&record.socket) {
            // An address of the kernel is used again; a socket of UDP that is connected elsewhere is another flow.
            let is_same = known.key.kind == key.kind && known.key.inode == key.inode;
            if known.key == key || is_same && known.key.ends.is_none() {
                return;
            }
            if is_same {
                met = known.met;
            }
            sink.close(known.flow, Closed::Ended);
            ids.give_back(known.flow);
            self.known.remove(&record.socket);
        }
        if self.known.len() >= MOST {
            self.left_out += 1;
            return;
        }
        let flow = ids.take();
        self.has_bluetooth |= key.kind.is_bluetooth();
        let unnamed = Some(record.process).filter(|_| key.kind.is_bluetooth());
        let coverage = Coverage::of(&[Kind::Writes, Kind::Reads, Kind::Queues]);
        let coverage = if self.sees_readers { coverage.and(Coverage::of(&[Kind::Tasks])) } else { coverage };
        sink.flow(flow, &Flow { key: FlowKey::Local(key), from_start: false, coverage });
        let other = Other {
            key,
            flow,
            met,
            out: 0,
            inward: 0,
            calls: Vec::new(),
            reader: None,
            has_unread: false,
            gaps,
            unnamed,
        };
        self.known.insert(record.socket, other);
    }
}

/// What a call was made on.
fn key(layouts: &Layouts, record: &Record<'_>) -> Option<LocalKey> {
    let inode = record.inode;
    let of = |kind, ends| LocalKey { kind, inode, ends };
    if record.what.copied() == Copied::Pipe {
        return Some(of(LocalKind::Pipe, None));
    }
    match layouts.socket.get(record.copies, Known::Family) {
        UNIX => return Some(of(LocalKind::Unix, None)),
        BLUETOOTH => {
            let protocol = layouts.socket.get(record.copies, Known::Protocol);
            let (_, kind) = PROTOCOLS.into_iter().find(|(number, _)| *number == protocol)?;
            return Some(of(kind, None));
        }
        _ => {}
    }
    let (own, peer) = ends(&layouts.socket, record.copies)?;
    // One that is bound by its first datagram has no port when that is sent.
    let ends = (own.port() > 0).then(|| (address(own), address(peer)));
    Some(of(LocalKind::Udp, ends))
}

impl Other {
    fn take(&mut self, layouts: &Layouts, record: &Record<'_>, gaps: u64, sink: &mut impl Sink) {
        let who = record.what.is_of_program().then_some(TaskId(record.thread));
        let mut events = Events::new(Instant::from_nanos(record.ns), who, Some(self.flow), sink);
        if self.gaps != gaps {
            self.gaps = gaps;
            self.calls.clear();
            events.tell(Direction::Forward, Happened::Gap, 0, 0);
        }
        let room = Room::of(self.key.kind, layouts, record.copies);
        self.has_unread = room.unread > 0;
        let is_send = is_send(record.number);
        match record.what {
            What::SocketCall | What::PipeCall => {
                self.calls.retain(|&(thread, _)| thread != record.thread);
                // Of more the one that began first has ended in its call, or waits for long.
                if self.calls.len() >= MOST_CALLS {
                    self.calls.remove(0);
                }
                self.calls.push((record.thread, room.taken));
                events.tell(Direction::Forward, room.state(0), 0, 0);
                let begin = Happened::Call(Call::Begin { number: record.number as u16 });
                if is_send && self.key.kind.is_bluetooth() {
                    events.tell(Direction::Forward, begin, 0, 0);
                }
                if is_send {
                    events.tell(Direction::Forward, Happened::Reached(Stamp::WriteBegin), self.out, self.out);
                } else {
                    self.reader = Some(record.thread);
                    events.tell(Direction::Backward, begin, 0, 0);
                }
            }
            What::SocketReturn | What::PipeReturn => {
                let begun = self.calls.iter().position(|&(thread, _)| thread == record.thread);
                let taken = begun.map_or(0, |at| self.calls.remove(at).1);
                self.end(record, is_send, room, taken, &mut events);
            }
            _ => {
                events.tell(Direction::Backward, Happened::Reached(Stamp::Received), 0, 0);
                events.tell(Direction::Forward, room.state(0), 0, 0);
            }
        }
    }

    /// `taken` was taken of the room when the call began.
    fn end(&mut self, record: &Record<'_>, is_send: bool, room: Room, taken: u32, events: &mut Events<'_, impl Sink>) {
        let result = i32::try_from(record.result).unwrap_or(i32::MAX);
        let end = Happened::Call(Call::End { number: record.number as u16, result });
        let is_many = OF_MANY.contains(&record.number.into());
        let bytes = if is_many { 0 } else { u64::try_from(result).unwrap_or(0) };
        if is_send {
            if self.key.kind == LocalKind::Pipe && result > 0 {
                events.tell(Direction::Backward, Happened::Reached(Stamp::Received), 0, 0);
            }
            // Its reader may have emptied it meanwhile.
            events.tell(Direction::Forward, room.state(u64::from(taken) + room.of_bytes(bytes)), 0, 0);
            let from = self.out;
            self.out += bytes;
            let end = if result < 0 { end } else { Happened::Reached(Stamp::WriteEnd) };
            events.tell(Direction::Forward, end, from, self.out);
            return;
        }
        // The end of a stream is no data; a datagram may be empty.
        if result > 0 {
            let from = self.inward;
            self.inward += bytes;
            events.tell(Direction::Backward, Happened::Reached(Stamp::Read), from, self.inward);
        }
        events.tell(Direction::Forward, room.state(0), 0, 0);
        events.tell(Direction::Backward, end, 0, 0);
    }
}

/// What waits to be read, and how much of the room for writing is taken.
#[derive(Clone, Copy, Debug)]
struct Room {
    kind: LocalKind,
    unread: u32,
    taken: u32,
    all: u32,
    /// Datagrams between Unix sockets wait for room in the peer's queue (`unix_dgram_sendmsg`, net/unix/af_unix.c),
    /// which is not seen: any write may have.
    may_be_full: bool,
}

/// Bytes of a pipe's buffer: a page.
const BUFFER_BYTES: u64 = 4096;

impl Room {
    fn of(kind: LocalKind, layouts: &Layouts, copies: &[u8]) -> Self {
        let of = |layout: &Layout, known| layout.word(copies, known);
        let socket = |known| of(&layouts.socket, known);
        let unread = match kind {
            LocalKind::Pipe => of(&layouts.pipe, Known::PipeHead).wrapping_sub(of(&layouts.pipe, Known::PipeTail)),
            LocalKind::Unix | LocalKind::L2cap | LocalKind::Rfcomm | LocalKind::Sco => socket(Known::ReceiveQueued),
            LocalKind::Udp => socket(Known::ReceiveBytes),
        };
        let (taken, all) = match kind {
            LocalKind::Pipe => (unread, of(&layouts.pipe, Known::PipeRoom)),
            // The socket itself counts as one byte.
            _ => (socket(Known::SendBytes).saturating_sub(1), socket(Known::SendBuffer)),
        };
        let is_datagram = layouts.socket.get(copies, Known::Type) != STREAM;
        Self { kind, unread, taken, all, may_be_full: kind == LocalKind::Unix && is_datagram }
    }

    /// What so many bytes may take: the kernel counts its own structures, too, up to twice as much.
    fn of_bytes(self, bytes: u64) -> u64 {
        match self.kind {
            LocalKind::Pipe => bytes.div_ceil(BUFFER_BYTES),
            _ => bytes.saturating_mul(2),
        }
    }

    /// It counts as full if half of the room is taken, or was with `most` of it.
    fn state(self, most: u64) -> Happened {
        let taken = u64::from(self.taken).max(most);
        let send_buffer_full = self.may_be_full || self.all > 0 && taken.saturating_mul(2) >= u64::from(self.all);
        // Of Bluetooth what is taken goes when the packet is handed to the controller (`hci_send_frame`).
        let unsent_bytes = if self.kind.is_bluetooth() { self.taken } else { 0 };
        let unread_bytes = self.unread;
        Happened::State(SocketState { unsent_bytes, unread_bytes, send_buffer_full, ..SocketState::default() })
    }
}
