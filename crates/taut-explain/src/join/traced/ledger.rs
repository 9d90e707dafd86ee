//! Each nanosecond of a direction to one holder, by the stretches of a capture and those of a trace.

use taut_event::Holder;

use super::rule::{Told, holder, is_peers, traced};
use crate::engine::Picture;

/// A time in which one source names one holder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stretch {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) holder: Holder,
}

/// A time in which nothing that any source says changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Part {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) holder: Holder,
    pub(super) told: Told,
    pub(super) captured: Option<Holder>,
    pub(super) traced: Option<Holder>,
}

/// The stretches of a picture whose times count from `start`, each time moved by `map`, which never turns two around.
pub(super) fn stretches(picture: &Picture, start: u64, map: &dyn Fn(u64) -> u64) -> Vec<Stretch> {
    let stretch = |span: &crate::engine::Span| {
        let from = start.saturating_add(span.begin_ns);
        Stretch { from: map(from), to: map(from.saturating_add(span.held_ns)), holder: span.holder }
    };
    picture.spans.iter().map(stretch).filter(|stretch| stretch.from < stretch.to).collect()
}

/// From the first of what any of them has to the last: parts next to each other, without a gap. `round_trip_ns` is the
/// least one of the path, if that is known.
pub(super) fn merge(
    captured: &[Stretch],
    sender: &[Stretch],
    receiver: &[Stretch],
    round_trip_ns: Option<u64>,
) -> Vec<Part> {
    let sources = [captured, sender, receiver];
    // Where what is out may have been acknowledged.
    let out_for = |stretch: &Stretch| {
        let at = stretch.from.checked_add(round_trip_ns?)?;
        (stretch.holder == Holder::Delivery && at < stretch.to).then_some(at)
    };
    let ends = sources.iter().flat_map(|all| all.iter()).flat_map(|one| [one.from, one.to]);
    let mut edges: Vec<u64> = ends.chain(sender.iter().filter_map(out_for)).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut next = [0; 3];
    let part = |pair: &[u64]| {
        let (from, to) = (pair[0], pair[1]);
        let mut said = [None; 3];
        for ((all, next), said) in sources.iter().zip(&mut next).zip(&mut said) {
            while all.get(*next).is_some_and(|stretch| stretch.to <= from) {
                *next += 1;
            }
            *said = all.get(*next).filter(|stretch| stretch.from <= from);
        }
        let [captured, sender_had, receiver] = said;
        let [captured, sender, receiver] = [captured, sender_had, receiver].map(|said| said.map(|one| one.holder));
        let is_peers = sender_had.zip(round_trip_ns).is_some_and(|(stretch, round_trip_ns)| {
            is_peers(captured, stretch.holder, from - stretch.from, round_trip_ns)
        });
        let (holder, told) = holder(captured, sender.filter(|_| !is_peers), receiver);
        Part { from, to, holder, told, captured, traced: traced(sender, receiver) }
    };
    edges.windows(2).map(part).collect()
}

/// From the first of these stretches, in order, to the last.
pub(super) fn extent(all: &[Stretch]) -> Option<(u64, u64)> {
    Some((all.first()?.from, all.last()?.to))
}

pub(super) fn overlap(one: (u64, u64), other: (u64, u64)) -> u64 {
    one.1.min(other.1).saturating_sub(one.0.max(other.0))
}

/// Behind all that a capture and the sender's trace have, a receiver that nothing waits at has no time of this
/// direction: only the other one may still be open.
pub(super) fn without_idle_end(mut parts: Vec<Part>, captured: &[Stretch], sender: &[Stretch]) -> Vec<Part> {
    let end = [captured, sender].into_iter().flatten().map(|stretch| stretch.to).max().unwrap_or(0);
    while parts.pop_if(|part| part.from >= end && part.told == Told::Nobody).is_some() {}
    parts
}

/// Parts next to each other with one holder, as one.
pub(super) fn episodes(parts: &[Part]) -> Vec<Stretch> {
    let same = |one: &Part, next: &Part| one.holder == next.holder;
    let runs = parts.chunk_by(same);
    runs.map(|run| Stretch { from: run[0].from, to: run[run.len() - 1].to, holder: run[0].holder }).collect()
}
