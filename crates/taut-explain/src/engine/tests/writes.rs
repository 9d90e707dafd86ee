//! What a segment tells of the writes that it was made of, and of the sender's clock.

use super::*;

/// Writes of a segment and so much more, each 22 ms over a round trip of 48 ms.
fn long_writes(rest: u64) -> Direction {
    let mut events = Vec::new();
    let mut end = 1;
    for write in 0..40 {
        let at = 60_000 + write * 22_000;
        end += MSS + rest;
        events.push((at, None));
        events.push((at + 48_000, Some(end)));
    }
    events.sort_by_key(|event| event.0);
    talked(48_000, &events, &[MSS, rest])
}

#[test]
fn after_a_part_of_a_segment_the_program_had_no_more() {
    let direction = long_writes(203);
    assert!(share(&direction, Holder::SendingProgram) > 0.9, "{direction:#?}");
    assert!(is_found(&direction, "sending_program") && !is_found(&direction, "congestion_window"), "{direction:#?}");
}

#[test]
fn behind_full_segments_more_may_wait() {
    let direction = long_writes(MSS);
    assert!(share(&direction, Holder::SendingProgram) < 0.1, "{direction:#?}");
    assert!(!is_found(&direction, "sending_program"), "{direction:#?}");
}

/// Writes of so many bytes that leave alone, and then 1,120 bytes with each acknowledgement.
fn held(alone: &[u64]) -> f64 {
    let mut talk = Talk::open(24_000);
    let mut begin = 30_000;
    for (number, &length) in alone.iter().enumerate() {
        if number > 0 {
            talk.ack(begin + 24_000, BACKWARD);
            begin += 60_000;
        }
        talk.send(begin, FORWARD, length);
    }
    for round in 1..40 {
        let at = begin + round * 24_030;
        talk.ack(at - 30, BACKWARD);
        talk.send(at, FORWARD, 1_120);
    }
    let direction = talk.forward();
    assert!(is_found(&direction, "nagle_delayed_ack"), "{direction:#?}");
    share(&direction, Holder::Nagle)
}

#[test]
fn nagle_held_the_first_of_several_writes_for_most_of_the_gap() {
    // Four writes of 280 bytes: the first came after an eighth of the gap.
    let share = held(&[280]);
    assert!((0.8..0.87).contains(&share), "{share}");
    let share = held(&[1_120]);
    assert!((0.45..0.52).contains(&share), "{share}");
    // One that was held up is as long as two writes; part of the time is its own.
    let share = held(&[280, 560]);
    assert!((0.75..0.82).contains(&share), "{share}");
}

/// Seen at the receiver: two segments with each acknowledgement, the second one 4 ms after the first, sent so
/// much later by the sender's clock. The window has room for just these two.
fn pairs(sent_later: u32) -> Direction {
    let mut talk = Talk::new(true);
    talk.window = 2 * MSS as u32;
    talk.stamped(0, FORWARD, SegmentFlags::SYN, 0, (0, 0));
    talk.stamped(10, BACKWARD, SegmentFlags::SYN, 0, (0, 0));
    talk.stamped(20_010, FORWARD, 0, 0, (10, 0));
    for pair in 0..50 {
        let released = 30_000 + pair * 24_030;
        let (value, echo) = ((released / 1_000) as u32 + 10, (released / 1_000) as u32);
        if pair > 0 {
            talk.stamped(released, BACKWARD, 0, 0, (echo, 0));
        }
        talk.stamped(released + 20_000, FORWARD, 0, MSS, (value, echo));
        talk.stamped(released + 24_000, FORWARD, 0, MSS, (value + sent_later, echo));
    }
    talk.forward()
}

#[test]
fn what_left_later_by_the_senders_clock_was_paced() {
    let paced = |direction: &Direction| {
        [Holder::Pacing, Holder::CongestionWindow].iter().map(|&holder| share(direction, holder)).sum::<f64>()
    };
    let direction = pairs(4);
    assert!(paced(&direction) > 0.12, "{direction:#?}");
    // The same, only that the path took the pair apart.
    let direction = pairs(0);
    assert!(paced(&direction) < 0.04, "{direction:#?}");
}

