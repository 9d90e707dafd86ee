//! A sender, two places on the way, and a receiver that acknowledges selectively; what is lost where is known.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use taut_event::{Address, SackBlock, SegmentFlags, TimestampOption};
use taut_time::Instant;

use super::scene::Random;
use crate::join::sightings::{Sighting, Sightings};

const MS: u64 = 1_000_000;
const LENGTH: u32 = 1000;

#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) seed: u64,
    pub(super) segments: usize,
    /// From the sender's place to the other one, and from there to the receiver.
    pub(super) ways: [u64; 2],
    pub(super) timeout: u64,
    /// Of a thousand: data lost before the second place and behind it, and acknowledgements lost before the first.
    pub(super) lost: [u64; 3],
    /// Of a thousand packets, so many are missing in the file from the sender's place, and in the other one.
    pub(super) holes: [u64; 2],
    pub(super) speaks_sack: bool,
    pub(super) is_v6: bool,
    pub(super) has_timestamps: bool,
    /// Each packet is in both files twice.
    pub(super) is_doubled: bool,
    pub(super) most_delay: u64,
}

/// What was so.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Truth {
    pub(super) segments: u64,
    pub(super) repeated: u64,
    pub(super) between: u64,
    pub(super) beyond: u64,
    pub(super) needless: u64,
    /// Data that is not in the file of each place, though it passed there.
    pub(super) not_captured: [u64; 2],
    /// From each segment's first passage of the second place to the acknowledgement of it there, in order.
    pub(super) delays: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Happens {
    Due(usize),
    PassesSecond(usize),
    Arrives(usize),
    Answers { to: u32, block: Option<(u32, u32, bool)> },
    AnswerPasses(usize),
    AnswerArrives(usize),
    Delayed,
}

#[derive(Clone, Copy)]
struct Answer {
    to: u32,
    block: Option<(u32, u32, bool)>,
    sent: u64,
}

struct Run<'a> {
    of: &'a Transfer,
    random: Random,
    agenda: BinaryHeap<Reverse<(u64, u64, Happens)>>,
    planned: u64,
    /// Each transmission: its segment, and when it left.
    sent: Vec<(usize, u64)>,
    answers: Vec<Answer>,
    has_arrived: Vec<bool>,
    is_acknowledged: Vec<bool>,
    /// The transmission of each segment that arrived first.
    arrived_by: Vec<Option<usize>>,
    lost_beyond: Vec<usize>,
    to: u32,
    is_delaying: bool,
    first_at_second: Vec<Option<u64>>,
    told_at_second: Vec<(u64, u32)>,
    seen: [Vec<(u64, Sighting)>; 2],
    missing: [Vec<usize>; 2],
    truth: Truth,
}

impl Transfer {
    pub(super) fn random(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(7907));
        let ways = [random.below(20 * MS) + 10_000, random.below(20 * MS) + 10_000];
        // A round trip at least, as every sender waits, but sooner than a delayed acknowledgement is there.
        let timeout = (ways[0] + ways[1]) * (2 + random.below(8)) + 100_000;
        let most_delay = [0, 40 * MS][random.below(2) as usize];
        let mut lost = [random.below(80), random.below(80), random.below(80)];
        // A repetition that is lost while the receiver still delays looks like one that arrived in its place.
        if timeout < most_delay + 2 * (ways[0] + ways[1]) {
            lost[1] = 0;
        }
        Self {
            seed,
            segments: 200,
            ways,
            timeout,
            lost,
            holes: [0; 2],
            speaks_sack: true,
            is_v6: false,
            has_timestamps: random.below(2) == 0,
            is_doubled: false,
            most_delay,
        }
    }

    /// The files of both places.
    pub(super) fn run(&self) -> (Sightings, Sightings, Truth) {
        let segments = self.segments + 1;
        let mut run = Run {
            of: self,
            random: Random(self.seed),
            agenda: BinaryHeap::new(),
            planned: 0,
            sent: Vec::new(),
            answers: Vec::new(),
            has_arrived: vec![false; segments],
            is_acknowledged: vec![false; segments],
            arrived_by: vec![None; segments],
            lost_beyond: Vec::new(),
            to: 0,
            is_delaying: false,
            first_at_second: vec![None; segments],
            told_at_second: Vec::new(),
            seen: Default::default(),
            missing: Default::default(),
            truth: Truth::default(),
        };
        run.open();
        let mut at = 1000 * MS;
        for segment in 0..self.segments {
            at += run.random.below(4 * MS);
            run.plan(at, Happens::Due(segment));
        }
        // The last one comes when all is over, and nothing happens to it: both files go on until there.
        run.plan(at + 3_600_000 * MS, Happens::Due(self.segments));
        while let Some(Reverse((at, _, what))) = run.agenda.pop() {
            run.happens(at, what);
        }
        run.finish()
    }
}

