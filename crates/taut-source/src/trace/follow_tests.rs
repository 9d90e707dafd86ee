use proptest::prelude::*;

use super::super::layout::tests::{plain, plain_others, set, set_in};
use super::super::record::{HEADER, at};
use super::super::tcp::{EAGAIN, PEEK};
use taut_event::{Call, Event, FlowId, LocalKind, Release, SocketState, Stamp};
use taut_time::ByteRange;

use super::*;

#[path = "follow_bluetooth_tests.rs"]
mod bluetooth;
#[path = "follow_closing_tests.rs"]
mod closing;
#[path = "follow_lost_tests.rs"]
mod lost;
#[path = "follow_others_tests.rs"]
mod others;
#[path = "follow_unread_tests.rs"]
mod unread;

/// Keeps what it is told.
#[derive(Debug, Default)]
struct Heard {
    flows: Vec<FlowKey>,
    events: Vec<(Direction, Happened, ByteRange)>,
    closed: usize,
}

impl Sink for Heard {
    fn flow(&mut self, _: FlowId, flow: &Flow) {
        self.flows.push(flow.key);
    }

    fn event(&mut self, event: &Event) {
        self.events.push((event.direction, event.what, event.bytes));
    }

    fn close(&mut self, _: FlowId, _: Closed) {
        self.closed += 1;
    }
}

impl Heard {
    fn stamps(&self) -> Vec<(Stamp, u64)> {
        let stamp = |(_, what, bytes): &(Direction, Happened, ByteRange)| match what {
            Happened::Reached(stamp) => Some((*stamp, bytes.end - bytes.start)),
            _ => None,
        };
        self.events.iter().filter_map(stamp).collect()
    }

    fn state(&self) -> SocketState {
        let state = self.events.iter().rev().find_map(|(_, what, _)| match what {
            Happened::State(state) => Some(*state),
            _ => None,
        });
        state.unwrap()
    }

    fn releases(&self) -> Vec<Release> {
        let release = |(_, what, _): &(Direction, Happened, ByteRange)| match what {
            Happened::Released(release) => Some(*release),
            _ => None,
        };
        self.events.iter().filter_map(release).collect()
    }
}

const CLIENT: u64 = 0x1000;
const SERVER: u64 = 0x2000;
const DELACK: u64 = 0xdeac;
const WRITE: i64 = libc::SYS_write;

/// A record of the client, port 4000 to 80, or of the server; all else at rest.
#[derive(Clone)]
struct Made(Vec<u8>);

impl Made {
    fn new(what: What, socket: u64) -> Self {
        let mut bytes = vec![0; HEADER as usize + plain().bytes as usize];
        bytes[at::WHAT as usize] = what as u8;
        let mut made = Self(bytes);
        let (own, peer): (u16, u16) = if socket == CLIENT { (4000, 80) } else { (80, 4000) };
        let address = u64::from(u32::from_ne_bytes([127, 0, 0, 1]));
        made.long(at::SOCKET, socket).long(at::TASK, 7 << 32 | 8);
        for (known, value) in [
            (Known::Family, 2),
            (Known::State, 1),
            (Known::PortPair, u64::from(peer.to_be()) | u64::from(own) << 16),
            (Known::LocalV4, address),
            (Known::RemoteV4, address),
            (Known::SndCwnd, 10),
            (Known::SndWnd, 65_000),
            (Known::MssCache, 1000),
            (Known::SendBuffer, 100_000),
            (Known::WriteSeq, 100),
            (Known::SndNxt, 100),
            (Known::SndUna, 100),
            (Known::RcvNxt, 500),
            (Known::CopiedSeq, 500),
        ] {
            made.set(known, value);
        }
        made
    }

    fn set(&mut self, known: Known, value: u64) -> &mut Self {
        set(&mut self.0[HEADER as usize..], known, value);
        self
    }

