//! Tunnels without encryption: the packet that another one carries.

use super::{ip, link, udp};
use crate::bytes::be16;
use crate::packet::{LinkType, Packet};

/// More than anyone nests.
const MOST: usize = 4;

const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;

const ETHERNET: LinkType = LinkType(1);
const RAW: LinkType = LinkType(101);

/// Types of the protocol within GRE and Geneve, and of what stands within Ethernet.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const BRIDGED: u16 = 0x6558;
/// Copies of a switch's port (draft-foschiano-erspan): types I and II, and III.
const MIRRORED: u16 = 0x88be;
const MIRRORED_III: u16 = 0x22eb;

/// IANA's ports; the first one of Linux for VXLAN is an older one.
const VXLAN: [u16; 2] = [4789, 8472];
const GENEVE: u16 = 6081;
const GTP: u16 = 2152;

/// The packet within, if this one is of a tunnel; within several, the innermost. `packet` is not TCP.
pub(super) fn innermost<'a>(packet: &Packet<'a>) -> Option<Packet<'a>> {
    let mut found = None;
    for _ in 0..MOST {
        match within(found.as_ref().unwrap_or(packet)) {
            Some(next) => found = Some(next),
            None => break,
        }
    }
    found
}

/// What a packet carries: its kind, the bytes that were kept, and how many there were.
struct Carried<'a> {
    link: LinkType,
    bytes: &'a [u8],
    length: usize,
}

fn within<'a>(packet: &Packet<'a>) -> Option<Packet<'a>> {
    let start = link::network_layer(packet.link, packet.bytes).ok()?;
    let length = packet.original_length.max(packet.bytes.len() as u32) as usize - start;
    let carried = carried(&packet.bytes[start..], length)?;
    Some(Packet { link: carried.link, bytes: carried.bytes, original_length: carried.length as u32, ..*packet })
}

fn carried(bytes: &[u8], length: usize) -> Option<Carried<'_>> {
    if let Ok(datagram) = ip::datagram::<{ ip::UDP }>(bytes, length) {
        let port = be16(datagram.segment, 2)?;
        let is_tunnels = VXLAN.contains(&port) || [GENEVE, GTP].contains(&port);
        return is_tunnels.then(|| in_udp(port, udp::payload(&datagram)?))?;
    }
    let within_ip = ip::datagram::<IP_IN_IP>(bytes, length).or_else(|_| ip::datagram::<IPV6_IN_IP>(bytes, length));
    if let Ok(ip::Datagram { segment, length, .. }) = within_ip {
        return is_ip(segment).then_some(Carried { link: RAW, bytes: segment, length });
    }
    let datagram = ip::datagram::<GRE>(bytes, length).ok()?;
    in_gre(datagram.segment, datagram.length)
}

/// RFC 2784 and 2890.
fn in_gre(bytes: &[u8], length: usize) -> Option<Carried<'_>> {
    let flags = be16(bytes, 0)?;
    let has = |bit: u16| usize::from(flags & bit != 0);
    // Routing (RFC 1701) and other versions, such as that of PPTP, are not read.
    if flags & 0x4007 != 0 {
        return None;
    }
    let own = 4 + 4 * (has(0x8000) + has(0x2000) + has(0x1000));
    match be16(bytes, 2)? {
        IPV4 | IPV6 => behind(RAW, bytes, length, own),
        BRIDGED => behind(ETHERNET, bytes, length, own),
        // Type I has no number, and no header of its own.
        MIRRORED => behind(ETHERNET, bytes, length, own + 8 * has(0x1000)),
        MIRRORED_III => {
            let has_subheader = bytes.get(own + 11)? & 1 == 1;
            behind(ETHERNET, bytes, length, own + if has_subheader { 20 } else { 12 })
        }
        _ => None,
    }
}

/// Any program may have these ports, so the header has to be one.
fn in_udp(port: u16, (bytes, length): (&[u8], usize)) -> Option<Carried<'_>> {
    match port {
        GENEVE => {
            let [first, _, _, _, _, _, _, 0, ..] = *bytes else { return None };
            let own = 8 + 4 * usize::from(first & 0x3f);
            match (first >> 6, be16(bytes, 2)?) {
                (0, BRIDGED) => behind(ETHERNET, bytes, length, own),
                (0, IPV4 | IPV6) => behind(RAW, bytes, length, own).filter(|carried| is_ip(carried.bytes)),
                _ => None,
            }
        }
        GTP => {
            // 3GPP TS 29.281, 5.1: version 1, a packet of a user.
            let [flags, 0xff, ..] = *bytes else { return None };
            if flags & 0xf0 != 0x30 || usize::from(be16(bytes, 2)?) + 8 != length {
                return None;
            }
            let mut own = if flags & 7 == 0 { 8 } else { 12 };
            let mut next = if flags & 4 == 0 { 0 } else { *bytes.get(11)? };
            while next != 0 {
                let words = usize::from(*bytes.get(own)?).max(1);
                own += 4 * words;
                next = *bytes.get(own - 1)?;
            }
            behind(RAW, bytes, length, own).filter(|carried| is_ip(carried.bytes))
        }
        // RFC 7348; the highest bit is that of a group's policy.
        _ => {
            let [flags, reserved @ .., 0] = *bytes.first_chunk::<8>()? else { return None };
            let is_header = flags == 0x88 || flags == 8 && reserved[..3] == [0; 3];
            is_header.then(|| behind(ETHERNET, bytes, length, 8))?
        }
    }
}

fn behind(link: LinkType, bytes: &[u8], length: usize, own: usize) -> Option<Carried<'_>> {
    Some(Carried { link, bytes: bytes.get(own..)?, length: length.checked_sub(own)? })
}

fn is_ip(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| matches!(first >> 4, 4 | 6))
}
