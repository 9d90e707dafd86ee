//! From headers to events: who belongs to which connection, and positions that never wrap.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use taut_event::{
    Closed, Coverage, Direction, Event, Flow, FlowId, FlowKey, Kind, SackBlock, Segment, SegmentFlags, Sink, VantageId,
    What,
};
use taut_time::{ByteRange, Instant, Layer};

use crate::bluetooth::{Bluetooth, MOST_CHANNELS, is_hci};
use crate::counts::Counts;
use crate::datagrams::Datagrams;
use crate::decode::{Skipped, TcpPacket, decode, decode_udp, tunnelled};
use crate::ends::Pair;
use crate::packet::Packet;
use crate::sniffer::{Sniffer, is_air};
use crate::ways::Ways;

/// The largest scale of a window (RFC 7323, section 2.3).
const LARGEST_SCALE: u8 = 14;

/// What jumps further in both directions at once is no hole of the capture but another connection.
const FAR: i32 = 1 << 24;
/// What stands so far below, once both ends have closed, does as well.
const BEHIND: i32 = 1 << 20;

/// So many are looked at for one to close.
const LOOKED_AT: usize = 16;

/// The connections of a capture. At most so many are followed at once; when another one begins,
/// one of those that have been silent the longest is closed.
pub struct Flows {
    /// Its hash has a seed of each process, and is several times as fast as the default one.
    ways: Ways,
    numbers: HashMap<Pair, u32, RandomState>,
    slots: Vec<Slot>,
    /// The ends of each; asked for when one is closed only.
    pairs: Vec<Pair>,
    capacity: usize,
    /// Where the search for a silent one goes on.
    hand: usize,
    bluetooth: Bluetooth,
    datagrams: Datagrams,
    sniffer: Sniffer,
    counts: Counts,
}

/// What each packet of a connection looks at: one line of the processor's cache.
#[repr(align(64))]
struct Slot {
    /// Whether the first of its ends is the one that the forward direction starts from.
    is_forward: bool,
    /// Number of its last packet.
    last: u64,
    ways: [Way; 2],
    has_fin: [bool; 2],
}

/// One direction's numbers.
#[derive(Clone, Copy, Default)]
struct Way {
    /// Sequence number of position 0, which is that of the SYN.
    origin: Option<u32>,
    /// The highest position seen so far.
    top: u64,
    syn: Option<Syn>,
    /// How far its windows are scaled, if that is known.
    scale: Option<u8>,
    /// Whether it is followed in a tunnel, once it is.
    is_tunnelled: Option<bool>,
}

#[derive(Clone, Copy)]
struct Syn {
    scale: Option<u8>,
    /// It is a SYN/ACK.
    is_answer: bool,
}

impl Way {
    /// Where a sequence number stands: the position nearest to the highest one so far.
    fn position(&mut self, number: u32, first: u64) -> u64 {
        let origin = *self.origin.get_or_insert_with(|| {
            self.top = first;
            number.wrapping_sub(first as u32)
        });
        // No source has packets enough for a position that is no `i64`.
        (self.top as i64 + i64::from(self.ahead(number, origin))).max(0) as u64
    }

    /// How far a sequence number is beyond the highest one so far.
    const fn ahead(&self, number: u32, origin: u32) -> i32 {
        number.wrapping_sub(origin.wrapping_add(self.top as u32)) as i32
    }
}

