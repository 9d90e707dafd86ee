//! Logs of QUIC made by hand: each cause where it stands, and a twin where it must not.

use proptest::prelude::*;
use taut_event::{
    Closed, ConnectionId, Coverage, Direction as Way, Event, Flow, FlowId, FlowKey, Holder, Kind, Quic, QuicCongestion,
    QuicKey, QuicMetric, QuicPacket, Sink, VantageId, What,
};
use taut_time::{ByteRange, Instant, Layer};

use crate::engine::drawn::assert_is_the_breakdown;
use crate::{Direction, Engine, Explanation, Verdict};

const MS: u64 = 1_000_000;

struct Log {
    engine: Engine,
    place: u64,
    number: u64,
}

impl Log {
    fn new() -> Self {
        let mut engine = Engine::new(4).with_spans(1 << 12);
        let key = FlowKey::Quic(QuicKey { id: ConnectionId::new(&[0xab, 1]).unwrap() });
        let coverage = Coverage::of(&[Kind::QuicEvents]);
        engine.flow(FlowId(0), &Flow { key, from_start: true, coverage });
        Self { engine, place: 0, number: 0 }
    }

    /// A handshake of 20 ms, with room for so many bytes in flight, if that is logged.
    fn opened(window: Option<u64>) -> Self {
        let mut log = Self::new();
        log.tell(0, Quic::Role { is_client: true });
        let opening = QuicPacket { length: 1200, is_ack_eliciting: true, has_frames: true, ..QuicPacket::default() };
        log.say(0, Way::Forward, Quic::Packet(opening), 0);
        log.say(20 * MS, Way::Backward, Quic::Packet(opening), 0);
        if let Some(window) = window {
            log.tell(20 * MS, Quic::Metric(QuicMetric::Window, window));
            log.tell(20 * MS, Quic::Metric(QuicMetric::SmoothedRtt, 20 * MS));
        }
        log
    }

    fn say(&mut self, at: u64, direction: Way, what: Quic, bytes: u64) {
        self.place += 1;
        self.engine.event(&Event {
            at: Instant::from_nanos(at),
            seen_by: VantageId(0),
            flow: FlowId(0),
            direction,
            layer: Layer::Medium,
            what: What::Quic(what),
            bytes: ByteRange::new(0, bytes),
            who: None,
            place: self.place,
        });
    }

    fn tell(&mut self, at: u64, what: Quic) {
        self.say(at, Way::Forward, what, 0);
    }

    /// A packet with so much data; its number.
    fn send(&mut self, at: u64, bytes: u64) -> u64 {
        let number = self.number;
        self.number += 1;
        self.say(at, Way::Forward, Quic::Packet(data(number, bytes)), bytes);
        number
    }

    fn receive(&mut self, at: u64, bytes: u64) {
        self.say(at, Way::Backward, Quic::Packet(data(0, bytes)), bytes);
    }

    fn acknowledge(&mut self, at: u64, number: u64) {
        self.tell(at, Quic::Acknowledged { from: 0, to: number });
    }

    fn finish(mut self) -> Explanation {
        self.engine.close(FlowId(0), Closed::EndOfSource);
        self.engine.finish()
    }

    /// What the end that logs sends.
    fn own(self) -> Direction {
        let is_own = |direction: &Direction| {
            direction.datagrams.as_ref().unwrap().quic.as_ref().unwrap().log.as_ref().unwrap().is_own
        };
        let direction = self.finish().worst.into_iter().find(is_own).unwrap();
        assert_is_the_breakdown(&direction);
        direction
    }
}

fn data(number: u64, bytes: u64) -> QuicPacket {
    QuicPacket {
        number,
        length: bytes as u32 + 30,
        is_application: true,
        is_ack_eliciting: true,
        is_probe: false,
        has_frames: true,
        takes_turn: true,
    }
}

fn ns(direction: &Direction, holder: Holder) -> u64 {
    direction.breakdown.iter().find(|held| held.holder == holder.name()).map_or(0, |held| held.held_ns)
}

fn verdict<'a>(direction: &'a Direction, cause: &str) -> &'a Verdict {
    &direction.verdicts.iter().find(|on| on.cause == cause).unwrap().verdict
}

fn found(direction: &Direction) -> Vec<&str> {
    let is_found = |verdict: &Verdict| matches!(verdict, Verdict::Found(_));
    direction.verdicts.iter().filter(|on| is_found(&on.verdict)).map(|on| on.cause.as_str()).collect()
}

fn is_unknown(direction: &Direction, cause: &str) -> bool {
    matches!(verdict(direction, cause), Verdict::Unknown { .. })
}

