use alloc::vec::Vec;

use super::{ACL_HEADER_BYTES, Boundary, event};

/// A command packet. Parameters beyond 255 bytes can't be: they are cut off.
pub fn command(opcode: u16, parameters: &[u8]) -> Vec<u8> {
    let parameters = &parameters[..parameters.len().min(255)];
    let mut packet = Vec::with_capacity(4 + parameters.len());
    packet.push(1);
    packet.extend(opcode.to_le_bytes());
    packet.push(parameters.len() as u8);
    packet.extend(parameters);
    packet
}

/// The five bytes in front of an ACL packet's data.
pub const fn acl_header(handle: u16, boundary: Boundary, length: usize) -> [u8; ACL_HEADER_BYTES] {
    let flags = match boundary {
        Boundary::FirstFromHost => 0b00,
        Boundary::Continuing => 0b01,
        Boundary::FirstFromController => 0b10,
    };
    let word = (handle & 0xfff) | (flags << 12);
    [2, word as u8, (word >> 8) as u8, length as u8, (length >> 8) as u8]
}

/// An ACL data packet.
pub fn acl(handle: u16, boundary: Boundary, data: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(ACL_HEADER_BYTES + data.len());
    packet.extend(acl_header(handle, boundary, data.len()));
    packet.extend(data);
    packet
}

/// An event, whose parameters stand in two parts. Beyond 255 bytes they are cut off.
pub(crate) fn event_packet(code: u8, front: &[u8], back: &[u8]) -> Vec<u8> {
    let back = &back[..back.len().min(255 - front.len())];
    let mut packet = Vec::with_capacity(3 + front.len() + back.len());
    packet.extend([4, code, (front.len() + back.len()) as u8]);
    packet.extend(front);
    packet.extend(back);
    packet
}

/// Command Complete with its return parameters, status first.
pub fn command_complete(opcode: u16, parameters: &[u8]) -> Vec<u8> {
    let [low, high] = opcode.to_le_bytes();
    event_packet(event::COMMAND_COMPLETE, &[1, low, high], parameters)
}

/// Command Status.
pub fn command_status(opcode: u16, status: u8) -> Vec<u8> {
    let [low, high] = opcode.to_le_bytes();
    event_packet(event::COMMAND_STATUS, &[status, 1, low, high], &[])
}

/// Hardware Error, with a code of the maker's own.
pub fn hardware_error(code: u8) -> Vec<u8> {
    event_packet(event::HARDWARE_ERROR, &[code], &[])
}

/// Data Buffer Overflow: the host sent more ACL packets than the controller has buffers.
pub fn data_buffer_overflow() -> Vec<u8> {
    const ACL: u8 = 0x01;
    event_packet(event::DATA_BUFFER_OVERFLOW, &[ACL], &[])
}

/// LE Meta event.
pub fn le_event(subevent: u8, parameters: &[u8]) -> Vec<u8> {
    event_packet(event::LE_META, &[subevent], parameters)
}

/// Disconnection Complete.
pub(crate) fn disconnection_complete(handle: u16, reason: u8) -> Vec<u8> {
    let [low, high] = handle.to_le_bytes();
    event_packet(event::DISCONNECTION_COMPLETE, &[super::SUCCESS, low, high, reason], &[])
}

/// Number Of Completed Packets for one handle.
pub fn completed_packets(handle: u16, count: u16) -> Vec<u8> {
    let ([low, high], [count_low, count_high]) = (handle.to_le_bytes(), count.to_le_bytes());
    event_packet(event::COMPLETED_PACKETS, &[1, low, high, count_low, count_high], &[])
}
