//! Packets that a capture has twice, as one taken on all interfaces, or on both sides of a bridge.

use taut_event::{Direction, Event, Segment, SegmentFlags, TimestampOption};
use taut_time::ByteRange;

/// The copies come so soon after each other, in nanoseconds.
const SOON: u64 = 1_000_000;
/// Where the header has no identification, a quick repetition could be meant.
const VERY_SOON: u64 = 200_000;
const KEPT: usize = 8;
/// So many marks of packets are kept to know a copy that comes later, as behind a queue of a router
/// whose interfaces are all captured.
const MARKS: usize = 512;

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
    marks: Vec<u32>,
    next_mark: usize,
    /// By direction.
    identification: [Option<u16>; 2],
    identifications_vary: [bool; 2],
    pub(super) dropped: u64,
}

impl Print {
    /// Equal for equal prints, and else hardly ever.
    fn mark(&self) -> u32 {
        let stamps = self.timestamps.map_or(0, |stamps| u64::from(stamps.value) << 32 | u64::from(stamps.echo));
        let rest = u64::from(self.window) << 32
            | u64::from(self.identification.unwrap_or(0)) << 16
            | u64::from(self.flags.0) << 1
            | self.direction.index() as u64;
        let mix = |sum: u64, word: u64| (sum.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let sum = [self.bytes.start, self.bytes.end, self.ack, stamps, rest].into_iter().fold(0, mix);
        (sum >> 32) as u32
    }
}

impl Repeats {
    /// Whether the same packet has been seen: just before, or, if it says nothing new, at any time.
    /// What a host sends again has another identification, and a newer timestamp.
    pub(super) fn is_copy(&mut self, event: &Event, segment: &Segment, says_nothing_new: bool) -> bool {
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
        if identification.is_some() && self.is_marked(&print, says_nothing_new) {
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

    fn is_marked(&mut self, print: &Print, says_nothing_new: bool) -> bool {
        let way = print.direction.index();
        let before = std::mem::replace(&mut self.identification[way], print.identification);
        self.identifications_vary[way] |= before.is_some() && before != print.identification;
        let mark = print.mark();
        // A sender whose identification is always the same is known by its timestamps only.
        let is_told = self.identifications_vary[way] || print.timestamps.is_some();
        if says_nothing_new && is_told && self.marks.contains(&mark) {
            return true;
        }
        if self.marks.len() < MARKS {
            self.marks.push(mark);
        } else {
            self.marks[self.next_mark] = mark;
            self.next_mark = (self.next_mark + 1) % MARKS;
        }
        false
    }
}
