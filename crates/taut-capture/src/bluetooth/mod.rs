//! From packets of the host controller interface to L2CAP channels, as events.
//!
//! Of LE credit-based channels and ATT are followed; of BR/EDR L2CAP channels, RFCOMM and media of A2DP.

mod att;
mod avdtp;
mod buffers;
mod channel;
mod classic;
pub(crate) mod crossing;
mod enhanced;
mod hci;
mod hidden;
mod link;
pub(crate) mod links;
mod mux;
mod out;
mod rfcomm;
mod signal;
#[cfg(test)]
mod tests;

use taut_air::hci::{Boundary, PacketView};
use taut_air::l2cap::SIGNALLING_CID;
use taut_event::{
    Channel as Kind, ChannelKey, Closed, Coverage, Direction, Flow, FlowId, FlowKey, Kind as Seen, L2cap, Sink,
    VantageId,
};

use crate::counts::Counts;
use crate::packet::Packet;
use avdtp::{AVDTP_PSM, Streams};
use channel::{Channel, Part};
pub(crate) use hci::is_hci;
use hci::{Record, Told};
use link::{Adapter, Current, Link};
use out::{ACL_HEADER, NO_BYTES, Out, Place};
use rfcomm::RFCOMM_PSM;

/// The attribute protocol's channel on LE (Core Specification, Vol 3, Part A, section 2.1).
const ATT_CID: u16 = 4;
/// The signalling channel of BR/EDR (the same section).
const CLASSIC_SIGNALLING_CID: u16 = 1;
/// The length and the channel's identifier, before each PDU.
const L2CAP_HEADER: usize = 4;
/// A slot of BR/EDR, in which Mode Change has intervals (Core Specification, Vol 4, Part E, section 7.7.20).
const SLOT_NS: u64 = 625_000;
/// So many channels are followed at once.
pub(crate) const MOST_CHANNELS: usize = 256;
/// So many adapters and links are followed.
const MOST_ADAPTERS: usize = 16;
const MOST_LINKS: usize = 64;

/// The channels of a log.
#[derive(Debug)]
pub(crate) struct Bluetooth {
    /// Number of the first flow.
    first_flow: u32,
    channels: Vec<Option<Channel>>,
    adapters: Vec<Adapter>,
    bytes: Vec<u8>,
    /// The newest packet.
    last: Option<Place>,
    /// Packets that it said were lost.
    lost: u64,
}

impl Bluetooth {
    pub(crate) fn new(first_flow: u32) -> Self {
        Self { first_flow, channels: Vec::new(), adapters: Vec::new(), bytes: Vec::new(), last: None, lost: 0 }
    }

    /// Hands a packet's events to the sink.
    pub(crate) fn packet(
        &mut self,
        packet: &Packet<'_>,
        seen_by: VantageId,
        counts: &mut Counts,
        sink: &mut impl Sink,
    ) {
        let mut bytes = std::mem::take(&mut self.bytes);
        match (hci::read(packet, &mut bytes), packet.at) {
            (Record::Other, _) => counts.hci_other += 1,
            (Record::Malformed, _) => counts.malformed += 1,
            (Record::Restarted { adapter }, at) => {
                counts.hci_other += 1;
                let known = self.adapters.iter().position(|known| known.index == adapter);
                if let (Some(adapter), Some(at)) = (known, at) {
                    let place = Place { at, seen_by, frame: packet.frame };
                    self.reset(adapter, &mut Out { sink, counts, place, kept: None });
                }
            }
            (Record::Packet { .. }, None) => counts.without_time += 1,
            (Record::Packet { adapter, is_received, kept }, Some(at)) => {
                counts.hci += 1;
                let place = Place { at, seen_by, frame: packet.frame };
                self.last = Some(place);
                let mut out = Out { sink, counts, place, kept };
                // Some count anew in each record.
                if std::mem::replace(&mut self.lost, packet.lost) != packet.lost && packet.lost > 0 {
                    self.lost(&mut out);
                }
                match PacketView::parse(&bytes) {
                    Ok(view) => self.view(adapter, is_received, &view, &mut out),
                    Err(_) if out.is_cut() => out.counts.hci_cut += 1,
                    Err(_) => out.counts.hci_other += 1,
                }
            }
        }
        self.bytes = bytes;
    }

