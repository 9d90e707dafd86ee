//! Captures that begin amid a connection: no handshake tells the way to either end, nor the scale of windows.

use super::*;

const ROUND_TRIP: u64 = 20_000;
/// What the receiver grants, as it stands in the header: 262,144 bytes with the scale that is not seen.
const WIDE: u32 = 2048;

/// A transfer in flights of so many segments, of which each acknowledgement lets one more go; it is seen at its
/// receiver or its sender. Times in microseconds.
struct Flights {
    segments: u64,
    /// Bytes of the last segment of a flight.
    tail: u64,
    window: u32,
    /// From one flight to the next.
    every: u64,
    is_at_receiver: bool,
    has_stamps: bool,
}

impl Flights {
    fn seen(&self, flights: u64) -> Direction {
        let mut events = Vec::new();
        let back = if self.is_at_receiver { 30 } else { ROUND_TRIP };
        let mut start = 1;
        for flight in 0..flights {
            for segment in 0..self.segments {
                let len = if segment + 1 == self.segments { self.tail } else { MSS };
                let at = ROUND_TRIP + flight * self.every + segment * 100;
                // The newest that its sender had: of the same segment of the flight before, or of the last one.
                let before = if self.every > 2 * ROUND_TRIP { at + (self.segments - 1 - segment) * 100 } else { at };
                let echo = (before + back).saturating_sub(self.every) / 1000;
                events.push((at, FORWARD, ByteRange::new(start, start + len), 0, echo));
                start += len;
                events.push((at + back, BACKWARD, ByteRange::new(1, 1), start, (at + back) / 1000));
            }
        }
        events.sort_by_key(|event| event.0);
        let mut talk = Talk::new(false);
        // The capture begins while acknowledgements of what it lacks come.
        for ack in [0, 1] {
            let segment = Segment { window_is_scaled: false, window: self.window, ack, ..talk.segment(BACKWARD, 0) };
            talk.event(ROUND_TRIP - 10_000 + ack, BACKWARD, segment, ByteRange::new(1, 1));
        }
        for (at, way, bytes, ack, stamp) in events {
            let (value, echo) = if way == FORWARD { (at / 1000, stamp) } else { (stamp, 0) };
            let stamps = TimestampOption { value: value as u32, echo: echo as u32 };
            let flags = if bytes.end - bytes.start < MSS { SegmentFlags::PSH } else { 0 };
            let segment = Segment {
                window_is_scaled: false,
                window: if way == FORWARD { 500 } else { self.window },
                ack: if way == FORWARD { 1 } else { ack },
                timestamps: self.has_stamps.then_some(stamps),
                ..talk.segment(way, flags)
            };
            talk.event(at, way, segment, bytes);
        }
        talk.forward()
    }
}

const CONGESTED: Flights =
    Flights { segments: 60, tail: MSS, window: WIDE, every: ROUND_TRIP + 30, is_at_receiver: true, has_stamps: true };

#[test]
fn at_the_receiver_echoed_timestamps_tell_the_way_to_the_sender() {
    for is_at_receiver in [true, false] {
        let direction = Flights { is_at_receiver, ..CONGESTED }.seen(60);
        assert_eq!(faults(&direction), ["congestion_window"], "{direction:#?}");
        assert!(!is_found(&direction, "sending_program"), "{direction:#?}");
        assert!(share(&direction, Holder::NotKnown) < 0.05, "{direction:#?}");
        let vantage = direction.vantage.unwrap();
        assert!((vantage - f64::from(u8::from(is_at_receiver))).abs() < 0.1, "{vantage}");
        assert!(direction.min_rtt_ns.abs_diff(20_000_000) < 1_100_000, "{}", direction.min_rtt_ns);
    }
}

