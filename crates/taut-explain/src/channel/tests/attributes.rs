//! What goes over attributes of ATT, as the log tells it beside the packets.

use taut_event::{Att, AttKind};

use super::*;
use crate::engine::{GattFacts, GattHandle};

/// A log of PDUs of ATT on a link of 30 ms.
struct Bearer {
    talk: Talk,
}

impl Bearer {
    fn new() -> Self {
        Self { talk: Talk::new(Kind::Att, 30 * MS, 0, 8) }
    }

    fn pdu(&mut self, at: u64, way: Way, kind: AttKind, handle: Option<u16>, bytes: u16) {
        let turn = match kind {
            AttKind::Indication => Turn::Indicates,
            AttKind::Confirmation => Turn::Confirms,
            AttKind::Notification | AttKind::WriteCommand => Turn::Free,
            AttKind::MtuRequest { .. } | AttKind::ReadRequest | AttKind::WriteRequest => Turn::Asks,
            _ => Turn::Answers,
        };
        let acl = Acl { length: bytes + 7, begins_pdu: true, ends_sdu: true, turn };
        self.talk.say(at, way, L2cap::Packet(acl));
        self.talk.say(at, way, L2cap::Att(Att { kind, handle, bytes }));
        if way == Way::Forward {
            self.talk.completed(at + MS);
        }
    }

    fn reads(&mut self, at: u64) {
        self.pdu(at, Way::Forward, AttKind::ReadRequest, Some(0x10), 0);
    }

    fn comes(&mut self, at: u64, kind: AttKind) {
        self.pdu(at, Way::Backward, kind, None, if kind == AttKind::ReadResponse { 20 } else { 0 });
    }

    fn forward(self) -> Direction {
        self.talk.forward()
    }
}

fn gatt(direction: &Direction) -> &GattFacts {
    direction.channel.as_ref().unwrap().gatt.as_ref().unwrap()
}

fn row<'a>(direction: &'a Direction, kind: &str) -> &'a GattHandle {
    gatt(direction).handles.iter().find(|row| row.kind == kind).unwrap()
}

/// A read waits 100 ms of each 150 ms for its answer, while an indication of the same end is confirmed in 10 ms.
#[test]
fn a_request_and_an_indication_of_one_end_are_two_transactions() {
    let mut bearer = Bearer::new();
    for n in 0..50 {
        let at = 100 * MS + n * 150 * MS;
        bearer.reads(at);
        bearer.pdu(at + 20 * MS, Way::Forward, AttKind::Indication, Some(0x20), 10);
        bearer.comes(at + 30 * MS, AttKind::Confirmation);
        bearer.comes(at + 100 * MS, AttKind::ReadResponse);
    }
    let direction = bearer.forward();
    let (read, indication) = (row(&direction, "read"), row(&direction, "indication"));
    assert_eq!((read.bytes, read.turn_p50_ns, read.limits[0].as_str()), (1000, Some(100 * MS), "turn"));
    assert_eq!((indication.turn_p50_ns, indication.limits[0].as_str()), (Some(10 * MS), "program"));
    // From the indication, which could have gone before, to the read's answer.
    assert_eq!(found(&direction)[0], "peer_turn", "{direction:#?}");
    assert!((share(&direction, Holder::PeerTurn) - 79.0 / 150.0).abs() < 0.02, "{direction:#?}");
}

/// Four handles are read back to back: each is at rest for three quarters of the time, and the program never.
#[test]
fn handles_that_are_read_in_turn_are_limited_by_turns() {
    let mut bearer = Bearer::new();
    for n in 0..80 {
        let at = 100 * MS + n * 20 * MS;
        bearer.pdu(at, Way::Forward, AttKind::ReadRequest, Some(0x10 + n as u16 % 4), 0);
        bearer.comes(at + 19 * MS, AttKind::ReadResponse);
    }
    let direction = bearer.forward();
    let limits: Vec<&str> = gatt(&direction).handles.iter().map(|row| row.limits[0].as_str()).collect();
    assert_eq!(limits, ["turn"; 4]);
}

