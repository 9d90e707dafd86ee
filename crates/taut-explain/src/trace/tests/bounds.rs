//! Files that were made up: what a trace keeps is bounded, and no sum runs over.

use super::*;

fn event(id: u32, at: u64, what: What, bytes: (u64, u64)) -> Event {
    Event {
        at: Instant::from_nanos(at),
        seen_by: VantageId(0),
        flow: FlowId(id),
        direction: Way::Forward,
        layer: Layer::Socket,
        what,
        bytes: ByteRange::new(bytes.0, bytes.1),
        who: None,
        place: 0,
    }
}

#[test]
fn writes_that_wait_are_bounded_over_all_connections_and_it_is_said() {
    const FLOWS: u32 = 80;
    const EACH: u64 = 4000;
    let mut trace = Trace::new(FLOWS as usize);
    let write = |trace: &mut Trace, id: u32| {
        for at in 0..EACH {
            trace.event(&event(id, at, What::Reached(Stamp::WriteEnd), (at, at + 1)));
        }
    };
    let leave = |id: u32| event(id, EACH, What::Reached(Stamp::Scheduled), (0, EACH));
    for id in 0..FLOWS {
        trace.flow(FlowId(id), &flow());
        write(&mut trace, id);
    }
    assert_eq!(trace.waiting, MOST_WAITING);
    // What leaves makes room, in the numbers and in memory; so does what is lost track of.
    trace.event(&leave(0));
    trace.event(&event(1, EACH, What::Gap, (0, 0)));
    let room = |trace: &Trace, id: usize| trace.connections[id].as_ref().map(|connection| connection.room_to_wait());
    assert!(room(&trace, 0).is_some_and(|room| room <= 64) && room(&trace, 1) == Some(0), "{:?}", room(&trace, 0));
    trace.close(FlowId(2), Closed::Ended);
    assert_eq!(trace.waiting, MOST_WAITING - 3 * EACH as usize);
    (3..FLOWS).for_each(|id| trace.event(&leave(id)));
    assert_eq!(trace.waiting, 0);
    let traced = trace.finish(Instant::from_nanos(EACH));
    let not_followed = |direction: &&TracedDirection| {
        direction.remarks.iter().any(|remark| remark.contains("writes were not followed until they left"))
    };
    let untold = traced.worst.iter().filter(|direction| direction.held_writes < EACH && direction.bytes > 0);
    let untold: Vec<&TracedDirection> = untold.collect();
    assert!(untold.len() >= 14 && untold.iter().filter(|direction| direction.held_writes > 0).all(not_followed));
}

/// A number is given to another connection while the one that had it is open.
#[test]
fn a_number_that_is_used_again_leaves_no_ends_behind() {
    let mut trace = Trace::new(5);
    let Flow { key: FlowKey::Tcp(own, peer), .. } = flow() else { panic!() };
    let other = Flow { key: FlowKey::Tcp(peer, own), ..flow() };
    trace.flow(FlowId(0), &flow());
    trace.flow(FlowId(1), &other);
    let peer_of = |trace: &Trace| trace.connections[0].as_ref().and_then(|connection| connection.peer);
    assert_eq!((peer_of(&trace), trace.open.len()), (Some(1), 2));
    trace.flow(FlowId(1), &flow());
    assert_eq!((peer_of(&trace), trace.open.len()), (None, 1));
    (0..2).for_each(|id| trace.close(FlowId(id), Closed::Ended));
    assert!(trace.open.is_empty());
}

#[test]
fn sums_over_connections_do_not_run_over() {
    let mut trace = Trace::new(1);
    let last = i64::MAX as u64;
    for id in 0..4 {
        trace.flow(FlowId(id), &flow());
        trace.event(&event(id, 0, What::Reached(Stamp::WriteBegin), (0, 0)));
        trace.event(&event(id, 0, What::State(on_the_way(48)), (0, 0)));
        trace.event(&event(id, 1, What::Reached(Stamp::Scheduled), (0, 48)));
        trace.event(&event(id, last, What::State(quiet()), (0, 0)));
    }
    (0..4).for_each(|id| trace.close(FlowId(id), Closed::Ended));
    assert_eq!(trace.written().held_ns.iter().max(), Some(&u64::MAX));
    let traced = trace.finish(Instant::from_nanos(last));
    assert_eq!(traced.totals[0].held_ns, u64::MAX);
    assert!(traced.totals.iter().all(|held| (0.0..=1.0).contains(&held.share)), "{:#?}", traced.totals);
}
