//! Channels made by hand, in the log of the sending host: each cause where it stands, and a twin where it must not.

mod attributes;
mod classic;
mod ends;
mod lacking;
mod links;
mod parts;
mod shared;
mod table;
mod turns;

use proptest::prelude::*;
use taut_event::{
    Acl, Channel as Kind, ChannelKey, Closed, Coverage, Direction as Way, Event, Flow, FlowId, FlowKey, Holder,
    Kind as Seen, L2cap, RadioLink, Sink, Turn, VantageId, What,
};
use taut_time::{ByteRange, Instant, Layer};

use crate::engine::drawn::assert_adds_up;
use crate::{Direction, Engine, Verdict};

const MS: u64 = 1_000_000;
/// Of 251 bytes on LE 1M, with its answer.
const CYCLE: u64 = 2_468_000;
const PDU: u16 = 251;

struct Talk {
    engine: Engine,
    frame: u64,
    at: u64,
    interval: u64,
    /// Of L2CAP; with the length of the SDU, that each packet begins here, where there is one.
    header: u16,
    position: [u64; 2],
}

impl Talk {
    fn new(kind: Kind, interval: u64, credits: u16, buffers: u16) -> Self {
        let mut engine = Engine::new(4).with_spans(1 << 12);
        let key = ChannelKey { adapter: 0, handle: 64, peer: Some([6, 5, 4, 3, 2, 1]), channel: kind };
        let coverage = Coverage::of(&[Seen::AclPackets, Seen::Handshake]);
        engine.flow(FlowId(0), &Flow { key: FlowKey::L2cap(key), from_start: true, coverage });
        let header = if kind == Kind::Att { 4 } else { 6 };
        let mut talk = Self { engine, frame: 0, at: 0, interval, header, position: [0; 2] };
        let link = RadioLink {
            interval_ns: interval,
            latency: 0,
            is_central: Some(true),
            phy: [1; 2],
            length: [251; 2],
            is_encrypted: false,
            from_start: true,
            sniff_ns: 0,
        };
        talk.say(0, Way::Forward, L2cap::Link(link));
        talk.say(0, Way::Forward, L2cap::Buffers { in_use: 0, of: buffers });
        if kind != Kind::Att {
            talk.say(0, Way::Forward, L2cap::Asked);
            let opened = L2cap::Opened { mtu: [672; 2], mps: [247; 2], credits: [credits; 2] };
            talk.say(interval, Way::Forward, opened);
        }
        talk
    }

    fn link(&mut self, at: u64, change: impl FnOnce(&mut RadioLink)) {
        let mut link = RadioLink {
            interval_ns: self.interval,
            is_central: Some(true),
            phy: [1; 2],
            length: [251; 2],
            from_start: true,
            ..RadioLink::default()
        };
        change(&mut link);
        self.say(at, Way::Forward, L2cap::Link(link));
    }

    fn say(&mut self, at: u64, direction: Way, what: L2cap) {
        self.frame += 1;
        self.at = at;
        let length = match what {
            L2cap::Packet(acl) => u64::from(acl.length.saturating_sub(self.header)),
            _ => 0,
        };
        let begin = self.position[direction.index()];
        self.position[direction.index()] += length;
        self.engine.event(&Event {
            at: Instant::from_nanos(1_000_000_000 + at),
            seen_by: VantageId(0),
            flow: FlowId(0),
            direction,
            layer: Layer::Driver,
            what: What::L2cap(what),
            bytes: ByteRange::new(begin, begin + length),
            who: None,
            place: self.frame,
        });
    }

    fn send(&mut self, at: u64, turn: Turn) {
        let acl = Acl { length: PDU, begins_pdu: true, ends_sdu: true, turn };
        self.say(at, Way::Forward, L2cap::Packet(acl));
    }

    fn comes(&mut self, at: u64, turn: Turn) {
        let acl = Acl { length: PDU, begins_pdu: true, ends_sdu: true, turn };
        self.say(at, Way::Backward, L2cap::Packet(acl));
    }

