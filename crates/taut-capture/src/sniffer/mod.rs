//! Links of Bluetooth LE as a sniffer gets them from the air: whose PDU it is, and in which connection event.

mod frame;
mod payload;
mod rhythm;

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use taut_air::pdu::advertising::{ACCESS_ADDRESS, ConnectInd};
use taut_air::pdu::control::Control;
use taut_air::pdu::{Header, Llid};
use taut_air::{HEADER_BYTES, MAX_LENGTH, MIC_BYTES, MIN_LENGTH};
use taut_event::{
    Closed, Coverage, Direction, Event, Flow, FlowId, FlowKey, Kind, Le, LeHeader, LeKey, LeLink, LePdu, Sink,
    VantageId, What,
};
use taut_time::{ByteRange, Instant, Layer};

use crate::counts::Counts;
use crate::packet::Packet;
pub(crate) use frame::is_air;
use frame::{Frame, Not};
pub use payload::{AirPayload, air_payload};
use rhythm::{Rhythm, Stands, Update};

/// So many links are followed at once.
const MOST_LINKS: usize = 64;
/// Of intervals, in nanoseconds.
const UNIT_NS: u64 = 1_250_000;
/// Payload of LL_CONNECTION_UPDATE_IND.
const UPDATE_BYTES: usize = 12;

/// The links of a capture.
#[derive(Debug)]
pub(crate) struct Sniffer {
    first_flow: u32,
    links: Vec<Link>,
}

#[derive(Debug)]
struct Link {
    access_address: u32,
    told: LeLink,
    /// What was last handed to the sink of that.
    handed: Option<LeLink>,
    rhythm: Rhythm,
    /// What each side said that it sends and takes; `None`: nothing yet.
    lengths: [Option<(u16, u16)>; 2],
    positions: [u64; 2],
    /// Of the newest PDU, if it is the central's and its CRC is wrong: when it ended, as its length has it.
    doubtful_end: Option<u64>,
    /// The newest PDU of the central whose header was got.
    centrals: Option<Centrals>,
    /// Number of the newest packet.
    last: u64,
}

/// A PDU of the central.
#[derive(Clone, Copy, Debug)]
struct Centrals {
    sn: bool,
    hash: u32,
    is_empty: bool,
    /// Whether the peripheral acknowledged it.
    is_acknowledged: bool,
    /// Whether one of both told of more data in this exchange, so that the event may go on.
    has_more: bool,
}

/// When and where a packet was seen.
#[derive(Clone, Copy)]
struct Place {
    at: Instant,
    seen_by: VantageId,
    frame: u64,
}

impl Sniffer {
    pub(crate) const fn new(first_flow: u32) -> Self {
        Self { first_flow, links: Vec::new() }
    }

    /// Hands a packet's events to the sink.
    pub(crate) fn packet(
        &mut self,
        packet: &Packet<'_>,
        seen_by: VantageId,
        counts: &mut Counts,
        sink: &mut impl Sink,
    ) {
        let frame = match frame::read(packet) {
            Ok(frame) => frame,
            Err(Not::Cut) => return counts.cut += 1,
            Err(Not::Other) => return counts.air_other += 1,
        };
        let Some(at) = packet.at else { return counts.without_time += 1 };
        counts.air += 1;
        let place = Place { at, seen_by, frame: packet.frame };
        if frame.access_address == ACCESS_ADDRESS {
            counts.air_other += 1;
            if let Some(request) = ConnectInd::parse(frame.pdu).filter(|_| frame.is_right != Some(false)) {
                self.begin(&request, &frame, place, counts, sink);
            }
            return;
        }
        let known = self.links.iter().position(|link| link.access_address == frame.access_address);
        let header = frame.pdu.first_chunk().and_then(|header| Header::parse(*header));
        let index = match (known, frame.is_right, header) {
            (Some(index), ..) => index,
            // Noise has any access address.
            (None, Some(false), _) | (None, _, None) => return counts.air_stray += 1,
            (None, _, Some(_)) => {
                let link = Link::new(frame.access_address, &frame, LeLink::default());
                self.open(link, None, counts, sink)
            }
        };
        let flow = FlowId(self.first_flow + index as u32);
        let link = &mut self.links[index];
        link.last = counts.packets;
        link.pdu(&frame, header.filter(|_| frame.is_right != Some(false)), flow, place, sink);
    }

    /// Closes all links.
    pub(crate) fn finish(&mut self, sink: &mut impl Sink) {
        for index in 0..self.links.len() {
            sink.close(FlowId(self.first_flow + index as u32), Closed::EndOfSource);
        }
        self.links.clear();
    }

