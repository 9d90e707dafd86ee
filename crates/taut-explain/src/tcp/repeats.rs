//! Packets that a capture has twice, as one taken on all interfaces, or on both sides of a bridge.

use taut_event::{Event, Segment, SegmentFlags};

/// The copies come so soon after each other, in nanoseconds.
const SOON: u64 = 1_000_000;
/// Where the header has no identification, a quick repetition could be meant.
const VERY_SOON: u64 = 200_000;
const KEPT: usize = 8;
/// So many marks of packets are kept to know a copy that comes later, as behind a queue of a router
/// whose interfaces are all captured.
const MARKS: usize = 512;

/// What two copies have in common, as one number: equal for equal packets, and else hardly ever. Never 0.
fn mark(event: &Event, segment: &Segment, identification: Option<u16>) -> u64 {
    let stamps = segment.timestamps.unwrap_or_default();
    // Positions are hardly ever so high.
    let (start, end) =
        (event.bytes.start ^ u64::from(stamps.value) << 32, event.bytes.end ^ u64::from(stamps.echo) << 32);
    let rest = u64::from(segment.window) << 32
        | u64::from(identification.unwrap_or(0)) << 16
        | u64::from(segment.timestamps.is_some()) << 9
        | u64::from(segment.flags.0) << 1
        | event.direction.index() as u64;
    let mix = |sum: u64, word: u64| (sum.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let sum = [start, end, segment.ack, rest].into_iter().fold(0, mix);
    (sum ^ sum >> 32).max(1)
}

/// The newest packets of a connection.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// Their marks, 0 where there was none: the lower halves, which are looked through at one go, and the upper ones.
    lower: [u32; KEPT],
    upper: [u32; KEPT],
    /// When they passed.
    passed: [u64; KEPT],
    next: u8,
    marks: Marks,
    /// By direction.
    identification: [Option<u16>; 2],
    identifications_vary: [bool; 2],
    pub(super) dropped: u64,
}

impl Repeats {
    /// Whether the same packet has been seen: just before, or, if it says nothing new, at any time.
    /// What a host sends again has another identification, and a newer timestamp.
    pub(super) fn is_copy(&mut self, event: &Event, segment: &Segment, says_nothing_new: bool) -> bool {
        let identification = segment.identification.filter(|&number| number != 0);
        // No host repeats an opening as soon (RFC 6298, section 2.1), whatever its header has.
        let opens = segment.flags.has(SegmentFlags::SYN);
        if identification.is_none() && event.bytes.is_empty() && !opens {
            return false;
        }
        let (at, mark) = (event.at.as_nanos(), mark(event, segment, identification));
        let limit = if identification.is_some() || opens { SOON } else { VERY_SOON };
        let has_stamps = segment.timestamps.is_some();
        if self.is_recent(mark, at, limit)
            || identification.is_some_and(|number| self.is_marked(event, number, mark, has_stamps, says_nothing_new))
        {
            self.dropped += 1;
            return true;
        }
        let next = usize::from(self.next) % KEPT;
        (self.lower[next], self.upper[next], self.passed[next]) = (mark as u32, (mark >> 32) as u32, at);
        self.next = (next + 1) as u8;
        false
    }

    /// Whether one of the newest packets has this mark, and passed so shortly before.
    #[inline(always)]
    fn is_recent(&self, mark: u64, at: u64, limit: u64) -> bool {
        // No early end: all are compared at once.
        let is_likely = self.lower.iter().fold(false, |found, &lower| found | (lower == mark as u32));
        is_likely && self.has_passed(mark, at, limit)
    }

    #[cold]
    fn has_passed(&self, mark: u64, at: u64, limit: u64) -> bool {
        let marks =
            self.lower.iter().zip(&self.upper).map(|(&lower, &upper)| u64::from(upper) << 32 | u64::from(lower));
        marks.zip(self.passed).any(|(known, then)| known == mark && at.abs_diff(then) < limit)
    }

    fn is_marked(&mut self, event: &Event, number: u16, mark: u64, has_stamps: bool, says_nothing_new: bool) -> bool {
        let way = event.direction.index();
        let before = self.identification[way].replace(number);
        self.identifications_vary[way] |= before.is_some_and(|before| before != number);
        let mark = mark as u32;
        // A sender whose identification is always the same is known by its timestamps only.
        let is_told = self.identifications_vary[way] || has_stamps;
        if says_nothing_new && is_told && self.marks.contain(mark) {
            return true;
        }
        self.marks.add(mark);
        false
    }
}

/// The newest marks, of 24 bits each: most of what a connection takes are these. Two different packets are one
/// to it in one of 33,000 cases, and only packets that say nothing new are asked for.
#[derive(Debug, Default)]
struct Marks {
    high: Vec<u16>,
    low: Vec<u8>,
    /// The oldest one, once there are as many as are kept.
    oldest: u16,
}

impl Marks {
    const fn split(mark: u32) -> (u16, u8) {
        ((mark >> 16) as u16, (mark >> 8) as u8)
    }

    fn contain(&self, mark: u32) -> bool {
        let (high, low) = Self::split(mark);
        // Hardly ever the first part alone is there.
        self.high.contains(&high) && self.high.iter().zip(&self.low).any(|known| known == (&high, &low))
    }

    fn add(&mut self, mark: u32) {
        let (high, low) = Self::split(mark);
        if self.high.len() < MARKS {
            self.high.push(high);
            self.low.push(low);
        } else {
            let oldest = usize::from(self.oldest);
            (self.high[oldest], self.low[oldest]) = (high, low);
            self.oldest = (self.oldest + 1) % MARKS as u16;
        }
    }
}
