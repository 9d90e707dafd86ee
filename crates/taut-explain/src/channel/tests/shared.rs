//! What an end has to do with the other one: answers, a slow reader, and data both ways at once.

use super::*;

/// What comes as answers to such questions.
fn answers(think: u64) -> Direction {
    let explanation = asked(100 * MS, think).engine.finish();
    explanation.worst.into_iter().find(|direction| direction.to == "hci0").expect("data came")
}

#[test]
fn an_answer_that_comes_in_the_next_event_is_not_its_programs() {
    let soon = answers(100 * MS);
    assert!(share(&soon, Holder::SendingProgram) < 0.01, "{soon:#?}");
    // The questions themselves take an interval each.
    assert!((0.4..0.6).contains(&share(&soon, Holder::ConnectionInterval)), "{soon:#?}");
    assert!((0.4..0.6).contains(&share(&soon, Holder::PeerTurn)), "{soon:#?}");
    let late = answers(400 * MS);
    assert!(share(&late, Holder::SendingProgram) > 0.7, "{late:#?}");
}

/// Three PDUs in an event of 30 ms, all that the credits allow, and the next credits so long after them.
fn granted_after(delay: u64) -> Direction {
    let mut talk = Talk::new(coc(), 30 * MS, 3, 20);
    let mut at = 31 * MS;
    for _ in 0..30 {
        (0..3).for_each(|_| talk.send(at, Turn::Free));
        let anchor = talk.anchor(at);
        (1..=3).for_each(|n| talk.completed(anchor + n * CYCLE));
        at = anchor + 3 * CYCLE + delay;
        talk.credits(at, 3);
    }
    talk.forward()
}

#[test]
fn credits_that_come_late_are_a_matter_of_the_reader() {
    let summary = |direction: &Direction| {
        let on = direction.verdicts.iter().find(|on| on.cause == "credit_window").unwrap();
        let Verdict::Found(found) = &on.verdict else { panic!("{direction:#?}") };
        found.summary.clone()
    };
    let soon = granted_after(25 * MS);
    assert!(summary(&soon).contains("its window is small"), "{soon:#?}");
    let late = granted_after(150 * MS);
    assert!(summary(&late).contains("its program reads slowly"), "{late:#?}");
    assert!(evidence(&late, "credit_window").contains("All had arrived 150 ms before"), "{late:#?}");
}

#[test]
fn no_cause_is_found_for_no_time() {
    for direction in [granted_after(25 * MS), rounds(3, 3)] {
        for on in &direction.verdicts {
            let Verdict::Found(found) = &on.verdict else { continue };
            assert!(found.cost.share > 0.02, "{}: {found:?}", on.cause);
            assert!(found.evidence.iter().all(|seen| !seen.text.is_empty()), "{}: {found:?}", on.cause);
        }
    }
}

/// The controller always has packets, and so has the peer's; so many exchanges go in an event of 30 ms.
fn both_ways(per_event: u64) -> Direction {
    exchanges(per_event, 4_476_000, |talk, end| talk.comes(end - 1000, Turn::Free))
}

#[test]
fn events_that_are_full_both_ways_are_not_the_controllers() {
    let full = both_ways(6);
    let none = |cause: &str| !found(&full).contains(&cause);
    assert!(none("controller") && none("mtu") && none("interval_quantisation"), "{full:#?}");
    assert!(found(&both_ways(2)).contains(&"controller"));
}
