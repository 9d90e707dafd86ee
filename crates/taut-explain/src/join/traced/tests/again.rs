//! Ports that are used again, ends that stay open, and stretches that were not kept.

use std::collections::HashMap;

use taut_event::{FlowId, Holder, Sink};
use taut_time::Instant;

use super::super::ledger::{Stretch, merge, without_idle_end};
use super::super::{JoinedTrace, TraceLog};
use super::scene::{Scene, Seen, clock};
use super::{ROUNDS, adds_up, held};

const LATER: u64 = 5_000_000_000;

/// Two connections between the same ends, with a pause between them.
fn joined_twice(is_reported: [bool; 2]) -> JoinedTrace {
    let mut one = Scene::here(ROUNDS).seen();
    let two = Scene { begin: LATER, first: 1_000_000, ..Scene::here(ROUNDS) }.seen();
    one.sightings.seen.extend(two.sightings.seen.iter().copied());
    let mut later = two.explanation.worst[0].clone();
    let by = two.explanation.start.unwrap().as_nanos() - one.explanation.start.unwrap().as_nanos();
    later.picture.as_mut().unwrap().spans.iter_mut().for_each(|span| span.begin_ns += by);
    one.explanation.worst.push(later);
    let mut reported = is_reported.into_iter();
    one.explanation.worst.retain(|_| reported.next().unwrap());
    let mut log = TraceLog::new(&one.sightings, &one.explanation, 10_000);
    one.tell(&mut log);
    log.close(FlowId(0), taut_event::Closed::Ended);
    // The number is given again.
    log.flow(FlowId(0), &two.flow);
    for event in &two.events {
        log.event(event);
    }
    log.join(Instant::from_nanos(two.end), Some(&clock()), &HashMap::new()).unwrap()
}

#[test]
fn the_pause_between_two_connections_is_of_neither() {
    let both = joined_twice([true, true]);
    assert_eq!((both.connections, both.directions.len()), (2, 2), "{both:#?}");
    for direction in &both.directions {
        adds_up(direction);
        assert!(held(direction, Holder::NotKnown) < 1_000_000 && direction.span_ns < 1_100_000_000, "{direction:#?}");
        assert!(direction.captured_ns > direction.span_ns / 10 * 9, "{direction:#?}");
    }
    for which in [[true, false], [false, true]] {
        let alone = joined_twice(which);
        assert_eq!(alone.directions.len(), 1);
        let direction = &alone.directions[0];
        assert!(direction.span_ns < 1_100_000_000 && direction.traced_ns <= direction.span_ns, "{direction:#?}");
    }
}

#[test]
fn a_port_that_is_used_again_and_again_has_all_its_connections() {
    const TIMES: usize = 9;
    let all: Vec<Seen> = (0..TIMES as u64)
        .map(|time| Scene { begin: time * LATER, first: time as u32 * 1_000_000, ..Scene::here(ROUNDS) }.seen())
        .collect();
    let mut seen = Scene::here(ROUNDS).seen();
    (seen.sightings.seen, seen.explanation.worst) = (Vec::new(), Vec::new());
    seen.explanation.start = all[0].explanation.start;
    let start = |seen: &Seen| seen.explanation.start.unwrap().as_nanos();
    for one in &all {
        seen.sightings.seen.extend(one.sightings.seen.iter().copied());
        let mut direction = one.explanation.worst[0].clone();
        let by = start(one) - start(&all[0]);
        direction.picture.as_mut().unwrap().spans.iter_mut().for_each(|span| span.begin_ns += by);
        seen.explanation.worst.push(direction);
    }
    let mut log = TraceLog::new(&seen.sightings, &seen.explanation, 10_000);
    for one in &all {
        one.tell(&mut log);
        log.close(FlowId(0), taut_event::Closed::Ended);
    }
    let joined = log.join(Instant::from_nanos(all[TIMES - 1].end), Some(&clock()), &HashMap::new()).unwrap();
    assert_eq!((joined.connections, joined.directions.len()), (TIMES as u64, TIMES), "{joined:#?}");
    joined.directions.iter().for_each(adds_up);
    assert_eq!(joined.remarks, Vec::<String>::new());
}

#[test]
fn a_receiver_that_stays_open_has_no_time_of_what_has_ended() {
    let stretch = |from, to, holder| [Stretch { from, to, holder }];
    let captured = stretch(0, 100, Holder::SendingProgram);
    let end = |holder| {
        let parts = merge(&captured, &[], &stretch(10, 500, holder), None);
        without_idle_end(parts, &captured, &[]).last().map(|part| part.to)
    };
    assert_eq!((end(Holder::PeerTurn), end(Holder::NotKnown)), (Some(100), Some(100)));
    assert_eq!(end(Holder::ReceivingProgram), Some(500));
}

#[test]
fn stretches_that_were_not_kept_are_the_others_to_tell() {
    let join = |seen: &Seen| {
        let mut log = TraceLog::new(&seen.sightings, &seen.explanation, 16);
        seen.tell(&mut log);
        log.join(Instant::from_nanos(seen.end), Some(&clock()), &HashMap::new()).unwrap()
    };
    let mut seen = Scene::here(ROUNDS).seen();
    let whole = join(&seen);
    let picture = seen.explanation.worst[0].picture.as_mut().unwrap();
    let all = picture.spans.len() as u64;
    let mut number = 0_u32;
    picture.spans.retain(|_| {
        number += 1;
        !number.is_multiple_of(3)
    });
    picture.left_out = all - picture.spans.len() as u64;
    let left = format!("{} short stretches of the capture were not kept", picture.left_out);
    let joined = join(&seen);
    let [whole, joined] = [&whole, &joined].map(|joined| &joined.directions[0]);
    assert!(whole.told.nobody_ns < 100_000 && joined.told.nobody_ns < 100_000, "{:?}", joined.told);
    assert!(joined.remarks.iter().any(|remark| remark.starts_with(&left)), "{:?}", joined.remarks);
    assert!(joined.picture.as_ref().unwrap().spans.len() <= 16);
}
