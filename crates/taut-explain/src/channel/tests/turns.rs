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
