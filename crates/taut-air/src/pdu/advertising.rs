//! Advertising, scan requests and CONNECT_IND (2.3).

use super::Pdu;

/// Access address of all advertising.
pub const ACCESS_ADDRESS: u32 = 0x8e89_bed6;
/// Initial value of the CRC of all advertising.
pub const CRC_INIT: u32 = 0x55_5555;
/// The advertising channel that is used here.
pub const CHANNEL: u8 = 37;

const SCAN_REQ: u8 = 0x3;
const CONNECT_IND: u8 = 0x5;
/// TxAdd and RxAdd: the sender's and the receiver's addresses are random ones.
const TX_ADD: u8 = 0x40;
const RX_ADD: u8 = 0x80;

/// A device address, least significant byte first as on the air.
pub type Address = [u8; 6];

/// Kinds of legacy advertising PDUs, by their PDU type.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// ADV_IND: one may connect, or ask for more.
    Connectable = 0x0,
    /// ADV_DIRECT_IND: one device may connect; its address is all that this says.
    Directed = 0x1,
    /// ADV_NONCONN_IND: listen and no more.
    Silent = 0x2,
    /// SCAN_RSP: what was asked for.
    Response = 0x4,
    /// ADV_SCAN_IND: one may ask for more.
    Scannable = 0x6,
}

impl Kind {
    /// `Event_Type` of HCI's advertising report (Vol 4, Part E, 7.7.65.2).
    pub const fn event_type(self) -> u8 {
        match self {
            Self::Connectable => 0x00,
            Self::Directed => 0x01,
            Self::Scannable => 0x02,
            Self::Silent => 0x03,
            Self::Response => 0x04,
        }
    }

    /// Whether CONNECT_IND is answered.
    pub const fn connects(self) -> bool {
        matches!(self, Self::Connectable | Self::Directed)
    }

    /// Whether SCAN_REQ is answered.
    pub const fn answers(self) -> bool {
        matches!(self, Self::Connectable | Self::Scannable)
    }
}

/// An advertiser's PDU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Advertisement<'a> {
    /// Which.
    pub kind: Kind,
    /// Who.
    pub advertiser: Address,
    /// The address is a random one.
    pub random: bool,
    /// What, at most 31 bytes; of ADV_DIRECT_IND the 6 of TargetA.
    pub data: &'a [u8],
    /// That is a random address, too.
    pub target_random: bool,
}

impl<'a> Advertisement<'a> {
    /// The PDU; data beyond 31 bytes is cut off.
    pub fn to_pdu(self) -> Pdu {
        let data = &self.data[..self.data.len().min(31)];
        let mut payload = [0; 37];
        payload[..6].copy_from_slice(&self.advertiser);
        payload[6..6 + data.len()].copy_from_slice(data);
        let target = if self.target_random { RX_ADD } else { 0 };
        let first = self.kind as u8 | if self.random { TX_ADD } else { 0 } | target;
        Pdu::new([first, (6 + data.len()) as u8], &payload[..6 + data.len()])
    }

    /// Reads one; `None` when it is something else or has no length that it can have.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let [first, length, payload @ ..] = bytes else { return None };
        let kind = match first & 0xf {
            0x0 => Kind::Connectable,
            0x1 => Kind::Directed,
            0x2 => Kind::Silent,
            0x4 => Kind::Response,
            0x6 => Kind::Scannable,
            _ => return None,
        };
        let (advertiser, data) = payload.get(..usize::from(*length))?.split_first_chunk()?;
        let is_sound = if kind == Kind::Directed { data.len() == 6 } else { data.len() <= 31 };
        let [random, target_random] = [TX_ADD, RX_ADD].map(|bit| first & bit != 0);
        // Without a target the bit means something else (ChSel has another place).
        let target_random = target_random && kind == Kind::Directed;
        is_sound.then_some(Self { kind, advertiser: *advertiser, random, data, target_random })
    }

    /// Whom ADV_DIRECT_IND is for: whether the address is a random one, and the address.
    pub fn target(&self) -> Option<(bool, Address)> {
        let address = self.data.try_into().ok().filter(|_| self.kind == Kind::Directed)?;
        Some((self.target_random, address))
    }
}

/// SCAN_REQ: `scanner` asks `advertiser` for more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ScanRequest {
    /// Who asks.
    pub scanner: Address,
    /// Who is asked.
    pub advertiser: Address,
    /// The advertiser's address is a random one.
    pub advertiser_random: bool,
}

impl ScanRequest {
    /// The PDU.
    pub fn to_pdu(self) -> Pdu {
        let mut payload = [0; 12];
        payload[..6].copy_from_slice(&self.scanner);
        payload[6..].copy_from_slice(&self.advertiser);
        Pdu::new([SCAN_REQ | if self.advertiser_random { RX_ADD } else { 0 }, 12], &payload)
    }

    /// Reads one; `None` when it is something else or too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [first, _, payload @ ..] = bytes else { return None };
        let payload: &[u8; 12] = payload.first_chunk().filter(|_| first & 0xf == SCAN_REQ)?;
        Some(Self {
            scanner: *payload.first_chunk()?,
            advertiser: *payload.last_chunk()?,
            advertiser_random: first & RX_ADD != 0,
        })
    }
}

