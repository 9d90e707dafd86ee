//! Flows of UDP made by hand: each cause where it stands, and a twin where it must not.

mod streams;

use proptest::prelude::*;
use taut_event::{
    Address, Closed, ConnectionId, Content, Coverage, Datagram, Direction as Way, Event, Flow, FlowId, FlowKey, Holder,
    Kind, QuicLong, Sink, VantageId, What,
};
use taut_time::{ByteRange, Instant, Layer};

use crate::engine::drawn::assert_is_the_breakdown;
use crate::{Direction, Engine, Explanation, Verdict};

const MS: u64 = 1_000_000;

struct Talk {
    engine: Engine,
    frame: u64,
}

impl Talk {
    fn new() -> Self {
        let mut engine = Engine::new(4).with_spans(1 << 12);
        let address = |last| Address { ip: [10, 0, 0, last].into(), port: 4000 };
        let key = FlowKey::Udp(address(1), address(2));
        let coverage = Coverage::of(&[Kind::Datagrams]);
        engine.flow(FlowId(0), &Flow { key, from_start: false, coverage });
        Self { engine, frame: 0 }
    }

    /// A datagram, of so many bytes and with a payload of its own.
    fn send(&mut self, at: u64, way: Way, length: u64) {
        let hash = self.frame as u32;
        self.say(at, way, length, Datagram { hash: Some(hash), ..OTHER });
    }

    fn say(&mut self, at: u64, direction: Way, length: u64, datagram: Datagram) {
        self.frame += 1;
        self.engine.event(&Event {
            at: Instant::from_nanos(at),
            seen_by: VantageId(0),
            flow: FlowId(0),
            direction,
            layer: Layer::Medium,
            what: What::Datagram(datagram),
            bytes: ByteRange::new(0, length),
            who: None,
            place: self.frame,
        });
    }

    fn finish(mut self) -> Explanation {
        self.engine.close(FlowId(0), Closed::EndOfSource);
        self.engine.finish()
    }

    /// The direction of what was sent first.
    fn forward(self) -> Direction {
        self.finish().worst.into_iter().find(|direction| direction.from == "10.0.0.1:4000").unwrap()
    }
}

const OTHER: Datagram = Datagram { hash: None, first: Some(0), is_fragmented: false, content: Content::Other };

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

/// Even noise, up to a millisecond.
fn noise(n: u64) -> u64 {
    n * 7_919 % 1_009 * 1_000
}

/// A request, its answer after 20 ms and more, and the next request 5 ms after that.
#[test]
fn who_asks_again_after_each_answer_waits_for_the_peer() {
    let mut talk = Talk::new();
    let (mut at, mut waited) = (0, 0);
    for n in 0..40 {
        talk.send(at, Way::Forward, 100);
        let answer = 20 * MS + 10 * noise(n);
        talk.send(at + answer, Way::Backward, 400);
        waited += answer;
        at += answer + 5 * MS;
    }
    let explanation = talk.finish();
    let [client, server] = &explanation.worst[..] else { panic!("{explanation:#?}") };
    let (client, server) = if client.bytes < server.bytes { (client, server) } else { (server, client) };
    assert_eq!((ns(client, Holder::PeerTurn), ns(client, Holder::SendingProgram)), (waited, 39 * 5 * MS));
    assert_eq!(client.span_ns, at - 5 * MS);
    assert_eq!(found(client), ["peer_turn", "sending_program"]);
    let facts = client.datagrams.as_ref().unwrap();
    assert_eq!((facts.answers, facts.protocol.as_str(), facts.bits_per_second > 0), (40, "udp", true));
    // The other way round: its own time is the answer's, and its turn is even, so it can't be told.
    assert_eq!(ns(server, Holder::SendingProgram), waited - (20 * MS));
    assert_eq!(ns(server, Holder::NotKnown), 39 * 5 * MS);
    assert!(matches!(verdict(server, "peer_turn"), Verdict::Unknown { .. }), "{server:#?}");
}

