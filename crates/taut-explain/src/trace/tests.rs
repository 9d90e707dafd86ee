mod accepting;
mod bounds;
mod local;
mod losses;
mod radio;
mod stalls;
mod table;
mod threads;

use proptest::prelude::*;
use taut_event::{
    AckSentBy, Address, Call, Coverage, Direction as Way, Event, Flow, FlowId, FlowKey, Kind, Recovery, Release,
    SocketState, Stamp, Task, Timer, VantageId, What,
};
use taut_time::{ByteRange, Layer};

use super::*;
use crate::engine::Verdict;
use crate::engine::drawn::{assert_has_no_gaps, assert_is_of};

const FLOW: FlowId = FlowId(0);
const MS: u64 = 1_000_000;

fn flow() -> Flow {
    let address = |port| Address { ip: std::net::Ipv4Addr::LOCALHOST.into(), port };
    Flow { key: FlowKey::Tcp(address(4000), address(80)), from_start: false, coverage: Coverage::of(&[Kind::Tasks]) }
}

/// Hand-made events of one flow, at times in milliseconds.
struct Story(Trace);

impl Story {
    fn new() -> Self {
        let mut trace = Trace::new(5).with_spans(10_000);
        trace.flow(FLOW, &flow());
        Self(trace)
    }

    fn tell(&mut self, at_ms: u64, direction: Way, what: What, bytes: (u64, u64)) -> &mut Self {
        self.tell_ns(at_ms * MS, direction, what, bytes)
    }

    fn tell_ns(&mut self, at_ns: u64, direction: Way, what: What, bytes: (u64, u64)) -> &mut Self {
        self.0.event(&Event {
            at: Instant::from_nanos(at_ns),
            seen_by: VantageId(0),
            flow: FLOW,
            direction,
            layer: Layer::Socket,
            what,
            bytes: ByteRange::new(bytes.0, bytes.1),
            who: None,
            place: 0,
        });
        self
    }

    fn stamp(&mut self, at: u64, stamp: Stamp, bytes: (u64, u64)) -> &mut Self {
        let way = if matches!(stamp, Stamp::Received | Stamp::Read) { Way::Backward } else { Way::Forward };
        self.tell(at, way, What::Reached(stamp), bytes)
    }

    fn state(&mut self, at: u64, state: SocketState) -> &mut Self {
        self.tell(at, Way::Forward, What::State(state), (0, 0))
    }

    fn end(self, at: u64) -> TracedDirection {
        let traced = self.0.finish(Instant::from_nanos(at * MS));
        assert_eq!(traced.directions as usize, traced.worst.len());
        traced.worst.iter().for_each(assert_is_drawn);
        traced.worst.into_iter().find(|direction| direction.is_outgoing).unwrap()
    }
}

/// Its picture is its breakdown.
fn assert_is_drawn(direction: &TracedDirection) {
    let picture = direction.picture.as_ref().unwrap();
    assert_is_of(picture, &direction.breakdown, direction.span_ns);
    assert_has_no_gaps(picture);
    assert!(picture.spans.first().is_none_or(|first| first.begin_ns == direction.begin_ns), "{direction:#?}");
}

#[test]
fn a_connection_of_which_both_ends_are_traced_is_one() {
    let mut trace = Trace::new(5);
    let Flow { key: FlowKey::Tcp(own, peer), .. } = flow() else { panic!() };
    let other = Flow { key: FlowKey::Tcp(peer, own), ..flow() };
    for (id, flow) in [(0, flow()), (1, other)] {
        trace.flow(FlowId(id), &flow);
    }
    (0..2).for_each(|id| trace.close(FlowId(id), Closed::Ended));
    // The ports are used again.
    trace.flow(FLOW, &flow());
    assert_eq!(trace.finish(Instant::from_nanos(MS)).connections, 2);
}

/// Something is left to be read at one end when the ports are used again.
#[test]
fn what_is_left_of_a_connection_is_no_end_of_the_next_one() {
    let mut trace = Trace::new(5);
    let Flow { key: FlowKey::Tcp(own, peer), .. } = flow() else { panic!() };
    let other = Flow { key: FlowKey::Tcp(peer, own), ..flow() };
    for (id, flow) in [(0, flow()), (1, other), (2, flow()), (3, other)] {
        if id == 2 {
            trace.close(FlowId(0), Closed::Ended);
        }
        trace.flow(FlowId(id), &flow);
    }
    assert_eq!(trace.finish(Instant::from_nanos(MS)).connections, 2);
}

