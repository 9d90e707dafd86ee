//! What became of the datagrams of UDP that went one way.
//!
//! Nothing acknowledges them. So what the nearer file has and the farther one lacks was lost between, or is only
//! missing there; an answer that came to the same question decides. What was lost beyond, no file tells.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use taut_event::Address;

use super::matching::{Match, Matches, is_copy, key, translated_place};
use super::named::{Frames, Lost, Windows};
use super::sightings::{Seen, Sightings};

const DNS: u16 = 53;
/// No packet.
const NONE: u32 = u32::MAX;

/// What became of the datagrams of UDP that went one way, while both files go on. Flows count if other datagrams of
/// their hosts and of their service are in both files; the others are `untold`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DatagramLosses {
    /// Datagrams at the place nearer to their sender, without those that can't be told.
    pub datagrams: u64,
    /// In the file of the nearer place, and not in that of the farther one: lost, unless the file lacks what passed.
    pub between: Lost,
    /// Datagrams that passed the nearer and the farther place, and are not in the file from there. They are not lost.
    pub not_captured: [u64; 2],
    /// Came to the farther place behind one that left later.
    pub overtaken: u64,
    /// Datagrams at the nearer place that are equal to others, so that nothing tells what became of which.
    pub ambiguous: u64,
    /// Datagrams at the nearer place of services whose datagrams were cut up or put together on the way (offload). What
    /// became of them is not told.
    pub cut_up: u64,
    /// Datagrams at the nearer and at the farther place of flows that only one file has, or of which no way is known.
    /// The other file may have a filter, so what became of them is not told: some may have been lost. Where nothing
    /// tells which way they went, they are with those of the place that has them as the nearer one.
    #[serde(default)]
    pub untold: [u64; 2],
}

/// What a datagram is in the other file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// Nothing.
    Absent,
    /// This one, by number.
    Is(u32),
    /// One of several.
    Ambiguous,
    /// It is a copy of one before it in its own file.
    Copy,
}

/// What goes from one host to another, to a service or from it: a flow that is absent from a file goes as others do.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Lane {
    service: Address,
    peer: IpAddr,
    is_from_service: bool,
}

impl Lane {
    const fn kind(&self) -> (Address, bool) {
        (self.service, self.is_from_service)
    }

    /// Sender and receiver.
    const fn hosts(&self) -> (IpAddr, IpAddr) {
        if self.is_from_service { (self.service.ip, self.peer) } else { (self.peer, self.service.ip) }
    }
}

/// The way of lanes that are alike in this, if it is the same of all.
fn agreed<K: Eq + Hash>(lanes: &HashMap<Lane, bool>, by: impl Fn(&Lane) -> K) -> HashMap<K, Option<bool>> {
    let mut ways: HashMap<K, Option<bool>> = HashMap::new();
    for (lane, &way) in lanes {
        let known = ways.entry(by(lane)).or_insert(Some(way));
        *known = known.filter(|&known| known == way);
    }
    ways
}

/// The datagrams of both files.
pub(super) struct Datagrams<'a> {
    files: [&'a Sightings; 2],
    is_short: bool,
    fates: [Vec<Fate>; 2],
    /// Whether what goes there goes from the reference's place to the other one.
    lanes: [HashMap<Lane, bool>; 2],
    /// The same by less of the lane; none where that differs.
    by_service: [HashMap<(Address, bool), Option<bool>>; 2],
    by_hosts: [HashMap<(IpAddr, IpAddr), Option<bool>>; 2],
}

impl<'a> Datagrams<'a> {
    /// The way of a match is known by its flow.
    pub(super) fn of(
        reference: &'a Sightings,
        other: &'a Sightings,
        matches: &Matches,
        goes_there: impl Fn(&Match) -> Option<bool>,
    ) -> Self {
        let files = [reference, other];
        let mut lanes: [HashMap<Lane, bool>; 2] = Default::default();
        for found in &matches.all {
            let Some(way) = goes_there(found) else { continue };
            for (file, number) in [found.reference, found.other].into_iter().enumerate() {
                if let Some(lane) = lane(files[file], number) {
                    lanes[file].entry(lane).or_insert(way);
                }
            }
        }
        let fates = files.map(|file| vec![Fate::Absent; file.seen.len()]);
        let by_service = lanes.each_ref().map(|lanes| agreed(lanes, Lane::kind));
        let by_hosts = lanes.each_ref().map(|lanes| agreed(lanes, Lane::hosts));
        let mut all = Self { files, is_short: matches.is_short, fates, lanes, by_service, by_hosts };
        let groups = all.groups(matches);
        all.by_order(&groups);
        all
    }