    fn long(&mut self, to: i16, value: u64) -> &mut Self {
        self.0[to as usize..][..8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn number(&mut self, number: i64, result: i64) -> &mut Self {
        self.0[at::NUMBER as usize..][..4].copy_from_slice(&(number as u32).to_ne_bytes());
        self.long(at::RESULT, result.cast_unsigned())
    }

    fn segment(&mut self, seq: u32, ack: u32, payload: u32, window: u16) -> &mut Self {
        let mut tcp = [0; 20];
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        tcp[8..12].copy_from_slice(&ack.to_be_bytes());
        (tcp[12], tcp[13]) = (5 << 4, 16);
        tcp[14..16].copy_from_slice(&window.to_be_bytes());
        self.0[at::TCP as usize..][..20].copy_from_slice(&tcp);
        self.0[at::LENGTH as usize..][..4].copy_from_slice(&(20 + payload).to_ne_bytes());
        self
    }
}

fn follower() -> Follower {
    Follower::new(false, true, HashMap::from([(DELACK, Timer::DelayedAck)]))
}

fn tell(follower: &mut Follower, heard: &mut Heard, made: &Made) {
    follower.take(&plain(), None, &made.0, heard);
}

fn call(what: What, result: i64, written: u64) -> Made {
    let mut made = Made::new(what, CLIENT);
    made.number(WRITE, result).set(Known::WriteSeq, 100 + written);
    made
}

#[test]
fn a_snapshot_is_brought_to_what_it_is_just_after() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    let mut queue = Made::new(What::Queue, CLIENT);
    tell(&mut follower, &mut heard, queue.set(Known::WriteSeq, 140).segment(100, 500, 40, 0));
    let state = heard.state();
    assert_eq!((state.unsent_bytes, state.in_flight_bytes, state.in_flight_segments), (0, 40, 1));
    assert_eq!(state.small_in_flight, Some(true));
    let mut back = call(What::Return, 48, 88);
    back.set(Known::SndNxt, 140).set(Known::PacketsOut, 1).set(Known::SndSml, 140);
    tell(&mut follower, &mut heard, &back);
    assert_eq!((heard.state().unsent_bytes, heard.state().in_flight_bytes), (48, 40));
    // The acknowledgement comes with a smaller window; the snapshot is from before it.
    let mut receive = Made::new(What::Receive, CLIENT);
    receive.set(Known::WriteSeq, 188).set(Known::SndNxt, 140).set(Known::PacketsOut, 1).set(Known::SndWscale, 2);
    tell(&mut follower, &mut heard, receive.segment(500, 140, 8, 3));
    let state = heard.state();
    assert_eq!((state.in_flight_bytes, state.in_flight_segments, state.send_window_bytes), (0, 0, Some(12)));
    assert_eq!((state.unread_bytes, state.small_in_flight), (8, Some(false)));
    assert_eq!(
        heard.stamps(),
        [
            (Stamp::WriteBegin, 0),
            (Stamp::Scheduled, 40),
            (Stamp::WriteEnd, 88),
            (Stamp::Acknowledged, 40),
            (Stamp::Received, 8),
        ]
    );
    assert_eq!(heard.releases(), [Release::Call]);
    assert_eq!(heard.flows.len(), 1);
}

/// A wait for a processor is of what the thread is to read, or of what woke it up.
#[test]
fn a_thread_that_had_no_processor_is_told_to_what_waits_for_it_alone() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    let mut read = Made::new(What::Call, CLIENT);
    tell(&mut follower, &mut heard, read.number(libc::SYS_read, 0));
    let ran = |thread: u64, socket: u64| {
        let mut made = Made::new(What::Ran, socket);
        made.0.truncate(HEADER as usize);
        made.long(at::TASK, thread).long(at::RESULT, 70_000);
        made
    };
    let told = |heard: &mut Heard| {
        let events = std::mem::take(&mut heard.events);
        events.iter().filter(|(_, what, _)| *what == Happened::Task(Task::Ran { waited_ns: 70_000 })).count()
    };
    // Nothing waits yet.
    tell(&mut follower, &mut heard, &ran(8, 0));
    assert_eq!(told(&mut heard), 0);
    let mut receive = Made::new(What::Receive, CLIENT);
    tell(&mut follower, &mut heard, receive.segment(500, 100, 8, 300));
    tell(&mut follower, &mut heard, &ran(8, 0));
    tell(&mut follower, &mut heard, &ran(8, CLIENT));
    assert_eq!(told(&mut heard), 2, "once each, whatever woke it up");
    tell(&mut follower, &mut heard, &ran(9, 0));
    assert_eq!(told(&mut heard), 0, "that thread reads nothing");
    tell(&mut follower, &mut heard, &ran(9, CLIENT));
    assert_eq!(told(&mut heard), 1, "it was woken up for it");
    let mut back = Made::new(What::Return, CLIENT);
    back.number(libc::SYS_read, 8).set(Known::RcvNxt, 508).set(Known::CopiedSeq, 508);
    tell(&mut follower, &mut heard, &back);
    tell(&mut follower, &mut heard, &ran(8, 0));
    assert_eq!(told(&mut heard), 0, "it has read");
}

