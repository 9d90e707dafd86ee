use core::fmt;
use core::ops::Deref;

use crate::phy::{HEADER_BYTES, MAX_LENGTH};

/// A PDU as it is on the air: header and payload, without MIC and CRC. At most 257 bytes.
#[derive(Clone)]
pub struct Pdu {
    length: u16,
    bytes: [u8; Self::CAPACITY],
}

/// What a data PDU carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Llid {
    /// Continuation of an L2CAP PDU, or nothing (0b01).
    Continuation,
    /// Start of an L2CAP PDU, or a whole one (0b10).
    Start,
    /// Link layer control (0b11).
    Control,
}

/// The header of a data PDU (2.4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// What it carries.
    pub llid: Llid,
    /// Next expected sequence number.
    pub nesn: bool,
    /// Sequence number.
    pub sn: bool,
    /// More data.
    pub md: bool,
    /// Bytes of the payload.
    pub length: u8,
}

impl Header {
    /// Reads a header; `None` when the LLID is the reserved one.
    pub const fn parse([first, length]: [u8; HEADER_BYTES]) -> Option<Self> {
        let llid = match first & 0b11 {
            0b01 => Llid::Continuation,
            0b10 => Llid::Start,
            0b11 => Llid::Control,
            _ => return None,
        };
        Some(Self { llid, nesn: first & 0b100 != 0, sn: first & 0b1000 != 0, md: first & 0b1_0000 != 0, length })
    }

    /// The header as bytes.
    pub const fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let llid = match self.llid {
            Llid::Continuation => 0b01,
            Llid::Start => 0b10,
            Llid::Control => 0b11,
        };
        [llid | ((self.nesn as u8) << 2) | ((self.sn as u8) << 3) | ((self.md as u8) << 4), self.length]
    }
}

impl Pdu {
    const CAPACITY: usize = HEADER_BYTES + 255;

    /// Header bytes and payload, cut off at 257 bytes.
    pub fn new(header: [u8; HEADER_BYTES], payload: &[u8]) -> Self {
        let payload = &payload[..payload.len().min(Self::CAPACITY - HEADER_BYTES)];
        let mut bytes = [0; Self::CAPACITY];
        bytes[..HEADER_BYTES].copy_from_slice(&header);
        bytes[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
        Self { length: (HEADER_BYTES + payload.len()) as u16, bytes }
    }

    /// A data PDU; the header's length is set to the payload's, which is at most 251 bytes.
    pub(crate) fn data(header: Header, payload: &[u8]) -> Self {
        let payload = &payload[..payload.len().min(MAX_LENGTH)];
        Self::new(Header { length: payload.len() as u8, ..header }.to_bytes(), payload)
    }

    /// What follows the header.
    pub fn payload(&self) -> &[u8] {
        &self[HEADER_BYTES..]
    }

    /// The header's two bytes.
    pub const fn header(&self) -> [u8; HEADER_BYTES] {
        [self.bytes[0], self.bytes[1]]
    }
}

impl Deref for Pdu {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for Pdu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self[..] {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}
