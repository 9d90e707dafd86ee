//! Synthetic connections, seen at the sender: each cause where it stands, and a twin where it must not.

mod again;
mod blind;
mod clock;
mod edges;
mod end;
mod mid;
mod opening;
mod order;
mod stream;
mod table;
mod talk;
mod writes;

use proptest::prelude::*;
use taut_event::{
    Closed, Coverage, Direction as Way, Event, Flow, FlowId, FlowKey, Holder, Kind, Segment, SegmentFlags, Sink,
    TimestampOption, VantageId, What,
};
use taut_time::{ByteRange, Instant, Layer};

use super::drawn::assert_is_the_breakdown;
use super::{Direction, Engine, Explanation, Verdict};
use talk::{BACKWARD, FORWARD, MSS, Talk, address, faults, is_found, share, verdict};

/// A request in two writes, its second held for the peer's delayed ACK or not; an answer; a pause.
fn requests(nodelay: bool) -> Direction {
    let mut talk = Talk::open(2_000);
    let mut at = 5_000;
    for _ in 0..20 {
        talk.send(at, FORWARD, 40);
        if nodelay {
            talk.send(at + 30, FORWARD, 160);
            at += 30;
        } else {
            talk.ack(at + 42_000, BACKWARD);
            talk.send(at + 42_020, FORWARD, 160);
            at += 42_020;
        }
        talk.send(at + 2_100, BACKWARD, 100);
        talk.ack(at + 2_110, FORWARD);
        at += 10_000;
    }
    talk.forward()
}

#[test]
fn a_write_held_for_a_delayed_ack_is_nagles() {
    let held = requests(false);
    assert_eq!(faults(&held), ["nagle_delayed_ack"]);
    let Verdict::Found(found) = verdict(&held, "nagle_delayed_ack") else { unreachable!() };
    assert_eq!((found.cost.episodes, found.cost.held_ns), (20, 20 * 42_020_000));
    assert!(
        found.evidence.iter().any(|seen| seen.text.contains("40.0 ms late, the delayed-ACK timer of Linux (40 ms")),
        "{found:#?}"
    );
    // SYN, SYN/ACK, ACK, then the first request.
    assert_eq!(found.evidence[0].frames, Some([4, 6]));
}

#[test]
fn two_writes_that_leave_at_once_are_not() {
    let direction = requests(true);
    assert_eq!(faults(&direction), Vec::<&str>::new());
    assert_eq!(*verdict(&direction, "nagle_delayed_ack"), Verdict::Clear);
}

/// Small writes as often as acknowledgements come, so that each leaves just after one.
#[test]
fn small_segments_side_by_side_show_that_the_algorithm_is_off() {
    let mut talk = Talk::open(10_000);
    for turn in 0..100 {
        let at = 20_000 + turn * 10_000;
        talk.ack_up_to(at, BACKWARD, 1 + turn.saturating_sub(1) * 128);
        talk.send(at + 50, FORWARD, 128);
    }
    let direction = talk.forward();
    assert_eq!(share(&direction, Holder::Nagle), 0.0);
    assert_eq!(faults(&direction), Vec::<&str>::new());
}

/// So many segments a round trip, each round released by one acknowledgement.
fn bulk(talk: &mut Talk, begin: u64, round_trip: u64, rounds: u64, segments: impl Fn(u64) -> u64) {
    for round in 0..rounds {
        let at = begin + round * round_trip;
        if round > 0 {
            talk.ack(at - 30, BACKWARD);
        }
        (0..segments(round)).for_each(|segment| talk.send(at + segment, FORWARD, MSS));
    }
}

#[test]
fn a_full_window_that_stays_large_is_a_small_buffer() {
    let mut talk = Talk::open_with(20_000, 20 * MSS as u32);
    bulk(&mut talk, 20_040, 20_000, 50, |_| 20);
    let direction = talk.forward();
    assert!(share(&direction, Holder::ReceiveWindow) > 0.9, "{direction:#?}");
    assert_eq!(faults(&direction), ["receive_window"]);
    assert_eq!(direction.largest_window_bytes, Some(20 * MSS as u32));
}

