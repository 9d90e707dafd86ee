//! What the two controllers and the two ends of a channel agreed on, overheard while a link is set up: the socket tells
//! little of it. Needs `CAP_NET_RAW`; without it those facts are missing from the recording.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Mutex, PoisonError};

use socket2::Socket;

use super::management::hci_socket;
use super::{DeviceAddress, le16};

const HCI_DEV_NONE: u16 = 0xFFFF;
const HCI_CHANNEL_MONITOR: u16 = 2;
/// Opcodes of `struct hci_mon_hdr`.
const EVENT: u16 = 3;
const ACL_TX: u16 = 4;
const ACL_RX: u16 = 5;
/// HCI event LE Meta and its subevents (Bluetooth Core Specification, Vol 4, Part E, section 7.7.65).
const LE_META: u8 = 0x3E;
const CONNECTION_COMPLETE: u8 = 0x01;
const CONNECTION_UPDATE: u8 = 0x03;
const DATA_LENGTH_CHANGE: u8 = 0x07;
const ENHANCED_CONNECTION_COMPLETE: u8 = 0x0A;
/// The channel of L2CAP's signalling on LE and two of its codes (Vol 3, Part A, sections 2.1, 4.22 and 4.23).
const LE_SIGNALLING: u16 = 5;
const CREDIT_CONNECTION_REQUEST: u8 = 0x14;
const CREDIT_CONNECTION_RESPONSE: u8 = 0x15;

/// A socket that hears what adapters and kernel say to each other.
pub(super) struct Monitor(Option<Socket>);

/// What was heard.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Heard {
    /// Of the radio link, which outlives a channel.
    radio: Radio,
    /// Of our end of the channel: MPS in bytes and first credits.
    ours: Option<(u16, u16)>,
    /// The same of the peer's.
    theirs: Option<(u16, u16)>,
}

/// Of a radio link.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Radio {
    /// In units of 1.25 ms.
    interval: Option<u16>,
    /// Events that the peripheral may skip.
    latency: Option<u16>,
    /// Longest payload of a PDU of the link layer that we send, in bytes.
    tx_octets: Option<u16>,
}

/// Links stay up for a while when their last channel is closed, and a new channel on them brings no new event of the radio.
static RADIOS: Mutex<BTreeMap<(u16, DeviceAddress), Radio>> = Mutex::new(BTreeMap::new());

impl Monitor {
    /// Begins to hear, where that is allowed.
    pub(super) fn open() -> Self {
        let socket = hci_socket(HCI_DEV_NONE, HCI_CHANNEL_MONITOR).ok();
        Self(socket.filter(|socket| socket.set_nonblocking(true).is_ok()))
    }

    /// What was said on an adapter since, about the link to a device.
    pub(super) fn heard(self, adapter: u16, device: DeviceAddress) -> Heard {
        let mut radios = RADIOS.lock().unwrap_or_else(PoisonError::into_inner);
        let radio = radios.entry((adapter, device)).or_default();
        let mut heard = Heard { radio: *radio, ..Heard::default() };
        let mut frame = [0; 4096];
        while let Some(Ok(bytes)) = self.0.as_ref().map(|mut socket| socket.read(&mut frame)) {
            heard.take(adapter, &frame[..bytes]);
        }
        *radio = heard.radio;
        heard
    }
}

