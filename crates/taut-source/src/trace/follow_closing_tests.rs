//! What comes beside the usual: out of order, before anybody accepts, and when an end is closed.

use super::*;

const READ: i64 = libc::SYS_read;

fn gaps(heard: &Heard) -> usize {
    heard.events.iter().filter(|(_, what, _)| *what == Happened::Gap).count()
}

fn bytes(heard: &Heard, wanted: Stamp) -> u64 {
    heard.stamps().into_iter().filter(|(stamp, _)| *stamp == wanted).map(|(_, bytes)| bytes).sum()
}

/// A read up to there, of what has come up to `came`.
fn read(what: What, result: i64, to: u64, came: u64) -> Made {
    let mut made = Made::new(what, CLIENT);
    made.number(READ, result).set(Known::CopiedSeq, to).set(Known::RcvNxt, came);
    made
}

#[test]
fn what_came_out_of_order_is_read_without_a_gap_and_counts_once() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &read(What::Call, 0, 500, 500));
    for (seq, next) in [(510, 500), (500, 500)] {
        let mut came = Made::new(What::Receive, CLIENT);
        tell(&mut follower, &mut heard, came.set(Known::RcvNxt, next).segment(seq, 100, 10, 100));
    }
    tell(&mut follower, &mut heard, &read(What::Return, 20, 520, 520));
    // A segment that the kernel had no room for comes again.
    for _ in 0..2 {
        let mut came = Made::new(What::Receive, CLIENT);
        came.set(Known::RcvNxt, 520).set(Known::CopiedSeq, 520).segment(520, 100, 10, 100);
        tell(&mut follower, &mut heard, &came);
    }
    assert_eq!((gaps(&heard), bytes(&heard, Stamp::Received), bytes(&heard, Stamp::Read)), (0, 30, 20));
}

#[test]
fn the_end_of_the_peer_is_no_byte_and_leaves_nothing_behind() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    follower.want(ends(&plain(), &Made::new(What::Call, CLIENT).0[HEADER as usize..]).unwrap());
    tell(&mut follower, &mut heard, &read(What::Call, 0, 500, 500));
    let mut came = Made::new(What::Receive, CLIENT);
    tell(&mut follower, &mut heard, came.segment(500, 100, 10, 100));
    tell(&mut follower, &mut heard, &read(What::Return, 10, 510, 510));
    // It has closed its own side; the peer's FIN closes the other one, and the port was given back.
    let mut close = read(What::Close, 0, 510, 511);
    close.set(Known::State, 5).set(Known::PortPair, u64::from(80_u16.to_be()));
    tell(&mut follower, &mut heard, &close);
    assert_eq!((heard.closed, gaps(&heard), bytes(&heard, Stamp::Read)), (1, 0, 10));
    assert_eq!((follower.counts(), follower.peers.len(), follower.wanted.len()), ((0, 0), 0, 0));
    assert_eq!(follower.gone.len(), 1);
}

/// As in two network namespaces: the kernel goes by ports alone.
#[test]
fn ports_are_given_back_with_the_last_connection_that_has_these_ends() {
    const OTHER_SERVER: u64 = 0x3000;
    let (mut follower, mut heard) = (follower(), Heard::default());
    let of = |what, server| {
        let mut made = Made::new(what, server);
        made.number(READ, 0);
        made
    };
    follower.want(ends(&plain(), &of(What::Call, SERVER).0[HEADER as usize..]).unwrap());
    for server in [SERVER, OTHER_SERVER] {
        tell(&mut follower, &mut heard, &of(What::Call, server));
    }
    for (server, wanted, gone) in [(SERVER, 1, 0), (OTHER_SERVER, 0, 1)] {
        let mut close = of(What::Close, server);
        tell(&mut follower, &mut heard, close.set(Known::State, 7));
        assert_eq!((follower.wanted.len(), follower.gone.len()), (wanted, gone), "{server:#x}");
    }
}