/// A wait for descriptors tells of what has come, and of what another thread reads only where they share sockets.
#[test]
fn a_wait_for_descriptors_is_told_to_what_came_since() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    let read = |thread: u64| {
        let mut made = Made::new(What::Call, CLIENT);
        made.number(libc::SYS_read, 0).long(at::TASK, 7 << 32 | thread);
        made
    };
    let polled = |thread: u64| {
        let mut made = Made::new(What::Polled, 1_000);
        made.0.truncate(HEADER as usize);
        made.long(at::NS, 1_700).long(at::TASK, 7 << 32 | thread).long(at::RESULT, 1);
        made
    };
    let told = |heard: &mut Heard| {
        let events = std::mem::take(&mut heard.events);
        events.iter().filter(|(_, what, _)| *what == Happened::Task(Task::Polled { waited_ns: 700 })).count()
    };
    tell(&mut follower, &mut heard, &read(8));
    tell(&mut follower, &mut heard, &polled(8));
    assert_eq!(told(&mut heard), 0, "nothing has come");
    let mut receive = Made::new(What::Receive, CLIENT);
    tell(&mut follower, &mut heard, receive.segment(500, 100, 8, 300));
    tell(&mut follower, &mut heard, &polled(9));
    assert_eq!(told(&mut heard), 0, "another thread waits for others");
    tell(&mut follower, &mut heard, &polled(8));
    assert_eq!(told(&mut heard), 1);
    let mut in_vain = polled(8);
    tell(&mut follower, &mut heard, in_vain.long(at::RESULT, 0));
    assert_eq!(heard.events.last().map(|event| &event.1), Some(&Happened::Task(Task::TimedOut { waited_ns: 700 })));
    heard.events.clear();
    let mut back = Made::new(What::Return, CLIENT);
    back.number(libc::SYS_read, 8).set(Known::RcvNxt, 508).set(Known::CopiedSeq, 508);
    tell(&mut follower, &mut heard, &back);
    // Another thread reads now: they share it.
    tell(&mut follower, &mut heard, &read(9));
    let mut receive = Made::new(What::Receive, CLIENT);
    receive.set(Known::RcvNxt, 508).set(Known::CopiedSeq, 508);
    tell(&mut follower, &mut heard, receive.segment(508, 100, 8, 300));
    tell(&mut follower, &mut heard, &polled(8));
    assert_eq!(told(&mut heard), 1);
}

/// By io_uring: results are an `int`, whose upper half is empty.
#[test]
fn what_is_written_and_read_without_a_call_begins_and_ends_at_once() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    let made = |what, result: i32, flags: i64, known, value| {
        let mut made = Made::new(what, CLIENT);
        made.number(flags, result.cast_unsigned().into()).set(Known::RcvNxt, 530).set(known, value);
        made
    };
    tell(&mut follower, &mut heard, &made(What::Written, 40, 0, Known::WriteSeq, 140));
    assert_eq!(heard.state().unsent_bytes, 40);
    // A look alone takes nothing.
    tell(&mut follower, &mut heard, &made(What::Taken, 30, PEEK.into(), Known::CopiedSeq, 500));
    tell(&mut follower, &mut heard, &made(What::Taken, 20, 0, Known::CopiedSeq, 520));
    assert_eq!(heard.stamps(), [(Stamp::WriteBegin, 0), (Stamp::WriteEnd, 40), (Stamp::Read, 20)]);
    assert_eq!(heard.state().unread_bytes, 10);
    heard.events.clear();
    // No room, and nothing there: it waits.
    tell(&mut follower, &mut heard, &made(What::Written, EAGAIN, 0, Known::WriteSeq, 140));
    tell(&mut follower, &mut heard, &made(What::Taken, EAGAIN, 0, Known::CopiedSeq, 530));
    let calls: Vec<_> = heard.events.iter().filter(|(_, what, _)| matches!(what, Happened::Call(_))).collect();
    let expected = [
        (Direction::Forward, Happened::Call(Call::End { number: 0, result: EAGAIN })),
        (Direction::Backward, Happened::Call(Call::Begin { number: 0 })),
    ];
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().zip(expected).all(|(one, other)| (one.0, one.1) == other), "{calls:?}");
    assert_eq!((follower.counts(), heard.flows.len()), ((1, 0), 1));
    assert_eq!(follower.threads.process_of(8), Some(7));
}

