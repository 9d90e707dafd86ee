//! The UART transport (H4): HCI packets one after another on a stream of bytes, each with its indicator in front (Core
//! Specification, Vol 4, Part A). This is the controller's end of it.

use alloc::vec::Vec;

use super::{ACL_HEADER_BYTES, command};

/// Indicator of a command packet (Vol 4, Part A, section 2).
const COMMAND: u8 = 1;
/// Indicator of an ACL data packet.
const ACL: u8 = 2;
/// Indicator, opcode and length in front of a command's parameters.
const COMMAND_HEADER_BYTES: usize = 4;
/// HCI_Reset as it stands in the stream: what brings a controller that has lost synchronisation
/// back into it (section 4).
const RESET: [u8; 4] = [COMMAND, command::RESET as u8, (command::RESET >> 8) as u8, 0];

/// Takes what a host sends apart into packets.
///
/// The stream has no marks between packets: a byte too much or too few makes all the rest
/// unreadable. What can't be a packet of a host ends the synchronisation; it comes back with the
/// next HCI_Reset in the stream, and all bytes before that are lost.
#[derive(Clone, Debug)]
pub struct H4Receiver {
    bytes: Vec<u8>,
    /// Bytes of data that an ACL packet may have.
    acl_limit: usize,
    is_lost: bool,
}

/// What came out of the stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum H4Received {
    /// A command or an ACL data packet, indicator first, as long as its header says.
    Packet(Vec<u8>),
    /// The stream can't be followed any more. Comes once, whatever comes before the next HCI_Reset.
    /// The controller has to tell its host by a Hardware Error event (section 4).
    Lost(H4Error),
}

/// Why a stream can't be followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum H4Error {
    /// No packet of a host begins like this.
    #[error("{0:#04x} is no packet indicator that a host sends: 0x01 (command) or 0x02 (ACL data) is")]
    Indicator(u8),
    /// An ACL data packet that is longer than the controller told its host that it may be.
    #[error("an ACL data packet of {bytes} bytes, where the controller takes {limit} at most")]
    TooLong {
        /// Bytes of data that its header says.
        bytes: usize,
        /// Bytes that there may be.
        limit: usize,
    },
}

impl H4Receiver {
    /// The begin of a stream, for a controller that takes ACL packets with up to `acl_limit` bytes of data.
    pub const fn new(acl_limit: usize) -> Self {
        Self { bytes: Vec::new(), acl_limit, is_lost: false }
    }

    /// Takes the next bytes of the stream. What [`poll`](Self::poll) has not given yet is kept:
    /// poll until there is nothing.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next packet, or the loss of synchronisation; `None` until more bytes come. At most one
    /// packet's bytes are kept then.
    pub fn poll(&mut self) -> Option<H4Received> {
        if self.is_lost {
            self.find_reset()?;
        }
        match packet_length(&self.bytes, self.acl_limit) {
            Ok(length) => {
                let length = length.filter(|length| *length <= self.bytes.len())?;
                let rest = self.bytes.split_off(length);
                Some(H4Received::Packet(core::mem::replace(&mut self.bytes, rest)))
            }
            Err(error) => {
                self.is_lost = true;
                // A reset may begin with any byte but this one.
                self.bytes.remove(0);
                Some(H4Received::Lost(error))
            }
        }
    }

    /// Drops all that comes before a reset.
    fn find_reset(&mut self) -> Option<()> {
        let found = self.bytes.windows(RESET.len()).position(|four| four == RESET);
        let useless = found.unwrap_or_else(|| self.bytes.len().saturating_sub(RESET.len() - 1));
        self.bytes.drain(..useless);
        self.is_lost = found.is_none();
        found.map(drop)
    }
}

/// Length of the packet at the begin, indicator included, once so much of it is there that it can be told.
fn packet_length(bytes: &[u8], acl_limit: usize) -> Result<Option<usize>, H4Error> {
    match bytes {
        [] => Ok(None),
        [COMMAND, _, _, length, ..] => Ok(Some(COMMAND_HEADER_BYTES + usize::from(*length))),
        [ACL, _, _, low, high, ..] => match u16::from_le_bytes([*low, *high]).into() {
            bytes if bytes > acl_limit => Err(H4Error::TooLong { bytes, limit: acl_limit }),
            bytes => Ok(Some(ACL_HEADER_BYTES + bytes)),
        },
        [COMMAND | ACL, ..] => Ok(None),
        [indicator, ..] => Err(H4Error::Indicator(*indicator)),
    }
}