    /// Those that are alike in all they keep: one in each file are one datagram. Returns the others.
    fn groups(&mut self, matches: &Matches) -> Vec<[Vec<u32>; 2]> {
        let [reference, other] = self.files;
        let known: Vec<Option<u32>> = other.ends.iter().map(|ends| reference.flow_between(ends)).collect();
        let place = |file: usize, seen: &Seen| {
            let flow = if file == 0 { Some(seen.flow) } else { known[seen.flow as usize] };
            match flow {
                _ if matches.is_translated => match translated_place(self.files[file], seen) {
                    Some(place) => place.into(),
                    None => 1 << 38 | u64::from(seen.flow) << 1 | file as u64,
                },
                Some(flow) => (u64::from(flow) + 1) << 1 | u64::from(seen.is_from_first),
                None => 1 << 39 | u64::from(seen.flow) << 1 | u64::from(seen.is_from_first),
            }
        };
        let mut keys: Vec<(u64, usize, u32)> = Vec::new();
        for (file, sightings) in self.files.into_iter().enumerate() {
            let datagrams = sightings.numbers().zip(&sightings.seen).filter(|(_, seen)| seen.is_datagram);
            keys.extend(datagrams.map(|(number, seen)| (key(seen, self.is_short, place(file, seen)), file, number)));
        }
        keys.sort_unstable();
        let mut several = Vec::new();
        for group in keys.chunk_by(|one, next| one.0 == next.0) {
            let mut both: [Vec<u32>; 2] = Default::default();
            for &(_, file, number) in group {
                let seen = &self.files[file].seen;
                let before = both[file].last().map(|&before| &seen[before as usize]);
                if before.is_some_and(|before| is_copy(before, &seen[number as usize], matches.is_doubled[file])) {
                    self.fates[file][number as usize] = Fate::Copy;
                } else {
                    both[file].push(number);
                }
            }
            match (&both[0][..], &both[1][..]) {
                (&[ours], &[theirs]) => self.are_one(ours, theirs),
                ([], _) | (_, []) => {}
                _ => several.push(both),
            }
        }
        several
    }

    fn are_one(&mut self, ours: u32, theirs: u32) {
        self.fates[0][ours as usize] = Fate::Is(theirs);
        self.fates[1][theirs as usize] = Fate::Is(ours);
    }

