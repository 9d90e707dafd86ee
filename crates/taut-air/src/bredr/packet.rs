use alloc::vec::Vec;

use taut_time::Instant;

use super::SLOT;
use crate::pdu::advertising::Address;
use crate::role::Role;
use crate::time::{Nanos, US, span};

/// A packet type of an ACL link, or one that sets links up (Vol 2, Part B, 6.5).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PacketType {
    /// The access code alone: paging, inquiry and their answers.
    Id,
    /// Address and clock of the sender.
    Fhs,
    /// Acknowledges, and asks for no answer.
    Null,
    /// Asks for an answer.
    Poll,
    /// One slot, 2/3 FEC, up to 17 bytes.
    Dm1,
    /// Three slots, 2/3 FEC, up to 121 bytes.
    Dm3,
    /// Five slots, 2/3 FEC, up to 224 bytes.
    Dm5,
    /// One slot, up to 27 bytes.
    Dh1,
    /// Three slots, up to 183 bytes.
    Dh3,
    /// Five slots, up to 339 bytes.
    Dh5,
    /// One slot at 2 Mb/s, up to 54 bytes.
    TwoDh1,
    /// Three slots at 2 Mb/s, up to 367 bytes.
    TwoDh3,
    /// Five slots at 2 Mb/s, up to 679 bytes.
    TwoDh5,
    /// One slot at 3 Mb/s, up to 83 bytes.
    ThreeDh1,
    /// Three slots at 3 Mb/s, up to 552 bytes.
    ThreeDh3,
    /// Five slots at 3 Mb/s, up to 1021 bytes.
    ThreeDh5,
}

/// Which packets carry data.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Rate {
    /// DM: 1 Mb/s with 2/3 FEC.
    Dm,
    /// DH: 1 Mb/s.
    #[default]
    Dh,
    /// 2-DH: 2 Mb/s (EDR).
    TwoDh,
    /// 3-DH: 3 Mb/s (EDR).
    ThreeDh,
}

impl Rate {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Dm, Self::Dh, Self::TwoDh, Self::ThreeDh];

    /// Name as scenarios have it: `dm`, `dh`, `2-dh`, `3-dh`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dm => "dm",
            Self::Dh => "dh",
            Self::TwoDh => "2-dh",
            Self::ThreeDh => "3-dh",
        }
    }

    /// Whether it is Enhanced Data Rate.
    pub const fn is_enhanced(self) -> bool {
        matches!(self, Self::TwoDh | Self::ThreeDh)
    }

    const fn types(self) -> [PacketType; 3] {
        use PacketType as T;
        match self {
            Self::Dm => [T::Dm1, T::Dm3, T::Dm5],
            Self::Dh => [T::Dh1, T::Dh3, T::Dh5],
            Self::TwoDh => [T::TwoDh1, T::TwoDh3, T::TwoDh5],
            Self::ThreeDh => [T::ThreeDh1, T::ThreeDh3, T::ThreeDh5],
        }
    }

    /// The shortest packet that takes `bytes`, or the longest there is, within `slots`.
    pub fn fit(self, bytes: usize, slots: u8) -> PacketType {
        let mut fit = self.types()[0];
        for kind in self.types().into_iter().take_while(|kind| kind.slots() <= slots) {
            fit = kind;
            if kind.capacity() >= bytes {
                break;
            }
        }
        fit
    }
}

