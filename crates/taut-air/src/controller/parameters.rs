//! Parameters of HCI commands.

use crate::hci;

/// Status of a command that failed.
pub(super) type Failure = u8;

/// Parameters of exactly that many bytes.
pub(super) fn fixed<const N: usize>(parameters: &[u8]) -> Result<&[u8; N], Failure> {
    parameters.try_into().map_err(|_| hci::INVALID_PARAMETERS)
}

pub(super) const fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
