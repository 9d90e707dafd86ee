//! Streams of numbered packets in one direction: RTP by its content, and Tautline's own data.
//!
//! RFC 3550, appendix A.1 tells how numbers run on, A.3 how many are missing, A.8 the jitter. What only begins like RTP
//! has no numbers that run on, and is none.

use taut_event::{Numbered, RtpClock};

use crate::engine::Episode;

/// So many streams of a direction are told apart.
const MOST_STREAMS: usize = 8;
/// Numbers that are further ahead are those of a new start (`MAX_DROPOUT`).
const MOST_AHEAD: u64 = 3000;
/// Numbers that are further behind are, too; closer ones were overtaken (`MAX_MISORDER`, which is 100 there).
const MOST_BEHIND: u64 = 128;
/// A stream without a packet among so many has ended, or was none.
const LONG_AGO: u64 = 256;
/// Fewer packets are no stream of RTP: four of RFC 3550's probation would be chance in a large capture.
pub(super) const LEAST_PACKETS: u64 = 16;
/// Numbers of a stream run on: most are as near as this to the highest one. Of drawn ones one in 2000 is.
const NEAR: u64 = 16;
/// Timestamps of a stream do not go further from one packet to the next: 186 s of 90 kHz.
const LARGEST_STEP: u32 = 1 << 24;
/// Clocks of payloads, in Hz (RFC 3551, and those of Opus, EVS and AMR-WB).
const CLOCKS: [u32; 9] = [8000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 90_000];
/// Losses of a path are not all alike, one upon the other; where so many gaps are, the counter may not step by one.
const LEAST_ALIKE: u64 = 8;
/// So many gaps may wait for what was overtaken.
const MOST_PENDING: usize = 64;
/// Numbers of RTP begin here, so that those before the first one have a place.
const BASE: u64 = 1 << 16;
/// How far a clock may be off to be recognised, of a thousand.
const CLOCK_OFF: f64 = 20.0;
/// A clock is recognised over this time at least, in nanoseconds.
const LEAST_TIME: u64 = 500_000_000;

/// From one packet to the next; a longer time is a silence, in which nothing is sent (DTX).
const LONGEST_STEP: u64 = 500_000_000;
/// Fewer steps do not tell how far packets are apart.
const LEAST_STEPS: u64 = 8;

/// A time and the packet of that time.
pub(super) type Seen = (u64, u64);

/// The streams of a direction, in bounded memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
    /// Packets of streams beyond those.
    pub(super) beyond: u64,
    packets: u64,
}

/// One stream.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) id: u64,
    /// Number of its last packet among those of all.
    seen: u64,
    pub(super) payload_type: Option<u8>,
    /// Numbers that are there, and copies of such.
    pub(super) packets: u64,
    pub(super) duplicates: u64,
    /// Came behind a higher number.
    pub(super) overtaken: u64,
    /// Numbers began anew.
    pub(super) restarts: u64,
    /// Times from the packet before a gap to the one behind it: how many, their sum, the longest.
    pub(super) gaps: u64,
    pub(super) gap_ns: u64,
    pub(super) longest: Option<Episode>,
    pub(super) most_in_a_row: u64,
    /// Gaps as long in numbers as the one before, and how long that was.
    alike: u64,
    last_missing: u64,
    /// Gaps of which some numbers may yet come.
    pending: Vec<Gap>,
    /// Of runs before the last new start.
    expected_before: u64,
    first: u64,
    highest: u64,
    /// The highest number and those below it that have come, as bits.
    come: u128,
    /// The number that would show a new start.
    awaited: Option<u64>,
    near: u64,
    odd_steps: u64,
    /// From one number to the next one, without silences: how often, and their sum.
    steps: u64,
    steps_ns: u64,
    /// Whether a timestamp was another one than that before.
    is_timed: bool,
    begin: Seen,
    last: Seen,
    clock: Option<Clock>,
}

/// Numbers that have not come, from the first one up to the one that came instead.
#[derive(Clone, Copy, Debug)]
struct Gap {
    from: u64,
    to: u64,
    missing: u64,
    time: Episode,
}

/// Timestamps of RTP against the time of the capture.
#[derive(Clone, Debug)]
struct Clock {
    last: u32,
    /// How far they have gone since the first one.
    gone: i64,
    begin: u64,
    at: u64,
    /// For each of [`CLOCKS`]: the jitter as of now and the largest so far, in nanoseconds.
    jitter: [[f64; 2]; CLOCKS.len()],
}

/// Interarrival jitter, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Jitter {
    pub(super) clock_hz: u32,
    pub(super) last: u64,
    pub(super) most: u64,
}

