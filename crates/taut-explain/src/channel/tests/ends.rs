//! What is still waited for when a channel, its link or the log ends.

use super::*;

const S: u64 = 1_000 * MS;

/// Answered requests, one each 16 ms; when the last answer came.
fn answered(talk: &mut Talk) -> u64 {
    for n in 0..5 {
        talk.send(20 * MS + n * 16 * MS, Turn::Asks);
        talk.completed(27 * MS + n * 16 * MS);
        talk.comes(35 * MS + n * 16 * MS, Turn::Answers);
    }
    99 * MS
}

#[test]
fn a_request_that_is_never_answered_is_the_peers() {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
    let at = answered(&mut talk) + MS;
    talk.send(at, Turn::Asks);
    talk.completed(at + 7 * MS);
    let direction = talk.ended(at + 30 * S);
    assert!(direction.span_ns > 30 * S, "{direction:#?}");
    assert!(share(&direction, Holder::PeerTurn) > 0.99, "{direction:#?}");
    assert!(evidence(&direction, "peer_turn").contains("never answered: 30.0 s"), "{direction:#?}");
}

#[test]
fn after_the_last_answer_nobody_holds_anything() {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
    let last = answered(&mut talk);
    let direction = talk.ended(last + 30 * S);
    // From the first request to the last answer.
    assert_eq!(direction.span_ns, last - 20 * MS);
}

#[test]
fn one_answer_that_comes_late_is_told_though_nothing_follows() {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
    talk.send(20 * MS, Turn::Asks);
    talk.completed(27 * MS);
    talk.comes(5 * S, Turn::Answers);
    let direction = talk.ended(60 * S);
    assert_eq!(direction.span_ns, 5 * S - 20 * MS);
    assert!(found(&direction).contains(&"peer_turn"), "{direction:#?}");
}

#[test]
fn credits_that_never_come_are_the_receivers() {
    let run = |window: u16| {
        let mut talk = Talk::new(coc(), 30 * MS, window, 8);
        for n in 0..4 {
            talk.send(31 * MS + n * 30 * MS, Turn::Free);
            talk.completed(40 * MS + n * 30 * MS);
        }
        talk.ended(60 * S)
    };
    let direction = run(4);
    assert_eq!(found(&direction)[0], "credit_window", "{direction:#?}");
    assert!(share(&direction, Holder::Credits) > 0.99);
    let evidence = evidence(&direction, "credit_window");
    assert!(evidence.contains("none came any more, for 59.9 s; whether the program had more"), "{evidence}");
    // One credit is left: the program has no more to send.
    let direction = run(5);
    assert!(direction.span_ns < 200 * MS && !found(&direction).contains(&"credit_window"), "{direction:#?}");
}

#[test]
fn a_packet_that_never_goes_is_the_links() {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
    let at = answered(&mut talk) + MS;
    talk.send(at, Turn::Free);
    let direction = talk.ended(at + 4 * S);
    assert!(share(&direction, Holder::Air) > 0.9, "{direction:#?}");
}