#[test]
fn what_is_left_in_a_closed_connection_is_read_to_its_end() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &read(What::Call, 0, 500, 500));
    let mut arrived = read(What::Arrived, 0, 500, 530);
    tell(&mut follower, &mut heard, arrived.set(Known::State, 5));
    let closed = |made: &mut Made| {
        made.set(Known::State, 7).set(Known::PortPair, u64::from(80_u16.to_be()));
    };
    let mut close = read(What::Close, 0, 500, 531);
    close.set(Known::State, 5).set(Known::PortPair, u64::from(80_u16.to_be()));
    tell(&mut follower, &mut heard, &close);
    assert_eq!((heard.closed, heard.state().unread_bytes), (0, 30));
    let mut back = read(What::Return, 20, 520, 531);
    closed(&mut back);
    tell(&mut follower, &mut heard, &back);
    assert_eq!((heard.closed, heard.state().unread_bytes), (0, 10));
    let mut again = read(What::Call, 0, 520, 531);
    closed(&mut again);
    tell(&mut follower, &mut heard, &again);
    // With the last bytes the FIN counts as read.
    let mut last = read(What::Return, 10, 531, 531);
    closed(&mut last);
    tell(&mut follower, &mut heard, &last);
    assert_eq!((heard.closed, heard.flows.len(), gaps(&heard)), (1, 1, 0));
    assert_eq!((bytes(&heard, Stamp::Received), bytes(&heard, Stamp::Read)), (30, 30));
    // Nobody is met by a call on what is over.
    let mut late = read(What::Call, 0, 531, 531);
    closed(&mut late);
    tell(&mut follower, &mut heard, &late);
    assert_eq!((follower.counts(), heard.flows.len()), ((0, 0), 1));
}

/// Its closing is told before its state changes, and a call on another processor may begin in between.
#[test]
fn what_a_call_finds_closed_is_over_though_nobody_told_so() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    tell(&mut follower, &mut heard, &Made::new(What::Close, CLIENT));
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    assert_eq!((heard.flows.len(), heard.closed), (2, 1));
    let mut back = call(What::Return, 0, 0);
    tell(&mut follower, &mut heard, back.set(Known::State, 7));
    assert_eq!((heard.closed, follower.counts()), (2, (0, 0)));
}

/// What is left in it may never be read, as where its program has closed it: what the thread waits for after that is
/// something else's time.
#[test]
fn waits_of_a_thread_are_no_waits_of_a_connection_that_is_closed() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &read(What::Call, 0, 500, 500));
    let mut came = Made::new(What::Receive, CLIENT);
    tell(&mut follower, &mut heard, came.segment(500, 100, 30, 100));
    let waits = |follower: &mut Follower, heard: &mut Heard| {
        let before = heard.events.len();
        let mut ran = Made::new(What::Ran, 0);
        ran.0.truncate(HEADER as usize);
        tell(follower, heard, ran.long(at::RESULT, 70_000));
        let mut polled = Made::new(What::Polled, 1_000);
        polled.0.truncate(HEADER as usize);
        tell(follower, heard, polled.long(at::NS, 1_700).long(at::RESULT, 1));
        heard.events.len() - before
    };
    assert_eq!(waits(&mut follower, &mut heard), 2);
    tell(&mut follower, &mut heard, &read(What::Close, 0, 500, 531));
    assert_eq!((heard.closed, heard.state().unread_bytes), (0, 30));
    assert_eq!(waits(&mut follower, &mut heard), 0);
}

#[test]
fn what_comes_before_a_connection_is_accepted_is_told_when_it_is_known_whose_it_is() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    let mut opened = Made::new(What::Opened, CLIENT);
    tell(&mut follower, &mut heard, opened.set(Known::State, 3));
    for number in 0..100 {
        let mut came = Made::new(What::Receive, CLIENT);
        came.set(Known::RcvNxt, 500 + 10 * number).segment(500 + 10 * number as u32, 100, 10, 100);
        tell(&mut follower, &mut heard, &came);
    }
    assert_eq!((heard.flows.len(), heard.events.len()), (0, 0));
    let mut accepted = read(What::Accepted, 0, 500, 1500);
    tell(&mut follower, &mut heard, accepted.number(libc::SYS_accept4, 0));
    tell(&mut follower, &mut heard, &read(What::Call, 0, 500, 1500));
    assert_eq!((heard.flows.len(), gaps(&heard), bytes(&heard, Stamp::Received)), (1, 0, 1000));
    assert_eq!(accepting(&heard), [Happened::Awaits, Happened::Accepted]);
    // What came with the segment that opened it was told by nobody (`TCP_DEFER_ACCEPT`).
    let mut opened = Made::new(What::Opened, SERVER);
    tell(&mut follower, &mut heard, opened.set(Known::State, 3));
    let mut call = Made::new(What::Call, SERVER);
    tell(&mut follower, &mut heard, call.number(READ, 0).set(Known::RcvNxt, 540));
    assert_eq!((heard.flows.len(), gaps(&heard), bytes(&heard, Stamp::Received)), (2, 0, 1040));
    // Its accept(2) had begun before the trace: it was over by the first call.
    assert_eq!(accepting(&heard)[2..], [Happened::Awaits, Happened::Accepted]);
}

