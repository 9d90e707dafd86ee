use alloc::vec::Vec;

use crate::limit::L2CAP_HEADER_BYTES;

/// An L2CAP PDU: its channel and what it carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Frame<'a> {
    /// Channel identifier at the receiver.
    pub cid: u16,
    /// Information payload.
    pub payload: &'a [u8],
}

/// Bytes that are no L2CAP PDU.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FrameError {
    /// Shorter than its header, or not as long as its header says.
    #[error("L2CAP PDU of {got} bytes where its header wants {wanted}")]
    Length {
        /// Bytes that the header asks for, header included.
        wanted: usize,
        /// Bytes there are.
        got: usize,
    },
    /// A continuing fragment without a first one.
    #[error("continuing fragment without a first one")]
    NoStart,
    /// A first fragment while an L2CAP PDU is incomplete.
    #[error("new L2CAP PDU although {missing} bytes of the last one are missing")]
    Incomplete {
        /// Bytes not received.
        missing: usize,
    },
}

impl<'a> Frame<'a> {
    /// Reads a whole PDU.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let [low, high, cid_low, cid_high, payload @ ..] = bytes else {
            return Err(FrameError::Length { wanted: L2CAP_HEADER_BYTES, got: bytes.len() });
        };
        let wanted = usize::from(u16::from_le_bytes([*low, *high]));
        if payload.len() != wanted {
            return Err(FrameError::Length { wanted: L2CAP_HEADER_BYTES + wanted, got: bytes.len() });
        }
        Ok(Self { cid: u16::from_le_bytes([*cid_low, *cid_high]), payload })
    }

    /// Appends the PDU to `bytes`.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend((self.payload.len() as u16).to_le_bytes());
        bytes.extend(self.cid.to_le_bytes());
        bytes.extend(self.payload);
    }
}

/// Puts the fragments of L2CAP PDUs together again.
#[derive(Clone, Debug, Default)]
pub struct Reassembly {
    partial: Vec<u8>,
    /// Whether `partial` has been given out.
    complete: bool,
}

impl Reassembly {
    /// Takes one fragment; gives the whole PDU when it is complete. A fragment that is a whole PDU isn't copied.
    ///
    /// After an error everything partial is gone and the next first fragment starts anew.
    pub fn push<'a>(&'a mut self, first: bool, fragment: &'a [u8]) -> Result<Option<&'a [u8]>, FrameError> {
        if self.complete {
            self.complete = false;
            self.partial.clear();
        }
        match (first, self.partial.is_empty()) {
            (true, false) => {
                let missing = wanted(&self.partial).saturating_sub(self.partial.len());
                self.partial.clear();
                return Err(FrameError::Incomplete { missing });
            }
            (false, true) => return Err(FrameError::NoStart),
            (true, true) if fragment.len() == wanted(fragment) => return Ok(Some(fragment)),
            _ => {}
        }
        self.partial.extend(fragment);
        let (wanted, got) = (wanted(&self.partial), self.partial.len());
        if got > wanted {
            self.partial.clear();
            return Err(FrameError::Length { wanted, got });
        }
        self.complete = got == wanted;
        Ok(self.complete.then_some(&self.partial[..]))
    }
}

/// Length of the whole PDU that begins with `bytes`: the header's when not even that is there.
fn wanted(bytes: &[u8]) -> usize {
    match bytes {
        [low, high, _, _, ..] => L2CAP_HEADER_BYTES + usize::from(u16::from_le_bytes([*low, *high])),
        _ => L2CAP_HEADER_BYTES,
    }
}
