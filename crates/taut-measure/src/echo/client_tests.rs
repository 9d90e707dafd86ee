//! The client's decisions, at given times.

use taut_link::Numbering;
use taut_time::{Duration, Framing, Instant};

use super::client::{EchoClient, Step};
use super::plan::EchoPlan;
use super::tests::plan;

const NEVER: Instant = Instant::from_nanos(u64::MAX);

fn ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

const fn new(flow: usize) -> Step {
    Step::Write { flow, is_new: true }
}

fn open_loop(rate_hz: f64) -> EchoPlan {
    EchoPlan { rate_hz: Some(rate_hz), ..plan() }
}

/// A client over links of streams that are believed.
fn client(plan: &EchoPlan, links: usize) -> EchoClient<'_> {
    EchoClient::new(plan, vec![Numbering::of_session(Framing::Stream, 1); links])
}

#[test]
fn a_closed_loop_has_one_message_under_way_on_each_link() {
    let plan = plan();
    let mut client = client(&plan, 2);
    client.count(3, NEVER, ms(0));
    for flow in [0, 1] {
        assert_eq!(client.poll(ms(1)), new(flow));
        assert!(client.wrote(32));
    }
    assert_eq!(client.poll(ms(2)), Step::Wait);
    client.handle(1, &[0; 32], ms(3)).unwrap();
    assert_eq!(client.poll(ms(4)), new(1));
    assert!(client.wrote(32));
    client.handle(0, &[0; 32], ms(5)).unwrap();
    assert_eq!(client.poll(ms(6)), Step::Wait);
    client.handle(1, &[0; 32], ms(7)).unwrap();
    assert_eq!(client.poll(ms(8)), Step::Done);
    let samples = client.into_samples();
    assert_eq!((samples.sent, samples.lost, samples.main().messages()), (3, 0, 3));
}

#[test]
fn a_reply_at_the_time_out_is_in_time_and_one_after_it_is_late() {
    let plan = plan();
    for (at, lost) in [(1000, 0), (1001, 1)] {
        let mut client = client(&plan, 1);
        client.count(1, NEVER, ms(0));
        assert_eq!((client.poll(ms(0)), client.wrote(32)), (new(0), true));
        assert_eq!(client.deadline(), Some(ms(1000)));
        client.handle(0, &[0; 32], ms(at)).unwrap();
        let samples = client.into_samples();
        assert_eq!((samples.lost, samples.late_replies), (lost, lost), "{at} ms");
    }
}

#[test]
fn an_open_loop_keeps_its_schedule_and_says_how_late_it_is_and_what_it_never_sent() {
    let plan = open_loop(100.0);
    let mut client = client(&plan, 1);
    client.count(5, ms(45), ms(0));
    for (at, step) in [(0, new(0)), (3, Step::Wait), (10, new(0)), (35, new(0)), (35, new(0)), (35, Step::Wait)] {
        assert_eq!(client.poll(ms(at)), step, "{at} ms");
        if step != Step::Wait {
            client.wrote(32);
            client.handle(0, &[0; 32], ms(at)).unwrap();
        }
    }
    assert_eq!(client.deadline(), Some(ms(40)));
    assert_eq!(client.poll(ms(45)), Step::Done);
    let samples = client.into_samples();
    // Due at 20 and 30 ms, and sent at 35 ms.
    assert_eq!((samples.sent, samples.unsent, samples.main().messages()), (4, 1, 5));
}

#[test]
fn a_message_without_room_is_lost_and_half_of_one_ends_the_link() {
    let closed = plan();
    let mut client = client(&closed, 1);
    client.count(2, NEVER, ms(0));
    assert_eq!(client.poll(ms(0)), new(0));
    assert_eq!(client.poll(ms(999)), Step::Write { flow: 0, is_new: false });
    assert_eq!(client.poll(ms(1000)), new(0), "the one before is lost");
    assert!(!client.wrote(20));
    // It has found room for a part, from when on it has a time-out's length for the next one.
    assert_eq!(client.poll(ms(1900)), Step::Write { flow: 0, is_new: false });
    assert_eq!(client.poll(ms(2899)), Step::Write { flow: 0, is_new: false });
    assert_eq!(client.poll(ms(2900)), Step::Stuck { flow: 0, waited: Duration::from_secs(1) });
    let samples = client.into_samples();
    assert_eq!((samples.sent, samples.lost), (2, 1));

    let open = open_loop(1.0);
    let mut client = self::client(&open, 1);
    client.count(1, NEVER, ms(0));
    assert_eq!((client.poll(ms(0)), client.wrote(20)), (new(0), false));
    assert_eq!(client.poll(ms(1)), Step::Write { flow: 0, is_new: false });
    assert_eq!(client.poll(ms(6000)), Step::Write { flow: 0, is_new: false });
    assert!(matches!(client.poll(ms(6001)), Step::Stuck { .. }));
}

#[test]
fn a_user_who_stops_waits_no_longer_than_replies_take() {
    let plan = EchoPlan { timeout: Duration::from_secs(100), ..plan() };
    let mut client = client(&plan, 1);
    client.count(10, NEVER, ms(0));
    assert_eq!((client.poll(ms(0)), client.wrote(32)), (new(0), true));
    client.stop(ms(10));
    client.stop(ms(500));
    assert_eq!((client.poll(ms(10)), client.deadline()), (Step::Wait, Some(ms(1010))));
    assert_eq!(client.poll(ms(1010)), Step::Done);
}

#[test]
fn nothing_of_the_warm_up_counts() {
    let plan = plan();
    let mut client = client(&plan, 1);
    client.warm_up(ms(0));
    assert_eq!((client.poll(ms(0)), client.wrote(32)), (new(0), true));
    assert_eq!(client.poll(ms(1000)), Step::Done, "its time is over, and its message lost");
    client.count(1, NEVER, ms(1000));
    assert_eq!((client.poll(ms(1000)), client.wrote(32)), (new(0), true));
    // The reply of the warm-up's message comes first, in the same piece.
    client.handle(0, &[0; 64], ms(1001)).unwrap();
    assert_eq!(client.poll(ms(1002)), Step::Done);
    let samples = client.into_samples();
    assert_eq!((samples.sent, samples.lost, samples.late_replies, samples.main().messages()), (1, 0, 0, 1));
}
