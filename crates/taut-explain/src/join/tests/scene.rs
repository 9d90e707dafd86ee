//! A conversation seen at two places whose clocks are known.

use std::net::{IpAddr, Ipv4Addr};

use taut_event::{Address, SegmentFlags, TimestampOption};
use taut_time::Instant;

use crate::join::sightings::{Seen, Sighting, Sightings};

/// SplitMix64.
pub(in crate::join) struct Random(pub(in crate::join) u64);

impl Random {
    pub(in crate::join) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Less than a power of two that is itself drawn, so small values are as likely as large ones.
    pub(in crate::join) fn of_any_size(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits);
        self.below(1 << bits)
    }

    pub(in crate::join) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

/// Client at one place, server at the other; times in nanoseconds.
#[derive(Clone, Debug)]
pub(in crate::join) struct Scene {
    pub(in crate::join) seed: u64,
    pub(in crate::join) begin: u64,
    pub(in crate::join) length: u64,
    /// By how much the far clock is ahead in the middle.
    pub(in crate::join) offset: i64,
    pub(in crate::join) rate_ppm: f64,
    /// Least time on the way to the server, and back.
    pub(in crate::join) there: u64,
    pub(in crate::join) back: u64,
    pub(in crate::join) delay_varies: bool,
    /// What a tenth of the requests waits on the way.
    pub(in crate::join) queue_there: u64,
    pub(in crate::join) lost_percent: u64,
    pub(in crate::join) has_marks: bool,
    /// The clock is set after so many of so many parts, by so much.
    pub(in crate::join) step: Option<(u64, u64, i64)>,
    pub(in crate::join) is_translated: bool,
    /// What leaves as one segment arrives as so many.
    pub(in crate::join) pieces: u32,
    /// Steps of both clocks.
    pub(in crate::join) resolution: u64,
    pub(in crate::join) port: u16,
}

/// A packet on its way.
#[derive(Clone, Copy)]
struct Packet {
    is_request: bool,
    sequence: u32,
    acknowledgement: u32,
    payload: u32,
    identification: u16,
    value: u32,
}

impl Scene {
    /// Everything drawn at random.
    pub(in crate::join) fn random(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(7919));
        let way = |random: &mut Random| 20_000 + random.of_any_size(26);
        Self {
            seed,
            begin: 1_700_000_000_000_000_000 + random.below(1_000_000_000),
            length: 2_000_000_000 + random.below(60_000_000_000),
            offset: (random.next() >> (8 + random.below(40))) as i64 >> 16,
            rate_ppm: random.below(200) as f64 - 100.0,
            there: way(&mut random),
            back: way(&mut random),
            delay_varies: true,
            queue_there: 0,
            lost_percent: random.below(5),
            has_marks: true,
            step: None,
            is_translated: false,
            pieces: 1,
            resolution: if random.below(2) == 0 { 1 } else { 1000 },
            port: 4000,
        }
    }

    /// By how much the far clock is ahead at a time of the near one.
    pub(in crate::join) fn ahead(&self, at: u64) -> i64 {
        let middle = self.begin + self.length / 2;
        let drift = (self.rate_ppm / 1e6 * (at as f64 - middle as f64)) as i64;
        let step = self.step.filter(|(part, of, _)| at > self.begin + self.length / of * part).map_or(0, |step| step.2);
        self.offset + drift + step
    }

    /// What the near place has, and what the far one has.
    pub(in crate::join) fn files(&self) -> (Sightings, Sightings) {
        let mut random = Random(self.seed);
        let mut seen: [Vec<(u64, Packet)>; 2] = [Vec::new(), Vec::new()];
        let mut numbers = [random.next() as u32, random.next() as u32];
        let mut identification = random.next() as u16;
        let rounds = 200;
        let mut at = self.begin;
        for round in 0..rounds {
            for is_request in [true, false] {
                let own = usize::from(!is_request);
                let payload = 100 + random.below(1000) as u32 / 4 * 4;
                loop {
                    identification = if self.has_marks { identification.wrapping_add(8).max(1) } else { 0 };
                    let packet = Packet {
                        is_request,
                        sequence: numbers[own],
                        acknowledgement: numbers[1 - own],
                        payload,
                        identification,
                        value: if self.has_marks { (at / 1_000_000) as u32 } else { 0 },
                    };
                    let way = if is_request { self.there } else { self.back };
                    let queue = if self.delay_varies { random.of_any_size(24) } else { 0 };
                    let queue = queue + if is_request && round % 10 == 9 { self.queue_there } else { 0 };
                    seen[own].push((at, packet));
                    if random.below(100) >= self.lost_percent {
                        at += way + queue;
                        self.arrive(&mut seen[1 - own], at, packet);
                        break;
                    }
                    at += 3_000_000 + random.below(200_000_000) / 50;
                }
                numbers[own] = numbers[own].wrapping_add(payload);
                // The last piece is there before the answer leaves.
                at += u64::from(self.pieces) * 1000 + random.below(1_000_000);
            }
            at += (self.length / rounds).saturating_sub(self.there + self.back);
        }
        let [near, far] = seen;
        (self.file(near, |at| at, false), self.file(far, |at| at.wrapping_add_signed(self.ahead(at)), true))
    }

    fn arrive(&self, seen: &mut Vec<(u64, Packet)>, at: u64, packet: Packet) {
        let part = packet.payload / self.pieces;
        for piece in 0..self.pieces {
            let identification = if self.has_marks { packet.identification + piece as u16 } else { 0 };
            let sequence = packet.sequence.wrapping_add(piece * part);
            seen.push((at + u64::from(piece) * 1000, Packet { sequence, identification, payload: part, ..packet }));
        }
    }

    fn file(&self, mut seen: Vec<(u64, Packet)>, clock: impl Fn(u64) -> u64, is_far: bool) -> Sightings {
        seen.sort_by_key(|(at, _)| *at);
        let mut file = Sightings::new();
        file.set_resolution(self.resolution);
        let end = |last: u8, port: u16| Address { ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), port };
        let client = if is_far && self.is_translated { end(77, 60_000) } else { end(1, self.port) };
        let server = end(2, 80);
        for (number, (at, packet)) in seen.into_iter().enumerate() {
            let (from, to) = if packet.is_request { (client, server) } else { (server, client) };
            let at = clock(at);
            file.add(&Sighting {
                at: Instant::from_nanos(at - at % self.resolution),
                frame: number as u64 + 1,
                from,
                to,
                sequence: packet.sequence,
                acknowledgement: packet.acknowledgement,
                flags: SegmentFlags(24),
                payload: packet.payload,
                window: 1000,
                identification: Some(packet.identification),
                timestamps: self.has_marks.then_some(TimestampOption { value: packet.value, echo: 7 }),
                sack: None,
                permits_sack: false,
            });
        }
        file
    }
}

impl Sightings {
    /// Each packet once more, so many nanoseconds later.
    pub(in crate::join) fn doubled(&self, later: u64) -> Self {
        let mut doubled = self.only(|_, _| false);
        doubled.seen = self.seen.iter().flat_map(|seen| [*seen, Seen { at: seen.at + later, ..*seen }]).collect();
        doubled
    }
}
