//! Words that both the writer and the reader know.

use taut_event::{AckSentBy, Closed, Coverage, Direction, Kind, LocalKind, Release, Stamp, Timer};

/// The file begins with it; the version comes behind it.
pub(crate) const MARK: &str = "taut-events ";
/// The version that is written. The third one does not tell of the accept queue, of a socket's end and of the queues of
/// devices, the second one has no links of Bluetooth either, the first one nothing of it. None before the fifth tells
/// when a controller no longer has packets that the trace lacks, so behind a loss that is never known.
pub(super) const VERSION: &str = "5";
/// Those that are read.
pub(super) const READ: [&str; 5] = ["1", "2", "3", "4", VERSION];
/// No line is longer, in bytes.
pub(super) const LONGEST: u64 = 1 << 20;
/// Numbers of flows are below this: more are not open at once in a trace.
pub(super) const MOST_FLOWS: u32 = 1 << 16;
/// Threads whose programs are named.
pub(super) const MOST_NAMES: usize = 1 << 16;
/// No time and no position is larger.
pub(super) const LARGEST: u64 = i64::MAX as u64;

pub(super) const STAMPS: [(char, Stamp); 9] = [
    ('i', Stamp::Intended),
    ('b', Stamp::WriteBegin),
    ('e', Stamp::WriteEnd),
    ('s', Stamp::Scheduled),
    ('l', Stamp::Left),
    ('a', Stamp::Acknowledged),
    ('r', Stamp::Received),
    ('d', Stamp::Read),
    ('x', Stamp::Repeated),
];

pub(super) const RELEASES: [(&str, Release); 10] = [
    ("call", Release::Call),
    ("ack-delayed", Release::Acknowledgement(AckSentBy::DelayedAckTimer)),
    ("ack-arrival", Release::Acknowledgement(AckSentBy::Arrival)),
    ("ack-program", Release::Acknowledgement(AckSentBy::Program)),
    ("ack-not-seen", Release::Acknowledgement(AckSentBy::NotSeen)),
    ("timer-write", Release::Timer(Timer::Write)),
    ("timer-delayed-ack", Release::Timer(Timer::DelayedAck)),
    ("timer-pacing", Release::Timer(Timer::Pacing)),
    ("timer-other", Release::Timer(Timer::Other)),
    ("unknown", Release::Unknown),
];

pub(super) const CLOSINGS: [(&str, Closed); 5] = [
    ("over", Closed::Over),
    ("end-of-source", Closed::EndOfSource),
    ("ended", Closed::Ended),
    ("replaced", Closed::Replaced),
    ("evicted", Closed::Evicted),
];

pub(super) const LOCAL: [LocalKind; 6] = LocalKind::ALL;

/// The word of a value.
pub(super) fn word_of<W: Copy, T: PartialEq>(words: &[(W, T)], value: &T) -> Option<W> {
    words.iter().find(|(_, known)| known == value).map(|(word, _)| *word)
}

/// The value of a word.
pub(super) fn value_of<W: PartialEq, T: Copy>(words: &[(W, T)], word: W) -> Option<T> {
    words.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
}

pub(super) const fn arrow(direction: Direction) -> char {
    match direction {
        Direction::Forward => '>',
        Direction::Backward => '<',
    }
}

/// A bit for each kind, in the order of [`Kind::ALL`].
pub(super) fn bits(coverage: Coverage) -> u32 {
    Kind::ALL.iter().enumerate().filter(|(_, kind)| coverage.has(**kind)).map(|(index, _)| 1 << index).sum()
}

pub(super) fn coverage(bits: u32) -> Option<Coverage> {
    if bits >> Kind::ALL.len() != 0 {
        return None;
    }
    let kinds = Kind::ALL.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
    Some(kinds.fold(Coverage::NONE, |all, (_, kind)| all.and(Coverage::of(&[*kind]))))
}
