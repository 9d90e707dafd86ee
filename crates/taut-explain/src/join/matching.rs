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
}

impl Matches {
    pub(super) fn between(reference: &Sightings, other: &Sightings) -> Result<Self, NotJoined> {
        let known: Vec<Option<u32>> = other.ends.iter().map(|ends| reference.flow_between(ends)).collect();
        let has_common = known.iter().any(Option::is_some);
        let by_ends = |pair: Option<u32>, seen: &Seen| pair.map(|pair| (pair + 1) << 1 | u32::from(seen.is_from_first));
        // Of other ends, sequence and acknowledgement numbers tell as well: both are chosen at random.
        let place = |seen: &Seen, pair: Option<u32>| if has_common { by_ends(pair, seen) } else { Some(0) };
        let ours = keys(reference, |seen| place(seen, Some(seen.flow)));
        let theirs = keys(other, |seen| place(seen, known[seen.flow as usize]));
        let is_doubled = [reference.is_doubled(), other.is_doubled()];
        let (mut all, mut ambiguous) = (Vec::new(), 0);
        let mut rest = &theirs[..];
        for group in ours.chunk_by(|one, next| one.0 == next.0) {
            let key = group[0].0;
            rest = &rest[rest.partition_point(|&(other, _)| other < key)..];
            let same = &rest[..rest.partition_point(|&(other, _)| other == key)];
            if same.is_empty() {
                continue;
            }
            match (only(reference, group, is_doubled[0]), only(other, same, is_doubled[1])) {
                (Some(reference), Some(other)) => all.push(Match { reference, other }),
                _ => ambiguous += group.len() as u64,
            }
        }
        all.sort_unstable_by_key(|found| found.reference);
        match (all.is_empty(), has_common) {
            (false, _) => Ok(Self { all, ambiguous, is_translated: !has_common, is_doubled }),
            (true, true) => Err(NotJoined::OtherPackets),
            (true, false) => Err(NotJoined::NothingInCommon),
        }
    }
}

/// Marks with the number of their sighting, in order; of packets that may be in the other file.
fn keys(file: &Sightings, place: impl Fn(&Seen) -> Option<u32>) -> Vec<(u64, u32)> {
    let key = |(number, seen): (usize, &Seen)| Some((mix(seen.mark, place(seen)?.into()), number as u32));
    let mut keys: Vec<(u64, u32)> = file.seen.iter().enumerate().filter_map(key).collect();
    keys.sort_unstable();
    keys
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
    (other.has_identification || is_doubled) && other.at.abs_diff(one.at) < SOON
}
