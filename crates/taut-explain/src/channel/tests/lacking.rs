//! Logs that lack packets: what they can't tell is not made up.

use super::*;

/// Ten PDUs each 50 ms with as many credits, which come 5 ms after; those of one round are missing if so.
fn batches(lacks_grant: bool, says_so: bool) -> Direction {
    let mut talk = Talk::new(coc(), 30 * MS, 10, 20);
    for round in 0..40 {
        let at = 31 * MS + round * 50 * MS;
        (0..10).for_each(|n| talk.send(at + n * MS / 10, Turn::Free));
        (0..10).for_each(|_| talk.completed(at + 6 * MS));
        match round {
            3 if lacks_grant && says_so => talk.say(at + 11 * MS, Way::Forward, L2cap::Lost),
            3 if lacks_grant => {}
            _ => talk.credits(at + 11 * MS, 10),
        }
    }
    talk.forward()
}

#[test]
fn credits_that_the_log_lacks_are_nobodys() {
    let whole = batches(false, false);
    assert_eq!(found(&whole)[0], "sending_program", "{whole:#?}");
    assert!(whole.remarks.is_empty(), "{whole:#?}");
    for says_so in [false, true] {
        let direction = batches(true, says_so);
        assert!(share(&direction, Holder::Credits) < 0.1, "{direction:#?}");
        assert!(share(&direction, Holder::NotKnown) > 0.5, "{direction:#?}");
        assert!(is_unknown(&direction, "credit_window") && is_unknown(&direction, "sending_program"));
        assert_eq!(is_unknown(&direction, "controller_buffers"), says_so, "{direction:#?}");
        assert_eq!(direction.remarks.len(), 1, "{direction:#?}");
    }
}

#[test]
fn a_lost_completion_does_not_fill_the_controller_for_ever() {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
    for n in 0..40 {
        talk.send(n * 100 * MS, Turn::Free);
        match n {
            5 => {
                talk.say(n * 100 * MS + 20 * MS, Way::Forward, L2cap::Lost);
                talk.hidden(n * 100 * MS + 90 * MS, false, false);
            }
            _ => talk.completed(n * 100 * MS + 20 * MS),
        }
    }
    let direction = talk.forward();
    assert!(share(&direction, Holder::SendingProgram) > 0.7, "{direction:#?}");
    assert!(is_unknown(&direction, "controller") && is_unknown(&direction, "controller_buffers"));
}

#[test]
fn without_completions_nothing_is_known() {
    let run = |packets: u64, tells_completions: bool| {
        let mut talk = Talk::new(coc(), 30 * MS, 1000, 8);
        (0..packets).for_each(|n| talk.send(31 * MS + n * 10 * MS, Turn::Free));
        talk.ended_with(60_000 * MS, tells_completions)
    };
    // Signalling may have had the only one: the controller can't have taken all these.
    for tells_completions in [false, true] {
        let direction = run(200, tells_completions);
        // The handshake, one millisecond until the first packet, and until the last one.
        assert_eq!(direction.span_ns, 31 * MS + 199 * 10 * MS);
        assert!(share(&direction, Holder::NotKnown) > 0.98, "{direction:#?}");
        assert!(direction.verdicts.iter().all(|on| is_unknown(&direction, &on.cause)), "{direction:#?}");
    }
    // It may have taken these, which then never went.
    let direction = run(5, true);
    assert!(direction.span_ns > 59_000 * MS && share(&direction, Holder::Air) > 0.99, "{direction:#?}");
}

#[test]
fn what_the_peers_host_did_meanwhile_is_not_clear() {
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
    (0..30).for_each(|n| talk.comes(n * 1_000 * MS, Turn::Free));
    let explanation = talk.engine.finish();
    let direction = &explanation.worst[0];
    assert!(share(direction, Holder::NotKnown) > 0.9, "{direction:#?}");
    assert!(is_unknown(direction, "interval_quantisation") && is_unknown(direction, "peer_turn"), "{direction:#?}");
    // ATT has no credits.
    assert!(!is_unknown(direction, "credit_window"), "{direction:#?}");
}