/// Without timestamps nothing tells the receiver's side how far off the sender is.
#[test]
fn a_way_that_is_not_known_blames_nobody() {
    let direction = Flights { has_stamps: false, ..CONGESTED }.seen(60);
    assert!(share(&direction, Holder::NotKnown) > 0.95, "{direction:#?}");
    assert!(direction.verdicts.iter().all(|on| !matches!(on.verdict, Verdict::Found(_))), "{direction:#?}");
    assert!(direction.remarks.iter().any(|remark| remark.contains("how far from the sender")));
    // At the sender data follows acknowledgements at once.
    let direction = Flights { has_stamps: false, is_at_receiver: false, ..CONGESTED }.seen(60);
    assert_eq!(faults(&direction), ["congestion_window"], "{direction:#?}");
}

#[test]
fn a_window_whose_scale_was_not_seen_is_known_by_what_was_in_flight() {
    for is_at_receiver in [true, false] {
        // 65,536 bytes, of which 44 segments leave less than one.
        let direction = Flights { segments: 44, window: 512, is_at_receiver, ..CONGESTED }.seen(60);
        assert_eq!(faults(&direction), ["receive_window"], "{direction:#?}");
        assert_eq!(direction.largest_window_bytes, Some(65_536));
    }
}

/// A program writes 60,000 bytes each 200 ms: from acknowledgements to data it always takes 180 ms, and that is no way.
#[test]
fn a_program_that_pauses_is_no_long_way() {
    for has_stamps in [true, false] {
        let paused = Flights { every: 200_000, tail: 460, is_at_receiver: false, has_stamps, ..CONGESTED };
        let direction = paused.seen(15);
        assert_eq!(faults(&direction), Vec::<&str>::new(), "{direction:#?}");
        assert!(share(&direction, Holder::SendingProgram) > 0.9, "{direction:#?}");
    }
}

/// What was on the way before the capture is not missing from it.
#[test]
fn a_capture_that_begins_amid_a_flight_lacks_nothing() {
    let mut talk = Talk::new(false);
    let mut acked = 1;
    for segment in 0..400 {
        let at = 1_000 + segment * 1_000;
        acked += MSS;
        talk.ack_up_to(at, BACKWARD, acked);
        // Twenty are on the way, and those that the capture has come after the first acknowledgements.
        talk.next[FORWARD] = acked + 20 * MSS;
        if segment >= 5 {
            talk.send(at + 20, FORWARD, MSS);
        }
    }
    talk.ack(450_000, BACKWARD);
    let direction = talk.forward();
    assert!(!direction.remarks.iter().any(|remark| remark.contains("lacks")), "{:?}", direction.remarks);
}

/// The first answer that is seen is the late one, so for a while it is the shortest round trip that is known.
#[test]
fn how_late_an_answer_was_is_told_by_all_answers() {
    // When a write leaves and is acknowledged, in microseconds, and how many bytes it has.
    let writes =
        [(10_000, 45_400, 58), (55_600, 9, 124)].into_iter().chain((1..7).map(|n| (60_000 + n * 20_000, 20, 60)));
    let (mut talk, mut start, mut echo) = (Talk::new(false), 1, 9);
    for (at, answer, bytes) in writes {
        let stamped = |at: u64, echo: u64| Some(TimestampOption { value: (at / 1000) as u32, echo: echo as u32 });
        let data = Segment { ack: 1, timestamps: stamped(at, echo), ..talk.segment(FORWARD, SegmentFlags::PSH) };
        talk.event(at, FORWARD, data, ByteRange::new(start, start + bytes));
        start += bytes;
        echo = (at + answer) / 1000;
        let ack = Segment { ack: start, timestamps: stamped(at + answer, at / 1000), ..talk.segment(BACKWARD, 0) };
        talk.event(at + answer, BACKWARD, ack, ByteRange::new(1, 1));
    }
    let direction = talk.forward();
    let Verdict::Found(found) = verdict(&direction, "nagle_delayed_ack") else { panic!("{direction:#?}") };
    let told = |part: &str| found.evidence.iter().any(|seen| seen.text.contains(part));
    assert!(told("45.4 ms late, the delayed-ACK timer of Linux"), "{found:#?}");
}