fn quiet() -> SocketState {
    SocketState {
        congestion_window_segments: 10,
        slow_start_threshold_segments: 5,
        send_window_bytes: Some(65_000),
        mss_bytes: 1448,
        no_delay: Some(false),
        cork: Some(false),
        small_in_flight: Some(false),
        ..SocketState::default()
    }
}

fn on_the_way(unsent: u32) -> SocketState {
    SocketState {
        unsent_bytes: unsent,
        in_flight_bytes: 48,
        in_flight_segments: 1,
        small_in_flight: Some(true),
        ..quiet()
    }
}

fn held_ms(direction: &TracedDirection) -> Vec<(&str, f64)> {
    direction.breakdown.iter().map(|held| (held.holder.as_str(), held.held_ns as f64 / 1e6)).collect()
}

fn found(direction: &TracedDirection) -> Vec<&str> {
    let found = direction.verdicts.iter().filter(|on| matches!(on.verdict, Verdict::Found(_)));
    found.map(|on| on.cause.as_str()).collect()
}

/// All is sent, and the end; the peer acknowledges both by its timer, and closes its side long after.
#[test]
fn what_is_left_after_the_end_counts_only_if_it_was_waited_for() {
    let ended = |in_flight_bytes| SocketState { is_ended: true, in_flight_bytes, ..quiet() };
    let story = |answers: bool, is_lost: bool| {
        let mut story = Story::new();
        story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
        story.stamp(1, Stamp::Scheduled, (0, 48)).state(1, on_the_way(0)).stamp(1, Stamp::WriteEnd, (0, 48));
        story.state(2, ended(48)).state(42, if is_lost { SocketState { timeouts: 1, ..ended(48) } } else { ended(0) });
        if answers {
            story.stamp(100, Stamp::Received, (0, 10)).state(100, ended(0));
        }
        story.state(300, ended(0));
        story.0.close(FLOW, Closed::Ended);
        story.end(300)
    };
    assert_eq!(held_ms(&story(false, false)), [("sending_program", 1.0), ("delivery", 1.0)]);
    // It had closed its own side only.
    assert_eq!(held_ms(&story(true, false)), [("peer_turn", 58.0), ("delivery", 41.0), ("sending_program", 1.0)]);
    // It was lost from the begin.
    let lost = story(false, true);
    assert_eq!(held_ms(&lost), [("retransmission_timeout", 299.0), ("sending_program", 1.0)]);
}

/// Two writes and a read, `times` over, beginning every 50 ms; the second write waits for the ACK when Nagle's
/// algorithm is on.
fn writes_and_reads(times: u64, is_nagle: bool) -> TracedDirection {
    let mut story = Story::new();
    for round in 0..times {
        let (at, byte) = (round * 50, round * 96);
        story.stamp(at, Stamp::WriteBegin, (byte, byte)).state(at, quiet());
        story.stamp(at, Stamp::Scheduled, (byte, byte + 48)).state(at, on_the_way(0));
        story.stamp(at, Stamp::WriteEnd, (byte, byte + 48)).state(at, on_the_way(0));
        story.stamp(at + 1, Stamp::WriteBegin, (byte + 48, byte + 48)).state(at + 1, on_the_way(0));
        if is_nagle {
            story.stamp(at + 1, Stamp::WriteEnd, (byte + 48, byte + 96)).state(at + 1, on_the_way(48));
            story
                .tell(at + 2, Way::Backward, What::Call(Call::Begin { number: 0 }), (0, 0))
                .state(at + 2, on_the_way(48));
            story
                .stamp(at + 42, Stamp::Acknowledged, (byte, byte + 48))
                .state(at + 42, SocketState { unsent_bytes: 48, ..quiet() });
            let by = Release::Acknowledgement(AckSentBy::DelayedAckTimer);
            story.tell(at + 42, Way::Forward, What::Released(by), (0, 0));
            story.stamp(at + 42, Stamp::Scheduled, (byte + 48, byte + 96)).state(at + 42, on_the_way(0));
        } else {
            story.stamp(at + 1, Stamp::Scheduled, (byte + 48, byte + 96)).state(at + 1, on_the_way(0));
            story.stamp(at + 1, Stamp::WriteEnd, (byte + 48, byte + 96)).state(at + 1, on_the_way(0));
        }
        story.stamp(at + 43, Stamp::Received, (round * 8, round * 8 + 8)).state(at + 43, quiet());
        story
            .tell(at + 43, Way::Backward, What::Call(Call::End { number: 0, result: 8 }), (0, 0))
            .state(at + 43, quiet());
    }
    story.end(times * 50)
}

