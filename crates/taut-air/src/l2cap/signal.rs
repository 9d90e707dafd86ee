use alloc::vec::Vec;

/// A command on the LE signalling channel (Core Specification, Vol 3, Part A, section 4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    /// L2CAP_COMMAND_REJECT_RSP (0x01).
    Reject {
        /// 0 not understood, 1 signalling MTU exceeded, 2 invalid channel.
        reason: u16,
    },
    /// L2CAP_DISCONNECTION_REQ (0x06).
    DisconnectionRequest {
        /// Channel at the receiver of the request.
        destination: u16,
        /// Channel at its sender.
        source: u16,
    },
    /// L2CAP_DISCONNECTION_RSP (0x07).
    DisconnectionResponse {
        /// As in the request.
        destination: u16,
        /// As in the request.
        source: u16,
    },
    /// L2CAP_LE_CREDIT_BASED_CONNECTION_REQ (0x14).
    ConnectionRequest {
        /// Simplified protocol/service multiplexer.
        spsm: u16,
        /// Channel at the sender of the request.
        source: u16,
        /// Longest SDU that it takes, in bytes.
        mtu: u16,
        /// Longest information payload that it takes, in bytes.
        mps: u16,
        /// PDUs that the other side may send at once.
        credits: u16,
    },
    /// L2CAP_LE_CREDIT_BASED_CONNECTION_RSP (0x15).
    ConnectionResponse {
        /// Channel at the sender of the response.
        destination: u16,
        /// Longest SDU that it takes, in bytes.
        mtu: u16,
        /// Longest information payload that it takes, in bytes.
        mps: u16,
        /// PDUs that the other side may send at once.
        credits: u16,
        /// 0 when the channel is open.
        result: u16,
    },
    /// L2CAP_FLOW_CONTROL_CREDIT_IND (0x16).
    Credits {
        /// Channel at the sender of the indication.
        cid: u16,
        /// Further PDUs that the other side may send.
        credits: u16,
    },
}

/// Bytes that are no signalling command which this crate knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SignalError {
    /// Shorter than its header, or not as long as its header or its code says.
    #[error("signalling command of {got} bytes where {wanted} are wanted")]
    Length {
        /// Bytes wanted, header included.
        wanted: usize,
        /// Bytes there are.
        got: usize,
    },
    /// A code that is not handled.
    #[error("signalling code {code:#04x} is not handled")]
    Code {
        /// The code.
        code: u8,
        /// Its identifier, for the rejection.
        identifier: u8,
    },
}

const HEADER: usize = 4;

impl Signal {
    /// Reads one command with its identifier.
    pub fn parse(bytes: &[u8]) -> Result<(u8, Self), SignalError> {
        let [code, identifier, low, high, data @ ..] = bytes else {
            return Err(SignalError::Length { wanted: HEADER, got: bytes.len() });
        };
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        if data.len() != length {
            return Err(SignalError::Length { wanted: HEADER + length, got: bytes.len() });
        }
        let wanted = match code {
            0x01 => 2,
            0x06 | 0x07 | 0x16 => 4,
            0x14 | 0x15 => 10,
            _ => return Err(SignalError::Code { code: *code, identifier: *identifier }),
        };
        // A rejection may carry data about its reason; the others have one length.
        if length < wanted || (length != wanted && *code != 0x01) {
            return Err(SignalError::Length { wanted: HEADER + wanted, got: bytes.len() });
        }
        let word = |index: usize| u16::from_le_bytes([data[2 * index], data[2 * index + 1]]);
        let signal = match code {
            0x01 => Self::Reject { reason: word(0) },
            0x06 => Self::DisconnectionRequest { destination: word(0), source: word(1) },
            0x07 => Self::DisconnectionResponse { destination: word(0), source: word(1) },
            0x14 => {
                Self::ConnectionRequest { spsm: word(0), source: word(1), mtu: word(2), mps: word(3), credits: word(4) }
            }
            0x15 => Self::ConnectionResponse {
                destination: word(0),
                mtu: word(1),
                mps: word(2),
                credits: word(3),
                result: word(4),
            },
            _ => Self::Credits { cid: word(0), credits: word(1) },
        };
        Ok((*identifier, signal))
    }

    /// The command as bytes.
    pub fn to_bytes(self, identifier: u8) -> Vec<u8> {
        let mut words = [0u16; 5];
        let (code, count) = match self {
            Self::Reject { reason } => {
                words[0] = reason;
                (0x01, 1)
            }
            Self::DisconnectionRequest { destination, source } => {
                words[..2].copy_from_slice(&[destination, source]);
                (0x06, 2)
            }
            Self::DisconnectionResponse { destination, source } => {
                words[..2].copy_from_slice(&[destination, source]);
                (0x07, 2)
            }
            Self::ConnectionRequest { spsm, source, mtu, mps, credits } => {
                words = [spsm, source, mtu, mps, credits];
                (0x14, 5)
            }
            Self::ConnectionResponse { destination, mtu, mps, credits, result } => {
                words = [destination, mtu, mps, credits, result];
                (0x15, 5)
            }
            Self::Credits { cid, credits } => {
                words[..2].copy_from_slice(&[cid, credits]);
                (0x16, 2)
            }
        };
        let mut bytes = Vec::with_capacity(HEADER + 2 * count);
        bytes.extend([code, identifier, 2 * count as u8, 0]);
        for word in &words[..count] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }
}
