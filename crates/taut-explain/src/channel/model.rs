//! What a link would carry, from what the log tells of it.

use taut_air::{Limit, Phy};
use taut_event::RadioLink;

/// T_IFS (Core Specification, Vol 6, Part B, section 4.1).
const IFS_NS: u64 = 150_000;
/// Bytes of the basic L2CAP header with the SDU length, where no PDU was seen.
const LEAST_MPS: usize = 23;
/// Payload of a data PDU without data length extension.
const LEAST_LENGTH: usize = 27;

/// Intervals that a central usually gives.
pub(super) const USUAL_NS: [u64; 9] =
    [7_500_000, 10_000_000, 11_250_000, 12_500_000, 15_000_000, 20_000_000, 30_000_000, 50_000_000, 100_000_000];

/// The PHY of a direction. Of LE Coded the log does not tell the coding; S=8 is what Linux asks for.
pub(super) fn phy(link: &RadioLink, way: usize) -> Phy {
    match link.phy[way] {
        2 => Phy::Le2M,
        3 => Phy::CodedS8,
        _ => Phy::Le1M,
    }
}

/// The limit of a direction with SDUs of so many bytes, behind a header of so many, in PDUs of so many.
pub(super) fn limit(link: &RadioLink, way: usize, (sdu, header): (u64, usize), mps: u16) -> Limit {
    Limit {
        phy: phy(link, way),
        length: usize::from(link.length[way]).clamp(LEAST_LENGTH, 251),
        mic: link.is_encrypted,
        ifs: IFS_NS,
        sdu: (sdu as usize).clamp(1, 0xffff),
        header,
        mps: usize::from(mps).max(LEAST_MPS),
    }
}

/// Time on air of an ACL packet, in as many data PDUs as it takes, each with its answer.
pub(super) fn air_ns(length: u16, link: &RadioLink, way: usize) -> u64 {
    let limit = limit(link, way, (1, 0), 0);
    let (whole, rest) = (usize::from(length) / limit.length, usize::from(length) % limit.length);
    let rest = if rest > 0 || whole == 0 { limit.cycle(rest) } else { 0 };
    whole as u64 * limit.cycle(limit.length) + rest
}

/// So many exchanges in an event, and what does not fit into it is not worth reckoning.
const MANY: u64 = 32;

/// Application bits per second with whole exchanges only. Where one takes longer than an event it goes on over several.
pub(super) fn carries(limit: &Limit, interval_ns: u64) -> f64 {
    if interval_ns / limit.cycle(limit.length) >= MANY {
        return limit.bps();
    }
    let quantised = limit.quantised_bps(interval_ns);
    if quantised > 0.0 { quantised } else { limit.bps() }
}