#[test]
fn a_small_write_behind_another_one_is_held_by_nagle() {
    let direction = writes_and_reads(20, true);
    assert_eq!(direction.span_ns, 1000 * MS);
    assert_eq!(held_ms(&direction), [("nagle", 820.0), ("sending_program", 140.0), ("delivery", 40.0)]);
    assert_eq!(found(&direction), ["nagle_delayed_ack"]);
    assert_eq!((direction.writes, direction.held_writes, direction.median_held_ns), (40, 20, Some(41 * MS)));
    assert_eq!(direction.released.ack_by_delayed_ack_timer, 20);
    // One stretch each, though a read began in the middle of it.
    assert_eq!(direction.breakdown[0].episodes, 20);
    let Verdict::Found(nagle) = &direction.verdicts[0].verdict else { panic!() };
    let evidence: Vec<&str> = nagle.evidence.iter().map(|seen| seen.text.as_str()).collect();
    assert_eq!(
        evidence[0],
        "20 of 40 writes were still in the socket when the call came back, and stayed for 41.0 ms \
                             more (median), 41.0 ms at most."
    );
    assert_eq!(evidence[1], "Let go by an ACK 20 times (20 sent by the peer's delayed-ACK timer).");
    assert!(evidence[2].contains("48 bytes unsent, 48 bytes in flight in 1 segment,"), "{}", evidence[2]);
}

#[test]
fn without_nagle_the_same_writes_have_no_finding() {
    let direction = writes_and_reads(20, false);
    assert_eq!(held_ms(&direction), [("delivery", 860.0), ("sending_program", 140.0)]);
    assert!(found(&direction).is_empty());
    assert_eq!((direction.writes, direction.held_writes), (40, 0));
}

#[test]
fn a_time_without_anything_to_send_is_the_turn_of_who_ends_it() {
    let mut story = Story::new();
    story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
    story.stamp(0, Stamp::Scheduled, (0, 48)).state(0, on_the_way(0));
    story.stamp(2, Stamp::Acknowledged, (0, 48)).state(2, quiet());
    story.stamp(12, Stamp::Received, (0, 8)).state(12, quiet());
    story.stamp(15, Stamp::WriteBegin, (48, 48)).state(15, quiet());
    let direction = story.end(15);
    assert_eq!(held_ms(&direction), [("peer_turn", 10.0), ("sending_program", 3.0), ("delivery", 2.0)]);
}

#[test]
fn a_closed_window_is_the_receivers() {
    let mut story = Story::new();
    let closed = SocketState { unsent_bytes: 60_000, send_window_bytes: Some(0), send_buffer_full: true, ..quiet() };
    story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
    story.stamp(1, Stamp::Scheduled, (0, 64_000)).state(1, closed);
    story.stamp(500, Stamp::Acknowledged, (0, 64_000)).state(500, quiet());
    let direction = story.end(500);
    assert_eq!(direction.breakdown[0].side, "receiver");
    assert_eq!(found(&direction), ["receiving_program"]);
}

#[test]
fn a_full_send_buffer_is_told_where_nothing_else_holds() {
    let full = SocketState { in_flight_bytes: 4000, in_flight_segments: 3, send_buffer_full: true, ..quiet() };
    let told = |is_refused: bool, state: SocketState| {
        let mut story = Story::new();
        story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, state);
        if is_refused {
            story.tell(1, Way::Forward, What::Call(Call::End { number: 1, result: -11 }), (0, 0)).state(1, state);
        }
        story.stamp(300, Stamp::Acknowledged, (0, 4000)).state(300, quiet());
        story.stamp(300, Stamp::WriteEnd, (4000, 5000)).state(300, quiet());
        story.end(300)
    };
    for is_refused in [false, true] {
        let direction = told(is_refused, full);
        assert_eq!(held_ms(&direction), [("send_buffer", 300.0)]);
        assert_eq!((found(&direction), direction.refused_writes), (vec!["send_buffer"], u64::from(is_refused)));
    }
    assert!(found(&told(false, SocketState { send_buffer_full: false, ..full })).is_empty());
}

#[test]
fn pacing_has_what_it_keeps_and_no_more() {
    let mut story = Story::new();
    let paced = SocketState { unsent_bytes: 9000, pacing_wait_ns: 30_000_000, ..quiet() };
    story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, paced);
    story.tell(40, Way::Forward, What::Released(Release::Timer(Timer::Pacing)), (0, 0));
    story.stamp(40, Stamp::Scheduled, (0, 9000)).state(40, on_the_way(0));
    let direction = story.end(40);
    assert_eq!(held_ms(&direction), [("pacing", 30.0), ("not_known", 10.0)]);
    assert_eq!(found(&direction), ["pacing"]);
}

