//! Flows of UDP. What one host asks servers of DNS is one flow, since a question that is asked again may go to another
//! server, and from another port.

use std::collections::HashMap;
use std::net::IpAddr;

use foldhash::fast::RandomState;
use taut_event::{Closed, Content, Coverage, Direction, Event, Flow, FlowId, FlowKey, Kind, Sink, VantageId, What};
use taut_time::{ByteRange, Layer};

use crate::counts::Counts;
use crate::decode::UdpPacket;
use crate::ends::Pair;
use crate::packet::Packet;

/// So many are looked at for one to close.
const LOOKED_AT: usize = 16;

/// The flows of UDP, at most so many at once; when another one begins, one of those that have been silent the longest
/// is closed.
pub(crate) struct Datagrams {
    numbers: HashMap<Key, u32, RandomState>,
    slots: Vec<Slot>,
    first_flow: u32,
    capacity: usize,
    /// Where the search for a silent one goes on.
    hand: usize,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Key {
    Ends(Pair),
    /// Who asks servers of DNS.
    Dns(IpAddr),
}

struct Slot {
    key: Key,
    /// Whether the first of the key's ends is the one that the forward direction starts from.
    is_forward: bool,
    /// Number of its last packet.
    last: u64,
    /// Bytes so far, by direction.
    positions: [u64; 2],
}

impl Datagrams {
    /// Their numbers begin with that of `first_flow`.
    pub(crate) fn new(first_flow: u32, capacity: usize) -> Self {
        Self { numbers: HashMap::default(), slots: Vec::new(), first_flow, capacity, hand: 0 }
    }

    /// Hands a datagram's event to the sink.
    pub(crate) fn packet(
        &mut self,
        packet: &Packet<'_>,
        udp: &UdpPacket<'_>,
        seen_by: VantageId,
        counts: &mut Counts,
        sink: &mut impl Sink,
    ) {
        let Some(at) = packet.at else {
            counts.without_time += 1;
            return;
        };
        counts.udp += 1;
        let (number, direction) = self.find(udp, counts, sink);
        let slot = &mut self.slots[number as usize];
        slot.last = counts.packets;
        let position = &mut slot.positions[direction.index()];
        let bytes = ByteRange::new(*position, position.saturating_add(udp.payload.into()));
        *position = bytes.end;
        sink.event(&Event {
            at,
            seen_by,
            flow: self.flow(number),
            direction,
            layer: Layer::Medium,
            what: What::Datagram(udp.seen),
            bytes,
            who: None,
            place: packet.frame,
        });
    }

    /// Closes all flows.
    pub(crate) fn finish(&mut self, sink: &mut impl Sink) {
        for number in 0..self.slots.len() as u32 {
            sink.close(self.flow(number), Closed::EndOfSource);
        }
        self.numbers.clear();
        self.slots.clear();
    }

    const fn flow(&self, number: u32) -> FlowId {
        FlowId(self.first_flow + number)
    }

    /// The datagram's flow, with the direction in which it goes.
    fn find(&mut self, udp: &UdpPacket<'_>, counts: &mut Counts, sink: &mut impl Sink) -> (u32, Direction) {
        let (from, to) = (udp.ends.from(), udp.ends.to());
        let (key, is_first, flow) = match udp.seen.content {
            Content::Dns(dns) => {
                let client = if dns.is_answer { to.ip } else { from.ip };
                (Key::Dns(client), !dns.is_answer, FlowKey::Dns(client))
            }
            _ => {
                let (pair, is_first) = udp.ends.pair();
                (Key::Ends(pair), is_first, FlowKey::Udp(from, to))
            }
        };
        let known = self.numbers.get(&key).copied();
        let number = known.unwrap_or_else(|| {
            let is_forward = is_first || matches!(key, Key::Dns(_));
            let slot = Slot { key, is_forward, last: counts.packets, positions: [0; 2] };
            let number = self.open(slot, counts, sink);
            self.numbers.insert(key, number);
            let coverage = Coverage::of(&[Kind::Datagrams]);
            sink.flow(self.flow(number), &Flow { key: flow, from_start: false, coverage });
            number
        });
        let is_forward = self.slots[number as usize].is_forward;
        (number, if is_first == is_forward { Direction::Forward } else { Direction::Backward })
    }

    /// A place for a flow: a new one, or that of the one that has been silent the longest of the next few.
    fn open(&mut self, slot: Slot, counts: &mut Counts, sink: &mut impl Sink) -> u32 {
        counts.flows += 1;
        if self.slots.len() < self.capacity {
            self.slots.push(slot);
            return self.slots.len() as u32 - 1;
        }
        let length = self.slots.len();
        let few = (0..LOOKED_AT.min(length)).map(|ahead| (self.hand + ahead) % length);
        let index = few.min_by_key(|&index| self.slots[index].last).unwrap_or(0);
        self.hand = (self.hand + LOOKED_AT) % length;
        self.numbers.remove(&self.slots[index].key);
        sink.close(self.flow(index as u32), Closed::Evicted);
        counts.evicted += 1;
        self.slots[index] = slot;
        index as u32
    }
}
