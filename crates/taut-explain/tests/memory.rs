//! What connections take, as the allocator counts it: bounded for each, however long it lasts.

#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use taut_event::{
    Address, Coverage, Direction, Event, Flow, FlowId, FlowKey, Kind, Segment, SegmentFlags, Sink, TimestampOption,
    VantageId, What,
};
use taut_explain::Engine;
use taut_time::{ByteRange, Instant, Layer};

struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is done by the system's allocator; only the sum of lengths is kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller of this function promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller of this function promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const FLOWS: u32 = 200;
const MSS: u64 = 1448;

/// One packet of each connection in turn: its opening, then two segments and their acknowledgement over and over.
/// With `both`, the server answers with as much data.
fn step(engine: &mut Engine, number: u64, both: bool) {
    for flow in 0..FLOWS {
        let index = number * u64::from(FLOWS) + u64::from(flow);
        let (round, phase) = (number.saturating_sub(3) / 3, number.saturating_sub(3) % 3);
        let sent = 1 + (2 * round + phase.min(2)) * MSS;
        let answered = 1 + if both { round * MSS } else { 0 };
        let (from_client, flags, begin, ack, length) = match (number, phase) {
            (0, _) => (true, SegmentFlags::SYN, 1, 0, 0),
            (1, _) => (false, SegmentFlags::SYN | SegmentFlags::ACK, 1, 1, 0),
            (2, _) => (true, SegmentFlags::ACK, 1, 1, 0),
            (_, 2) => (false, SegmentFlags::ACK, answered, sent, if both { MSS } else { 0 }),
            _ => (true, SegmentFlags::ACK, sent, answered, MSS),
        };
        let stamp = (index * 150_000 / 1_000_000) as u32;
        engine.event(&Event {
            at: Instant::from_nanos(index * 150_000),
            seen_by: VantageId(0),
            flow: FlowId(flow),
            direction: if from_client { Direction::Forward } else { Direction::Backward },
            layer: Layer::Medium,
            what: What::Segment(Segment {
                flags: SegmentFlags(flags),
                window_is_scaled: true,
                mss: if number < 2 { 1460 } else { 0 },
                window: 65_535,
                ack,
                timestamps: Some(TimestampOption { value: stamp, echo: stamp.saturating_sub(30) }),
                identification: Some(number as u16 | 1),
                ..Segment::default()
            }),
            bytes: ByteRange::new(begin, begin + length),
            who: None,
            place: index + 1,
        });
    }
}

#[test]
fn a_connection_takes_little_and_no_more_the_longer_it_lasts() {
    for (both, most) in [(false, 5_400), (true, 7_000)] {
        let before = TAKEN.load(Ordering::Relaxed);
        let per_flow = || (TAKEN.load(Ordering::Relaxed) - before) / FLOWS as usize;
        let mut engine = Engine::new(1);
        for flow in 0..FLOWS {
            let end = |ip: u8, port| Address { ip: Ipv4Addr::new(10, 0, 0, ip).into(), port };
            let key = FlowKey::Tcp(end(1, flow as u16), end(2, 80));
            let coverage = Coverage::of(&[Kind::Segments, Kind::Handshake]);
            engine.flow(FlowId(flow), &Flow { key, from_start: true, coverage });
        }
        (0..600).for_each(|number| step(&mut engine, number, both));
        let young = per_flow();
        (600..3_000).for_each(|number| step(&mut engine, number, both));
        let old = per_flow();
        assert!(old <= most, "{old} B a connection");
        assert!(old <= young + young / 20, "{young} B after 600 packets, {old} B after 3,000");
    }
}
