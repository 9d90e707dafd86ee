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