/// A thread in accept(2) is woken up by the connection, and then has no processor.
#[test]
fn who_accepts_may_have_waited_for_a_processor() {
    let told = |ran_at: u64, is_other: bool, lost: u64| {
        let (mut follower, mut heard) = (follower(), Heard::default());
        let mut ran = Made::new(What::Ran, 0);
        ran.0.truncate(HEADER as usize);
        ran.long(at::NS, ran_at).long(at::TASK, if is_other { 9 } else { 8 }).long(at::RESULT, 70_000);
        let mut opened = Made::new(What::Opened, CLIENT);
        opened.set(Known::State, 3).long(at::NS, 1000);
        let mut accepted = read(What::Accepted, 0, 500, 500);
        accepted.number(libc::SYS_accept4, 0).long(at::NS, 90_000).long(at::LOST, lost);
        let records = if ran_at < 1000 { [&ran, &opened] } else { [&opened, &ran] };
        records.into_iter().chain([&accepted]).for_each(|record| tell(&mut follower, &mut heard, record));
        heard.events.iter().filter(|(_, what, _)| *what == Happened::Task(Task::Ran { waited_ns: 70_000 })).count()
    };
    assert_eq!(told(80_000, false, 0), 1);
    // Another thread had waited, or this one before there was a connection, or something was lost meanwhile.
    assert_eq!((told(80_000, true, 0), told(500, false, 0), told(80_000, false, 1)), (0, 0, 0));
}

fn accepting(heard: &Heard) -> Vec<Happened> {
    let is_of_that = |what: &Happened| matches!(what, Happened::Awaits | Happened::Accepted);
    heard.events.iter().map(|(_, what, _)| *what).filter(is_of_that).collect()
}

#[test]
fn what_is_never_accepted_is_told_at_the_end_with_its_queue() {
    // Also with more than is kept of what comes until then.
    for segments in [0, 100] {
        let (mut follower, mut heard) = (follower(), Heard::default());
        let mut opened = Made::new(What::Opened, CLIENT);
        tell(&mut follower, &mut heard, opened.set(Known::State, 3));
        for number in 0..segments {
            let mut came = Made::new(What::Receive, CLIENT);
            came.set(Known::RcvNxt, 500 + 10 * number).segment(500 + 10 * number as u32, 100, 10, 100);
            tell(&mut follower, &mut heard, &came);
        }
        let (now, every) = (Instant::from_nanos(1_000_000_000), Duration::from_millis(500));
        let awaiting = follower.awaiting(now, every, false);
        assert_eq!(awaiting.len(), 1);
        assert!(follower.awaiting(now, every, false).is_empty(), "looked at again at once");
        let queue = Listening { waiting: 2, backlog: 1 };
        follower.listens(awaiting[0].0, queue, now, false, &mut heard);
        assert!(heard.flows.is_empty());
        assert_eq!(follower.awaiting(now, every, true).len(), 1);
        follower.listens(awaiting[0].0, queue, now, true, &mut heard);
        assert_eq!((heard.flows.len(), accepting(&heard)), (1, vec![Happened::Awaits]));
        assert_eq!(heard.events.iter().filter(|(_, what, _)| *what == Happened::Listens(queue)).count(), 2);
        // One that somebody else has by now is looked at no more.
        follower.look_no_more(awaiting[0].0);
        assert!(follower.awaiting(now + every * 10, every, false).is_empty());
    }
}

/// Each look asks for all sockets of the host.
#[test]
fn connections_that_wait_are_looked_at_together() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    for (socket, ns) in [(CLIENT, 0), (SERVER, 950_000_000)] {
        let mut opened = Made::new(What::Opened, socket);
        tell(&mut follower, &mut heard, opened.set(Known::State, 3).long(at::NS, ns));
    }
    let every = Duration::from_millis(500);
    let looks = [1000, 1100, 1499, 1500, 1501].map(|ms: u64| {
        let now = Instant::from_nanos(ms * 1_000_000);
        follower.awaiting(now, every, false).len()
    });
    assert_eq!(looks, [1, 0, 0, 2, 0]);
}

