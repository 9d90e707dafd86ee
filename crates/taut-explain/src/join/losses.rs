//! On which side of the farther place segments were lost, and how soon the receiver acknowledged.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::acknowledged::{Answered, answers, least_loop};
use super::datagrams::{DatagramLosses, Datagrams};
use super::fate::{Fates, bit, judge};
use super::lane::Lane;
use super::matching::{Match, Matches};
use super::named::{Frames, Lost, Windows};
use super::sightings::Sightings;
use super::stretches::{Stretch, Stretches};

/// What became of the segments with data, SYN or FIN that went one way.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Losses {
    /// Segments at the place nearer to their sender, while both files go on.
    pub segments: u64,
    /// Of them, those whose bytes had been sent before.
    pub repeated: u64,
    /// Left the nearer place, and never came to the farther one.
    pub between: Lost,
    /// Passed the farther place too, and never came to the receiver.
    pub beyond: Lost,
    /// Passed both places and were repeated: either they were lost beyond, or their acknowledgement was. The receiver
    /// does not tell (no SACK), or nothing acknowledged them.
    pub beyond_or_needless: Lost,
    /// Repetitions of bytes that had arrived at the receiver.
    pub needless: Lost,
    /// Segments that passed the nearer and the farther place, and are not in the file from there. They are not lost.
    pub not_captured: [u64; 2],
}

/// How soon the receiver acknowledged: from the arrival of data at the farther place, which is the nearer one to the
/// receiver, to the first acknowledgement of it that left there. The way from there to the receiver and back is in it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Acknowledged {
    /// Segments that came in order and for the first time, and were acknowledged.
    pub segments: u64,
    /// The least time.
    pub least_ns: u64,
    /// The median.
    pub median_ns: u64,
    /// What 99 of 100 took at most.
    pub p99_ns: u64,
    /// The most.
    pub most_ns: u64,
    /// The segment that waited the longest, and its acknowledgement, in the file nearer to the receiver.
    pub slowest_frames: [u64; 2],
}

/// Of one way.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) losses: Losses,
    pub(super) acknowledged: Acknowledged,
    pub(super) datagrams: DatagramLosses,
    pub(super) is_crowded: bool,
}

/// Of the way from the reference's place to the other one, and of the way back.
pub(super) fn losses(reference: &Sightings, other: &Sightings, matches: &Matches, stretches: &Stretches) -> [Told; 2] {
    let sides = &stretches.sides;
    let evens = evens(stretches);
    let files = [reference, other];
    let by_flow = files.map(ByFlow::of);
    let goes_there = |found: &Match| {
        let seen = &reference.seen[found.reference as usize];
        sides[seen.flow as usize].map(|is_near_first| seen.is_from_first == is_near_first)
    };
    let datagrams = Datagrams::of(reference, other, matches, goes_there);
    [true, false].map(|way| {
        let of_way: Vec<Match> = matches.all.iter().filter(|found| goes_there(found) == Some(way)).copied().collect();
        // Near and far.
        let places = if way { [0, 1] } else { [1, 0] };
        let number = |found: &Match, file: usize| [found.reference, found.other][file];
        let window = |file: usize| {
            let numbers = of_way.iter().map(|found| number(found, file));
            numbers.clone().min().unwrap_or(0)..numbers.max().map_or(0, |last| last + 1)
        };
        let windows = Windows { near: window(places[0]), far: window(places[1]) };
        let mut tally = Tally {
            files: places.map(|file| files[file]),
            evens: evens.as_ref().map(|evens| &evens[places[1]][..]),
            told: Told::default(),
            answered: Vec::new(),
        };
        let mut is_done = HashSet::new();
        for found in &of_way {
            let flow = reference.seen[found.reference as usize].flow;
            if reference.ends[flow as usize].2 || !is_done.insert(flow) {
                continue;
            }
            let [mut near, far] = places.map(|file| {
                let anchor = number(found, file);
                let numbers = by_flow[file].of_flow(files[file].seen[anchor as usize].flow);
                Lane::of(files[file], numbers, anchor, matches.is_doubled[file])
            });
            near.count_as(&far);
            tally.add(&near, &far, &windows);
        }
        let datagrams = datagrams.of_way(way, &windows);
        Told { datagrams, ..tally.finish() }
    })
}

/// The segments of each file from the first to the last one of each stretch, if a clock was set: between two of them
/// times do not tell how long something took.
fn evens(stretches: &Stretches) -> Option<[Vec<RangeInclusive<u32>>; 2]> {
    if stretches.steps() == 0 && stretches.strays == 0 {
        return None;
    }
    let of = |number: fn(&Match) -> u32| {
        let range = |stretch: &Stretch| {
            let numbers = stretch.packets.iter().map(|placed| number(&placed.found));
            Some(numbers.clone().min()?..=numbers.max()?)
        };
        stretches.all.iter().filter_map(range).collect()
    };
    Some([of(|found| found.reference), of(|found| found.other)])
}

