//! What the two controllers and the two ends of a channel agreed on, from frames of the monitor.
//!
//! An adapter has several connections at once, and each several channels. So what is heard of a channel
//! is kept by the handle of its connection, and only whole PDUs count: data may look like anything.

use std::collections::BTreeMap;

use taut_air::hci::{Acl, Boundary, PacketView};
use taut_air::l2cap::{Frame, Reassembly, Signal};

use super::agreed::Agreed;
use super::{DeviceAddress, le16};

/// Opcodes of `struct hci_mon_hdr`.
pub(super) const EVENT: u16 = 3;
pub(super) const ACL_TX: u16 = 4;
pub(super) const ACL_RX: u16 = 5;
/// HCI events (Bluetooth Core Specification, Vol 4, Part E, section 7.7), and subevents of LE Meta (section 7.7.65).
const ENCRYPTION_CHANGE: u8 = 0x08;
const COMMAND_COMPLETE: u8 = 0x0E;
const COMMAND_STATUS: u8 = 0x0F;
const LE_META: u8 = 0x3E;
const ENCRYPTION_CHANGE_V2: u8 = 0x59;
const CONNECTION_COMPLETE: u8 = 0x01;
const CONNECTION_UPDATE: u8 = 0x03;
const DATA_LENGTH_CHANGE: u8 = 0x07;
const ENHANCED_CONNECTION_COMPLETE: u8 = 0x0A;
const PHY_UPDATE: u8 = 0x0C;
/// The channel of L2CAP's signalling on LE and some of its codes (Vol 3, Part A, sections 2.1 and 4.20 to 4.24).
pub(super) const LE_SIGNALLING: u16 = 5;
pub(super) const PARAMETER_UPDATE_REQUEST: u8 = 0x12;
pub(super) const PARAMETER_UPDATE_RESPONSE: u8 = 0x13;
pub(super) const CREDIT_CONNECTION_REQUEST: u8 = 0x14;
pub(super) const CREDIT_CONNECTION_RESPONSE: u8 = 0x15;
pub(super) const CREDITS: u8 = 0x16;
/// The Security Manager's channel and its "Pairing Failed" (Vol 3, Part H, section 3.5.5).
const SECURITY_MANAGER: u16 = 6;
const PAIRING_FAILED: u8 = 0x05;
/// In us.
const INTERVAL_UNIT: u32 = 1250;

/// What was heard of a link.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// Of the radio link, which outlives a channel: the newest to the device.
    radio: Radio,
    /// The one that the channel is on, as the kernel tells.
    handle: Option<u16>,
    /// Of the channel on each connection of the adapter, by its handle.
    channels: BTreeMap<u16, Channel>,
    /// PDUs that are not whole yet, by the handle of their connection and whether they are sent.
    partial: BTreeMap<(u16, bool), Reassembly>,
    /// The connection on which this side last asked for a channel.
    asked_on: Option<u16>,
    /// Frames of the monitor taken so far, of those that it shares among several.
    pub(super) taken: u64,
    /// The status of the last command of each kind that a controller answered: opcode and status.
    answered: Option<(u16, u8)>,
    /// Why the link could not be secured.
    insecure: Option<Insecure>,
}

/// What was heard of a channel.
#[derive(Clone, Debug, Default)]
struct Channel {
    ours: End,
    theirs: End,
    /// Identifier of the signal with which the channel was asked for, and the side that asked: true is ours.
    asked: Option<(u8, bool)>,
    /// What was answered to that.
    result: Option<u16>,
    /// PDUs of data that came for the channel before the answer that opens it.
    early: u32,
}

/// Why a link could not be secured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Insecure {
    /// Pairing failed for this reason (Vol 3, Part H, section 3.5.5), which the peer gave or we did.
    Pairing { reason: u8, by_peer: bool },
    /// Encryption failed with this status of the controller (Vol 1, Part F).
    Encryption { status: u8 },
}

/// One end of a channel.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct End {
    /// Its number for the channel.
    channel: Option<u16>,
    /// Longest PDU that it takes, in bytes, and the credits that it gave at first.
    mps_and_credits: Option<(u16, u16)>,
    /// The most credits that it gave later in one signal.
    largest_grant: Option<u16>,
}

