//! A connection told packet by packet, and what is asked of what was found in it.

use std::net::{IpAddr, Ipv4Addr};

use taut_event::{
    Address, Coverage, Direction as Way, Event, Flow, FlowId, FlowKey, Holder, Kind, Segment, SegmentFlags, Sink,
    TimestampOption, VantageId, What,
};
use taut_time::{ByteRange, Instant, Layer};

use crate::engine::drawn::assert_is_the_breakdown;
use crate::engine::{Direction, Engine, Explanation, Verdict};

pub(super) const MSS: u64 = 1460;
pub(super) const FORWARD: usize = 0;
pub(super) const BACKWARD: usize = 1;

/// A connection as its packets pass; times in microseconds.
pub(super) struct Talk {
    pub(super) engine: Engine,
    pub(super) next: [u64; 2],
    pub(super) window: u32,
    frame: u64,
    identification: [u16; 2],
}

pub(super) fn address(last: u8, port: u16) -> Address {
    Address { ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), port }
}

impl Talk {
    pub(super) fn new(handshake: bool) -> Self {
        let mut engine = Engine::new(4).with_spans(1 << 18);
        let kinds: &[Kind] = if handshake { &[Kind::Segments, Kind::Handshake] } else { &[Kind::Segments] };
        let key = FlowKey::Tcp(address(1, 4000), address(2, 80));
        engine.flow(FlowId(0), &Flow { key, from_start: handshake, coverage: Coverage::of(kinds) });
        Self { engine, next: [1; 2], window: 1 << 20, frame: 0, identification: [0; 2] }
    }

    /// Opened at 0, over a path of this round trip.
    pub(super) fn open(round_trip: u64) -> Self {
        Self::open_with(round_trip, 1 << 20)
    }

    pub(super) fn open_with(round_trip: u64, window: u32) -> Self {
        let mut talk = Self::new(true);
        talk.window = window;
        let syn = |flags, ack| Segment {
            flags: SegmentFlags(flags),
            window_is_scaled: true,
            mss: MSS as u16,
            window: window.min(65_535),
            ack,
            ..Segment::default()
        };
        talk.event(0, FORWARD, syn(SegmentFlags::SYN, 0), ByteRange::new(1, 1));
        talk.event(round_trip, BACKWARD, syn(SegmentFlags::SYN | SegmentFlags::ACK, 1), ByteRange::new(1, 1));
        talk.ack(round_trip + 20, FORWARD);
        talk
    }

    pub(super) fn event(&mut self, at: u64, way: usize, segment: Segment, bytes: ByteRange) {
        self.frame += 1;
        self.identification[way] += 1;
        let identification = segment.identification.or(Some(self.identification[way]));
        self.engine.event(&Event {
            at: Instant::from_nanos(1_000_000_000 + at * 1000),
            seen_by: VantageId(0),
            flow: FlowId(0),
            direction: Way::BOTH[way],
            layer: Layer::Medium,
            what: What::Segment(Segment { identification, ..segment }),
            bytes,
            who: None,
            place: self.frame,
        });
    }

    pub(super) fn segment(&self, way: usize, flags: u8) -> Segment {
        Segment {
            flags: SegmentFlags(SegmentFlags::ACK | flags),
            window_is_scaled: true,
            window: self.window,
            ack: self.next[1 - way],
            ..Segment::default()
        }
    }

    pub(super) fn send(&mut self, at: u64, way: usize, len: u64) {
        let start = self.next[way];
        self.next[way] += len;
        let flags = if len.is_multiple_of(MSS) { 0 } else { SegmentFlags::PSH };
        self.event(at, way, self.segment(way, flags), ByteRange::new(start, start + len));
    }

    /// A segment with timestamps, or one of the opening.
    pub(super) fn stamped(&mut self, at: u64, way: usize, flags: u8, len: u64, stamps: (u32, u32)) {
        let (start, ack) = (self.next[way], self.next[1 - way]);
        self.next[way] += len;
        self.stamped_range(at, way, flags, ByteRange::new(start, start + len), ack, stamps);
    }

    pub(super) fn stamped_range(
        &mut self,
        at: u64,
        way: usize,
        flags: u8,
        bytes: ByteRange,
        ack: u64,
        (value, echo): (u32, u32),
    ) {
        let segment = Segment { ack, timestamps: Some(TimestampOption { value, echo }), ..self.segment(way, flags) };
        let is_syn = flags & SegmentFlags::SYN != 0;
        let flags = if is_syn && way == FORWARD { SegmentFlags(flags) } else { segment.flags };
        let mss = if is_syn { MSS as u16 } else { segment.mss };
        self.event(at, way, Segment { flags, mss, ..segment }, bytes);
    }

    /// Sends bytes again.
    pub(super) fn again(&mut self, at: u64, way: usize, start: u64, len: u64) {
        self.event(at, way, self.segment(way, 0), ByteRange::new(start, start + len));
    }

    /// Acknowledges all that came from the other side.
    pub(super) fn ack(&mut self, at: u64, way: usize) {
        self.ack_up_to(at, way, self.next[1 - way]);
    }

    pub(super) fn ack_up_to(&mut self, at: u64, way: usize, ack: u64) {
        let start = self.next[way];
        self.event(at, way, Segment { ack, ..self.segment(way, 0) }, ByteRange::new(start, start));
    }

    pub(super) fn finish(self) -> Explanation {
        let explanation = self.engine.finish();
        for direction in &explanation.worst {
            let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
            assert_eq!(sum, direction.span_ns, "{direction:#?}");
            assert_is_the_breakdown(direction);
        }
        explanation
    }

    /// The direction of the client's data.
    pub(super) fn forward(self) -> Direction {
        let from = address(1, 4000).to_string();
        self.finish().worst.into_iter().find(|direction| direction.from == from).expect("data went there")
    }
}

pub(super) fn share(direction: &Direction, holder: Holder) -> f64 {
    direction.breakdown.iter().find(|held| held.holder == holder.name()).map_or(0.0, |held| held.share)
}

pub(super) fn verdict<'a>(direction: &'a Direction, cause: &str) -> &'a Verdict {
    &direction.verdicts.iter().find(|on| on.cause == cause).unwrap().verdict
}

pub(super) fn is_found(direction: &Direction, cause: &str) -> bool {
    matches!(verdict(direction, cause), Verdict::Found(_))
}

/// The causes that were found, but for what programs do.
pub(super) fn faults(direction: &Direction) -> Vec<&str> {
    let found = direction.verdicts.iter().filter(|on| matches!(on.verdict, Verdict::Found(_)));
    found.map(|on| on.cause.as_str()).filter(|cause| !["peer_turn", "sending_program"].contains(cause)).collect()
}
