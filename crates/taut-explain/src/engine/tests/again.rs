//! What comes again: segments that were not lost, requests of a client, and connections that were booked too early.

use taut_event::{Closed, Coverage, Flow, FlowId, FlowKey, Holder, Kind, Segment, SegmentFlags, Sink};
use taut_time::ByteRange;

use super::talk::{BACKWARD, FORWARD, MSS, Talk, address, is_found, share, verdict};
use crate::engine::{Direction, Explanation, Verdict};

/// Each second segment is sent again after 230 ms, and the receiver says of so many of them that it had them before.
fn sent_again(came_twice: usize) -> (String, String, String) {
    let mut talk = Talk::open(20_000);
    let mut at = 20_040;
    for turn in 0..4 {
        let start = talk.next[FORWARD];
        talk.send(at, FORWARD, 1_000);
        talk.again(at + 230_000, FORWARD, start, 1_000);
        let segment = Segment { came_twice: if turn < came_twice { 1000 } else { 0 }, ..talk.segment(BACKWARD, 0) };
        let end = talk.next[BACKWARD];
        talk.event(at + 250_000, BACKWARD, segment, ByteRange::new(end, end));
        at += 260_000;
    }
    talk.send(at, FORWARD, 1_000);
    talk.ack(at + 20_000, BACKWARD);
    let direction = talk.forward();
    let Verdict::Found(found) = verdict(&direction, "loss") else { panic!("{direction:#?}") };
    let evidence: Vec<&str> = found.evidence.iter().map(|seen| seen.text.as_str()).collect();
    (found.summary.clone(), evidence.join("\n"), found.remedy.clone())
}

#[test]
fn what_the_receiver_had_before_was_not_lost() {
    let (summary, evidence, remedy) = sent_again(4);
    assert!(summary.starts_with("Nothing was lost, and yet 4 segments sent again"), "{summary}");
    assert!(evidence.contains("of all of them that it had them before"), "{evidence}");
    assert!(remedy.contains("No drop is to be found"), "{remedy}");
    let (summary, evidence, _) = sent_again(3);
    assert!(summary.starts_with("Packets were lost: 4 segments"), "{summary}");
    assert!(evidence.contains("of 3 of them"), "{evidence}");
    let (summary, evidence, remedy) = sent_again(0);
    assert!(summary.starts_with("Packets were lost: 4 segments"), "{summary}");
    assert!(!evidence.contains("D-SACK") && remedy.contains("find the drops"), "{evidence}");
}

/// The connection goes on with a segment that is sent again, of which the receiver says that so many bytes came twice.
fn with_other_repeats(other: impl FnOnce(&mut Talk), length: u64, came_twice: u32) -> (String, String) {
    let mut talk = Talk::open(20_000);
    talk.send(20_040, FORWARD, 1_000);
    talk.ack(40_040, BACKWARD);
    other(&mut talk);
    let start = talk.next[FORWARD];
    talk.send(5_000_000, FORWARD, length);
    talk.again(5_230_000, FORWARD, start, length);
    twice(&mut talk, 5_250_000, came_twice);
    talk.send(5_300_000, FORWARD, 1_000);
    talk.ack(5_320_000, BACKWARD);
    let direction = talk.forward();
    let Verdict::Found(found) = verdict(&direction, "loss") else { panic!("{direction:#?}") };
    let evidence: Vec<&str> = found.evidence.iter().map(|seen| seen.text.as_str()).collect();
    (found.summary.clone(), evidence.join("\n"))
}

/// The receiver acknowledges all, and says that so many bytes came twice.
fn twice(talk: &mut Talk, at: u64, came_twice: u32) {
    let (segment, end) = (Segment { came_twice, ..talk.segment(BACKWARD, 0) }, talk.next[BACKWARD]);
    talk.event(at, BACKWARD, segment, ByteRange::new(end, end));
}