/// What is counted for all writes is no evidence of one cause.
#[test]
fn with_two_causes_the_writes_are_counted_for_both() {
    let mut story = Story::new();
    for (round, state) in [SocketState { cork: Some(true), ..on_the_way(48) }, on_the_way(48)].into_iter().enumerate() {
        let (at, byte) = (round as u64 * 1000, round as u64 * 48);
        story.stamp(at, Stamp::WriteBegin, (byte, byte)).state(at, state);
        story.stamp(at, Stamp::WriteEnd, (byte, byte + 48)).state(at, state);
        story.stamp(at + 500, Stamp::Scheduled, (byte, byte + 48)).state(at + 500, on_the_way(0));
    }
    let direction = story.end(2000);
    assert_eq!(found(&direction).len(), 2, "{direction:?}");
    let evidence = |at: usize| -> Vec<&str> {
        let Verdict::Found(found) = &direction.verdicts[at].verdict else { panic!("{direction:?}") };
        found.evidence.iter().map(|seen| seen.text.as_str()).collect()
    };
    assert!(evidence(0)[0].starts_with("All causes together: 2 of 2 writes "), "{:?}", evidence(0));
    assert!(evidence(1).iter().all(|line| !line.contains("writes") && !line.contains("Let go")), "{:?}", evidence(1));
}

#[test]
fn what_was_lost_is_nobodys_and_nothing_is_clear_then() {
    let mut story = Story::new();
    story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, on_the_way(48));
    story.tell(100, Way::Forward, What::Gap, (0, 0));
    story.stamp(100, Stamp::Scheduled, (0, 48)).state(100, on_the_way(0));
    let traced = story.0.finish(Instant::from_nanos(110 * MS));
    assert!(traced.causes.iter().all(|cause| (cause.found, cause.unknown) == (0, 1)), "{:?}", traced.causes);
    let direction = traced.worst.into_iter().find(|direction| direction.is_outgoing).unwrap();
    assert_eq!(held_ms(&direction), [("not_known", 100.0), ("delivery", 10.0)]);
    assert!(direction.verdicts.iter().all(|on| matches!(on.verdict, Verdict::Unknown { .. })));
    assert_eq!(traced.causes.len(), direction.verdicts.len());
    assert_eq!(direction.remarks.len(), 1);
}

#[test]
fn what_arrives_and_is_not_read_is_this_programs() {
    let mut story = Story::new();
    for round in 0..10 {
        let at = round * 100;
        story
            .stamp(at, Stamp::Received, (round * 8, round * 8 + 8))
            .state(at, SocketState { unread_bytes: 8, ..quiet() });
        story.stamp(at + 60, Stamp::Read, (round * 8, round * 8 + 8)).state(at + 60, quiet());
    }
    let traced = story.0.finish(Instant::from_nanos(1000 * MS));
    let inward = traced.worst.iter().find(|direction| !direction.is_outgoing).unwrap();
    assert_eq!(held_ms(inward), [("receiving_program", 600.0), ("peer_turn", 400.0)]);
    assert_eq!((found(inward), inward.bytes), (vec!["receiving_program"], 80));
}

/// Nobody told when it came, and nothing else may come.
#[test]
fn what_waited_before_the_trace_began_and_is_read_late_is_this_programs() {
    let mut story = Story::new();
    let unread = |unread_bytes| SocketState { unread_bytes, ..quiet() };
    story.state(0, unread(100));
    story.stamp(300, Stamp::Read, (0, 50)).state(300, unread(50));
    story.stamp(600, Stamp::Read, (50, 100)).state(600, unread(0));
    story.stamp(700, Stamp::Received, (100, 110)).state(700, unread(10));
    story.stamp(700, Stamp::Read, (100, 110)).state(700, unread(0));
    let traced = story.0.finish(Instant::from_nanos(1000 * MS));
    let [inward] = traced.worst.as_slice() else { panic!("{:#?}", traced.worst) };
    assert_eq!((held_ms(inward), inward.bytes), (vec![("receiving_program", 600.0), ("peer_turn", 400.0)], 110));
    assert_eq!(found(inward), ["receiving_program"]);
}