#[test]
fn times_at_the_end_of_the_clock_are_taken() {
    let run = |begin: u64| {
        let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
        for n in 0..30 {
            talk.send(begin + n * MS, Turn::Asks);
            talk.completed(begin + n * MS + 1);
            talk.comes(begin + n * MS + 2, Turn::Answers);
        }
        talk.forward()
    };
    assert!(run(u64::MAX - (1 << 51)).span_ns > 0);
    // So late that all have the latest time there is.
    run(u64::MAX - 2_000 * MS);
}

/// SDUs in three PDUs each; those of the middle of the log are not known behind a loss, until one is whole in a PDU of
/// two packets.
#[test]
fn behind_a_loss_pdus_whose_sdus_are_not_known_are_told() {
    let run = |kind: Kind, is_lossy: bool| {
        let mut talk = Talk::new(kind, 30 * MS, 1000, 8);
        let mut at = 31 * MS;
        let mut pass = |talk: &mut Talk, begins_pdu: bool, ends_sdu: bool| {
            talk.say(at, Way::Forward, L2cap::Packet(Acl { length: PDU, begins_pdu, ends_sdu, turn: Turn::Free }));
            talk.completed(at + 20 * MS);
            at += 30 * MS;
        };
        (0..6).for_each(|n| pass(&mut talk, true, n % 3 == 2));
        if is_lossy {
            talk.say(210 * MS, Way::Forward, L2cap::Lost);
        }
        (0..9).for_each(|n| pass(&mut talk, true, !is_lossy && n % 3 == 2));
        pass(&mut talk, true, false);
        pass(&mut talk, false, true);
        (0..3).for_each(|n| pass(&mut talk, true, n % 3 == 2));
        let channel = talk.forward().channel.expect("a channel has its facts");
        (channel.sdus, channel.pdus, channel.pdus_of_unknown_sdus)
    };
    assert_eq!(run(coc(), false), (7, 19, 0));
    assert_eq!(run(coc(), true), (4, 19, 9));
    // What has no SDUs of several PDUs has none that are not known.
    assert_eq!(run(Kind::Att, true).2, 0);
}

/// The controller always has six packets: one goes in each event, and the host hands over the next one a little later.
/// Where the log does not have the six, it looks empty meanwhile.
#[test]
fn what_a_controller_had_before_is_not_taken_for_its_programs_wait() {
    let run = |kind: Kind, is_lossy: bool| {
        let mut talk = Talk::new(kind, 30 * MS, 0, 20);
        let mut at = 31 * MS;
        (0..6).for_each(|_| talk.send(at, Turn::Free));
        for n in 0..200 {
            if n == 20 && is_lossy {
                talk.say(at, Way::Forward, L2cap::Lost);
            }
            talk.completed(at + 10 * MS);
            talk.send(at + 22 * MS, Turn::Free);
            at += 30 * MS;
        }
        talk.forward()
    };
    for kind in [Kind::Att, Kind::Basic(0x1001)] {
        let whole = run(kind, false);
        assert!(share(&whole, Holder::SendingProgram) < 0.05, "{whole:#?}");
        let lossy = run(kind, true);
        assert!(share(&lossy, Holder::SendingProgram) < 0.05 && share(&lossy, Holder::NotKnown) > 0.3, "{lossy:#?}");
        assert!(!is_unknown(&whole, "sending_program") && is_unknown(&lossy, "sending_program"), "{lossy:#?}");
    }
    // Once all went that it had, the program is seen again.
    let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 20);
    talk.say(31 * MS, Way::Forward, L2cap::Lost);
    for n in 0..40 {
        talk.send(40 * MS + n * 100 * MS, Turn::Free);
        talk.completed(60 * MS + n * 100 * MS);
        if n == 1 {
            talk.hidden(70 * MS + n * 100 * MS, false, false);
        }
    }
    assert!(share(&talk.forward(), Holder::SendingProgram) > 0.7);
}