    /// Closes all channels, with the time of the newest packet.
    pub(crate) fn finish(&mut self, counts: &mut Counts, sink: &mut impl Sink) {
        if let Some(place) = self.last.take() {
            let mut out = Out { sink, counts, place, kept: None };
            (0..self.channels.len()).for_each(|slot| self.close(slot, Closed::EndOfSource, &mut out));
        }
        self.channels.clear();
        self.adapters.clear();
    }

    fn view(&mut self, index: u16, is_received: bool, view: &PacketView<'_>, out: &mut Out<'_, impl Sink>) {
        let adapter = match self.adapters.iter().position(|adapter| adapter.index == index) {
            Some(adapter) => adapter,
            None if self.adapters.len() < MOST_ADAPTERS => {
                self.adapters.push(Adapter { index, ..Adapter::default() });
                self.adapters.len() - 1
            }
            None => return,
        };
        self.hidden(adapter, out);
        let owner = &self.adapters[adapter];
        match view {
            PacketView::Acl(acl) if !is_received && owner.has_just_ended(acl.handle, out.place.at.as_nanos()) => {
                out.counts.hci_other += 1;
            }
            PacketView::Acl(_) if out.kept.is_some_and(|kept| kept < ACL_HEADER) => out.counts.hci_cut += 1,
            PacketView::Acl(acl) => {
                let way = if is_received { Direction::Backward } else { Direction::Forward };
                let begins = acl.boundary != Boundary::Continuing;
                self.acl(adapter, (acl.handle, way, begins), acl.data, out);
            }
            PacketView::Event { .. } if out.is_cut() => out.counts.hci_cut += 1,
            PacketView::Event { .. } => {
                self.told(adapter, hci::event(view), out);
                self.hidden(adapter, out);
            }
            PacketView::Command { .. } => {}
        }
    }

    /// The link's place among those of the adapter.
    fn link(&mut self, adapter: usize, handle: u16, out: &mut Out<'_, impl Sink>) -> usize {
        let links = &self.adapters[adapter].links;
        if let Some(index) = links.iter().position(|link| link.handle == handle) {
            return index;
        }
        if links.len() == MOST_LINKS {
            let oldest = links[0].handle;
            self.gone(adapter, oldest, Closed::Evicted, out);
        }
        let links = &mut self.adapters[adapter].links;
        let mut link = Link::new(handle);
        link.may_hide(out.place.at.as_nanos());
        links.push(link);
        links.len() - 1
    }

    /// The controller began anew, without links.
    fn reset(&mut self, adapter: usize, out: &mut Out<'_, impl Sink>) {
        while let Some(link) = self.adapters[adapter].links.first() {
            let handle = link.handle;
            self.gone(adapter, handle, Closed::Over, out);
        }
        self.adapters[adapter].in_use = [0; 2];
        self.buffers(out);
    }

