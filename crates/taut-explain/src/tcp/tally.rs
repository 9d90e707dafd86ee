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
    pub(crate) needless_segments: u64,
    pub(crate) reordered: u64,
    pub(crate) timeouts: u64,
    pub(crate) tail_probes: u64,
    pub(crate) small_segments: u64,
    /// Small segments that left while another one was on its way.
    pub(crate) small_beside_small: u64,
    /// Small segments that left while nothing was on its way, and not just when that came to be: a write each.
    pub(crate) lone_segments: u32,
    pub(crate) lone_bytes: u32,
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

impl Tally {
    /// How many writes a segment of so many bytes was made of, by the length of those that left alone.
    pub(super) fn writes_in(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.lone_segments.into()).checked_div(self.lone_bytes.into()).unwrap_or(1).max(1)
    }
}
