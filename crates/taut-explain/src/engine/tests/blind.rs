//! Captures in which acknowledgements are missing, by a filter or since one direction passes elsewhere.

use super::*;

/// Sends with timestamps: its own clock in milliseconds, and the echo of the peer's.
fn stamped(talk: &mut Talk, at: u64, way: usize, len: u64, echo: u64) {
    let stamps = TimestampOption { value: (at / 1_000) as u32, echo: (echo / 1_000) as u32 };
    let start = talk.next[way];
    let segment = Segment { timestamps: Some(stamps), ..talk.segment(way, SegmentFlags::PSH) };
    talk.next[way] += len;
    talk.event(at, way, segment, ByteRange::new(start, start + len));
}

/// A request in two writes, of which the second waits for the delayed ACK.
fn requests(has_acks: bool, has_stamps: bool) -> Direction {
    let mut talk = Talk::open(2_000);
    let mut say = |at: u64, way: usize, len: u64, echo: u64| match has_stamps {
        _ if len == 0 && !has_acks => {}
        true => stamped(&mut talk, at, way, len, echo),
        false if len == 0 => talk.ack(at, way),
        false => talk.send(at, way, len),
    };
    for turn in 0..20 {
        let at = 50_000 + turn * 55_000;
        say(at, FORWARD, 40, at - 11_000);
        say(at + 42_000, BACKWARD, 0, at);
        say(at + 42_030, FORWARD, 160, at + 42_000);
        say(at + 44_000, BACKWARD, 100, at + 42_030);
        say(at + 44_040, FORWARD, 0, at + 44_000);
    }
    talk.forward()
}

const HIDDEN: [&str; 4] = ["nagle_delayed_ack", "receive_window", "receiving_program", "sending_program"];

#[test]
fn without_pure_acknowledgements_nobody_is_blamed_and_nothing_is_cleared() {
    for has_stamps in [true, false] {
        let whole = requests(true, has_stamps);
        assert!(is_found(&whole, "nagle_delayed_ack"), "{whole:#?}");
        assert!(!whole.remarks.iter().any(|remark| remark.contains("missing")), "{:?}", whole.remarks);
        let filtered = requests(false, has_stamps);
        for cause in HIDDEN {
            assert!(matches!(verdict(&filtered, cause), Verdict::Unknown { .. }), "{cause} {filtered:#?}");
        }
        assert!(share(&filtered, Holder::NotKnown) > 0.7, "{filtered:#?}");
        assert!(filtered.remarks.iter().any(|remark| remark.contains("Acknowledgements are missing")));
    }
}

/// Turns in which each packet carries data need no acknowledgement without.
#[test]
fn turns_that_acknowledge_with_data_are_whole() {
    for has_stamps in [true, false] {
        let mut talk = Talk::open(2_000);
        for turn in 0..40 {
            let at = 50_000 + turn * 10_000;
            if has_stamps {
                stamped(&mut talk, at, FORWARD, 40, at - 7_000);
                stamped(&mut talk, at + 3_000, BACKWARD, 40, at);
            } else {
                talk.send(at, FORWARD, 40);
                talk.send(at + 3_000, BACKWARD, 40);
            }
        }
        let direction = talk.forward();
        assert_eq!(*verdict(&direction, "nagle_delayed_ack"), Verdict::Clear, "{direction:#?}");
        assert!(is_found(&direction, "sending_program"), "{direction:#?}");
    }
}

#[test]
fn an_acknowledgement_of_the_opening_alone_tells_nothing() {
    let mut talk = Talk::open_with(20_000, 65_160);
    for round in 0..30 {
        (0..10).for_each(|segment| talk.send(21_000 + round * 20_000 + segment * 10, FORWARD, MSS));
    }
    let direction = talk.forward();
    assert!(direction.verdicts.iter().all(|on| matches!(on.verdict, Verdict::Unknown { .. })), "{direction:#?}");
    assert!(direction.remarks[0].contains("Only one direction"), "{:?}", direction.remarks);
    assert!(share(&direction, Holder::NotKnown) > 0.9, "{direction:#?}");
}

