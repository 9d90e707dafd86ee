//! What sniffers put before a PDU: the link types 251, 256 and 272.

use taut_air::{ACCESS_ADDRESS_BYTES, HEADER_BYTES, Phy};
use taut_event::Direction;

use crate::bytes::Order;
use crate::packet::{LinkType, Packet};

/// A PDU as a sniffer got it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) access_address: u32,
    /// Header and payload, as far as they were kept.
    pub(super) pdu: &'a [u8],
    pub(super) phy: Phy,
    /// Whether the sniffer found the CRC right; `None`: it does not say.
    pub(super) is_right: Option<bool>,
    /// Who sent it; `None`: it does not say.
    pub(super) way: Option<Direction>,
    /// Number of the connection event, where the sniffer counts them.
    pub(super) counter: Option<u16>,
    /// It was encrypted on the air.
    pub(super) is_encrypted: bool,
    /// It was, and the sniffer deciphered it.
    pub(super) is_deciphered: bool,
    pub(super) tells_phy: bool,
}

/// Why a packet has no PDU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Not {
    /// So little was kept.
    Cut,
    /// Isochronous, still whitened, or a note of the sniffer.
    Other,
}

pub(crate) const fn is_air(link: LinkType) -> bool {
    matches!(link, LinkType::LE | LinkType::LE_WITH_HEADER | LinkType::NORDIC_LE)
}

pub(super) fn read<'a>(packet: &Packet<'a>) -> Result<Frame<'a>, Not> {
    match packet.link {
        LinkType::LE_WITH_HEADER => with_header(packet.bytes),
        LinkType::NORDIC_LE => nordic(packet.bytes),
        _ => begin(packet.bytes, Phy::Le1M),
    }
}

/// From the access address on; on LE Coded the coding indicator stands behind it.
fn begin(bytes: &[u8], phy: Phy) -> Result<Frame<'_>, Not> {
    let access_address = Order::Little.u32(bytes, 0).ok_or(Not::Cut)?;
    let (phy, start) = match (phy.is_coded(), bytes.get(ACCESS_ADDRESS_BYTES)) {
        (false, _) => (phy, ACCESS_ADDRESS_BYTES),
        (true, Some(1)) => (Phy::CodedS2, ACCESS_ADDRESS_BYTES + 1),
        (true, _) => (Phy::CodedS8, ACCESS_ADDRESS_BYTES + 1),
    };
    let pdu = bytes.get(start..).filter(|pdu| pdu.len() >= HEADER_BYTES).ok_or(Not::Cut)?;
    // The CRC follows.
    let pdu = &pdu[..pdu.len().min(HEADER_BYTES + usize::from(pdu[1]))];
    Ok(Frame {
        access_address,
        pdu,
        phy,
        is_right: None,
        way: None,
        counter: None,
        is_encrypted: false,
        is_deciphered: false,
        tells_phy: false,
    })
}

/// <https://www.tcpdump.org/linktypes/LINKTYPE_BLUETOOTH_LE_LL_WITH_PHDR.html>.
fn with_header(bytes: &[u8]) -> Result<Frame<'_>, Not> {
    const HEADER: usize = 10;
    const DEWHITENED: u16 = 0x0001;
    const DECRYPTED: u16 = 0x0008;
    const CRC_CHECKED: u16 = 0x0400;
    const CRC_VALID: u16 = 0x0800;
    let flags = Order::Little.u16(bytes, 8).ok_or(Not::Cut)?;
    let way = match flags >> 7 & 7 {
        // Of advertising, and of data whose sender is not told.
        0 | 1 => None,
        2 => Some(Direction::Forward),
        3 => Some(Direction::Backward),
        _ => return Err(Not::Other),
    };
    let phy = match flags >> 14 {
        0 => Phy::Le1M,
        1 => Phy::Le2M,
        2 => Phy::CodedS8,
        _ => return Err(Not::Other),
    };
    if flags & DEWHITENED == 0 {
        return Err(Not::Other);
    }
    let is_deciphered = flags & DECRYPTED != 0;
    Ok(Frame {
        is_right: (flags & CRC_CHECKED != 0).then_some(flags & CRC_VALID != 0),
        way,
        is_encrypted: is_deciphered,
        is_deciphered,
        tells_phy: true,
        ..begin(bytes.get(HEADER..).ok_or(Not::Cut)?, phy)?
    })
}

/// nRF Sniffer for Bluetooth LE, of versions 0 to 3, which all have the same lengths (Wireshark,
/// epan/dissectors/packet-nordic_ble.c).
fn nordic(bytes: &[u8]) -> Result<Frame<'_>, Not> {
    const LEGACY: [u8; 2] = [0xbe, 0xef];
    const HEADER: usize = 17;
    const FLAGS: usize = 8;
    const COUNTER: usize = 11;
    /// Advertising of version 3, and data; of older ones both.
    const PACKETS: [u8; 2] = [0x02, 0x06];
    let header: &[u8; HEADER] = bytes.first_chunk().ok_or(Not::Cut)?;
    let is_legacy = header.starts_with(&LEGACY);
    let (id, version) = if is_legacy { (header[2], 0) } else { (header[6], header[3]) };
    if !PACKETS.contains(&id) || version > 3 {
        return Err(Not::Other);
    }
    let flags = header[FLAGS];
    let phy = match flags >> 4 & 7 {
        0 => Phy::Le1M,
        1 => Phy::Le2M,
        2 => Phy::CodedS8,
        _ => return Err(Not::Other),
    };
    let is_encrypted = flags & 4 != 0;
    Ok(Frame {
        is_right: Some(flags & 1 != 0),
        way: Some(if flags & 2 != 0 { Direction::Forward } else { Direction::Backward }),
        counter: Order::Little.u16(bytes, COUNTER),
        is_encrypted,
        // With a wrong MIC it was deciphered by a wrong key.
        is_deciphered: is_encrypted && flags & 8 != 0,
        tells_phy: true,
        ..begin(&bytes[HEADER..], phy)?
    })
}
