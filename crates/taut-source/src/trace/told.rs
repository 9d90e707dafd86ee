//! What followers of records share: numbers of flows, addresses of sockets, events.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use taut_event::{Address, Direction, Event, FlowId, Sink, Stamp, TaskId, VantageId, What as Happened};
use taut_time::{ByteRange, Instant, Layer};

use super::calls::SENDS;
use super::layout::{Known, Layout};

/// Both ends of a connection, the own one first.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// Numbers of flows, used again once a flow is closed.
#[derive(Debug, Default)]
pub(super) struct FlowIds {
    free: Vec<u32>,
    next: u32,
}

impl FlowIds {
    pub(super) fn take(&mut self) -> FlowId {
        FlowId(self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        }))
    }

    pub(super) fn give_back(&mut self, id: FlowId) {
        self.free.push(id.0);
    }
}

/// Whether a system call of this number sends.
pub(super) fn is_send(number: u32) -> bool {
    SENDS.contains(&i64::from(number))
}

pub(super) fn address(end: SocketAddr) -> Address {
    Address { ip: end.ip(), port: end.port() }
}

/// Addresses and ports of a socket.
pub(super) fn ends(layout: &Layout, copies: &[u8]) -> Option<Ends> {
    let pair = layout.word(copies, Known::PortPair);
    // Our own port is in this machine's order, the peer's in the network's.
    let (own, peer) = ((pair >> 16) as u16, u16::from_be(pair as u16));
    let (local, remote) = match layout.get(copies, Known::Family) {
        2 => {
            let address = |known| layout.bytes(copies, known).map(Ipv4Addr::from_octets);
            (address(Known::LocalV4)?.into(), address(Known::RemoteV4)?.into())
        }
        10 => {
            let address = |known| layout.bytes(copies, known).map(Ipv6Addr::from_octets);
            (address(Known::LocalV6)?.to_canonical(), address(Known::RemoteV6)?.to_canonical())
        }
        _ => return None,
    };
    Some((SocketAddr::new(local, own), SocketAddr::new(remote, peer)))
}

/// An IPv4 address as such, also that of a socket of IPv6.
pub(super) fn canonical(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

/// What came for a socket before it was known whose it is.
#[derive(Clone, Debug)]
pub(super) struct Early {
    at: Instant,
    what: Happened,
    bytes: ByteRange,
}

/// So many are kept of a socket. Of more the last one of a kind stands for those after it: there is something to read
/// all the time.
const MOST_EARLY: usize = 16;

/// Keeps what came before it is known whose the socket is.
fn keep(early: &mut Vec<Early>, new: Early) {
    let is_full = early.len() >= MOST_EARLY;
    match early.iter_mut().rev().find(|last| is_full && is_alike(&last.what, &new.what)) {
        Some(last) => (last.what, last.bytes.end) = (new.what, new.bytes.end),
        // Beyond that one of each kind.
        None => early.push(new),
    }
}

fn is_alike(one: &Happened, other: &Happened) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

/// Events of one record.
pub(super) struct Events<'a, S> {
    pub(super) at: Instant,
    pub(super) who: Option<TaskId>,
    pub(super) flow: Option<FlowId>,
    /// Where what comes without a flow is kept.
    pub(super) early: Option<&'a mut Vec<Early>>,
    pub(super) sink: &'a mut S,
}

impl<'a, S: Sink> Events<'a, S> {
    pub(super) const fn new(at: Instant, who: Option<TaskId>, flow: Option<FlowId>, sink: &'a mut S) -> Self {
        Self { at, who, flow, early: None, sink }
    }

    pub(super) fn tell(&mut self, direction: Direction, what: Happened, from: u64, to: u64) {
        let bytes = ByteRange::new(from, to.max(from));
        let Some(flow) = self.flow else {
            let is_of_peer = matches!(
                what,
                Happened::Reached(Stamp::Received)
                    | Happened::State(_)
                    | Happened::Gap
                    | Happened::Awaits
                    | Happened::Listens(_)
            );
            if let Some(early) = self.early.as_deref_mut().filter(|_| is_of_peer) {
                keep(early, Early { at: self.at, what, bytes });
            }
            return;
        };
        self.sink.event(&Event {
            at: self.at,
            seen_by: VantageId(0),
            flow,
            direction,
            layer: Layer::Socket,
            what,
            bytes,
            who: self.who,
            place: 0,
        });
    }

    /// What was kept is told of the flow that it has now.
    pub(super) fn tell_early(&mut self, early: Vec<Early>) {
        for Early { at, what, bytes } in early {
            self.at = at;
            let is_arrival = matches!(what, Happened::Reached(_) | Happened::Awaits);
            let direction = if is_arrival { Direction::Backward } else { Direction::Forward };
            self.tell(direction, what, bytes.start, bytes.end);
        }
    }
}
