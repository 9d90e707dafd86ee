//! Openings that were sent again.

use super::*;

/// SYN at 0 and 1 s; SYN/ACK 20 ms after the second, which echoes the first, the second, or nothing.
/// Then ten rounds of ten segments, each acknowledged after `round_trip`.
fn opened(echo: Option<u32>, round_trip: u64) -> Direction {
    let mut talk = Talk::new(true);
    let syn = |flags, ack, stamps: Option<(u32, u32)>| Segment {
        flags: SegmentFlags(flags),
        window_is_scaled: true,
        mss: 1460,
        window: 65_535,
        ack,
        timestamps: stamps.map(|(value, echo)| TimestampOption { value, echo }),
        ..Segment::default()
    };
    for (at, value) in [(0, 1), (1_000_000, 1_001)] {
        talk.event(at, FORWARD, syn(SegmentFlags::SYN, 0, echo.map(|_| (value, 0))), ByteRange::new(1, 1));
    }
    let answer = syn(SegmentFlags::SYN | SegmentFlags::ACK, 1, echo.map(|echo| (1, echo)));
    talk.event(1_020_000, BACKWARD, answer, ByteRange::new(1, 1));
    talk.ack(1_020_050, FORWARD);
    bulk(&mut talk, 1_021_000, round_trip, 10, |_| 10);
    talk.ack(1_021_000 + 10 * round_trip, BACKWARD);
    talk.forward()
}

#[test]
fn an_answer_to_the_first_syn_is_no_short_round_trip() {
    for echo in [Some(1), None] {
        let direction = opened(echo, 1_020_000);
        assert!(!is_found(&direction, "path_queue"), "{direction:#?}");
        assert!(direction.min_rtt_ns > 1_000_000_000, "{}", direction.min_rtt_ns);
        assert_eq!(is_found(&direction, "handshake_repeated"), echo.is_none());
    }
    // The twin: the second one was answered, and the path is short.
    let direction = opened(Some(1_001), 20_000);
    assert_eq!(direction.min_rtt_ns / 1_000_000, 19, "{}", direction.min_rtt_ns);
    assert!(is_found(&direction, "handshake_repeated"));
}

/// At the client, that asks for all: the answer tells the way, and data that meets an acknowledgement does not.
#[test]
fn a_repeated_opening_without_timestamps_does_not_shorten_the_way() {
    let mut talk = Talk::new(true);
    talk.window = 20 * MSS as u32;
    let syn = |flags, ack| Segment {
        flags: SegmentFlags(flags),
        window_is_scaled: true,
        mss: 1460,
        window: 29_200,
        ack,
        ..Segment::default()
    };
    for at in [0, 1_000_000] {
        talk.event(at, FORWARD, syn(SegmentFlags::SYN, 0), ByteRange::new(1, 1));
    }
    talk.event(1_020_000, BACKWARD, syn(SegmentFlags::SYN | SegmentFlags::ACK, 1), ByteRange::new(1, 1));
    talk.ack(1_020_030, FORWARD);
    talk.send(1_021_000, FORWARD, 200);
    for round in 0..40 {
        for segment in 0..20 {
            let at = 1_041_000 + round * 20_030 + segment * 500;
            talk.send(at, BACKWARD, MSS);
            talk.ack(at + 30, FORWARD);
        }
    }
    let from = address(2, 80).to_string();
    let direction = talk.finish().worst.into_iter().find(|direction| direction.from == from).unwrap();
    assert!(direction.vantage.is_some_and(|vantage| vantage > 0.9), "{:?}", direction.vantage);
    assert!(is_found(&direction, "receive_window"), "{direction:#?}");
    assert!(!is_found(&direction, "sending_program"), "{direction:#?}");
}

/// A request in the SYN, that the SYN/ACK takes or not; answered after 50 ms. Seen at the client.
fn early(is_taken: bool) -> Explanation {
    let mut talk = Talk::new(true);
    let syn = |flags, ack| Segment {
        flags: SegmentFlags(flags),
        window_is_scaled: true,
        mss: 1460,
        window: 65_535,
        ack,
        ..Segment::default()
    };
    talk.event(0, FORWARD, syn(SegmentFlags::SYN, 0), ByteRange::new(1, 201));
    let taken = if is_taken { 201 } else { 1 };
    talk.event(20_000, BACKWARD, syn(SegmentFlags::SYN | SegmentFlags::ACK, taken), ByteRange::new(1, 1));
    talk.ack(20_050, FORWARD);
    if is_taken {
        talk.next[FORWARD] = 201;
    } else {
        talk.send(20_060, FORWARD, 200);
    }
    talk.send(90_000, BACKWARD, 1_000);
    talk.ack(90_030, FORWARD);
    talk.finish()
}

#[test]
fn data_in_a_syn_counts_once() {
    for is_taken in [true, false] {
        let explanation = early(is_taken);
        let from = address(1, 4000).to_string();
        let request = explanation.worst.iter().find(|direction| direction.from == from).expect("it was seen");
        assert_eq!((request.bytes, request.segments, request.repeated_segments), (200, 1, 0), "{request:#?}");
        let answer = explanation.worst.iter().find(|direction| direction.to == from).expect("it was seen");
        assert!(is_found(answer, "sending_program") || share(answer, Holder::PeerTurn) > 0.0, "{answer:#?}");
        assert_eq!(faults(request), Vec::<&str>::new());
    }
}
