//! Which L2CAP PDU of one direction of a link is which at the other place.
//!
//! Bytes that stand once in both files, a few in a row where single ones stand more than once, are the same PDU. From
//! there on both ways the next PDU of one is the next of the other, as long as no file lacks one and they agree. Where
//! a sniffer has cipher text only lengths agree; then lengths in a row have to stand once in both files, and a
//! single one that disagrees rejects all that hangs on it.

use std::collections::HashMap;

use super::pdu::Pdu;
use crate::join::sightings::mix;

/// Shorter PDUs are often alike, and are no mark by themselves.
const LEAST_MARK: u32 = 12;
/// So many in a row are a mark where single ones are not.
const ROWS: [usize; 3] = [3, 8, 24];
/// Lengths of cipher text, in a row.
const SEALED_ROWS: [usize; 2] = [32, 128];
/// Of so many different lengths at least.
const LEAST_LENGTHS: usize = 4;

/// The PDUs of one direction that are the same.
#[derive(Debug, Default)]
pub(super) struct Aligned {
    /// Numbers in both files, in order.
    pub(super) pairs: Vec<[u32; 2]>,
    /// Of these some were told by their bytes.
    pub(super) by_bytes: u64,
}

fn may_be_same(one: &Pdu, other: &Pdu) -> bool {
    one.length == other.length && (one.hash == 0 || other.hash == 0 || one.hash == other.hash)
}

const fn has_bytes(one: &Pdu, other: &Pdu) -> bool {
    one.hash != 0 && one.hash == other.hash
}

/// `from_start`: both files have the direction's first PDU.
pub(super) fn align(one: &[Pdu], other: &[Pdu], from_start: bool) -> Aligned {
    if one.is_empty() || other.is_empty() {
        return Aligned::default();
    }
    let mut anchors = Vec::new();
    if from_start && !one[0].is_after_hole && !other[0].is_after_hole && may_be_same(&one[0], &other[0]) {
        anchors.push([0, 0]);
    }
    let bytes = |pdu: &Pdu| (pdu.hash != 0).then_some(pdu.hash);
    anchors.extend(rows(one, other, 1, |pdu| bytes(pdu).filter(|_| pdu.length >= LEAST_MARK)));
    for row in ROWS {
        anchors.extend(rows(one, other, row, bytes));
    }
    let has_sealed = |pdus: &[Pdu]| pdus.iter().any(|pdu| pdu.hash == 0);
    if has_sealed(one) || has_sealed(other) {
        for row in SEALED_ROWS {
            let is_various = |window: &[Pdu]| {
                let mut lengths: Vec<u32> = window.iter().map(|pdu| pdu.length).collect();
                lengths.sort_unstable();
                lengths.dedup();
                lengths.len() >= LEAST_LENGTHS
            };
            let of_lengths = rows(one, other, row, |pdu| Some(u64::from(pdu.length) + 1));
            anchors.extend(of_lengths.into_iter().filter(|[at, _]| is_various(&one[*at as usize..][..row])));
        }
    }
    in_order(&mut anchors);
    extend(one, other, &anchors)
}

/// Where so many marks in a row, without a hole between, stand once in both.
fn rows(one: &[Pdu], other: &[Pdu], row: usize, mark: impl Fn(&Pdu) -> Option<u64>) -> Vec<[u32; 2]> {
    /// Once, or more often.
    type Known = HashMap<u64, Option<u32>>;
    let known = |pdus: &[Pdu]| -> Known {
        let mut known = Known::new();
        if pdus.len() < row {
            return known;
        }
        for (number, window) in pdus.windows(row).enumerate() {
            if window[1..].iter().any(|pdu| pdu.is_after_hole) {
                continue;
            }
            let sum = window.iter().try_fold(row as u64, |sum, pdu| Some(mix(mix(sum, mark(pdu)?), pdu.length.into())));
            if let Some(sum) = sum {
                known.entry(sum).and_modify(|once| *once = None).or_insert(Some(number as u32));
            }
        }
        known
    };
    let (ours, theirs) = (known(one), known(other));
    let mut pairs: Vec<[u32; 2]> =
        ours.into_iter().filter_map(|(sum, number)| Some([number?, (*theirs.get(&sum)?)?])).collect();
    pairs.sort_unstable();
    pairs
}

/// The most of them that rise in both, as PDUs do not overtake each other.
fn in_order(anchors: &mut Vec<[u32; 2]>) {
    anchors.sort_unstable();
    anchors.dedup();
    // Of one PDU of the first file the pairs fall, so that at most one of them is taken.
    anchors.sort_by(|one, other| one[0].cmp(&other[0]).then(other[1].cmp(&one[1])));
    let (mut tails, mut before): (Vec<usize>, Vec<Option<usize>>) = (Vec::new(), vec![None; anchors.len()]);
    for (number, pair) in anchors.iter().enumerate() {
        let place = tails.partition_point(|&tail| anchors[tail][1] < pair[1]);
        before[number] = place.checked_sub(1).map(|place| tails[place]);
        match tails.get_mut(place) {
            Some(tail) => *tail = number,
            None => tails.push(number),
        }
    }
    let mut kept = Vec::with_capacity(tails.len());
    let mut next = tails.last().copied();
    while let Some(number) = next {
        kept.push(anchors[number]);
        next = before[number];
    }
    kept.reverse();
    *anchors = kept;
}

