//! Physical layers and how long a packet takes on them (Core Specification, Vol 6, Part B, 2.1 and 2.2).

use crate::time::{Nanos, US};

/// A physical layer of LE.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Phy {
    /// LE 1M: 1 Mb/s, a symbol per bit.
    #[default]
    Le1M,
    /// LE 2M: 2 Mb/s.
    Le2M,
    /// LE Coded with two symbols per bit, 500 kb/s.
    CodedS2,
    /// LE Coded with eight symbols per bit, 125 kb/s.
    CodedS8,
}

/// Bytes of the access address.
pub const ACCESS_ADDRESS_BYTES: usize = 4;
/// Bytes of a data PDU's header.
pub const HEADER_BYTES: usize = 2;
/// Bytes of the message integrity check, in a non-empty PDU on an encrypted link.
pub const MIC_BYTES: usize = 4;
/// Bytes of the CRC.
pub const CRC_BYTES: usize = 3;
/// Longest payload of a data PDU, MIC not counted.
pub const MAX_LENGTH: usize = 251;
/// Shortest value of the longest payload: what every controller takes.
pub const MIN_LENGTH: usize = 27;

impl Phy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Le1M, Self::Le2M, Self::CodedS2, Self::CodedS8];

    /// Name as scenarios and command lines have it: `1m`, `2m`, `s2`, `s8`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Le1M => "1m",
            Self::Le2M => "2m",
            Self::CodedS2 => "s2",
            Self::CodedS8 => "s8",
        }
    }

    /// Time of one byte of a PDU.
    pub const fn nanos_per_byte(self) -> Nanos {
        match self {
            Self::Le1M => 8 * US,
            Self::Le2M => 4 * US,
            Self::CodedS2 => 16 * US,
            Self::CodedS8 => 64 * US,
        }
    }

    /// From a packet's first bit until its receiver knows that it is one: preamble and access address, on LE Coded also
    /// the coding indicator and the first termination (always in S=8).
    pub const fn sync_time(self) -> Nanos {
        match self {
            Self::Le1M => (1 + 4) * 8 * US,
            Self::Le2M => (2 + 4) * 4 * US,
            Self::CodedS2 | Self::CodedS8 => (80 + 256 + 16 + 24) * US,
        }
    }

    /// Time on air of a data PDU with `payload` bytes of payload, and MIC when `mic` and the payload isn't empty.
    ///
    /// ```
    /// use taut_air::Phy;
    /// assert_eq!(Phy::Le1M.air_time(251, false), 2_088_000);
    /// assert_eq!(Phy::Le2M.air_time(251, true), 1_064_000);
    /// assert_eq!(Phy::CodedS8.air_time(251, true), 17_040_000);
    /// ```
    pub const fn air_time(self, payload: usize, mic: bool) -> Nanos {
        let mic = if mic && payload > 0 { MIC_BYTES } else { 0 };
        self.sync_time() + (HEADER_BYTES + payload + mic + CRC_BYTES) as Nanos * self.nanos_per_byte() + self.tail()
    }

    /// The second termination of LE Coded: three bits.
    const fn tail(self) -> Nanos {
        match self {
            Self::Le1M | Self::Le2M => 0,
            Self::CodedS2 => 3 * 2 * US,
            Self::CodedS8 => 3 * 8 * US,
        }
    }

    /// Whether this is LE Coded.
    pub const fn is_coded(self) -> bool {
        matches!(self, Self::CodedS2 | Self::CodedS8)
    }

    /// The PHY's number in HCI's events: 1, 2 or 3.
    pub const fn number(self) -> u8 {
        match self {
            Self::Le1M => 1,
            Self::Le2M => 2,
            Self::CodedS2 | Self::CodedS8 => 3,
        }
    }

    /// The PHY's bit in LL_PHY_REQ and in HCI's masks: 1, 2 or 4.
    pub const fn mask(self) -> u8 {
        match self {
            Self::Le1M => 1,
            Self::Le2M => 2,
            Self::CodedS2 | Self::CodedS8 => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn air_times_are_those_of_the_specification() {
        // Vol 6, Part B, 4.5.10: the shortest and longest packets of each PHY.
        assert_eq!(Phy::Le1M.air_time(0, true), 80 * US);
        assert_eq!(Phy::Le2M.air_time(0, true), 44 * US);
        assert_eq!(Phy::Le1M.air_time(27, true), 328 * US);
        assert_eq!(Phy::Le1M.air_time(251, true), 2_120 * US);
        assert_eq!(Phy::Le2M.air_time(251, false), 1_048 * US);
        assert_eq!(Phy::CodedS8.air_time(0, true), 720 * US);
        assert_eq!(Phy::CodedS2.air_time(0, true), 462 * US);
        assert_eq!(Phy::CodedS2.air_time(251, true), 4_542 * US);
        assert_eq!(Phy::CodedS8.air_time(27, true), 2_704 * US);
    }
}
