//! What was lost, and waited for a timer until it was sent again.

use super::*;

/// Until the timer runs out the kernel's state is that of anything on its way.
#[test]
fn what_a_timer_sends_again_was_lost_before_the_timer_ran_out() {
    let timed_out = SocketState { timeouts: 1, recovery: Recovery::AfterTimeout, ..on_the_way(0) };
    // A probe of the tail changes no state, and the acknowledgement of what came before begins the wait anew.
    for (after, holder) in [(timed_out, "retransmission_timeout"), (on_the_way(0), "tail_loss_probe")] {
        let mut story = Story::new();
        story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
        story.stamp(0, Stamp::Scheduled, (0, 48)).state(0, on_the_way(0));
        story.stamp(0, Stamp::WriteEnd, (0, 48)).state(0, on_the_way(0));
        story.stamp(10, Stamp::Acknowledged, (0, 24)).state(10, on_the_way(0));
        story.stamp(210, Stamp::Repeated, (0, 0)).state(210, after);
        story.stamp(220, Stamp::Acknowledged, (24, 48)).state(220, quiet()).state(225, quiet());
        let direction = story.end(225);
        let parts = if holder == "tail_loss_probe" {
            vec![(holder, 200.0), ("delivery", 20.0), ("sending_program", 5.0)]
        } else {
            vec![(holder, 210.0), ("delivery", 10.0), ("sending_program", 5.0)]
        };
        assert_eq!(held_ms(&direction), parts);
        assert_eq!(found(&direction), ["loss"]);
    }
}

/// The kernel enters the state of a loss and gives the segment to its device before it tells that it was sent again.
#[test]
fn a_timer_has_run_out_before_it_is_told_that_something_was_sent_again() {
    let timed_out = |timeouts| SocketState { timeouts, recovery: Recovery::AfterTimeout, ..on_the_way(0) };
    let mut story = Story::new();
    story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
    story.stamp(0, Stamp::Scheduled, (0, 48)).state(0, on_the_way(0));
    story.stamp(0, Stamp::WriteEnd, (0, 48)).state(0, on_the_way(0));
    story.stamp(10, Stamp::Acknowledged, (0, 24)).state(10, on_the_way(0));
    for (at, timeouts) in [(210, 1), (610, 2)] {
        story.tell_ns(at * MS - 1000, Way::Forward, What::State(timed_out(timeouts)), (0, 0));
        story.stamp(at, Stamp::Repeated, (0, 0)).state(at, timed_out(timeouts));
    }
    story.stamp(620, Stamp::Acknowledged, (24, 48)).state(620, quiet());
    let direction = story.end(620);
    assert_eq!(held_ms(&direction), [("retransmission_timeout", 610.0), ("delivery", 10.0)]);
    assert_eq!((direction.breakdown[0].episodes, found(&direction)), (1, vec!["loss"]));
}

/// A request, and the end of what is sent: both are lost, and the answer waits for them. No event tells of an
/// acknowledgement then.
#[test]
fn what_a_probe_sends_again_after_the_end_was_lost() {
    let ended = |in_flight_bytes| SocketState { is_ended: true, in_flight_bytes, ..quiet() };
    let mut story = Story::new();
    story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
    story.stamp(1, Stamp::Scheduled, (0, 48)).state(1, on_the_way(0)).stamp(1, Stamp::WriteEnd, (0, 48));
    story.state(2, ended(48));
    story.stamp(42, Stamp::Repeated, (0, 0)).state(42, ended(48));
    story.state(52, ended(0));
    story.stamp(100, Stamp::Received, (0, 10)).state(100, ended(0));
    let direction = story.end(100);
    let parts = [("peer_turn", 48.0), ("tail_loss_probe", 41.0), ("delivery", 10.0), ("sending_program", 1.0)];
    assert_eq!(held_ms(&direction), parts);
    assert_eq!(found(&direction), ["loss"]);
}

/// The peer has ended its direction, so no event tells of an acknowledgement; and more is sent.
#[test]
fn what_a_probe_sends_again_after_the_peers_end_was_lost_or_was_not() {
    for (duplicates, is_more, causes) in [(0, false, vec!["loss"]), (0, true, vec!["loss"]), (1, true, vec![])] {
        let mut story = Story::new();
        story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
        story.stamp(1, Stamp::Scheduled, (0, 48)).state(1, on_the_way(0)).stamp(1, Stamp::WriteEnd, (0, 48));
        story.stamp(251, Stamp::Repeated, (0, 0)).state(251, on_the_way(0));
        let told = |state: SocketState| SocketState { duplicates, ..state };
        story.state(261, told(quiet()));
        if is_more {
            story.stamp(270, Stamp::Scheduled, (48, 96)).state(270, told(on_the_way(0))).state(280, told(quiet()));
        }
        let direction = story.end(300);
        assert_eq!(found(&direction), causes, "{duplicates} {is_more}: {direction:#?}");
    }
}

