//! What the controllers have: packets that they took, and those that they told to be through.

use taut_event::{Direction, L2cap, Sink};

use super::Bluetooth;
use super::channel::Channel;
use super::out::{NO_BYTES, Out};

impl Bluetooth {
    /// Tells the channels of an adapter if packets are hidden, or are no longer.
    pub(super) fn hidden(&mut self, adapter: usize, out: &mut Out<'_, impl Sink>) {
        let owner = &mut self.adapters[adapter];
        owner.uncovers(out.place.at.as_nanos());
        let of_any = [false, true].map(|is_classic| owner.hides(is_classic));
        let mut changed = Vec::new();
        for link in &mut owner.links {
            let now = [link.hidden.is_some(), of_any[usize::from(link.is_classic)]];
            if link.hidden_told.replace(now) != Some(now) {
                changed.push((link.handle, now));
            }
        }
        let is_any = !changed.is_empty();
        for channel in self.channels.iter().flatten().filter(|its| is_any && its.adapter == owner.index) {
            let Some((_, now)) = changed.iter().find(|(handle, _)| *handle == channel.handle) else { continue };
            let [of_link, of_any] = *now;
            out.tell(channel.flow, Direction::Forward, L2cap::Hidden { of_link, of_any }, NO_BYTES);
        }
    }

    /// What the controllers have is no longer known.
    pub(super) fn lost(&mut self, out: &mut Out<'_, impl Sink>) {
        for adapter in &mut self.adapters {
            adapter.in_use = [0; 2];
            for link in &mut adapter.links {
                link.queue.clear();
                link.loses_packets(out.place.at.as_nanos());
                (link.current, link.is_amid) = ([None; 2], [true; 2]);
            }
        }
        // A hostile log has many links and channels, and a loss in each record: the channels are gone through once.
        for channel in self.channels.iter_mut().flatten() {
            let adapter = self.adapters.iter().find(|adapter| adapter.index == channel.adapter);
            let mut links = adapter.into_iter().flat_map(|adapter| &adapter.links);
            if let Some(link) = links.find(|link| link.handle == channel.handle) {
                if channel.stream.is_some_and(|ends| link.streams.hz(ends) > 0) {
                    out.tell(channel.flow, Direction::Forward, L2cap::Stream { hz: 0 }, NO_BYTES);
                }
                out.tell(channel.flow, Direction::Forward, L2cap::Link(link.facts), NO_BYTES);
            }
            channel.lost();
            out.tell(channel.flow, Direction::Forward, L2cap::Lost, NO_BYTES);
        }
        let links = self.adapters.iter_mut().flat_map(|adapter| &mut adapter.links);
        links.for_each(|link| link.streams.lost());
        self.buffers(out);
        (0..self.adapters.len()).for_each(|adapter| self.hidden(adapter, out));
    }

    /// The controller has one more packet.
    pub(super) fn taken(&mut self, adapter: usize, index: usize, slot: Option<usize>, out: &mut Out<'_, impl Sink>) {
        let owner = &mut self.adapters[adapter];
        let (pool, at) = (owner.pool(owner.links[index].is_classic), out.place.at.as_nanos());
        owner.links[index].moves(at, false);
        if !owner.links[index].queued(slot, at) {
            owner.in_use[pool] = owner.in_use[pool].saturating_add(1);
        }
        self.buffers(out);
        self.hidden(adapter, out);
    }

    /// Tells the channels when the controller's buffers have become full, or are no longer.
    pub(super) fn buffers(&mut self, out: &mut Out<'_, impl Sink>) {
        for adapter in &mut self.adapters {
            for pool in [0, 1] {
                let (in_use, of) = (adapter.in_use[pool], adapter.buffers(pool));
                let is_full = of > 0 && in_use >= of;
                if std::mem::replace(&mut adapter.is_full[pool], is_full) == is_full {
                    continue;
                }
                let is_of = |channel: &Channel| {
                    channel.adapter == adapter.index && adapter.pool(channel.kind.is_classic()) == pool
                };
                for channel in self.channels.iter().flatten().filter(|channel| is_of(channel)) {
                    out.tell(channel.flow, Direction::Forward, L2cap::Buffers { in_use, of }, NO_BYTES);
                }
            }
        }
    }

    pub(super) fn completed(&mut self, adapter: usize, handle: u16, packets: u16, out: &mut Out<'_, impl Sink>) {
        let at = out.place.at.as_nanos();
        let owner = &mut self.adapters[adapter];
        let Some(link) = owner.links.iter_mut().find(|link| link.handle == handle) else { return };
        let count = usize::from(packets).min(link.queue.len());
        let mut done: Vec<Option<usize>> = link.queue.drain(..count).collect();
        link.moves(at, packets > 0);
        // More than went: some packets are not in the log, and what was told of others may have been of these.
        let is_missing = link.hidden.is_none() && count < packets.into();
        if is_missing {
            link.may_hide(at);
        }
        let is_classic = link.is_classic;
        let (pool, number) = (owner.pool(is_classic), owner.index);
        owner.in_use[pool] = owner.in_use[pool].saturating_sub(count as u16);
        done.sort_unstable();
        for of_one in done.chunk_by(|a, b| a == b) {
            let Some(channel) = of_one[0].and_then(|slot| self.channels[slot].as_ref()) else { continue };
            let what = L2cap::Completed { packets: of_one.len() as u16 };
            out.tell(channel.flow, Direction::Forward, what, NO_BYTES);
        }
        if is_missing {
            let is_its = |channel: &&mut Channel| (channel.adapter, channel.handle) == (number, handle);
            for channel in self.channels.iter_mut().flatten().filter(is_its) {
                channel.lost();
                out.tell(channel.flow, Direction::Forward, L2cap::Lost, NO_BYTES);
            }
        }
        self.buffers(out);
    }
}
