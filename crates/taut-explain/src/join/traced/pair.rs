//! Which packet of a capture is which event of a trace, and what that tells of their clocks.
//!
//! A capture may begin late and may lack packets, so a number that comes again later is no proof: what is taken as a
//! limit to the clocks has to hold even so.
//!
//! - A segment that left the traced end passes the capture later, and so does each repetition of it.
//! - What the traced end acknowledged it had received before, whichever of its packets says so first.
//! - Data that nobody had sent on before passed the capture before the traced end received it.
//! - An acknowledgement passed the capture before it came to the traced end if it is the first one with its number.
//!   That is sure where its sender numbers its packets and none is missing between this one and the one before.
//!   Elsewhere it is likely of packets that only acknowledge: data would not be the first to say so.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::super::fit::Point;
use super::super::lane::near;
use super::super::matching::Match;
use super::super::sightings::{Seen, Sightings};
use super::super::stretches::Placed;
use super::log::{Mark, Marked};

/// Packets are numbered in a row if this share of them is, in percent.
const IN_A_ROW: u64 = 50;
/// Each network carries a packet of so many bytes (RFC 879), so that one with less is a single one.
const SMALL: u32 = 536;

/// What is sure and what is likely, each in the order of the capture.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// Events whose packet is known.
    pub(super) events: Vec<Match>,
    pub(super) sure: Vec<Placed>,
    pub(super) likely: Vec<Placed>,
    /// Connections of which both have segments.
    pub(super) connections: u64,
}

/// One direction of one connection of the capture: the connection's ends, which one it is of those with these ends,
/// and whether the first end sends.
type Lane = (u32, u32, bool);
/// A number of bytes counted on beyond 2^32, and whether it is of an acknowledgement.
type Place = (Lane, bool, i64);
/// The same as both files have it in their headers: the connection's ends and whether the first end sent the data.
type Key = (u32, bool, bool, u32);

#[derive(Clone, Copy, Debug)]
struct Known {
    packet: u32,
    says: Says,
}

/// What a packet's number is worth.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Says {
    /// It is the packet, and a limit to the clocks.
    Sure,
    Likely,
    /// It is the first one of its sender, and no limit: another one may have been before it.
    First,
    Nothing,
}

/// The packets of the capture by their numbers, the first one of each.
#[derive(Debug, Default)]
struct Packets {
    known: HashMap<Place, Known>,
    /// Where a number of the headers stands; nothing if at several places.
    places: HashMap<Key, Option<Place>>,
    /// How far each direction was acknowledged, in order, and by which packet.
    told: HashMap<Lane, Vec<(i64, u32)>>,
}

/// What was seen last of one end.
#[derive(Clone, Copy, Debug)]
struct Last {
    identification: u16,
    acknowledgement: Option<i64>,
}

impl Packets {
    fn of(sightings: &Sightings, flows: &HashSet<u32>) -> Self {
        let is_numbered = numbered(sightings);
        let mut packets = Self::default();
        let mut epochs: HashMap<u32, (u32, Option<u32>)> = HashMap::new();
        let mut highest: HashMap<Lane, i64> = HashMap::new();
        let mut sent_to: HashMap<Lane, i64> = HashMap::new();
        let mut last: HashMap<Lane, Last> = HashMap::new();
        for (seen, number) in sightings.seen.iter().zip(sightings.numbers()) {
            if seen.is_datagram || !flows.contains(&seen.flow) {
                continue;
            }
            let (epoch, opened_by) = epochs.entry(seen.flow).or_default();
            if is_opening(seen) && *opened_by != Some(seen.sequence) {
                *epoch += 1;
                *opened_by = Some(seen.sequence);
            }
            let own: Lane = (seen.flow, *epoch, seen.is_from_first);
            let peer: Lane = (seen.flow, *epoch, !seen.is_from_first);
            let from = near(highest.get(&own).copied(), seen.sequence);
            let to = from + i64::from(seen.length);
            highest.entry(own).and_modify(|highest| *highest = (*highest).max(to)).or_insert(to);
            if seen.length > 0 {
                let sent_to = sent_to.entry(own).or_insert(from);
                let says = if from >= *sent_to { Says::Sure } else { Says::First };
                packets.add((own, false, from), number, says);
                *sent_to = (*sent_to).max(to);
            }
            let before = last.get(&own).copied();
            if before.is_some_and(|last| last.identification == seen.identification && seen.identification != 0) {
                continue;
            }
            let mut said = before.and_then(|before| before.acknowledgement);
            if seen.acknowledges {
                let to = near(highest.get(&peer).copied(), seen.acknowledgement);
                highest.entry(peer).or_insert(to);
                let is_more = said.is_some_and(|said| said < to);
                let is_next = before.is_some_and(|last| last.identification.wrapping_add(1) == seen.identification);
                let is_in_a_row = is_numbered.contains(&(seen.flow, seen.is_from_first));
                let says = match (is_in_a_row, seen.length) {
                    (true, _) if is_more && is_next => Says::Sure,
                    (false, 0) if is_more => Says::Likely,
                    (_, 0) if said.is_none() => Says::First,
                    _ => Says::Nothing,
                };
                packets.add((peer, true, to), number, says);
                if said.is_none_or(|said| said < to) {
                    packets.told.entry(peer).or_default().push((to, number));
                    said = Some(to);
                }
            }
            last.insert(own, Last { identification: seen.identification, acknowledgement: said });
        }
        packets
    }