    /// Of several that are alike, those between the same two datagrams of their flow that are in both files.
    fn by_order(&mut self, groups: &[[Vec<u32>; 2]]) {
        if groups.is_empty() {
            return;
        }
        let neighbours = [0, 1].map(|file| self.neighbours(file));
        for group in groups {
            let mut between: HashMap<(u32, u32), [Vec<u32>; 2]> = HashMap::new();
            for (file, numbers) in group.iter().enumerate() {
                for &number in numbers {
                    self.fates[file][number as usize] = Fate::Ambiguous;
                    let (before, after) = neighbours[file][number as usize];
                    if before != NONE && after != NONE {
                        between.entry((before, after)).or_default()[file].push(number);
                    }
                }
            }
            let lacks = |file: usize| between.values().any(|both| both[file].is_empty());
            // Where each file lacks some, one may be the other, overtaken.
            let is_clear = !(lacks(0) && lacks(1));
            for both in between.values() {
                match both.each_ref().map(Vec::len) {
                    [ours, theirs] if ours == theirs => {
                        both[0].iter().zip(&both[1]).for_each(|(&ours, &theirs)| self.are_one(ours, theirs));
                    }
                    [0, _] | [_, 0] if is_clear => {
                        for (file, numbers) in both.iter().enumerate() {
                            numbers.iter().for_each(|&number| self.fates[file][number as usize] = Fate::Absent);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Of each datagram the ones before and after it in its flow that are in both files, as the reference numbers them.
    fn neighbours(&self, file: usize) -> Vec<(u32, u32)> {
        let seen = &self.files[file].seen;
        let mut all = vec![(NONE, NONE); seen.len()];
        let name = |number: usize| match self.fates[file][number] {
            Fate::Is(_) if file == 0 => Some(number as u32),
            Fate::Is(other) => Some(other),
            _ => None,
        };
        let mut walk = |numbers: &mut dyn Iterator<Item = usize>, put: fn(&mut (u32, u32), u32)| {
            let mut last: HashMap<(u32, bool), u32> = HashMap::new();
            for number in numbers.filter(|&number| seen[number].is_datagram) {
                let flow = (seen[number].flow, seen[number].is_from_first);
                last.get(&flow).iter().for_each(|&&name| put(&mut all[number], name));
                if let Some(name) = name(number) {
                    last.insert(flow, name);
                }
            }
        };
        walk(&mut (0..seen.len()), |both, name| both.0 = name);
        walk(&mut (0..seen.len()).rev(), |both, name| both.1 = name);
        all
    }

    /// What became of those that went this way.
    pub(super) fn of_way(&self, way: bool, windows: &Windows) -> DatagramLosses {
        let (near, far) = if way { (0, 1) } else { (1, 0) };
        let of_way = |file: usize, number: u32| {
            lane(self.files[file], number).filter(|lane| self.lanes[file].get(lane) == Some(&way))
        };
        let fate = |file: usize, number: u32| self.fates[file][number as usize];
        let seen = |file: usize, number: u32| &self.files[file].seen[number as usize];
        // Of what came that did not leave, in this form.
        let mut came: HashSet<u64> = HashSet::new();
        let mut not_captured: HashMap<Lane, u64> = HashMap::new();
        for number in windows.far.clone() {
            if let Some(lane) = of_way(far, number).filter(|_| fate(far, number) == Fate::Absent) {
                came.insert(seen(far, number).mark_by(self.is_short));
                *not_captured.entry(lane).or_default() += 1;
            }
        }
        // Those at the farther place have to be known to have gone this way; there they are not lost.
        let is_untold_there = |&number: &u32| self.is_untold(far, number, way) && !self.is_untold(far, number, !way);
        let mut untold = [0, windows.far.clone().filter(is_untold_there).count() as u64];
        let is_answered = self.answered(near);
        let mut told: HashMap<Lane, DatagramLosses> = HashMap::new();
        let mut latest: HashMap<(u32, bool), u32> = HashMap::new();
        for number in windows.near.clone() {
            let Some(lane) = of_way(near, number) else {
                untold[0] += u64::from(self.is_untold(near, number, way));
                continue;
            };
            let one = seen(near, number);
            let told = told.entry(lane).or_default();
            told.datagrams += 1;
            match fate(near, number) {
                Fate::Copy => told.datagrams -= 1,
                Fate::Ambiguous => {
                    told.datagrams -= 1;
                    told.ambiguous += 1;
                }
                Fate::Is(there) => {
                    let latest = latest.entry((one.flow, one.is_from_first)).or_insert(there);
                    told.overtaken += u64::from(there < *latest);
                    *latest = there.max(*latest);
                }
                Fate::Absent if came.contains(&one.mark_by(self.is_short)) => told.cut_up += 1,
                Fate::Absent if is_answered.contains(&number) => told.not_captured[1] += 1,
                Fate::Absent => told.between.add(Frames { near_frame: Some(one.frame), far_frame: None }),
            }
        }
        let mut all = DatagramLosses::default();
        for (lane, mut told) in told {
            told.not_captured[0] = not_captured.get(&lane).copied().unwrap_or(0);
            all.add(told);
        }
        all.untold = untold;
        all
    }

    /// Whether no lane tells what became of it, and it may have gone this way.
    fn is_untold(&self, file: usize, number: u32, way: bool) -> bool {
        let Some(lane) = lane(self.files[file], number) else { return false };
        if self.lanes[file].contains_key(&lane) {
            return false;
        }
        let known = self.by_service[file].get(&lane.kind()).copied().flatten();
        let known = known.or_else(|| self.by_hosts[file].get(&lane.hosts()).copied().flatten());
        let is_in_one = matches!(self.fates[file][number as usize], Fate::Absent | Fate::Ambiguous);
        is_in_one && known.is_none_or(|known| known == way)
    }

    /// The questions of a file that were answered; of those that were asked once.
    fn answered(&self, file: usize) -> HashSet<u32> {
        let sightings = self.files[file];
        let mut asked: HashMap<(u32, u16), (Option<u32>, u32, bool)> = HashMap::new();
        for &(number, transaction) in &sightings.transactions {
            let seen = &sightings.seen[number as usize];
            let (_, to) = ends(sightings, seen);
            let (question, times, is_answered) = asked.entry((seen.flow, transaction)).or_default();
            if to.port != DNS {
                *is_answered = true;
            } else if self.fates[file][number as usize] != Fate::Copy {
                *question = Some(number);
                *times += 1;
            }
        }
        let once = asked.into_values().filter(|&(_, times, is_answered)| times == 1 && is_answered);
        once.filter_map(|(question, ..)| question).collect()
    }
}

impl DatagramLosses {
    /// Of one lane.
    fn add(&mut self, other: Self) {
        if other.cut_up > 0 {
            self.cut_up += other.datagrams + other.ambiguous;
            return;
        }
        self.datagrams += other.datagrams;
        self.between.add_all(&other.between);
        self.not_captured = [0, 1].map(|file| self.not_captured[file] + other.not_captured[file]);
        self.overtaken += other.overtaken;
        self.ambiguous += other.ambiguous;
    }
}

fn ends(file: &Sightings, seen: &Seen) -> (Address, Address) {
    let (first, second, _) = file.ends[seen.flow as usize];
    if seen.is_from_first { (first, second) } else { (second, first) }
}

/// Of a datagram. The end with the lower port is taken for the service.
fn lane(file: &Sightings, number: u32) -> Option<Lane> {
    let seen = &file.seen[number as usize];
    if !seen.is_datagram {
        return None;
    }
    let (from, to) = ends(file, seen);
    let is_from_service = (from.port, from) < (to.port, to);
    let (service, peer) = if is_from_service { (from, to.ip) } else { (to, from.ip) };
    Some(Lane { service, peer, is_from_service })
}