impl Flows {
    /// Follows at most `capacity` connections at once, and at least one.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, 1 << 30);
        // The channels of Bluetooth have the numbers behind those of connections, then come flows of UDP, and links
        // on the air.
        let bluetooth = Bluetooth::new(capacity as u32);
        let datagrams = Datagrams::new((capacity + MOST_CHANNELS) as u32, capacity);
        let sniffer = Sniffer::new((2 * capacity + MOST_CHANNELS) as u32);
        let (numbers, counts) = (HashMap::default(), Counts::default());
        let (slots, pairs) = (Vec::new(), Vec::new());
        Self { ways: Ways::new(), numbers, slots, pairs, capacity, hand: 0, bluetooth, datagrams, sniffer, counts }
    }

    /// What there was so far.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Hands a packet's event to the sink, if it has one.
    #[inline(always)]
    pub fn packet(&mut self, packet: &Packet<'_>, seen_by: VantageId, sink: &mut impl Sink) {
        self.counts.packets += 1;
        // By reference, since to move it is to copy it.
        match &decode(packet) {
            Ok(tcp) => self.segment(packet, tcp, seen_by, sink),
            Err(why) => self.other(*packet, *why, seen_by, sink),
        }
    }

    #[inline(always)]
    fn segment(&mut self, packet: &Packet<'_>, tcp: &TcpPacket<'_>, seen_by: VantageId, sink: &mut impl Sink) {
        let Some(at) = packet.at else {
            self.counts.without_time += 1;
            return;
        };
        self.counts.tcp += 1;
        match self.find(tcp) {
            Some(found) => self.hand_on(packet.frame, at, tcp, (seen_by, false), found, sink),
            // Copies, so that what is in registers stays there on the way of most packets.
            None => self.seek(packet.frame, at, *tcp, (seen_by, false), sink),
        }
    }

    /// A segment that came in a tunnel. Few captures have any, so it is found as one of an unknown connection is.
    fn segment_in_tunnel(&mut self, packet: &Packet<'_>, tcp: TcpPacket<'_>, seen_by: VantageId, sink: &mut impl Sink) {
        let Some(at) = packet.at else {
            self.counts.without_time += 1;
            return;
        };
        self.counts.tcp += 1;
        self.seek(packet.frame, at, tcp, (seen_by, true), sink);
    }

    /// A segment whose connection is not known at once.
    #[inline(never)]
    fn seek(&mut self, frame: u64, at: Instant, tcp: TcpPacket<'_>, from: (VantageId, bool), sink: &mut impl Sink) {
        let found = self.find_in_all(&tcp, sink);
        self.hand_on(frame, at, &tcp, from, found, sink);
    }

    #[inline(always)]
    fn hand_on(
        &mut self,
        frame: u64,
        at: Instant,
        tcp: &TcpPacket<'_>,
        (seen_by, is_tunnelled): (VantageId, bool),
        (flow, direction): (FlowId, Direction),
        sink: &mut impl Sink,
    ) {
        let slot = &mut self.slots[flow.0 as usize];
        slot.last = self.counts.packets;
        if slot.ways[direction.index()].is_tunnelled != Some(is_tunnelled) && slot.is_copy(tcp, direction, is_tunnelled)
        {
            self.counts.tunnel_copies += 1;
            return;
        }
        let (segment, bytes) = slot.segment(tcp, direction);
        self.counts.openings_cut += u64::from(segment.flags.has(SegmentFlags::SYN) && tcp.options_are_cut);
        sink.event(&Event {
            at,
            seen_by,
            flow,
            direction,
            layer: Layer::Medium,
            what: What::Segment(segment),
            bytes,
            who: None,
            place: frame,
        });
    }

    /// What is not TCP. It is apart, and takes a copy, so that the way of most packets is short and leaves them in
    /// registers.
    #[inline(never)]
    fn other(&mut self, packet: Packet<'_>, why: Skipped, seen_by: VantageId, sink: &mut impl Sink) {
        match why {
            Skipped::UnknownLink if is_hci(packet.link) => {
                self.bluetooth.packet(&packet, seen_by, &mut self.counts, sink)
            }
            Skipped::UnknownLink if is_air(packet.link) => {
                self.sniffer.packet(&packet, seen_by, &mut self.counts, sink)
            }
            Skipped::NotTcp => match tunnelled(&packet) {
                Some(inner) => {
                    self.counts.tunnelled += 1;
                    match decode(&inner) {
                        Ok(tcp) => self.segment_in_tunnel(&inner, tcp, seen_by, sink),
                        Err(Skipped::NotTcp) => self.datagram(&inner, seen_by, sink),
                        Err(why) => self.skip(why),
                    }
                }
                None => self.datagram(&packet, seen_by, sink),
            },
            why => {
                if why == Skipped::UnknownLink {
                    self.counts.first_unknown_link.get_or_insert(packet.link.0);
                }
                self.skip(why);
            }
        }
    }

    fn datagram(&mut self, packet: &Packet<'_>, seen_by: VantageId, sink: &mut impl Sink) {
        match decode_udp(packet) {
            Ok(udp) => self.datagrams.packet(packet, &udp, seen_by, &mut self.counts, sink),
            Err(why) => self.skip(why),
        }
    }

    /// Closes all connections.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        for number in 0..self.slots.len() as u32 {
            sink.close(FlowId(number), Closed::EndOfSource);
        }
        self.bluetooth.finish(&mut self.counts, sink);
        self.datagrams.finish(sink);
        self.sniffer.finish(sink);
        self.ways.clear();
        self.numbers.clear();
        self.slots.clear();
        self.pairs.clear();
    }

    fn skip(&mut self, why: Skipped) {
        match why {
            Skipped::NotTcp => self.counts.not_tcp += 1,
            Skipped::UnknownLink => self.counts.unknown_link += 1,
            Skipped::Fragment => self.counts.fragments += 1,
            Skipped::Cut => self.counts.cut += 1,
            Skipped::Malformed => self.counts.malformed += 1,
            Skipped::ToItself => self.counts.to_itself += 1,
        }
    }

    /// The packet's connection, with the direction in which it goes, if it was looked up before and goes on.
    #[inline(always)]
    fn find(&self, tcp: &TcpPacket<'_>) -> Option<(FlowId, Direction)> {
        if SegmentFlags(tcp.flags).has(SegmentFlags::SYN) {
            return None;
        }
        let (number, from_is_first) = self.ways.get(&tcp.ends)?;
        let slot = &self.slots[number as usize];
        let direction = slot.direction(from_is_first);
        (!slot.is_another(tcp, direction)).then_some((FlowId(number), direction))
    }

    fn find_in_all(&mut self, tcp: &TcpPacket<'_>, sink: &mut impl Sink) -> (FlowId, Direction) {
        let (pair, from_is_first) = tcp.ends.pair();
        let flags = SegmentFlags(tcp.flags);
        let opens = flags.has(SegmentFlags::SYN) && !flags.has(SegmentFlags::ACK);
        if let Some(&number) = self.numbers.get(&pair) {
            self.ways.set(&tcp.ends, number, from_is_first);
            let slot = &self.slots[number as usize];
            let direction = slot.direction(from_is_first);
            let other = opens && slot.ways[direction.index()].origin.is_some_and(|origin| origin != tcp.sequence);
            let is_unopened = !flags.has(SegmentFlags::SYN) && slot.is_another(tcp, direction);
            if !other && !is_unopened {
                return (FlowId(number), direction);
            }
            let is_forward = slot.is_forward;
            sink.close(FlowId(number), Closed::Replaced);
            if is_unopened {
                self.open(number, pair, is_forward, false, tcp, sink);
                return (FlowId(number), direction);
            }
            self.open(number, pair, from_is_first, true, tcp, sink);
            return (FlowId(number), Direction::Forward);
        }
        let number = if self.slots.len() < self.capacity { self.slots.len() as u32 } else { self.evict(sink) };
        // Who answers an opening did not open.
        let answers = flags.has(SegmentFlags::SYN | SegmentFlags::ACK);
        self.numbers.insert(pair, number);
        self.open(number, pair, from_is_first != answers, opens, tcp, sink);
        (FlowId(number), if answers { Direction::Backward } else { Direction::Forward })
    }

    #[cold]
    fn open(
        &mut self,
        number: u32,
        pair: Pair,
        is_forward: bool,
        from_start: bool,
        tcp: &TcpPacket<'_>,
        sink: &mut impl Sink,
    ) {
        self.counts.flows += 1;
        let slot = Slot { is_forward, last: self.counts.packets, ways: [Way::default(); 2], has_fin: [false; 2] };
        match self.slots.get_mut(number as usize).zip(self.pairs.get_mut(number as usize)) {
            Some(old) => (*old.0, *old.1) = (slot, pair),
            None => {
                self.slots.push(slot);
                self.pairs.push(pair);
            }
        }
        let (_, from_is_first) = tcp.ends.pair();
        let ends = (tcp.ends.from(), tcp.ends.to());
        let (first, second) = if from_is_first == is_forward { ends } else { (ends.1, ends.0) };
        let has_handshake = from_start || SegmentFlags(tcp.flags).has(SegmentFlags::SYN);
        let segments = Coverage::of(&[Kind::Segments]);
        let coverage = if has_handshake { segments.and(Coverage::of(&[Kind::Handshake])) } else { segments };
        sink.flow(FlowId(number), &Flow { key: FlowKey::Tcp(first, second), from_start, coverage });
    }

    /// Closes the connection that has been silent the longest of the next few.
    #[cold]
    fn evict(&mut self, sink: &mut impl Sink) -> u32 {
        let length = self.slots.len();
        let few = (0..LOOKED_AT.min(length)).map(|ahead| (self.hand + ahead) % length);
        let index = few.min_by_key(|&index| self.slots[index].last).unwrap_or(0);
        self.hand = (self.hand + LOOKED_AT) % length;
        self.numbers.remove(&self.pairs[index]);
        self.ways.forget(&self.pairs[index]);
        sink.close(FlowId(index as u32), Closed::Evicted);
        self.counts.evicted += 1;
        index as u32
    }
}

