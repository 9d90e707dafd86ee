//! Connections that hang all the time in which they are traced.

use super::*;

/// The peer does not read: its window is closed, and all writes are refused, or one goes on.
#[test]
fn what_hangs_from_before_the_trace_to_its_end_is_told() {
    let closed = SocketState { unsent_bytes: 9000, send_window_bytes: Some(0), send_buffer_full: true, ..quiet() };
    let refused = What::Call(Call::End { number: 1, result: -11 });
    for is_refused in [true, false] {
        let mut story = Story::new();
        for at in (0..500).step_by(50) {
            if is_refused {
                story.stamp(at, Stamp::WriteBegin, (0, 0)).state(at, closed);
                story.tell(at, Way::Forward, refused, (0, 0));
            }
            story.state(at, closed);
        }
        let traced = story.0.finish(Instant::from_nanos(500 * MS));
        assert_eq!((traced.directions, traced.worst.len()), (1, 1), "{is_refused}: what comes does not hang");
        let hung = &traced.worst[0];
        assert_eq!((held_ms(hung), found(hung)), (vec![("receiving_program", 500.0)], vec!["receiving_program"]));
        assert_eq!((hung.bytes, hung.refused_writes), (0, if is_refused { 10 } else { 0 }));
    }
}

/// What is on its way for long, or has no finding for lack of time, is no stall.
#[test]
fn what_only_waits_for_its_peer_does_not_hang() {
    let closed = SocketState { unsent_bytes: 9000, send_window_bytes: Some(0), ..quiet() };
    for (state, end) in [(quiet(), 900), (on_the_way(0), 900), (closed, 199)] {
        let mut story = Story::new();
        story.state(0, state).state(1, state);
        let traced = story.0.finish(Instant::from_nanos(end * MS));
        assert_eq!((traced.directions, traced.causes.len()), (0, 0), "{state:?}");
    }
}