#[test]
fn what_the_receiver_says_of_other_segments_tells_nothing_of_a_loss() {
    // Keep-alives with a byte that came long ago.
    let kept_alive = |talk: &mut Talk| {
        for turn in 0..3 {
            let end = talk.next[FORWARD];
            talk.again(1_000_000 + turn * 100_000, FORWARD, end - 1, 1);
            twice(talk, 1_020_000 + turn * 100_000, 1);
        }
    };
    // One that its sender need not have repeated, as it knew.
    let needless = |talk: &mut Talk| {
        let end = talk.next[FORWARD];
        talk.again(1_000_000, FORWARD, end - 1_000, 1_000);
        twice(talk, 1_020_000, 1_000);
    };
    for other in [&kept_alive as &dyn Fn(&mut Talk), &needless] {
        let (summary, evidence) = with_other_repeats(other, 1_000, 0);
        assert!(summary.starts_with("Packets were lost: 1 segment sent again"), "{summary}");
        assert!(!evidence.contains("D-SACK"), "{evidence}");
        let (summary, evidence) = with_other_repeats(other, 1_000, 1_000);
        assert!(summary.starts_with("Nothing was lost, and yet 1 segment sent again"), "{summary}");
        assert!(evidence.contains("of all of them"), "{evidence}");
    }
    // What was cut into segments only behind the capture may be told by one block.
    let (summary, _) = with_other_repeats(|_| {}, 3 * MSS, 3 * MSS as u32);
    assert!(summary.starts_with("Nothing was lost, and yet 3 segments sent again"), "{summary}");
    let (summary, evidence) = with_other_repeats(|_| {}, 3 * MSS, MSS as u32);
    assert!(summary.starts_with("Packets were lost: 3 segments sent again"), "{summary}");
    assert!(evidence.contains("of 1 of them"), "{evidence}");
}

/// Requests and answers, with so long a pause of the client and of the server in each.
fn turns(client: u64, server: u64) -> Explanation {
    let mut talk = Talk::open(2_000);
    let mut at = 5_000;
    for _ in 0..10 {
        talk.send(at, FORWARD, 200);
        talk.send(at + server, BACKWARD, 400);
        talk.ack(at + server + 30, FORWARD);
        at += server + client;
    }
    talk.send(at, FORWARD, 200);
    talk.send(at + server, BACKWARD, 400);
    talk.finish()
}

#[test]
fn who_answers_is_not_told_to_ask_for_more() {
    let all = turns(100_000, 10_000);
    let of = |from: String| all.worst.iter().find(|direction| direction.from == from).unwrap();
    let said = |direction| match verdict(direction, "peer_turn") {
        Verdict::Found(found) => (found.summary.clone(), found.remedy.clone()),
        other => panic!("{other:?}"),
    };
    let (summary, remedy) = said(of(address(1, 4000).to_string()));
    assert!(summary.starts_with("The sender waited for the peer's answers; the peer took"), "{summary}");
    assert!(remedy.contains("Look at the peer's program"), "{remedy}");
    let (summary, remedy) = said(of(address(2, 80).to_string()));
    assert!(summary.starts_with("The sender waited for what the client sends next; the client took"), "{summary}");
    assert!(remedy.starts_with("Nothing at this end"), "{remedy}");
}

/// A connection that stalls before and after it was closed to make room for others.
fn in_two_parts(why: Closed, from_start: bool) -> Explanation {
    let mut talk = Talk::open(20_000);
    let stalls = |talk: &mut Talk, at: u64| {
        for turn in 0..5 {
            let (at, start) = (at + turn * 260_000, talk.next[FORWARD]);
            talk.send(at, FORWARD, 1_000);
            talk.again(at + 230_000, FORWARD, start, 1_000);
            talk.ack(at + 250_000, BACKWARD);
        }
    };
    stalls(&mut talk, 20_040);
    talk.engine.close(FlowId(0), why);
    // The other end speaks first.
    let key = FlowKey::Tcp(address(1, 4000), address(2, 80));
    talk.engine.flow(FlowId(0), &Flow { key, from_start, coverage: Coverage::of(&[Kind::Segments]) });
    stalls(&mut talk, 10_000_000);
    talk.engine.finish()
}