/// As with gRPC or a driver of a database: one thread waits to read, and another one writes meanwhile.
#[test]
fn calls_of_two_threads_on_one_socket_are_kept_apart() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    let reader = |what, result: i64, read: u64| {
        let mut made = Made::new(what, CLIENT);
        made.long(at::TASK, 7 << 32 | 9).number(libc::SYS_read, result).set(Known::CopiedSeq, 500 + read);
        made.set(Known::RcvNxt, 500 + read);
        made
    };
    tell(&mut follower, &mut heard, &reader(What::Call, 0, 0));
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    tell(&mut follower, &mut heard, &reader(What::Return, 8, 8));
    tell(&mut follower, &mut heard, &reader(What::Call, 0, 8));
    assert_eq!(follower.counts(), (1, 2));
    let mut queue = Made::new(What::Queue, CLIENT);
    tell(&mut follower, &mut heard, queue.set(Known::WriteSeq, 140).segment(100, 500, 40, 0));
    let mut back = call(What::Return, 40, 40);
    tell(&mut follower, &mut heard, back.set(Known::SndNxt, 140));
    assert_eq!(
        heard.stamps(),
        [(Stamp::WriteBegin, 0), (Stamp::Read, 8), (Stamp::Scheduled, 40), (Stamp::WriteEnd, 40)]
    );
    assert_eq!(heard.releases(), [Release::Call]);
}

/// It wrote nothing, whatever another thread wrote meanwhile.
#[test]
fn a_write_that_fails_is_refused_though_another_thread_writes() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    let other = |what, result: i64, written: u64| {
        let mut made = call(what, result, written);
        made.long(at::TASK, 7 << 32 | 9);
        made
    };
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    tell(&mut follower, &mut heard, &other(What::Call, 0, 0));
    tell(&mut follower, &mut heard, &other(What::Return, 40, 40));
    tell(&mut follower, &mut heard, &call(What::Return, EAGAIN.into(), 40));
    assert_eq!(heard.stamps(), [(Stamp::WriteBegin, 0), (Stamp::WriteBegin, 0), (Stamp::WriteEnd, 40)]);
    let refused = Happened::Call(Call::End { number: WRITE as u16, result: EAGAIN });
    assert!(heard.events.iter().any(|(_, what, _)| *what == refused), "{:?}", heard.events);
}

/// Both have their data in the socket before either call comes back: each wrote what it says, and no byte is two's.
#[test]
fn of_two_writes_at_once_each_has_its_own_bytes() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    let other = |what, result: i64, written: u64| {
        let mut made = call(what, result, written);
        made.long(at::TASK, 7 << 32 | 9);
        made
    };
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    tell(&mut follower, &mut heard, &other(What::Call, 0, 0));
    tell(&mut follower, &mut heard, &call(What::Return, 40, 70));
    tell(&mut follower, &mut heard, &other(What::Return, 30, 70));
    // Alone again. The kernel may add to what it is handed (kTLS).
    tell(&mut follower, &mut heard, &call(What::Call, 0, 70));
    tell(&mut follower, &mut heard, &call(What::Return, 20, 100));
    let ends = heard.events.iter().filter(|(_, what, _)| *what == Happened::Reached(Stamp::WriteEnd));
    let ends: Vec<_> = ends.map(|(.., bytes)| (bytes.start as u32, bytes.end as u32)).collect();
    assert_eq!(ends, [(100, 140), (140, 170), (170, 200)]);
}

#[test]
fn what_sent_the_acknowledgement_is_told_where_the_peer_is_seen() {
    let release = |is_seen: bool, timer: u64| {
        let (mut follower, mut heard) = (follower(), Heard::default());
        tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
        tell(&mut follower, &mut heard, &call(What::Return, 48, 48));
        if is_seen {
            let mut ack = Made::new(What::Queue, SERVER);
            tell(&mut follower, &mut heard, ack.long(at::TIMER, timer).segment(500, 100, 0, 9));
        }
        let mut receive = Made::new(What::Receive, CLIENT);
        tell(&mut follower, &mut heard, receive.set(Known::WriteSeq, 148).segment(500, 100, 0, 9));
        let mut queue = Made::new(What::Queue, CLIENT);
        queue.set(Known::WriteSeq, 148).long(at::RECEIVING, CLIENT).segment(100, 500, 48, 0);
        tell(&mut follower, &mut heard, &queue);
        assert_eq!(heard.flows.len(), 1, "the peer is no flow of its own");
        heard.releases()
    };
    assert_eq!(release(true, DELACK), [Release::Acknowledgement(AckSentBy::DelayedAckTimer)]);
    assert_eq!(release(true, 0), [Release::Acknowledgement(AckSentBy::Program)]);
    assert_eq!(release(false, 0), [Release::Acknowledgement(AckSentBy::NotSeen)]);
}

