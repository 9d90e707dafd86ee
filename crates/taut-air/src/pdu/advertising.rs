//! ADV_IND and CONNECT_IND (2.3).

use super::Pdu;

/// Access address of all advertising.
pub const ACCESS_ADDRESS: u32 = 0x8e89_bed6;
/// Initial value of the CRC of all advertising.
pub const CRC_INIT: u32 = 0x55_5555;
/// The advertising channel that is used here.
pub const CHANNEL: u8 = 37;

const ADV_IND: u8 = 0x0;
const CONNECT_IND: u8 = 0x5;

/// A public device address, least significant byte first as on the air.
pub type Address = [u8; 6];

/// What the initiator sets for the connection (2.3.3.1). Times in units, as they are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectInd {
    /// Address of the initiator.
    pub initiator: Address,
    /// Address of the advertiser.
    pub advertiser: Address,
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

/// ADV_IND of `advertiser`.
pub fn adv_ind(advertiser: Address, data: &[u8]) -> Pdu {
    let data = &data[..data.len().min(31)];
    let mut payload = [0; 37];
    payload[..6].copy_from_slice(&advertiser);
    payload[6..6 + data.len()].copy_from_slice(data);
    Pdu::new([ADV_IND, (6 + data.len()) as u8], &payload[..6 + data.len()])
}

/// The advertiser's address when `bytes` is an ADV_IND.
pub fn advertiser(bytes: &[u8]) -> Option<Address> {
    match bytes {
        [first, _, payload @ ..] if first & 0xf == ADV_IND => payload.first_chunk().copied(),
        _ => None,
    }
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
        Pdu::new([CONNECT_IND, 34], &payload)
    }

    /// Reads a CONNECT_IND; `None` when it is something else or too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [first, _, payload @ ..] = bytes else { return None };
        let payload: &[u8; 34] = payload.first_chunk().filter(|_| first & 0xf == CONNECT_IND)?;
        let word = |at: usize| u16::from_le_bytes([payload[at], payload[at + 1]]);
        Some(Self {
            initiator: *payload.first_chunk()?,
            advertiser: *payload[6..].first_chunk()?,
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
