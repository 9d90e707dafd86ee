//! Packets that a capture has twice, as one taken on all interfaces, or on both sides of a bridge.

use taut_event::{Event, Segment};

/// The copies come so soon after each other, in nanoseconds.
const SOON: u64 = 1_000_000;
/// Where the header has no identification, a quick repetition could be meant.
const VERY_SOON: u64 = 200_000;
const KEPT: usize = 8;
/// So many marks of packets are kept to know a copy that comes later, as behind a queue of a router
/// whose interfaces are all captured.
const MARKS: usize = 512;

/// What two copies have in common, as one number: equal for equal packets, and else hardly ever.
fn mark(event: &Event, segment: &Segment, identification: Option<u16>) -> u64 {
    let stamps = segment.timestamps.map_or(0, |stamps| u64::from(stamps.value) << 32 | u64::from(stamps.echo));
    let rest = u64::from(segment.window) << 32
        | u64::from(identification.unwrap_or(0)) << 16
        | u64::from(segment.timestamps.is_some()) << 9
        | u64::from(segment.flags.0) << 1
        | event.direction.index() as u64;
    let mix = |sum: u64, word: u64| (sum.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let sum = [event.bytes.start, event.bytes.end, segment.ack, stamps, rest].into_iter().fold(0, mix);
    sum ^ sum >> 32
}

/// The newest packets of a connection.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// When they passed, and their marks.
    recent: [Option<(u64, u64)>; KEPT],
    next: usize,
    marks: Vec<u32>,
    next_mark: usize,
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
        if identification.is_none() && event.bytes.is_empty() {
            return false;
        }
        let (at, mark) = (event.at.as_nanos(), mark(event, segment, identification));
        let limit = if identification.is_some() { SOON } else { VERY_SOON };
        let is_recent = |&(then, known): &(u64, u64)| known == mark && at.abs_diff(then) < limit;
        let has_stamps = segment.timestamps.is_some();
        if self.recent.iter().flatten().any(is_recent)
            || identification.is_some_and(|number| self.is_marked(event, number, mark, has_stamps, says_nothing_new))
        {
            self.dropped += 1;
            return true;
        }
        self.recent[self.next] = Some((at, mark));
        self.next = (self.next + 1) % KEPT;
        false
    }

    fn is_marked(&mut self, event: &Event, number: u16, mark: u64, has_stamps: bool, says_nothing_new: bool) -> bool {
        let way = event.direction.index();
        let before = self.identification[way].replace(number);
        self.identifications_vary[way] |= before.is_some_and(|before| before != number);
        let mark = mark as u32;
        // A sender whose identification is always the same is known by its timestamps only.
        let is_told = self.identifications_vary[way] || has_stamps;
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
