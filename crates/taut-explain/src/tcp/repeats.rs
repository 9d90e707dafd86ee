//! Packets that a capture has twice, as one taken on all interfaces, or on both sides of a bridge.

use taut_event::{Direction, Event, Segment, SegmentFlags, TimestampOption};
use taut_time::ByteRange;

/// The copies come so soon after each other, in nanoseconds.
const SOON: u64 = 1_000_000;
/// Where the header has no identification, a quick repetition could be meant.
const VERY_SOON: u64 = 200_000;
const KEPT: usize = 8;

/// What two copies have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Print {
    bytes: ByteRange,
    ack: u64,
    window: u32,
    timestamps: Option<TimestampOption>,
    identification: Option<u16>,
    direction: Direction,
    flags: SegmentFlags,
}

/// The newest packets of a connection.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    recent: Vec<(u64, Print)>,
    next: usize,
    pub(super) dropped: u64,
}

impl Repeats {
    /// Whether the same packet has just been seen.
    pub(super) fn is_copy(&mut self, event: &Event, segment: &Segment) -> bool {
        let identification = segment.identification.filter(|&number| number != 0);
        if identification.is_none() && event.bytes.is_empty() {
            return false;
        }
        let at = event.at.as_nanos();
        let print = Print {
            bytes: event.bytes,
            ack: segment.ack,
            window: segment.window,
            timestamps: segment.timestamps,
            identification,
            direction: event.direction,
            flags: segment.flags,
        };
        let limit = if identification.is_some() { SOON } else { VERY_SOON };
        if self.recent.iter().any(|(then, known)| at.abs_diff(*then) < limit && *known == print) {
            self.dropped += 1;
            return true;
        }
        if self.recent.len() < KEPT {
            self.recent.push((at, print));
        } else {
            self.recent[self.next] = (at, print);
            self.next = (self.next + 1) % KEPT;
        }
        false
    }
}
