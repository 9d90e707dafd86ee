//! Which packet of one file is which of the other.

use super::sightings::{SOON, Seen, Sightings, mix};
use super::why::NotJoined;

/// A packet that is in both files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Match {
    /// Its number among the sightings of the reference.
    pub(super) reference: u32,
    /// Its number among those of the other file.
    pub(super) other: u32,
}

/// The packets that are in both files, in the order of the reference.
#[derive(Debug)]
pub(super) struct Matches {
    pub(super) all: Vec<Match>,
    /// Packets that are in both, of which nothing tells which is which.
    pub(super) ambiguous: u64,
    /// The addresses are not the same at both places.
    pub(super) is_translated: bool,
    /// Reference and other file have most packets twice.
    pub(super) is_doubled: [bool; 2],
    /// Datagrams are told by few bytes.
    pub(super) is_short: bool,
}

/// Shorter payloads of translated datagrams may be those of another flow; a question of DNS has more.
const LEAST_TELLING: u32 = 12;

impl Matches {
    pub(super) fn between(reference: &Sightings, other: &Sightings) -> Result<Self, NotJoined> {
        let known: Vec<Option<u32>> = other.ends.iter().map(|ends| reference.flow_between(ends)).collect();
        let has_common = known.iter().any(Option::is_some);
        let found = Self::by_ends(reference, other, &known);
        // Of other ends, sequence and acknowledgement numbers tell as well: both are chosen at random. Some flows have
        // the same ends everywhere (DHCP), so those that are common tell nothing of the others.
        let found = if found.all.is_empty() { Self::by_marks(reference, other) } else { found };
        match (found.all.is_empty(), has_common) {
            (false, _) => Ok(found),
            (true, true) => Err(NotJoined::OtherPackets),
            (true, false) => Err(NotJoined::NothingInCommon),
        }
    }

    fn by_ends(reference: &Sightings, other: &Sightings, known: &[Option<u32>]) -> Self {
        let place = |pair: u32, seen: &Seen| (pair + 1) << 1 | u32::from(seen.is_from_first);
        let is_short = reference.is_short || other.is_short;
        let ours = keys(reference, is_short, |seen| Some(place(seen.flow, seen)));
        let theirs = keys(other, is_short, |seen| Some(place(known[seen.flow as usize]?, seen)));
        Self { is_translated: false, ..Self::of(reference, other, &ours, &theirs) }
    }

    fn by_marks(reference: &Sightings, other: &Sightings) -> Self {
        let is_short = reference.is_short || other.is_short;
        let [ours, theirs] = [reference, other].map(|file| keys(file, is_short, |seen| translated_place(file, seen)));
        Self { is_translated: true, ..Self::of(reference, other, &ours, &theirs) }
    }

    fn of(reference: &Sightings, other: &Sightings, ours: &[(u64, u32)], theirs: &[(u64, u32)]) -> Self {
        let is_doubled = [reference.is_doubled(), other.is_doubled()];
        let (mut all, mut ambiguous) = (Vec::new(), 0);
        let mut rest = theirs;
        for group in ours.chunk_by(|one, next| one.0 == next.0) {
            let key = group[0].0;
            rest = &rest[rest.partition_point(|&(other, _)| other < key)..];
            let same = &rest[..rest.partition_point(|&(other, _)| other == key)];
            if same.is_empty() {
                continue;
            }
            match (only(reference, group, is_doubled[0]), only(other, same, is_doubled[1])) {
                (Some(reference), Some(other)) => all.push(Match { reference, other }),
                // The file with more of them has some that the other one lacks.
                _ => ambiguous += group.len().min(same.len()) as u64,
            }
        }
        all.sort_unstable_by_key(|found| found.reference);
        Self { all, ambiguous, is_translated: false, is_doubled, is_short: reference.is_short || other.is_short }
    }
}

/// Marks with the number of their sighting, in order; of packets that may be in the other file.
fn keys(file: &Sightings, is_short: bool, place: impl Fn(&Seen) -> Option<u32>) -> Vec<(u64, u32)> {
    let key = |(number, seen): (usize, &Seen)| Some((key(seen, is_short, place(seen)?.into()), number as u32));
    let mut keys: Vec<(u64, u32)> = file.seen.iter().enumerate().filter_map(key).collect();
    keys.sort_unstable();
    keys
}

/// What of the place of a packet stays the same where addresses are translated: of datagrams, which may come back as
/// they went, whether it comes from the end with the lower port.
pub(super) fn translated_place(file: &Sightings, seen: &Seen) -> Option<u32> {
    if !seen.is_datagram {
        return Some(0);
    }
    let (first, second, _) = file.ends[seen.flow as usize];
    let is_from_lower = (first.port < second.port) == seen.is_from_first;
    (seen.length >= LEAST_TELLING).then_some(1 + u32::from(is_from_lower))
}

/// What a packet has alike in both files, with the place of its flow. A datagram also keeps its length.
pub(super) fn key(seen: &Seen, is_short: bool, place: u64) -> u64 {
    let length = if seen.is_datagram { u64::from(seen.length) + 1 } else { 0 };
    mix(seen.mark_by(is_short), place ^ length << 40)
}

/// The packet that has this mark, if there is one only. Copies of one packet are one, and count as the first of
/// them; but without an identification they may as well be a repetition, unless the file has everything twice.
fn only(file: &Sightings, group: &[(u64, u32)], is_doubled: bool) -> Option<u32> {
    let first = group[0].1;
    let is_copy = |number: u32| is_copy(&file.seen[first as usize], &file.seen[number as usize], is_doubled);
    group[1..].iter().all(|&(_, number)| is_copy(number)).then_some(first)
}

/// Of two segments with the same mark.
pub(super) fn is_copy(one: &Seen, other: &Seen, is_doubled: bool) -> bool {
    (other.identification != 0 || is_doubled) && other.at.abs_diff(one.at) < SOON
}
