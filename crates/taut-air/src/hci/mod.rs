//! The host controller interface: packets with their H4 indicator in front (Core Specification, Vol 4, Part
//! A, section 2, and Part E). What the simulator's host speaks to its controller, and what a kernel will.

mod build;
pub mod command;
pub mod event;
mod h4;
mod packet;

pub use build::{
    acl, acl_header, command, command_complete, command_status, completed_packets, data_buffer_overflow,
    hardware_error, le_event,
};
pub(crate) use build::{disconnection_complete, event_packet};
pub use h4::{H4Error, H4Received, H4Receiver};
pub use packet::{Acl, Boundary, HciError, PacketView};

/// Bytes in front of an ACL packet's data: indicator, handle with flags, length.
pub const ACL_HEADER_BYTES: usize = 5;

/// Status 0x00 of commands and events.
pub const SUCCESS: u8 = 0x00;
/// Unknown HCI command.
pub const UNKNOWN_COMMAND: u8 = 0x01;
/// Unknown connection identifier.
pub const UNKNOWN_CONNECTION: u8 = 0x02;
/// Page timeout: the device did not answer.
pub const PAGE_TIMEOUT: u8 = 0x04;
/// PIN or key missing.
pub const KEY_MISSING: u8 = 0x06;
/// Memory capacity exceeded.
pub const NO_MEMORY: u8 = 0x07;
/// Connection timeout: the supervision timeout ran out.
pub const CONNECTION_TIMEOUT: u8 = 0x08;
/// Connection limit exceeded.
pub const CONNECTION_LIMIT: u8 = 0x09;
/// Connection already exists.
pub const CONNECTION_EXISTS: u8 = 0x0b;
/// Command disallowed.
pub const COMMAND_DISALLOWED: u8 = 0x0c;
/// Connection accept timeout exceeded.
pub const ACCEPT_TIMEOUT: u8 = 0x10;
/// Unsupported feature or parameter value.
pub const UNSUPPORTED_VALUE: u8 = 0x11;
/// Invalid HCI command parameters.
pub const INVALID_PARAMETERS: u8 = 0x12;
/// Remote user terminated connection.
pub const REMOTE_USER_TERMINATED: u8 = 0x13;
/// Connection terminated by local host.
pub const LOCAL_HOST_TERMINATED: u8 = 0x16;
/// Unsupported remote feature.
pub const UNSUPPORTED_REMOTE_FEATURE: u8 = 0x1a;
/// Advertising timeout: nobody answered directed advertising.
pub const ADVERTISING_TIMEOUT: u8 = 0x3c;
/// Connection terminated due to MIC failure.
pub const MIC_FAILURE: u8 = 0x3d;
/// Connection failed to be established.
pub const FAILED_TO_ESTABLISH: u8 = 0x3e;