#[test]
fn what_goes_on_after_it_was_booked_is_counted_once() {
    let all = in_two_parts(Closed::Evicted, false);
    assert_eq!((all.flows, all.evicted_flows, all.directions), (1, 1, 1), "{all:#?}");
    // Each part has its breakdown, and their times add up.
    assert_eq!(all.worst.len(), 2);
    assert!(all.worst.iter().all(|direction| is_found(direction, "loss")));
    let loss = all.causes.iter().find(|cause| cause.cause == "loss").unwrap();
    assert_eq!((loss.found, loss.unknown), (1, 0));
    let time = all.over_all.causes.iter().find(|cause| cause.cause == "loss").unwrap();
    assert_eq!((time.directions, all.over_all.pairs[0].directions), (1, 1));
    assert!(time.held_ns > 2 * 5 * 220_000_000, "{time:?}");
    // A connection that took its place is another one.
    for (why, from_start) in [(Closed::Evicted, true), (Closed::Replaced, false)] {
        let all = in_two_parts(why, from_start);
        assert_eq!((all.flows, all.directions), (2, 2));
        assert_eq!(all.causes.iter().find(|cause| cause.cause == "loss").unwrap().found, 2);
    }
}

/// A segment each millisecond over a round trip of 20 ms, of which some are lost, and sent again once the receiver has
/// the next one. How long losses were repaired, in microseconds.
fn repaired(lost: &[u64]) -> u64 {
    let sent = |segment: u64| 30_000 + segment * 1_000;
    let again = |segment: u64| sent(segment) + 21_050;
    let answered = |segment| 20_000 + if lost.contains(&segment) { again(segment) } else { sent(segment) };
    let mut events: Vec<(u64, u64, bool)> = (0..120).map(|segment| (sent(segment), segment, true)).collect();
    events.extend(lost.iter().map(|&segment| (again(segment), segment, true)));
    events.extend((0..120).map(|segment| (answered(segment), segment, false)));
    events.sort_unstable();
    let mut talk = Talk::open(20_000);
    for (at, segment, is_sent) in events {
        let start = 1 + segment * MSS;
        if !is_sent {
            let first_lacking = (0..120).find(|&segment| answered(segment) > at).unwrap_or(120);
            talk.ack_up_to(at, BACKWARD, 1 + first_lacking * MSS);
        } else if at == sent(segment) {
            talk.send(at, FORWARD, MSS);
        } else {
            talk.again(at, FORWARD, start, MSS);
        }
    }
    let direction = talk.forward();
    let name = Holder::LossRecovery.name();
    direction.breakdown.iter().find(|held| held.holder == name).map_or(0, |held| held.held_ns / 1000)
}

/// The 25th is sent when the third is being repaired, and found lost before the 19th, the last of those that were out
/// then, is acknowledged. A sender goes on with it at once, and so until all is acknowledged that was sent by then.
#[test]
fn a_repair_lasts_until_what_was_found_lost_meanwhile_is_repaired() {
    let once = repaired(&[3, 19]);
    assert!(once.abs_diff(90_050 - 54_050) < 1_500, "{once}");
    let twice = repaired(&[3, 19, 25]);
    assert!(twice.abs_diff(110_000 - 54_050) < 1_500, "{twice}");
}

/// The receiver's window is used up 40 times, and opened 44 ms later. Meanwhile the sender's last segment goes again,
/// after 27 ms; the receiver says of so many of them that it had it before.
fn probed(came_twice: usize) -> Direction {
    let mut talk = Talk::open_with(6_000, 20 * MSS as u32);
    let mut at = 10_000;
    for turn in 0..40 {
        (0..20).for_each(|segment| talk.send(at + segment, FORWARD, MSS));
        talk.again(at + 27_000, FORWARD, talk.next[FORWARD] - MSS, MSS);
        let end = talk.next[BACKWARD];
        let bytes = if turn < came_twice { MSS as u32 } else { 0 };
        let segment = Segment { came_twice: bytes, window: 0, ..talk.segment(BACKWARD, 0) };
        talk.event(at + 33_000, BACKWARD, segment, ByteRange::new(end, end));
        talk.ack(at + 44_000, BACKWARD);
        at += 44_030;
    }
    talk.forward()
}

