//! Links of a host's log as flows of their own, of whose data only sums are told.

use taut_event::{
    ByteSum, Closed, Coverage, Direction, Event, Flow, FlowId, FlowKey, Hci, Kind, LinkKey, Sink, VantageId, What,
};
use taut_time::{ByteRange, Instant, Layer};

use super::crossing::{HostPacket, HostPackets};
use crate::packet::Packet;

/// So many links are followed at once.
const MOST: usize = 64;
/// Length and channel, before each L2CAP PDU.
const HEADER: u32 = 4;

/// Tells of the links of a host's log one packet after another.
#[derive(Debug)]
pub struct HostLinks {
    packets: HostPackets,
    links: Links,
}

#[derive(Debug)]
struct Links {
    first_flow: u32,
    open: Vec<Option<Open>>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// The adapter, and the handle.
    link: (u16, u16),
    /// Of the PDU under way that the host sends, and of that which it receives; `None`: not known.
    sums: [Option<ByteSum>; 2],
}

impl HostLinks {
    /// Numbers of flows begin with this one; there are 64.
    pub fn new(first_flow: u32) -> Self {
        Self { packets: HostPackets::default(), links: Links { first_flow, open: Vec::new() } }
    }

    /// Hands on what a packet tells of links. Packets without a time are left out.
    pub fn packet(&mut self, packet: &Packet<'_>, seen_by: VantageId, sink: &mut impl Sink) {
        let Some(at) = packet.at else { return };
        let Self { packets, links } = self;
        let mut out = Out { at, place: packet.frame, seen_by, sink };
        packets.read(packet, |told| links.told(told, &mut out));
    }

    /// Ends all links.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        self.links.close(|_| true, Closed::EndOfSource, sink);
    }
}

struct Out<'a, S> {
    at: Instant,
    place: u64,
    seen_by: VantageId,
    sink: &'a mut S,
}

impl<S: Sink> Out<'_, S> {
    fn event(&mut self, flow: FlowId, direction: Direction, what: Hci) {
        self.sink.event(&Event {
            at: self.at,
            seen_by: self.seen_by,
            flow,
            direction,
            layer: Layer::Driver,
            what: What::Hci(what),
            bytes: ByteRange::default(),
            who: None,
            place: self.place,
        });
    }
}

impl Links {
    fn told<S: Sink>(&mut self, told: HostPacket<'_>, out: &mut Out<'_, S>) {
        match told {
            HostPacket::Connected { link, is_central, peer } => {
                self.close(|open| open.link == link, Closed::Replaced, out.sink);
                self.open(LinkKey { adapter: link.0, handle: link.1, peer: Some(peer), is_central }, true, out.sink);
            }
            HostPacket::Disconnected { link } => self.close(|open| open.link == link, Closed::Ended, out.sink),
            HostPacket::Reset { adapter } => self.close(|open| open.link.0 == adapter, Closed::Ended, out.sink),
            HostPacket::Lost => {
                for (number, open) in self.open.iter_mut().enumerate() {
                    let Some(open) = open else { continue };
                    open.sums = [None; 2];
                    out.event(FlowId(self.first_flow + number as u32), Direction::Forward, Hci::Lost);
                }
            }
            HostPacket::Completed { link, packets } => {
                if let Some(number) = self.find(link) {
                    let flow = FlowId(self.first_flow + number as u32);
                    out.event(flow, Direction::Forward, Hci::Completed { packets });
                }
            }
            HostPacket::Acl { link, is_received, begins, kept, length } => {
                let unseen = LinkKey { adapter: link.0, handle: link.1, peer: None, is_central: None };
                let Some(number) = self.find(link).or_else(|| self.open(unseen, false, out.sink)) else { return };
                let Some(open) = &mut self.open[number] else { return };
                let (way, index) = match is_received {
                    true => (Direction::Backward, 1),
                    false => (Direction::Forward, 0),
                };
                let before = if begins { Some(ByteSum::NEW) } else { open.sums[index] };
                open.sums[index] = before.filter(|_| kept.len() == length).map(|mut sum| {
                    sum.add(kept);
                    sum
                });
                let sum = open.sums[index].map_or(0, ByteSum::value);
                let pdu = match kept {
                    [low, high, ..] if begins => u32::from(u16::from_le_bytes([*low, *high])) + HEADER,
                    _ => 0,
                };
                // An ACL packet's length has 16 bits.
                let length = u16::try_from(length).unwrap_or(u16::MAX);
                out.event(FlowId(self.first_flow + number as u32), way, Hci::Part { begins, length, pdu, sum });
            }
        }
    }

    fn find(&self, link: (u16, u16)) -> Option<usize> {
        self.open.iter().position(|open| open.is_some_and(|open| open.link == link))
    }

    fn open(&mut self, key: LinkKey, from_start: bool, sink: &mut impl Sink) -> Option<usize> {
        let free = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if free == MOST {
            return None;
        }
        self.open.resize(self.open.len().max(free + 1), None);
        self.open[free] = Some(Open { link: (key.adapter, key.handle), sums: [None; 2] });
        let coverage = Coverage::of(&[Kind::AclPackets]);
        sink.flow(FlowId(self.first_flow + free as u32), &Flow { key: FlowKey::Link(key), from_start, coverage });
        Some(free)
    }

    fn close(&mut self, which: impl Fn(&Open) -> bool, why: Closed, sink: &mut impl Sink) {
        for (number, open) in self.open.iter_mut().enumerate() {
            if open.take_if(|open| which(open)).is_some() {
                sink.close(FlowId(self.first_flow + number as u32), why);
            }
        }
    }
}