/// They come from a table without an order, and two traces of the same are to tell the same.
#[test]
fn connections_are_looked_at_in_the_order_of_their_ports() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    for number in 0..50_u64 {
        let mut opened = Made::new(What::Opened, 0x10_0000 + 0x40 * number);
        let ports = u64::from(4000_u16.to_be()) | (5000 - number) << 16;
        tell(&mut follower, &mut heard, opened.set(Known::State, 3).set(Known::PortPair, ports));
    }
    let (now, every) = (Instant::from_nanos(1_000_000_000), Duration::from_millis(500));
    let found: Vec<Ends> = follower.awaiting(now, every, false).into_iter().map(|(_, ends)| ends).collect();
    assert!(found.len() == 50 && found.is_sorted(), "{found:?}");
}

#[test]
fn of_many_calls_on_what_is_not_connected_the_earliest_is_forgotten() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    for number in 0..=MOST_OPENING as u64 {
        let mut begin = Made::new(What::Call, 0x10_0000 + number);
        begin.number(WRITE, 0).set(Known::State, 7).set(Known::PortPair, 0).long(at::NS, 10 + number);
        tell(&mut follower, &mut heard, &begin);
    }
    assert_eq!(follower.opening.len(), MOST_OPENING);
    assert!(!follower.opening.contains_key(&0x10_0000) && follower.opening.contains_key(&0x10_0001));
}

/// The place of a segment in a record that has none may hold anything.
#[test]
fn a_connection_is_opened_by_a_segment_alone() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    let mut begin = call(What::Call, 0, 0);
    begin.set(Known::State, 7).set(Known::PortPair, 0).set(Known::WriteSeq, 0);
    tell(&mut follower, &mut heard, &begin);
    let mut arrived = Made::new(What::Arrived, CLIENT);
    arrived.set(Known::State, 2).segment(100, 0, 40, 0);
    arrived.0[at::TCP as usize + 13] = 2;
    tell(&mut follower, &mut heard, &arrived);
    assert_eq!((heard.flows.len(), heard.stamps()), (1, Vec::new()));
    assert!(follower.opening.contains_key(&CLIENT));
}

#[test]
fn a_call_that_opens_its_connection_is_a_write_of_what_the_first_segment_has() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    let mut begin = call(What::Call, 0, 0);
    begin.set(Known::State, 7).set(Known::PortPair, 0).set(Known::WriteSeq, 0);
    tell(&mut follower, &mut heard, &begin);
    assert!(heard.flows.is_empty());
    let mut opening = Made::new(What::Queue, CLIENT);
    opening.set(Known::State, 2).set(Known::WriteSeq, 141).segment(100, 0, 40, 0);
    opening.0[at::TCP as usize + 13] = 2;
    tell(&mut follower, &mut heard, &opening);
    let mut back = call(What::Return, 40, 41);
    back.set(Known::SndNxt, 141).set(Known::State, 2);
    tell(&mut follower, &mut heard, &back);
    assert_eq!(heard.stamps(), [(Stamp::WriteBegin, 0), (Stamp::Scheduled, 40), (Stamp::WriteEnd, 40)]);
    let stamps = heard.events.iter().filter(|(_, what, _)| matches!(what, Happened::Reached(_)));
    let places: Vec<u64> = stamps.map(|(.., bytes)| bytes.end & 0xffff_ffff).collect();
    assert_eq!(places, [101, 141, 141], "the first segment's own number is no byte");
    assert_eq!((gaps(&heard), heard.releases()), (0, vec![Release::Call]));
}

#[test]
fn the_own_end_is_no_byte_on_its_way() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    let mut end = Made::new(What::Queue, CLIENT);
    end.set(Known::State, 4).set(Known::WriteSeq, 101).segment(100, 500, 0, 0);
    end.0[at::TCP as usize + 13] = 17;
    tell(&mut follower, &mut heard, &end);
    let state = heard.state();
    assert_eq!((state.unsent_bytes, state.in_flight_bytes, state.is_ended), (0, 0, true));
}

#[test]
fn a_process_that_ends_leaves_its_name() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    let mut named = Made::new(What::Named, 0);
    named.0.truncate(HEADER as usize);
    named.0[at::TCP as usize..][..4].copy_from_slice(b"curl");
    tell(&mut follower, &mut heard, &named);
    assert_eq!(follower.ended, [(7, "curl".to_owned())]);
    // What has its number next is another process.
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    tell(&mut follower, &mut heard, &call(What::Return, 0, 0));
    tell(&mut follower, &mut heard, &named);
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    assert_eq!(follower.new_processes, [7, 7]);
}
