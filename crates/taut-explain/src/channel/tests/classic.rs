//! Channels of BR/EDR: each cause where it stands, and a twin where it must not.

use super::*;

/// So many buffers, and frames one each 10 ms of which each is through after 2 ms; the receiver gives three credits
/// each 100 ms.
fn credited(window: u16) -> Direction {
    let mut talk = Talk::new(Kind::Rfcomm(2), 0, window, 8);
    let mut left = window;
    let mut at = 10 * MS;
    for _ in 0..30 {
        while left > 0 && at % (100 * MS) < 90 * MS {
            talk.send(at, Turn::Free);
            talk.completed(at + 2 * MS);
            at += 10 * MS;
            left -= 1;
        }
        at = at.next_multiple_of(100 * MS).max(at);
        talk.credits(at, 3);
        left += 3;
        at += MS / 10;
    }
    talk.forward()
}

#[test]
fn credits_of_rfcomm_that_run_out_are_the_receivers() {
    let direction = credited(3);
    assert_eq!(found(&direction)[0], "rfcomm_credits", "{direction:#?}");
    assert!(share(&direction, Holder::RfcommCredits) > 0.6, "{direction:#?}");
    assert!(evidence(&direction, "rfcomm_credits").contains("3 at first, then 3 at once"), "{direction:#?}");
    // With plenty of them the program is what is waited for.
    let direction = credited(1000);
    assert_eq!(found(&direction), ["sending_program"], "{direction:#?}");
    assert!(share(&direction, Holder::RfcommCredits) == 0.0);
}

/// Frames go and are through at once; the receiver stops the sender from 100 ms to a second, if so.
fn stopped(stops: bool) -> Direction {
    let mut talk = Talk::new(Kind::Rfcomm(2), 0, 0, 8);
    talk.say(2 * MS, Way::Forward, L2cap::Stopped { is_stopped: false });
    talk.send(50 * MS, Turn::Free);
    talk.completed(52 * MS);
    talk.say(100 * MS, Way::Forward, L2cap::Stopped { is_stopped: stops });
    talk.say(1000 * MS, Way::Forward, L2cap::Stopped { is_stopped: false });
    talk.send(1001 * MS, Turn::Free);
    talk.completed(1003 * MS);
    talk.ended(1100 * MS)
}

#[test]
fn a_receiver_that_says_stop_holds() {
    let direction = stopped(true);
    assert_eq!(found(&direction)[0], "rfcomm_credits", "{direction:#?}");
    assert!(share(&direction, Holder::RfcommCredits) > 0.85, "{direction:#?}");
    assert!(evidence(&direction, "rfcomm_credits").contains("takes nothing"), "{direction:#?}");
    assert_eq!(found(&stopped(false)), ["sending_program"]);
}

/// The receiver says stop, which is lost; three frames that were handed over before still go, and nothing for long.
#[test]
fn behind_a_loss_a_receiver_may_have_said_stop() {
    for is_lossy in [false, true] {
        let mut talk = Talk::new(Kind::Rfcomm(2), 0, 0, 8);
        talk.say(2 * MS, Way::Forward, L2cap::Stopped { is_stopped: false });
        let pass = |talk: &mut Talk, at: u64| {
            talk.send(at, Turn::Free);
            talk.completed(at + MS);
        };
        pass(&mut talk, 50 * MS);
        if is_lossy {
            talk.say(100 * MS, Way::Forward, L2cap::Lost);
            talk.hidden(100 * MS, false, false);
        }
        (0..3).for_each(|n| pass(&mut talk, (110 + n * 10) * MS));
        // It may go on.
        talk.say(3_000 * MS, Way::Forward, L2cap::Stopped { is_stopped: false });
        pass(&mut talk, 3_001 * MS);
        pass(&mut talk, 4_001 * MS);
        let direction = talk.forward();
        let (program, unknown) = (share(&direction, Holder::SendingProgram), share(&direction, Holder::NotKnown));
        assert_eq!((program > 0.9, unknown > 0.65), (!is_lossy, is_lossy), "{direction:#?}");
        assert!(program > 0.2, "{direction:#?}");
    }
}

#[test]
fn what_may_be_media_is_not_its_programs() {
    let run = |from_start: bool| {
        let mut talk = Talk::new(Kind::Basic(0x19), 0, 0, 8);
        talk.link(2 * MS, |link| link.from_start = from_start);
        for n in 0..100 {
            talk.send(10 * MS + n * 20 * MS, Turn::Free);
            talk.completed(15 * MS + n * 20 * MS);
        }
        talk.forward()
    };
    assert_eq!(found(&run(true)), ["sending_program"]);
    assert!(is_unknown(&run(false), "sending_program"));
}

