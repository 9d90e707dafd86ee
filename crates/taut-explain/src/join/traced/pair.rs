//! Which packet of a capture is which event of a trace.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::super::fit::Point;
use super::super::matching::Match;
use super::super::sightings::Sightings;
use super::super::stretches::Placed;
use super::log::{Mark, Marked};

/// What a packet is told by: its connection, whether it comes from the first end, whether by its acknowledgement, and
/// the number.
type Key = (u32, bool, bool, u32);

/// The packets that left the traced end or came to it as the trace has it, in the order of the capture. `ahead_ns` is
/// added to times of the trace.
///
/// Sequence numbers tell the packet: of several with the same number the first one counts. If that one was lost, the
/// limit that it sets to the clocks is wider than it could be, and never a wrong one.
pub(super) fn pair(sightings: &Sightings, marks: &[Mark], ahead_ns: i64) -> Vec<Placed> {
    let flows: HashSet<u32> = marks.iter().map(|mark| mark.flow).collect();
    let mut packets: HashMap<Key, u32> = HashMap::new();
    for (seen, number) in sightings.seen.iter().zip(sightings.numbers()) {
        if seen.is_datagram || !flows.contains(&seen.flow) {
            continue;
        }
        if seen.length > 0 {
            packets.entry((seen.flow, seen.is_from_first, false, seen.sequence)).or_insert(number);
        }
        if seen.acknowledges {
            packets.entry((seen.flow, seen.is_from_first, true, seen.acknowledgement)).or_insert(number);
        }
    }
    let mut placed = Vec::new();
    // An end that reports the same bytes twice saw them once.
    let mut first = HashMap::new();
    for (mark, number) in marks.iter().zip(0_u32..) {
        let Some((key, goes_there)) = key(mark) else { continue };
        let Some(&packet) = packets.get(&key) else { continue };
        let Entry::Vacant(entry) = first.entry((key, goes_there)) else { continue };
        entry.insert(());
        let at = sightings.seen[packet as usize].at;
        let ahead = (mark.at as i64).wrapping_add(ahead_ns).wrapping_sub(at as i64);
        let found = Match { reference: packet, other: number };
        placed.push(Placed { found, point: Point { at, ahead, goes_there } });
    }
    placed.sort_by_key(|placed| placed.point.at);
    placed
}

/// What the packet of an event has, and whether it goes to the traced end.
fn key(mark: &Mark) -> Option<(Key, bool)> {
    let Mark { flow, is_first, .. } = *mark;
    Some(match mark.what {
        Marked::Left => ((flow, is_first, false, mark.from as u32), false),
        Marked::Received => ((flow, !is_first, false, mark.from as u32), true),
        Marked::Acknowledged => ((flow, !is_first, true, mark.to as u32), true),
        _ => return None,
    })
}