/// Of a radio link.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Radio {
    pub(super) handle: Option<u16>,
    pub(super) agreed: Agreed,
    /// Limits of the interval that the peer has asked for, until they are met.
    pub(super) peer_wants: Option<[u16; 2]>,
    /// The interval before and after the peer had it changed.
    pub(super) put_back: Option<[u16; 2]>,
    /// Whether the controllers encrypt it.
    pub(super) encrypted: bool,
}

impl Heard {
    /// Of a channel on the connection with that handle, where it is known.
    pub(super) fn of(handle: Option<u16>) -> Self {
        Self { handle, ..Self::default() }
    }

    /// For the next try, when this one failed: of what is said from now on.
    pub(super) fn anew(&self) -> Self {
        Self { taken: self.taken, ..Self::default() }
    }

    /// The channel is on the connection with that handle, which is known only once it is open.
    pub(super) const fn be_of(&mut self, handle: u16) {
        self.handle = Some(handle);
    }

    /// Takes over what is known of the radio link from other channels.
    pub(super) fn begin_with(&mut self, radio: Radio) {
        self.radio = radio;
    }

    /// What is known of the newest radio link to the device.
    pub(super) const fn radio(&self) -> Radio {
        self.radio
    }

    /// What is known of the channel's own radio link.
    pub(super) fn agreed(&self) -> Agreed {
        if self.is_of_an_old_link() { Agreed::default() } else { self.radio.agreed }
    }

    /// Takes what the peer tells of the link where nothing was heard of it.
    pub(super) fn be_told(&mut self, told: Agreed) {
        let heard = self.agreed();
        if self.is_of_an_old_link() {
            self.radio = Radio::default();
        }
        self.radio.handle = self.radio.handle.or(self.handle);
        self.radio.agreed = heard.or(told);
    }

    /// What is known is of another link than the channel's.
    fn is_of_an_old_link(&self) -> bool {
        matches!((self.handle, self.radio.handle), (Some(ours), Some(known)) if ours != known)
    }

    /// The status of the last command answered, when it is this one; it is not told again.
    pub(super) fn answer(&mut self, opcode: u16) -> Option<u8> {
        self.answered.take_if(|(of, _)| *of == opcode).map(|(_, status)| status)
    }

    /// Why the link could not be secured, when that was heard.
    pub(super) const fn insecure(&self) -> Option<Insecure> {
        self.insecure
    }

    /// Whether a channel was refused since the peer still has another one by the number that was
    /// free here ("Source CID already allocated", Vol 3, Part A, section 4.23).
    pub(super) fn number_is_taken(&self) -> bool {
        self.channel().is_some_and(|channel| channel.result == Some(0x000A))
    }

    /// What was heard of the channel itself. Where its connection is not known yet, the channel
    /// asked for last is meant.
    fn channel(&self) -> Option<&Channel> {
        self.channels.get(&self.handle.or(self.asked_on).or(self.radio.handle)?)
    }

    /// As `name=value`, in the form of socket options.
    pub(super) fn facts(&self) -> Vec<String> {
        let us = |units: Option<u16>| units.map(|units| u32::from(units) * INTERVAL_UNIT);
        let mps = |end: End| end.mps_and_credits.map(|(mps, _)| mps.into());
        let credits = |end: End| end.mps_and_credits.map(|(_, credits)| credits.into());
        let (radio, agreed) = (self.radio, self.agreed());
        let (ours, theirs) = self.channel().map_or_else(Default::default, |channel| (channel.ours, channel.theirs));
        let early = self.channel().map_or(0, |channel| channel.early);
        let facts: [(&str, Option<u32>); 14] = [
            ("connection_interval_us", us(agreed.interval)),
            ("peripheral_latency", agreed.latency.map(u32::from)),
            ("supervision_timeout_ms", agreed.timeout.map(|units| u32::from(units) * 10)),
            ("tx_octets", agreed.tx_octets.map(u32::from)),
            ("rx_octets", agreed.rx_octets.map(u32::from)),
            ("rcv_mps", mps(ours)),
            ("credits_granted", credits(ours)),
            ("largest_grant", ours.largest_grant.map(u32::from)),
            ("snd_mps", mps(theirs)),
            ("credits_received", credits(theirs)),
            ("largest_grant_received", theirs.largest_grant.map(u32::from)),
            ("interval_put_back_from_us", us(radio.put_back.map(|[from, _]| from))),
            ("encrypted", radio.encrypted.then_some(1)),
            ("data_before_response", Some(early).filter(|early| *early > 0)),
        ];
        let phys = agreed.phys.map(|[tx, rx]| format!("phy={}_tx+{}_rx", phy_name(tx), phy_name(rx)));
        let numbers = facts.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        numbers.chain(phys).collect()
    }