    /// A link begins with what its initiator set.
    fn begin(
        &mut self,
        request: &ConnectInd,
        frame: &Frame<'_>,
        place: Place,
        counts: &mut Counts,
        sink: &mut impl Sink,
    ) {
        let told = LeLink {
            latency: Some(request.latency),
            length: Some([MIN_LENGTH as u16; 2]),
            interval_ns: u64::from(request.interval) * UNIT_NS,
            is_told: true,
            ..LeLink::default()
        };
        let mut link = Link::new(request.access_address, frame, told);
        // Of advertising a capture may tell less; the first data PDU says.
        link.told.tells_direction = false;
        link.rhythm.told(told.interval_ns, request.latency);
        let ends = Some([request.initiator, request.advertiser]);
        let index = self.open(link, ends, counts, sink);
        self.links[index].hand_over(FlowId(self.first_flow + index as u32), Direction::Forward, place, sink);
    }

    fn open(&mut self, link: Link, ends: Option<[[u8; 6]; 2]>, counts: &mut Counts, sink: &mut impl Sink) -> usize {
        counts.flows += 1;
        let known = self.links.iter().position(|known| known.access_address == link.access_address);
        let key = LeKey { access_address: link.access_address, ends };
        let link = Link { last: counts.packets, ..link };
        let index = match known {
            Some(index) => {
                sink.close(FlowId(self.first_flow + index as u32), Closed::Replaced);
                index
            }
            None if self.links.len() == MOST_LINKS => {
                let oldest = (0..MOST_LINKS).min_by_key(|&index| self.links[index].last).unwrap_or(0);
                sink.close(FlowId(self.first_flow + oldest as u32), Closed::Evicted);
                counts.evicted += 1;
                oldest
            }
            None => self.links.len(),
        };
        match self.links.get_mut(index) {
            Some(old) => *old = link,
            None => self.links.push(link),
        }
        let coverage = Coverage::of(&[Kind::AirPdus]);
        let flow = Flow { key: FlowKey::Le(key), from_start: ends.is_some(), coverage };
        sink.flow(FlowId(self.first_flow + index as u32), &flow);
        index
    }
}

impl Link {
    fn new(access_address: u32, frame: &Frame<'_>, told: LeLink) -> Self {
        let told = LeLink {
            tells_direction: frame.way.is_some(),
            tells_crc: frame.is_right.is_some(),
            tells_phy: frame.tells_phy,
            ..told
        };
        let rhythm = Rhythm::default();
        let (lengths, positions) = ([None; 2], [0; 2]);
        Self {
            access_address,
            told,
            handed: None,
            rhythm,
            lengths,
            positions,
            doubtful_end: None,
            centrals: None,
            last: 0,
        }
    }

