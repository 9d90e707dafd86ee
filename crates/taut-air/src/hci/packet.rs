use super::ACL_HEADER_BYTES;

/// A packet, taken apart. Borrows from the bytes it was read from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PacketView<'a> {
    /// Host to controller.
    Command {
        /// Group in the upper six bits, command in the lower ten.
        opcode: u16,
        /// Everything after the length.
        parameters: &'a [u8],
    },
    /// Data, either way.
    Acl(Acl<'a>),
    /// Controller to host.
    Event {
        /// Event code.
        code: u8,
        /// Everything after the length.
        parameters: &'a [u8],
    },
}

/// An ACL data packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Acl<'a> {
    /// Connection handle, 0 to 0xeff.
    pub handle: u16,
    /// Whether it begins an L2CAP PDU.
    pub boundary: Boundary,
    /// The data.
    pub data: &'a [u8],
}

/// Packet boundary flag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Boundary {
    /// First packet of an L2CAP PDU, from the host (0b00).
    FirstFromHost,
    /// A further packet of it (0b01).
    Continuing,
    /// First packet of an L2CAP PDU, from the controller (0b10).
    FirstFromController,
}

/// Bytes that are no HCI packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HciError {
    /// The first byte is none of 1 (command), 2 (ACL data), 4 (event).
    #[error("packet indicator {0:#04x} is not known: 1 (command), 2 (ACL data) or 4 (event) is")]
    Indicator(u8),
    /// Shorter than its header, or not as long as its header says.
    #[error("packet of {got} bytes where its header wants {wanted}")]
    Length {
        /// Bytes that the header asks for, or that the header is long.
        wanted: usize,
        /// Bytes there are.
        got: usize,
    },
    /// Packet boundary flag 0b11, or a broadcast.
    #[error("flags {0:#x} of the ACL data packet have no meaning on LE")]
    Flags(u16),
}

impl<'a> PacketView<'a> {
    /// Reads one packet, which must fill `bytes` exactly.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HciError> {
        match bytes {
            [] => Err(HciError::Length { wanted: 1, got: 0 }),
            [1, low, high, length, parameters @ ..] => {
                exact(4, (*length).into(), parameters)?;
                Ok(Self::Command { opcode: u16::from_le_bytes([*low, *high]), parameters })
            }
            [2, low, high, length_low, length_high, data @ ..] => {
                exact(ACL_HEADER_BYTES, u16::from_le_bytes([*length_low, *length_high]).into(), data)?;
                let word = u16::from_le_bytes([*low, *high]);
                let boundary = match word >> 12 {
                    0b00 => Boundary::FirstFromHost,
                    0b01 => Boundary::Continuing,
                    0b10 => Boundary::FirstFromController,
                    flags => return Err(HciError::Flags(flags)),
                };
                Ok(Self::Acl(Acl { handle: word & 0xfff, boundary, data }))
            }
            [4, code, length, parameters @ ..] => {
                exact(3, (*length).into(), parameters)?;
                Ok(Self::Event { code: *code, parameters })
            }
            [indicator @ (1 | 2 | 4), ..] => Err(HciError::Length {
                wanted: [4, ACL_HEADER_BYTES, 0, 3][usize::from(indicator - 1)],
                got: bytes.len(),
            }),
            [indicator, ..] => Err(HciError::Indicator(*indicator)),
        }
    }
}

const fn exact(header: usize, wanted: usize, rest: &[u8]) -> Result<(), HciError> {
    if rest.len() == wanted {
        Ok(())
    } else {
        Err(HciError::Length { wanted: header + wanted, got: header + rest.len() })
    }
}