    fn add(&mut self, place: Place, packet: u32, says: Says) {
        let Entry::Vacant(entry) = self.known.entry(place) else { return };
        entry.insert(Known { packet, says });
        let ((flow, _, is_from_first), acknowledges, number) = place;
        let places = self.places.entry((flow, is_from_first, acknowledges, number as u32));
        places.and_modify(|other| *other = None).or_insert(Some(place));
    }

    /// The first packet that acknowledges all up to a number.
    fn acknowledging(&self, lane: Lane, to: i64) -> Option<u32> {
        let told = self.told.get(&lane)?;
        told.get(told.partition_point(|told| told.0 < to)).map(|told| told.1)
    }
}

/// A client's first segment; only it acknowledges nothing.
const fn is_opening(seen: &Seen) -> bool {
    !seen.acknowledges && seen.length > 0
}

/// The directions whose sender numbers its packets one after another, as Linux does for each connection.
fn numbered(sightings: &Sightings) -> HashSet<(u32, bool)> {
    let mut last: HashMap<(u32, bool), (u16, u32)> = HashMap::new();
    let mut counts: HashMap<(u32, bool), [u64; 2]> = HashMap::new();
    for seen in sightings.seen.iter().filter(|seen| !seen.is_datagram && seen.identification != 0) {
        let lane = (seen.flow, seen.is_from_first);
        let Some((before, length)) = last.insert(lane, (seen.identification, seen.length)) else { continue };
        let step = seen.identification.wrapping_sub(before);
        let count = counts.entry(lane).or_default();
        // One that is cut into several has a number for each.
        count[0] += u64::from((1..=length.div_ceil(SMALL).max(1)).contains(&u32::from(step)));
        count[1] += u64::from(step != 0);
    }
    counts
        .into_iter()
        .filter(|(_, [steps, all])| *all > 0 && 100 * steps >= IN_A_ROW * all)
        .map(|(lane, _)| lane)
        .collect()
}

/// What the packet of an event has.
#[derive(Clone, Copy, Debug)]
struct Sought {
    /// The connection by the trace, and whether the first end sent the data.
    lane: (u32, bool),
    flow: u32,
    acknowledges: bool,
    number: u64,
    goes_there: bool,
}

impl Sought {
    fn of(mark: &Mark) -> Option<Self> {
        let Mark { flow, connection, is_first, .. } = *mark;
        let of = |is_own: bool, acknowledges, number, goes_there| Self {
            lane: (connection, is_first == is_own),
            flow,
            acknowledges,
            number,
            goes_there,
        };
        Some(match mark.what {
            Marked::Left => of(true, false, mark.from, false),
            Marked::Received => of(false, false, mark.from, true),
            Marked::Acknowledged => of(true, true, mark.to, true),
            _ => return None,
        })
    }

    /// The acknowledgement that is sent for what was received.
    fn answer(mark: &Mark) -> Option<Self> {
        let sought = Self::of(mark).filter(|_| mark.what == Marked::Received)?;
        Some(Self { acknowledges: true, number: mark.to, goes_there: false, ..sought })
    }

    const fn key(&self) -> Key {
        (self.flow, self.lane.1, self.acknowledges, self.number as u32)
    }
}