/// Ten packets at once, and the next ten when these are acknowledged 20 ms later.
fn bulk(mut log: Log) -> Log {
    for round in 0..10 {
        let at = 21 * MS + round * 20 * MS;
        let newest = (0..10).map(|_| log.send(at, 1170)).last().unwrap();
        log.acknowledge(at + 20 * MS, newest);
    }
    log
}

#[test]
fn a_full_congestion_window_is_found_and_one_with_room_is_not() {
    let full = bulk(Log::opened(Some(12_000))).own();
    assert_eq!(ns(&full, Holder::Handshake), 21 * MS);
    assert_eq!((ns(&full, Holder::CongestionWindow), full.span_ns), (200 * MS, 221 * MS), "{full:#?}");
    assert_eq!(found(&full), ["congestion_window"]);
    // Twice as much would go: what is between is the program's, as long as pacing can't be.
    let room = bulk(Log::opened(Some(240_000))).own();
    assert_eq!(ns(&room, Holder::CongestionWindow), 0);
    assert_eq!((found(&room), verdict(&room, "congestion_window")), (vec!["sending_program"], &Verdict::Clear));
    // Whoever never says that he is blocked may be.
    assert!(is_unknown(&room, "receive_window"));
}

#[test]
fn without_a_congestion_window_nobody_can_tell_it_from_the_program() {
    let blind = bulk(Log::opened(None)).own();
    assert_eq!((ns(&blind, Holder::NotKnown), found(&blind)), (200 * MS, vec![]), "{blind:#?}");
    assert!(is_unknown(&blind, "congestion_window") && is_unknown(&blind, "path_queue"));
    // With nothing in flight no such window holds anything, whatever it is.
    let mut log = Log::opened(None);
    for n in 0..10 {
        let number = log.send((30 + n * 100) * MS, 100);
        log.acknowledge((50 + n * 100) * MS, number);
    }
    let calm = log.own();
    assert_eq!((ns(&calm, Holder::NotKnown), ns(&calm, Holder::SendingProgram)), (0, 900 * MS), "{calm:#?}");
    assert_eq!(*verdict(&calm, "congestion_window"), Verdict::Clear);
}

#[test]
fn a_full_window_that_still_doubles_or_stands_in_a_queue_has_its_own_name() {
    let mut log = Log::opened(Some(12_000));
    log.tell(20 * MS, Quic::Congestion(QuicCongestion::SlowStart));
    let slow = bulk(log).own();
    assert_eq!((found(&slow), ns(&slow, Holder::SlowStart)), (vec!["slow_start"], 200 * MS));
    for (latest, holder) in [(26, Holder::PathQueue), (14, Holder::CongestionWindow)] {
        let mut log = Log::opened(Some(12_000));
        log.tell(20 * MS, Quic::Metric(QuicMetric::LeastRtt, 10 * MS));
        log.tell(20 * MS, Quic::Metric(QuicMetric::LatestRtt, latest * MS));
        assert_eq!(ns(&bulk(log).own(), holder), 200 * MS, "{latest}");
    }
}

#[test]
fn a_receivers_limit_holds_until_it_is_raised() {
    let story = |is_blocked: bool, until: Option<u64>| {
        let mut log = Log::opened(Some(120_000));
        let number = log.send(30 * MS, 1000);
        if is_blocked {
            log.tell(30 * MS, Quic::Blocked { stream: Some(0), limit: 1000 });
        }
        log.acknowledge(50 * MS, number);
        // The connection's limit is another one, and the same limit once more opens nothing.
        log.tell(60 * MS, Quic::Allowed { stream: None, limit: 9000 });
        log.tell(60 * MS, Quic::Allowed { stream: Some(0), limit: 1000 });
        if let Some(until) = until {
            log.tell(until * MS, Quic::Allowed { stream: Some(0), limit: 2000 });
            let number = log.send((until + 10) * MS, 1000);
            log.acknowledge((until + 30) * MS, number);
        } else {
            log.tell(930 * MS, Quic::Ended);
        }
        log.own()
    };
    let raised = story(true, Some(430));
    assert_eq!((ns(&raised, Holder::ReceiveWindow), ns(&raised, Holder::SendingProgram)), (400 * MS, 10 * MS));
    assert_eq!((found(&raised), raised.span_ns), (vec!["receive_window"], 460 * MS), "{raised:#?}");
    let never = story(true, None);
    assert_eq!((ns(&never, Holder::ReceiveWindow), never.span_ns), (900 * MS, 930 * MS));
    let free = story(false, Some(430));
    assert_eq!((ns(&free, Holder::ReceiveWindow), found(&free)), (0, vec!["sending_program"]));
}

