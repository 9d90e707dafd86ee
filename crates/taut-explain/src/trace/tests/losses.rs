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
        story.stamp(220, Stamp::Acknowledged, (24, 48)).state(220, quiet());
        let direction = story.end(220);
        let parts = if holder == "tail_loss_probe" {
            vec![(holder, 200.0), ("delivery", 20.0)]
        } else {
            vec![(holder, 210.0), ("delivery", 10.0)]
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

/// A request, and the end of what is sent: both are lost, and the answer waits for them.
#[test]
fn what_a_probe_sends_again_after_the_end_was_lost() {
    let ended = |in_flight_bytes| SocketState { is_ended: true, in_flight_bytes, ..quiet() };
    let mut story = Story::new();
    story.stamp(0, Stamp::WriteBegin, (0, 0)).state(0, quiet());
    story.stamp(1, Stamp::Scheduled, (0, 48)).state(1, on_the_way(0)).stamp(1, Stamp::WriteEnd, (0, 48));
    story.state(2, ended(48));
    story.stamp(42, Stamp::Repeated, (0, 0)).state(42, ended(48));
    story.stamp(52, Stamp::Acknowledged, (0, 48)).state(52, ended(0));
    story.stamp(100, Stamp::Received, (0, 10)).state(100, ended(0));
    let direction = story.end(100);
    let parts = [("peer_turn", 48.0), ("tail_loss_probe", 41.0), ("delivery", 10.0), ("sending_program", 1.0)];
    assert_eq!(held_ms(&direction), parts);
    assert_eq!(found(&direction), ["loss"]);
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
    story.stamp(210, Stamp::Acknowledged, (0, 48)).state(210, quiet());
    let left = [("device_queue", 150.0), ("tail_loss_probe", 50.0), ("delivery", 10.0)];
    assert_eq!(held_ms(&story.end(210)), left);
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
