//! Commands of the LE signalling channel: channels are asked for, opened and closed, and credits given.

use taut_air::l2cap::{Frame, Signal};
use taut_event::{Channel as Kind, Closed, Direction, L2cap, Sink};

use super::Bluetooth;
use super::enhanced::{Enhanced, RECONFIGURE_REQUEST};
use super::link::Asked;
use super::out::{NO_BYTES, Out};

impl Bluetooth {
    pub(super) fn signalling(
        &mut self,
        adapter: usize,
        index: usize,
        way: Direction,
        begins: bool,
        data: &[u8],
        out: &mut Out<'_, impl Sink>,
    ) {
        if out.is_cut() {
            out.counts.hci_cut += 1;
            return;
        }
        let reassembly = &mut self.adapters[adapter].links[index].signalling[way.index()];
        let payload = match reassembly.push(begins, data) {
            Ok(None) => return,
            Ok(Some(pdu)) => Frame::parse(pdu).ok().map(|frame| frame.payload.to_vec()),
            Err(_) => None,
        };
        let payload = payload.unwrap_or_default();
        if payload.first() == Some(&RECONFIGURE_REQUEST) {
            // Of which channels, and whether it is granted, is not followed.
            let owner = &self.adapters[adapter];
            let of = (owner.index, owner.links[index].handle);
            let its = self.channels.iter_mut().flatten().filter(|channel| (channel.adapter, channel.handle) == of);
            its.for_each(|channel| channel.mtu = [0; 2]);
        }
        if let Some((identifier, enhanced)) = Enhanced::parse(&payload) {
            self.enhanced(adapter, index, way, identifier, &enhanced, out);
            return;
        }
        let Ok((identifier, signal)) = Signal::parse(&payload) else {
            // Other commands of the channel are none of ours: parameter updates.
            out.counts.hci_other += 1;
            return;
        };
        match signal {
            Signal::ConnectionRequest { spsm, source, mtu, mps, credits } => {
                self.never_answered(adapter, index, way, identifier, out);
                self.asks(adapter, index, way, identifier, (Kind::CreditBased(spsm), source), [mtu, mps, credits], out);
            }
            Signal::ConnectionResponse { destination, mtu, mps, credits, result } => {
                let Some(asked) = self.adapters[adapter].links[index].answered(way.index(), identifier) else { return };
                let destination = Some(destination).filter(|_| result == 0);
                self.opens(adapter, index, &asked, destination, [mtu, mps, credits], out);
            }
            Signal::Credits { cid, credits } => {
                // The identifier is the sender's own, to which the data comes.
                let towards = way.reverse();
                if let Some(slot) = self.slot_of(adapter, index, towards, cid) {
                    self.say(slot, towards, L2cap::Credits { count: credits }, out);
                }
            }
            Signal::DisconnectionResponse { destination, .. } => {
                // The identifiers are those of the request, whose destination is at the sender of this.
                if let Some(slot) = self.slot_of(adapter, index, way.reverse(), destination) {
                    self.close(slot, Closed::Over, out);
                }
            }
            Signal::Reject { .. } => {
                while let Some(asked) = self.adapters[adapter].links[index].answered(way.index(), identifier) {
                    self.close(asked.slot, Closed::Over, out);
                }
            }
            Signal::DisconnectionRequest { .. } => {}
        }
    }

    /// Channels of which several are asked for at once, and each answered.
    fn enhanced(
        &mut self,
        adapter: usize,
        index: usize,
        way: Direction,
        identifier: u8,
        enhanced: &Enhanced<'_>,
        out: &mut Out<'_, impl Sink>,
    ) {
        let limits = enhanced.limits;
        if let Some(spsm) = enhanced.spsm {
            self.never_answered(adapter, index, way, identifier, out);
            for source in enhanced.cids() {
                self.asks(adapter, index, way, identifier, (Kind::CreditBased(spsm), source), limits, out);
            }
            return;
        }
        if enhanced.is_pending {
            return;
        }
        // Those that were refused have no identifier, or stand at the end without any.
        let mut destinations = enhanced.cids();
        while let Some(asked) = self.adapters[adapter].links[index].answered(way.index(), identifier) {
            let destination = destinations.next().filter(|&cid| cid != 0);
            self.opens(adapter, index, &asked, destination, limits, out);
        }
    }