    fn completed(&mut self, at: u64) {
        self.say(at, Way::Forward, L2cap::Completed { packets: 1 });
    }

    fn hidden(&mut self, at: u64, of_link: bool, of_any: bool) {
        self.say(at, Way::Forward, L2cap::Hidden { of_link, of_any });
    }

    fn credits(&mut self, at: u64, count: u16) {
        self.say(at, Way::Forward, L2cap::Credits { count });
    }

    /// The first anchor after a moment.
    fn anchor(&self, at: u64) -> u64 {
        (at / self.interval + 1) * self.interval
    }

    fn ended(self, at: u64) -> Direction {
        self.ended_with(at, true)
    }

    fn ended_with(mut self, at: u64, tells_completions: bool) -> Direction {
        self.say(at, Way::Forward, L2cap::Ended { tells_completions });
        self.forward()
    }

    fn forward(self) -> Direction {
        let last = self.at;
        let explanation = self.engine.finish();
        for direction in &explanation.worst {
            let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
            assert_eq!(sum, direction.span_ns);
            assert!(direction.begin_ns + direction.span_ns <= last, "{direction:#?}");
        }
        explanation.worst.into_iter().find(|direction| direction.from == "hci0").expect("data went there")
    }
}

fn coc() -> Kind {
    Kind::CreditBased(0x80)
}

fn share(direction: &Direction, holder: Holder) -> f64 {
    direction.breakdown.iter().find(|held| held.holder == holder.name()).map_or(0.0, |held| held.share)
}

fn found(direction: &Direction) -> Vec<&str> {
    let is_found = |on: &&crate::VerdictOn| matches!(on.verdict, Verdict::Found(_));
    direction.verdicts.iter().filter(is_found).map(|on| on.cause.as_str()).collect()
}

fn evidence(direction: &Direction, cause: &str) -> String {
    let on = direction.verdicts.iter().find(|on| on.cause == cause).expect("all causes are told");
    match &on.verdict {
        Verdict::Found(found) => found.evidence.iter().map(|seen| seen.text.as_str()).collect::<Vec<_>>().join(" "),
        other => panic!("{cause}: {other:?}"),
    }
}

fn is_unknown(direction: &Direction, cause: &str) -> bool {
    let on = direction.verdicts.iter().find(|on| on.cause == cause).expect("all causes are told");
    matches!(on.verdict, Verdict::Unknown { .. })
}

/// Rounds of so many PDUs at 50 ms, each allowed by credits that come with the event after.
fn rounds(window: u16, granted: u16) -> Direction {
    let mut talk = Talk::new(coc(), 50 * MS, window, 20);
    let mut at = 50 * MS + MS;
    for _ in 0..30 {
        (0..granted).for_each(|_| talk.send(at, Turn::Free));
        let anchor = talk.anchor(at);
        (1..=u64::from(granted)).for_each(|n| talk.completed(anchor + n * CYCLE));
        at = anchor + 51 * MS;
        talk.credits(at - MS / 2, granted);
    }
    talk.forward()
}

#[test]
fn a_window_of_three_pdus_is_the_receivers() {
    let direction = rounds(3, 3);
    assert_eq!(found(&direction)[0], "credit_window");
    let credits = share(&direction, Holder::Credits);
    assert!(credits > 0.85, "{credits} {direction:#?}");
    // Three cycles a round of two intervals.
    let air = share(&direction, Holder::Air);
    assert!((air - 3.0 * 2.468 / 100.0).abs() < 0.01, "{air}");
}

#[test]
fn a_window_that_is_never_used_up_is_not() {
    let direction = rounds(60, 3);
    assert!(!found(&direction).contains(&"credit_window"), "{direction:#?}");
    assert!(share(&direction, Holder::Credits) < 0.01);
    // Nothing in the controller, credits left: the program did not write.
    assert!(share(&direction, Holder::SendingProgram) > 0.4);
}

/// The controller always has packets, of which so many go in an event of 30 ms; twelve would fit.
fn backlog(per_event: u64) -> Direction {
    exchanges(per_event, CYCLE, |_, _| ())
}

