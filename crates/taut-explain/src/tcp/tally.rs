//! What one direction did, in numbers.

use super::sample::Sample;
use super::spread::Spread;

/// What one direction did, counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
    pub(crate) repeated_segments: u64,
    pub(crate) repeated_bytes: u64,
    /// Of the repeated segments, those that may as well have been overtaken.
    pub(crate) unclear_segments: u64,
    /// What came twice, once something did.
    again: Option<Box<Again>>,
    pub(crate) reordered: u64,
    pub(crate) timeouts: u64,
    pub(crate) tail_probes: u64,
    pub(crate) small_segments: u64,
    /// Small segments that left while another one was on its way.
    pub(crate) small_beside_small: u64,
    /// Lengths of the newest small segments that left while nothing was on its way, and not just when that came to be:
    /// a write each. 0: none.
    pub(super) lone: [u16; 3],
    pub(crate) window_probes: u64,
    pub(crate) zero_windows: u64,
    pub(crate) keep_alives: u64,
    pub(crate) acks: u64,
    pub(crate) largest_window: u32,
    pub(crate) peak_flight: u64,
    pub(crate) first_place: u64,
    pub(crate) last_place: u64,
    /// The largest receive window that was used up and held.
    pub(crate) used_up_window: u32,
    /// Holds of Nagle's algorithm, with the receiver's delay of the acknowledgement in each.
    pub(crate) nagle_gaps: Sample,
    /// From small segments to the acknowledgements that released the next one, as seen here.
    pub(crate) nagle_answers: Sample,
    /// Of the time of Nagle's algorithm, how much may as well have been the program's.
    pub(crate) nagle_doubt_ns: u64,
    /// From the last byte of what the peer asked to the first byte of the answer, less the way.
    pub(crate) answers: Spread,
    pub(crate) round_trips: Spread,
    pub(crate) least_round_trip: Option<u64>,
}

/// What had passed here before, and what the receiver had before.
#[derive(Clone, Debug, Default)]
struct Again {
    /// Of the repeated segments, those that had passed before, and were lost beyond this place if they were.
    passed: u64,
    /// How often the receiver said so, keep-alives not included.
    told: u64,
    told_bytes: u64,
    /// Segments that were sent although their sender knew that they had come: none of the repeated ones.
    needless: u64,
    needless_bytes: u64,
    /// Keep-alives of a byte of which the receiver has not said so yet.
    keep_alives: u64,
}

impl Tally {
    /// In a gap at whose end a segment left that several equal writes had made, the first of them came after one in so
    /// many parts, by the length of those that left alone. What `is_filled` left when the last write came.
    pub(super) fn first_write_in(&self, bytes: u64, is_filled: bool) -> u64 {
        match self.length_alone() {
            0 => 2,
            length if is_filled => 2 * bytes.div_ceil(length).max(1) - 1,
            length => 2 * (bytes / length).max(1),
        }
    }

    /// The middle one of the newest lengths, of two the lesser: what a path held up is as long as several.
    fn length_alone(&self) -> u64 {
        let mut known = self.lone;
        known.sort_unstable();
        u64::from(if known[1] > 0 { known[1] } else { known[2] })
    }

    fn again(&mut self) -> &mut Again {
        self.again.get_or_insert_default()
    }

    /// So many repeated segments had passed before.
    pub(super) fn had_passed(&mut self, segments: u64) {
        self.again().passed += segments;
    }

    /// Of the repeated segments those that had passed before.
    pub(crate) fn passed_before(&self) -> u64 {
        self.again.as_ref().map_or(0, |again| again.passed.min(self.repeated_segments))
    }

    /// The receiver says that so many bytes came twice.
    #[inline(always)]
    pub(super) fn came_twice(&mut self, bytes: u32) {
        if bytes > 0 {
            self.did_come_twice(bytes);
        }
    }

    /// A keep-alive has a byte that came long ago.
    #[inline(never)]
    fn did_come_twice(&mut self, bytes: u32) {
        let again = self.again();
        if bytes == 1 && again.keep_alives > 0 {
            again.keep_alives -= 1;
        } else {
            again.told += 1;
            again.told_bytes += u64::from(bytes);
        }
    }

    /// A byte that was acknowledged is sent again to learn whether the other end is there.
    pub(super) fn keep_alive(&mut self) {
        self.keep_alives += 1;
        self.again().keep_alives += 1;
    }

    /// So much was sent again although its sender knew that it had come.
    pub(super) fn was_needless(&mut self, segments: u64, bytes: u64) {
        let again = self.again();
        again.needless += segments;
        again.needless_bytes += bytes;
    }

    /// Of the repeated segments those that had come before, as the receiver says, and whether it says so of all.
    pub(crate) fn arrived(&self) -> (u64, bool) {
        let Some(again) = &self.again else { return (0, false) };
        let arrived = again.told.saturating_sub(again.needless).min(self.repeated_segments);
        // One block may be of several segments, and of the needless ones, too.
        if arrived > 0 && again.told_bytes >= self.repeated_bytes + again.needless_bytes {
            return (self.repeated_segments, true);
        }
        (arrived.min(self.repeated_segments.saturating_sub(1)), false)
    }
}
