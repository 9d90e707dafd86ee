//! Link headers: where the IP header begins. Numbers are those of tcpdump.org's registry.

use super::header::Skipped;
use crate::bytes::{Order, be16};
use crate::packet::LinkType;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const PPPOE: u16 = 0x8864;
const MPLS: [u16; 2] = [0x8847, 0x8848];
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
/// IEEE 802.1Q, 802.1ad, and what came before that.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// More tags than anyone stacks.
const MOST_TAGS: usize = 4;

/// Where in the packet its IP header begins; never beyond its end.
#[inline(always)]
pub(super) fn network_layer(link: LinkType, bytes: &[u8]) -> Result<usize, Skipped> {
    let start = match link.0 {
        // LINKTYPE_NULL and _LOOP: four bytes of an address family, in the order of some host.
        0 | 108 => 4,
        1 => match be16(bytes, 12) {
            Some(IPV4 | IPV6) => 14,
            _ => return tagged(bytes, 12),
        },
        // LINKTYPE_RAW, by its registered and by its two historical numbers; _IPV4; _IPV6.
        12 | 14 | 101 | 228 | 229 => 0,
        // LINKTYPE_LINUX_SLL and _SLL2.
        113 => return tagged(bytes, 14),
        // The type is the first field there, and what belongs to it comes behind the header.
        276 => match be16(bytes, 0).ok_or(Skipped::Cut)? {
            IPV4 | IPV6 => 20,
            tag if TAGS.contains(&tag) => return tagged(bytes, 22),
            kind if MPLS.contains(&kind) => return labelled(bytes, 20),
            _ => return Err(Skipped::NotTcp),
        },
        _ => return rarer(link, bytes),
    };
    if start < bytes.len() { Ok(start) } else { Err(Skipped::Cut) }
}

/// Those of few captures.
#[inline(never)]
fn rarer(link: LinkType, bytes: &[u8]) -> Result<usize, Skipped> {
    match link.0 {
        // LINKTYPE_PPP and _PPP_HDLC, with or without address and control.
        9 | 50 => point_to_point(bytes, if bytes.starts_with(&[0xff, 3]) { 2 } else { 0 }),
        // LINKTYPE_C_HDLC.
        104 => tagged(bytes, 2),
        // LINKTYPE_NFLOG: fields by length and type; that of type 9 is the packet.
        239 => {
            let mut at = 4;
            loop {
                let (length, kind) =
                    Order::Little.u16(bytes, at).zip(Order::Little.u16(bytes, at + 2)).ok_or(Skipped::Cut)?;
                match kind & 0x7fff {
                    9 if at + 4 < bytes.len() => return Ok(at + 4),
                    _ if length < 4 => return Err(Skipped::Malformed),
                    _ => at += usize::from(length).next_multiple_of(4),
                }
            }
        }
        // LINKTYPE_PKTAP, of macOS: the length of its header, and the link type behind it.
        258 => {
            let length = Order::Little.u32(bytes, 0).ok_or(Skipped::Cut)? as usize;
            let within =
                Order::Little.u32(bytes, 8).and_then(|kind| u16::try_from(kind).ok()).filter(|&kind| kind != 258);
            let kind = LinkType(within.ok_or(Skipped::UnknownLink)?);
            let rest = bytes.get(length..).ok_or(Skipped::Cut)?;
            Ok(length + network_layer(kind, rest)?)
        }
        _ => Err(Skipped::UnknownLink),
    }
}

/// From the type of the next header on, which stands `at` there: Ethernet's, or Linux cooked.
#[inline(never)]
fn tagged(bytes: &[u8], mut at: usize) -> Result<usize, Skipped> {
    for _ in 0..=MOST_TAGS {
        match be16(bytes, at).ok_or(Skipped::Cut)? {
            IPV4 | IPV6 if at + 2 < bytes.len() => return Ok(at + 2),
            IPV4 | IPV6 => return Err(Skipped::Cut),
            tag if TAGS.contains(&tag) => at += 4,
            PPPOE => return point_to_point(bytes, at + 8),
            kind if MPLS.contains(&kind) => return labelled(bytes, at + 2),
            _ => return Err(Skipped::NotTcp),
        }
    }
    Err(Skipped::NotTcp)
}

/// Labels of MPLS (RFC 3032), and then the datagram; what else may be there only the routers know.
fn labelled(bytes: &[u8], at: usize) -> Result<usize, Skipped> {
    let labels = bytes.get(at..).unwrap_or_default().as_chunks::<4>().0;
    let last = labels.iter().take(2 * MOST_TAGS).position(|label| label[2] & 1 == 1).ok_or(Skipped::Cut)?;
    let start = at + 4 * (last + 1);
    match bytes.get(start).ok_or(Skipped::Cut)? >> 4 {
        4 | 6 => Ok(start),
        _ => Err(Skipped::NotTcp),
    }
}

/// PPP in a session of PPPoE (RFC 2516): its protocol, and then the datagram.
fn point_to_point(bytes: &[u8], at: usize) -> Result<usize, Skipped> {
    match be16(bytes, at).ok_or(Skipped::Cut)? {
        PPP_IPV4 | PPP_IPV6 if at + 2 < bytes.len() => Ok(at + 2),
        PPP_IPV4 | PPP_IPV6 => Err(Skipped::Cut),
        _ => Err(Skipped::NotTcp),
    }
}
