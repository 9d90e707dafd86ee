//! Where two rules meet: each case with a twin in which the other one is right.

use super::*;

fn segment_of(flags: u8, ack: u64, identification: Option<u16>) -> Segment {
    Segment {
        flags: SegmentFlags(flags),
        window_is_scaled: true,
        mss: MSS as u16,
        window: 65_535,
        ack,
        identification,
        ..Segment::default()
    }
}

/// Messages of the whole window of four segments, one each 2 s; with or without another write that waits for it.
fn filled_window(waits: bool) -> Direction {
    let mut talk = Talk::open_with(20_000, 4 * MSS as u32);
    for turn in 0..10 {
        let at = 30_000 + turn * 2_000_000;
        (0..3).for_each(|segment| talk.send(at + segment, FORWARD, MSS));
        let (start, flags) = (talk.next[FORWARD], if waits { 0 } else { SegmentFlags::PSH });
        talk.next[FORWARD] += MSS;
        talk.event(at + 3, FORWARD, talk.segment(FORWARD, flags), ByteRange::new(start, start + MSS));
        talk.ack(at + 20_000, BACKWARD);
        if waits {
            talk.send(at + 20_030, FORWARD, 400);
            talk.ack(at + 40_000, BACKWARD);
        }
    }
    talk.forward()
}

#[test]
fn a_window_that_opened_long_ago_held_nothing_since() {
    let filled = filled_window(false);
    assert!(share(&filled, Holder::SendingProgram) > 0.9, "{filled:#?}");
    assert!((0.005..0.02).contains(&share(&filled, Holder::ReceiveWindow)), "{filled:#?}");
    assert!(!is_found(&filled, "receive_window"), "{filled:#?}");
    let waited = filled_window(true);
    let ns = |direction: &Direction| (share(direction, Holder::ReceiveWindow) * direction.span_ns as f64) as u64;
    assert!(ns(&waited) > 180_000_000, "{waited:#?}");
}

/// An opening whose packets the capture has twice, so soon after each other.
fn opened_twice(apart: u64) -> Direction {
    let mut talk = Talk::new(true);
    for at in [0, apart] {
        talk.event(at, FORWARD, segment_of(SegmentFlags::SYN, 0, Some(7)), ByteRange::new(1, 1));
    }
    for at in [20_000, 20_000 + apart] {
        let flags = SegmentFlags::SYN | SegmentFlags::ACK;
        talk.event(at, BACKWARD, segment_of(flags, 1, Some(0)), ByteRange::new(1, 1));
    }
    talk.ack(20_000 + apart + 10, FORWARD);
    bulk(&mut talk, 30_000 + apart, 20_000, 3, |_| 10);
    talk.ack(90_000 + apart, BACKWARD);
    talk.forward()
}

#[test]
fn an_opening_that_the_capture_has_twice_was_not_repeated() {
    assert!(!is_found(&opened_twice(30), "handshake_repeated"));
    assert!(is_found(&opened_twice(1_000_000), "handshake_repeated"));
}

/// Ten segments that passed as one; and one by one, 20 µs later as copies, or after a round trip as sent again.
fn cut_differently(is_again: bool) -> Direction {
    let mut talk = Talk::open(20_000);
    let mut identification = 100;
    for round in 0..20 {
        let at = 40_000 + round * 60_000;
        let start = talk.next[FORWARD];
        talk.next[FORWARD] += 10 * MSS;
        let pass = |talk: &mut Talk, at, from: u64, count: u64, identification| {
            let segment = Segment { identification: Some(identification), ..talk.segment(FORWARD, 0) };
            talk.event(at, FORWARD, segment, ByteRange::new(from, from + count * MSS));
        };
        pass(&mut talk, at, start, 10, identification);
        if is_again {
            identification += 10;
        }
        for number in 0..10 {
            let later = if is_again { 25_000 } else { 20 };
            pass(&mut talk, at + later, start + number * MSS, 1, identification + number as u16);
        }
        identification += 10;
        talk.ack(at + 45_000, BACKWARD);
    }
    talk.forward()
}

#[test]
fn copies_that_are_cut_differently_are_no_losses() {
    let copied = cut_differently(false);
    assert_eq!((copied.repeated_segments, is_found(&copied, "loss")), (0, false), "{copied:#?}");
    assert!(cut_differently(true).repeated_segments > 150);
}

/// Small messages whose acknowledgements are delayed, then a bulk over the same path, with a queue or none.
fn bulk_after_small_ones(queue: u64) -> Direction {
    let mut talk = Talk::open(10_000);
    for turn in 0..30 {
        talk.send(20_000 + turn * 100_000, FORWARD, 100);
        talk.ack(70_000 + turn * 100_000, BACKWARD);
    }
    bulk(&mut talk, 3_100_000, 10_000 + queue, 20, |round| 10 + round);
    talk.ack(3_100_000 + 20 * (10_000 + queue), BACKWARD);
    talk.forward()
}

#[test]
fn an_acknowledgement_that_was_delayed_is_no_queue() {
    assert!(!is_found(&bulk_after_small_ones(0), "path_queue"));
    assert!(is_found(&bulk_after_small_ones(40_000), "path_queue"));
}

/// A request that is lost behind this place and sent again, each answered after 5 ms.
#[test]
fn an_answer_is_counted_from_the_request_that_came() {
    let mut talk = Talk::open(20_000);
    for turn in 0..10 {
        let at = 30_000 + turn * 500_000;
        let start = talk.next[FORWARD];
        talk.send(at, FORWARD, 200);
        let lost = if turn == 4 { 220_000 } else { 0 };
        if lost > 0 {
            talk.again(at + lost, FORWARD, start, 200);
        }
        talk.send(at + lost + 25_000, BACKWARD, 300);
        talk.ack(at + lost + 25_010, FORWARD);
    }
    let direction = talk.forward();
    let turns = direction.times.iter().find(|times| times.of == "turn").unwrap();
    assert!(turns.max_ns.unwrap() < 6_000_000, "{turns:#?}");
}

/// The first request comes in the same microsecond as the end of the opening; answered at once over 100 ms.
#[test]
fn a_server_is_not_blamed_for_the_way_to_the_first_request() {
    let mut talk = Talk::open(100_000);
    talk.send(100_020, FORWARD, 200);
    talk.send(200_120, BACKWARD, 300);
    talk.ack(200_140, FORWARD);
    let from = address(2, 80).to_string();
    let direction = talk.finish().worst.into_iter().find(|direction| direction.from == from).unwrap();
    assert!(share(&direction, Holder::SendingProgram) < 0.01, "{direction:#?}");
}

#[test]
fn what_never_opened_is_told() {
    let syns = |times: &[u64]| {
        let mut talk = Talk::new(true);
        for (number, at) in (1..).zip(times) {
            talk.event(*at, FORWARD, segment_of(SegmentFlags::SYN, 0, Some(number)), ByteRange::new(1, 1));
        }
        let told = talk.finish().unanswered;
        (told.connections, told.longest_ns, told.frame)
    };
    assert_eq!(syns(&[0, 1_000_000, 3_000_000]), (1, 3_000_000_000, 1));
    // The capture may have ended before the answer.
    assert_eq!(syns(&[0]), (0, 0, 0));
}
