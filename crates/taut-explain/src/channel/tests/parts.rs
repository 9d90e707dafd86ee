//! PDUs of several packets, packets that stay, and what is not known of others.

use super::*;

fn sides(talk: Talk) -> [Direction; 2] {
    let mut worst = talk.engine.finish().worst;
    let mut one = |is_sent: bool| {
        let place =
            worst.iter().position(|direction| (direction.from == "hci0") == is_sent).expect("data went and came");
        worst.swap_remove(place)
    };
    [one(true), one(false)]
}

/// A packet of 27 bytes, the first or last of a PDU or neither.
fn part(turn: Turn, begins_pdu: bool, ends_sdu: bool) -> L2cap {
    let turn = if begins_pdu { turn } else { Turn::Free };
    L2cap::Packet(Acl { length: 27, begins_pdu, ends_sdu, turn })
}

/// Reads whose answers come in six packets, one in each event of 30 ms; the first so long after the question.
fn long_answers(think: u64) -> [Direction; 2] {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 20);
    let mut at = MS;
    for _ in 0..20 {
        talk.send(at, Turn::Asks);
        let through = talk.anchor(at) + CYCLE;
        talk.completed(through);
        for n in 0..6 {
            at = through + think + n * 30 * MS;
            talk.say(at, Way::Backward, part(Turn::Answers, n == 0, n == 5));
        }
        at += MS / 10;
    }
    sides(talk)
}

#[test]
fn an_answer_has_come_with_its_last_packet() {
    let [own, peers] = long_answers(30 * MS);
    assert!(share(&own, Holder::SendingProgram) < 0.01, "{own:#?}");
    assert!(share(&own, Holder::PeerTurn) > 0.8, "{own:#?}");
    assert!(evidence(&own, "peer_turn").contains("20 answers took 180 ms (median)"), "{own:#?}");
    assert!(share(&peers, Holder::ConnectionInterval) > 0.8, "{peers:#?}");
    assert!(share(&peers, Holder::SendingProgram) < 0.01, "{peers:#?}");
    // One that thinks does so until the first packet.
    let [_, peers] = long_answers(330 * MS);
    assert!((0.5..0.7).contains(&share(&peers, Holder::SendingProgram)), "{peers:#?}");
}

/// The same of long questions: answered at once when all of one has come.
#[test]
fn a_question_is_asked_with_its_last_packet() {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 20);
    let mut at = MS;
    for _ in 0..20 {
        (0..6).for_each(|n| talk.say(at, Way::Forward, part(Turn::Asks, n == 0, n == 5)));
        for _ in 0..6 {
            at = talk.anchor(at) + CYCLE;
            talk.completed(at);
        }
        at += 28 * MS;
        talk.comes(at, Turn::Answers);
        at += MS / 10;
    }
    let [own, peers] = sides(talk);
    assert!(evidence(&own, "peer_turn").contains("20 answers took 28.0 ms (median)"), "{own:#?}");
    assert!(share(&peers, Holder::SendingProgram) < 0.01, "{peers:#?}");
}

#[test]
fn in_a_log_that_begins_later_an_answer_of_the_next_event_is_nobodys() {
    let mut talk = asked(100 * MS, 100 * MS);
    let [_, known] = sides(talk);
    assert!(share(&known, Holder::NotKnown) < 0.1, "{known:#?}");
    talk = Talk::new(Kind::Att, 100 * MS, 0, 20);
    talk.link(0, |link| (link.interval_ns, link.from_start) = (0, false));
    let mut at = MS;
    for _ in 0..20 {
        talk.send(at, Turn::Asks);
        talk.completed(at + 50 * MS);
        talk.comes(at + 150 * MS, Turn::Answers);
        at += 151 * MS;
    }
    let [_, unknown] = sides(talk);
    assert!(share(&unknown, Holder::SendingProgram) < 0.01, "{unknown:#?}");
    assert!(share(&unknown, Holder::NotKnown) > 0.5, "{unknown:#?}");
}

#[test]
fn an_answer_that_the_log_lacks_is_nobodys_time() {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
    for n in 0..20 {
        talk.send(20 * MS + n * 300 * MS, Turn::Asks);
        talk.completed(27 * MS + n * 300 * MS);
    }
    let direction = talk.ended(20 * 300 * MS);
    let told = share(&direction, Holder::PeerTurn) + share(&direction, Holder::SendingProgram);
    // But for the last one, which may have none.
    assert!(share(&direction, Holder::NotKnown) > 0.8 && told < 0.06, "{direction:#?}");
    assert!(!format!("{:?}", direction.verdicts).contains("never answered"), "{direction:#?}");
}