/// The same with more handles than are followed.
#[test]
fn turns_of_handles_that_are_not_followed_count_too() {
    let limits = |handles: u64, rests: u64| {
        let mut bearer = Bearer::new();
        for n in 0..10 * handles {
            let at = 100 * MS + n * 20 * MS;
            bearer.pdu(at, Way::Forward, AttKind::ReadRequest, Some(0x10 + (n % handles) as u16), 0);
            bearer.comes(at + (20 - rests) * MS, AttKind::ReadResponse);
        }
        let direction = bearer.forward();
        let gatt = gatt(&direction);
        assert_eq!((gatt.handles.len(), gatt.beyond), (128, 10 * (handles - 128)));
        let mut all: Vec<String> = gatt.handles.iter().flat_map(|row| row.limits.first().cloned()).collect();
        all.dedup();
        all
    };
    assert_eq!(limits(400, 1), ["turn"]);
    assert_eq!(limits(400, 19), ["program"]);
}

/// The first 128 handles are those of one direction, and all of the other one come behind them.
#[test]
fn what_goes_over_further_handles_is_counted_by_direction() {
    let mut bearer = Bearer::new();
    for round in 0..4 {
        for n in 0..135 {
            let at = 100 * MS + (round * 135 + n) * MS;
            match n as u16 {
                handle @ 0..130 => bearer.pdu(at, Way::Forward, AttKind::WriteCommand, Some(handle), 10),
                handle => bearer.pdu(at, Way::Backward, AttKind::Notification, Some(handle), 10),
            }
        }
    }
    let explanation = bearer.talk.engine.finish();
    let of = |from: &str| {
        let direction = explanation.worst.iter().find(|direction| (direction.from == "hci0") == (from == "hci0"));
        gatt(direction.unwrap())
    };
    assert_eq!((of("hci0").handles.len(), of("hci0").beyond), (128, 2 * 4));
    assert_eq!((of("peer").handles.len(), of("peer").beyond), (0, 5 * 4));
}

#[test]
fn an_mtu_is_agreed_on_with_the_answer_only() {
    let after = |exchange: &[(Way, AttKind)]| {
        let mut bearer = Bearer::new();
        for (at, &(way, kind)) in (1..).map(|n| n * 30 * MS).zip(exchange) {
            bearer.pdu(at, way, kind, None, 2);
        }
        bearer.reads(500 * MS);
        bearer.comes(530 * MS, AttKind::ReadResponse);
        let direction = bearer.forward();
        (gatt(&direction).att_mtu_bytes, gatt(&direction).is_mtu_exchanged)
    };
    let asks = |mtu: u16| (Way::Forward, AttKind::MtuRequest { mtu });
    let peer_asks = (Way::Backward, AttKind::MtuRequest { mtu: 247 });
    let answers = |mtu: u16| (Way::Backward, AttKind::MtuResponse { mtu });
    let refuses = (Way::Backward, AttKind::Error { of: 0x02, code: 6 });
    assert_eq!(after(&[asks(100), answers(60)]), (60, true));
    assert_eq!(after(&[asks(517), answers(0)]), (23, true));
    assert_eq!(after(&[asks(247), refuses, peer_asks]), (23, false));
    assert_eq!(after(&[asks(247)]), (23, false));
    assert_eq!(after(&[asks(247), refuses, answers(247)]), (23, false));
    assert_eq!(after(&[peer_asks, (Way::Forward, AttKind::MtuResponse { mtu: 185 })]), (185, true));
}