    fn acl(
        &mut self,
        adapter: usize,
        (handle, way, begins): (u16, Direction, bool),
        data: &[u8],
        out: &mut Out<'_, impl Sink>,
    ) {
        let mut index = self.link(adapter, handle, out);
        let (w, is_sent) = (way.index(), way == Direction::Forward);
        let owner = &self.adapters[adapter];
        if !owner.links[index].facts.from_start && !owner.links[index].is_classic {
            // A link made before the log: only BR/EDR has that channel, and packets beyond those of LE.
            let signals =
                begins && out.kept_of(data.len()) >= L2CAP_HEADER && data[2..4] == CLASSIC_SIGNALLING_CID.to_le_bytes();
            let is_long = is_sent && owner.length > 0 && data.len() > usize::from(owner.length);
            if signals || is_long {
                index = self.turns_out_classic(adapter, handle, out);
            }
        }
        // A link without data changes its mode for nobody.
        if !std::mem::replace(&mut self.adapters[adapter].links[index].is_mode_told, true) {
            self.changed(adapter, handle, out, |_| ());
        }
        let link = &mut self.adapters[adapter].links[index];
        if !is_sent {
            link.hears();
        }
        let is_classic = link.is_classic;
        let signalling = if is_classic { CLASSIC_SIGNALLING_CID } else { SIGNALLING_CID };
        let kept = out.kept_of(data.len());
        if begins {
            link.is_headless[w] = kept < data.len().min(L2CAP_HEADER);
            link.is_amid[w] = false;
        }
        if link.is_headless[w] {
            link.current[w] = None;
            out.counts.hci_cut += 1;
            if is_sent {
                self.taken(adapter, index, None, out);
            }
            return;
        }
        if begins {
            link.current[w] = match *data {
                [low, high, cid_low, cid_high, ..] => Some(Current {
                    cid: u16::from_le_bytes([cid_low, cid_high]),
                    slot: None,
                    left: 4 + usize::from(u16::from_le_bytes([low, high])),
                    around: [0; 2],
                }),
                _ => None,
            };
        }
        let Some(mut current) = link.current[w].filter(|current| data.len() <= current.left) else {
            link.current[w] = None;
            let count = if link.is_amid[w] { &mut out.counts.hci_other } else { &mut out.counts.malformed };
            *count += 1;
            if is_sent {
                self.taken(adapter, index, None, out);
            }
            return;
        };
        current.left -= data.len();
        if begins && current.cid != signalling {
            current.slot = self.find(adapter, index, current.cid, way, out);
            out.counts.classic += u64::from(is_classic && current.slot.is_none());
            if let Some(slot) = current.slot.filter(|_| is_classic) {
                let payload = &data[L2CAP_HEADER..kept.max(L2CAP_HEADER)];
                (current.slot, current.around) = self.carried((adapter, index), slot, way, payload, out);
            }
        }
        let link = &mut self.adapters[adapter].links[index];
        link.current[w] = Some(current).filter(|current| current.left > 0);
        if is_sent {
            self.taken(adapter, index, current.slot, out);
        }
        match current.cid == signalling {
            true if is_classic => self.classic_signalling((adapter, index), way, begins, data, out),
            true => self.signalling(adapter, index, way, begins, data, out),
            false => {}
        }
        let Some(channel) = current.slot.and_then(|slot| self.channels[slot].as_mut()) else {
            return;
        };
        out.counts.l2cap += 1;
        channel.last = out.place.frame;
        let header = if begins { L2CAP_HEADER + current.around[0] } else { 0 };
        // What stands behind the program's bytes may have begun in the packet before.
        let behind = current.around[1].saturating_sub(current.left).min(data.len());
        let bytes = data.get(header..data.len() - behind).unwrap_or_default();
        let kept = kept.saturating_sub(header);
        let part = Part { bytes, kept, length: data.len() as u16, begins, left: current.left };
        let flow = channel.flow;
        if channel.lacks_before(w, &part) {
            channel.lost();
            self.adapters[adapter].links[index].may_hide(out.place.at.as_nanos());
            out.tell(flow, Direction::Forward, L2cap::Lost, NO_BYTES);
        }
        let (acl, bytes) = channel.packet(w, &part);
        out.tell(flow, way, L2cap::Packet(acl), bytes);
        channel.attributes(w, &part, |what| out.tell(flow, way, what, NO_BYTES));
    }