    /// Takes what one frame of the monitor tells of the link to a device; most tell nothing.
    pub(super) fn take(&mut self, adapter: u16, device: DeviceAddress, frame: &[u8]) {
        // struct hci_mon_hdr: opcode, adapter, length.
        if le16(frame, 2) != Some(adapter) {
            return;
        }
        let Some(body) = frame.get(6..) else { return };
        // The monitor's opcode stands for the indicator that HCI's UART transport has before each packet.
        let packet = |indicator: u8| [&[indicator], body].concat();
        let of_event = |packet: &[u8]| matches!(PacketView::parse(packet), Ok(PacketView::Event { .. }));
        match le16(frame, 0) {
            Some(EVENT) if of_event(&packet(4)) => drop(self.event(device, body)),
            Some(opcode @ (ACL_TX | ACL_RX)) => {
                if let Ok(PacketView::Acl(acl)) = PacketView::parse(&packet(2)) {
                    self.data(opcode == ACL_TX, acl);
                }
            }
            _ => {}
        }
    }

    /// Event, length; of LE Meta then subevent, status, handle. `None` where it ends too early or isn't ours.
    fn event(&mut self, device: DeviceAddress, event: &[u8]) -> Option<()> {
        match *event.first()? {
            COMMAND_COMPLETE => self.answered = Some((le16(event, 3)?, *event.get(5)?)),
            COMMAND_STATUS => self.answered = Some((le16(event, 4)?, *event.get(2)?)),
            ENCRYPTION_CHANGE | ENCRYPTION_CHANGE_V2 if self.is_ours(le16(event, 3)?) => match *event.get(2)? {
                0 => self.radio.encrypted = *event.get(5)? != 0,
                status => self.insecure = Some(Insecure::Encryption { status }),
            },
            LE_META => self.le_event(device, event)?,
            _ => {}
        }
        Some(())
    }

    fn is_ours(&self, handle: u16) -> bool {
        self.radio.handle.or(self.handle).is_none_or(|ours| ours == handle)
    }

    fn le_event(&mut self, device: DeviceAddress, event: &[u8]) -> Option<()> {
        let (subevent, status) = (*event.get(2)?, *event.get(3)?);
        match subevent {
            CONNECTION_COMPLETE | ENHANCED_CONNECTION_COMPLETE if status == 0 => {
                // The own address and the peer's, as far as they are made up, precede the interval
                // in the enhanced event.
                let at = if subevent == CONNECTION_COMPLETE { 14 } else { 26 };
                let peer: [u8; 6] = event.get(8..14)?.try_into().ok()?;
                if DeviceAddress::from_wire(peer) != device {
                    return None;
                }
                // What was known was of an old link, that of its channels as well: handles are given
                // again. 27 bytes until it is extended (Vol 6, Part B, section 4.5.10), on LE 1M.
                if let Some(handle) = le16(event, 4) {
                    self.channels.remove(&handle);
                }
                self.radio = Radio {
                    handle: le16(event, 4),
                    agreed: Agreed {
                        interval: Some(le16(event, at)?),
                        latency: le16(event, at + 2),
                        timeout: le16(event, at + 4),
                        tx_octets: Some(27),
                        rx_octets: Some(27),
                        phys: Some([1, 1]),
                    },
                    ..Radio::default()
                };
            }
            CONNECTION_UPDATE if status == 0 && self.is_ours(le16(event, 4)?) => {
                let interval = le16(event, 6)?;
                let wanted = self.radio.peer_wants.take().filter(|[min, max]| (min..=max).contains(&&interval));
                let before = self.radio.agreed.interval.filter(|before| *before != interval);
                if let (Some(before), Some(_)) = (before, wanted) {
                    self.radio.put_back = Some([before, interval]);
                }
                let agreed = &mut self.radio.agreed;
                (agreed.interval, agreed.latency, agreed.timeout) = (Some(interval), le16(event, 8), le16(event, 10));
            }
            // Without a status: the handle comes one byte earlier.
            DATA_LENGTH_CHANGE if self.is_ours(le16(event, 3)?) => {
                let agreed = &mut self.radio.agreed;
                agreed.tx_octets = le16(event, 5).or(agreed.tx_octets);
                agreed.rx_octets = le16(event, 9).or(agreed.rx_octets);
            }
            PHY_UPDATE if status == 0 && self.is_ours(le16(event, 4)?) => {
                self.radio.agreed.phys = Some([*event.get(6)?, *event.get(7)?]);
            }
            _ => {}
        }
        Some(())
    }

