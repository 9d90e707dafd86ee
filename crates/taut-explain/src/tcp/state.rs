//! What the rules speak of: a segment, what its sender knew, and what came of it.

use std::num::NonZeroU64;

use taut_event::Holder;

use super::stretch::Gated;
use crate::engine::Episode;

/// The end of a pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restart {
    pub(super) at: u64,
    /// Most bytes in flight between this pause and the one before; once the congestion window was seen to be small
    /// after it, those that it had been large enough for.
    pub(super) flight_before: u32,
    pub(super) was_small: bool,
}

/// Who held the data in a gap, as far as the gap itself tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Class {
    Hold(Holder),
    Gated(Gated),
    Nagle,
    /// Too short to be a wait: goes with the gap before.
    Burst,
}

/// A gap at whose end a segment left that Nagle's algorithm had held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) part: Episode,
    /// The first write that it was made of came after one in so many parts of it; none where some was there already
    /// when it began.
    pub(super) first_in: Option<u64>,
}

/// The receive window left no room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shut {
    pub(super) by: Holder,
    /// How large it was, in bytes, if the receiver's buffer is what held.
    pub(super) window: u32,
    /// When the sender had room again, if that was before it had more to send.
    pub(super) opened: Option<u64>,
}

/// The repair of losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// It lasts until this is acknowledged.
    pub(super) until: NonZeroU64,
    /// The end of the last segment that was sent again.
    pub(super) repaired: u64,
    /// 0: not yet.
    pub(super) ended: u64,
}

impl Recovery {
    pub(super) const fn is_over(&self) -> bool {
        self.ended != 0
    }
}

/// What a sender knew at the time of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// From an ACK's passing to that of what it released.
    pub(super) lag: u64,
    /// How far that may be off.
    pub(super) slack: u64,
    /// Number after the last ACK that it knew.
    pub(super) end: u64,
    pub(super) una: u64,
    pub(super) edge: u64,
    /// The window of the last ACK that it knew, where its scale is not known.
    pub(super) unscaled: Option<u32>,
    /// Number of the ACK that let it send this segment, if one did just then (`Half::release`).
    pub(super) release: Option<u64>,
    /// By its sender's own clock it left with the one before: the path took them apart.
    pub(super) left_with_last: bool,
}

/// What the other direction has to do with a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peer {
    /// When the peer last sent data, if this sender has not sent any since.
    pub(super) asked_at: Option<u64>,
    /// Some of the peer's data had not been acknowledged.
    pub(super) is_owed: bool,
}

/// A segment with data, in the numbers of the rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at: u64,
    pub(super) place: u64,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Sent {
    pub(super) const fn len(&self) -> u64 {
        self.end - self.start
    }
}