#[test]
fn while_others_have_all_buffers_the_program_is_not_blamed() {
    let run = |in_use: u16| {
        let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
        for n in 0..20 {
            talk.say(20 * MS + n * 300 * MS, Way::Forward, L2cap::Buffers { in_use: 1, of: 8 });
            talk.send(20 * MS + n * 300 * MS, Turn::Free);
            talk.say(27 * MS + n * 300 * MS, Way::Forward, L2cap::Buffers { in_use, of: 8 });
            talk.completed(27 * MS + n * 300 * MS);
        }
        talk.forward()
    };
    assert!(share(&run(7), Holder::SendingProgram) > 0.9);
    assert!(share(&run(8), Holder::SendingProgram) < 0.01 && share(&run(8), Holder::NotKnown) > 0.9);
}

/// Packets handed over one by one, each through so long after its event.
fn one_by_one(late: u64) -> Direction {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
    let mut at = MS;
    for _ in 0..40 {
        talk.send(at, Turn::Free);
        at = talk.anchor(at) + CYCLE + late;
        talk.completed(at);
        at += 20 * MS;
    }
    talk.forward()
}

#[test]
fn a_packet_that_stays_for_several_events_is_the_links() {
    let direction = one_by_one(270 * MS);
    assert_eq!(found(&direction)[0], "controller", "{direction:#?}");
    let on = direction.verdicts.iter().find(|on| on.cause == "controller").unwrap();
    let Verdict::Found(stays) = &on.verdict else { panic!("{direction:#?}") };
    assert!(stays.summary.contains("each by itself"), "{stays:?}");
    // A controller may report in the event after.
    assert!(!found(&one_by_one(30 * MS)).contains(&"controller"));
}

/// SDUs of one PDU, so many in each event of 30 ms; in the log of the receiving host.
fn paced(per_event: u64) -> Direction {
    let mut talk = Talk::new(coc(), 30 * MS, 1000, 8);
    for n in 0..100 {
        (0..per_event).for_each(|k| talk.comes(40 * MS + n * 30 * MS + k * CYCLE, Turn::Free));
    }
    talk.engine.finish().worst.swap_remove(0)
}

#[test]
fn who_sends_once_in_an_interval_may_have_no_more() {
    assert!(is_unknown(&paced(1), "controller"), "{:#?}", paced(1));
    assert!(found(&paced(3)).contains(&"controller"), "{:#?}", paced(3));
}

/// Commands without end of so many bytes, as many in each event as it has room for.
fn commands(length: u16, phy: u8) -> Direction {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
    talk.link(0, |link| link.phy = [phy; 2]);
    let cycle = CYCLE * (u64::from(length) + 30) / (u64::from(PDU) + 30) * 11 / (9 + 2 * u64::from(phy * phy));
    let mut at = MS;
    let acl = Acl { length, begins_pdu: true, ends_sdu: true, turn: Turn::Free };
    (0..8).for_each(|_| talk.say(at, Way::Forward, L2cap::Packet(acl)));
    for _ in 0..40 {
        let anchor = talk.anchor(at);
        for n in 1..30 * MS / cycle {
            at = anchor + n * cycle;
            talk.completed(at);
            talk.say(at, Way::Forward, L2cap::Packet(acl));
        }
    }
    talk.forward()
}

#[test]
fn only_values_that_leave_data_pdus_partly_empty_are_short() {
    // ATT has no length of an SDU: 247 bytes and the header of L2CAP fill a data PDU.
    for phy in [1, 2] {
        assert!(!found(&commands(PDU, phy)).contains(&"mtu"), "{:#?}", commands(PDU, phy));
    }
    assert!(found(&commands(27, 1)).contains(&"mtu"), "{:#?}", commands(27, 1));
}

/// Four notifications of the peer in each event of 30 ms; of ten events one question is open, if so, and its answer
/// comes behind what the peer sent before.
fn notified(asks: bool) -> Direction {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 20);
    for event in 1..200 {
        let anchor = event * 30 * MS;
        let is_answer = asks && event % 11 == 10;
        for n in 1..=4 {
            talk.comes(anchor + n * CYCLE, if is_answer && n == 2 { Turn::Answers } else { Turn::Free });
        }
        if asks && event % 11 == 0 {
            talk.send(anchor + 25 * MS, Turn::Asks);
            talk.completed(anchor + 30 * MS + CYCLE / 2);
        }
    }
    let explanation = talk.engine.finish();
    explanation.worst.into_iter().find(|direction| direction.to == "hci0").expect("data came")
}

#[test]
fn what_comes_while_a_question_is_open_is_no_wait_for_its_answer() {
    for asks in [false, true] {
        let peers = notified(asks);
        assert!(share(&peers, Holder::SendingProgram) < 0.01, "{asks}: {peers:#?}");
        assert!(share(&peers, Holder::ConnectionInterval) > 0.4, "{asks}: {peers:#?}");
    }
}
