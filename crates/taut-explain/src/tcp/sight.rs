//! Whether the acknowledgements of a direction are in the capture at all. A filter on flags or
//! lengths leaves them out, as does a mirror of one direction; then who waited for what can't be told.

use taut_event::{Segment, SegmentFlags};

/// A packet that was captured so much later than the one that answers it was not missing, in nanoseconds.
const OUT_OF_ORDER: u64 = 1_000_000;
/// One in so many segments must prove it, that a few packets lost by the capture don't count.
const ONE_IN: u64 = 20;
/// So many waits with data in flight, in a connection without any acknowledgement that carries no data, are no chance.
const LEAST_WAITS: u64 = 3;

/// What of a direction's acknowledgements the capture lacks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Lack {
    #[default]
    Nothing,
    /// Some, or those without data.
    Some,
    /// All but that of the SYN.
    All,
}

/// What tells whether acknowledgements are missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    /// Acknowledgements other than that of the SYN.
    acks: u64,
    /// Of them those without data.
    pure: u64,
    /// The newest clock of the timestamps option that the receiver was seen to send.
    newest: Option<u32>,
    /// The furthest right edge that the receiver was seen to grant.
    edge: Option<u64>,
    /// Segments whose sender had an acknowledgement that is not in the capture.
    pub(crate) unseen: u64,
    /// What the last of them echoed, and when.
    ahead: Option<(u32, u64)>,
    /// Waits at whose end data was in flight, and nothing was seen that let the sender go on.
    waits: u64,
}

impl Sight {
    /// The receiver acknowledges, and grants up to `edge`, if that is known.
    /// `is_pure`: it has no data, and is no part of the opening.
    pub(super) fn acknowledged(&mut self, at: u64, segment: &Segment, is_pure: bool, edge: Option<u64>) {
        if !segment.flags.has(SegmentFlags::SYN) {
            self.acks += 1;
            self.pure += u64::from(is_pure && !segment.flags.has(SegmentFlags::FIN));
        }
        // A window whose scale is not known may reach any far.
        self.edge = edge.map(|edge| self.edge.map_or(edge, |so_far| so_far.max(edge)));
        let Some(stamps) = segment.timestamps else { return };
        if self.ahead.take_if(|(echo, then)| *echo == stamps.value && at - *then < OUT_OF_ORDER).is_some() {
            self.unseen -= 1;
        }
        if self.newest.is_none_or(|newest| is_newer(stamps.value, newest)) {
            self.newest = Some(stamps.value);
        }
    }

    /// Whether the sender of data up to `end` had an acknowledgement that is not in the capture: it
    /// echoes the time of one that was not seen, or goes beyond all that was granted.
    pub(super) fn sent(&mut self, at: u64, segment: &Segment, end: u64, mss: u64) -> bool {
        let echo = segment.timestamps.map(|stamps| stamps.echo);
        let ahead = echo.zip(self.newest).filter(|&(echo, newest)| is_newer(echo, newest));
        let is_beyond = self.edge.is_some_and(|edge| end > edge.saturating_add(mss));
        if ahead.is_none() && !is_beyond {
            return false;
        }
        self.unseen += 1;
        self.ahead = ahead.filter(|_| !is_beyond).map(|(echo, _)| (echo, at));
        true
    }

    pub(super) fn waited(&mut self) {
        self.waits += 1;
    }

    pub(super) const fn has_acks(&self) -> bool {
        self.acks > 0
    }

    pub(super) const fn has_pure(&self) -> bool {
        self.pure > 0
    }

    /// Whether there were waits that only acknowledgements explain, of which no end sent one without data.
    /// Where all carry data, those are missing only if one was echoed that was not seen.
    pub(super) const fn lacks_pure(&self, has_pure: bool) -> bool {
        !has_pure && self.waits >= LEAST_WAITS && (self.newest.is_none() || self.unseen > 0)
    }

    /// Whether so many of these segments prove it that causes may be hidden.
    pub(super) const fn is_patchy(&self, segments: u64) -> bool {
        self.unseen > 0 && self.unseen * ONE_IN >= segments
    }
}

const fn is_newer(value: u32, than: u32) -> bool {
    value.wrapping_sub(than) as i32 > 0
}