impl Streams {
    pub(super) fn packet(&mut self, at: Seen, packet: &Numbered) {
        self.packets += 1;
        let now = self.packets;
        let known =
            self.all.iter_mut().find(|stream| stream.id == packet.stream && stream.is_rtp() == packet.rtp.is_some());
        if let Some(stream) = known {
            stream.seen = now;
            return stream.packet(at, packet);
        }
        if self.all.len() < MOST_STREAMS {
            return self.all.push(Stream { seen: now, ..Stream::new(at, packet) });
        }
        // What only looks like a stream has a packet of its own each.
        let is_chance = |stream: &&mut Stream| stream.packets < LEAST_PACKETS && now - stream.seen > LONG_AGO;
        match self.all.iter_mut().find(is_chance) {
            Some(chance) => *chance = Stream { seen: now, ..Stream::new(at, packet) },
            None => self.beyond += 1,
        }
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self) {
        self.all.iter_mut().for_each(|stream| stream.settle(u64::MAX));
    }

    /// Those that are no chance, if most of the direction's datagrams are theirs.
    pub(super) fn told(&self, datagrams: u64) -> Vec<&Stream> {
        let told: Vec<&Stream> = self.all.iter().filter(|stream| stream.is_one()).collect();
        let packets: u64 = told.iter().map(|stream| stream.packets + stream.duplicates).sum();
        if 2 * (packets + self.beyond) >= datagrams { told } else { Vec::new() }
    }
}

impl Stream {
    fn new(at: Seen, packet: &Numbered) -> Self {
        let clock =
            |rtp: RtpClock| Clock { last: rtp.timestamp, gone: 0, begin: at.0, at: at.0, jitter: Default::default() };
        let number = packet.rtp.map_or(packet.sequence, |_| packet.sequence + BASE);
        Self {
            id: packet.stream,
            seen: 0,
            payload_type: packet.rtp.map(|rtp| rtp.payload_type),
            packets: 1,
            duplicates: 0,
            overtaken: 0,
            restarts: 0,
            gaps: 0,
            gap_ns: 0,
            longest: None,
            most_in_a_row: 0,
            alike: 0,
            last_missing: 0,
            pending: Vec::new(),
            expected_before: 0,
            first: number,
            highest: number,
            come: 1,
            awaited: None,
            near: 0,
            odd_steps: 0,
            steps: 0,
            steps_ns: 0,
            is_timed: false,
            begin: at,
            last: at,
            clock: packet.rtp.map(clock),
        }
    }

    pub(super) const fn is_rtp(&self) -> bool {
        self.clock.is_some()
    }

    /// First and last packet.
    pub(super) const fn frames(&self) -> [u64; 2] {
        [self.begin.1, self.last.1]
    }

    /// Numbers that are missing (RFC 3550, appendix A.3, with copies counted once).
    pub(super) fn lost(&self) -> u64 {
        self.expected().saturating_sub(self.packets)
    }

    /// Numbers from the first to the highest one.
    pub(super) fn expected(&self) -> u64 {
        self.expected_before.saturating_add((self.highest - self.first).saturating_add(1))
    }

    /// Whether a third of the steps or more are gaps, nearly all of one length. Losses by chance that are as many have
    /// gaps of all lengths: a counter that others share, or that steps by more than one, looks like this.
    pub(super) fn is_even(&self) -> bool {
        self.gaps >= LEAST_ALIKE && 3 * self.gaps >= self.packets - 1 && 5 * self.alike >= 4 * (self.gaps - 1)
    }

    /// Numbers run on, and timestamps move but do not jump about. Tautline's own data says itself what it is.
    fn is_one(&self) -> bool {
        let steps = self.packets - 1;
        !self.is_rtp()
            || self.packets >= LEAST_PACKETS
                && self.is_timed
                && 2 * self.near >= steps
                && 10 * self.odd_steps <= steps
                && 20 * self.restarts <= steps
    }

    fn packet(&mut self, at: Seen, packet: &Numbered) {
        // The full number of RTP is the one nearest to the highest so far.
        let number = match packet.rtp {
            None => Some(packet.sequence),
            Some(_) => {
                let step = packet.sequence.wrapping_sub(self.highest) as u16 as i16;
                self.highest.checked_add_signed(step.into())
            }
        };
        let Some(number) = number else { return self.start_anew(at, packet) };
        if number > self.highest {
            let ahead = number - self.highest;
            if ahead > MOST_AHEAD {
                return self.odd_one(at, packet);
            }
            self.near += u64::from(ahead <= NEAR);
            let passed = at.0.saturating_sub(self.last.0);
            if ahead == 1 && passed <= LONGEST_STEP {
                self.steps += 1;
                self.steps_ns = self.steps_ns.saturating_add(passed);
            }
            if ahead > 1 {
                let lasts = passed.min(self.at_most(ahead));
                let time = Episode { from: at.0 - lasts, to: at.0, places: (self.last.1, at.1) };
                self.pending.push(Gap { from: self.highest + 1, to: number, missing: ahead - 1, time });
                if self.pending.len() > MOST_PENDING {
                    let first = self.pending.remove(0);
                    self.gap(&first);
                }
            }
            self.come = self.come.checked_shl(ahead as u32).unwrap_or(0) | 1;
            self.highest = number;
            self.packets += 1;
            self.settle(number.saturating_sub(MOST_BEHIND));
        } else {
            let behind = self.highest - number;
            if behind >= MOST_BEHIND {
                return self.odd_one(at, packet);
            }
            if self.come >> behind & 1 == 1 {
                self.duplicates += 1;
                return;
            }
            if number < self.first {
                self.first = number;
            }
            self.come |= 1 << behind;
            self.near += u64::from(behind <= NEAR);
            self.overtaken += 1;
            if let Some(gap) = self.pending.iter_mut().find(|gap| (gap.from..gap.to).contains(&number)) {
                gap.missing -= 1;
            }
            self.packets += 1;
        }
        self.awaited = None;
        self.timestamp(at, packet);
        self.last = at;
    }