/// As on loopback: a SYN grants 64 KiB, and the buffer is larger.
#[test]
fn a_window_that_grew_since_the_opening_did_not_shrink() {
    let mut talk = Talk::open_with(20_000, 1_000_000);
    bulk(&mut talk, 20_040, 20_000, 40, |round| if round == 0 { 44 } else { 684 });
    let direction = talk.forward();
    assert!(!is_found(&direction, "receiving_program"), "{direction:#?}");
    assert_eq!(share(&direction, Holder::ReceivingProgram), 0.0, "{direction:#?}");
    // What was in flight before the first window was scaled is no guess of its scale.
    let mut talk = Talk::open_with(20_000, 1_000_000);
    for round in 0..3 {
        (0..684).for_each(|segment| talk.send(20_040 + round * 20_000 + segment, FORWARD, MSS));
        talk.ack(40_030 + round * 20_000, BACKWARD);
    }
    let direction = talk.forward();
    assert_eq!(share(&direction, Holder::NotKnown), 0.0, "{direction:#?}");
    assert!(share(&direction, Holder::ReceiveWindow) > 0.2, "{direction:#?}");
}

#[test]
fn a_level_flight_below_the_window_is_the_send_buffer_or_congestion_control() {
    let mut talk = Talk::open(20_000);
    for round in 0..60 {
        let at = 20_040 + round * 20_000;
        if round > 0 {
            talk.ack(at - 30, BACKWARD);
        }
        // The last one of each round is short: nothing more was waiting.
        (0..19).for_each(|segment| talk.send(at + segment, FORWARD, MSS));
        talk.send(at + 19, FORWARD, MSS + 700);
    }
    let direction = talk.forward();
    assert!(share(&direction, Holder::SendBufferOrCongestion) > 0.7, "{direction:#?}");
    let Verdict::Unknown { ask, .. } = verdict(&direction, "send_buffer") else { panic!("{direction:#?}") };
    assert!(ask.contains("ss -tmi"));
    assert!(!is_found(&direction, "receive_window"));
}

#[test]
fn a_window_that_closes_is_the_reading_programs() {
    let mut talk = Talk::open(4_000);
    let mut at = 5_000;
    for _ in 0..5 {
        (0..20).for_each(|segment| talk.send(at + segment, FORWARD, MSS));
        talk.window = 0;
        talk.ack(at + 4_000, BACKWARD);
        // Probes, which are no losses: without data below what is acknowledged, and a byte beyond.
        let (next, mut probe) = (talk.next[FORWARD], talk.segment(FORWARD, 0));
        probe.window = 65_535;
        talk.event(at + 204_000, FORWARD, probe, ByteRange::new(next - 1, next - 1));
        talk.ack(at + 208_000, BACKWARD);
        talk.event(at + 304_000, FORWARD, probe, ByteRange::new(next, next + 1));
        talk.ack(at + 308_000, BACKWARD);
        talk.window = 1 << 20;
        talk.ack(at + 500_000, BACKWARD);
        at += 500_030;
    }
    talk.send(at, FORWARD, MSS);
    talk.ack(at + 4_000, BACKWARD);
    let direction = talk.forward();
    assert!(share(&direction, Holder::ReceivingProgram) > 0.95, "{direction:#?}");
    assert_eq!(faults(&direction), ["receiving_program"]);
    assert_eq!(direction.repeated_segments, 0);
    let Verdict::Found(found) = verdict(&direction, "receiving_program") else { unreachable!() };
    assert!(found.evidence[1].text.contains("closed 5 times. The sender probed it 10 times"), "{found:#?}");
}

#[test]
fn keep_alives_are_no_losses() {
    let mut talk = Talk::open(4_000);
    talk.send(5_000, FORWARD, 100);
    talk.ack(9_000, BACKWARD);
    for minute in 1..10 {
        // As Linux makes them, and with the byte that others put in.
        let (at, next) = (minute * 60_000_000, talk.next[FORWARD]);
        talk.again(at, FORWARD, next - 1, minute % 2);
        talk.ack(at + 4_000, BACKWARD);
    }
    talk.send(600_000_000, FORWARD, 100);
    talk.ack(600_004_000, BACKWARD);
    let direction = talk.forward();
    assert_eq!(direction.repeated_segments, 0);
    assert_eq!(faults(&direction), Vec::<&str>::new());
    assert!(share(&direction, Holder::SendingProgram) > 0.99);
}

/// Rounds of 20 segments of which one is lost now and then, and repaired after a round trip.
fn lossy(unseen: bool) -> Direction {
    let mut talk = Talk::open(20_000);
    let mut at = 20_040;
    for round in 0..40 {
        let lost = talk.next[FORWARD];
        (0..20).for_each(|segment| talk.send(at + segment, FORWARD, MSS));
        if round % 5 == 4 {
            talk.ack_up_to(at + 20_000, BACKWARD, lost);
            talk.again(at + 20_020, FORWARD, lost, MSS);
            at += 20_020;
        }
        if unseen && round == 20 {
            talk.next[FORWARD] += 3 * MSS;
        }
        talk.ack(at + 20_000, BACKWARD);
        at += 20_030;
    }
    talk.forward()
}