/// Full segments spaced by 2 ms over a round trip of 41 ms. Each 200 ms there are none for so long, nor are there any
/// acknowledgements, if all stands still.
fn interrupted(pause: u64, stands_still: bool) -> Direction {
    let mut events = Vec::new();
    let mut end = 1;
    let stops = |at: u64| at / 200_000 * pause;
    for number in 0..500 {
        let at = 60_000 + number * 2_000;
        end += MSS;
        events.push((at + stops(at), None));
        let back = at + 41_000;
        events.push((back + stops(if stands_still { back } else { at }), Some(end)));
    }
    events.sort_by_key(|event| event.0);
    talked(41_000, &events, &[MSS])
}

/// Segments of these lengths at each of these times, or an acknowledgement up to there.
fn talked(round_trip: u64, events: &[(u64, Option<u64>)], lengths: &[u64]) -> Direction {
    let mut talk = Talk::open(round_trip);
    for &(at, ack) in events {
        match ack {
            Some(ack) => talk.ack_up_to(at, BACKWARD, ack),
            None => (at..).step_by(10).zip(lengths).for_each(|(at, &length)| talk.send(at, FORWARD, length)),
        }
    }
    talk.forward()
}

#[test]
fn while_all_stands_still_it_is_not_known_who_held() {
    for pause in [46_000, 60_000] {
        let direction = interrupted(pause, true);
        assert!(share(&direction, Holder::SendingProgram) < 0.02, "{direction:#?}");
        assert!(share(&direction, Holder::NotKnown) > 0.1, "{direction:#?}");
        // What was in flight is acknowledged meanwhile.
        let direction = interrupted(pause, false);
        assert!(share(&direction, Holder::SendingProgram) > 0.1, "{direction:#?}");
        assert!(share(&direction, Holder::NotKnown) < 0.02, "{direction:#?}");
    }
}

/// Five segments each 50 ms over 60 ms: none is due when the next are written.
#[test]
fn before_an_acknowledgement_is_due_nothing_stands_still() {
    let mut events = Vec::new();
    for number in 0..40 {
        let at = 100_000 + number * 50_000;
        events.push((at, None));
        events.push((at + 60_000, Some(1 + (number + 1) * 5 * MSS)));
    }
    events.sort_by_key(|event| event.0);
    let direction = talked(60_000, &events, &[5 * MSS]);
    assert!(share(&direction, Holder::NotKnown) < 0.02, "{direction:#?}");
}

/// Each 100 ms a write with a part of a segment at its end, over 60 ms. Every fifth is acknowledged after the next one.
#[test]
fn behind_a_whole_write_a_late_acknowledgement_is_no_standstill() {
    let mut events = Vec::new();
    for number in 0..40 {
        let at = 100_000 + number * 100_000;
        events.push((at, None));
        let round_trip = if number % 5 == 4 { 115_000 } else { 60_000 };
        events.push((at + round_trip, Some(1 + (number + 1) * (4 * MSS + 400))));
    }
    events.sort_by_key(|event| event.0);
    let direction = talked(60_000, &events, &[4 * MSS, 400]);
    assert!(share(&direction, Holder::SendingProgram) > 0.9, "{direction:#?}");
    assert!(share(&direction, Holder::NotKnown) < 0.02, "{direction:#?}");
}

/// Seen at the receiver, which acknowledges at once: each 100 ms two segments, the second one 60 ms behind the first,
/// sent so many milliseconds later by the sender's clock, of which a tick is so long.
fn apart(sent_later: u64, tick_ms: u64) -> Direction {
    let mut talk = Talk::new(true);
    let clock = |at: u64| (at / 1_000 / tick_ms) as u32 + 7;
    talk.stamped(0, FORWARD, SegmentFlags::SYN, 0, (7, 0));
    talk.stamped(10, BACKWARD, SegmentFlags::SYN, 0, (7, 7));
    talk.stamped(20_010, FORWARD, 0, 0, (clock(20_000), 7));
    let mut known = 7;
    for pair in 0..40 {
        let at = 130_000 + pair * 100_000;
        for (passed, sent) in [(at, at - 10_000), (at + 60_000, at - 10_000 + sent_later * 1_000)] {
            // What was acknowledged 10 ms before it was sent had come to its sender.
            let echo = if passed == at || sent_later > 20 { known } else { known.min(clock(at - 20_000)) };
            talk.stamped(passed, FORWARD, 0, MSS, (clock(sent), echo));
            talk.stamped(passed + 30, BACKWARD, 0, 0, (clock(passed), clock(sent)));
            known = clock(passed);
        }
    }
    talk.forward()
}