impl PacketType {
    /// Name as in the specification.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Id => "ID",
            Self::Fhs => "FHS",
            Self::Null => "NULL",
            Self::Poll => "POLL",
            Self::Dm1 => "DM1",
            Self::Dm3 => "DM3",
            Self::Dm5 => "DM5",
            Self::Dh1 => "DH1",
            Self::Dh3 => "DH3",
            Self::Dh5 => "DH5",
            Self::TwoDh1 => "2-DH1",
            Self::TwoDh3 => "2-DH3",
            Self::TwoDh5 => "2-DH5",
            Self::ThreeDh1 => "3-DH1",
            Self::ThreeDh3 => "3-DH3",
            Self::ThreeDh5 => "3-DH5",
        }
    }

    /// TYPE in the packet header (table 6.2); with and without EDR some mean different packets.
    pub const fn code(self) -> u8 {
        match self {
            Self::Id | Self::Null => 0,
            Self::Poll => 1,
            Self::Fhs => 2,
            Self::Dm1 => 3,
            Self::Dh1 | Self::TwoDh1 => 4,
            Self::ThreeDh1 => 8,
            Self::Dm3 | Self::TwoDh3 => 10,
            Self::Dh3 | Self::ThreeDh3 => 11,
            Self::Dm5 | Self::TwoDh5 => 14,
            Self::Dh5 | Self::ThreeDh5 => 15,
        }
    }

    /// Slots that it takes, whatever it carries.
    pub const fn slots(self) -> u8 {
        match self {
            Self::Dm3 | Self::Dh3 | Self::TwoDh3 | Self::ThreeDh3 => 3,
            Self::Dm5 | Self::Dh5 | Self::TwoDh5 | Self::ThreeDh5 => 5,
            _ => 1,
        }
    }

    /// Most bytes of user data in it.
    pub const fn capacity(self) -> usize {
        match self {
            Self::Id | Self::Fhs | Self::Null | Self::Poll => 0,
            Self::Dm1 => 17,
            Self::Dm3 => 121,
            Self::Dm5 => 224,
            Self::Dh1 => 27,
            Self::Dh3 => 183,
            Self::Dh5 => 339,
            Self::TwoDh1 => 54,
            Self::TwoDh3 => 367,
            Self::TwoDh5 => 679,
            Self::ThreeDh1 => 83,
            Self::ThreeDh3 => 552,
            Self::ThreeDh5 => 1021,
        }
    }

    /// Whether it carries data with a CRC, and so takes part in the ARQ scheme.
    pub const fn is_data(self) -> bool {
        self.capacity() > 0
    }

    /// Bytes of the payload header: one in basic rate packets of one slot, else two.
    pub const fn payload_header(self) -> usize {
        if matches!(self, Self::Dm1 | Self::Dh1) { 1 } else { 2 }
    }

    /// Payload's bits of information: header, user data and CRC.
    const fn bits(self, payload: usize) -> usize {
        match self {
            Self::Id | Self::Null | Self::Poll => 0,
            Self::Fhs => 160,
            _ => 8 * (self.payload_header() + payload + 2),
        }
    }

    const fn has_fec(self) -> bool {
        matches!(self, Self::Fhs | Self::Dm1 | Self::Dm3 | Self::Dm5)
    }

    /// Time on air with `payload` bytes of user data.
    ///
    /// Access code 72 us (an ID packet has no trailer: 68 us), header 54 us, then the payload: at 1
    /// Mb/s, with 2/3 FEC in blocks of 15 bits for 10; of EDR a guard time of 5 us, the
    /// synchronisation sequence of 11 us, and a trailer of 2 us.
    pub const fn air_time(self, payload: usize) -> Nanos {
        let bits = self.bits(payload);
        let microseconds = match self {
            Self::Id => return 68 * US,
            Self::Null | Self::Poll => 0,
            Self::Fhs | Self::Dm1 | Self::Dm3 | Self::Dm5 => bits.div_ceil(10) * 15,
            Self::Dh1 | Self::Dh3 | Self::Dh5 => bits,
            Self::TwoDh1 | Self::TwoDh3 | Self::TwoDh5 => 5 + 11 + bits.div_ceil(2) + 2,
            Self::ThreeDh1 | Self::ThreeDh3 | Self::ThreeDh5 => 5 + 11 + bits.div_ceil(3) + 2,
        };
        (72 + 54 + microseconds as Nanos) * US
    }

    /// Probability that the header is read at bit errors of probability `ber`: 18 bits, each sent
    /// three times. The access code is found: correlators take several wrong bits of its 64.
    pub(crate) fn header_survives(self, ber: f64) -> f64 {
        if matches!(self, Self::Id) {
            return 1.0;
        }
        let wrong = ber * ber * (3.0 - 2.0 * ber);
        power(1.0 - wrong, 18)
    }

    /// Probability that the payload's CRC is right: a block of 15 bits with FEC stands one wrong bit.
    pub(crate) fn payload_survives(self, payload: usize, ber: f64) -> f64 {
        let bits = self.bits(payload);
        if self.has_fec() {
            let block = power(1.0 - ber, 14) * (1.0 + 14.0 * ber);
            power(block, bits.div_ceil(10))
        } else {
            power(1.0 - ber, bits)
        }
    }
}

/// `base` to the power of `exponent`, by squaring.
pub(crate) fn power(mut base: f64, mut exponent: usize) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

