//! What a sniffer of Bluetooth LE sees of a link.

use core::fmt;

/// A link of Bluetooth LE, as a sniffer tells links apart. Forward is what its central sends.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LeKey {
    /// Its access address (Core Specification, Vol 6, Part B, section 2.1.2).
    pub access_address: u32,
    /// Addresses of central and peripheral, last byte first as on the air; `None` where the link's begin was not seen.
    pub ends: Option<[[u8; 6]; 2]>,
}

impl LeKey {
    /// An end, as a report names it.
    pub const fn end(&self, is_central: bool) -> impl fmt::Display + use<> {
        End { key: *self, is_central }
    }
}

/// Writes `central 06:00:AA:01:00:00`, or `central of 0x50654a3c` where the address is not known.
struct End {
    key: LeKey,
    is_central: bool,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_central { "central" } else { "peripheral" })?;
        match self.key.ends {
            Some(ends) => {
                let [a, b, c, d, e, g] = ends[usize::from(!self.is_central)];
                write!(f, " {g:02X}:{e:02X}:{d:02X}:{c:02X}:{b:02X}:{a:02X}")
            }
            None => write!(f, " of {:#010x}", self.key.access_address),
        }
    }
}

/// Something of a link on the air.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Le {
    /// A data physical channel PDU began. The event's bytes are those of its payload, without the MIC.
    Pdu(LePdu),
    /// What the link is like from now on.
    Link(LeLink),
}

/// A data physical channel PDU.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LePdu {
    /// Its header; `None` where the sniffer got a wrong CRC, so that nothing of it is known.
    pub header: Option<LeHeader>,
    /// Distinguishes payloads: two that are equal have the same one.
    pub hash: u32,
    /// Time on air, in nanoseconds.
    pub air_ns: u32,
    /// Physical layer as in LE PHY Update Complete: 1 LE 1M, 2 LE 2M, 3 LE Coded.
    pub phy: u8,
    /// It is the first of its connection event that was seen.
    pub begins_event: bool,
    /// By the times, a PDU before it in the same event was not seen.
    pub is_after_hole: bool,
    /// Connection events before it of which nothing was seen.
    pub unseen_events: u16,
}

/// The header of a data physical channel PDU (Vol 6, Part B, section 2.4).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LeHeader {
    /// Link layer control.
    pub is_control: bool,
    /// Goes on with an L2CAP PDU that an earlier one began.
    pub continues: bool,
    /// Sequence number.
    pub sn: bool,
    /// Next expected sequence number.
    pub nesn: bool,
    /// More data.
    pub md: bool,
    /// Bytes of the payload, with the MIC.
    pub length: u8,
}

/// What a link is like, as far as was seen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LeLink {
    /// Connection interval in use, in nanoseconds; 0: not known.
    pub interval_ns: u64,
    /// Whether the interval was told by a PDU, and not by the distance of anchors alone.
    pub is_told: bool,
    /// Events that the peripheral may skip.
    pub latency: Option<u16>,
    /// Longest payload that was agreed on, in bytes, by direction; 27 until extended, `None`: not seen.
    pub length: Option<[u16; 2]>,
    /// Whether encryption was seen to begin, or the capture marks PDUs as encrypted.
    pub is_encrypted: bool,
    /// Whether the capture says who sent a PDU. Else it is told by turns.
    pub tells_direction: bool,
    /// Whether the capture says of a PDU whether its CRC was right.
    pub tells_crc: bool,
    /// Whether the capture says on which PHY a PDU was.
    pub tells_phy: bool,
    /// Whether LL_TERMINATE_IND was seen.
    pub is_over: bool,
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn ends_are_named_by_what_is_known() {
        let mut key = LeKey { access_address: 0x50_65_4a_3c, ends: None };
        assert_eq!(key.end(false).to_string(), "peripheral of 0x50654a3c");
        key.ends = Some([[0, 0, 1, 0xaa, 0, 6], [9; 6]]);
        assert_eq!(key.end(true).to_string(), "central 06:00:AA:01:00:00");
        assert_eq!(key.end(false).to_string(), "peripheral 09:09:09:09:09:09");
    }
}