impl Slot {
    const fn direction(&self, from_is_first: bool) -> Direction {
        if from_is_first == self.is_forward { Direction::Forward } else { Direction::Backward }
    }

    /// Whether a packet without SYN belongs to another connection between the same ends, whose
    /// opening is not in the capture.
    #[inline(always)]
    fn is_another(&self, tcp: &TcpPacket<'_>, direction: Direction) -> bool {
        let (own, other) = (self.ways[direction.index()], self.ways[direction.reverse().index()]);
        let flags = SegmentFlags(tcp.flags);
        if !flags.has(SegmentFlags::ACK) || flags.has(SegmentFlags::RST) {
            return false;
        }
        let Some((origin, acked)) = own.origin.zip(other.origin) else { return false };
        let (ahead, ack) = (own.ahead(tcp.sequence, origin), other.ahead(tcp.acknowledgement, acked));
        let is_far = ahead.unsigned_abs() > FAR.unsigned_abs() && ack.unsigned_abs() > FAR.unsigned_abs();
        // A FIN has a number of its own, and nothing comes behind it.
        is_far || self.has_fin == [true; 2] && tcp.payload > 0 && !(-BEHIND..=1).contains(&ahead)
    }

    /// Whether what comes in a tunnel came without it before, or the other way round: a capture on all interfaces has
    /// both, cut into segments at other places. What tells something new is followed from now on.
    #[cold]
    fn is_copy(&mut self, tcp: &TcpPacket<'_>, direction: Direction, is_tunnelled: bool) -> bool {
        let (own, other) = (&self.ways[direction.index()], &self.ways[direction.reverse().index()]);
        let flags = SegmentFlags(tcp.flags);
        let is_beyond = |way: &Way, number: u32, length: u32| {
            way.origin.is_none_or(|origin| i64::from(way.ahead(number, origin)) + i64::from(length) > 0)
        };
        // A SYN has a number of its own, and stands below the data that may come with it.
        let sequence = tcp.sequence.wrapping_add(u32::from(flags.has(SegmentFlags::SYN)));
        let is_known = own.is_tunnelled.is_some()
            && !is_beyond(own, sequence, tcp.payload)
            && (!flags.has(SegmentFlags::ACK) || !is_beyond(other, tcp.acknowledgement, 0))
            && (!flags.has(SegmentFlags::FIN) || self.has_fin[direction.index()])
            && !flags.has(SegmentFlags::RST);
        if !is_known {
            self.ways[direction.index()].is_tunnelled = Some(is_tunnelled);
        }
        is_known
    }

