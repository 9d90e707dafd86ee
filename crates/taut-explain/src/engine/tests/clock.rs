//! Clocks that step, in captures and logs.

use super::*;

const DAY: u64 = 86_400_000_000;

/// Twenty requests, each answered after 30 ms; `astray` may change when a packet is said to have passed.
fn turns(astray: impl Fn(u64, u64) -> u64) -> Explanation {
    let mut talk = Talk::open(4_000);
    for turn in 0..20 {
        let at = 10_000 + turn * 44_000;
        talk.send(astray(turn, at), FORWARD, 200);
        talk.send(astray(turn, at + 34_000), BACKWARD, 400);
        talk.ack(astray(turn, at + 34_010), FORWARD);
    }
    talk.finish()
}

#[test]
fn a_packet_with_a_time_far_ahead_does_not_stop_the_clock() {
    let straight = turns(|_, at| at);
    let astray = turns(|turn, at| if turn == 7 && at % 44_000 == 10_000 { at + DAY } else { at });
    assert_eq!((straight.clock_steps, astray.clock_steps), (0, 1));
    assert!(straight.span_ns.abs_diff(astray.span_ns) < 100_000_000, "{}", astray.span_ns);
    let of = |explanation: &Explanation| share(&explanation.worst[0], Holder::PeerTurn);
    assert!((of(&straight) - of(&astray)).abs() < 0.05, "{} {}", of(&straight), of(&astray));
}

#[test]
fn a_clock_that_is_set_back_goes_on_from_there() {
    let straight = turns(|_, at| DAY + at);
    let back = turns(|turn, at| if turn < 3 { DAY + at } else { at });
    assert_eq!((straight.clock_steps, back.clock_steps), (0, 1));
    // The step itself is no time, nor is what passed meanwhile.
    assert!((44_000_000 * 19..44_000_000 * 20).contains(&(back.span_ns - DAY * 1000)), "{}", back.span_ns);
    assert_eq!(back.worst[0].breakdown.len(), straight.worst[0].breakdown.len());
    assert!(share(&back.worst[0], Holder::PeerTurn) > 0.0);
    let ns = |explanation: &Explanation| {
        let held = &explanation.worst[0].breakdown;
        held.iter().find(|held| held.holder == Holder::PeerTurn.name()).unwrap().held_ns
    };
    assert!(ns(&straight).abs_diff(ns(&back)) < 50_000_000, "{} {}", ns(&straight), ns(&back));
}

#[test]
fn a_packet_with_a_time_far_behind_does_not_set_the_clock() {
    let straight = turns(|_, at| DAY + at);
    let astray = turns(|turn, at| if turn == 7 && at % 44_000 == 10_000 { 0 } else { DAY + at });
    assert_eq!((straight.clock_steps, astray.clock_steps), (0, 1));
    assert!(straight.span_ns.abs_diff(astray.span_ns) < 100_000_000, "{}", astray.span_ns);
}

#[test]
fn a_long_pause_is_no_step() {
    let paused = turns(|turn, at| if turn < 10 { at } else { DAY + at });
    assert_eq!(paused.clock_steps, 0);
    assert!(paused.span_ns > DAY * 1000);
    let last = turns(|turn, at| if turn == 19 && at % 44_000 == 10 { DAY + at } else { at });
    assert_eq!(last.clock_steps, 0);
}

#[test]
fn packets_that_change_places_are_no_step() {
    let mixed = turns(|_, at| if at % 44_000 == 10 { at - 500 } else { at });
    assert_eq!(mixed.clock_steps, 0);
}

#[test]
fn some_packets_with_a_time_far_ahead_are_no_pause() {
    let straight = turns(|_, at| at);
    let astray = turns(|turn, at| if turn == 7 { at + 12 * DAY } else { at });
    assert_eq!(astray.clock_steps, 1);
    assert!(straight.span_ns.abs_diff(astray.span_ns) < 100_000_000, "{}", astray.span_ns);
}

/// The clock of a board begins at 1970, and is set when the network is there.
#[test]
fn a_clock_that_is_set_for_the_first_time_goes_on_from_there() {
    let straight = turns(|_, at| at);
    let set = turns(|turn, at| if turn < 7 { at } else { at + 19_700 * DAY });
    assert_eq!(set.clock_steps, 1);
    assert!(straight.span_ns.abs_diff(set.span_ns) < 100_000_000, "{}", set.span_ns);
    let back = turns(|turn, at| if !(7..=12).contains(&turn) { at } else { at + 19_700 * DAY });
    assert!(straight.span_ns.abs_diff(back.span_ns) < 400_000_000, "{}", back.span_ns);
}

/// A clock that jumps by a hundred years within a connection: what is reckoned with such ways stays in its bounds.
#[test]
fn ways_of_a_hundred_years_are_none() {
    let mut talk = Talk::new(false);
    for turn in 0..40 {
        let at = (turn + 1) * 36_500 * DAY / 10;
        talk.send(at, FORWARD, 200);
        talk.ack(at + 36_500 * DAY / 20, BACKWARD);
    }
    assert!(talk.finish().span_ns > DAY * 1000);
}

/// A clock that is set back by a hundred years again and again is ahead of itself by all of them in the end.
#[test]
fn times_at_the_end_of_the_clock_are_taken() {
    let mut talk = Talk::new(false);
    for turn in 0..200 {
        let at = 19_700 * DAY + turn * 44_000 + if turn % 2 == 0 { 36_500 * DAY } else { 0 };
        // So many that it is no packet with a time far ahead.
        for part in 0..10 {
            talk.send(at + part * 4_000, FORWARD, MSS);
            talk.ack(at + part * 4_000 + 2_000, BACKWARD);
        }
    }
    let explanation = talk.finish();
    assert!(explanation.clock_steps > 3 && !explanation.worst.is_empty());
    for direction in &explanation.worst {
        let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
        assert_eq!(sum, direction.span_ns);
    }
}
