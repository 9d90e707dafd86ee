//! Two writes and a read, over and over, as the kernel of the client and a capture somewhere on the path have it.

use taut_event::{
    AckSentBy, Address, Coverage, Direction as Way, Event, Flow, FlowId, FlowKey, Holder, Release, SegmentFlags, Sink,
    SocketState, Stamp, TaskId, VantageId, What,
};
use taut_time::{ByteRange, Instant, Layer};

use super::super::super::sightings::{Sighting, Sightings};
use super::super::super::tests::scene::Random;
use super::super::{ClockReading, HostClock};
use crate::engine::{Direction, Explanation, Picture, Span};

pub(super) const THREAD: u32 = 4711;
/// From one round to the next.
pub(super) const ROUND: u64 = 50_000_000;
/// From the begin of a round to the return of the second write, and to the acknowledgement that lets it go.
pub(super) const SECOND_WRITTEN: u64 = 30_000;
pub(super) const HELD: u64 = 40_000_000;
/// When the trace began, on its clock.
const BOOT: u64 = 7_000_000_000_000;
/// The time of day when the host started.
const DAY: i64 = 1_700_000_000_000_000_000;
/// The first byte's number; it wraps within the first rounds.
const FIRST: u32 = u32::MAX - 100;
const ANSWERS: u32 = 5_000;

#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) seed: u64,
    pub(super) rounds: u64,
    /// The conversation begins so late, in nanoseconds, and its first byte has this number.
    pub(super) begin: u64,
    pub(super) first: u32,
    /// What the second write sent is acknowledged half a millisecond before the answer comes.
    pub(super) acknowledges_first: bool,
    /// The hosts number their packets.
    pub(super) is_numbered: bool,
    /// The capture's clock against the host's time of day, and what it gains.
    pub(super) offset: i64,
    pub(super) rate_ppm: f64,
    /// Least time from the traced socket to the capture, and back.
    pub(super) way: u64,
    /// The trace lost events in this round.
    pub(super) gap_in: Option<u64>,
    /// The capture's clock is set by so much in the middle.
    pub(super) step: i64,
    pub(super) other_port: bool,
    pub(super) other_numbers: bool,
    /// The capture's clock shows anything.
    pub(super) is_shuffled: bool,
}

/// What a capture and a trace have of it.
pub(super) struct Seen {
    pub(super) sightings: Sightings,
    pub(super) explanation: Explanation,
    pub(super) flow: Flow,
    pub(super) events: Vec<Event>,
    pub(super) end: u64,
}

impl Seen {
    pub(super) fn tell(&self, sink: &mut impl Sink) {
        sink.flow(FlowId(0), &self.flow);
        self.events.iter().for_each(|event| sink.event(event));
    }
}

/// The host's clocks, read at the begin and at the end.
pub(super) fn clock() -> HostClock {
    let reading = |at_ns| ClockReading { at_ns, time_of_day_ahead_ns: DAY, uncertainty_ns: 300 };
    HostClock { begin: reading(BOOT), end: reading(BOOT + 10 * ROUND) }
}

fn address(port: u16) -> Address {
    Address { ip: std::net::Ipv4Addr::new(10, 0, 0, 1).into(), port }
}

const CLIENT: u16 = 40_000;
const SERVER: u16 = 80;

impl Scene {
    /// Captured on the traced host, by its own clock.
    pub(super) fn here(rounds: u64) -> Self {
        Self {
            seed: 1,
            rounds,
            begin: 0,
            first: FIRST,
            acknowledges_first: false,
            is_numbered: true,
            offset: 0,
            rate_ppm: 0.0,
            way: 2_000,
            gap_in: None,
            step: 0,
            other_port: false,
            other_numbers: false,
            is_shuffled: false,
        }
    }

    /// What the capture's clock shows at a time since the begin.
    pub(super) fn captured(&self, at: u64) -> u64 {
        let drift = (at as f64 * self.rate_ppm * 1e-6) as i64;
        let step = if at > self.begin + self.rounds * ROUND / 2 { self.step } else { 0 };
        let shuffled = if self.is_shuffled { Random(at).below(1_000_000_000) } else { 0 };
        (DAY + BOOT as i64 + at as i64 + drift + self.offset + step + shuffled as i64) as u64
    }