impl Heard {
    /// As `name=value`, in the form of socket options.
    pub(super) fn facts(&self) -> Vec<String> {
        // Units of 1.25 ms.
        let interval_us = self.radio.interval.map(|units| u32::from(units) * 1250);
        let of = |end: Option<(u16, u16)>| (end.map(|(mps, _)| mps.into()), end.map(|(_, credits)| credits.into()));
        let ((our_mps, our_credits), (peer_mps, peer_credits)) = (of(self.ours), of(self.theirs));
        let facts: [(&str, Option<u32>); 7] = [
            ("connection_interval_us", interval_us),
            ("peripheral_latency", self.radio.latency.map(u32::from)),
            ("tx_octets", self.radio.tx_octets.map(u32::from)),
            ("rcv_mps", our_mps),
            ("credits_granted", our_credits),
            ("snd_mps", peer_mps),
            ("credits_received", peer_credits),
        ];
        facts.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?))).collect()
    }

    /// Takes what one frame of the monitor tells; most tell nothing.
    fn take(&mut self, adapter: u16, frame: &[u8]) {
        // struct hci_mon_hdr: opcode, adapter, length.
        if le16(frame, 2) != Some(adapter) {
            return;
        }
        let Some(body) = frame.get(6..) else { return };
        match le16(frame, 0) {
            Some(EVENT) => self.event(body),
            Some(opcode @ (ACL_TX | ACL_RX)) => self.data(opcode == ACL_TX, body),
            _ => {}
        }
    }

    fn event(&mut self, event: &[u8]) {
        // Event, length; then subevent, status, handle. The lengths of what precedes the interval differ.
        let (Some(&LE_META), Some(&subevent)) = (event.first(), event.get(2)) else { return };
        let interval_at = match subevent {
            CONNECTION_COMPLETE => 14,
            ENHANCED_CONNECTION_COMPLETE => 26,
            CONNECTION_UPDATE => 6,
            DATA_LENGTH_CHANGE => {
                self.radio.tx_octets = le16(event, 5).or(self.radio.tx_octets);
                return;
            }
            _ => return,
        };
        if event.get(3) != Some(&0) {
            return;
        }
        if subevent != CONNECTION_UPDATE {
            // A new link: what was known was of an old one. 27 bytes until it is extended (Vol 6, Part B, section 4.5.10).
            self.radio = Radio { tx_octets: Some(27), ..Radio::default() };
        }
        self.radio.interval = le16(event, interval_at);
        self.radio.latency = le16(event, interval_at + 2);
    }

    fn data(&mut self, sent: bool, packet: &[u8]) {
        // Handle, length; length and channel of L2CAP; code, identifier, length of the signal.
        if le16(packet, 6) != Some(LE_SIGNALLING) {
            return;
        }
        // PSM and channel stand before MTU, MPS and credits in the request, the channel alone in the response.
        let mps_at = match packet.get(8) {
            Some(&CREDIT_CONNECTION_REQUEST) => 18,
            Some(&CREDIT_CONNECTION_RESPONSE) => 16,
            _ => return,
        };
        if let (Some(mps), Some(credits)) = (le16(packet, mps_at), le16(packet, mps_at + 2)) {
            *(if sent { &mut self.ours } else { &mut self.theirs }) = Some((mps, credits));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u16, adapter: u16, body: &[u8]) -> Vec<u8> {
        let head = [opcode, adapter, u16::try_from(body.len()).unwrap()];
        head.into_iter().flat_map(u16::to_le_bytes).chain(body.iter().copied()).collect()
    }

    fn connection_complete(interval: u16) -> Vec<u8> {
        // Event, length; subevent, status, handle, role; peer's type and address; interval, latency, timeout, accuracy.
        let mut event = vec![LE_META, 19, CONNECTION_COMPLETE, 0, 64, 0, 1];
        event.extend_from_slice(&[0, 1, 2, 3, 4, 5, 6]);
        event.extend_from_slice(&interval.to_le_bytes());
        event.extend_from_slice(&[0, 0, 42, 0, 0]);
        assert_eq!(event.len(), 2 + usize::from(event[1]));
        event
    }

    fn signal(code: u8, fields: &[u16]) -> Vec<u8> {
        let length = u16::try_from(2 * fields.len()).unwrap();
        let mut packet =
            [64, length + 8, length + 4, LE_SIGNALLING].into_iter().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        packet.extend_from_slice(&[code, 1]);
        packet.extend([length].iter().chain(fields).flat_map(|field| field.to_le_bytes()));
        packet
    }

    #[test]
    fn radio_and_channel_are_heard() {
        let mut heard = Heard::default();
        heard.take(0, &frame(EVENT, 0, &connection_complete(40)));
        heard.take(0, &frame(EVENT, 0, &[LE_META, 11, DATA_LENGTH_CHANGE, 64, 0, 251, 0, 0x48, 8, 251, 0, 0x48, 8]));
        heard.take(0, &frame(ACL_TX, 0, &signal(CREDIT_CONNECTION_REQUEST, &[129, 64, 672, 247, 3])));
        heard.take(0, &frame(ACL_RX, 0, &signal(CREDIT_CONNECTION_RESPONSE, &[64, 672, 188, 4, 0])));
        let facts = [
            "connection_interval_us=50000",
            "peripheral_latency=0",
            "tx_octets=251",
            "rcv_mps=247",
            "credits_granted=3",
            "snd_mps=188",
            "credits_received=4",
        ];
        assert_eq!(heard.facts(), facts);
        heard.take(0, &frame(EVENT, 0, &[LE_META, 10, CONNECTION_UPDATE, 0, 64, 0, 6, 0, 0, 0, 42, 0]));
        assert_eq!(heard.facts()[0], "connection_interval_us=7500");
    }

    #[test]
    fn what_is_of_another_adapter_or_broken_is_passed_over() {
        let mut heard = Heard::default();
        let whole = frame(EVENT, 0, &connection_complete(40));
        heard.take(1, &whole);
        (0..whole.len() - 6).for_each(|length| heard.take(0, &whole[..length]));
        heard.take(0, &frame(ACL_TX, 0, &signal(CREDIT_CONNECTION_REQUEST, &[129, 64])));
        assert_eq!((heard.ours, heard.radio.interval), (None, None));
    }
}