    /// A PDU, whose header is known if its CRC is right or was not looked at.
    fn pdu(&mut self, frame: &Frame<'_>, header: Option<Header>, flow: FlowId, place: Place, sink: &mut impl Sink) {
        let length = usize::from(frame.pdu[1]);
        let air_ns = frame.phy.air_time(length.min(MAX_LENGTH + MIC_BYTES), false);
        let at = place.at.as_nanos();
        let end = at.saturating_add(air_ns);
        let stands = self.rhythm.pdu(at, end, frame.way, frame.counter);
        let doubtful_end = self.doubtful_end.take().filter(|_| !stands.begins_event);
        if doubtful_end.is_some_and(|end| !rhythm::is_turn(end, at)) {
            // It was of another length, perhaps that of an update, and was answered.
            self.rhythm.may_be_other();
        }
        self.told.tells_direction |= frame.way.is_some();
        self.told.tells_crc |= frame.is_right.is_some();
        self.told.is_encrypted |= frame.is_encrypted;
        (self.told.interval_ns, self.told.is_told) = (self.rhythm.interval_ns, self.rhythm.is_told);
        let mic = if self.told.is_encrypted { MIC_BYTES } else { 0 };
        let is_clear = !self.told.is_encrypted || frame.is_deciphered;
        let is_control = header.is_some_and(|header| header.llid == Llid::Control);
        let is_hidden = header.is_none() || is_control && !is_clear;
        let is_centrals = stands.way == Direction::Forward;
        self.doubtful_end = Some(end).filter(|_| is_centrals && header.is_none());
        // Of a link that has just been encrypted, which was not seen, there is a MIC behind it.
        let is_strange = is_control && is_clear && Control::parse(&frame.pdu[HEADER_BYTES..]).is_err();
        let may_be_update =
            is_hidden && length == UPDATE_BYTES + mic || is_strange && length == UPDATE_BYTES + MIC_BYTES;
        if may_be_update && is_centrals {
            self.rhythm.may_be_other();
        }
        let payload = &frame.pdu[HEADER_BYTES..];
        let mut hasher = FixedState::with_seed(1).build_hasher();
        hasher.write(payload);
        let hash = (hasher.finish() >> 32) as u32;
        match header {
            Some(header) if self.lacks_centrals(&header, &stands, hash) => self.rhythm.may_be_other(),
            // Nothing tells its number, with which the next one could be compared.
            None if is_centrals => self.centrals = None,
            _ => {}
        }
        self.told.latency = self.rhythm.latency;
        self.hand_over(flow, stands.way, place, sink);
        let is_data = header.is_some_and(|header| header.llid != Llid::Control);
        let data = if is_data { length.saturating_sub(mic) as u64 } else { 0 };
        let position = &mut self.positions[stands.way.index()];
        let bytes = ByteRange::new(*position, position.saturating_add(data));
        *position = bytes.end;
        let pdu = LePdu {
            header: header.map(|header| LeHeader {
                is_control: header.llid == Llid::Control,
                continues: header.llid == Llid::Continuation && header.length > 0,
                sn: header.sn,
                nesn: header.nesn,
                md: header.md,
                length: header.length,
            }),
            hash,
            air_ns: u32::try_from(air_ns).unwrap_or(u32::MAX),
            phy: frame.phy.number(),
            begins_event: stands.begins_event,
            is_after_hole: stands.is_after_hole,
            unseen_events: stands.unseen_events,
        };
        tell(flow, stands.way, Le::Pdu(pdu), bytes, place, sink);
        if let (true, Ok(control)) = (is_control && is_clear, Control::parse(payload)) {
            self.control(control, stands.way);
            self.hand_over(flow, stands.way, place, sink);
        }
    }

    /// Whether a PDU of the central may be missing before this one: what comes behind one that was acknowledged has
    /// another sequence number (Core Specification, Vol 6, Part B, section 4.5.9). It may also be sent again, where the
    /// central did not get the acknowledgement. Of empty ones that is so if there was no room for another one between
    /// the two: they are in turn, or no side had more and this is the first one of the next event (section 4.5.6).
    fn lacks_centrals(&mut self, header: &Header, stands: &Stands, hash: u32) -> bool {
        if stands.way == Direction::Backward {
            if let Some(its) = &mut self.centrals {
                its.is_acknowledged |= header.nesn != its.sn;
                its.has_more |= header.md;
            }
            return false;
        }
        let is_empty = header.length == 0;
        let new = Centrals { sn: header.sn, hash, is_empty, is_acknowledged: false, has_more: header.md };
        self.centrals.replace(new).is_some_and(|its| {
            let is_next = stands.is_turn || stands.is_next_anchor && !its.has_more;
            let is_again = if is_empty { its.is_empty && is_next } else { !its.is_empty && its.hash == hash };
            its.is_acknowledged && its.sn == header.sn && !is_again
        })
    }

    /// Tells what the link is like, if that changed.
    fn hand_over(&mut self, flow: FlowId, way: Direction, place: Place, sink: &mut impl Sink) {
        if self.handed.replace(self.told) != Some(self.told) {
            tell(flow, way, Le::Link(self.told), ByteRange::new(0, 0), place, sink);
        }
    }

    fn control(&mut self, control: Control, way: Direction) {
        match control {
            Control::ConnectionUpdate { interval, latency, instant, .. } => {
                self.rhythm.will_be(Update { interval_ns: u64::from(interval) * UNIT_NS, latency, instant });
            }
            Control::StartEncryptionRequest => self.told.is_encrypted = true,
            Control::Terminate { .. } => self.told.is_over = true,
            Control::LengthRequest(length) | Control::LengthResponse(length) => {
                self.lengths[way.index()] = Some((length.tx_octets, length.rx_octets));
                if let [Some(central), Some(peripheral)] = self.lengths {
                    let least = MIN_LENGTH as u16;
                    let agreed = [central.0.min(peripheral.1).max(least), peripheral.0.min(central.1).max(least)];
                    self.told.length = Some(agreed);
                }
            }
            _ => {}
        }
    }
}

fn tell(flow: FlowId, direction: Direction, what: Le, bytes: ByteRange, place: Place, sink: &mut impl Sink) {
    let Place { at, seen_by, frame } = place;
    let (what, layer) = (What::Le(what), Layer::Medium);
    sink.event(&Event { at, seen_by, flow, direction, layer, what, bytes, who: None, place: frame });
}