/// A question goes each 500 ms, is told through after 10 ms, and answered after 400; or the only credit comes back
/// then.
fn waits(kind: Kind, hidden: Option<(bool, bool)>) -> Talk {
    let mut talk = Talk::new(kind, 30 * MS, 1, 8);
    if let Some((of_link, of_any)) = hidden {
        talk.hidden(30 * MS, of_link, of_any);
    }
    for n in 0..20 {
        let at = 31 * MS + n * 500 * MS;
        talk.send(at, if kind == Kind::Att { Turn::Asks } else { Turn::Free });
        talk.completed(at + 10 * MS);
        match kind {
            Kind::Att => talk.comes(at + 400 * MS, Turn::Answers),
            _ => talk.credits(at + 400 * MS, 1),
        }
    }
    talk
}

/// What is told to be through may have been another packet, which the log lacks.
#[test]
fn nobody_is_waited_for_while_the_controller_may_have_packets_that_the_log_lacks() {
    let rfcomm = Kind::Rfcomm(10);
    let kinds = [
        (Kind::Att, Holder::PeerTurn, "peer_turn"),
        (coc(), Holder::Credits, "credit_window"),
        (rfcomm, Holder::RfcommCredits, "rfcomm_credits"),
    ];
    for (kind, holder, cause) in kinds {
        // Of other links it may have some: what this one waits for is known.
        for (hidden, is_known) in [(None, true), (Some((false, true)), true), (Some((true, true)), false)] {
            let direction = waits(kind, hidden).forward();
            assert_eq!(share(&direction, holder) > 0.5, is_known, "{hidden:?}: {direction:#?}");
            assert_eq!(share(&direction, Holder::NotKnown) > 0.9, !is_known, "{hidden:?}: {direction:#?}");
            assert_eq!(found(&direction).contains(&cause), is_known, "{hidden:?}: {direction:#?}");
            assert_eq!(is_unknown(&direction, cause), !is_known, "{hidden:?}: {direction:#?}");
        }
    }
    // Packets of another link may have all its buffers, so that the host had to wait.
    for (of_any, is_known) in [(false, true), (true, false)] {
        let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
        talk.hidden(30 * MS, false, of_any);
        for n in 0..20 {
            talk.send(31 * MS + n * 500 * MS, Turn::Free);
            talk.completed(50 * MS + n * 500 * MS);
        }
        assert_eq!(share(&talk.forward(), Holder::SendingProgram) > 0.7, is_known);
    }
}

/// The peer answers at once what reaches it late, behind packets that the log lacks.
#[test]
fn an_answer_to_what_may_still_be_in_the_controller_is_not_its_programs() {
    let share_of_program = |hidden| {
        let explanation = waits(Kind::Att, hidden).engine.finish();
        let direction = explanation.worst.into_iter().find(|direction| direction.to == "hci0").expect("answers");
        share(&direction, Holder::SendingProgram)
    };
    assert!(share_of_program(None) > 0.5);
    assert!(share_of_program(Some((true, true))) < 0.01);
}

/// Packets queue in the controller, of a link whose PHY and lengths changed perhaps.
#[test]
fn behind_a_loss_no_model_is_made_of_what_the_link_was_before() {
    let run = |lost_after: Option<u64>| {
        let mut talk = Talk::new(coc(), 30 * MS, 1000, 20);
        talk.link(31 * MS, |link| link.length = [27; 2]);
        for n in 0..200 {
            let at = 32 * MS + n * 30 * MS;
            if lost_after == Some(n) {
                talk.say(at, Way::Forward, L2cap::Lost);
                talk.link(at, |link| (link.from_start, link.interval_ns, link.length) = (false, 0, [27; 2]));
            }
            (0..8).for_each(|_| talk.send(at, Turn::Free));
            (0..8).for_each(|_| talk.completed(at + 29 * MS));
        }
        talk.forward()
    };
    let whole = run(None);
    assert!(found(&whole).contains(&"length"), "{whole:#?}");
    for lost_after in [5, 100, 180] {
        let lossy = run(Some(lost_after));
        for cause in ["length", "phy", "interval_quantisation", "mtu"] {
            assert!(is_unknown(&lossy, cause), "{lost_after} {cause}: {lossy:#?}");
        }
    }
}