    pub(super) fn seen(&self) -> Seen {
        let mut random = Random(self.seed);
        let mut writer = Writer::of(self);
        for round in 0..self.rounds {
            writer.round(round, &mut random);
        }
        writer.finish()
    }
}

struct Writer<'s> {
    scene: &'s Scene,
    sightings: Sightings,
    events: Vec<Event>,
    spans: Vec<Span>,
    frame: u64,
    /// Each end numbers its packets.
    identifications: [u16; 2],
    start: u64,
}

impl<'s> Writer<'s> {
    fn of(scene: &'s Scene) -> Self {
        let mut sightings = Sightings::new();
        sightings.set_resolution(1);
        Self {
            scene,
            sightings,
            events: Vec::new(),
            spans: Vec::new(),
            frame: 0,
            identifications: [65_500; 2],
            start: if scene.is_shuffled { 0 } else { scene.captured(scene.begin) },
        }
    }

    fn packet(&mut self, at: u64, is_from_client: bool, sequence: u32, acknowledgement: u32, payload: u32) -> u64 {
        self.frame += 1;
        self.identifications[usize::from(is_from_client)] =
            self.identifications[usize::from(is_from_client)].wrapping_add(1);
        let (from, to) = if is_from_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let at = self.scene.captured(at);
        self.sightings.add(&Sighting {
            at: Instant::from_nanos(at),
            frame: self.frame,
            from: address(from),
            to: address(to),
            sequence,
            acknowledgement,
            flags: SegmentFlags(SegmentFlags::ACK),
            payload,
            window: 500,
            identification: self.scene.is_numbered.then_some(self.identifications[usize::from(is_from_client)]),
            timestamps: None,
            sack: None,
            permits_sack: false,
        });
        at
    }

    fn event(&mut self, at: u64, direction: Way, what: What, from: u64, to: u64) {
        self.events.push(Event {
            at: Instant::from_nanos(BOOT + at),
            seen_by: VantageId(0),
            flow: FlowId(0),
            direction,
            layer: Layer::Socket,
            what,
            bytes: ByteRange::new(from, to),
            who: Some(TaskId(THREAD)),
            place: 0,
        });
    }

    fn stamp(&mut self, at: u64, stamp: Stamp, from: u64, length: u64) {
        let way = if matches!(stamp, Stamp::Received | Stamp::Read) { Way::Backward } else { Way::Forward };
        self.event(at, way, What::Reached(stamp), from, from + length);
    }

    fn state(&mut self, at: u64, unsent_bytes: u32, in_flight_bytes: u32) {
        let state = SocketState {
            unsent_bytes,
            in_flight_bytes,
            in_flight_segments: u32::from(in_flight_bytes > 0),
            congestion_window_segments: 10,
            slow_start_threshold_segments: 5,
            send_window_bytes: Some(65_000),
            mss_bytes: 1448,
            no_delay: Some(false),
            cork: Some(false),
            small_in_flight: Some(in_flight_bytes > 0),
            ..SocketState::default()
        };
        self.event(at, Way::Forward, What::State(state), 0, 0);
    }

    fn span(&mut self, holder: Holder, from: u64, to: u64) {
        let begin_ns = from.saturating_sub(self.start);
        self.spans.push(Span { holder, begin_ns, held_ns: to.saturating_sub(from), frames: [self.frame, self.frame] });
    }

