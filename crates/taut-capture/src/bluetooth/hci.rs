//! From a record to a packet of the host controller interface.

use taut_air::hci::PacketView;

use crate::bytes::be16;
use crate::packet::{LinkType, Packet};

/// What is read of a log of Bluetooth.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Record {
    /// Its packet now stands in the buffer.
    Packet {
        adapter: u16,
        is_received: bool,
        /// So many of its bytes were kept, the H4 indicator among them; `None`: all.
        kept: Option<usize>,
    },
    /// The adapter appeared, went, or was switched on or off.
    Restarted {
        adapter: u16,
    },
    /// Something else that such logs have: an adapter appears, a note.
    Other,
    Malformed,
}

/// An ACL packet is no longer: its length has 16 bits.
const LONGEST: usize = 5 + 0xffff;

/// Whether a packet is one of the host controller interface.
pub(crate) const fn is_hci(link: LinkType) -> bool {
    matches!(
        link,
        LinkType::BTSNOOP_HCI
            | LinkType::BTSNOOP_H4
            | LinkType::BTSNOOP_MONITOR
            | LinkType::HCI_H4_WITH_DIRECTION
            | LinkType::LINUX_MONITOR
    )
}

/// Puts the packet into `to`, its H4 indicator in front. What was not kept of it is filled with zeros, so that
/// its lengths hold.
pub(super) fn read(packet: &Packet<'_>, to: &mut Vec<u8>) -> Record {
    let bytes = packet.bytes;
    let (adapter, indicator, is_received, front) = match packet.link {
        LinkType::BTSNOOP_H4 => (0, None, packet.flags & 1 == 1, 0),
        LinkType::BTSNOOP_HCI => {
            let indicator = [2, 2, 1, 4][(packet.flags & 3) as usize];
            (0, Some(indicator), packet.flags & 1 == 1, 0)
        }
        LinkType::HCI_H4_WITH_DIRECTION if bytes.len() >= 4 => (0, None, bytes[3] & 1 == 1, 4),
        LinkType::BTSNOOP_MONITOR => match monitor(packet.flags as u16) {
            Some((indicator, is_received)) => ((packet.flags >> 16) as u16, Some(indicator), is_received, 0),
            None => return other((packet.flags >> 16) as u16, packet.flags as u16),
        },
        LinkType::LINUX_MONITOR => {
            let (Some(adapter), Some(opcode)) = (be16(bytes, 0), be16(bytes, 2)) else { return Record::Malformed };
            match monitor(opcode) {
                Some((indicator, is_received)) => (adapter, Some(indicator), is_received, 4),
                None => return other(adapter, opcode),
            }
        }
        _ => return Record::Malformed,
    };
    to.clear();
    to.extend(indicator);
    to.extend(bytes.get(front..).unwrap_or_default().iter().take(LONGEST));
    let whole = packet.original_length as usize - front.min(packet.original_length as usize);
    let whole = whole.saturating_add(usize::from(indicator.is_some())).min(LONGEST);
    let kept = Some(to.len()).filter(|&kept| kept < whole);
    if kept.is_some() {
        to.resize(whole, 0);
    }
    Record::Packet { adapter, is_received, kept }
}

/// Indicator and direction of what Linux's monitor tells (BlueZ, doc/btsnoop-protocol.rst).
const fn monitor(opcode: u16) -> Option<(u8, bool)> {
    match opcode {
        2 => Some((1, false)),
        3 => Some((4, true)),
        4 => Some((2, false)),
        5 => Some((2, true)),
        _ => None,
    }
}

/// New, Delete, Open and Close Index tell of the adapter itself.
const fn other(adapter: u16, opcode: u16) -> Record {
    match opcode {
        0 | 1 | 8 | 9 => Record::Restarted { adapter },
        _ => Record::Other,
    }
}

/// What an event tells about links and buffers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Told<'a> {
    Connected {
        handle: u16,
        is_central: bool,
        peer: [u8; 6],
        interval: u16,
        latency: u16,
    },
    ClassicConnected {
        handle: u16,
        peer: [u8; 6],
    },
    Updated {
        handle: u16,
        interval: u16,
        latency: u16,
    },
    Length {
        handle: u16,
        sent: u16,
        received: u16,
    },
    Phy {
        handle: u16,
        sent: u8,
        received: u8,
    },
    Encrypted {
        handle: u16,
    },
    /// A link of BR/EDR is in another mode.
    Mode {
        handle: u16,
        /// In slots; 0: it is not sniff mode.
        sniff: u16,
    },
    Disconnected {
        handle: u16,
    },
    Completed(Completions<'a>),
    LeBuffers {
        packets: u16,
        /// Of the longest one, in bytes.
        length: u16,
    },
    Buffers {
        packets: u16,
    },
    /// The controller has no links and no packets any more.
    Reset,
    Nothing,
}

