//! What a PDU on the air carries, for one who follows data from place to place.

use taut_air::HEADER_BYTES;

use super::frame;
use crate::packet::Packet;

/// The payload of a data physical channel PDU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AirPayload<'a> {
    /// As it stands in the capture, with the MIC if that has it, as far as it was kept.
    pub bytes: &'a [u8],
    /// It was encrypted on the air, and the sniffer deciphered it.
    pub is_deciphered: bool,
}

/// Of a packet from the air what its PDU carries; `None` of all others.
pub fn air_payload<'a>(packet: &Packet<'a>) -> Option<AirPayload<'a>> {
    if !frame::is_air(packet.link) {
        return None;
    }
    let frame = frame::read(packet).ok()?;
    Some(AirPayload { bytes: frame.pdu.get(HEADER_BYTES..)?, is_deciphered: frame.is_deciphered })
}