impl Run<'_> {
    fn plan(&mut self, at: u64, what: Happens) {
        self.planned += 1;
        self.agenda.push(Reverse((at, self.planned, what)));
    }

    fn is_lost(&mut self, which: usize, segment: usize) -> bool {
        let is_last = segment == self.of.segments;
        self.random.below(1000) < self.of.lost[which] && !is_last
    }

    fn is_missing(&mut self, place: usize, segment: usize) -> bool {
        self.random.below(1000) < self.of.holes[place] && segment != self.of.segments
    }

    fn happens(&mut self, at: u64, what: Happens) {
        let [first, second] = self.of.ways;
        match what {
            Happens::Due(segment) if self.is_acknowledged[segment] => {}
            Happens::Due(segment) => {
                let number = self.sent.len();
                self.truth.segments += 1;
                self.truth.repeated += u64::from(self.sent.iter().any(|sent| sent.0 == segment));
                self.sent.push((segment, at));
                self.data(0, at, number);
                self.plan(at + self.of.timeout, Happens::Due(segment));
                if self.is_lost(0, segment) {
                    self.truth.between += 1;
                } else {
                    self.plan(at + first, Happens::PassesSecond(number));
                }
            }
            Happens::PassesSecond(number) => {
                let segment = self.sent[number].0;
                self.first_at_second[segment].get_or_insert(at);
                self.data(1, at, number);
                if self.is_lost(1, segment) {
                    self.lost_beyond.push(number);
                } else {
                    self.plan(at + second, Happens::Arrives(number));
                }
            }
            Happens::Arrives(number) => self.arrives(at, number),
            Happens::Delayed => {
                self.is_delaying = false;
                self.plan(at, Happens::Answers { to: self.to, block: None });
            }
            Happens::Answers { to, block } => {
                self.answers.push(Answer { to, block, sent: at });
                self.plan(at + second, Happens::AnswerPasses(self.answers.len() - 1));
            }
            Happens::AnswerPasses(number) => {
                self.told_at_second.push((at, self.answers[number].to));
                self.answer(1, at, number);
                if !self.is_lost(2, 0) {
                    self.plan(at + first, Happens::AnswerArrives(number));
                }
            }
            Happens::AnswerArrives(number) => {
                self.answer(0, at, number);
                let Answer { to, block, .. } = self.answers[number];
                let sacked = block.filter(|_| self.of.speaks_sack).map_or(0..0, |(from, to, _)| from..to);
                for segment in 0..self.is_acknowledged.len() as u32 {
                    self.is_acknowledged[segment as usize] |= segment < to || sacked.contains(&segment);
                }
            }
        }
    }

    fn arrives(&mut self, at: u64, number: usize) {
        let segment = self.sent[number].0;
        let own = segment as u32;
        if self.has_arrived[segment] {
            return self.plan(at, Happens::Answers { to: self.to, block: Some((own, own + 1, true)) });
        }
        self.has_arrived[segment] = true;
        self.arrived_by[segment] = Some(number);
        let is_in_order = own == self.to;
        while self.has_arrived.get(self.to as usize) == Some(&true) {
            self.to += 1;
        }
        if !is_in_order {
            let from = (0..own).rev().take_while(|&before| self.has_arrived[before as usize]).last().unwrap_or(own);
            let to = (own..).find(|&next| self.has_arrived.get(next as usize) != Some(&true)).unwrap_or(own + 1);
            self.plan(at, Happens::Answers { to: self.to, block: Some((from, to, false)) });
        } else if self.of.most_delay == 0 {
            self.plan(at, Happens::Answers { to: self.to, block: None });
        } else if !self.is_delaying {
            self.is_delaying = true;
            let delay = self.random.below(self.of.most_delay);
            self.plan(at + delay, Happens::Delayed);
        }
    }

    fn sighting(&self, is_data: bool) -> Sighting {
        let end = |last: u8, port: u16| {
            let v4 = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
            let v6 = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()));
            Address { ip: if self.of.is_v6 { v6 } else { v4 }, port }
        };
        let (from, to) = (end(1, 4000), end(2, 80));
        Sighting {
            at: Instant::from_nanos(0),
            frame: 0,
            from: if is_data { from } else { to },
            to: if is_data { to } else { from },
            sequence: 0,
            acknowledgement: 0,
            flags: SegmentFlags(16),
            payload: 0,
            window: 1000,
            identification: None,
            timestamps: None,
            sack: None,
            permits_sack: false,
        }
    }

    /// `left` tells a packet from its repetition.
    fn marked(&self, sighting: Sighting, left: u64, number: u64) -> Sighting {
        let stamps = TimestampOption { value: (left / MS) as u32, echo: 3 };
        Sighting {
            identification: (!self.of.is_v6).then_some(number as u16),
            timestamps: self.of.has_timestamps.then_some(stamps),
            ..sighting
        }
    }

    fn sequence(&self, segment: u32) -> u32 {
        (self.of.seed as u32).wrapping_mul(0x9e37_79b9).wrapping_add(1 + segment * LENGTH)
    }

    fn data(&mut self, place: usize, at: u64, number: usize) {
        let (segment, left) = self.sent[number];
        if self.is_missing(place, segment) {
            self.missing[place].push(number);
            return;
        }
        let sequence = self.sequence(segment as u32);
        let sighting = Sighting { sequence, acknowledgement: 78, payload: LENGTH, ..self.sighting(true) };
        let sighting = self.marked(sighting, left, number as u64 + 10);
        self.seen[place].push((at, sighting));
    }

    fn answer(&mut self, place: usize, at: u64, number: usize) {
        let Answer { to, block, sent } = self.answers[number];
        let sack = block.filter(|_| self.of.speaks_sack).map(|(from, to, is_duplicate)| SackBlock {
            from: self.sequence(from),
            to: self.sequence(to),
            is_duplicate,
        });
        let acknowledgement = self.sequence(to);
        let sighting = Sighting { sequence: 78, acknowledgement, sack, ..self.sighting(false) };
        let sighting = self.marked(sighting, sent, number as u64 + 20_000);
        self.seen[place].push((at, sighting));
    }

    fn open(&mut self) {
        for (is_data, flags, step) in [(true, 2, 0), (false, 18, 1)] {
            let (sequence, acknowledgement) = match is_data {
                true => (self.sequence(0).wrapping_sub(1), 0),
                false => (77, self.sequence(0)),
            };
            let [first, _] = self.of.ways;
            let left = 100 * MS + step * 100 * MS;
            let times = if is_data { [left, left + first] } else { [left, left - first] };
            let opening = Sighting {
                sequence,
                acknowledgement,
                flags: SegmentFlags(flags),
                permits_sack: self.of.speaks_sack,
                ..self.sighting(is_data)
            };
            let opening = self.marked(opening, left, 1 + step);
            for (seen, at) in self.seen.iter_mut().zip(times) {
                seen.push((at, opening));
            }
        }
        // The SYN of the sender counts, too; the other one goes the other way.
        self.truth.segments += 1;
    }

    fn finish(mut self) -> (Sightings, Sightings, Truth) {
        for number in 0..self.sent.len() {
            let arrived = self.arrived_by[self.sent[number].0].unwrap();
            self.truth.needless += u64::from(number > arrived);
            self.truth.beyond += u64::from(number < arrived && self.lost_beyond.contains(&number));
        }
        // What is in neither file nobody knows of.
        let [near, far] = &self.missing;
        let is_alone = |number: &&usize| !(near.contains(number) && far.contains(number));
        let alone = |missing: &[usize]| missing.iter().filter(is_alone).count() as u64;
        self.truth.not_captured = [alone(near), alone(far)];
        for (segment, first) in self.first_at_second.iter().enumerate() {
            let told = self.told_at_second.iter().find(|(_, to)| *to > segment as u32);
            self.truth.delays.extend(first.zip(told).map(|(first, (at, _))| at - first));
        }
        let [near, far] = self.seen.map(|mut seen| {
            seen.sort_by_key(|(at, _)| *at);
            let mut file = Sightings::new();
            file.set_resolution(1);
            let copies = if self.of.is_doubled { 2 } else { 1 };
            let mut frame = 0;
            for (at, sighting) in seen {
                for copy in 0..copies {
                    frame += 1;
                    file.add(&Sighting { at: Instant::from_nanos(at + copy * 5000), frame, ..sighting });
                }
            }
            file
        });
        (near, far, self.truth)
    }
}