#[test]
fn repaired_losses_are_counted_and_their_time_is_theirs() {
    let direction = lossy(false);
    assert_eq!(direction.repeated_segments, 8);
    let Verdict::Found(found) = verdict(&direction, "loss") else { panic!("{direction:#?}") };
    // Eight repairs, each of two round trips of the 48.
    assert!((found.cost.share - 16.0 / 48.0).abs() < 0.03, "{found:#?}");
}

#[test]
fn with_holes_in_the_capture_losses_are_not_told() {
    let direction = lossy(true);
    assert!(matches!(verdict(&direction, "loss"), Verdict::Unknown { .. }), "{direction:#?}");
    assert!(direction.remarks.iter().any(|remark| remark.contains("4380 bytes")), "{:?}", direction.remarks);
}

#[test]
fn a_retransmission_after_a_long_silence_is_a_timeout() {
    let mut talk = Talk::open(20_000);
    let mut at = 20_040;
    for _ in 0..4 {
        let start = talk.next[FORWARD];
        talk.send(at, FORWARD, 1_000);
        talk.send(at + 5, FORWARD, 1_000);
        talk.again(at + 230_000, FORWARD, start, 1_000);
        talk.ack(at + 250_000, BACKWARD);
        at += 260_000;
    }
    talk.send(at, FORWARD, 1_000);
    talk.ack(at + 20_000, BACKWARD);
    let direction = talk.forward();
    assert!((share(&direction, Holder::RetransmissionTimeout) - 0.82).abs() < 0.04, "{direction:#?}");
    assert_eq!(faults(&direction), ["loss"]);
}

#[test]
fn what_is_sent_again_more_than_once_is_a_part_of_all_that_is_sent() {
    let mut talk = Talk::open(20_000);
    let start = talk.next[FORWARD];
    talk.send(20_040, FORWARD, 1_000);
    (1..=4).for_each(|time| talk.again(20_040 + time * time * 230_000, FORWARD, start, 1_000));
    talk.ack(20_040 + 16 * 230_000 + 20_000, BACKWARD);
    let direction = talk.forward();
    let Verdict::Found(found) = verdict(&direction, "loss") else { panic!("{direction:#?}") };
    assert_eq!(found.summary, "Packets were lost: 4 segments sent again, 80.0 % of all bytes sent");
}

#[test]
fn whose_turn_it_was_is_told_apart() {
    let mut talk = Talk::open(4_000);
    let mut at = 10_000;
    for _ in 0..20 {
        talk.send(at, FORWARD, 200);
        // The server thinks for 30 ms, then the client for 10.
        talk.send(at + 34_000, BACKWARD, 400);
        talk.ack(at + 34_010, FORWARD);
        at += 44_000;
    }
    let direction = talk.forward();
    let (peer, own) = (share(&direction, Holder::PeerTurn), share(&direction, Holder::SendingProgram));
    assert!((peer / own - 3.4).abs() < 0.1, "{peer} {own}");
    let Verdict::Found(found) = verdict(&direction, "peer_turn") else { panic!("{direction:#?}") };
    assert!(found.summary.contains("the peer took 30.0 ms"), "{}", found.summary);
    assert_eq!(faults(&direction), Vec::<&str>::new());
}

#[test]
fn a_window_that_doubles_is_slow_start_and_after_a_pause_again() {
    let mut talk = Talk::open(50_000);
    bulk(&mut talk, 50_040, 50_000, 6, |round| 10 << round);
    talk.ack(350_010, BACKWARD);
    bulk(&mut talk, 2_000_000, 50_000, 5, |round| 10 << round);
    let direction = talk.forward();
    assert!(is_found(&direction, "slow_start") && is_found(&direction, "slow_start_after_idle"), "{direction:#?}");
    // The twin: it goes on where it was.
    let mut talk = Talk::open(50_000);
    bulk(&mut talk, 50_040, 50_000, 6, |round| 10 << round);
    talk.ack(350_010, BACKWARD);
    bulk(&mut talk, 2_000_000, 50_000, 5, |_| 320);
    assert!(!is_found(&talk.forward(), "slow_start_after_idle"));
}