/// The same with exchanges of so many nanoseconds, and what else comes at the end of each.
fn exchanges(per_event: u64, cycle: u64, comes: impl Fn(&mut Talk, u64)) -> Direction {
    let mut talk = Talk::new(coc(), 30 * MS, 10_000, 20);
    let mut at = 31 * MS;
    (0..19).for_each(|_| talk.send(at, Turn::Free));
    for _ in 0..30 {
        let anchor = talk.anchor(at);
        for end in (1..=per_event).map(|n| anchor + n * cycle) {
            comes(&mut talk, end);
            talk.completed(end);
            talk.send(end + 1000, Turn::Free);
        }
        at = anchor + MS;
    }
    talk.forward()
}

#[test]
fn events_that_close_early_are_the_controllers() {
    let direction = backlog(1);
    assert_eq!(found(&direction)[0], "controller", "{direction:#?}");
    assert!(share(&direction, Holder::ConnectionInterval) > 0.85);
    assert!(share(&direction, Holder::Credits) < 0.01);
}

#[test]
fn full_events_are_not_and_a_faster_phy_helps() {
    let direction = backlog(12);
    assert_eq!(found(&direction)[0], "phy", "{direction:#?}");
    assert!(!found(&direction).contains(&"controller"));
    assert!(share(&direction, Holder::Air) > 0.9);
}

/// Writes with a response that takes so long after the request is through.
fn questions(think: u64) -> Direction {
    asked(30 * MS, think).forward()
}

/// The same at an interval.
fn asked(interval: u64, think: u64) -> Talk {
    let mut talk = Talk::new(Kind::Att, interval, 0, 20);
    let mut at = MS;
    for _ in 0..20 {
        talk.send(at, Turn::Asks);
        let through = talk.anchor(at) + CYCLE;
        talk.completed(through);
        at = through + think;
        talk.comes(at, Turn::Answers);
        at += MS / 10;
    }
    talk
}

#[test]
fn a_write_with_response_waits_for_the_peer() {
    let direction = questions(60 * MS);
    assert_eq!(found(&direction)[0], "peer_turn", "{direction:#?}");
    assert!(share(&direction, Holder::PeerTurn) > 0.6);
    assert!(share(&direction, Holder::SendingProgram) < 0.01);
}

/// Notifications, each handed over so long after the one before was through.
fn notifications(pause: u64) -> Direction {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 20);
    let mut at = MS;
    for _ in 0..20 {
        talk.send(at, Turn::Free);
        let through = talk.anchor(at) + CYCLE;
        talk.completed(through);
        at = through + pause;
    }
    talk.forward()
}

#[test]
fn a_notification_waits_for_nobody() {
    let direction = notifications(60 * MS);
    assert!(!found(&direction).contains(&"peer_turn"), "{direction:#?}");
    assert!(share(&direction, Holder::SendingProgram) > 0.5);
}

/// A controller with so many buffers, of which two are filled, sent in an event of 50 ms, and filled again after it.
fn twos(buffers: u16) -> Direction {
    let mut talk = Talk::new(coc(), 50 * MS, 10_000, buffers);
    let mut at = 51 * MS;
    for _ in 0..30 {
        (0..2).for_each(|_| talk.send(at, Turn::Free));
        talk.say(at, Way::Forward, L2cap::Buffers { in_use: 2, of: buffers });
        let anchor = talk.anchor(at);
        talk.say(anchor + CYCLE, Way::Forward, L2cap::Buffers { in_use: 1, of: buffers });
        talk.completed(anchor + CYCLE);
        talk.completed(anchor + 2 * CYCLE);
        at = anchor + 2 * CYCLE + MS / 10;
    }
    talk.forward()
}

#[test]
fn a_controller_with_two_buffers_runs_dry() {
    let small = twos(2);
    assert_eq!(found(&small)[0], "controller_buffers", "{small:#?}");
    assert!(!found(&twos(20)).contains(&"controller_buffers"));
}

