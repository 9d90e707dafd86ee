//! Whose turn it is, where commands go beside requests and where opcodes were not kept.

use super::*;

/// A request that is answered after ten seconds; a command each 100 ms meanwhile, if so.
fn one_late(with_commands: bool) -> Direction {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
    talk.send(20 * MS, Turn::Asks);
    talk.completed(27 * MS);
    for n in 0..100 {
        if with_commands {
            talk.send(50 * MS + n * 100 * MS, Turn::Free);
            talk.completed(55 * MS + n * 100 * MS);
        }
    }
    talk.comes(10_027 * MS, Turn::Answers);
    talk.ended(10_050 * MS)
}

#[test]
fn commands_beside_a_request_wait_for_nobody() {
    let alone = one_late(false);
    assert!(share(&alone, Holder::PeerTurn) > 0.99, "{alone:#?}");
    let direction = one_late(true);
    assert_eq!(found(&direction)[0], "sending_program", "{direction:#?}");
    // From the last command to the answer.
    assert!(share(&direction, Holder::PeerTurn) < 0.01, "{direction:#?}");
    let run = |with_commands: bool| {
        let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
        for n in 0..10 {
            let at = 20 * MS + n * 1_000 * MS;
            talk.send(at, Turn::Asks);
            if with_commands {
                talk.send(at + MS, Turn::Free);
                talk.completed(at + 7 * MS);
            }
            talk.completed(at + 10 * MS);
            talk.comes(at + 510 * MS, Turn::Answers);
        }
        evidence(&talk.forward(), "peer_turn")
    };
    // Counted from when the request was through, not the command behind it.
    assert!(run(false).contains("took 500 ms (median)"), "{}", run(false));
    assert!(run(true).contains("took 503 ms (median)"), "{}", run(true));
}

#[test]
fn opcodes_that_were_not_kept_are_no_commands() {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
    for n in 0..30 {
        talk.send(20 * MS + n * 100 * MS, Turn::NotKnown);
        talk.completed(27 * MS + n * 100 * MS);
        talk.comes(110 * MS + n * 100 * MS, Turn::NotKnown);
    }
    let direction = talk.forward();
    assert!(share(&direction, Holder::NotKnown) > 0.9, "{direction:#?}");
    assert!(is_unknown(&direction, "peer_turn") && is_unknown(&direction, "sending_program"), "{direction:#?}");
    assert!(direction.remarks.iter().any(|remark| remark.contains("log them whole")), "{direction:#?}");
}

/// Reads that are answered in 30 ms; in the middle of one the clock is set forward.
#[test]
fn a_clock_that_is_set_forward_is_no_matter_of_the_interval() {
    let reads = |step: u64| {
        let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
        for n in 0..100 {
            let at = 100 * MS + n * 50 * MS;
            let later = if n >= 50 { step } else { 0 };
            talk.send(at + if n > 50 { step } else { 0 }, Turn::Asks);
            talk.completed(at + later + MS);
            talk.comes(at + later + 30 * MS, Turn::Answers);
        }
        talk.forward()
    };
    let has_remark = |direction: &Direction| direction.remarks.iter().any(|remark| remark.contains("clock may have"));
    let direction = reads(3_600_000 * MS);
    assert!(!found(&direction).contains(&"interval_quantisation"), "{direction:#?}");
    assert!(has_remark(&direction), "{:?}", direction.remarks);
    assert!(direction.remarks.iter().any(|remark| remark.contains("for 1 h") || remark.contains("for 3600")));
    // A peer that holds back for 30 s may do so.
    assert!(!has_remark(&reads(30_000 * MS)) && !has_remark(&reads(0)));
}