/// The receiver says stop, and that it may go on is not in the log.
#[test]
fn a_stop_ends_with_a_loss_or_with_what_goes() {
    let run = |is_marked: bool| {
        let mut talk = Talk::new(Kind::Rfcomm(2), 0, 0, 8);
        talk.say(2 * MS, Way::Forward, L2cap::Stopped { is_stopped: true });
        if is_marked {
            talk.say(100 * MS, Way::Forward, L2cap::Lost);
        }
        for n in 0..50 {
            talk.send(200 * MS + n * 30 * MS, Turn::Free);
            talk.completed(202 * MS + n * 30 * MS);
        }
        talk.forward()
    };
    for is_marked in [false, true] {
        let direction = run(is_marked);
        assert!(share(&direction, Holder::RfcommCredits) < 0.1, "{direction:#?}");
        assert!(share(&direction, if is_marked { Holder::NotKnown } else { Holder::SendingProgram }) > 0.8);
    }
}

/// A channel without credits: so many packets are handed over together, each 20 ms, and go one after the other.
fn together(count: u64) -> Direction {
    let mut talk = Talk::new(Kind::Basic(0x1001), 0, 0, 8);
    for n in 0..50 {
        (0..count).for_each(|_| talk.send(20 * MS * n + 2 * MS, Turn::Free));
        (1..=count).for_each(|m| talk.completed(20 * MS * n + 2 * MS + 4 * MS * m));
    }
    talk.forward()
}

#[test]
fn a_queue_in_the_controller_is_the_links() {
    let direction = together(4);
    assert_eq!(found(&direction)[0], "controller", "{direction:#?}");
    assert!(share(&direction, Holder::Air) > 0.75, "{direction:#?}");
    // One at a time is no queue.
    assert_eq!(found(&together(1)), ["sending_program"]);
}

/// One packet each 200 ms, which is through after 30 ms, and each tenth one after 120 ms.
fn alone(sniff_ns: u64, took: impl Fn(u64) -> u64) -> Direction {
    let mut talk = Talk::new(Kind::Basic(0x1001), 0, 0, 8);
    for n in 0..100 {
        let at = 200 * MS * n + 2 * MS;
        talk.send(at, Turn::Free);
        talk.completed(at + took(n));
        if n == 50 {
            talk.link(at + took(n), |link| link.sniff_ns = sniff_ns);
        }
    }
    talk.forward()
}