/// As in two network namespaces, each with a loopback of its own.
#[test]
fn of_connections_with_the_same_ends_each_is_told_what_sent_its_own_acknowledgement() {
    const OTHER_SERVER: u64 = 0x3000;
    let release = |number_of_other: u32| {
        let (mut follower, mut heard) = (follower(), Heard::default());
        tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
        tell(&mut follower, &mut heard, &call(What::Return, 48, 48));
        // The other server sends last, and not by its timer.
        for (server, number, timer) in [(SERVER, 500, DELACK), (OTHER_SERVER, number_of_other, 0)] {
            let mut ack = Made::new(What::Queue, server);
            for known in [Known::WriteSeq, Known::SndNxt, Known::SndUna] {
                ack.set(known, number.into());
            }
            tell(&mut follower, &mut heard, ack.long(at::TIMER, timer).segment(number, 100, 0, 9));
        }
        let mut receive = Made::new(What::Receive, CLIENT);
        tell(&mut follower, &mut heard, receive.set(Known::WriteSeq, 148).segment(500, 100, 0, 9));
        let mut queue = Made::new(What::Queue, CLIENT);
        queue.set(Known::WriteSeq, 148).long(at::RECEIVING, CLIENT).segment(100, 500, 48, 0);
        tell(&mut follower, &mut heard, &queue);
        heard.releases()
    };
    for number in [0x4000_0000, 400, 510] {
        assert_eq!(release(number), [Release::Acknowledgement(AckSentBy::DelayedAckTimer)], "{number}");
    }
    // Which of both has sent it can't be told then.
    assert_eq!(release(500), [Release::Acknowledgement(AckSentBy::NotSeen)]);
}

#[test]
fn what_left_unseen_is_a_gap() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    let mut back = call(What::Return, 48, 48);
    tell(&mut follower, &mut heard, back.set(Known::SndNxt, 148));
    assert!(heard.events.iter().any(|(_, what, _)| *what == Happened::Gap));
}

#[test]
fn what_came_unseen_is_a_gap_and_what_came_out_of_order_is_none() {
    let gaps = |heard: &Heard| heard.events.iter().filter(|(_, what, _)| *what == Happened::Gap).count();
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    // The second of three segments first, the first one fills the hole.
    for (seq, next) in [(510, 500), (500, 500), (520, 520)] {
        let mut came = Made::new(What::Receive, CLIENT);
        tell(&mut follower, &mut heard, came.set(Known::RcvNxt, next).segment(seq, 100, 10, 100));
    }
    // A call may see what comes while its record is written.
    let mut racing = call(What::Call, 0, 0);
    tell(&mut follower, &mut heard, racing.set(Known::RcvNxt, 540));
    let mut came = Made::new(What::Receive, CLIENT);
    tell(&mut follower, &mut heard, came.set(Known::RcvNxt, 530).segment(530, 100, 10, 100));
    assert_eq!(gaps(&heard), 0);
    let mut acknowledged = Made::new(What::Queue, CLIENT);
    tell(&mut follower, &mut heard, acknowledged.set(Known::RcvNxt, 550).segment(100, 550, 0, 100));
    assert_eq!(gaps(&heard), 1);
    // Once the peer has closed, not each segment is seen.
    let mut closing = Made::new(What::Receive, CLIENT);
    tell(&mut follower, &mut heard, closing.set(Known::RcvNxt, 560).set(Known::State, 8).segment(560, 100, 0, 100));
    assert_eq!(gaps(&heard), 1);
}

#[test]
fn where_a_run_was_left_out_no_record_of_that_look_is_trusted() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    follower.is_doubtful = true;
    tell(&mut follower, &mut heard, &call(What::Return, 48, 48));
    follower.is_doubtful = false;
    for _ in 0..2 {
        tell(&mut follower, &mut heard, &call(What::Call, 0, 48));
    }
    let gaps: Vec<usize> = (0..heard.events.len()).filter(|&event| heard.events[event].1 == Happened::Gap).collect();
    assert_eq!(gaps.len(), 2, "{:?}", heard.events);
}