/// Handles with numbers of packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Completions<'a>(&'a [u8]);

impl<'a> Completions<'a> {
    pub(super) fn iter(self) -> impl Iterator<Item = (u16, u16)> + 'a {
        self.0.chunks_exact(4).map(|four| (u16le(four, 0).unwrap_or(0) & 0xfff, u16le(four, 2).unwrap_or(0)))
    }
}

fn u16le(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_le_bytes(*two))
}

/// Reads an event (Core Specification, Vol 4, Part E, section 7.7).
pub(super) fn event<'a>(view: &PacketView<'a>) -> Told<'a> {
    let PacketView::Event { code, parameters } = *view else { return Told::Nothing };
    told(code, parameters).unwrap_or(Told::Nothing)
}

fn told(code: u8, parameters: &[u8]) -> Option<Told<'_>> {
    use taut_air::hci::command::{LE_READ_BUFFER_SIZE, LE_READ_PHY, READ_BUFFER_SIZE, RESET};
    use taut_air::hci::event as codes;
    /// LE Read Buffer Size, version 2.
    const LE_READ_BUFFER_SIZE_V2: u16 = 0x2060;
    const HARDWARE_ERROR: u8 = 0x10;
    /// Mode Change (section 7.7.20), and of its modes the one in which packets wait for an anchor point.
    const MODE_CHANGE: u8 = 0x14;
    const SNIFF: u8 = 2;
    let byte = |at: usize| parameters.get(at).copied();
    let word = |at: usize| u16le(parameters, at);
    let handle = |at: usize| word(at).map(|handle| handle & 0xfff);
    let is_success = |at: usize| byte(at) == Some(0);
    Some(match code {
        // Links for audio (SCO) have their own packets.
        codes::CONNECTION_COMPLETE if is_success(0) && byte(9)? == 1 => {
            Told::ClassicConnected { handle: handle(1)?, peer: *parameters.get(3..)?.first_chunk()? }
        }
        codes::DISCONNECTION_COMPLETE if is_success(0) => Told::Disconnected { handle: handle(1)? },
        codes::ENCRYPTION_CHANGE if is_success(0) && byte(3)? > 0 => Told::Encrypted { handle: handle(1)? },
        codes::COMPLETED_PACKETS => Told::Completed(Completions(parameters.get(1..)?)),
        MODE_CHANGE if is_success(0) => {
            Told::Mode { handle: handle(1)?, sniff: if byte(3)? == SNIFF { word(4)? } else { 0 } }
        }
        HARDWARE_ERROR => Told::Reset,
        codes::COMMAND_COMPLETE if is_success(3) => match word(1)? {
            LE_READ_BUFFER_SIZE | LE_READ_BUFFER_SIZE_V2 => {
                Told::LeBuffers { packets: byte(6)?.into(), length: word(4)? }
            }
            READ_BUFFER_SIZE => Told::Buffers { packets: word(7)? },
            // A link that extended advertising made may begin with another PHY, of which no other event tells
            // (section 7.8.47).
            LE_READ_PHY => Told::Phy { handle: handle(4)?, sent: byte(6)?, received: byte(7)? },
            RESET => Told::Reset,
            _ => return None,
        },
        codes::LE_META => match byte(0)? {
            // LE Enhanced Connection Complete, version 1 and 2, has two more addresses.
            subevent @ (codes::LE_CONNECTION_COMPLETE | 0x0a | 0x29) if is_success(1) => {
                let after = if subevent == codes::LE_CONNECTION_COMPLETE { 12 } else { 24 };
                Told::Connected {
                    handle: handle(2)?,
                    is_central: byte(4)? == 0,
                    peer: *parameters.get(6..)?.first_chunk()?,
                    interval: word(after)?,
                    latency: word(after + 2)?,
                }
            }
            codes::LE_CONNECTION_UPDATE_COMPLETE if is_success(1) => {
                Told::Updated { handle: handle(2)?, interval: word(4)?, latency: word(6)? }
            }
            codes::LE_DATA_LENGTH_CHANGE => Told::Length { handle: handle(1)?, sent: word(3)?, received: word(7)? },
            codes::LE_PHY_UPDATE_COMPLETE if is_success(1) => {
                Told::Phy { handle: handle(2)?, sent: byte(4)?, received: byte(5)? }
            }
            _ => return None,
        },
        _ => return None,
    })
}
