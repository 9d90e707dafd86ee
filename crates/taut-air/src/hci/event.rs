//! Event codes and LE subevent codes (Core Specification, Vol 4, Part E, section 7.7).

/// Disconnection Complete.
pub const DISCONNECTION_COMPLETE: u8 = 0x05;
/// Command Complete.
pub const COMMAND_COMPLETE: u8 = 0x0e;
/// Command Status.
pub const COMMAND_STATUS: u8 = 0x0f;
/// Number Of Completed Packets.
pub const COMPLETED_PACKETS: u8 = 0x13;
/// LE Meta.
pub const LE_META: u8 = 0x3e;
/// LE Connection Complete (LE Meta).
pub const LE_CONNECTION_COMPLETE: u8 = 0x01;
/// LE Advertising Report (LE Meta).
pub const LE_ADVERTISING_REPORT: u8 = 0x02;
/// LE Connection Update Complete (LE Meta).
pub const LE_CONNECTION_UPDATE_COMPLETE: u8 = 0x03;
/// LE Read Remote Features Complete (LE Meta).
pub const LE_REMOTE_FEATURES_COMPLETE: u8 = 0x04;
/// LE Data Length Change (LE Meta).
pub const LE_DATA_LENGTH_CHANGE: u8 = 0x07;
/// LE PHY Update Complete (LE Meta).
pub const LE_PHY_UPDATE_COMPLETE: u8 = 0x0c;
