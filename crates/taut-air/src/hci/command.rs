//! Opcodes (Core Specification, Vol 4, Part E, section 7).

/// Disconnect.
pub const DISCONNECT: u16 = 0x0406;
/// Set Event Mask.
pub const SET_EVENT_MASK: u16 = 0x0c01;
/// Reset.
pub const RESET: u16 = 0x0c03;
/// Read Local Version Information.
pub const READ_LOCAL_VERSION: u16 = 0x1001;
/// Read Local Supported Commands.
pub const READ_LOCAL_COMMANDS: u16 = 0x1002;
/// Read Local Supported Features.
pub const READ_LOCAL_FEATURES: u16 = 0x1003;
/// Read BD_ADDR.
pub const READ_BD_ADDR: u16 = 0x1009;
/// LE Set Event Mask.
pub const LE_SET_EVENT_MASK: u16 = 0x2001;
/// LE Read Buffer Size, version 1.
pub const LE_READ_BUFFER_SIZE: u16 = 0x2002;
/// LE Read Local Supported Features.
pub const LE_READ_LOCAL_FEATURES: u16 = 0x2003;
/// LE Set Advertising Parameters.
pub const LE_SET_ADV_PARAMETERS: u16 = 0x2006;
/// LE Set Advertising Data.
pub const LE_SET_ADV_DATA: u16 = 0x2008;
/// LE Set Advertising Enable.
pub const LE_SET_ADV_ENABLE: u16 = 0x200a;
/// LE Create Connection.
pub const LE_CREATE_CONNECTION: u16 = 0x200d;
/// LE Connection Update.
pub const LE_CONNECTION_UPDATE: u16 = 0x2013;
/// LE Set Data Length.
pub const LE_SET_DATA_LENGTH: u16 = 0x2022;
/// LE Set PHY.
pub const LE_SET_PHY: u16 = 0x2032;