/// Logical link identifier of a data packet (6.6.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Llid {
    /// Continues an L2CAP PDU.
    Continuation,
    /// Begins one.
    Start,
    /// A PDU of the link manager.
    Lmp,
}

impl Llid {
    /// Its two bits.
    pub const fn code(self) -> u8 {
        match self {
            Self::Continuation => 1,
            Self::Start => 2,
            Self::Lmp => 3,
        }
    }
}

/// What a packet carries.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Body {
    /// Nothing.
    Empty,
    /// User data or link manager.
    Data {
        /// Which.
        llid: Llid,
        /// Without payload header and CRC.
        bytes: Vec<u8>,
    },
    /// Of an FHS packet.
    Fhs {
        /// Address of the sender.
        address: Address,
        /// Its class of device.
        class: [u8; 3],
        /// Logical transport address for the receiver; 0 in answers to an inquiry.
        lt_addr: u8,
    },
}

/// A packet on the air.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Whose access code it has: the central's; when paging, the device's that is looked for; [`INQUIRY`] in inquiries.
    pub access: Address,
    /// Type.
    pub kind: PacketType,
    /// Logical transport address of the peripheral, 1 to 7; 0 where there is none.
    pub lt_addr: u8,
    /// What it acknowledges: the last packet from the receiver had data that was read.
    pub arqn: bool,
    /// Alternates with every new data packet.
    pub seqn: bool,
    /// Payload.
    pub body: Body,
    /// Channel, 0 to 78.
    pub channel: u8,
    /// First bit.
    pub start: Instant,
    /// End of the last bit.
    pub end: Instant,
    /// Sent before.
    pub retransmission: bool,
    /// Side that sends.
    pub role: Role,
    /// Number of the slot since the link began.
    pub slot: u64,
}

/// The general inquiry access code's lower address part, 0x9e8b33, as an address.
pub const INQUIRY: Address = [0x33, 0x8b, 0x9e, 0, 0, 0];

impl Packet {
    /// User data in it.
    pub fn payload(&self) -> &[u8] {
        match &self.body {
            Body::Data { bytes, .. } => bytes,
            Body::Empty | Body::Fhs { .. } => &[],
        }
    }

    /// Time on air.
    pub const fn duration(&self) -> Nanos {
        span(self.start, self.end)
    }

    /// When the receiver answers: at the next slot after those of this packet.
    pub(crate) const fn answer_at(&self) -> Instant {
        crate::time::after(self.start, self.kind.slots() as Nanos * SLOT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_packets_end_within_their_slots() {
        // Vol 2, Part B, 6.5.4 and 6.7.1: lengths in microseconds, and a gap to hop in.
        for (kind, microseconds) in [
            (PacketType::Null, 126),
            (PacketType::Fhs, 366),
            (PacketType::Dm1, 366),
            (PacketType::Dh1, 366),
            (PacketType::Dm3, 1_626),
            (PacketType::Dh3, 1_622),
            (PacketType::Dm5, 2_871),
            (PacketType::Dh5, 2_870),
        ] {
            assert_eq!(kind.air_time(kind.capacity()), microseconds * US, "{}", kind.name());
        }
        for rate in Rate::ALL {
            for kind in rate.types() {
                let left = Nanos::from(kind.slots()) * SLOT - kind.air_time(kind.capacity());
                assert!((200 * US..300 * US).contains(&left), "{}: {left}", kind.name());
            }
        }
    }

    #[test]
    fn data_goes_in_the_shortest_packet_that_takes_it() {
        assert_eq!(Rate::Dh.fit(27, 5), PacketType::Dh1);
        assert_eq!(Rate::Dh.fit(28, 5), PacketType::Dh3);
        assert_eq!(Rate::Dh.fit(1000, 5), PacketType::Dh5);
        assert_eq!(Rate::ThreeDh.fit(1000, 3), PacketType::ThreeDh3);
        assert_eq!(Rate::Dm.fit(1000, 1), PacketType::Dm1);
    }

    #[test]
    fn fec_stands_what_breaks_a_longer_packet() {
        let (plain, coded) = (PacketType::Dh5.payload_survives(200, 1e-3), PacketType::Dm5.payload_survives(200, 1e-3));
        assert!(plain < 0.25 && coded > 0.97, "{plain} {coded}");
        assert!(PacketType::Null.header_survives(1e-3) > 0.9999);
        assert_eq!(PacketType::Dh5.payload_survives(200, 0.0), 1.0);
    }
}