#[test]
fn a_round_trip_that_grows_with_the_flight_is_the_paths_queue() {
    let mut talk = Talk::open(5_000);
    let mut at = 5_040;
    for round in 0..40 {
        let flight = 10 + round;
        (0..flight).for_each(|segment| talk.send(at + segment, FORWARD, MSS));
        // A bottleneck of one segment a millisecond.
        at += 5_000 + flight * 1_000;
        talk.ack(at - 30, BACKWARD);
    }
    let direction = talk.forward();
    assert!(share(&direction, Holder::PathQueue) > 0.7, "{direction:#?}");
    assert_eq!(faults(&direction)[0], "path_queue");
}

#[test]
fn a_rest_kept_back_for_200_ms_is_corked() {
    let corked = |wait: u64| {
        let mut talk = Talk::open(1_000);
        let mut at = 2_000;
        for _ in 0..10 {
            talk.send(at, FORWARD, MSS);
            talk.ack(at + 1_000, BACKWARD);
            talk.send(at + wait, FORWARD, 300);
            talk.ack(at + wait + 1_000, BACKWARD);
            at += wait + 5_000;
        }
        talk.forward()
    };
    assert_eq!(faults(&corked(203_000)), ["cork"]);
    assert_eq!(faults(&corked(150_000)), Vec::<&str>::new());
}

#[test]
fn without_acknowledgements_nothing_is_known() {
    let mut talk = Talk::new(false);
    (0..50).for_each(|turn| talk.send(turn * 10_000, FORWARD, 500));
    let direction = talk.forward();
    assert_eq!(share(&direction, Holder::NotKnown), 1.0);
    assert!(direction.verdicts.iter().all(|on| matches!(on.verdict, Verdict::Unknown { .. })));
    assert!(direction.remarks[0].contains("Only one direction"));
}

#[test]
fn without_the_handshake_windows_are_not_told() {
    let mut talk = Talk::new(false);
    talk.ack(0, FORWARD);
    talk.ack(10, BACKWARD);
    bulk(&mut talk, 20_000, 20_000, 20, |_| 20);
    let direction = talk.forward();
    assert!(matches!(verdict(&direction, "receive_window"), Verdict::Unknown { .. }));
    assert_eq!(*verdict(&direction, "nagle_delayed_ack"), Verdict::Clear);
}

#[test]
fn a_repeated_opening_is_told() {
    let mut talk = Talk::new(true);
    let syn = Segment { flags: SegmentFlags(SegmentFlags::SYN), mss: 1460, ..Segment::default() };
    talk.event(0, FORWARD, syn, ByteRange::new(1, 1));
    talk.event(1_000_000, FORWARD, syn, ByteRange::new(1, 1));
    let answer = Segment { flags: SegmentFlags(SegmentFlags::SYN | SegmentFlags::ACK), ack: 1, mss: 1460, ..syn };
    talk.event(1_010_000, BACKWARD, answer, ByteRange::new(1, 1));
    talk.ack(1_010_020, FORWARD);
    talk.send(1_010_100, FORWARD, 100);
    talk.ack(1_020_100, BACKWARD);
    let direction = talk.forward();
    assert_eq!(faults(&direction), ["handshake_repeated"]);
    assert_eq!(direction.min_rtt_ns, 10_000_000);
}

#[test]
fn packets_that_a_capture_has_twice_count_once() {
    let mut talk = Talk::open(4_000);
    let next = talk.next[FORWARD];
    let segment = Segment { identification: Some(7), ..talk.segment(FORWARD, SegmentFlags::PSH) };
    talk.event(5_000, FORWARD, segment, ByteRange::new(next, next + 100));
    talk.event(5_040, FORWARD, segment, ByteRange::new(next, next + 100));
    // Later, and with another identification: that is a repetition.
    talk.next[FORWARD] += 100;
    talk.again(240_000, FORWARD, next, 100);
    talk.ack(244_000, BACKWARD);
    let explanation = talk.finish();
    assert_eq!((explanation.copies, explanation.worst[0].repeated_segments), (1, 1));
}

#[test]
fn a_closed_flow_makes_room_for_the_next_of_its_number() {
    let mut talk = Talk::open(4_000);
    talk.send(5_000, FORWARD, 100);
    talk.engine.close(FlowId(0), Closed::Replaced);
    let key = FlowKey::Tcp(address(1, 4001), address(2, 80));
    let flow = Flow { key, from_start: false, coverage: Coverage::of(&[Kind::Segments]) };
    talk.engine.flow(FlowId(0), &flow);
    talk.next = [1; 2];
    talk.send(6_000, FORWARD, 50);
    let explanation = talk.finish();
    assert_eq!((explanation.flows, explanation.directions), (2, 2));
    assert_eq!(explanation.worst.iter().map(|direction| direction.bytes).sum::<u64>(), 150);
}