    /// A PDU begins on a channel of BR/EDR: whose it is, with the bytes around the program's.
    fn carried(
        &mut self,
        at: (usize, usize),
        slot: usize,
        way: Direction,
        payload: &[u8],
        out: &mut Out<'_, impl Sink>,
    ) -> (Option<usize>, [usize; 2]) {
        let Some(channel) = &mut self.channels[slot] else { return (None, [0; 2]) };
        // A multiplexer has no packets of its own, and is not to be forgotten before what it carries.
        channel.last = out.place.frame;
        let (kind, flow) = (channel.kind, channel.flow);
        match kind {
            Kind::Basic(RFCOMM_PSM) => {
                let its = self.frame(at, slot, way, payload, out);
                // Behind the information is the frame check sequence.
                return (its.map(|its| its.slot), its.map_or([0; 2], |its| [its.at, 1]));
            }
            Kind::Basic(AVDTP_PSM) => {
                let owner = &mut self.adapters[at.0];
                let link = &mut owner.links[at.1];
                for stream in link.streams.signal(way.index(), payload) {
                    let of = (owner.index, link.handle, Some(stream.ends));
                    let is_its = |its: &&Channel| (its.adapter, its.handle, its.stream) == of;
                    for its in self.channels.iter().flatten().filter(is_its) {
                        out.tell(its.flow, Direction::Forward, L2cap::Stream { hz: stream.hz }, NO_BYTES);
                    }
                }
            }
            Kind::Media(_) => {
                if let Some((sequence, timestamp)) = avdtp::media(payload) {
                    out.tell(flow, way, L2cap::Media { sequence, timestamp }, NO_BYTES);
                }
            }
            _ => {}
        }
        (Some(slot), [0; 2])
    }

    /// A link that was made before the log is one of BR/EDR.
    fn turns_out_classic(&mut self, adapter: usize, handle: u16, out: &mut Out<'_, impl Sink>) -> usize {
        let number = self.adapters[adapter].index;
        for channel in self.channels.iter().flatten() {
            if channel.adapter == number && channel.handle == handle {
                out.tell(channel.flow, Direction::Forward, L2cap::Classic, NO_BYTES);
            }
        }
        self.gone(adapter, handle, Closed::Over, out);
        let index = self.link(adapter, handle, out);
        self.adapters[adapter].links[index].is_classic = true;
        index
    }

    /// The slot of the channel that a PDU goes over.
    fn find(
        &mut self,
        adapter: usize,
        index: usize,
        cid: u16,
        way: Direction,
        out: &mut Out<'_, impl Sink>,
    ) -> Option<usize> {
        let owner = &self.adapters[adapter];
        let (number, handle, is_classic) = (owner.index, owner.links[index].handle, owner.links[index].is_classic);
        let is_its = |channel: &Channel| channel.adapter == number && channel.handle == handle;
        let mut known = self.channels.iter().enumerate().filter_map(|(slot, channel)| Some((slot, channel.as_ref()?)));
        if let Some((slot, _)) = known.find(|(_, channel)| is_its(channel) && channel.cids[way.index()] == Some(cid)) {
            return Some(slot);
        }
        let kind = match cid {
            ATT_CID if !is_classic => Kind::Att,
            ..taut_air::l2cap::FIRST_DYNAMIC_CID => return None,
            _ if is_classic => Kind::Unopened(cid),
            _ => Kind::Dynamic(cid),
        };
        let mut cids = [None; 2];
        cids[way.index()] = Some(cid);
        if kind == Kind::Att {
            cids = [Some(cid); 2];
        } else if let Some(channel) = self.channels.iter_mut().flatten().find(|channel| {
            is_its(channel)
                && matches!(channel.kind, Kind::Dynamic(_) | Kind::Unopened(_))
                && channel.cids[way.index()].is_none()
        }) {
            // The other direction of a channel whose opening was not seen, as long as there is one only.
            channel.cids[way.index()] = Some(cid);
            let flow = channel.flow;
            return self.channels.iter().position(|channel| channel.as_ref().is_some_and(|known| known.flow == flow));
        }
        Some(self.open(adapter, index, kind, cids, out))
    }

