//! Event codes and LE subevent codes (Core Specification, Vol 4, Part E, section 7.7).

/// Disconnection Complete.
pub const DISCONNECTION_COMPLETE: u8 = 0x05;
/// Encryption Change, version 1.
pub const ENCRYPTION_CHANGE: u8 = 0x08;
/// Command Complete.
pub const COMMAND_COMPLETE: u8 = 0x0e;
/// Command Status.
pub const COMMAND_STATUS: u8 = 0x0f;
/// Hardware Error.
pub const HARDWARE_ERROR: u8 = 0x10;
/// Number Of Completed Packets.
pub const COMPLETED_PACKETS: u8 = 0x13;
/// Data Buffer Overflow.
pub const DATA_BUFFER_OVERFLOW: u8 = 0x1a;
/// Encryption Key Refresh Complete.
pub const ENCRYPTION_KEY_REFRESH: u8 = 0x30;
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
/// LE Long Term Key Request (LE Meta).
pub const LE_LONG_TERM_KEY_REQUEST: u8 = 0x05;
/// LE Data Length Change (LE Meta).
pub const LE_DATA_LENGTH_CHANGE: u8 = 0x07;
/// LE PHY Update Complete (LE Meta).
pub const LE_PHY_UPDATE_COMPLETE: u8 = 0x0c;
/// Inquiry Complete.
pub const INQUIRY_COMPLETE: u8 = 0x01;
/// Inquiry Result.
pub const INQUIRY_RESULT: u8 = 0x02;
/// Connection Complete.
pub const CONNECTION_COMPLETE: u8 = 0x03;
/// Connection Request.
pub const CONNECTION_REQUEST: u8 = 0x04;
/// Remote Name Request Complete.
pub const REMOTE_NAME_COMPLETE: u8 = 0x07;
/// Read Remote Supported Features Complete.
pub const REMOTE_FEATURES_COMPLETE: u8 = 0x0b;
/// Read Remote Version Information Complete.
pub const REMOTE_VERSION_COMPLETE: u8 = 0x0c;
/// Flush Occurred.
pub const FLUSH_OCCURRED: u8 = 0x11;
/// Read Clock Offset Complete.
pub const CLOCK_OFFSET_COMPLETE: u8 = 0x1c;
/// Connection Packet Type Changed.
pub const PACKET_TYPE_CHANGED: u8 = 0x1d;