/// Which direction of the capture each one of the trace is, and how much further the trace counts there: what most
/// of the numbers say that stand once in each. Others are of another lap of 2^32, or of another connection.
fn lanes(packets: &Packets, marks: &[Mark]) -> HashMap<(u32, bool), (Lane, i64)> {
    let mut once: HashMap<(Key, bool), Option<Sought>> = HashMap::new();
    for sought in marks.iter().flat_map(|mark| [Sought::of(mark), Sought::answer(mark)]).flatten() {
        let entry = once.entry((sought.key(), sought.goes_there));
        let is_same = |other: Sought| (other.lane, other.number) == (sought.lane, sought.number);
        entry.and_modify(|other| *other = other.filter(|other| is_same(*other))).or_insert(Some(sought));
    }
    let mut votes: HashMap<(u32, bool), HashMap<(Lane, i64), u64>> = HashMap::new();
    for sought in once.values().flatten() {
        let Some(&Some((lane, _, number))) = packets.places.get(&sought.key()) else { continue };
        let further = (sought.number as i64).wrapping_sub(number);
        *votes.entry(sought.lane).or_default().entry((lane, further)).or_default() += 1;
    }
    let decided = |votes: HashMap<(Lane, i64), u64>| {
        let mut votes: Vec<_> = votes.into_iter().collect();
        votes.sort_unstable_by_key(|vote| std::cmp::Reverse(vote.1));
        let others: u64 = votes.get(1..)?.iter().map(|vote| vote.1).sum();
        votes.first().filter(|first| first.1 > 2 * others).map(|first| first.0)
    };
    votes.into_iter().filter_map(|(lane, votes)| Some((lane, decided(votes)?))).collect()
}

/// Of connections with both ends traced each end has one of its own.
fn count(connections: &HashSet<(u32, bool, u32)>) -> u64 {
    let mut by_end: HashMap<u32, [u64; 2]> = HashMap::new();
    for &(flow, is_first, _) in connections {
        by_end.entry(flow).or_default()[usize::from(is_first)] += 1;
    }
    by_end.values().map(|[second, first]| first.max(second)).sum()
}

/// The packets that left the traced end or came to it as the trace has it. `ahead_ns` is added to times of the trace.
pub(super) fn pair(sightings: &Sightings, marks: &[Mark], ahead_ns: i64) -> Pairs {
    let flows: HashSet<u32> = marks.iter().map(|mark| mark.flow).collect();
    let packets = Packets::of(sightings, &flows);
    let lanes = lanes(&packets, marks);
    let mut pairs = Pairs::default();
    // An end that reports the same bytes twice saw them once.
    let mut first = HashSet::new();
    let mut connections = HashSet::new();
    for (mark, other) in marks.iter().zip(0_u32..) {
        let placed = |packet: u32, goes_there: bool| {
            let at = sightings.seen[packet as usize].at;
            let ahead = (mark.at as i64).wrapping_add(ahead_ns).wrapping_sub(at as i64);
            Placed { found: Match { reference: packet, other }, point: Point { at, ahead, goes_there } }
        };
        let place = |sought: &Sought| {
            let &(lane, further) = lanes.get(&sought.lane)?;
            let number = (sought.number as i64).wrapping_sub(further);
            Some((lane, sought.acknowledges, number))
        };
        let Some(sought) = Sought::of(mark) else { continue };
        let Some(place_of) = place(&sought) else { continue };
        if !first.insert((place_of, sought.goes_there)) {
            continue;
        }
        if let Some(known) = packets.known.get(&place_of) {
            connections.insert((mark.flow, mark.is_first, mark.connection));
            let placed = placed(known.packet, sought.goes_there);
            // What left is captured later, be it for the first time or once more.
            match known.says {
                _ if !sought.goes_there => pairs.sure.push(placed),
                Says::Sure => pairs.sure.push(placed),
                Says::Likely => pairs.likely.push(placed),
                Says::First | Says::Nothing => {}
            }
            if !sought.goes_there || known.says != Says::Nothing {
                pairs.events.push(placed.found);
            }
        }
        let answer = Sought::answer(mark).and_then(|answer| place(&answer));
        if let Some(packet) = answer.and_then(|(lane, _, to)| packets.acknowledging(lane, to)) {
            pairs.sure.push(placed(packet, false));
        }
    }
    // A clock that is set back shows times again: the file's order is that of the packets.
    pairs.sure.sort_by_key(|placed| placed.found.reference);
    pairs.likely.sort_by_key(|placed| placed.found.reference);
    pairs.connections = count(&connections);
    pairs
}