#[test]
fn a_call_on_a_connection_that_is_over_is_no_other_connection() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    tell(&mut follower, &mut heard, &Made::new(What::Close, CLIENT));
    let mut late = call(What::Call, 0, 0);
    tell(&mut follower, &mut heard, late.set(Known::State, 7));
    assert_eq!((heard.flows.len(), heard.closed), (1, 1));
}

#[test]
fn an_address_that_is_used_again_is_another_connection() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    let mut other = call(What::Call, 0, 0);
    tell(&mut follower, &mut heard, other.set(Known::PortPair, 81_u64.swap_bytes() >> 48 | 4001 << 16));
    assert_eq!((heard.flows.len(), heard.closed), (2, 1));
    tell(&mut follower, &mut heard, &Made::new(What::Close, CLIENT));
    assert_eq!(heard.closed, 2);
}

#[test]
fn pacing_lasts_as_long_as_the_segment_takes_at_its_rate() {
    let (mut follower, mut heard) = (follower(), Heard::default());
    tell(&mut follower, &mut heard, &call(What::Call, 0, 0));
    let mut queue = Made::new(What::Queue, CLIENT);
    queue.set(Known::WriteSeq, 3100).set(Known::PacingStatus, 1).set(Known::PacingRate, 1_000_000);
    tell(&mut follower, &mut heard, queue.long(at::NS, 5_000_000).segment(100, 500, 1000, 0));
    assert_eq!((heard.state().pacing_wait_ns, heard.state().unsent_bytes), (1_000_000, 2000));
    let mut later = call(What::Return, 3000, 3000);
    later.set(Known::SndNxt, 1100).set(Known::PacingStatus, 1).long(at::NS, 5_400_000);
    tell(&mut follower, &mut heard, &later);
    assert_eq!(heard.state().pacing_wait_ns, 600_000);
}

const PIPE: u64 = 0xffff_8888_0000_3000;
const UNIX: u64 = 0xffff_8888_0000_4000;

/// A record of what is not TCP: a pipe of 16 buffers, or a Unix socket.
fn other(what: What, inode: u64, ns: u64, number: i64, result: i64, set: &[(Known, u64)]) -> Made {
    let others = plain_others();
    let is_pipe = what.copied() == Copied::Pipe;
    let layout = if is_pipe { &others.pipe } else { &others.socket };
    let mut bytes = vec![0; HEADER as usize + layout.bytes as usize];
    bytes[at::WHAT as usize] = what as u8;
    let usual: &[(Known, u64)] = if is_pipe {
        &[(Known::PipeRoom, 16)]
    } else {
        &[(Known::Family, 1), (Known::Type, 1), (Known::SendBytes, 1), (Known::SendBuffer, 1000)]
    };
    for &(known, value) in usual.iter().chain(set) {
        set_in(layout, &mut bytes[HEADER as usize..], known, value);
    }
    let mut made = Made(bytes);
    made.long(at::SOCKET, if is_pipe { PIPE } else { UNIX }).long(at::TASK, 7 << 32 | 8).long(at::NS, ns);
    made.number(number, result).long(at::TCP, inode);
    made
}

fn tell_other(follower: &mut Follower, heard: &mut Heard, made: &Made) {
    follower.take(&plain(), Some(&plain_others()), &made.0, heard);
}

/// So a capture's segments can be told by them, also where the numbers begin anew at 0.
#[test]
fn positions_are_the_numbers_of_tcp() {
    for from in [100_u32, u32::MAX - 20] {
        let (mut follower, mut heard) = (follower(), Heard::default());
        let at = |made: &mut Made, written: u32| {
            let written = u64::from(from.wrapping_add(written));
            made.set(Known::WriteSeq, written).set(Known::SndNxt, from.into()).set(Known::SndUna, from.into());
        };
        let mut call = Made::new(What::Call, CLIENT);
        at(call.number(WRITE, 0), 0);
        let mut queued = Made::new(What::Queue, CLIENT);
        at(queued.segment(from, 500, 48, 100), 48);
        [call, queued].iter().for_each(|made| tell(&mut follower, &mut heard, made));
        let left = heard.events.iter().find(|(_, what, _)| *what == Happened::Reached(Stamp::Scheduled)).unwrap().2;
        assert_eq!((left.start as u32, left.end as u32), (from, from.wrapping_add(48)));
    }
}