#[test]
fn losses_hold_until_a_later_packet_arrives_and_probes_are_theirs() {
    let mut log = Log::opened(Some(120_000));
    log.send(30 * MS, 1000);
    let second = log.send(30 * MS, 1000);
    log.tell(55 * MS, Quic::Acknowledged { from: second, to: second });
    log.send(56 * MS, 900);
    log.tell(60 * MS, Quic::Lost { number: 0, is_application: true });
    let again = log.send(60 * MS, 1000);
    log.tell(380 * MS, Quic::Acknowledged { from: again, to: again });
    let lossy = log.own();
    // The program wrote again only at 56 ms, with room left.
    assert_eq!(found(&lossy), ["loss", "sending_program"]);
    assert_eq!((ns(&lossy, Holder::LossRecovery), ns(&lossy, Holder::SendingProgram)), (320 * MS, 30 * MS));

    // The last packet is lost, and a probe goes when the timer says so; or the program had nothing to send meanwhile.
    for is_probe in [true, false] {
        let mut log = Log::opened(Some(120_000));
        log.send(30 * MS, 1000);
        if is_probe {
            log.tell(330 * MS, Quic::TimerExpired);
        }
        let newest = log.send(330 * MS, 1000);
        log.acknowledge(350 * MS, newest);
        let direction = log.own();
        let expected =
            if is_probe { ("loss", Holder::TailLossProbe) } else { ("sending_program", Holder::SendingProgram) };
        assert_eq!((found(&direction), ns(&direction, expected.1)), (vec![expected.0], 300 * MS));
    }
}

#[test]
fn what_arrives_after_all_was_overtaken_and_not_lost() {
    let mut log = Log::opened(Some(120_000));
    let number = log.send(30 * MS, 1000);
    log.send(30 * MS, 1000);
    log.tell(40 * MS, Quic::Lost { number, is_application: true });
    log.acknowledge(50 * MS, 1);
    let direction = log.own();
    let facts = direction.datagrams.unwrap().quic.unwrap().log.unwrap();
    assert_eq!((facts.lost_packets, facts.spurious_losses), (Some(1), Some(1)));
}

#[test]
fn who_waits_for_an_answer_waits_for_the_peer() {
    let mut log = Log::opened(Some(12_000));
    for n in 0..5 {
        let at = (30 + n * 400) * MS;
        let number = log.send(at, 100);
        log.acknowledge(at + 20 * MS, number);
        log.receive(at + 350 * MS, 500);
    }
    let asked = log.own();
    assert_eq!((ns(&asked, Holder::PeerTurn), ns(&asked, Holder::SendingProgram)), (5 * 350 * MS, 4 * 50 * MS));
    assert_eq!(found(&asked), ["peer_turn", "sending_program"]);
    assert!(!asked.verdicts.iter().any(|on| on.cause == "loss" && on.verdict != Verdict::Clear));
}

#[test]
fn a_known_pace_has_its_time_and_an_unknown_one_may_have() {
    let story = |rate: Option<u64>| {
        let mut log = Log::opened(Some(12_000));
        if let Some(rate) = rate {
            log.tell(20 * MS, Quic::Metric(QuicMetric::PacingRate, rate));
        }
        for n in 0..20 {
            let number = log.send(30 * MS + n * 2 * MS, 1170);
            if n >= 4 {
                log.acknowledge(30 * MS + n * 2 * MS + MS, number - 4);
            }
        }
        log.own()
    };
    // 1200 bytes take 2 ms.
    let known = story(Some(4_800_000));
    assert_eq!(ns(&known, Holder::Pacing), 38 * MS, "{known:#?}");
    assert_eq!(found(&known), ["congestion_window"]);
    let unknown = story(None);
    assert_eq!((ns(&unknown, Holder::SendingProgram), ns(&unknown, Holder::NotKnown) >= 38 * MS), (0, true));
    assert!(unknown.remarks.iter().any(|remark| remark.contains("pacing")), "{unknown:#?}");
}

