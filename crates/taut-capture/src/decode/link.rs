//! Link headers: where the IP header begins. Numbers are those of tcpdump.org's registry.

use super::header::Skipped;
use crate::bytes::be16;
use crate::packet::LinkType;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// IEEE 802.1Q, 802.1ad, and what came before that.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// More tags than anyone stacks.
const MOST_TAGS: usize = 4;

/// Where in the packet its IP header begins; never beyond its end.
pub(super) fn network_layer(link: LinkType, bytes: &[u8]) -> Result<usize, Skipped> {
    let start = match link.0 {
        // LINKTYPE_NULL and _LOOP: four bytes of an address family, in the order of some host.
        0 | 108 => 4,
        1 => return ethernet(bytes),
        // LINKTYPE_RAW, by its registered and by its two historical numbers; _IPV4; _IPV6.
        12 | 14 | 101 | 228 | 229 => 0,
        // LINKTYPE_LINUX_SLL and _SLL2.
        113 => protocol(bytes, 14).map(|()| 16)?,
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

fn ethernet(bytes: &[u8]) -> Result<usize, Skipped> {
    let mut at = 12;
    for _ in 0..=MOST_TAGS {
        match be16(bytes, at).ok_or(Skipped::Cut)? {
            IPV4 | IPV6 if at + 2 < bytes.len() => return Ok(at + 2),
            IPV4 | IPV6 => return Err(Skipped::Cut),
            tag if TAGS.contains(&tag) => at += 4,
            _ => return Err(Skipped::NotTcp),
        }
    }
    Err(Skipped::NotTcp)
}