/// What the initiator sets for the connection (2.3.3.1). Times in units, as they are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectInd {
    /// Address of the initiator.
    pub initiator: Address,
    /// Address of the advertiser.
    pub advertiser: Address,
    /// The initiator's address is a random one.
    pub initiator_random: bool,
    /// The advertiser's is.
    pub advertiser_random: bool,
    /// Access address of the connection.
    pub access_address: u32,
    /// Initial value of its CRC, 24 bits.
    pub crc_init: u32,
    /// Size of the transmit window, in units of 1.25 ms.
    pub window_size: u8,
    /// Its offset, in units of 1.25 ms.
    pub window_offset: u16,
    /// Connection interval, in units of 1.25 ms.
    pub interval: u16,
    /// Events that the peripheral may skip.
    pub latency: u16,
    /// Supervision timeout, in units of 10 ms.
    pub timeout: u16,
    /// Hop increment, 5 to 16.
    pub hop: u8,
    /// Class of the central's sleep clock accuracy, 0 to 7.
    pub accuracy: u8,
}

impl ConnectInd {
    /// The PDU.
    pub fn to_pdu(self) -> Pdu {
        let mut payload = [0; 34];
        payload[..6].copy_from_slice(&self.initiator);
        payload[6..12].copy_from_slice(&self.advertiser);
        payload[12..16].copy_from_slice(&self.access_address.to_le_bytes());
        payload[16..19].copy_from_slice(&self.crc_init.to_le_bytes()[..3]);
        payload[19] = self.window_size;
        payload[20..22].copy_from_slice(&self.window_offset.to_le_bytes());
        payload[22..24].copy_from_slice(&self.interval.to_le_bytes());
        payload[24..26].copy_from_slice(&self.latency.to_le_bytes());
        payload[26..28].copy_from_slice(&self.timeout.to_le_bytes());
        // All 37 data channels.
        payload[28..33].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x1f]);
        payload[33] = (self.hop & 0x1f) | (self.accuracy << 5);
        let initiator = if self.initiator_random { TX_ADD } else { 0 };
        let advertiser = if self.advertiser_random { RX_ADD } else { 0 };
        Pdu::new([CONNECT_IND | initiator | advertiser, 34], &payload)
    }

    /// Reads a CONNECT_IND; `None` when it is something else or too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [first, _, payload @ ..] = bytes else { return None };
        let payload: &[u8; 34] = payload.first_chunk().filter(|_| first & 0xf == CONNECT_IND)?;
        let word = |at: usize| u16::from_le_bytes([payload[at], payload[at + 1]]);
        Some(Self {
            initiator: *payload.first_chunk()?,
            advertiser: *payload[6..].first_chunk()?,
            initiator_random: first & TX_ADD != 0,
            advertiser_random: first & RX_ADD != 0,
            access_address: u32::from_le_bytes(*payload[12..].first_chunk()?),
            crc_init: u32::from_le_bytes([payload[16], payload[17], payload[18], 0]),
            window_size: payload[19],
            window_offset: word(20),
            interval: word(22),
            latency: word(24),
            timeout: word(26),
            hop: payload[33] & 0x1f,
            accuracy: payload[33] >> 5,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const US: Address = [1, 2, 3, 4, 5, 6];
    const YOU: Address = [0xc0, 2, 3, 4, 5, 0xff];

    #[test]
    fn pdus_are_read_as_they_were_written() {
        for kind in [Kind::Connectable, Kind::Silent, Kind::Response, Kind::Scannable] {
            for random in [false, true] {
                let mut advertisement =
                    Advertisement { kind, advertiser: US, random, data: &[9; 31], target_random: false };
                assert_eq!(Advertisement::parse(&advertisement.to_pdu()), Some(advertisement));
                assert_eq!(advertisement.target(), None);
                (advertisement.kind, advertisement.data) = (Kind::Directed, &YOU);
                for target_random in [false, true] {
                    let directed = Advertisement { target_random, ..advertisement };
                    assert_eq!(Advertisement::parse(&directed.to_pdu()), Some(directed));
                    assert_eq!(directed.target(), Some((target_random, YOU)));
                    assert_eq!(Advertisement::parse(&directed.to_pdu()[..13]), None);
                }
                let request = ScanRequest { scanner: YOU, advertiser: US, advertiser_random: random };
                assert_eq!(ScanRequest::parse(&request.to_pdu()), Some(request));
                assert_eq!(Advertisement::parse(&request.to_pdu()), None);
            }
        }
        let connect = ConnectInd {
            initiator: US,
            advertiser: YOU,
            initiator_random: false,
            advertiser_random: true,
            access_address: 0x1234_5678,
            crc_init: 0xab_cdef,
            window_size: 2,
            window_offset: 3,
            interval: 6,
            latency: 1,
            timeout: 42,
            hop: 7,
            accuracy: 5,
        };
        assert_eq!(ConnectInd::parse(&connect.to_pdu()), Some(connect));
        assert_eq!(connect.to_pdu()[..2], [0x85, 34]);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_bad(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (Advertisement::parse(&bytes), ScanRequest::parse(&bytes), ConnectInd::parse(&bytes));
        }
    }
}