/// What the peer tells then may be of something else.
#[test]
fn lost_records_leave_a_probe_not_known() {
    let mut story = Story::new();
    story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
    story.stamp(0, Stamp::Scheduled, (0, 48)).state(0, on_the_way(0)).stamp(0, Stamp::WriteEnd, (0, 48));
    story.stamp(40, Stamp::Repeated, (0, 0)).state(40, on_the_way(0));
    story.tell(60, Way::Forward, What::Gap, (0, 0));
    story.state(60, SocketState { duplicates: 1, ..quiet() }).state(65, SocketState { duplicates: 1, ..quiet() });
    let direction = story.end(65);
    let held = held_ms(&direction);
    assert!(held.contains(&("not_known", 60.0)), "{held:?}");
}

/// It sends nothing again that its device still has: what was there has been dropped by then.
#[test]
fn what_the_own_device_drops_waits_for_a_timer() {
    let timed_out = SocketState { timeouts: 1, recovery: Recovery::AfterTimeout, ..on_the_way(0) };
    let with = |state: SocketState, device_bytes: u32| SocketState { device_bytes, ..state };
    let way = on_the_way(0);
    let told = |first: SocketState, just_before: &[SocketState], after: SocketState| {
        let mut story = Story::new();
        story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
        story.stamp(0, Stamp::Scheduled, (0, 48)).state(0, first);
        for (state, before_ns) in just_before.iter().zip([2000, 1000]) {
            story.tell_ns(200 * MS - before_ns, Way::Forward, What::State(*state), (0, 0));
        }
        story.stamp(200, Stamp::Repeated, (0, 0)).state(200, after);
        story.stamp(210, Stamp::Acknowledged, (0, 48)).state(210, quiet());
        story.end(210)
    };
    // What is sent again leaves the device at once.
    let probe = told(with(way, 48), &[with(way, 48), way], way);
    assert_eq!(held_ms(&probe), [("tail_loss_probe", 200.0), ("delivery", 10.0)]);
    let timer = told(with(way, 48), &[with(timed_out, 48), timed_out], timed_out);
    assert_eq!(held_ms(&timer), [("retransmission_timeout", 210.0)]);
    // Or waits in it.
    let late = told(with(way, 48), &[with(way, 48)], with(way, 48));
    assert_eq!(held_ms(&late), [("tail_loss_probe", 200.0), ("device_queue", 10.0)]);
    let late = told(with(way, 48), &[with(timed_out, 48)], with(timed_out, 48));
    assert_eq!(held_ms(&late), [("retransmission_timeout", 210.0)]);
    // A part had left the device, and that is what was lost.
    let other = told(with(way, 24), &[with(way, 24)], with(way, 24));
    assert_eq!(held_ms(&other), [("device_queue", 210.0)]);
    // The device had it until shortly before, and long before.
    let mut story = Story::new();
    story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
    story.stamp(0, Stamp::Scheduled, (0, 48)).state(0, with(way, 48)).state(150, way);
    story.stamp(200, Stamp::Repeated, (0, 0)).state(200, way);
    story.stamp(210, Stamp::Acknowledged, (0, 48)).state(210, quiet()).state(215, quiet());
    let left = [("device_queue", 150.0), ("tail_loss_probe", 50.0), ("delivery", 10.0), ("sending_program", 5.0)];
    assert_eq!(held_ms(&story.end(215)), left);
}

/// A timer of which nobody knows when it began is no reason to name a time that was lost.
#[test]
fn what_is_sent_again_after_lost_records_leaves_them_not_known() {
    let mut story = Story::new();
    story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
    story.stamp(0, Stamp::Scheduled, (0, 48)).state(0, on_the_way(0));
    story.tell(200, Way::Forward, What::Gap, (0, 0));
    story.stamp(200, Stamp::Repeated, (0, 0)).state(200, on_the_way(0));
    story.stamp(210, Stamp::Acknowledged, (0, 48)).state(210, quiet());
    assert_eq!(held_ms(&story.end(210)), [("not_known", 200.0), ("delivery", 10.0)]);
}