/// A channel whose opening is not in the log, nor that of its link.
fn unopened() -> Direction {
    let mut engine = Engine::new(1);
    let key = ChannelKey { adapter: 0, handle: 1, peer: None, channel: Kind::Dynamic(0x40) };
    let coverage = Coverage::of(&[Seen::AclPackets]);
    engine.flow(FlowId(0), &Flow { key: FlowKey::L2cap(key), from_start: false, coverage });
    let mut talk = Talk { engine, frame: 0, at: 0, interval: 30 * MS, header: 6, position: [0; 2] };
    for n in 0..30 {
        talk.send(n * 60 * MS, Turn::Free);
        talk.completed(n * 60 * MS + 20 * MS);
    }
    talk.forward()
}

#[test]
fn without_the_opening_credits_can_not_be_told() {
    let direction = unopened();
    let on = direction.verdicts.iter().find(|on| on.cause == "credit_window").unwrap();
    assert!(matches!(on.verdict, Verdict::Unknown { .. }), "{on:?}");
    // Nobody can tell then whether the program had nothing or might not send.
    assert!(!found(&direction).contains(&"sending_program"));
    assert!(share(&direction, Holder::NotKnown) > 0.5 && share(&direction, Holder::SendingProgram) == 0.0);
}

fn any_what() -> impl Strategy<Value = L2cap> {
    let turn = prop_oneof![Just(Turn::Free), Just(Turn::Asks), Just(Turn::Answers), Just(Turn::NotKnown)];
    let turn = prop_oneof![turn, Just(Turn::Indicates), Just(Turn::Confirms)];
    prop_oneof![
        Just(L2cap::Asked),
        (any::<u16>(), any::<u16>(), 0_u16..20).prop_map(|(a, b, c)| L2cap::Opened {
            mtu: [a; 2],
            mps: [b; 2],
            credits: [c; 2]
        }),
        (any::<u16>(), any::<bool>(), any::<bool>(), turn).prop_map(|(length, begins_pdu, ends_sdu, turn)| {
            L2cap::Packet(Acl { length, begins_pdu, ends_sdu, turn })
        }),
        (0_u16..300).prop_map(|packets| L2cap::Completed { packets }),
        any::<u16>().prop_map(|count| L2cap::Credits { count }),
        Just(L2cap::Lost),
        Just(L2cap::Classic),
        Just(L2cap::NotCounted),
        any::<bool>().prop_map(|is_stopped| L2cap::Stopped { is_stopped }),
        (any::<u16>(), any::<u32>()).prop_map(|(sequence, timestamp)| L2cap::Media { sequence, timestamp }),
        any::<u32>().prop_map(|hz| L2cap::Stream { hz }),
        any::<bool>().prop_map(|tells_completions| L2cap::Ended { tells_completions }),
        (0_u16..9, 0_u16..9).prop_map(|(in_use, of)| L2cap::Buffers { in_use, of }),
        (0_u64..5_000 * MS, 0_u8..5, any::<u16>()).prop_map(|(interval_ns, phy, length)| L2cap::Link(RadioLink {
            interval_ns,
            phy: [phy; 2],
            length: [length; 2],
            from_start: true,
            ..RadioLink::default()
        })),
    ]
}

proptest! {
    /// Whatever happens, in whatever order and with a clock that steps back, the parts add up to the whole.
    #[test]
    fn all_time_is_booked(
        events in prop::collection::vec((0_u64..200 * MS, any::<bool>(), any_what()), 1..80),
        kind in prop::sample::select(vec![
            Kind::Att, coc(), Kind::Rfcomm(2), Kind::Basic(1), Kind::Media(0x40), Kind::Unopened(0x40),
        ]),
    ) {
        let mut talk = Talk::new(kind, 30 * MS, 3, 4);
        let mut last = 0;
        for (step, is_forward, what) in events {
            last = (last + step).saturating_sub(20 * MS);
            talk.say(last, if is_forward { Way::Forward } else { Way::Backward }, what);
        }
        talk.engine.close(FlowId(0), Closed::Over);
        for direction in talk.engine.finish().worst {
            let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
            prop_assert_eq!(sum, direction.span_ns);
            assert_adds_up(&direction);
        }
    }
}
