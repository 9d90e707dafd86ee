//! PDUs of the link manager that set links up and end them (Core Specification, Vol 2, Part C, 4 and 5).

use alloc::vec::Vec;

/// LMP_name_req.
pub const NAME_REQ: u8 = 1;
/// LMP_name_res.
pub const NAME_RES: u8 = 2;
/// LMP_accepted.
pub const ACCEPTED: u8 = 3;
/// LMP_not_accepted.
pub const NOT_ACCEPTED: u8 = 4;
/// LMP_clkoffset_req.
pub const CLOCK_OFFSET_REQ: u8 = 5;
/// LMP_clkoffset_res.
pub const CLOCK_OFFSET_RES: u8 = 6;
/// LMP_detach.
pub const DETACH: u8 = 7;
/// LMP_version_req.
pub const VERSION_REQ: u8 = 37;
/// LMP_version_res.
pub const VERSION_RES: u8 = 38;
/// LMP_features_req.
pub const FEATURES_REQ: u8 = 39;
/// LMP_features_res.
pub const FEATURES_RES: u8 = 40;
/// LMP_max_slot: how many slots the receiver's packets may take.
pub const MAX_SLOT: u8 = 45;
/// LMP_setup_complete.
pub const SETUP_COMPLETE: u8 = 49;
/// LMP_host_connection_req.
pub const HOST_CONNECTION_REQ: u8 = 51;
/// Escape to extended opcodes.
pub const ESCAPE: u8 = 127;
/// LMP_accepted_ext.
pub const EXT_ACCEPTED: u8 = 1;
/// LMP_packet_type_table_req.
pub const EXT_PACKET_TYPE_TABLE_REQ: u8 = 11;

/// Bytes of a name in one LMP_name_res.
pub const NAME_PART: usize = 14;

/// A PDU, taken apart: the transaction is the peripheral's or the central's, the opcode, its parameters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct View<'a> {
    /// The peripheral began the transaction.
    pub by_peripheral: bool,
    /// Opcode.
    pub opcode: u8,
    /// All after it; of an extended opcode, that one first.
    pub parameters: &'a [u8],
}

impl<'a> View<'a> {
    /// Reads a PDU; `None` of nothing.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        match bytes {
            [first, parameters @ ..] => Some(Self { by_peripheral: first & 1 == 1, opcode: first >> 1, parameters }),
            [] => None,
        }
    }
}

/// A PDU.
pub fn pdu(by_peripheral: bool, opcode: u8, parameters: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + parameters.len());
    bytes.push(opcode << 1 | u8::from(by_peripheral));
    bytes.extend(parameters);
    bytes
}