#[test]
fn a_probe_of_what_had_come_is_no_loss() {
    let needless = probed(40);
    assert!(is_found(&needless, "receiving_program") && !is_found(&needless, "loss"), "{needless:#?}");
    let lost = probed(0);
    assert!(is_found(&lost, "loss"), "{lost:#?}");
}

/// Opened at 0, seen at the receiver of what goes forward.
fn seen_at_receiver(round_trip: u64) -> Talk {
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
    talk.ack(round_trip, FORWARD);
    talk
}

/// A program that writes every ten seconds. The seventh is lost before this place, and sent again after 250 ms.
#[test]
fn a_pause_before_what_was_lost_is_the_programs() {
    let mut talk = seen_at_receiver(20_000);
    for turn in 0..8_u16 {
        let late = if turn == 6 { 250_000 } else { 0 };
        let at = 30_000 + u64::from(turn) * 10_000_000 + late;
        let start = talk.next[FORWARD];
        let number = 100 + turn + u16::from(turn >= 6);
        let segment = Segment { identification: Some(number), ..talk.segment(FORWARD, SegmentFlags::PSH) };
        talk.next[FORWARD] += 100;
        talk.event(at, FORWARD, segment, ByteRange::new(start, start + 100));
        talk.ack(at + 20, BACKWARD);
    }
    let direction = talk.forward();
    let timeout = share(&direction, Holder::RetransmissionTimeout);
    assert!((0.003..0.02).contains(&timeout), "{direction:#?}");
    assert!(share(&direction, Holder::SendingProgram) > 0.95, "{direction:#?}");
}

/// The sender probes with a byte of new data, as some do.
#[test]
fn a_byte_that_probes_a_closed_window_did_pass() {
    let mut talk = seen_at_receiver(4_000);
    let mut at = 10_000;
    for _ in 0..5 {
        (0..8).for_each(|segment| talk.send(at + segment, FORWARD, MSS));
        talk.window = 0;
        talk.ack(at + 100, BACKWARD);
        let (next, probe) = (talk.next[FORWARD], Segment { window: 65_535, ..talk.segment(FORWARD, 0) });
        talk.event(at + 204_000, FORWARD, probe, ByteRange::new(next, next + 1));
        talk.ack(at + 204_020, BACKWARD);
        talk.window = 1 << 20;
        talk.ack(at + 500_000, BACKWARD);
        at += 504_000;
    }
    talk.send(at, FORWARD, MSS);
    talk.ack(at + 20, BACKWARD);
    let direction = talk.forward();
    assert_eq!(direction.repeated_segments, 0, "{direction:#?}");
    assert!(!is_found(&direction, "loss") && is_found(&direction, "receiving_program"), "{direction:#?}");
}

#[test]
fn a_keep_alive_that_came_twice_takes_no_repair_back() {
    for (start, length) in [(1_000, 1), (1, 1_000)] {
        let mut talk = Talk::open(20_000);
        talk.send(20_040, FORWARD, 1_000);
        // Lost, and probed; the receiver had not had it.
        talk.again(80_040, FORWARD, 1, 1_000);
        talk.ack(100_040, BACKWARD);
        // A keep-alive, or what need not have been repeated.
        talk.again(1_000_000, FORWARD, start, length);
        twice(&mut talk, 1_020_000, length as u32);
        talk.send(1_200_000, FORWARD, 1_000);
        talk.ack(1_220_000, BACKWARD);
        let direction = talk.forward();
        assert!(share(&direction, Holder::TailLossProbe) > 0.04, "{direction:#?}");
    }
}