    fn open(
        &mut self,
        adapter: usize,
        index: usize,
        kind: Kind,
        cids: [Option<u16>; 2],
        out: &mut Out<'_, impl Sink>,
    ) -> usize {
        let slot = self.channels.iter().position(Option::is_none).unwrap_or_else(|| {
            if self.channels.len() < MOST_CHANNELS {
                self.channels.push(None);
                return self.channels.len() - 1;
            }
            let last = |slot: &usize| self.channels[*slot].as_ref().map_or(0, |channel| channel.last);
            let silent = (0..self.channels.len()).min_by_key(last).unwrap_or(0);
            out.counts.evicted += 1;
            self.close(silent, Closed::Evicted, out);
            silent
        });
        out.counts.flows += 1;
        let owner = &self.adapters[adapter];
        let link = &owner.links[index];
        let flow = FlowId(self.first_flow + slot as u32);
        let key = ChannelKey { adapter: owner.index, handle: link.handle, peer: link.peer, channel: kind };
        let from_start = match kind {
            Kind::Att => link.facts.from_start,
            Kind::Dynamic(_) | Kind::Unopened(_) => false,
            _ => true,
        };
        let packets = Coverage::of(&[Seen::AclPackets]);
        let coverage = if from_start { packets.and(Coverage::of(&[Seen::Handshake])) } else { packets };
        out.sink.flow(flow, &Flow { key: FlowKey::L2cap(key), from_start, coverage });
        let mut channel = Channel::new(flow, owner.index, link.handle, kind, cids);
        channel.last = out.place.frame;
        // A channel that no request opens may have been there before. One that is new shares the controller with
        // packets of others, of which those that the log lacks go first.
        let is_of_before = matches!(kind, Kind::Att | Kind::Dynamic(_) | Kind::Unopened(_));
        let is_lossy = link.is_lossy && (is_of_before || link.hidden.is_some());
        let (of_link, of_any) = (link.hidden.is_some(), owner.hides(link.is_classic));
        let facts = link.facts;
        let pool = owner.pool(link.is_classic);
        let (in_use, of) = (owner.in_use[pool], owner.buffers(pool));
        self.channels[slot] = Some(channel);
        out.tell(flow, Direction::Forward, L2cap::Link(facts), NO_BYTES);
        if of > 0 {
            out.tell(flow, Direction::Forward, L2cap::Buffers { in_use, of }, NO_BYTES);
        }
        if is_lossy {
            out.tell(flow, Direction::Forward, L2cap::Lost, NO_BYTES);
        }
        if is_lossy || of_any {
            out.tell(flow, Direction::Forward, L2cap::Hidden { of_link, of_any }, NO_BYTES);
            self.adapters[adapter].links[index].hidden_told = None;
        }
        slot
    }

    fn close(&mut self, slot: usize, why: Closed, out: &mut Out<'_, impl Sink>) {
        let Some(channel) = self.channels.get_mut(slot).and_then(Option::take) else { return };
        let mut adapters = self.adapters.iter();
        let tells_completions = adapters.any(|adapter| adapter.index == channel.adapter && adapter.tells_completions);
        out.tell(channel.flow, Direction::Forward, L2cap::Ended { tells_completions }, NO_BYTES);
        out.sink.close(channel.flow, why);
        let is_like =
            |its: &Channel| (its.adapter, its.handle, its.kind) == (channel.adapter, channel.handle, channel.kind);
        if channel.kind == Kind::Basic(AVDTP_PSM) && !self.channels.iter().flatten().any(is_like) {
            // The streams go with their signalling.
            let owner = self.adapters.iter_mut().find(|adapter| adapter.index == channel.adapter);
            let links = owner.into_iter().flat_map(|adapter| &mut adapter.links);
            links.filter(|link| link.handle == channel.handle).for_each(|link| link.streams = Streams::default());
        }
        channel.connections.iter().for_each(|above| self.close(above.slot, why, out));
        for below in self.channels.iter_mut().flatten() {
            below.connections.retain(|above| above.slot != slot);
        }
        let owner = self.adapters.iter_mut().find(|adapter| adapter.index == channel.adapter);
        let links = owner.into_iter().flat_map(|adapter| &mut adapter.links);
        for link in links.filter(|link| link.handle == channel.handle) {
            link.queue.iter_mut().filter(|of| **of == Some(slot)).for_each(|of| *of = None);
            link.current.iter_mut().flatten().filter(|of| of.slot == Some(slot)).for_each(|of| of.slot = None);
            link.asked.retain(|asked| asked.slot != slot);
        }
    }

