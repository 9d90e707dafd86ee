//! A stretch in which the congestion window, or what looks like it, held the data. A full send
//! buffer looks the same: acknowledgements release segments. What differs shows over some round
//! trips only, so the decision is made for a stretch and not for a gap.

use taut_event::Holder;

use crate::engine::{Breakdown, Episode};

/// So many whole bins are needed to call the bytes in flight level.
const LEAST_BINS: u32 = 4;
/// After so many bins a stretch is decided, and the next begins.
const MOST_BINS: u32 = 16;

/// Which of these a gap looked like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Gated {
    /// An acknowledgement released it.
    Window,
    /// An acknowledgement released it, and nothing more had been waiting behind the segment before.
    WindowOrBuffer,
    /// Nothing released it, and more was waiting.
    Paced,
}

#[derive(Debug)]
pub(super) struct Stretch {
    episode: Episode,
    ns: [u64; 3],
    bin_width: u64,
    bin_start: u64,
    bin_peak: u64,
    bins: u32,
    low: u64,
    high: u64,
}

impl Gated {
    /// Who had it, unless the stretch turns out to be a full send buffer.
    const fn looks_like(self) -> Holder {
        match self {
            Self::Window | Self::WindowOrBuffer => Holder::CongestionWindow,
            Self::Paced => Holder::Pacing,
        }
    }
}

impl Stretch {
    pub(super) fn begin(at: u64, place: u64, round_trip: u64) -> Self {
        Self {
            episode: Episode { from: at, to: at, places: (place, place) },
            ns: [0; 3],
            bin_width: (2 * round_trip).max(4_000_000),
            bin_start: at,
            bin_peak: 0,
            bins: 0,
            low: u64::MAX,
            high: 0,
        }
    }

    /// Whether it is long enough to be decided.
    pub(super) const fn is_full(&self) -> bool {
        self.bins > MOST_BINS
    }

    pub(super) fn add(&mut self, gated: Gated, part: Episode, breakdown: &mut Breakdown) {
        breakdown.draw(gated.looks_like(), part);
        self.ns[gated as usize] += part.length();
        self.episode.to = part.to;
        self.episode.places.1 = part.places.1;
    }

    /// So many bytes were in flight.
    pub(super) fn flight(&mut self, at: u64, bytes: u64) {
        if at >= self.bin_start + self.bin_width {
            // The first bin may have begun in the middle of something.
            if self.bins > 0 {
                self.low = self.low.min(self.bin_peak);
                self.high = self.high.max(self.bin_peak);
            }
            self.bins += 1;
            self.bin_start = at;
            self.bin_peak = 0;
        }
        self.bin_peak = self.bin_peak.max(bytes);
    }

    /// Books what it came to.
    pub(super) fn end(self, breakdown: &mut Breakdown, was_lossy: bool) {
        let [window, either, paced] = self.ns;
        let is_level = self.bins > LEAST_BINS && self.high.saturating_mul(100) <= self.low.saturating_mul(103);
        if is_level && !was_lossy && 2 * either >= window + either + paced {
            breakdown.decide(Some(Holder::SendBufferOrCongestion));
            breakdown.book_sum(Holder::SendBufferOrCongestion, window + either + paced, self.episode);
        } else {
            breakdown.decide(None);
            breakdown.book_sum(Holder::CongestionWindow, window + either, self.episode);
            breakdown.book_sum(Holder::Pacing, paced, self.episode);
        }
    }
}

/// The most bytes in flight in each of the last round trips.
#[derive(Debug, Default)]
pub(super) struct Peaks {
    begin: Option<u64>,
    start: u64,
    /// The newest first.
    peaks: [u64; 3],
    /// As many as have passed, or 2.
    rounds: u32,
    /// Since the last pause; windows of 1 GiB are the largest (RFC 7323, section 2.3).
    burst: u32,
}

impl Peaks {
    pub(super) fn flight(&mut self, at: u64, bytes: u64, round_trip: u64) {
        let width = round_trip.max(2_000_000);
        if self.begin.is_none() {
            self.begin = Some(at);
            self.start = at;
        }
        let since = at.saturating_sub(self.start);
        // Most come sooner, and to divide takes long.
        let steps = if since < width { 0 } else { since / width };
        for _ in 0..steps.min(3) {
            self.peaks.rotate_right(1);
            self.peaks[0] = 0;
        }
        self.start += steps * width;
        self.rounds = (u64::from(self.rounds) + steps).min(2) as u32;
        self.peaks[0] = self.peaks[0].max(bytes);
        self.burst = self.burst.max(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Most bytes in flight up to a pause, and none since.
    pub(super) fn take_burst(&mut self) -> u32 {
        std::mem::take(&mut self.burst)
    }

    /// Whether it grew by half in two round trips, or the connection is that young.
    pub(super) const fn is_growing(&self) -> bool {
        self.rounds < 2 || self.peaks[2] > 0 && 2 * self.peaks[0] >= 3 * self.peaks[2]
    }
}
