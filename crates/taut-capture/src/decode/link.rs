//! Link headers: where the IP header begins. Numbers are those of tcpdump.org's registry.

use super::header::Skipped;
use crate::bytes::be16;
use crate::packet::LinkType;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const PPPOE: u16 = 0x8864;
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
        276 => protocol(bytes, 0).map(|()| 20)?,
        _ => return Err(Skipped::UnknownLink),
    };
    if start < bytes.len() { Ok(start) } else { Err(Skipped::Cut) }
}

fn protocol(bytes: &[u8], at: usize) -> Result<(), Skipped> {
    match be16(bytes, at).ok_or(Skipped::Cut)? {
        IPV4 | IPV6 => Ok(()),
        _ => Err(Skipped::NotTcp),
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
            _ => return Err(Skipped::NotTcp),
        }
    }
    Err(Skipped::NotTcp)
}

/// PPP in a session of PPPoE (RFC 2516): its protocol, and then the datagram.
fn point_to_point(bytes: &[u8], at: usize) -> Result<usize, Skipped> {
    match be16(bytes, at).ok_or(Skipped::Cut)? {
        PPP_IPV4 | PPP_IPV6 if at + 2 < bytes.len() => Ok(at + 2),
        PPP_IPV4 | PPP_IPV6 => Err(Skipped::Cut),
        _ => Err(Skipped::NotTcp),
    }
}
