//! Packets that a capture has twice, and packets that overtake each other, which are no losses.

use super::*;

/// Rounds of five segments, acknowledged after 20 ms; each packet passes a second time so much later.
fn doubled(after: u64, has_identification: bool) -> Explanation {
    let mut talk = Talk::open(20_000);
    let mut packets = Vec::new();
    let (mut next, mut number) = (1, 100_u16);
    for round in 0..40 {
        let at = 21_000 + round * 50_000;
        for segment in 0..5 {
            number += 1;
            let mark = Segment { identification: Some(number), ack: 1, ..talk.segment(FORWARD, 0) };
            packets.push((at + segment * 10, FORWARD, mark, next, next + MSS));
            next += MSS;
        }
        for left in 0..5 {
            number += 1;
            let ack = next - (4 - left) * MSS;
            let mark = Segment { identification: Some(number), ack, ..talk.segment(BACKWARD, 0) };
            packets.push((at + 20_000 + left * 10, BACKWARD, mark, 1, 1));
        }
    }
    let copies = packets.clone();
    packets.extend(copies.into_iter().map(|(at, way, mark, from, to)| {
        // Sent again, it has an identification of its own.
        let identification = mark.identification.map(|number| number + if has_identification { 0 } else { 20_000 });
        (at + after, way, Segment { identification, ..mark }, from, to)
    }));
    packets.sort_by_key(|packet| packet.0);
    for (at, way, mark, from, to) in packets {
        talk.event(at, way, mark, ByteRange::new(from, to));
    }
    talk.finish()
}

#[test]
fn copies_that_a_queue_delays_are_no_losses() {
    for after in [40, 5_000, 30_000] {
        let explanation = doubled(after, true);
        assert_eq!(explanation.copies, 400, "{after}");
        let direction = &explanation.worst[0];
        assert_eq!((direction.repeated_segments, faults(direction)), (0, Vec::new()), "{after}");
    }
    let again = doubled(5_000, false);
    assert_eq!((again.copies, again.worst[0].repeated_segments), (0, 200));
}

/// What tells how a late segment came about.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Mark {
    Nothing,
    Identification,
    Timestamps,
}

/// At the receiver, round trip 4 ms: of each eight segments one comes 6 ms late, overtaken or sent again.
fn late(mark: Mark, is_sent_again: bool) -> Direction {
    let mut talk = Talk::new(true);
    let syn = |flags, ack| Segment {
        flags: SegmentFlags(flags),
        window_is_scaled: true,
        mss: MSS as u16,
        window: 65_535,
        ack,
        ..Segment::default()
    };
    talk.event(0, FORWARD, syn(SegmentFlags::SYN, 0), ByteRange::new(1, 1));
    talk.event(20, BACKWARD, syn(SegmentFlags::SYN | SegmentFlags::ACK, 1), ByteRange::new(1, 1));
    talk.ack(4_000, FORWARD);
    let mut number = 7_000_u16;
    for round in 0..60 {
        let begin = 5_000 + round * 20_000;
        let first = talk.next[FORWARD];
        let segment = |index: u64, at: u64, number: u16| {
            let value = (at / 1_000) as u32;
            let segment = Segment {
                identification: Some(if mark == Mark::Identification { number } else { 0 }),
                timestamps: (mark == Mark::Timestamps).then_some(TimestampOption { value, echo: 1 }),
                ..talk.segment(FORWARD, 0)
            };
            (segment, ByteRange::new(first + index * MSS, first + (index + 1) * MSS))
        };
        let mut packets: Vec<_> = (0..8)
            .filter(|&index| index != 3)
            .map(|index| (begin + index * 1_000, segment(index, begin + index * 1_000, number + index as u16)))
            .collect();
        let (sent_at, sent_as) = if is_sent_again { (begin + 9_000, number + 8) } else { (begin + 3_000, number + 3) };
        packets.push((begin + 9_500, segment(3, sent_at, sent_as)));
        number += 9;
        for (at, (segment, bytes)) in packets {
            talk.event(at, FORWARD, segment, bytes);
        }
        talk.next[FORWARD] = first + 8 * MSS;
        talk.ack(begin + 10_000, BACKWARD);
    }
    talk.forward()
}

#[test]
fn what_was_overtaken_is_not_lost() {
    for mark in [Mark::Identification, Mark::Timestamps] {
        let overtaken = late(mark, false);
        assert_eq!((overtaken.repeated_segments, is_found(&overtaken, "loss")), (0, false), "{overtaken:#?}");
        assert!(overtaken.remarks.iter().any(|remark| remark.contains("60 segments came out of order")));
        let lost = late(mark, true);
        assert!(lost.repeated_segments >= 60 && is_found(&lost, "loss"), "{lost:#?}");
    }
}

#[test]
fn where_nothing_tells_loss_from_reordering_both_are_named() {
    for is_sent_again in [false, true] {
        let direction = late(Mark::Nothing, is_sent_again);
        let Verdict::Unknown { missing, .. } = verdict(&direction, "loss") else { panic!("{direction:#?}") };
        assert!(missing.contains("lost or overtaken"), "{missing}");
    }
}