/// Both send each 20 ms, as voice does, whatever the other one does.
#[test]
fn who_sends_by_a_clock_waits_for_nobody() {
    let mut talk = Talk::new();
    for n in 0..100 {
        talk.send(n * 20 * MS + noise(n) / 10, Way::Forward, 172);
        talk.send(n * 20 * MS + 7 * MS + noise(n + 500), Way::Backward, 172);
    }
    let explanation = talk.finish();
    assert_eq!(explanation.directions, 2);
    for direction in &explanation.worst {
        assert_eq!(ns(direction, Holder::PeerTurn), 0, "{direction:#?}");
        assert_eq!(*verdict(direction, "udp_no_answer"), Verdict::Clear);
    }
    let exact = explanation.worst.iter().find(|direction| direction.from == "10.0.0.1:4000").unwrap();
    assert_eq!(ns(exact, Holder::SendingProgram), exact.span_ns);
}

#[test]
fn a_few_turns_are_not_known_and_one_way_is_the_programs() {
    let mut talk = Talk::new();
    talk.send(0, Way::Forward, 48);
    talk.send(30 * MS, Way::Backward, 48);
    let direction = talk.forward();
    assert_eq!((ns(&direction, Holder::NotKnown), direction.span_ns), (30 * MS, 30 * MS));
    assert!(matches!(verdict(&direction, "peer_turn"), Verdict::Unknown { .. }));
    let mut talk = Talk::new();
    (0..50).for_each(|n| talk.send(n * 10 * MS, Way::Forward, 1000));
    let direction = talk.forward();
    assert_eq!((ns(&direction, Holder::SendingProgram), direction.span_ns), (490 * MS, 490 * MS));
    assert!(direction.remarks.iter().any(|remark| remark.contains("other way")), "{direction:#?}");
    assert_eq!(direction.datagrams.unwrap().bits_per_second, 50 * 8_000_000 * 1000 / 490_000);
}

/// As RADIUS, CoAP and SIP do: the same datagram again, until it is answered.
#[test]
fn what_is_sent_again_after_silence_had_no_answer() {
    let mut talk = Talk::new();
    let mut at = 0;
    for n in 0..10 {
        let datagram = Datagram { hash: Some(n), ..OTHER };
        talk.say(at, Way::Forward, 60, datagram);
        if n % 4 == 3 {
            talk.say(at + 2000 * MS, Way::Forward, 60, datagram);
            at += 2000 * MS;
        }
        talk.send(at + 10 * MS, Way::Backward, 60);
        at += 100 * MS;
    }
    let direction = talk.forward();
    assert_eq!(ns(&direction, Holder::Unanswered), 4000 * MS);
    assert_eq!(found(&direction)[0], "udp_no_answer");
    let Verdict::Found(found) = verdict(&direction, "udp_no_answer") else { unreachable!() };
    assert_eq!((found.cost.episodes, found.evidence[0].frames), (2, Some([7, 8])));
    assert_eq!(direction.repeated_segments, 2);
}

/// A heartbeat has the same payload each time, and nobody answers it; a copy of the capture comes at once.
#[test]
fn the_same_payload_by_its_nature_is_no_second_try() {
    for answers in [0, 2] {
        let mut talk = Talk::new();
        for n in 0..50 {
            talk.say(n * 1000 * MS, Way::Forward, 8, Datagram { hash: Some(1), ..OTHER });
            if n < answers {
                talk.send(n * 1000 * MS + MS, Way::Backward, 8);
            }
        }
        let direction = talk.forward();
        assert_eq!(ns(&direction, Holder::Unanswered), 0);
        assert!(matches!(verdict(&direction, "udp_no_answer"), Verdict::Unknown { .. }), "{direction:#?}");
    }
    let mut talk = Talk::new();
    for n in 0..20 {
        let datagram = Datagram { hash: Some(n as u32), ..OTHER };
        [0, MS / 10].iter().for_each(|later| talk.say(n * 500 * MS + later, Way::Forward, 8, datagram));
        talk.send(n * 500 * MS + 9 * MS, Way::Backward, 8);
    }
    assert_eq!(*verdict(&talk.forward(), "udp_no_answer"), Verdict::Clear);
    // Of a payload that was not kept nobody can say that it is the same.
    let mut talk = Talk::new();
    for n in 0..20 {
        talk.say(n * 500 * MS, Way::Forward, 8, OTHER);
        talk.send(n * 500 * MS + 9 * MS, Way::Backward, 8);
        talk.say(n * 500 * MS + 200 * MS, Way::Forward, 8, OTHER);
    }
    assert_eq!(*verdict(&talk.forward(), "udp_no_answer"), Verdict::Clear);
}