    /// A request has this identifier now: the log lacks the answer of an older one that had it (Vol 3, Part A,
    /// section 4).
    pub(super) fn never_answered(
        &mut self,
        adapter: usize,
        index: usize,
        way: Direction,
        identifier: u8,
        out: &mut Out<'_, impl Sink>,
    ) {
        while let Some(asked) = self.adapters[adapter].links[index].answered(1 - way.index(), identifier) {
            self.close(asked.slot, Closed::Over, out);
        }
    }

    /// A channel is asked for. Tells its slot.
    #[expect(clippy::too_many_arguments, reason = "what a request says, and where it was said")]
    pub(super) fn asks(
        &mut self,
        adapter: usize,
        index: usize,
        way: Direction,
        identifier: u8,
        (kind, source): (Kind, u16),
        limits: [u16; 3],
        out: &mut Out<'_, impl Sink>,
    ) -> usize {
        let mut cids = [None; 2];
        cids[way.reverse().index()] = Some(source);
        self.replaces(adapter, index, way, source, out);
        let slot = self.open(adapter, index, kind, cids, out);
        self.adapters[adapter].links[index].asks(Asked { way: way.index(), identifier, slot, source, limits });
        self.say(slot, way, L2cap::Asked, out);
        slot
    }

    /// An end names no identifier twice: the channel that had it is no more.
    pub(super) fn replaces(
        &mut self,
        adapter: usize,
        index: usize,
        way: Direction,
        source: u16,
        out: &mut Out<'_, impl Sink>,
    ) {
        if let Some(dead) = self.slot_of(adapter, index, way.reverse(), source) {
            self.close(dead, Closed::Replaced, out);
        }
    }

    /// A request is granted, with the identifier at the end that does, or refused.
    fn opens(
        &mut self,
        adapter: usize,
        index: usize,
        asked: &Asked,
        destination: Option<u16>,
        limits: [u16; 3],
        out: &mut Out<'_, impl Sink>,
    ) {
        let Some(destination) = destination else {
            self.close(asked.slot, Closed::Over, out);
            return;
        };
        let towards = Direction::BOTH[asked.way];
        let dead = self.slot_of(adapter, index, towards, destination);
        if let Some(dead) = dead.filter(|&dead| dead != asked.slot) {
            self.close(dead, Closed::Replaced, out);
        }
        let Some(channel) = self.channels[asked.slot].as_mut() else { return };
        // What comes towards an end goes to the identifier that this end named.
        channel.cids[1 - asked.way] = Some(asked.source);
        channel.cids[asked.way] = Some(destination);
        let mut limits = [limits; 2];
        limits[1 - asked.way] = asked.limits;
        let of = |which: usize| limits.map(|limits| limits[which]);
        channel.mtu = of(0);
        let opened = L2cap::Opened { mtu: of(0), mps: of(1), credits: of(2) };
        self.say(asked.slot, Direction::Forward, opened, out);
    }

    pub(super) fn slot_of(&self, adapter: usize, index: usize, towards: Direction, cid: u16) -> Option<usize> {
        let owner = &self.adapters[adapter];
        let (number, handle) = (owner.index, owner.links[index].handle);
        self.channels.iter().position(|channel| {
            channel.as_ref().is_some_and(|channel| {
                channel.adapter == number && channel.handle == handle && channel.cids[towards.index()] == Some(cid)
            })
        })
    }

    pub(super) fn say(&self, slot: usize, way: Direction, what: L2cap, out: &mut Out<'_, impl Sink>) {
        if let Some(channel) = &self.channels[slot] {
            out.tell(channel.flow, way, what, NO_BYTES);
        }
    }
}