/// Of a bulk transfer only the first acknowledgements are there: it goes beyond the window that they grant.
#[test]
fn data_beyond_the_window_shows_that_acknowledgements_are_missing() {
    let mut talk = Talk::open_with(20_000, 65_160);
    for round in 0..30 {
        let at = 21_000 + round * 20_000;
        (0..10).for_each(|segment| talk.send(at + segment * 10, FORWARD, MSS));
        if round < 3 {
            talk.ack(at + 19_900, BACKWARD);
        }
    }
    let direction = talk.forward();
    assert!(matches!(verdict(&direction, "receive_window"), Verdict::Unknown { .. }), "{direction:#?}");
    assert!(matches!(verdict(&direction, "sending_program"), Verdict::Unknown { .. }), "{direction:#?}");
}

/// A packet that the capture has a moment later than its answer was not missing.
#[test]
fn packets_in_another_order_than_they_passed_are_not_missing() {
    let mut talk = Talk::open(2_000);
    for turn in 0..20 {
        let at = 50_000 + turn * 50_000;
        stamped(&mut talk, at, FORWARD, 40, at - 6_000);
        stamped(&mut talk, at + 42_030, FORWARD, 160, at + 42_000);
        let late = TimestampOption { value: (at / 1_000 + 42) as u32, echo: (at / 1_000) as u32 };
        let start = talk.next[BACKWARD];
        let segment = Segment { timestamps: Some(late), ack: talk.next[FORWARD] - 160, ..talk.segment(BACKWARD, 0) };
        talk.event(at + 42_050, BACKWARD, segment, ByteRange::new(start, start));
        stamped(&mut talk, at + 44_000, BACKWARD, 100, at + 42_030);
    }
    let direction = talk.forward();
    assert!(!direction.remarks.iter().any(|remark| remark.contains("missing")), "{:?}", direction.remarks);
}

/// A host that sent a request and never heard anything again knows its timer.
#[test]
fn a_path_that_went_dead_is_not_one_direction_only() {
    let mut talk = Talk::open(20_000);
    let start = talk.next[FORWARD];
    talk.send(21_000, FORWARD, 500);
    for (index, after) in [220_000, 660_000, 1_500_000, 3_200_000].into_iter().enumerate() {
        talk.again(21_000 + after + index as u64, FORWARD, start, 500);
    }
    let direction = talk.forward();
    assert_eq!(faults(&direction), ["loss"]);
}

/// Of a connection whose SYN is not in the capture the SYN/ACK grants 64 KiB; what is granted later has a scale that
/// is not known, and more goes.
#[test]
fn a_window_without_a_scale_is_no_proof_that_acknowledgements_are_missing() {
    let mut talk = Talk::new(false);
    let answer = Segment {
        window_is_scaled: true,
        mss: MSS as u16,
        window: 65_535,
        ..talk.segment(BACKWARD, SegmentFlags::SYN)
    };
    talk.event(0, BACKWARD, answer, ByteRange::new(1, 1));
    for round in 0..40 {
        let at = 1_000 + round * 20_000;
        (0..100).for_each(|segment| talk.send(at + segment * 10, FORWARD, MSS));
        let segment = Segment { window_is_scaled: false, window: 32_768, ..talk.segment(BACKWARD, 0) };
        talk.event(at + 19_980, BACKWARD, segment, ByteRange::new(1, 1));
    }
    let direction = talk.forward();
    assert!(!direction.remarks.iter().any(|remark| remark.contains("missing")), "{:?}", direction.remarks);
    assert!(is_found(&direction, "congestion_window"), "{direction:#?}");
}

/// Data both ways all the time, so that each acknowledgement rides on data, and a pause now and then.
#[test]
fn acknowledgements_that_all_ride_on_data_are_not_missing() {
    let mut talk = Talk::open(100_000);
    let mut at = 200_000;
    for turn in 0..200 {
        for (way, after, len) in [(FORWARD, 0, 120), (BACKWARD, 5_000, 400)] {
            let stamps = TimestampOption { value: (at + after) as u32 / 1_000, echo: (at as u32 - 95_000) / 1_000 };
            let ack = talk.next[1 - way].saturating_sub(8 * [400, 120][way]).max(1);
            let segment = Segment { timestamps: Some(stamps), ack, ..talk.segment(way, SegmentFlags::PSH) };
            let start = talk.next[way];
            talk.next[way] += len;
            talk.event(at + after, way, segment, ByteRange::new(start, start + len));
        }
        at += if turn % 40 == 39 { 40_000 } else { 10_000 };
    }
    let direction = talk.forward();
    assert!(!direction.remarks.iter().any(|remark| remark.contains("missing")), "{:?}", direction.remarks);
    assert!(share(&direction, Holder::NotKnown) < 0.05, "{direction:#?}");
}