/// Who left later was not ready; what left together was taken apart by the path.
#[test]
fn what_left_together_by_the_senders_clock_was_not_held_by_its_program() {
    let held_by_program = |direction: &Direction| share(direction, Holder::SendingProgram);
    let late = apart(60, 1);
    assert!(held_by_program(&late) > 0.9, "{late:#?}");
    let together = apart(0, 1);
    // 40 ms of each 100 are its own.
    assert!((0.38..0.45).contains(&held_by_program(&together)), "{together:#?}");
    assert!(share(&together, Holder::PathQueue) > 0.5, "{together:#?}");
    // A clock with ticks as long as the gap tells nothing.
    let coarse = apart(0, 50);
    assert!(held_by_program(&coarse) > 0.9, "{coarse:#?}");
}

/// At the server, 120 ms from a client that writes again after each answer: 10 ms later, as an empty segment of the
/// client shows that goes first, or at once, where Nagle's algorithm held the second piece of a request.
fn requests_afar(are_held: bool) -> Direction {
    let mut talk = Talk::new(true);
    let clock = |at: u64| (at / 1_000) as u32 + 7;
    let mut tell = |at: u64, way: usize, flags: u8, len: u64, echo: u64| {
        talk.stamped(at, way, flags, len, (clock(at), clock(echo)));
    };
    tell(0, FORWARD, SegmentFlags::SYN, 0, 0);
    tell(50, BACKWARD, SegmentFlags::SYN, 0, 0);
    tell(120_050, FORWARD, 0, 0, 50);
    let (mut at, mut answered) = (121_000, 50);
    for _ in 0..6 {
        tell(at, FORWARD, SegmentFlags::PSH, 200, answered);
        tell(at + 40, BACKWARD, 0, 0, at);
        if are_held {
            at += 120_050;
            tell(at, FORWARD, SegmentFlags::PSH, 100, at - 120_010);
        }
        answered = at + 80;
        tell(answered, BACKWARD, SegmentFlags::PSH, 300, at);
        if !are_held {
            tell(answered + 120_000, FORWARD, 0, 0, answered);
        }
        at = answered + 130_000;
    }
    talk.forward()
}

#[test]
fn what_left_after_an_empty_segment_was_not_held() {
    let prompt = requests_afar(false);
    assert_eq!(faults(&prompt), Vec::<&str>::new(), "{prompt:#?}");
    assert_eq!(share(&prompt, Holder::Nagle), 0.0);
    let held = requests_afar(true);
    assert_eq!(faults(&held), ["nagle_delayed_ack"], "{held:#?}");
}

/// The window is used up in each round trip; in the last ones it is several times as large, and has room, or not.
#[test]
fn a_window_that_grew_later_was_not_the_buffers_limit() {
    let summary = |then: u32| {
        let mut talk = Talk::open_with(4_000, 20 * MSS as u32);
        let mut at = 5_000;
        for round in 0..12 {
            (0..20).for_each(|segment| talk.send(at + segment, FORWARD, MSS));
            if round == 9 {
                talk.window = then;
            }
            talk.ack(at + 4_000, BACKWARD);
            at += 4_030;
        }
        let direction = talk.forward();
        let Verdict::Found(found) = verdict(&direction, "receive_window") else { panic!("{direction:#?}") };
        found.summary.clone()
    };
    assert!(summary(100 * MSS as u32).contains("was still growing: 29 kB of it"), "{}", summary(100 * MSS as u32));
    assert!(
        summary(20 * MSS as u32).contains("is small for this path: 29 kB a round trip"),
        "{}",
        summary(20 * MSS as u32)
    );
}

/// Each 10 ms a write that does not fill a segment, or in the twin one that does; five round trips are one of the path,
/// so each leaves just when the acknowledgement of an earlier one comes.
#[test]
fn parts_of_segments_at_a_period_are_the_programs_however_many_are_under_way() {
    let story = |bytes: u64| {
        let mut talk = Talk::open(50_000);
        for turn in 0..100 {
            let at = 100_000 + turn * 10_000;
            if turn >= 5 {
                talk.ack_up_to(at, BACKWARD, 1 + (turn - 4) * bytes);
            }
            talk.send(at + 40, FORWARD, bytes);
        }
        talk.forward()
    };
    let parts = story(1_200);
    assert_eq!(faults(&parts), Vec::<&str>::new(), "{parts:#?}");
    assert!(share(&parts, Holder::SendingProgram) > 0.8, "{parts:#?}");
    let whole = story(MSS);
    assert!(share(&whole, Holder::SendingProgram) < 0.4, "{whole:#?}");
}
