//! Link layer control PDUs (2.4.2): those that the procedures here need.

use crate::phy::MAX_LENGTH;

/// A control PDU's payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Control {
    /// LL_CONNECTION_UPDATE_IND (0x00).
    ConnectionUpdate {
        /// Size of the transmit window, in units of 1.25 ms.
        window_size: u8,
        /// Its offset, in units of 1.25 ms.
        window_offset: u16,
        /// New interval, in the units of the connection.
        interval: u16,
        /// New peripheral latency, in events.
        latency: u16,
        /// New supervision timeout, in units of 10 ms.
        timeout: u16,
        /// Event from which it holds.
        instant: u16,
    },
    /// LL_TERMINATE_IND (0x02).
    Terminate {
        /// Error code.
        reason: u8,
    },
    /// LL_ENC_REQ (0x03), from the central.
    EncryptionRequest {
        /// Rand, by which the peripheral's host finds the key.
        random: [u8; 8],
        /// EDIV, the same.
        diversifier: u16,
        /// SKD_C, the central's half of the session key diversifier.
        skd: [u8; 8],
        /// IV_C, its half of the initialisation vector.
        iv: [u8; 4],
    },
    /// LL_ENC_RSP (0x04).
    EncryptionResponse {
        /// SKD_P, the peripheral's half of the session key diversifier.
        skd: [u8; 8],
        /// IV_P, its half of the initialisation vector.
        iv: [u8; 4],
    },
    /// LL_START_ENC_REQ (0x05).
    StartEncryptionRequest,
    /// LL_START_ENC_RSP (0x06).
    StartEncryptionResponse,
    /// LL_UNKNOWN_RSP (0x07).
    Unknown {
        /// Opcode that was not understood.
        opcode: u8,
    },
    /// LL_FEATURE_REQ (0x08), from the central.
    FeatureRequest {
        /// FeatureSet of the sender, 4.6.
        features: [u8; 8],
    },
    /// LL_FEATURE_RSP (0x09).
    FeatureResponse {
        /// What both sides have in its first octet, the sender's in the others.
        features: [u8; 8],
    },
    /// LL_PAUSE_ENC_REQ (0x0a).
    PauseEncryptionRequest,
    /// LL_PAUSE_ENC_RSP (0x0b).
    PauseEncryptionResponse,
    /// LL_REJECT_IND (0x0d).
    Reject {
        /// Error code.
        reason: u8,
    },
    /// LL_PERIPHERAL_FEATURE_REQ (0x0e).
    PeripheralFeatureRequest {
        /// FeatureSet of the sender.
        features: [u8; 8],
    },
    /// LL_LENGTH_REQ (0x14).
    LengthRequest(Length),
    /// LL_LENGTH_RSP (0x15).
    LengthResponse(Length),
    /// LL_PHY_REQ (0x16): masks of the PHYs that the sender would like.
    PhyRequest {
        /// For its transmitter.
        tx: u8,
        /// For its receiver.
        rx: u8,
    },
    /// LL_PHY_RSP (0x17).
    PhyResponse {
        /// For its transmitter.
        tx: u8,
        /// For its receiver.
        rx: u8,
    },
    /// LL_PHY_UPDATE_IND (0x18): the one PHY of each direction, 0 for no change.
    PhyUpdate {
        /// From central to peripheral.
        central: u8,
        /// From peripheral to central.
        peripheral: u8,
        /// Event from which it holds.
        instant: u16,
    },
}

/// What a side can take and wants to send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Length {
    /// Longest payload it takes, in bytes.
    pub rx_octets: u16,
    /// Longest packet it takes, in µs.
    pub rx_time: u16,
    /// Longest payload it sends, in bytes.
    pub tx_octets: u16,
    /// Longest packet it sends, in µs.
    pub tx_time: u16,
}

/// Payload of the longest control PDU here, LL_ENC_REQ.
const LONGEST: usize = 23;

/// A control payload in place, at most 23 bytes long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ControlBytes {
    length: u8,
    bytes: [u8; LONGEST],
}

impl ControlBytes {
    /// The payload.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl Length {
    fn parse(data: &[u8]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = *data.first_chunk()?;
        Some(Self {
            rx_octets: u16::from_le_bytes([a, b]).min(MAX_LENGTH as u16),
            rx_time: u16::from_le_bytes([c, d]),
            tx_octets: u16::from_le_bytes([e, f]).min(MAX_LENGTH as u16),
            tx_time: u16::from_le_bytes([g, h]),
        })
    }

    fn words(self) -> [u16; 4] {
        [self.rx_octets, self.rx_time, self.tx_octets, self.tx_time]
    }
}

impl Control {
    /// Opcode of LL_ENC_REQ.
    pub(crate) const ENCRYPTION_REQUEST: u8 = 0x03;
    /// Opcode of LL_START_ENC_REQ.
    pub(crate) const START_ENCRYPTION_REQUEST: u8 = 0x05;
    /// Opcode of LL_START_ENC_RSP.
    pub(crate) const START_ENCRYPTION_RESPONSE: u8 = 0x06;
    /// Opcode of LL_PAUSE_ENC_RSP.
    pub(crate) const PAUSE_ENCRYPTION_RESPONSE: u8 = 0x0b;
    /// Opcode of LL_REJECT_IND.
    pub(crate) const REJECT: u8 = 0x0d;