#[derive(Clone, Debug)]
struct Random {
    after_us: i64,
    way: usize,
    start: u64,
    len: u64,
    ack: u64,
    window: u32,
    flags: u8,
    stamps: Option<(u32, u32)>,
    is_scaled: bool,
    came_twice: u32,
    /// Packets of its sender before it that did not pass.
    lacking: u16,
}

fn random() -> impl Strategy<Value = Random> {
    let numbers = (-2_000..300_000_i64, 0..2_usize, 0..20_000_u64, prop_oneof![Just(0), Just(1), 1..3_000_u64]);
    let rest = (0..22_000_u64, prop_oneof![Just(0), 0..60_000_u32], 0..32_u8, any::<Option<(u8, u8)>>(), any::<bool>());
    let others = (prop_oneof![3 => Just(0), 1 => 1..3_000_u32], prop_oneof![9 => Just(0), 1 => 1..4_u16]);
    let all = (numbers, rest, others);
    all.prop_map(|((after_us, way, start, len), (ack, window, flags, stamps, is_scaled), (came_twice, lacking))| {
        Random {
            after_us,
            way,
            start,
            len,
            ack,
            window,
            flags,
            stamps: stamps.map(|(value, echo)| (value.into(), echo.into())),
            is_scaled,
            came_twice,
            lacking,
        }
    })
}

fn run(packets: &[Random], swap: bool) -> Explanation {
    let mut engine = Engine::new(2).with_spans(1 << 12);
    let key = if swap { (address(1, 4000), address(2, 80)) } else { (address(9, 1), address(3, 65_535)) };
    let flow = Flow { key: FlowKey::Tcp(key.0, key.1), from_start: true, coverage: Coverage::of(&[Kind::Segments]) };
    engine.flow(FlowId(0), &flow);
    let mut at = 1_000_000_000_u64;
    let mut numbers = [0_u16; 2];
    for (index, packet) in packets.iter().enumerate() {
        numbers[packet.way] += 1 + packet.lacking;
        at = at.saturating_add_signed(packet.after_us * 1000);
        engine.event(&Event {
            at: Instant::from_nanos(at),
            seen_by: VantageId(0),
            flow: FlowId(0),
            direction: Way::BOTH[packet.way],
            layer: Layer::Medium,
            what: What::Segment(Segment {
                flags: SegmentFlags(packet.flags),
                window_is_scaled: packet.is_scaled,
                mss: if packet.flags & SegmentFlags::SYN > 0 { 1460 } else { 0 },
                window: packet.window,
                ack: packet.ack,
                sacked_to: 0,
                came_twice: packet.came_twice,
                is_subflow: false,
                timestamps: packet.stamps.map(|(value, echo)| TimestampOption { value, echo }),
                identification: Some(numbers[packet.way]),
            }),
            bytes: ByteRange::new(packet.start, packet.start + packet.len),
            who: None,
            place: index as u64 + 1,
        });
    }
    engine.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_passes_each_nanosecond_has_one_holder(packets in prop::collection::vec(random(), 1..120)) {
        let explanation = run(&packets, false);
        for direction in &explanation.worst {
            let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
            prop_assert_eq!(sum, direction.span_ns);
            assert_is_the_breakdown(direction);
            let all: i64 = packets.iter().map(|packet| packet.after_us.abs() * 1000).sum();
            prop_assert!(direction.span_ns <= all.unsigned_abs());
        }
        let totals: u64 = explanation.totals.iter().map(|held| held.held_ns).sum();
        let whole: u64 = explanation.worst.iter().map(|direction| direction.span_ns).sum();
        prop_assert_eq!(totals, whole);
    }

    #[test]
    fn who_the_ends_are_makes_no_difference(packets in prop::collection::vec(random(), 1..60)) {
        let strip = |explanation: Explanation| {
            let strip = |mut direction: Direction| {
                (direction.from, direction.to) = (String::new(), String::new());
                direction
            };
            (explanation.totals, explanation.worst.into_iter().map(strip).collect::<Vec<_>>())
        };
        prop_assert_eq!(strip(run(&packets, false)), strip(run(&packets, true)));
    }
}