fn any_state() -> impl Strategy<Value = SocketState> {
    let numbers = (0_u32..3000, 0_u32..3000, 0_u32..100, 0_u32..20, 0_u32..20);
    let others = (prop::option::of(0_u32..5000), 0_u32..9_000_000, any::<[bool; 3]>());
    let recovery = prop::sample::select(vec![Recovery::None, Recovery::Repeating, Recovery::AfterTimeout]);
    let losses = (recovery, 0_u8..3, prop_oneof![Just(0_u32), 0_u32..3000]);
    (numbers, others, losses).prop_map(|(numbers, others, (recovery, timeouts, device_bytes))| {
        let (unsent, flight, unread, segments, window) = numbers;
        let (edge, pacing, [full, nodelay, cork]) = others;
        SocketState {
            recovery,
            timeouts,
            device_bytes,
            unsent_bytes: unsent,
            in_flight_bytes: flight,
            unread_bytes: unread,
            in_flight_segments: segments,
            congestion_window_segments: window,
            send_window_bytes: edge,
            mss_bytes: 1448,
            pacing_wait_ns: pacing,
            send_buffer_full: full,
            no_delay: Some(nodelay),
            cork: Some(cork),
            ..SocketState::default()
        }
    })
}

fn any_what() -> impl Strategy<Value = What> {
    let stamps = [
        Stamp::WriteBegin,
        Stamp::WriteEnd,
        Stamp::Scheduled,
        Stamp::Acknowledged,
        Stamp::Repeated,
        Stamp::Received,
        Stamp::Read,
    ];
    let others = [
        What::Call(Call::Begin { number: 0 }),
        What::Call(Call::End { number: 0, result: -11 }),
        What::Awaits,
        What::Accepted,
        What::Gap,
    ];
    let tasks = (0_u8..3, 0..30 * MS).prop_map(|(kind, waited_ns)| match kind {
        0 => Task::Ran { waited_ns },
        1 => Task::Polled { waited_ns },
        _ => Task::TimedOut { waited_ns },
    });
    prop_oneof![
        4 => prop::sample::select(stamps.to_vec()).prop_map(What::Reached),
        2 => prop::sample::select(others.to_vec()),
        1 => tasks.prop_map(What::Task),
        3 => any_state().prop_map(What::State),
    ]
}

proptest! {
    /// Whatever is reported, the parts of each direction add up to its time, to the nanosecond.
    #[test]
    fn the_parts_add_up(events in prop::collection::vec((0_u64..20, any::<bool>(), any_what(), 0_u64..100), 1..80)) {
        let mut story = Story::new();
        story.stamp(0, Stamp::Scheduled, (0, 1)).stamp(0, Stamp::Received, (0, 1));
        let mut at = 0;
        for (pause, is_forward, what, byte) in events {
            at += pause;
            story.tell(at, if is_forward { Way::Forward } else { Way::Backward }, what, (byte, byte + 10));
        }
        let traced = story.0.finish(Instant::from_nanos((at + 5) * MS));
        prop_assert_eq!(traced.worst.len(), 2);
        for direction in &traced.worst {
            prop_assert_eq!(direction.breakdown.iter().map(|held| held.held_ns).sum::<u64>(), direction.span_ns);
            prop_assert_eq!(direction.span_ns, (at + 5) * MS);
            assert_is_drawn(direction);
        }
    }
}

/// With as many short connections as one likes the pictures stay as small as allowed, and what is not drawn is counted.
#[test]
fn pictures_of_many_connections_are_bounded() {
    let mut trace = Trace::new(2).with_spans(64);
    for number in 0..200_u32 {
        trace.flow(FlowId(number), &flow());
    }
    for round in 0..100_u64 {
        for number in 0..200 {
            for (at, what) in [(10 * round, Stamp::WriteBegin), (10 * round + 1, Stamp::Scheduled)] {
                let event = Event {
                    at: Instant::from_nanos(at),
                    seen_by: VantageId(0),
                    flow: FlowId(number),
                    direction: Way::Forward,
                    layer: Layer::Socket,
                    what: What::Reached(what),
                    bytes: ByteRange::new(round, round + u64::from(what == Stamp::Scheduled)),
                    who: None,
                    place: 0,
                };
                let state = if what == Stamp::Scheduled { on_the_way(0) } else { quiet() };
                trace.event(&event);
                trace.event(&Event { what: What::State(state), ..event });
            }
        }
    }
    let traced = trace.finish(Instant::from_nanos(1_000));
    assert_eq!(traced.worst.len(), 2);
    for direction in &traced.worst {
        let picture = direction.picture.as_ref().unwrap();
        let drawn: u64 = picture.spans.iter().map(|span| span.held_ns).sum();
        assert!(picture.spans.len() <= 32 && picture.left_out > 0, "{picture:?}");
        assert_eq!(drawn + picture.left_out_ns, direction.span_ns);
    }
}
