//! Packets of BR/EDR in a capture, <https://www.tcpdump.org/linktypes/LINKTYPE_BLUETOOTH_BREDR_BB.html>.

use taut_air::bredr::{Body, Packet, PacketType};

/// LINKTYPE_BLUETOOTH_BREDR_BB.
pub(super) const LINK_TYPE: u16 = 255;

const DEWHITENED: u16 = 0x0001;
const REFERENCE_LAP_VALID: u16 = 0x0010;
const PAYLOAD_PRESENT: u16 = 0x0020;
const REFERENCE_UAP_VALID: u16 = 0x0080;
const HEC_CHECKED_AND_PASSED: u16 = 0x0300;
const CRC_CHECKED_AND_PASSED: u16 = 0x0c00;
/// Payload transport rate: an ID packet has neither header nor payload.
const NO_HEADER: u8 = 0xff;
/// The same: transport is ACL, or any.
const ACL: u8 = 0x30;

/// A packet with the pseudo header. FHS stands without its payload, whose parity bits are of no use here.
pub(super) fn record(packet: &Packet) -> Vec<u8> {
    let uap = packet.access[3];
    let mut flags = DEWHITENED | REFERENCE_LAP_VALID;
    let mut header = 0;
    if packet.kind != PacketType::Id {
        flags |= REFERENCE_UAP_VALID | HEC_CHECKED_AND_PASSED;
        // LT_ADDR, TYPE, FLOW (go), ARQN, SEQN, HEC.
        let bits = u32::from(packet.lt_addr)
            | u32::from(packet.kind.code()) << 3
            | 1 << 7
            | u32::from(packet.arqn) << 8
            | u32::from(packet.seqn) << 9;
        header = bits | u32::from(hec(bits as u16, uap)) << 10;
    }
    let mut payload = Vec::new();
    if let Body::Data { llid, bytes } = &packet.body {
        flags |= PAYLOAD_PRESENT | CRC_CHECKED_AND_PASSED;
        // LLID, FLOW (go), length.
        let bits = u16::from(llid.code()) | 1 << 2 | (bytes.len() as u16) << 3;
        payload.extend(&bits.to_le_bytes()[..packet.kind.payload_header()]);
        payload.extend(bytes);
        payload.extend(crc16(uap, &payload).to_le_bytes());
    }
    let rate = match packet.kind {
        PacketType::Id => NO_HEADER,
        PacketType::TwoDh1 | PacketType::TwoDh3 | PacketType::TwoDh5 => ACL | 1,
        PacketType::ThreeDh1 | PacketType::ThreeDh3 | PacketType::ThreeDh5 => ACL | 2,
        kind if kind.is_data() => ACL,
        _ => 0,
    };
    // Signal and noise, offences and corrected bits: the model has none.
    let mut octets = vec![packet.channel, 0, 0, 0, rate, 0, 0, 0];
    octets.extend([packet.access[0], packet.access[1], packet.access[2], 0]);
    octets.extend(&packet.access[..4]);
    octets.extend(header.to_le_bytes());
    octets.extend(flags.to_le_bytes());
    octets.extend(payload);
    octets
}

/// Header error check (Core Specification, Vol 2, Part B, 7.1.1): x^8 + x^7 + x^5 + x^2 + x + 1 over the 10
/// bits of the header as they are sent, beginning with the UAP, whose bit 0 stands at the highest place.
fn hec(header: u16, uap: u8) -> u8 {
    let mut register = uap.reverse_bits();
    for bit in 0..10 {
        let feedback = (header >> bit) as u8 & 1 ^ register & 1;
        register >>= 1;
        if feedback == 1 {
            // The same polynomial with its lowest place first.
            register ^= 0b1110_0101;
        }
    }
    register
}

/// CRC of a payload (7.1.2): CRC-CCITT, lowest bit first, beginning with the UAP in its upper places.
fn crc16(uap: u8, octets: &[u8]) -> u16 {
    let mut register = u16::from(uap.reverse_bits()) << 8;
    for octet in octets {
        register ^= u16::from(*octet);
        for _ in 0..8 {
            register = if register & 1 == 1 { register >> 1 ^ 0x8408 } else { register >> 1 };
        }
    }
    register
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_those_of_the_specifications_sample_data() {
        // Vol 2, Part G, 2 and 4: UAP 0x47, data 4e 01 02 03 04 05 06 07 08 09 with CRC 6d d2; UAP
        // and header with their HEC.
        assert_eq!(crc16(0x47, &[0x4e, 1, 2, 3, 4, 5, 6, 7, 8, 9]), 0xd26d);
        for (uap, header, expected) in
            [(0x00, 0x123, 0xe1), (0x47, 0x123, 0x06), (0x00, 0x124, 0x32), (0x47, 0x124, 0xd5)]
        {
            assert_eq!(hec(header, uap), expected, "{uap:#x} {header:#x}");
        }
    }
}