fn said(direction: &Direction) -> (&str, &str) {
    let on = direction.verdicts.iter().find(|on| on.cause == "controller").unwrap();
    match &on.verdict {
        Verdict::Found(found) => (&found.summary, &found.remedy),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_packet_that_is_alone_in_the_controller_is_no_queue() {
    let direction = alone(0, |n| if n % 10 == 0 { 120 * MS } else { 30 * MS });
    let (summary, remedy) = said(&direction);
    assert!(summary.starts_with("A packet waited long") && !remedy.contains("Enhanced"), "{direction:#?}");
    assert!(!evidence(&direction, "controller").contains("buffers"), "{direction:#?}");
    let queue = together(8);
    assert!(said(&queue).0.starts_with("Packets queued") && said(&queue).1.contains("Enhanced"), "{queue:#?}");
    assert!(evidence(&queue, "controller").contains("Its 8 buffers were all taken"), "{queue:#?}");
}

/// What packets take on the air is not the late one's.
#[test]
fn one_late_packet_costs_what_it_was_late() {
    let cost = |direction: &Direction| {
        let on = direction.verdicts.iter().find(|on| on.cause == "controller").unwrap();
        match &on.verdict {
            Verdict::Found(found) => Some(found.cost.held_ns / MS),
            _ => None,
        }
    };
    let late =
        |at: &'static [u64], took: u64| cost(&alone(0, move |n| if at.contains(&n) { took * MS } else { 30 * MS }));
    // Three or more that come to a hundredth of the time, or one that is a stall by itself.
    assert_eq!(late(&[10, 20, 40], 130), Some(300));
    assert_eq!(late(&[10], 130), None);
    assert_eq!(late(&[10], 230), Some(200));
    // Packets that are late together are so once.
    let stalls = |packets: u64| {
        let mut talk = Talk::new(Kind::Basic(0x1001), 0, 0, 8);
        for n in 0..200 {
            talk.send(100 * MS * n + 2 * MS, Turn::Free);
            talk.completed(100 * MS * n + 7 * MS);
        }
        (0..packets).for_each(|n| talk.send(20_000 * MS + n * MS, Turn::Free));
        (0..packets).for_each(|_| talk.completed(20_250 * MS));
        cost(&talk.forward())
    };
    assert_eq!(stalls(1), Some(245));
    assert_eq!(stalls(8), Some(245));
    // Where each one is late, all of it is.
    assert_eq!(cost(&alone(0, |_| 150 * MS)), Some(100 * 150));
}

#[test]
fn packets_that_wait_for_sniff_mode_say_so() {
    let sniff = alone(160 * MS, |n| (n * 37 % 150 + 2) * MS);
    let (summary, remedy) = said(&sniff);
    assert!(summary.contains("sniff mode") && remedy.contains("Leave sniff mode"), "{sniff:#?}");
    assert!(evidence(&sniff, "controller").contains("every 160 ms"), "{sniff:#?}");
    // In that mode, but what waited long was one packet.
    let other = alone(500 * MS, |n| if n == 10 { 204 * MS } else { 4 * MS });
    assert!(said(&other).0.starts_with("A packet waited long"), "{other:#?}");
}

#[test]
fn where_others_have_the_buffers_nobody_can_tell() {
    let mut talk = Talk::new(Kind::Basic(0x1001), 0, 0, 2);
    talk.send(10 * MS, Turn::Free);
    talk.completed(12 * MS);
    talk.say(12 * MS, Way::Forward, L2cap::Buffers { in_use: 2, of: 2 });
    talk.say(900 * MS, Way::Forward, L2cap::Buffers { in_use: 1, of: 2 });
    talk.send(900 * MS, Turn::Free);
    talk.completed(902 * MS);
    let direction = talk.ended(903 * MS);
    assert!(share(&direction, Holder::NotKnown) > 0.95, "{direction:#?}");
    assert!(!found(&direction).contains(&"sending_program"), "{direction:#?}");
}

#[test]
fn what_is_not_counted_can_not_be_told() {
    for kind in [Kind::Rfcomm(2), Kind::Basic(0x1001), Kind::Unopened(0x41)] {
        let mut talk = Talk::new(kind, 0, 5, 8);
        talk.say(2 * MS, Way::Forward, L2cap::NotCounted);
        for n in 0..5 {
            talk.send(10 * MS + n * 500 * MS, Turn::Free);
            talk.completed(12 * MS + n * 500 * MS);
        }
        let direction = talk.forward();
        assert!(found(&direction).is_empty(), "{kind}: {direction:#?}");
        assert!(is_unknown(&direction, "rfcomm_credits") && is_unknown(&direction, "sending_program"), "{kind}");
    }
}

/// A media packet each 20 ms for two seconds; one is handed over late, and one is through late, by so much.
fn media(late: u64, slow: u64) -> Direction {
    streams(late, slow).forward()
}

fn streams(late: u64, slow: u64) -> Talk {
    let mut talk = Talk::new(Kind::Media(0x41), 0, 0, 8);
    talk.say(2 * MS, Way::Forward, L2cap::Stream { hz: 48_000 });
    let mut free = 0;
    for n in 0..100 {
        let at = (10 * MS + n * 20 * MS + if (50..50 + late / (20 * MS)).contains(&n) { late } else { 0 }).max(free);
        talk.say(at, Way::Forward, L2cap::Media { sequence: n as u16, timestamp: n as u32 * 960 });
        talk.send(at, Turn::Free);
        free = at + 3 * MS + if n == 70 { slow } else { 0 };
        talk.completed(free);
    }
    talk
}

/// Behind a loss the stream's rate is not known any more.
#[test]
fn what_was_late_before_a_loss_is_told() {
    for late in [0, 200 * MS] {
        let mut talk = streams(late, 0);
        talk.say(2_100 * MS, Way::Forward, L2cap::Stream { hz: 0 });
        talk.say(2_100 * MS, Way::Forward, L2cap::Lost);
        talk.say(2_110 * MS, Way::Forward, L2cap::Media { sequence: 110, timestamp: 110 * 960 });
        talk.send(2_110 * MS, Turn::Free);
        talk.completed(2_113 * MS);
        let direction = talk.forward();
        assert_eq!(found(&direction).contains(&"sending_program"), late > 0, "{direction:#?}");
        let on = direction.verdicts.iter().find(|on| on.cause == "sending_program").expect("all causes are told");
        if let Verdict::Unknown { missing, ask } = &on.verdict {
            assert!(missing.contains("lost") && ask.contains("without losses"), "{missing}; {ask}");
        } else {
            assert!(late > 0, "{on:?}");
        }
    }
}

#[test]
fn media_waits_for_its_program_or_for_the_link() {
    let late = media(200 * MS, 0);
    assert_eq!(found(&late), ["sending_program"], "{late:#?}");
    assert!(evidence(&late, "sending_program").contains("media packets were handed over"), "{late:#?}");
    let slow = media(0, 90 * MS);
    assert!(!found(&slow).contains(&"sending_program"), "{slow:#?}");
    let slow = media(0, 150 * MS);
    assert!(found(&slow).contains(&"controller"), "{slow:#?}");
    // A stream that is on time waits most of the time, for nobody.
    let clean = media(0, 0);
    assert_eq!(found(&clean), [""; 0], "{clean:#?}");
    assert!(share(&clean, Holder::SendingProgram) > 0.8);
}