    fn told(&mut self, adapter: usize, told: Told<'_>, out: &mut Out<'_, impl Sink>) {
        match told {
            Told::Nothing => {}
            Told::Reset => self.reset(adapter, out),
            Told::LeBuffers { packets, length } => {
                (self.adapters[adapter].of, self.adapters[adapter].length) = (packets, length);
            }
            Told::Buffers { packets } => self.adapters[adapter].shared = packets,
            Told::Connected { handle, is_central, peer, interval, latency } => {
                self.gone(adapter, handle, Closed::Replaced, out);
                let index = self.link(adapter, handle, out);
                let link = &mut self.adapters[adapter].links[index];
                link.peer = Some(peer);
                link.facts.interval_ns = u64::from(interval) * 1_250_000;
                link.facts.latency = latency;
                link.facts.is_central = Some(is_central);
                link.begins();
            }
            Told::ClassicConnected { handle, peer } => {
                self.gone(adapter, handle, Closed::Replaced, out);
                let index = self.link(adapter, handle, out);
                let link = &mut self.adapters[adapter].links[index];
                (link.is_classic, link.peer) = (true, Some(peer));
                link.begins();
            }
            Told::Disconnected { handle } => self.gone(adapter, handle, Closed::Over, out),
            Told::Updated { handle, interval, latency } => self.changed(adapter, handle, out, |facts| {
                facts.interval_ns = u64::from(interval) * 1_250_000;
                facts.latency = latency;
            }),
            Told::Length { handle, sent, received } => {
                self.changed(adapter, handle, out, |facts| facts.length = [sent, received]);
            }
            Told::Phy { handle, sent, received } => {
                self.changed(adapter, handle, out, |facts| facts.phy = [sent, received]);
            }
            Told::Encrypted { handle } => {
                self.changed(adapter, handle, out, |facts| facts.is_encrypted = true);
            }
            Told::Mode { handle, sniff } => {
                let mut index = self.link(adapter, handle, out);
                let link = &self.adapters[adapter].links[index];
                // Only BR/EDR has modes.
                if !link.is_classic && !link.facts.from_start {
                    index = self.turns_out_classic(adapter, handle, out);
                }
                let link = &mut self.adapters[adapter].links[index];
                (link.facts.sniff_ns, link.is_mode_told) = (u64::from(sniff) * SLOT_NS, false);
            }
            Told::Completed(all) => {
                self.adapters[adapter].tells_completions = true;
                all.iter().for_each(|(handle, packets)| self.completed(adapter, handle, packets, out));
                out.counts.hci_completions += 1;
            }
        }
    }

    fn changed(
        &mut self,
        adapter: usize,
        handle: u16,
        out: &mut Out<'_, impl Sink>,
        change: impl FnOnce(&mut taut_event::RadioLink),
    ) {
        let index = self.link(adapter, handle, out);
        let owner = &mut self.adapters[adapter];
        let link = &mut owner.links[index];
        change(&mut link.facts);
        let what = L2cap::Link(link.facts);
        let number = owner.index;
        for channel in self.channels.iter().flatten() {
            if channel.adapter == number && channel.handle == handle {
                out.tell(channel.flow, Direction::Forward, what, NO_BYTES);
            }
        }
    }

    /// A link is no more.
    fn gone(&mut self, adapter: usize, handle: u16, why: Closed, out: &mut Out<'_, impl Sink>) {
        let owner = &mut self.adapters[adapter];
        let number = owner.index;
        owner.ends(handle, out.place.at.as_nanos());
        for slot in 0..self.channels.len() {
            if self.channels[slot].as_ref().is_some_and(|its| its.adapter == number && its.handle == handle) {
                self.close(slot, why, out);
            }
        }
        self.buffers(out);
    }
}