/// The segments of each connection, in the order of the file.
struct ByFlow {
    begins: Vec<u32>,
    numbers: Vec<u32>,
}

impl ByFlow {
    fn of(file: &Sightings) -> Self {
        let mut begins = vec![0; file.ends.len() + 1];
        file.seen.iter().for_each(|seen| begins[seen.flow as usize + 1] += 1);
        for flow in 1..begins.len() {
            begins[flow] += begins[flow - 1];
        }
        let mut next = begins.clone();
        let mut numbers = vec![0; file.seen.len()];
        for (number, seen) in file.seen.iter().enumerate() {
            let place = &mut next[seen.flow as usize];
            numbers[*place as usize] = number as u32;
            *place += 1;
        }
        Self { begins, numbers }
    }

    fn of_flow(&self, flow: u32) -> &[u32] {
        &self.numbers[self.begins[flow as usize] as usize..self.begins[flow as usize + 1] as usize]
    }
}

struct Tally<'a> {
    /// Near and far.
    files: [&'a Sightings; 2],
    /// Of the far one, where its clock surely runs evenly.
    evens: Option<&'a [RangeInclusive<u32>]>,
    told: Told,
    answered: Vec<Answered>,
}

impl Tally<'_> {
    fn add(&mut self, near: &Lane, far: &Lane, windows: &Windows) {
        let answered = answers(far);
        // A queue on the way may have been there all the time.
        let least_loop = least_loop(far, &answered).unwrap_or(0) / 2;
        let is_in = |even: &RangeInclusive<u32>, answered: &Answered| {
            answered.numbers.iter().all(|number| even.contains(number))
        };
        let is_even =
            |answered: &Answered| self.evens.is_none_or(|evens| evens.iter().any(|even| is_in(even, answered)));
        self.answered.extend(answered.into_iter().filter(is_even));
        let fates = judge(near, far, least_loop);
        self.told.is_crowded |= fates.is_crowded;
        self.count(near, far, windows, &fates);
    }

    fn count(&mut self, near: &Lane, far: &Lane, windows: &Windows, fates: &Fates) {
        let Losses { segments, repeated, between, beyond, beyond_or_needless, needless, not_captured } =
            &mut self.told.losses;
        let [near_file, far_file] = self.files;
        let frame_of = |file: &Sightings, number: u32| Some(file.seen[number as usize].frame);
        let far_frame = |index: u32| frame_of(far_file, far.data[index as usize].number);
        let mut near_of: Vec<Option<u32>> = vec![None; far.data.len()];
        for (index, (sent, fate)) in near.data.iter().zip(&fates.near).enumerate() {
            if !windows.near.contains(&sent.number) || sent.is_probe {
                continue;
            }
            let partner = fates.partner[index];
            if let Some(partner) = partner {
                near_of[partner as usize].get_or_insert(sent.number);
            }
            let is = |bit: u8| fate & bit != 0;
            let frames =
                Frames { near_frame: frame_of(near_file, sent.number), far_frame: partner.and_then(far_frame) };
            *segments += 1;
            *repeated += u64::from(is(bit::REPEATED));
            if is(bit::BETWEEN) {
                between.add(frames);
            } else if is(bit::NOT_CAPTURED) {
                not_captured[1] += 1;
            }
            if is(bit::NEEDLESS) {
                needless.add(frames);
            }
        }
        for (index, (fate, near)) in fates.far.iter().zip(near_of).enumerate() {
            if !windows.far.contains(&far.data[index].number) {
                continue;
            }
            let is = |bit: u8| fate & bit != 0;
            let near_frame = near.and_then(|number| frame_of(near_file, number));
            let frames = Frames { near_frame, far_frame: far_frame(index as u32) };
            if is(bit::BEYOND) {
                beyond.add(frames);
            } else if is(bit::UNDECIDED) {
                beyond_or_needless.add(frames);
            }
            not_captured[0] += u64::from(is(bit::NOT_CAPTURED));
        }
    }

    fn finish(self) -> Told {
        let Self { files: [_, far], mut told, mut answered, .. } = self;
        answered.sort_by_key(|answered| answered.ns);
        if let (Some(least), Some(most)) = (answered.first(), answered.last()) {
            let rank = |of_hundred: usize| answered[(answered.len() * of_hundred).div_ceil(100).max(1) - 1].ns;
            told.acknowledged = Acknowledged {
                segments: answered.len() as u64,
                least_ns: least.ns,
                median_ns: rank(50),
                p99_ns: rank(99),
                most_ns: most.ns,
                slowest_frames: most.numbers.map(|number| far.seen[number as usize].frame),
            };
        }
        told
    }
}