/// Writes without answers, of so many bytes each, on a link whose begin the log has or not.
fn writes(bytes: u16, from_start: bool) -> Bearer {
    let mut bearer = Bearer::new();
    bearer.talk.link(0, |link| link.from_start = from_start);
    for n in 0..50 {
        bearer.pdu(100 * MS + n * 11 * MS / 10, Way::Forward, AttKind::WriteCommand, Some(0x10), bytes);
    }
    bearer
}

fn mtu(direction: &Direction) -> (u16, bool, bool) {
    let gatt = gatt(direction);
    (gatt.att_mtu_bytes, gatt.is_mtu_exchanged, gatt.is_mtu_known)
}

fn is_limited_by_mtu(direction: &Direction) -> bool {
    row(direction, "write_command").limits.iter().any(|limit| limit == "mtu")
}

/// What is longer than 23 bytes was agreed on somewhere, and so may have been any other MTU before the log.
#[test]
fn without_its_exchange_the_mtu_is_known_from_the_begin_only_and_never_less_than_a_pdu() {
    for (bytes, from_start, expected) in [
        (20, true, (23, false, true)),
        (20, false, (23, false, false)),
        (182, true, (185, false, false)),
        (182, false, (185, false, false)),
    ] {
        let direction = writes(bytes, from_start).forward();
        assert_eq!(mtu(&direction), expected, "{bytes} {from_start}");
        assert_eq!(is_limited_by_mtu(&direction), expected.2, "{bytes} {from_start}");
    }
    // Or in what the log lost, or with a request that it lacks.
    let mut bearer = writes(20, true);
    bearer.talk.say(300 * MS, Way::Forward, L2cap::Lost);
    assert_eq!(mtu(&bearer.forward()), (23, false, false));
    let mut bearer = writes(20, true);
    bearer.comes(300 * MS, AttKind::MtuResponse { mtu: 247 });
    assert_eq!(mtu(&bearer.forward()), (23, false, false));
    // Agreed on, and then exceeded.
    let mut bearer = writes(182, true);
    bearer.pdu(300 * MS, Way::Forward, AttKind::MtuRequest { mtu: 100 }, None, 2);
    bearer.comes(330 * MS, AttKind::MtuResponse { mtu: 100 });
    let direction = bearer.forward();
    assert_eq!((mtu(&direction), is_limited_by_mtu(&direction)), ((185, true, false), false));
}

#[test]
fn values_are_full_by_the_mtu_that_was_agreed_on() {
    let full = |after: u16| {
        let mut bearer = Bearer::new();
        bearer.pdu(10 * MS, Way::Forward, AttKind::MtuRequest { mtu: 100 }, None, 2);
        bearer.comes(40 * MS, AttKind::MtuResponse { mtu: 100 });
        for n in 0..50 {
            bearer.pdu(41 * MS + n * 11 * MS / 10, Way::Forward, AttKind::WriteCommand, Some(0x10), after);
        }
        is_limited_by_mtu(&bearer.forward())
    };
    assert!(full(97) && !full(96) && !full(20));
}

/// Writes, then an MTU of 247, then so many more of them.
#[test]
fn values_are_full_by_the_mtu_that_was_in_force() {
    let full = |bytes: u16, before: u64, after: u64| {
        let mut bearer = Bearer::new();
        let mut writes = |from: u64, count: u64| {
            for n in 0..count {
                bearer.pdu(from + n * 11 * MS / 10, Way::Forward, AttKind::WriteCommand, Some(0x10), bytes);
            }
            if from < 500 * MS {
                bearer.pdu(500 * MS, Way::Forward, AttKind::MtuRequest { mtu: 247 }, None, 2);
                bearer.comes(530 * MS, AttKind::MtuResponse { mtu: 247 });
            }
        };
        writes(100 * MS, before);
        writes(531 * MS, after);
        row(&bearer.forward(), "write_command").limits.iter().any(|limit| limit == "mtu")
    };
    assert!(full(20, 300, 0) && full(20, 300, 50) && !full(20, 50, 300) && !full(19, 300, 0));
}

