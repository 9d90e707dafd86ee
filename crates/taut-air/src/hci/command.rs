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
/// LE Set Random Address.
pub const LE_SET_RANDOM_ADDRESS: u16 = 0x2005;
/// LE Set Advertising Parameters.
pub const LE_SET_ADV_PARAMETERS: u16 = 0x2006;
/// LE Read Advertising Physical Channel Tx Power.
pub const LE_READ_ADV_TX_POWER: u16 = 0x2007;
/// LE Set Advertising Data.
pub const LE_SET_ADV_DATA: u16 = 0x2008;
/// LE Set Scan Response Data.
pub const LE_SET_SCAN_RESPONSE_DATA: u16 = 0x2009;
/// LE Set Advertising Enable.
pub const LE_SET_ADV_ENABLE: u16 = 0x200a;
/// LE Set Scan Parameters.
pub const LE_SET_SCAN_PARAMETERS: u16 = 0x200b;
/// LE Set Scan Enable.
pub const LE_SET_SCAN_ENABLE: u16 = 0x200c;
/// LE Create Connection.
pub const LE_CREATE_CONNECTION: u16 = 0x200d;
/// LE Create Connection Cancel.
pub const LE_CREATE_CONNECTION_CANCEL: u16 = 0x200e;
/// LE Read Filter Accept List Size.
pub const LE_READ_ACCEPT_LIST_SIZE: u16 = 0x200f;
/// LE Clear Filter Accept List.
pub const LE_CLEAR_ACCEPT_LIST: u16 = 0x2010;
/// LE Add Device To Filter Accept List.
pub const LE_ADD_TO_ACCEPT_LIST: u16 = 0x2011;
/// LE Remove Device From Filter Accept List.
pub const LE_REMOVE_FROM_ACCEPT_LIST: u16 = 0x2012;
/// LE Connection Update.
pub const LE_CONNECTION_UPDATE: u16 = 0x2013;
/// LE Read Remote Features.
pub const LE_READ_REMOTE_FEATURES: u16 = 0x2016;
/// LE Encrypt.
pub const LE_ENCRYPT: u16 = 0x2017;
/// LE Rand.
pub const LE_RAND: u16 = 0x2018;
/// LE Enable Encryption.
pub const LE_ENABLE_ENCRYPTION: u16 = 0x2019;
/// LE Long Term Key Request Reply.
pub const LE_LONG_TERM_KEY_REPLY: u16 = 0x201a;
/// LE Long Term Key Request Negative Reply.
pub const LE_LONG_TERM_KEY_NEGATIVE_REPLY: u16 = 0x201b;
/// LE Read Supported States.
pub const LE_READ_STATES: u16 = 0x201c;
/// LE Set Data Length.
pub const LE_SET_DATA_LENGTH: u16 = 0x2022;
/// LE Read Suggested Default Data Length.
pub const LE_READ_DEFAULT_LENGTH: u16 = 0x2023;
/// LE Write Suggested Default Data Length.
pub const LE_WRITE_DEFAULT_LENGTH: u16 = 0x2024;
/// LE Read Maximum Data Length.
pub const LE_READ_MAX_LENGTH: u16 = 0x202f;
/// LE Read PHY.
pub const LE_READ_PHY: u16 = 0x2030;
/// LE Set Default PHY.
pub const LE_SET_DEFAULT_PHY: u16 = 0x2031;
/// LE Set PHY.
pub const LE_SET_PHY: u16 = 0x2032;
/// Inquiry.
pub const INQUIRY: u16 = 0x0401;
/// Inquiry Cancel.
pub const INQUIRY_CANCEL: u16 = 0x0402;
/// Create Connection.
pub const CREATE_CONNECTION: u16 = 0x0405;
/// Create Connection Cancel.
pub const CREATE_CONNECTION_CANCEL: u16 = 0x0408;
/// Accept Connection Request.
pub const ACCEPT_CONNECTION: u16 = 0x0409;
/// Reject Connection Request.
pub const REJECT_CONNECTION: u16 = 0x040a;
/// Change Connection Packet Type.
pub const CHANGE_PACKET_TYPE: u16 = 0x040f;
/// Remote Name Request.
pub const REMOTE_NAME: u16 = 0x0419;
/// Read Remote Supported Features.
pub const READ_REMOTE_FEATURES: u16 = 0x041b;
/// Read Remote Version Information.
pub const READ_REMOTE_VERSION: u16 = 0x041d;
/// Read Clock Offset.
pub const READ_CLOCK_OFFSET: u16 = 0x041f;
/// Role Discovery.
pub const ROLE_DISCOVERY: u16 = 0x0809;
/// Set Event Filter.
pub const SET_EVENT_FILTER: u16 = 0x0c05;
/// Flush.
pub const FLUSH: u16 = 0x0c08;
/// Write Local Name.
pub const WRITE_LOCAL_NAME: u16 = 0x0c13;
/// Read Local Name.
pub const READ_LOCAL_NAME: u16 = 0x0c14;
/// Read Connection Accept Timeout.
pub const READ_ACCEPT_TIMEOUT: u16 = 0x0c15;
/// Write Connection Accept Timeout.
pub const WRITE_ACCEPT_TIMEOUT: u16 = 0x0c16;
/// Read Page Timeout.
pub const READ_PAGE_TIMEOUT: u16 = 0x0c17;
/// Write Page Timeout.
pub const WRITE_PAGE_TIMEOUT: u16 = 0x0c18;
/// Read Scan Enable.
pub const READ_SCAN_ENABLE: u16 = 0x0c19;
/// Write Scan Enable.
pub const WRITE_SCAN_ENABLE: u16 = 0x0c1a;
/// Read Page Scan Activity.
pub const READ_PAGE_SCAN_ACTIVITY: u16 = 0x0c1b;
/// Write Page Scan Activity.
pub const WRITE_PAGE_SCAN_ACTIVITY: u16 = 0x0c1c;
/// Read Inquiry Scan Activity.
pub const READ_INQUIRY_SCAN_ACTIVITY: u16 = 0x0c1d;
/// Write Inquiry Scan Activity.
pub const WRITE_INQUIRY_SCAN_ACTIVITY: u16 = 0x0c1e;
/// Read Class Of Device.
pub const READ_CLASS: u16 = 0x0c23;
/// Write Class Of Device.
pub const WRITE_CLASS: u16 = 0x0c24;
/// Read Voice Setting.
pub const READ_VOICE_SETTING: u16 = 0x0c25;
/// Write Voice Setting.
pub const WRITE_VOICE_SETTING: u16 = 0x0c26;
/// Read Automatic Flush Timeout.
pub const READ_FLUSH_TIMEOUT: u16 = 0x0c27;
/// Write Automatic Flush Timeout.
pub const WRITE_FLUSH_TIMEOUT: u16 = 0x0c28;
/// Read Link Supervision Timeout.
pub const READ_SUPERVISION_TIMEOUT: u16 = 0x0c36;
/// Write Link Supervision Timeout.
pub const WRITE_SUPERVISION_TIMEOUT: u16 = 0x0c37;
/// Read Number Of Supported IAC.
pub const READ_IAC_COUNT: u16 = 0x0c38;
/// Read Current IAC LAP.
pub const READ_IAC: u16 = 0x0c39;
/// Write Current IAC LAP.
pub const WRITE_IAC: u16 = 0x0c3a;
/// Read Page Scan Type.
pub const READ_PAGE_SCAN_TYPE: u16 = 0x0c46;
/// Write Page Scan Type.
pub const WRITE_PAGE_SCAN_TYPE: u16 = 0x0c47;
/// Read LE Host Support.
pub const READ_LE_HOST: u16 = 0x0c6c;
/// Write LE Host Support.
pub const WRITE_LE_HOST: u16 = 0x0c6d;
/// Read Buffer Size.
pub const READ_BUFFER_SIZE: u16 = 0x1005;