    fn round(&mut self, round: u64, random: &mut Random) {
        let Scene { way, first, other_numbers, acknowledges_first, .. } = *self.scene;
        let begin = self.scene.begin + round * ROUND + 100_000;
        let mut late = || way + random.below(20_000);
        let (there, after, back, answered) = (late(), late(), late(), late());
        let number = first.wrapping_add(round as u32 * 64);
        let (byte, answer) = (1 << 32 | u64::from(first), 1 << 32 | u64::from(ANSWERS));
        let (byte, answer) = (byte + round * 64, answer + round * 8);
        let answers = ANSWERS + round as u32 * 8;
        // A connection of the same ends before this one.
        let shift = if other_numbers { 1 << 20 } else { 0 };
        let trace_lost = self.scene.gap_in == Some(round);
        let mark = self.events.len();
        let (byte, answer) = (byte + shift, answer + shift);
        self.stamp(begin, Stamp::WriteBegin, byte, 0);
        self.state(begin, 0, 0);
        self.stamp(begin + 10_000, Stamp::Scheduled, byte, 16);
        self.state(begin + 10_000, 0, 16);
        self.stamp(begin + 15_000, Stamp::WriteEnd, byte, 16);
        self.state(begin + 15_000, 0, 16);
        self.stamp(begin + 20_000, Stamp::WriteBegin, byte + 16, 0);
        self.state(begin + 20_000, 0, 16);
        self.stamp(begin + SECOND_WRITTEN, Stamp::WriteEnd, byte + 16, 48);
        self.state(begin + SECOND_WRITTEN, 48, 16);
        let first = self.packet(begin + 10_000 + there, true, number, answers, 16);
        let acknowledged = begin + HELD;
        let ack = self.packet(acknowledged - back, false, answers, number.wrapping_add(16), 0);
        self.stamp(acknowledged, Stamp::Acknowledged, byte, 16);
        self.state(acknowledged, 48, 0);
        let release = Release::Acknowledgement(AckSentBy::DelayedAckTimer);
        self.event(acknowledged + 5_000, Way::Forward, What::Released(release), byte + 16, byte + 64);
        self.stamp(acknowledged + 5_000, Stamp::Scheduled, byte + 16, 48);
        self.state(acknowledged + 5_000, 0, 48);
        let second = self.packet(acknowledged + 5_000 + after, true, number.wrapping_add(16), answers, 48);
        let done = acknowledged + 2 * (way + 20_000) + 1_000_000;
        let told = if acknowledges_first { done - 500_000 } else { done };
        if acknowledges_first {
            self.packet(told - answered, false, answers, number.wrapping_add(64), 0);
        }
        self.packet(done - answered, false, answers, number.wrapping_add(64), 8);
        self.stamp(told, Stamp::Acknowledged, byte + 16, 48);
        self.stamp(done, Stamp::Received, answer, 8);
        self.state(done, 0, 0);
        self.stamp(done + 1_000, Stamp::Read, answer, 8);
        self.state(done + 1_000, 0, 0);
        let last = self.packet(done + 2_000 + there, true, number.wrapping_add(64), answers + 8, 0);
        if trace_lost {
            self.events.truncate(mark);
            self.event(done + 3_000, Way::Forward, What::Gap, 0, 0);
            self.state(done + 3_000, 0, 0);
        }
        if !self.scene.is_shuffled {
            let before = self.spans.last().map(|span| self.start + span.begin_ns + span.held_ns);
            before.into_iter().for_each(|before| self.span(Holder::SendingProgram, before, first));
            self.span(Holder::Nagle, first, ack);
            self.span(Holder::SendingProgram, ack, second);
            self.span(Holder::PeerTurn, second, last);
        }
    }

    fn finish(self) -> Seen {
        let text = |port| address(port).to_string();
        let picture = Picture { spans: self.spans, left_out: 0, left_out_ns: 0 };
        let direction =
            Direction { from: text(CLIENT), to: text(SERVER), picture: Some(picture), ..Direction::default() };
        let start = Some(Instant::from_nanos(self.start));
        let explanation = Explanation { worst: vec![direction], directions: 1, start, ..Explanation::default() };
        let own = if self.scene.other_port { CLIENT + 1 } else { CLIENT };
        let key = FlowKey::Tcp(address(own), address(SERVER));
        let flow = Flow { key, from_start: false, coverage: Coverage::NONE };
        let end = BOOT + self.scene.begin + self.scene.rounds * ROUND;
        Seen { sightings: self.sightings, explanation, flow, events: self.events, end }
    }
}