/// The request is lost, commands go, and its answer comes two seconds later.
#[test]
fn an_answer_whose_question_the_log_lacks_was_waited_for() {
    let run = |is_answered: bool| {
        let mut talk = Talk::new(Kind::Att, 30 * MS, 0, 8);
        talk.send(31 * MS, Turn::Free);
        talk.completed(60 * MS);
        if is_answered {
            talk.comes(2_000 * MS, Turn::Answers);
        }
        for n in 0..5 {
            talk.send(2_001 * MS + n * 100 * MS, Turn::Asks);
            talk.completed(2_030 * MS + n * 100 * MS);
            talk.comes(2_060 * MS + n * 100 * MS, Turn::Answers);
        }
        talk.forward()
    };
    assert!(share(&run(false), Holder::SendingProgram) > 0.7);
    let direction = run(true);
    assert!(share(&direction, Holder::NotKnown) > 0.7, "{direction:#?}");
}

/// On LE 2M six PDUs go in each 16 ms, of which their sender has half no credits. The log does not tell what the link
/// is like.
#[test]
fn a_link_that_is_not_known_is_not_taken_for_the_slowest() {
    let mut talk = Talk::new(coc(), 15 * MS / 2, 6, 20);
    talk.link(8 * MS, |link| (link.from_start, link.interval_ns, link.length) = (false, 0, [27; 2]));
    for round in 0..100 {
        let at = 10 * MS + round * 16 * MS;
        (0..6).for_each(|_| talk.send(at, Turn::Free));
        (1..=6).for_each(|n| talk.completed(at + n * 14 * MS / 10));
        talk.credits(at + 16 * MS, 6);
    }
    let direction = talk.forward();
    assert!(share(&direction, Holder::Credits) > 0.45, "{direction:#?}");
    assert_eq!(found(&direction).first(), Some(&"credit_window"), "{direction:#?}");
}

/// All data has gone when another link begins to hide packets, and the log goes on for a while.
#[test]
fn what_is_hidden_while_nobody_waits_is_not_counted() {
    let mut talk = waits(Kind::Att, None);
    talk.hidden(60_000 * MS, false, true);
    talk.hidden(75_000 * MS, false, false);
    let direction = talk.ended(75_000 * MS);
    assert!(share(&direction, Holder::NotKnown) == 0.0 && direction.span_ns < 11_000 * MS, "{direction:#?}");
    assert!(!is_unknown(&direction, "credit_window"), "{direction:#?}");
}

/// The channel is opened when what a loss may have hidden is settled, so it has not lost anything itself.
#[test]
fn a_link_that_is_not_known_is_not_said_to_be_of_before_the_log() {
    for (kind, cause) in [(coc(), "phy"), (Kind::Rfcomm(10), "rfcomm_credits")] {
        let mut talk = Talk::new(kind, 30 * MS, 10, 20);
        talk.link(30 * MS, |link| (link.from_start, link.interval_ns) = (false, 0));
        if kind != coc() {
            talk.say(30 * MS, Way::Forward, L2cap::NotCounted);
        }
        for n in 0..30 {
            talk.send(31 * MS + n * 30 * MS, Turn::Free);
            talk.completed(50 * MS + n * 30 * MS);
            talk.credits(55 * MS + n * 30 * MS, 1);
        }
        let direction = talk.forward();
        let remark = "The log lacks the link's begin, or packets since";
        assert!(direction.remarks.iter().any(|told| told.starts_with(remark)), "{direction:#?}");
        let on = direction.verdicts.iter().find(|on| on.cause == cause).expect("all causes are told");
        let Verdict::Unknown { missing, ask } = &on.verdict else { panic!("{direction:#?}") };
        assert!(ask.contains("lose nothing") && !missing.contains("opening"), "{missing}: {ask}");
    }
}