#[test]
fn a_handshake_that_is_said_again_is_found_and_a_long_one_is_not() {
    for is_repeated in [true, false] {
        let mut log = Log::new();
        let opening = QuicPacket { length: 1200, is_ack_eliciting: true, has_frames: true, ..QuicPacket::default() };
        log.say(0, Way::Forward, Quic::Packet(opening), 0);
        log.tell(0, Quic::Metric(QuicMetric::Window, 12_000));
        if is_repeated {
            log.tell(900 * MS, Quic::TimerExpired);
            log.say(900 * MS, Way::Forward, Quic::Packet(QuicPacket { number: 1, ..opening }), 0);
        }
        log.say(1000 * MS, Way::Backward, Quic::Packet(opening), 0);
        let number = log.send(1000 * MS, 100);
        log.acknowledge(1020 * MS, number);
        let direction = log.own();
        assert_eq!(ns(&direction, Holder::Handshake), 1000 * MS);
        let expected: &[&str] = if is_repeated { &["handshake_repeated"] } else { &[] };
        assert_eq!(found(&direction), expected, "{direction:#?}");
    }
}

#[test]
fn of_what_the_other_end_sends_only_its_limits_are_known() {
    let mut log = Log::opened(Some(12_000));
    log.receive(30 * MS, 1000);
    log.say(30 * MS, Way::Backward, Quic::Blocked { stream: None, limit: 1000 }, 0);
    log.say(330 * MS, Way::Backward, Quic::Allowed { stream: None, limit: 2000 }, 0);
    log.receive(350 * MS, 1000);
    let explanation = log.finish();
    let other = explanation.worst.iter().find(|direction| direction.from == "server").unwrap();
    assert_eq!((ns(other, Holder::ReceiveWindow), ns(other, Holder::NotKnown)), (300 * MS, 20 * MS), "{other:#?}");
    assert_eq!(found(other), ["receive_window"]);
    assert!(is_unknown(other, "loss") && is_unknown(other, "sending_program"));
}

#[test]
fn packets_without_frames_tell_nothing_of_their_data() {
    let mut log = Log::opened(Some(12_000));
    for n in 0..10 {
        let packet = QuicPacket { has_frames: false, is_ack_eliciting: false, ..data(n, 100) };
        log.say((30 + n * 50) * MS, Way::Forward, Quic::Packet(packet), 0);
    }
    let direction = log.own();
    assert_eq!((found(&direction), ns(&direction, Holder::NotKnown)), (vec![], 450 * MS), "{direction:#?}");
    assert!(is_unknown(&direction, "loss") && is_unknown(&direction, "sending_program"));
}

fn any_event() -> impl Strategy<Value = Quic> {
    let packet = (0..40_u64, any::<[bool; 5]>(), 0..2000_u32).prop_map(|(number, is, length)| {
        let [is_application, is_ack_eliciting, is_probe, has_frames, takes_turn] = is;
        Quic::Packet(QuicPacket { number, length, is_application, is_ack_eliciting, is_probe, has_frames, takes_turn })
    });
    let stream = prop::option::of(0..3_u64);
    let metrics = [
        QuicMetric::InFlight,
        QuicMetric::Window,
        QuicMetric::SmoothedRtt,
        QuicMetric::LatestRtt,
        QuicMetric::LeastRtt,
        QuicMetric::PacingRate,
    ];
    prop_oneof![
        6 => packet,
        2 => (0..40_u64, 0..8_u64).prop_map(|(from, more)| Quic::Acknowledged { from, to: from + more }),
        1 => (0..40_u64, any::<bool>()).prop_map(|(number, is_application)| Quic::Lost { number, is_application }),
        1 => Just(Quic::TimerExpired),
        1 => (stream.clone(), 0..9_u64).prop_map(|(stream, limit)| Quic::Blocked { stream, limit }),
        1 => (stream, 0..9_u64).prop_map(|(stream, limit)| Quic::Allowed { stream, limit }),
        2 => (prop::sample::select(metrics.to_vec()), prop_oneof![0..30_000_u64, any::<u64>()])
            .prop_map(|(metric, value)| Quic::Metric(metric, value)),
        1 => Just(Quic::Congestion(QuicCongestion::SlowStart)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Each nanosecond has one holder, whatever is logged and in whatever order.
    #[test]
    fn the_parts_add_up_to_the_whole(
        events in prop::collection::vec((0..50_u64, any::<bool>(), any_event(), 0..2000_u64), 1..120),
    ) {
        let mut log = Log::new();
        let mut at = 0;
        for (later, is_own, event, bytes) in &events {
            at += later * MS / 10;
            let bytes = if matches!(event, Quic::Packet(_)) { *bytes } else { 0 };
            log.say(at, if *is_own { Way::Forward } else { Way::Backward }, *event, bytes);
        }
        for direction in log.finish().worst {
            let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
            prop_assert_eq!(sum, direction.span_ns);
            prop_assert!(sum <= at);
            assert_is_the_breakdown(&direction);
        }
    }
}