    /// Data of any connection of the adapter, to it or from it; what is no whole PDU of L2CAP yet waits for the rest.
    fn data(&mut self, sent: bool, acl: Acl<'_>) {
        let of_radio = self.is_ours(acl.handle);
        let channel = self.channels.entry(acl.handle).or_default();
        let partial = self.partial.entry((acl.handle, sent)).or_default();
        let first = acl.boundary != Boundary::Continuing;
        if first {
            // The rest of what came before may have been kept away, as data is.
            *partial = Reassembly::default();
        }
        // What continues something that was not heard is nothing to go by.
        let Ok(Some(pdu)) = partial.push(first, acl.data) else { return };
        let Ok(Frame { cid, payload }) = Frame::parse(pdu) else { return };
        match (cid, payload) {
            (SECURITY_MANAGER, [PAIRING_FAILED, reason, ..]) if of_radio => {
                self.insecure = Some(Insecure::Pairing { reason: *reason, by_peer: !sent });
            }
            (LE_SIGNALLING, payload) => match (payload.first(), Signal::parse(payload)) {
                (_, Ok((identifier, signal))) => {
                    if sent && matches!(signal, Signal::ConnectionRequest { .. }) {
                        self.asked_on = Some(acl.handle);
                    }
                    channel.signal(sent, identifier, signal);
                }
                (Some(&code), Err(_)) if of_radio => self.radio.parameters(sent, code, payload),
                _ => {}
            },
            (cid, _) => {
                let is_open = channel.theirs.channel.is_some();
                let is_ours = !sent && channel.ours.channel == Some(cid) && matches!(channel.asked, Some((_, true)));
                channel.early += u32::from(is_ours && !is_open);
            }
        }
    }
}

impl Channel {
    fn signal(&mut self, sent: bool, identifier: u8, signal: Signal) {
        match signal {
            // One channel at a time: of several that are asked for, a link's own is the first after it began to hear.
            Signal::ConnectionRequest { source, mps, credits, .. } if self.asked.is_none() || !sent => {
                self.asked = Some((identifier, sent));
                *self.end(sent) = End::of(source, mps, credits);
            }
            Signal::ConnectionResponse { destination, mps, credits, result, .. }
                if self.asked == Some((identifier, !sent)) =>
            {
                self.result = Some(result);
                if result == 0 {
                    *self.end(sent) = End::of(destination, mps, credits);
                }
            }
            // The number is the one that the sender of the credits has for the channel.
            Signal::Credits { cid, credits } => {
                let end = self.end(sent);
                if end.channel == Some(cid) {
                    end.largest_grant = end.largest_grant.max(Some(credits));
                }
            }
            _ => {}
        }
    }

    const fn end(&mut self, ours: bool) -> &mut End {
        if ours { &mut self.ours } else { &mut self.theirs }
    }
}

impl End {
    const fn of(channel: u16, mps: u16, credits: u16) -> Self {
        Self { channel: Some(channel), mps_and_credits: Some((mps, credits)), largest_grant: None }
    }
}

impl Radio {
    /// A signal about the parameters of the connection (Vol 3, Part A, sections 4.20 and 4.21):
    /// code, identifier, length; fields.
    fn parameters(&mut self, sent: bool, code: u8, signal: &[u8]) {
        let limits = le16(signal, 4).zip(le16(signal, 6));
        match code {
            PARAMETER_UPDATE_REQUEST if !sent => {
                self.peer_wants = limits.map(|(min, max)| [min, max]).or(self.peer_wants)
            }
            // Refused.
            PARAMETER_UPDATE_RESPONSE if sent && le16(signal, 4).is_some_and(|result| result != 0) => {
                self.peer_wants = None;
            }
            _ => {}
        }
    }
}

/// A PHY as events number it (Bluetooth Core Specification, Vol 4, Part E, section 7.7.65.12).
const fn phy_name(number: u8) -> &'static str {
    match number {
        1 => "1m",
        2 => "2m",
        _ => "coded",
    }
}

#[cfg(test)]
mod tests;
