//! Whether data PDUs carry a MIC, where the log lacks the start of encryption: within an event one packet follows the
//! other after just its time on air and that of an empty PDU with two inter frame spaces (Core Specification, Vol 6,
//! Part B, section 4.1), and four bytes in each PDU show in that.

use taut_event::RadioLink;

use super::model;

/// A gap is an exchange if it is off by no more than this.
const CLOSE_NS: u64 = 4_000;
/// So many gaps tell.
const ENOUGH: u32 = 8;

/// Gaps that are those of plain PDUs, and of PDUs with a MIC.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mic {
    plain: u32,
    with: u32,
}

impl Mic {
    /// Packets of these lengths took `gap_ns` together, from the one before them on.
    pub(super) fn saw(
        &mut self,
        gap_ns: u64,
        lengths: impl Iterator<Item = u16> + Clone,
        link: &RadioLink,
        way: usize,
    ) {
        let is_near = |is_encrypted: bool| {
            let link = RadioLink { is_encrypted, ..*link };
            let air_ns: u64 = lengths.clone().map(|length| model::air_ns(length, &link, way)).sum();
            gap_ns.abs_diff(air_ns) <= CLOSE_NS
        };
        self.plain = self.plain.saturating_add(is_near(false).into());
        self.with = self.with.saturating_add(is_near(true).into());
    }

    /// Whether they do.
    pub(super) const fn is_seen(self) -> bool {
        self.with >= ENOUGH && self.with > self.plain.saturating_mul(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> RadioLink {
        RadioLink { interval_ns: 50_000_000, phy: [1, 1], length: [251, 251], ..RadioLink::default() }
    }

    #[test]
    fn four_bytes_more_in_each_pdu_show_in_the_rhythm() {
        let of = |gap: u64| {
            let mut mic = Mic::default();
            (0..ENOUGH).for_each(|_| mic.saw(gap, std::iter::once(251), &link(), 0));
            mic.is_seen()
        };
        let plain = model::air_ns(251, &link(), 0);
        // Four bytes take 32 us on LE 1M.
        assert!(!of(plain) && of(plain + 32_000));
        // Neither: another packet was between, or the host's clock is coarse.
        assert!(!of(plain + 500_000) && !of(plain + 16_000));
        // The more PDUs there are, the more it shows: ten of 27 bytes.
        let short = RadioLink { length: [27, 27], ..link() };
        let mut mic = Mic::default();
        let gap = model::air_ns(251, &short, 0) + 320_000;
        (0..ENOUGH).for_each(|_| mic.saw(gap, std::iter::once(251), &short, 0));
        assert!(mic.is_seen());
    }
}