#[test]
fn an_enhanced_bearer_has_the_mtu_of_its_channel() {
    let mut talk = Talk::new(Kind::CreditBased(0x27), 30 * MS, 100, 8);
    let opened = L2cap::Opened { mtu: [256, 300], mps: [247; 2], credits: [100; 2] };
    talk.say(40 * MS, Way::Forward, opened);
    let mut bearer = Bearer { talk };
    for n in 0..20 {
        bearer.pdu(100 * MS + n * 30 * MS, Way::Forward, AttKind::WriteCommand, Some(0x10), 20);
    }
    let direction = bearer.forward();
    assert_eq!((mtu(&direction), is_limited_by_mtu(&direction)), ((256, true, true), false));
}

/// Of values that are not counted it is not known how many went, nor what limited them.
#[test]
fn behind_a_loss_values_of_several_pdus_have_no_rate() {
    let run = |is_lossy: bool| {
        let mut bearer = Bearer { talk: Talk::new(Kind::CreditBased(0x27), 30 * MS, 100, 8) };
        for n in 0..40 {
            let at = 100 * MS + n * 30 * MS;
            if n == 20 && is_lossy {
                bearer.talk.say(at, Way::Forward, L2cap::Lost);
                // Parts of some.
                for part in 0..6 {
                    let acl = Acl { length: 27, begins_pdu: true, ends_sdu: false, turn: Turn::Free };
                    bearer.talk.say(at + part * MS, Way::Forward, L2cap::Packet(acl));
                    bearer.talk.completed(at + part * MS + MS / 2);
                }
            }
            bearer.pdu(at + 10 * MS, Way::Forward, AttKind::WriteCommand, Some(0x10), 20);
        }
        let written = row(&bearer.forward(), "write_command").clone();
        (written.count, written.bits_per_second.is_some(), written.limits.is_empty())
    };
    assert_eq!(run(false), (40, true, false));
    assert_eq!(run(true), (40, false, true));
}

/// Of ATT's own bearer, too: values that were lost are not counted.
#[test]
fn behind_a_loss_values_have_no_rate_and_turns_no_intervals() {
    let run = |is_lossy: bool| {
        let mut bearer = Bearer { talk: Talk::new(Kind::Att, 30 * MS, 0, 8) };
        for n in 0..40 {
            let at = 100 * MS + n * 60 * MS;
            if n == 20 && is_lossy {
                bearer.talk.say(at, Way::Forward, L2cap::Lost);
            }
            bearer.pdu(at, Way::Forward, AttKind::WriteRequest, Some(0x10), 20);
            bearer.pdu(at + 30 * MS, Way::Backward, AttKind::WriteResponse, None, 0);
        }
        let written = row(&bearer.forward(), "write_request").clone();
        (written.bits_per_second.is_some(), written.intervals_per_turn.is_some(), written.limits.is_empty())
    };
    assert_eq!(run(false), (true, true, false));
    assert_eq!(run(true), (false, false, true));
}

#[test]
fn an_error_of_another_request_is_no_answer_and_what_has_none_is_counted() {
    let mut bearer = Bearer::new();
    for n in 0..20 {
        let at = 100 * MS + n * 50 * MS;
        bearer.reads(at);
        bearer.comes(at + 5 * MS, AttKind::Error { of: 0x12, code: 3 });
        if n != 7 {
            bearer.comes(at + 40 * MS, AttKind::ReadResponse);
        }
    }
    bearer.reads(1_200 * MS);
    bearer.comes(1_220 * MS, AttKind::Error { of: 0x0a, code: 2 });
    bearer.reads(1_300 * MS);
    let direction = bearer.forward();
    let read = row(&direction, "read");
    assert_eq!((read.count, read.bytes, read.errors, read.unanswered), (22, 380, 1, 2));
    assert_eq!((read.turn_p50_ns, read.turn_p99_ns), (Some(40 * MS), Some(40 * MS)));
}