    /// Reads a payload. An opcode that isn't handled is an error that tells it; so is one whose data is too short.
    pub fn parse(payload: &[u8]) -> Result<Self, u8> {
        let [opcode, data @ ..] = payload else { return Err(0xff) };
        let control = match (opcode, data) {
            (0x00, [size, a, b, c, d, e, f, g, h, i, j, ..]) => Self::ConnectionUpdate {
                window_size: *size,
                window_offset: u16::from_le_bytes([*a, *b]),
                interval: u16::from_le_bytes([*c, *d]),
                latency: u16::from_le_bytes([*e, *f]),
                timeout: u16::from_le_bytes([*g, *h]),
                instant: u16::from_le_bytes([*i, *j]),
            },
            (0x02, [reason, ..]) => Self::Terminate { reason: *reason },
            (&Self::ENCRYPTION_REQUEST, data) => {
                let (random, rest) = data.split_first_chunk().ok_or(*opcode)?;
                let (diversifier, rest) = rest.split_first_chunk().ok_or(*opcode)?;
                let (skd, rest) = rest.split_first_chunk().ok_or(*opcode)?;
                let iv = rest.first_chunk().ok_or(*opcode)?;
                let diversifier = u16::from_le_bytes(*diversifier);
                Self::EncryptionRequest { random: *random, diversifier, skd: *skd, iv: *iv }
            }
            (0x04, data) => {
                let (skd, rest) = data.split_first_chunk().ok_or(*opcode)?;
                Self::EncryptionResponse { skd: *skd, iv: *rest.first_chunk().ok_or(*opcode)? }
            }
            (&Self::START_ENCRYPTION_REQUEST, _) => Self::StartEncryptionRequest,
            (&Self::START_ENCRYPTION_RESPONSE, _) => Self::StartEncryptionResponse,
            (0x0a, _) => Self::PauseEncryptionRequest,
            (&Self::PAUSE_ENCRYPTION_RESPONSE, _) => Self::PauseEncryptionResponse,
            (&Self::REJECT, [reason, ..]) => Self::Reject { reason: *reason },
            (0x07, [opcode, ..]) => Self::Unknown { opcode: *opcode },
            (0x08, data) => Self::FeatureRequest { features: *data.first_chunk().ok_or(*opcode)? },
            (0x09, data) => Self::FeatureResponse { features: *data.first_chunk().ok_or(*opcode)? },
            (0x0e, data) => Self::PeripheralFeatureRequest { features: *data.first_chunk().ok_or(*opcode)? },
            (0x14, data) => Self::LengthRequest(Length::parse(data).ok_or(*opcode)?),
            (0x15, data) => Self::LengthResponse(Length::parse(data).ok_or(*opcode)?),
            (0x16, [tx, rx, ..]) => Self::PhyRequest { tx: *tx, rx: *rx },
            (0x17, [tx, rx, ..]) => Self::PhyResponse { tx: *tx, rx: *rx },
            (0x18, [central, peripheral, low, high, ..]) => Self::PhyUpdate {
                central: *central,
                peripheral: *peripheral,
                instant: u16::from_le_bytes([*low, *high]),
            },
            _ => return Err(*opcode),
        };
        Ok(control)
    }

    /// The payload as bytes.
    pub fn to_bytes(self) -> ControlBytes {
        let mut out = ControlBytes { length: 0, bytes: [0; LONGEST] };
        let mut push = |bytes: &[u8]| {
            let at = usize::from(out.length);
            out.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            out.length += bytes.len() as u8;
        };
        match self {
            Self::ConnectionUpdate { window_size, window_offset, interval, latency, timeout, instant } => {
                push(&[0x00, window_size]);
                for word in [window_offset, interval, latency, timeout, instant] {
                    push(&word.to_le_bytes());
                }
            }
            Self::Terminate { reason } => push(&[0x02, reason]),
            Self::EncryptionRequest { random, diversifier, skd, iv } => {
                push(&[Self::ENCRYPTION_REQUEST]);
                push(&random);
                push(&diversifier.to_le_bytes());
                push(&skd);
                push(&iv);
            }
            Self::EncryptionResponse { skd, iv } => {
                push(&[0x04]);
                push(&skd);
                push(&iv);
            }
            Self::StartEncryptionRequest => push(&[Self::START_ENCRYPTION_REQUEST]),
            Self::StartEncryptionResponse => push(&[Self::START_ENCRYPTION_RESPONSE]),
            Self::PauseEncryptionRequest => push(&[0x0a]),
            Self::PauseEncryptionResponse => push(&[Self::PAUSE_ENCRYPTION_RESPONSE]),
            Self::Reject { reason } => push(&[Self::REJECT, reason]),
            Self::Unknown { opcode } => push(&[0x07, opcode]),
            Self::FeatureRequest { features } => {
                push(&[0x08]);
                push(&features);
            }
            Self::FeatureResponse { features } => {
                push(&[0x09]);
                push(&features);
            }
            Self::PeripheralFeatureRequest { features } => {
                push(&[0x0e]);
                push(&features);
            }
            Self::LengthRequest(length) | Self::LengthResponse(length) => {
                push(&[if matches!(self, Self::LengthRequest(_)) { 0x14 } else { 0x15 }]);
                for word in length.words() {
                    push(&word.to_le_bytes());
                }
            }
            Self::PhyRequest { tx, rx } => push(&[0x16, tx, rx]),
            Self::PhyResponse { tx, rx } => push(&[0x17, tx, rx]),
            Self::PhyUpdate { central, peripheral, instant } => {
                push(&[0x18, central, peripheral]);
                push(&instant.to_le_bytes());
            }
        }
        out
    }
}
