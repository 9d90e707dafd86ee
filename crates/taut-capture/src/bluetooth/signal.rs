//! Commands of the LE signalling channel: channels are asked for, opened and closed, and credits given.

use taut_air::l2cap::{Frame, Signal};
use taut_event::{Channel as Kind, Closed, Direction, L2cap, Sink};

use super::Bluetooth;
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
        let parsed = match reassembly.push(begins, data) {
            Ok(None) => return,
            Ok(Some(pdu)) => Frame::parse(pdu).ok().and_then(|frame| Signal::parse(frame.payload).ok()),
            Err(_) => None,
        };
        let Some((identifier, signal)) = parsed else {
            // Other commands of the channel are none of ours: parameter updates, enhanced channels.
            out.counts.hci_other += 1;
            return;
        };
        match signal {
            Signal::ConnectionRequest { spsm, source, mtu, mps, credits } => {
                let mut cids = [None; 2];
                cids[way.reverse().index()] = Some(source);
                // An end names no identifier twice: the channel that had it is no more.
                if let Some(dead) = self.slot_of(adapter, index, way.reverse(), source) {
                    self.close(dead, Closed::Replaced, out);
                }
                let slot = self.open(adapter, index, Kind::CreditBased(spsm), cids, out);
                let asked = Asked { way: way.index(), identifier, slot, source, limits: [mtu, mps, credits] };
                self.adapters[adapter].links[index].asks(asked);
                self.say(slot, way, L2cap::Asked, out);
            }
            Signal::ConnectionResponse { destination, mtu, mps, credits, result } => {
                let link = &mut self.adapters[adapter].links[index];
                let Some(asked) = link.answered(way.index(), identifier) else { return };
                if result != 0 {
                    self.close(asked.slot, Closed::Over, out);
                    return;
                }
                let towards = Direction::BOTH[asked.way];
                let dead = self.slot_of(adapter, index, towards, destination);
                if let Some(dead) = dead.filter(|&dead| dead != asked.slot) {
                    self.close(dead, Closed::Replaced, out);
                }
                let Some(channel) = self.channels[asked.slot].as_mut() else { return };
                // What comes towards an end goes to the identifier that this end named.
                channel.cids[1 - asked.way] = Some(asked.source);
                channel.cids[asked.way] = Some(destination);
                let mut limits = [[mtu, mps, credits]; 2];
                limits[1 - asked.way] = asked.limits;
                let of = |which: usize| limits.map(|limits| limits[which]);
                let opened = L2cap::Opened { mtu: of(0), mps: of(1), credits: of(2) };
                self.say(asked.slot, Direction::Forward, opened, out);
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
                let link = &mut self.adapters[adapter].links[index];
                if let Some(asked) = link.answered(way.index(), identifier) {
                    self.close(asked.slot, Closed::Over, out);
                }
            }
            Signal::DisconnectionRequest { .. } => {}
        }
    }

    fn slot_of(&self, adapter: usize, index: usize, towards: Direction, cid: u16) -> Option<usize> {
        let owner = &self.adapters[adapter];
        let (number, handle) = (owner.index, owner.links[index].handle);
        self.channels.iter().position(|channel| {
            channel.as_ref().is_some_and(|channel| {
                channel.adapter == number && channel.handle == handle && channel.cids[towards.index()] == Some(cid)
            })
        })
    }

    fn say(&self, slot: usize, way: Direction, what: L2cap, out: &mut Out<'_, impl Sink>) {
        if let Some(channel) = &self.channels[slot] {
            out.tell(channel.flow, way, what, NO_BYTES);
        }
    }
}
