//! What a file has: packets, and an end.

use taut_time::Instant;

/// A packet as it stands in the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Packet<'a> {
    /// Its number in the file, from 1, as Wireshark counts.
    pub frame: u64,
    /// When it was seen, in nanoseconds since 1970; `None` in a block without a time.
    pub at: Option<Instant>,
    /// What its first header is.
    pub link: LinkType,
    /// Its bytes, as many as were kept.
    pub bytes: &'a [u8],
    /// How many bytes it had.
    pub original_length: u32,
    /// Of a record of btsnoop its flags: which way it went, or adapter and opcode of the monitor; 0 elsewhere.
    pub flags: u32,
    /// Packets that the capturing program says it has lost so far.
    pub lost: u64,
}

/// What the first header of a packet is, by the number of the registry of link types (tcpdump.org); the forms of
/// btsnoop, which it does not have, have numbers of their own from 65,001 on.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct LinkType(pub u16);

impl LinkType {
    /// HCI packets with an H4 indicator, and their direction in front (`LINKTYPE_BLUETOOTH_HCI_H4_WITH_PHDR`).
    pub const HCI_H4_WITH_DIRECTION: Self = Self(201);
    /// PDUs of Bluetooth LE from the access address on (`LINKTYPE_BLUETOOTH_LE_LL`).
    pub const LE: Self = Self(251);
    /// The same behind a header with channel, PHY and checks (`LINKTYPE_BLUETOOTH_LE_LL_WITH_PHDR`).
    pub const LE_WITH_HEADER: Self = Self(256);
    /// The same behind the headers of Nordic's sniffer (`LINKTYPE_NORDIC_BLE`).
    pub const NORDIC_LE: Self = Self(272);
    /// Packets of Linux's monitor, adapter and opcode in front (`LINKTYPE_BLUETOOTH_LINUX_MONITOR`).
    pub const LINUX_MONITOR: Self = Self(254);
    /// btsnoop 1001: HCI packets without indicator.
    pub const BTSNOOP_HCI: Self = Self(65_001);
    /// btsnoop 1002: HCI packets with an H4 indicator.
    pub const BTSNOOP_H4: Self = Self(65_002);
    /// btsnoop 2001: packets of Linux's monitor.
    pub const BTSNOOP_MONITOR: Self = Self(65_003);
}

/// How the reading ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ending {
    /// At the end of the file.
    Complete,
    /// The last record is cut off.
    Truncated {
        /// Where it begins, in bytes of the uncompressed file.
        at: u64,
    },
    /// What follows makes no sense.
    Damaged {
        /// Where, in bytes of the uncompressed file.
        at: u64,
        /// What is wrong there.
        why: String,
    },
}