    /// How long so many steps take at most. Where some packets of a silence are missing, the rest of it was one.
    fn at_most(&self, ahead: u64) -> u64 {
        if self.steps < LEAST_STEPS {
            return u64::MAX;
        }
        (self.steps_ns / self.steps).saturating_mul(2).saturating_mul(ahead)
    }

    /// Far from all others: two that follow each other are a new start (RFC 3550, appendix A.1).
    fn odd_one(&mut self, at: Seen, packet: &Numbered) {
        if self.awaited == Some(packet.sequence) {
            return self.start_anew(at, packet);
        }
        let next = packet.sequence.wrapping_add(1);
        self.awaited = Some(if packet.rtp.is_some() { next & 0xffff } else { next });
        self.odd_steps += 1;
    }

    fn start_anew(&mut self, at: Seen, packet: &Numbered) {
        // Of both that show it, the first one was not counted.
        self.expected_before = self.expected();
        self.settle(u64::MAX);
        let new = Self::new(at, packet);
        (self.first, self.highest, self.come) = (new.first, new.highest, 1);
        self.restarts += 1;
        self.packets += 1;
        self.awaited = None;
        if let (Some(clock), Some(new)) = (&mut self.clock, new.clock) {
            (clock.last, clock.gone, clock.begin, clock.at) = (new.last, new.gone, new.begin, new.at);
        }
        self.last = at;
    }

    /// Gaps before this number stay.
    fn settle(&mut self, before: u64) {
        while self.pending.first().is_some_and(|gap| gap.to <= before) {
            let gap = self.pending.remove(0);
            self.gap(&gap);
        }
    }

    fn gap(&mut self, gap: &Gap) {
        if gap.missing == 0 {
            return;
        }
        self.alike += u64::from(self.gaps > 0 && gap.missing == self.last_missing);
        self.last_missing = gap.missing;
        self.gaps += 1;
        self.gap_ns = self.gap_ns.saturating_add(gap.time.length());
        self.most_in_a_row = self.most_in_a_row.max(gap.missing);
        if self.longest.is_none_or(|longest| longest.length() < gap.time.length()) {
            self.longest = Some(gap.time);
        }
    }

    fn timestamp(&mut self, at: Seen, packet: &Numbered) {
        let (Some(clock), Some(rtp)) = (&mut self.clock, packet.rtp) else { return };
        self.payload_type = Some(rtp.payload_type);
        let step = rtp.timestamp.wrapping_sub(clock.last) as i32;
        self.is_timed |= step != 0;
        if step.unsigned_abs() > LARGEST_STEP {
            self.odd_steps += 1;
        }
        let passed = at.0.saturating_sub(clock.at) as f64;
        for (hz, [jitter, most]) in CLOCKS.into_iter().zip(&mut clock.jitter) {
            let late = (passed - f64::from(step) * 1e9 / f64::from(hz)).abs();
            *jitter += (late - *jitter) / 16.0;
            *most = most.max(*jitter);
        }
        clock.gone += i64::from(step);
        (clock.last, clock.at) = (rtp.timestamp, at.0);
    }

    /// By the clock of the payload type (RFC 3551), or by the one that timestamps go by.
    pub(super) fn jitter(&self) -> Option<Jitter> {
        let clock = self.clock.as_ref()?;
        let index = match self.payload_type.and_then(clock_of) {
            Some(hz) => CLOCKS.iter().position(|&known| known == hz)?,
            None => {
                let passed = clock.at.saturating_sub(clock.begin);
                let hz = clock.gone as f64 * 1e9 / passed.max(LEAST_TIME) as f64;
                let off = |known: u32| (hz / f64::from(known) - 1.0).abs() * 1000.0;
                let nearest =
                    CLOCKS.into_iter().enumerate().min_by(|(_, one), (_, next)| off(*one).total_cmp(&off(*next)));
                nearest.filter(|&(_, known)| off(known) <= CLOCK_OFF)?.0
            }
        };
        let [last, most] = clock.jitter[index].map(|ns| ns.round() as u64);
        Some(Jitter { clock_hz: CLOCKS[index], last, most })
    }
}

/// RFC 3551, section 6.
const fn clock_of(payload_type: u8) -> Option<u32> {
    match payload_type {
        0 | 3 | 4 | 5 | 7 | 8 | 9 | 12 | 13 | 15 | 18 => Some(8000),
        6 => Some(16_000),
        10 | 11 => Some(44_100),
        16 => Some(11_025),
        17 => Some(22_050),
        14 | 25 | 26 | 28 | 31..=34 => Some(90_000),
        _ => None,
    }
}
