//! Waits that last until the end of a connection.

use super::*;

fn close(talk: &mut Talk, at: u64, way: usize, flags: u8) {
    let start = talk.next[way];
    talk.event(at, way, talk.segment(way, flags), ByteRange::new(start, start));
}

/// A window that closes and stays closed for a minute, probed or not.
fn closed(probes: u64) -> Direction {
    let mut talk = Talk::open(4_000);
    (0..20).for_each(|segment| talk.send(5_000 + segment, FORWARD, MSS));
    talk.window = 0;
    talk.ack(9_000, BACKWARD);
    for probe in 0..probes {
        let (at, next) = (209_000 + probe * 7_000_000, talk.next[FORWARD]);
        let segment = Segment { window: 65_535, ..talk.segment(FORWARD, 0) };
        talk.event(at, FORWARD, segment, ByteRange::new(next - 1, next - 1));
        talk.ack(at + 4_000, BACKWARD);
    }
    close(&mut talk, 60_000_000, BACKWARD, SegmentFlags::RST);
    talk.forward()
}

#[test]
fn a_window_that_stays_closed_is_the_reading_programs_up_to_the_end() {
    let direction = closed(8);
    assert_eq!(faults(&direction), ["receiving_program"]);
    assert!(share(&direction, Holder::ReceivingProgram) > 0.99, "{direction:#?}");
    assert!(direction.span_ns > 59_000_000_000, "{}", direction.span_ns);
    // The twin: all was sent, so nobody waits for the window.
    assert_eq!(faults(&closed(0)), Vec::<&str>::new());
}

/// Requests that are answered after 10 ms, then one that is not, for a minute.
fn unanswered(answered: u64, how: u8) -> Explanation {
    let mut talk = Talk::open(4_000);
    for turn in 0..answered {
        let at = 10_000 + turn * 30_000;
        talk.send(at, FORWARD, 200);
        talk.send(at + 14_000, BACKWARD, 400);
        talk.ack(at + 14_010, FORWARD);
    }
    let at = 10_000 + answered * 30_000;
    talk.send(at, FORWARD, 200);
    talk.ack(at + 4_000, BACKWARD);
    close(&mut talk, at + 60_000_000, FORWARD, how);
    talk.ack(at + 60_004_000, BACKWARD);
    talk.finish()
}

#[test]
fn a_request_that_is_never_answered_is_the_peers_turn_up_to_the_end() {
    for how in [SegmentFlags::FIN, SegmentFlags::RST] {
        let explanation = unanswered(5, how);
        let direction = &explanation.worst[0];
        assert_eq!(direction.from, address(1, 4000).to_string());
        assert!(share(direction, Holder::PeerTurn) > 0.98, "{direction:#?}");
        let Verdict::Found(found) = verdict(direction, "peer_turn") else { panic!("{direction:#?}") };
        assert!(found.summary.contains("did not answer: 60.0 s"), "{}", found.summary);
        assert!(direction.remarks.iter().any(|remark| remark.contains("nothing came for 60.0 s")));
        assert!(!direction.remarks.iter().any(|remark| remark.contains("sent no data at all")));
    }
}

/// One line of a log looks like a request that is never answered.
#[test]
fn what_was_never_answered_may_need_no_answer() {
    let explanation = unanswered(0, SegmentFlags::FIN);
    let direction = &explanation.worst[0];
    assert_eq!(share(direction, Holder::PeerTurn), 0.0, "{direction:#?}");
    let told = |what: &str| direction.remarks.iter().any(|remark| remark.contains(what));
    assert!(told("nothing came for 60.0 s") && told("don't tell") && told("sent no data at all"), "{direction:#?}");
}

/// Requests of 300 bytes, and after the last answer a receipt: larger than most, or seen far from its sender.
#[test]
fn a_receipt_of_the_last_answer_waits_for_nothing() {
    for (len, far) in [(35, 0), (80, 0), (35, 20_000)] {
        let mut talk = Talk::new(true);
        let syn = |flags| Segment { flags: SegmentFlags(flags), window_is_scaled: true, ..Segment::default() };
        let nothing = ByteRange::new(1, 1);
        talk.event(0, FORWARD, syn(SegmentFlags::SYN), nothing);
        talk.event(20_030 - far, BACKWARD, syn(SegmentFlags::SYN | SegmentFlags::ACK), nothing);
        talk.ack(20_060, FORWARD);
        for turn in 0..3 {
            let at = 100_000 + turn * 300_000;
            talk.send(at, FORWARD, 300);
            talk.send(at + 30_000, BACKWARD, 4_000);
            talk.ack(at + 30_010 + far, FORWARD);
        }
        talk.send(730_050 + far, FORWARD, len);
        talk.ack(730_060 + far, BACKWARD);
        close(&mut talk, 60_000_000, FORWARD, SegmentFlags::FIN);
        let direction = talk.forward();
        assert!(share(&direction, Holder::PeerTurn) < 0.5, "{len} {far} {direction:#?}");
        assert!(direction.span_ns < 1_000_000_000, "{}", direction.span_ns);
    }
}

/// A connection kept open after the last answer, for which nobody waits.
#[test]
fn a_connection_that_idles_to_its_end_waits_for_nobody() {
    let mut talk = Talk::open(4_000);
    for turn in 0..5 {
        let at = 10_000 + turn * 30_000;
        talk.send(at, FORWARD, 200);
        talk.send(at + 14_000, BACKWARD, 400);
        talk.ack(at + 14_010, FORWARD);
    }
    close(&mut talk, 60_000_000, FORWARD, SegmentFlags::FIN);
    let explanation = talk.finish();
    assert!(explanation.worst.iter().all(|direction| direction.span_ns < 200_000_000), "{explanation:#?}");
}

/// One that was closed by its sender, one that speaks alone, and one that receipts what it got.
#[test]
fn where_no_answer_was_due_nobody_is_blamed() {
    let mut talk = Talk::open(4_000);
    talk.send(10_000, FORWARD, 200);
    close(&mut talk, 10_050, FORWARD, SegmentFlags::FIN);
    talk.ack(14_000, BACKWARD);
    close(&mut talk, 60_000_000, BACKWARD, SegmentFlags::FIN);
    assert!(share(&talk.forward(), Holder::PeerTurn) < 0.01);

    let mut talk = Talk::open(4_000);
    for line in 0..5 {
        talk.send(10_000 + line * 1_000_000, FORWARD, 200);
        talk.ack(14_000 + line * 1_000_000, BACKWARD);
    }
    close(&mut talk, 60_000_000, FORWARD, SegmentFlags::FIN);
    let direction = talk.forward();
    assert_eq!(share(&direction, Holder::PeerTurn), 0.0, "{direction:#?}");
    assert!(direction.remarks.iter().any(|remark| remark.contains("don't tell")), "{:?}", direction.remarks);

    let mut talk = Talk::open(4_000);
    talk.send(10_000, FORWARD, 200);
    talk.send(24_000, BACKWARD, 4_000);
    talk.send(25_000, FORWARD, 35);
    talk.ack(29_000, BACKWARD);
    close(&mut talk, 60_000_000, FORWARD, SegmentFlags::FIN);
    assert!(talk.forward().span_ns < 200_000_000);
}
