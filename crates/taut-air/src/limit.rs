//! What a link can carry at most: the formulas that a saturating run is held against.

use crate::phy::{MIN_LENGTH, Phy};
use crate::time::Nanos;

/// Bytes of an L2CAP basic header: length and channel.
pub const L2CAP_HEADER_BYTES: usize = 4;
/// Bytes of the SDU length in the first PDU of an SDU of a credit-based channel.
pub const SDU_LENGTH_BYTES: usize = 2;

/// All that the limit depends on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limit {
    /// Physical layer of both directions.
    pub phy: Phy,
    /// Longest payload of a data PDU in bytes, 27 to 251.
    pub length: usize,
    /// Whether non-empty PDUs carry a MIC.
    pub mic: bool,
    /// Inter frame space.
    pub ifs: Nanos,
    /// Bytes of one SDU.
    pub sdu: usize,
    /// Bytes before it in its first PDU: [`SDU_LENGTH_BYTES`] of a credit-based channel, 0 of others.
    pub header: usize,
    /// Longest information payload of an L2CAP PDU, SDU length included.
    pub mps: usize,
}

impl Limit {
    /// Payload lengths of the link layer PDUs that carry one SDU, in order.
    pub fn pdus(&self) -> impl Iterator<Item = usize> {
        let length = self.length.max(MIN_LENGTH);
        let (mut left, mps) = (self.sdu + self.header, self.mps.max(1));
        let mut frame = 0;
        core::iter::from_fn(move || {
            if frame == 0 {
                if left == 0 {
                    return None;
                }
                let information = left.min(mps);
                left -= information;
                frame = information + L2CAP_HEADER_BYTES;
            }
            let pdu = frame.min(length);
            frame -= pdu;
            Some(pdu)
        })
    }

    /// From the start of a data PDU to the earliest start of the next in that direction, when the
    /// other side has nothing: the PDU, the inter frame space, an empty PDU, and the space again.
    pub const fn cycle(&self, payload: usize) -> Nanos {
        self.phy.air_time(payload, self.mic) + self.ifs + self.phy.air_time(0, false) + self.ifs
    }

    /// Application bits per second when cycles follow each other without end.
    pub fn bps(&self) -> f64 {
        let cycles: Nanos = self.pdus().map(|pdu| self.cycle(pdu)).sum();
        self.sdu as f64 * 8e9 / cycles as f64
    }

    /// Application bits per second when only whole cycles fit into a connection event of one interval.
    ///
    /// PDUs of one SDU differ in length, so which of them share an event changes from event to event. This fills
    /// 10,000 events in order, each with as many as fit. It reckons with SDUs of this length alone: a shorter one in
    /// between, the end of a block, may fit where none of these does, and a run may carry a little more than this.
    pub fn quantised_bps(&self, interval: Nanos) -> f64 {
        const EVENTS: u64 = 10_000;
        let pattern: alloc::vec::Vec<Nanos> = self.pdus().map(|pdu| self.cycle(pdu)).collect();
        if interval == 0 || pattern.iter().any(|&cycle| cycle > interval) {
            return 0.0;
        }
        let (mut next, mut sdus) = (0, 0u64);
        for _ in 0..EVENTS {
            let mut left = interval;
            while pattern[next] <= left {
                left -= pattern[next];
                next += 1;
                if next == pattern.len() {
                    next = 0;
                    sdus += 1;
                }
            }
        }
        (sdus as f64 + next as f64 / pattern.len() as f64) * self.sdu as f64 * 8e9 / (interval as f64 * EVENTS as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::US;

    #[test]
    fn limits_of_the_usual_links() {
        let header = SDU_LENGTH_BYTES;
        let limit = |phy, mic, sdu| Limit { phy, length: 251, mic, ifs: 150 * US, sdu, header, mps: 247 };
        let kbps = |limit: Limit| (limit.bps() / 100.0) as u64 as f64 / 10.0;
        assert_eq!(kbps(limit(Phy::Le1M, false, 245)), 794.1);
        assert_eq!(kbps(limit(Phy::Le1M, false, 672)), 782.7);
        assert_eq!(kbps(limit(Phy::Le2M, true, 672)), 1358.9);
        assert_eq!(limit(Phy::Le1M, false, 672).pdus().collect::<alloc::vec::Vec<_>>(), [251, 251, 184]);
        assert_eq!(limit(Phy::Le1M, false, 245).quantised_bps(7_500 * US) as u64, 784_000);
        let plain = |sdu| Limit { header: 0, ..limit(Phy::Le1M, false, sdu) };
        assert_eq!([247, 248].map(|sdu| plain(sdu).pdus().count()), [1, 2]);
    }
}
