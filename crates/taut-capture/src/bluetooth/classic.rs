//! Commands of the signalling channel of BR/EDR (Core Specification, Vol 3, Part A, section 4): channels are asked
//! for, configured and closed.

use taut_event::{Channel as Kind, Closed, Direction, L2cap, Sink};

use super::Bluetooth;
use super::avdtp::AVDTP_PSM;
use super::link::Asked;
use super::out::Out;

/// Longest SDU where nothing else is said (section 5.1).
const DEFAULT_MTU: u16 = 672;
const MTU_OPTION: u8 = 1;
const MODE_OPTION: u8 = 4;

const REJECT: u8 = 0x01;
const CONNECTION_REQUEST: u8 = 0x02;
const CONNECTION_RESPONSE: u8 = 0x03;
const CONFIGURATION_REQUEST: u8 = 0x04;
const CONFIGURATION_RESPONSE: u8 = 0x05;
const DISCONNECTION_RESPONSE: u8 = 0x07;
const PENDING: u16 = 1;

impl Bluetooth {
    pub(super) fn classic_signalling(
        &mut self,
        (adapter, index): (usize, usize),
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
        let Ok(Some(pdu)) = reassembly.push(begins, data) else { return };
        let pdu = pdu.to_vec();
        // Several commands may share a PDU here.
        let mut rest = pdu.get(4..).unwrap_or_default();
        while let [code, identifier, low, high, after @ ..] = rest {
            let Some((body, next)) = after.split_at_checked(u16::from_le_bytes([*low, *high]).into()) else {
                out.counts.malformed += 1;
                return;
            };
            self.command((adapter, index), way, (*code, *identifier), body, out);
            rest = next;
        }
    }

    fn command(
        &mut self,
        (adapter, index): (usize, usize),
        way: Direction,
        (code, identifier): (u8, u8),
        body: &[u8],
        out: &mut Out<'_, impl Sink>,
    ) {
        let word = |at: usize| body.get(2 * at..)?.first_chunk().map(|two| u16::from_le_bytes(*two));
        match (code, word(0), word(1), word(2)) {
            (CONNECTION_REQUEST, Some(psm), Some(source), _) => {
                self.never_answered(adapter, index, way, identifier, out);
                // What else a channel is depends on those that are left.
                self.replaces(adapter, index, way, source, out);
                let streams = &mut self.adapters[adapter].links[index].streams;
                let stream = (psm == AVDTP_PSM).then(|| streams.opened()).flatten();
                // The first channel of a link is that of its signals (AVDTP, section 5.4.1). Media's comes when it is
                // opened, which the log may lack.
                let is_second = psm == AVDTP_PSM
                    && !self.adapters[adapter].links[index].facts.from_start
                    && self.has_channel(adapter, index, Kind::Basic(AVDTP_PSM));
                let kind = if stream.is_some() || is_second { Kind::Media(source) } else { Kind::Basic(psm) };
                let slot = self.asks(adapter, index, way, identifier, (kind, source), [DEFAULT_MTU, 0, 0], out);
                if let Some(channel) = &mut self.channels[slot] {
                    channel.stream = stream.map(|stream| stream.ends);
                }
            }
            (CONNECTION_RESPONSE, Some(destination), Some(_), Some(result)) => {
                let link = &mut self.adapters[adapter].links[index];
                let Some(asked) = link.answered(way.index(), identifier) else { return };
                match result {
                    0 => self.connected((adapter, index), &asked, destination, out),
                    PENDING => link.asks(asked),
                    _ => self.close(asked.slot, Closed::Over, out),
                }
            }
            // The first of them is about the channel's identifier at the receiver of the request: what its sender takes
            // goes towards the sender.
            (CONFIGURATION_REQUEST, Some(destination), ..) => {
                let Some(slot) = self.slot_of(adapter, index, way, destination) else { return };
                let Some(channel) = self.channels[slot].as_mut() else { return };
                for (option, value) in options(body.get(4..).unwrap_or_default()) {
                    match (option, value) {
                        (MTU_OPTION, &[low, high]) => {
                            channel.mtu[way.reverse().index()] = u16::from_le_bytes([low, high]);
                        }
                        (MODE_OPTION, &[mode, ..]) => channel.is_basic = mode == 0,
                        _ => {}
                    }
                }
            }
            // It names the identifier at its receiver, who asked.
            (CONFIGURATION_RESPONSE, Some(source), Some(_), Some(0)) => {
                let Some(slot) = self.slot_of(adapter, index, way, source) else { return };
                let Some(channel) = self.channels[slot].as_mut() else { return };
                channel.is_agreed[way.index()] = true;
                if channel.is_agreed != [true; 2] || std::mem::replace(&mut channel.is_told, true) {
                    return;
                }
                let (mtu, is_basic, stream) = (channel.mtu, channel.is_basic, channel.stream);
                let opened = L2cap::Opened { mtu, mps: mtu, credits: [0; 2] };
                self.say(slot, Direction::Forward, opened, out);
                if !is_basic {
                    self.say(slot, Direction::Forward, L2cap::NotCounted, out);
                }
                if let Some(ends) = stream {
                    let hz = self.adapters[adapter].links[index].streams.hz(ends);
                    self.say(slot, Direction::Forward, L2cap::Stream { hz }, out);
                }
            }
            (DISCONNECTION_RESPONSE, Some(destination), ..) => {
                if let Some(slot) = self.slot_of(adapter, index, way.reverse(), destination) {
                    self.close(slot, Closed::Over, out);
                }
            }
            (REJECT, ..) => {
                while let Some(asked) = self.adapters[adapter].links[index].answered(way.index(), identifier) {
                    self.close(asked.slot, Closed::Over, out);
                }
            }
            _ => {}
        }
    }

    fn has_channel(&self, adapter: usize, index: usize, kind: Kind) -> bool {
        let owner = &self.adapters[adapter];
        let of = (owner.index, owner.links[index].handle, kind);
        self.channels.iter().flatten().any(|its| (its.adapter, its.handle, its.kind) == of)
    }

    /// The channel has an identifier at both ends; what they take is agreed on next.
    fn connected(
        &mut self,
        (adapter, index): (usize, usize),
        asked: &Asked,
        destination: u16,
        out: &mut Out<'_, impl Sink>,
    ) {
        let towards = Direction::BOTH[asked.way];
        let dead = self.slot_of(adapter, index, towards, destination);
        if let Some(dead) = dead.filter(|&dead| dead != asked.slot) {
            self.close(dead, Closed::Replaced, out);
        }
        if let Some(channel) = self.channels[asked.slot].as_mut() {
            channel.cids[asked.way] = Some(destination);
            channel.mtu = [DEFAULT_MTU; 2];
        }
    }
}

/// Kinds and values of configuration options; the top bit of a kind is a hint.
fn options(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let [kind, length, rest @ ..] = bytes else { return None };
        let (value, rest) = rest.split_at_checked(usize::from(*length))?;
        bytes = rest;
        Some((kind & 0x7f, value))
    })
}