/// Two writes, of which a loss probe sends one again; the peer had both. It tells so in its answer, which shows
/// with the event after that, or not at all.
#[test]
fn what_a_probe_sends_again_was_not_lost_if_the_peer_had_it() {
    let told = |duplicates, is_small: bool, later: u64| {
        let state = |state: SocketState, duplicates| SocketState { duplicates, ..state };
        let way = on_the_way(if is_small { 10 } else { 0 });
        let mut story = Story::new();
        for at in [0, 100, 200, 300] {
            let before = (at / 100 * duplicates) as u32;
            let now = before + duplicates as u32;
            let byte = at;
            story.stamp(at, Stamp::WriteBegin, (byte, byte)).state(at, state(quiet(), before));
            story.stamp(at, Stamp::Scheduled, (byte, byte + 48)).state(at, state(way, before));
            story.stamp(at, Stamp::WriteEnd, (byte, byte + 48)).state(at, state(way, before));
            story.stamp(at + 10, Stamp::Repeated, (0, 0)).state(at + 10, state(way, before));
            story.stamp(at + 11, Stamp::Acknowledged, (byte, byte + 48)).state(at + 11, state(quiet(), before));
            let way_back = SocketState { unread_bytes: 8, ..state(quiet(), now) };
            story.stamp(at + later, Stamp::Received, (byte, byte + 8)).state(at + later, way_back);
            story.stamp(at + later, Stamp::Read, (byte, byte + 8)).state(at + later, state(quiet(), now));
        }
        story.end(400)
    };
    let needless = told(1, false, 40);
    let parts = [("sending_program", 240.0), ("peer_turn", 116.0), ("delivery", 44.0)];
    assert_eq!((held_ms(&needless).as_slice(), needless.breakdown[2].episodes), (parts.as_slice(), 4));
    assert_eq!((found(&needless), needless.repeated_segments, needless.needless_segments), (vec![], 4, 4));
    // Who held the data before the probe had them.
    let nagle = told(1, true, 40);
    assert!(held_ms(&nagle).contains(&("nagle", 44.0)) && found(&nagle) == ["nagle_delayed_ack"], "{nagle:#?}");
    // Nobody tells that it was needless.
    let lost = told(0, false, 40);
    let parts = [("sending_program", 240.0), ("peer_turn", 116.0), ("tail_loss_probe", 40.0), ("delivery", 4.0)];
    assert_eq!((held_ms(&lost).as_slice(), found(&lost)), (parts.as_slice(), vec!["loss"]));
    let Verdict::Found(loss) = &lost.verdicts[0].verdict else { panic!() };
    assert!(loss.evidence.iter().any(|line| line.text.contains("or the peer acknowledged late")), "{loss:#?}");
}

/// The answer to a probe came no later than that to what left after it.
#[test]
fn what_the_peer_tells_of_a_later_repeat_is_not_told_of_a_probe() {
    let state = |duplicates| SocketState { duplicates, ..on_the_way(0) };
    let mut story = Story::new();
    story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
    story.stamp(0, Stamp::Scheduled, (0, 48)).state(0, state(0)).stamp(0, Stamp::WriteEnd, (0, 48)).state(0, state(0));
    story.stamp(20, Stamp::Repeated, (0, 0)).state(20, state(0));
    story.stamp(30, Stamp::Acknowledged, (0, 48)).state(30, quiet());
    story.stamp(30, Stamp::Scheduled, (48, 96)).state(30, state(0)).state(35, state(0));
    story.stamp(40, Stamp::Acknowledged, (48, 96)).state(40, quiet()).state(41, quiet()).state(50, state(1));
    let direction = story.end(50);
    assert!(held_ms(&direction).contains(&("tail_loss_probe", 20.0)), "{direction:#?}");
}

/// The trace ends before the answer is worked in.
#[test]
fn of_a_probe_that_is_not_answered_nobody_knows_whether_it_was_needless() {
    for is_acknowledged in [true, false] {
        let mut story = Story::new();
        story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
        story.stamp(0, Stamp::Scheduled, (0, 48)).state(0, on_the_way(0)).stamp(0, Stamp::WriteEnd, (0, 48));
        story.stamp(40, Stamp::Repeated, (0, 0)).state(40, on_the_way(0));
        if is_acknowledged {
            story.stamp(50, Stamp::Acknowledged, (0, 48)).state(50, quiet());
        } else {
            story.state(50, on_the_way(0));
        }
        let direction = story.end(50);
        assert_eq!(held_ms(&direction), [("not_known", 40.0), ("delivery", 10.0)]);
        assert!(found(&direction).is_empty());
    }
}
