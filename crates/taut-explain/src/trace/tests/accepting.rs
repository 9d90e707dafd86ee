//! Connections that wait until the program accepts them.

use super::*;

#[test]
fn a_connection_that_is_accepted_late_waited_in_the_queue() {
    for (is_taken, is_full) in [(true, false), (true, true), (false, true)] {
        let mut trace = Trace::new(5).with_spans(100);
        trace.flow(FLOW, &flow());
        let mut story = Story(trace);
        let unread = SocketState { unread_bytes: 5, ..quiet() };
        story.tell(0, Way::Backward, What::Awaits, (0, 0)).state(0, quiet());
        story.stamp(10, Stamp::Received, (0, 5)).state(10, unread);
        let queue = taut_event::Listening { waiting: 2, backlog: if is_full { 1 } else { 128 } };
        story.tell(100, Way::Forward, What::Listens(queue), (0, 0));
        if is_taken {
            story.tell(300, Way::Backward, What::Accepted, (0, 0)).state(300, unread);
            story.stamp(310, Stamp::Read, (0, 5)).state(310, quiet());
        }
        let traced = story.0.finish(Instant::from_nanos(400 * MS));
        let inward = traced.worst.into_iter().find(|direction| !direction.is_outgoing).unwrap();
        let expected = if is_taken {
            vec![("accept_queue", 300.0), ("peer_turn", 90.0), ("receiving_program", 10.0)]
        } else {
            vec![("accept_queue", 400.0)]
        };
        assert_eq!(held_ms(&inward), expected);
        assert_eq!(found(&inward), ["accept_late"]);
        let Verdict::Found(late) = &inward.verdicts[0].verdict else { panic!() };
        assert_eq!(late.summary.contains("was full"), is_full, "{late:#?}");
        assert_eq!(late.remedy.contains("net.core.somaxconn"), is_full, "{late:#?}");
        let is_told = late.evidence.iter().any(|line| line.text.contains("It was not accepted"));
        assert_eq!(is_told, !is_taken, "{late:#?}");
    }
}

/// That it was accepted may be among what was lost, unless it is seen to wait after that.
#[test]
fn after_lost_records_nobody_knows_whether_a_connection_was_accepted() {
    for is_seen in [false, true] {
        let mut story = Story::new();
        let unread = SocketState { unread_bytes: 5, ..quiet() };
        let queue = What::Listens(taut_event::Listening { waiting: 1, backlog: 128 });
        story.tell(0, Way::Backward, What::Awaits, (0, 0)).state(0, quiet());
        story.tell(50, Way::Forward, queue, (0, 0));
        story.tell(100, Way::Forward, What::Gap, (0, 0)).state(100, quiet());
        story.stamp(150, Stamp::Received, (0, 5)).state(150, unread);
        if is_seen {
            story.tell(250, Way::Forward, queue, (0, 0));
        }
        story.tell(300, Way::Backward, What::Accepted, (0, 0)).state(300, unread);
        story.stamp(310, Stamp::Read, (0, 5)).state(310, quiet());
        let traced = story.0.finish(Instant::from_nanos(310 * MS));
        let inward = traced.worst.into_iter().find(|direction| !direction.is_outgoing).unwrap();
        let (unknown, known) = if is_seen { (200.0, 100.0) } else { (250.0, 50.0) };
        let expected = [("not_known", unknown), ("accept_queue", known), ("receiving_program", 10.0)];
        assert_eq!(held_ms(&inward), expected);
    }
}

/// What nobody could read waited for no event loop.
#[test]
fn an_arrival_begins_for_the_program_when_it_accepts() {
    let mut story = Story::new();
    let unread = SocketState { unread_bytes: 5, ..quiet() };
    story.tell(0, Way::Backward, What::Awaits, (0, 0)).state(0, quiet());
    story.stamp(10, Stamp::Received, (0, 5)).state(10, unread);
    story.tell(300, Way::Backward, What::Accepted, (0, 0)).state(300, unread);
    story.tell(301, Way::Backward, What::Task(Task::Polled { waited_ns: 0 }), (0, 0));
    story.stamp(305, Stamp::Read, (0, 5)).state(305, quiet());
    let traced = story.0.finish(Instant::from_nanos(310 * MS));
    let inward = traced.worst.into_iter().find(|direction| !direction.is_outgoing).unwrap();
    let told = inward.readiness.unwrap();
    assert_eq!((told.arrivals, told.at_work.held_ns, told.task.held_ns), (1, MS, 4 * MS));
}

/// It sits in accept(2), and has no processor while the connection waits.
#[test]
fn a_program_that_has_no_processor_does_not_accept_late() {
    let told = |waited_ms, coverage| {
        let mut story = Story(Trace::new(5).with_spans(100));
        story.0.flow(FLOW, &Flow { coverage, ..flow() });
        let unread = SocketState { unread_bytes: 5, ..quiet() };
        story.tell(0, Way::Backward, What::Awaits, (0, 0)).state(0, quiet());
        story.stamp(5, Stamp::Received, (0, 5)).state(5, unread);
        if waited_ms > 0 {
            // That it ran is told when it accepts, with the time at which it did.
            story.tell(9, Way::Backward, What::Task(Task::Ran { waited_ns: waited_ms * MS }), (0, 0));
        }
        story.tell(10, Way::Backward, What::Accepted, (0, 0)).state(10, unread);
        story.stamp(10, Stamp::Read, (0, 5)).state(10, quiet());
        let traced = story.0.finish(Instant::from_nanos(100 * MS));
        traced.worst.into_iter().find(|direction| !direction.is_outgoing).unwrap()
    };
    let tasks = Coverage::of(&[Kind::Tasks]);
    for (waited_ms, processor, queue) in [(9, 9.0, 1.0), (50, 9.0, 1.0), (6, 6.0, 4.0)] {
        let inward = told(waited_ms, tasks);
        assert_eq!(held_ms(&inward), [("peer_turn", 90.0), ("processor", processor), ("accept_queue", queue)]);
        assert_eq!(found(&inward), ["processor"]);
    }
    let late = told(0, tasks);
    assert_eq!((held_ms(&late)[1], found(&late)), (("accept_queue", 10.0), vec!["accept_late"]));
    // Where nobody sees when a thread runs, it may have been that.
    assert_eq!(found(&told(0, Coverage::of(&[]))), Vec::<&str>::new());
}
