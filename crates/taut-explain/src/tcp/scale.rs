//! How far a receive window is scaled whose opening is not in the capture: what was in flight did not
//! go beyond it, so the scale is at least as large as that needs (RFC 7323, section 2.3).

use taut_event::{Segment, SegmentFlags};

/// Fewer segments in flight stay just below some power of two of the window too often.
const LEAST_SEGMENTS: u64 = 16;
/// A window that was used up less often may be larger than it seems.
const LEAST_USED_UP: u32 = 8;
/// RFC 7323, section 2.3.
const LARGEST_SHIFT: u32 = 14;

/// The scale of one end's windows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scale {
    least: Option<u32>,
    is_told: bool,
    /// How often a window of this scale left no room.
    used_up: u32,
}

impl Scale {
    /// The window that a segment grants, in bytes, if that is known.
    pub(super) fn window(&mut self, segment: &Segment) -> Option<u32> {
        if segment.window_is_scaled {
            self.is_told |= !segment.flags.has(SegmentFlags::SYN);
            return Some(segment.window);
        }
        self.least.map(|shift| segment.window << shift)
    }

    /// So many bytes were in flight while the newest window, not scaled, was this one. Gives
    /// the bits of the scale if that shows more than before: what seemed to use the window up did not.
    pub(super) fn flight(&mut self, bytes: u64, window: u32, mss: u64) -> Option<u32> {
        if self.is_told || window == 0 || bytes < LEAST_SEGMENTS * mss {
            return None;
        }
        let fits = (0..LARGEST_SHIFT).find(|&shift| u64::from(window) << shift >= bytes).unwrap_or(LARGEST_SHIFT);
        if self.least.is_some_and(|least| fits <= least) {
            return None;
        }
        (self.least, self.used_up) = (Some(fits), 0);
        self.least
    }

    /// The window left no room.
    pub(super) fn used_up(&mut self) {
        self.used_up = self.used_up.saturating_add(1);
    }

    /// Whether the window may be larger than it seemed when it was used up.
    pub(super) const fn is_doubtful(self) -> bool {
        self.least.is_some() && self.used_up < LEAST_USED_UP
    }

    /// By how many bits windows are scaled at least, where that had to be found out.
    pub(crate) const fn learned(self) -> Option<u32> {
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_scale_that_holds_what_was_in_flight_is_taken() {
        let mut scale = Scale::default();
        let segment = Segment { window: 2048, ..Segment::default() };
        scale.flight(10 * 1448, 2048, 1448);
        assert_eq!(scale.window(&segment), None);
        assert_eq!(scale.flight(40 * 1448, 2048, 1448), Some(5));
        assert!(scale.is_doubtful());
        assert_eq!(scale.window(&segment), Some(65_536));
        scale.flight(181 * 1448, 2048, 1448);
        assert_eq!(scale.flight(20 * 1448, 2048, 1448), None);
        assert_eq!((scale.window(&segment), scale.learned()), (Some(262_144), Some(7)));
        scale.flight(u64::MAX, 1, 1448);
        assert_eq!(scale.window(&Segment { window: 65_535, ..segment }), Some(65_535 << 14));
        // What the opening tells needs no guess.
        let mut scale = Scale::default();
        assert_eq!(scale.window(&Segment { window_is_scaled: true, ..segment }), Some(2048));
        assert_eq!((scale.flight(40 * 1448, 2048, 1448), scale.learned()), (None, None));
    }
}