/// From each anchor on both ways, as far as both files have all and agree. Between two anchors what both say counts.
fn extend(one: &[Pdu], other: &[Pdu], anchors: &[[u32; 2]]) -> Aligned {
    let mut aligned = Aligned::default();
    let mut last: Option<[u32; 2]> = None;
    let mut take = |pair: [u32; 2]| {
        let [ours, theirs] = pair.map(|number| number as usize);
        if last.is_none_or(|last| pair[0] > last[0] && pair[1] > last[1]) && may_be_same(&one[ours], &other[theirs]) {
            aligned.by_bytes += u64::from(has_bytes(&one[ours], &other[theirs]));
            aligned.pairs.push(pair);
            last = Some(pair);
        }
    };
    for (number, &anchor) in anchors.iter().enumerate() {
        if number == 0 {
            backward(one, other, anchor, [0; 2]).into_iter().rev().for_each(&mut take);
        }
        take(anchor);
        let next = anchors.get(number + 1).copied();
        let end = next.unwrap_or([one.len() as u32, other.len() as u32]);
        let after = forward(one, other, anchor, end);
        let Some(next) = next else {
            after.into_iter().for_each(&mut take);
            break;
        };
        let before = backward(one, other, next, anchor.map(|number| number + 1));
        let is_even = next[0] - anchor[0] == next[1] - anchor[1];
        if is_even {
            // Both say the same, as far as they come.
            after.iter().copied().for_each(&mut take);
            before
                .iter()
                .rev()
                .filter(|pair| after.last().is_none_or(|last| pair[0] > last[0]))
                .copied()
                .for_each(&mut take);
        } else {
            // One of both lacks something between: only what one of them says and the other does not deny.
            let first = before.last().copied().unwrap_or(end);
            let last = after.last().copied().unwrap_or(anchor);
            let is_before = |pair: &[u32; 2]| pair[0] < first[0] && pair[1] < first[1];
            let is_behind = |pair: &[u32; 2]| pair[0] > last[0] && pair[1] > last[1];
            after.into_iter().filter(is_before).for_each(&mut take);
            before.into_iter().rev().filter(is_behind).for_each(&mut take);
        }
    }
    aligned
}

/// What follows an anchor up to `end`. Of cipher text nothing if one disagrees where neither file has a hole.
fn forward(one: &[Pdu], other: &[Pdu], anchor: [u32; 2], end: [u32; 2]) -> Vec<[u32; 2]> {
    let mut pairs = Vec::new();
    let mut has_bytes_throughout = true;
    for step in 1..(end[0] - anchor[0]).min(end[1] - anchor[1]) {
        let pair = [anchor[0] + step, anchor[1] + step];
        let (ours, theirs) = (&one[pair[0] as usize], &other[pair[1] as usize]);
        if ours.is_after_hole || theirs.is_after_hole {
            break;
        }
        if !may_be_same(ours, theirs) {
            if !has_bytes_throughout {
                pairs.retain(|pair: &[u32; 2]| has_bytes(&one[pair[0] as usize], &other[pair[1] as usize]));
            }
            break;
        }
        has_bytes_throughout &= has_bytes(ours, theirs);
        pairs.push(pair);
    }
    pairs
}

/// The same of what comes before it, down to `begin`, the nearest first.
fn backward(one: &[Pdu], other: &[Pdu], anchor: [u32; 2], begin: [u32; 2]) -> Vec<[u32; 2]> {
    let mut pairs = Vec::new();
    let mut has_bytes_throughout = true;
    for step in 1..=(anchor[0].saturating_sub(begin[0])).min(anchor[1].saturating_sub(begin[1])) {
        let later = [anchor[0] - step + 1, anchor[1] - step + 1];
        if one[later[0] as usize].is_after_hole || other[later[1] as usize].is_after_hole {
            break;
        }
        let pair = [anchor[0] - step, anchor[1] - step];
        let (ours, theirs) = (&one[pair[0] as usize], &other[pair[1] as usize]);
        if !may_be_same(ours, theirs) {
            if !has_bytes_throughout {
                pairs.retain(|pair: &[u32; 2]| has_bytes(&one[pair[0] as usize], &other[pair[1] as usize]));
            }
            break;
        }
        has_bytes_throughout &= has_bytes(ours, theirs);
        pairs.push(pair);
    }
    pairs
}