    /// How far windows are scaled, by what the openings say.
    #[cold]
    fn agree(&mut self) {
        let syns = self.ways.map(|way| way.syn);
        for (way, (own, other)) in self.ways.iter_mut().zip([(syns[0], syns[1]), (syns[1], syns[0])]) {
            way.scale = match (own, other) {
                (Some(own), Some(other)) => Some(own.scale.filter(|_| other.scale.is_some()).unwrap_or(0)),
                // Both scale, or none (RFC 7323, section 2.2); a SYN/ACK does only if the SYN did.
                (Some(Syn { scale: None, .. }), None) | (None, Some(Syn { scale: None, .. })) => Some(0),
                (Some(Syn { scale, is_answer: true }), None) => scale,
                _ => None,
            };
        }
    }

    #[inline(always)]
    fn segment(&mut self, tcp: &TcpPacket<'_>, direction: Direction) -> (Segment, ByteRange) {
        let flags = SegmentFlags(tcp.flags);
        let is_syn = flags.has(SegmentFlags::SYN);
        self.has_fin[direction.index()] |= flags.has(SegmentFlags::FIN);
        let own = &mut self.ways[direction.index()];
        if is_syn {
            // An option that is absent since it was cut off is not known to be absent.
            own.syn = (!tcp.options_are_cut)
                .then_some(Syn { scale: tcp.window_scale, is_answer: flags.has(SegmentFlags::ACK) });
            self.agree();
        }
        let own = &mut self.ways[direction.index()];
        // A SYN stands at position 0; without one the first byte seen stands at 1, as in Wireshark.
        let start = own.position(tcp.sequence, if is_syn { 0 } else { 1 }) + u64::from(is_syn);
        let end = start + u64::from(tcp.payload);
        own.top = own.top.max(end);
        let scale = own.scale;
        let other = &mut self.ways[direction.reverse().index()];
        let has_ack = flags.has(SegmentFlags::ACK);
        let ack = if has_ack { other.position(tcp.acknowledgement, 1) } else { 0 };
        let beyond = |end: u32| ack + u64::from(end.wrapping_sub(tcp.acknowledgement) & 0x7fff_ffff);
        let sacked_to = tcp.sacked_to.map_or(0, beyond);
        other.top = other.top.max(ack);
        let shift = if is_syn { 0 } else { scale.unwrap_or(0).min(LARGEST_SCALE) };
        let segment = Segment {
            flags,
            window_is_scaled: is_syn || scale.is_some(),
            // What a segment has room for depends on options behind this one.
            mss: if is_syn && tcp.options_are_cut { 0 } else { tcp.mss },
            window: u32::from(tcp.window) << shift,
            ack,
            sacked_to,
            came_twice: tcp.sack.map_or(0, came_twice),
            is_subflow: tcp.is_subflow,
            timestamps: tcp.timestamps,
            identification: tcp.identification,
        };
        (segment, ByteRange::new(start, end))
    }
}

/// Bytes that a block says to have come before.
const fn came_twice(block: SackBlock) -> u32 {
    let length = block.to.wrapping_sub(block.from);
    if block.is_duplicate && length <= i32::MAX.unsigned_abs() { length } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_looks_at_one_line_of_the_cache() {
        assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (64, 64));
    }
}