fn initial() -> Datagram {
    let destination = ConnectionId::new(&[0xab, 1]).unwrap();
    Datagram { first: Some(0xc3), content: Content::Quic(QuicLong { version: 1, destination }), ..OTHER }
}

/// Of 10,000 flows each byte here is 10 kB.
#[test]
fn what_a_flow_takes_without_any_data_stays_small() {
    assert!(size_of::<super::Datagrams>() <= 768, "{}", size_of::<super::Datagrams>());
}

#[test]
fn quic_has_a_handshake_a_spin_bit_and_the_rest_is_not_known() {
    let mut talk = Talk::new();
    talk.say(0, Way::Forward, 1200, initial());
    talk.say(20 * MS, Way::Backward, 1200, initial());
    talk.say(21 * MS, Way::Forward, 1200, initial());
    for n in 0..200_u64 {
        let spin = if n / 20 % 2 == 0 { 0x20 } else { 0 };
        let short = Datagram { first: Some(0x41 | spin), ..OTHER };
        talk.say(22 * MS + n * MS, Way::Forward, 1000, short);
        talk.say(22 * MS + n * MS + MS / 2, Way::Backward, 40, short);
    }
    let direction = talk.forward();
    assert_eq!((ns(&direction, Holder::Handshake), ns(&direction, Holder::NotKnown)), (22 * MS, 199 * MS));
    assert_eq!(direction.span_ns, 221 * MS);
    assert!(found(&direction).is_empty() && *verdict(&direction, "handshake_repeated") == Verdict::Clear);
    assert!(matches!(verdict(&direction, "peer_turn"), Verdict::Unknown { .. }));
    let quic = direction.datagrams.unwrap().quic.unwrap();
    assert_eq!((quic.version.as_str(), quic.connection_id.as_str(), quic.spin_rtt_ns), ("1", "ab01", Some(20 * MS)));
}

/// A firewall that drops UDP: the client tries again and again, and then takes TCP.
#[test]
fn an_opening_of_quic_that_nobody_answers_is_found() {
    let opening = |answer: Option<Way>| {
        let mut talk = Talk::new();
        [0, 300, 900].iter().for_each(|at| talk.say(at * MS, Way::Forward, 1200, initial()));
        if let Some(way) = answer {
            talk.say(950 * MS, way, 100, Datagram { first: Some(0x41), ..OTHER });
        }
        talk.forward()
    };
    let blocked = opening(None);
    assert_eq!((found(&blocked), ns(&blocked, Holder::Handshake)), (vec!["handshake_repeated"], 900 * MS));
    assert!(found(&opening(Some(Way::Backward))).is_empty());
    // The capture has one direction only: there were answers, or no keys.
    assert!(found(&opening(Some(Way::Forward))).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Each nanosecond has one holder: from the first datagram to the last one, or to what came after it.
    #[test]
    fn the_parts_add_up_to_the_whole(
        sent in prop::collection::vec((0..3_000_u64, any::<bool>(), 0..3_u32, any::<u8>()), 1..80),
        is_quic in any::<bool>(),
    ) {
        let mut talk = Talk::new();
        let (mut at, mut first, mut last, mut end) = (0, [None; 2], [0; 2], 0);
        for (index, (later, is_forward, hash, byte)) in sent.iter().enumerate() {
            at += later * MS / 10;
            let way = if *is_forward { Way::Forward } else { Way::Backward };
            let datagram = Datagram { hash: Some(*hash), first: Some(*byte), ..OTHER };
            let datagram = if is_quic && index == 2 { initial() } else { datagram };
            talk.say(at, way, 10, datagram);
            first[way.index()].get_or_insert(at);
            last[way.index()] = at;
            end = at;
        }
        let explanation = talk.finish();
        for direction in explanation.worst {
            let way = usize::from(direction.from != "10.0.0.1:4000");
            let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
            prop_assert_eq!(sum, direction.span_ns);
            assert_is_the_breakdown(&direction);
            let begin = first[way].unwrap();
            let whole = [last[way] - begin, end - begin];
            prop_assert!(whole.contains(&sum), "{} of {:?}", sum, whole);
        }
    }
}
