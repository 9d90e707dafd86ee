//! Whose time it was: by thread, and the longest single waits.

use taut_event::{LocalKey, LocalKind, TaskId};

use super::*;
use crate::trace::parts::is_held;

/// The holders that are laid to threads.
const PROGRAMS: [Holder; 3] = [Holder::ReceivingProgram, Holder::Processor, Holder::SendingProgram];

/// Events of several flows, of threads.
struct Threaded(Trace);

impl Threaded {
    /// Both ends of a connection of TCP (0 and 1), and as many Unix sockets as wanted from 2 on.
    fn new(kept: usize, sockets: u32) -> Self {
        let mut trace = Trace::new(kept).with_spans(100_000);
        let Flow { key: FlowKey::Tcp(own, peer), .. } = flow() else { panic!() };
        trace.flow(FlowId(0), &flow());
        trace.flow(FlowId(1), &Flow { key: FlowKey::Tcp(peer, own), ..flow() });
        for id in 0..sockets {
            let key = LocalKey { kind: LocalKind::Unix, inode: id.into(), ends: None };
            trace.flow(FlowId(2 + id), &Flow { key: FlowKey::Local(key), ..flow() });
        }
        Self(trace)
    }

    fn tell(&mut self, at_ms: u64, (id, who): (u32, Option<u32>), direction: Way, what: What, bytes: (u64, u64)) {
        self.0.event(&Event {
            at: Instant::from_nanos(at_ms * MS),
            seen_by: VantageId(0),
            flow: FlowId(id),
            direction,
            layer: Layer::Socket,
            what,
            bytes: ByteRange::new(bytes.0, bytes.1),
            who: who.map(TaskId),
            place: 0,
        });
    }

    fn state(&mut self, at_ms: u64, id: u32, unread_bytes: u32) {
        self.tell(at_ms, (id, None), Way::Forward, What::State(SocketState { unread_bytes, ..quiet() }), (0, 0));
    }

    /// Eight bytes come.
    fn comes(&mut self, at_ms: u64, id: u32, from: u64) {
        self.tell(at_ms, (id, None), Way::Backward, What::Reached(Stamp::Received), (from, from + 8));
        self.state(at_ms, id, 8);
    }

    /// A thread reads them.
    fn reads(&mut self, at_ms: u64, id: u32, thread: u32, from: u64) {
        self.tell(at_ms, (id, Some(thread)), Way::Backward, What::Reached(Stamp::Read), (from, from + 8));
        self.state(at_ms, id, 0);
    }

    fn end(self, at_ms: u64) -> Traced {
        self.0.finish(Instant::from_nanos(at_ms * MS))
    }
}

fn rows_ms(threads: &TracedThreads) -> Vec<(u32, [u64; 3])> {
    let ms = |held: &HeldByPrograms| {
        [held.receiving_program_ns, held.processor_ns, held.sending_program_ns].map(|ns| ns / MS)
    };
    threads.worst.iter().map(|row| (row.thread, ms(&row.held))).collect()
}

#[test]
fn the_thread_that_reads_late_is_named_and_its_twin_is_not() {
    let mut story = Threaded::new(5, 2);
    // Both get eight bytes each 100 ms. Thread 11 reads at once, 12 after 60 ms; for 20 of these it was ready to run.
    for round in 0..10 {
        let (at, from) = (round * 100, round * 8);
        (2..4).for_each(|id| story.comes(at, id, from));
        story.reads(at, 2, 11, from);
        let ran = What::Task(Task::Ran { waited_ns: 20 * MS });
        story.tell(at + 50, (3, Some(12)), Way::Backward, ran, (0, 0));
        story.reads(at + 60, 3, 12, from);
    }
    let traced = story.end(1000);
    assert_eq!(rows_ms(&traced.threads), [(12, [400, 200, 0])]);
    assert_eq!((traced.threads.others, traced.threads.no_thread.held_ns), (0, 0));
    // The waits are those of its socket, the first of them first.
    let waits: Vec<_> = traced.waits.iter().map(|wait| (wait.begin_ns / MS, wait.held_ns / MS)).collect();
    assert_eq!(waits, [(0, 30), (100, 30), (200, 30), (300, 30), (400, 30)]);
    for (wait, from) in traced.waits.iter().zip((0..).step_by(8)) {
        assert_eq!((wait.holder.as_str(), wait.side.as_str()), ("receiving_program", "receiver"));
        assert_eq!((wait.thread, wait.to.as_str(), wait.is_outgoing), (Some(12), "Unix socket 1", false));
        assert_eq!(wait.bytes, Some([from, from + 8]));
    }
}

/// Two threads write to one connection whose buffer is full: there is room for one of them, and the other one waits on.
#[test]
fn a_write_waits_for_room_though_that_of_another_thread_is_over() {
    let mut story = Threaded::new(5, 0);
    let full = SocketState { in_flight_bytes: 4000, in_flight_segments: 3, send_buffer_full: true, ..quiet() };
    let mut tell = |at_ms, who, what, bytes| {
        story.tell(at_ms, (0, who), Way::Forward, what, bytes);
        story.tell(at_ms, (0, None), Way::Forward, What::State(full), (0, 0));
    };
    tell(0, Some(11), What::Reached(Stamp::WriteBegin), (4000, 4000));
    tell(0, Some(12), What::Reached(Stamp::WriteBegin), (4000, 4000));
    tell(100, Some(11), What::Reached(Stamp::WriteEnd), (4000, 5000));
    tell(300, Some(12), What::Reached(Stamp::WriteEnd), (5000, 6000));
    // Nobody writes any more.
    tell(400, None, What::Reached(Stamp::Acknowledged), (0, 4000));
    let traced = story.end(400);
    let direction = traced.worst.iter().find(|direction| direction.is_outgoing).unwrap();
    assert_eq!(held_ms(direction), [("send_buffer", 300.0), ("delivery", 100.0)]);
    assert_eq!((found(direction), direction.writes), (vec!["send_buffer"], 2));
}

/// As in two network namespaces, each with a loopback of its own. Who of both is met last has no part in it.
#[test]
fn of_connections_with_the_same_ends_each_is_told_what_its_own_peer_has_read() {
    let Flow { key: FlowKey::Tcp(own, peer), .. } = flow() else { panic!() };
    let (first, other) = (flow(), Flow { key: FlowKey::Tcp(peer, own), ..flow() });
    let read_after = |order: [u32; 4]| {
        let mut story = Threaded(Trace::new(8).with_spans(100_000));
        // Clients have even numbers.
        order.into_iter().for_each(|id| story.0.flow(FlowId(id), if id % 2 == 0 { &first } else { &other }));
        for (client, from, read_ms) in [(0, 0, 5), (2, 1 << 20, 50)] {
            let bytes = (from, from + 8);
            let mut tell = |at_ms, id, way, stamp| {
                story.tell(at_ms, (id, Some(10 + id)), way, What::Reached(stamp), bytes);
                story.state(at_ms, id, 0);
            };
            tell(0, client, Way::Forward, Stamp::WriteBegin);
            tell(0, client, Way::Forward, Stamp::Scheduled);
            tell(0, client, Way::Forward, Stamp::WriteEnd);
            tell(1, client, Way::Forward, Stamp::Acknowledged);
            tell(1, client + 1, Way::Backward, Stamp::Received);
            tell(read_ms, client + 1, Way::Backward, Stamp::Read);
        }
        let traced = story.end(60);
        let read = traced.worst.iter().filter_map(|direction| direction.messages.map(|of| of.read));
        let mut read: Vec<(u64, u64)> = read.map(|read| (read.messages, read.longest_ns / MS)).collect();
        read.sort_unstable();
        read
    };
    assert_eq!(read_after([0, 1, 2, 3]), [(1, 5), (1, 50)]);
    // Which of two is the peer can't be told then.
    assert_eq!(read_after([0, 2, 1, 3]), [(0, 0), (0, 0)]);
}

/// A socket that is known by its calls may be closed, with something left in it. Its thread goes on with others, and
/// another socket may get its place in the kernel's memory.
#[test]
fn what_comes_after_the_last_call_on_a_socket_counts_unless_it_may_be_for_another_one() {
    // What becomes of it, its time, and that of its thread.
    let cases = [("read", 600, [410, 100, 0]), ("not read", 150, [60, 0, 0]), ("another one", 10, [10, 0, 0])];
    for (case, span, expected) in cases {
        let mut story = Threaded::new(5, 1);
        story.comes(0, 2, 0);
        story.reads(10, 2, 12, 0);
        story.comes(100, 2, 8);
        story.comes(150, 2, 8);
        for round in 0..100 {
            let ran = What::Task(Task::Ran { waited_ns: MS });
            story.tell(200 + 2 * round, (2, Some(12)), Way::Backward, ran, (0, 0));
        }
        match case {
            "read" => story.reads(600, 2, 12, 8),
            "another one" => story.0.close(FlowId(2), Closed::Ended),
            _ => {}
        }
        let traced = story.end(1000);
        assert_eq!(rows_ms(&traced.threads), [(12, expected)], "{case}");
        let [received] = traced.worst.as_slice() else { panic!("{:#?}", traced.worst) };
        assert_eq!(received.span_ns, span * MS, "{case}");
    }
}

/// Each of them waits for room until the other end has read, whoever was let go before.
#[test]
fn threads_that_wait_in_their_writes_at_once_all_wait_for_room() {
    let mut story = Threaded::new(5, 1);
    let full = What::State(SocketState { send_buffer_full: true, ..SocketState::default() });
    for thread in 1..4 {
        story.tell(0, (2, Some(thread)), Way::Forward, full, (0, 0));
        story.tell(0, (2, Some(thread)), Way::Forward, What::Reached(Stamp::WriteBegin), (0, 0));
    }
    for (at, thread) in [(100, 1), (200, 2), (300, 3)] {
        story.tell(at, (2, Some(thread)), Way::Forward, full, (0, 0));
        story.tell(at, (2, Some(thread)), Way::Forward, What::Reached(Stamp::WriteEnd), (0, 64));
    }
    let traced = story.end(300);
    let [sent] = traced.worst.as_slice() else { panic!("{:#?}", traced.worst) };
    assert_eq!(held_ms(sent), [("receiving_program", 300.0)]);
    assert_eq!((found(sent), sent.waited_writes), (vec!["receiving_program"], 3));
}

/// Who reads from a pipe waits for who writes to it, and not the other way round.
#[test]
fn a_read_that_waits_at_a_pipe_is_the_turn_of_who_writes() {
    let mut story = Threaded::new(5, 0);
    let key = LocalKey { kind: LocalKind::Pipe, inode: 9, ends: None };
    story.0.flow(FlowId(2), &Flow { key: FlowKey::Local(key), ..flow() });
    story.tell(0, (2, Some(21)), Way::Forward, What::State(quiet()), (0, 0));
    story.tell(0, (2, Some(21)), Way::Forward, What::Reached(Stamp::WriteBegin), (0, 0));
    story.tell(0, (2, Some(21)), Way::Backward, What::Reached(Stamp::Received), (0, 0));
    story.state(0, 2, 1);
    story.tell(0, (2, Some(21)), Way::Forward, What::Reached(Stamp::WriteEnd), (0, 8));
    story.reads(50, 2, 22, 0);
    story.tell(60, (2, Some(22)), Way::Backward, What::Call(Call::Begin { number: 0 }), (0, 0));
    let traced = story.end(1000);
    let of = |is_outgoing| held_ms(traced.worst.iter().find(|one| one.is_outgoing == is_outgoing).unwrap());
    assert_eq!(of(true), [("sending_program", 1000.0)]);
    assert_eq!(of(false), [("peer_turn", 950.0), ("receiving_program", 50.0)]);
}

/// Both ends of a pipe are one flow.
#[test]
fn each_end_of_a_pipe_is_told_with_its_own_thread() {
    let mut story = Threaded::new(5, 0);
    let key = LocalKey { kind: LocalKind::Pipe, inode: 9, ends: None };
    story.0.flow(FlowId(2), &Flow { key: FlowKey::Local(key), ..flow() });
    for round in 0..3 {
        let (at, from) = (100 * round, 8 * round);
        story.tell(at, (2, Some(21)), Way::Forward, What::Reached(Stamp::WriteBegin), (from, from));
        story.tell(at, (2, Some(21)), Way::Backward, What::Reached(Stamp::Received), (0, 0));
        story.state(at, 2, 1);
        story.tell(at, (2, Some(21)), Way::Forward, What::Reached(Stamp::WriteEnd), (from, from + 8));
        story.reads(at + 50, 2, 22, from);
    }
    let mut threads: Vec<_> = story.end(300).worst.iter().map(|one| (one.is_outgoing, one.thread)).collect();
    threads.sort_unstable();
    assert_eq!(threads, [(false, Some(22)), (true, Some(21))]);
}

/// At the end of a trace that has lost records each socket is told so, also one that was closed long ago.
#[test]
fn a_socket_that_is_known_by_its_calls_ends_with_its_last_one_though_events_were_lost() {
    let mut story = Threaded::new(5, 1);
    story.comes(0, 2, 0);
    story.reads(10, 2, 12, 0);
    story.comes(100, 2, 8);
    story.tell(200, (2, Some(12)), Way::Backward, What::Task(Task::Ran { waited_ns: MS }), (0, 0));
    story.tell(900, (2, None), Way::Forward, What::Gap, (0, 0));
    let traced = story.end(1000);
    let [received] = traced.worst.as_slice() else { panic!("{:#?}", traced.worst) };
    assert_eq!(held_ms(received), [("receiving_program", 10.0)]);
    assert_eq!((received.span_ns, received.remarks.len()), (10 * MS, 1));
}

/// One that never reads is the one that did before; of several nobody knows which.
#[test]
fn what_is_not_read_any_more_is_laid_to_the_only_reader() {
    let told = |second: u32| {
        let mut story = Threaded::new(5, 0);
        for (round, thread) in [11, second].into_iter().enumerate() {
            let at = round as u64 * 10;
            story.comes(at, 0, at);
            story.reads(at, 0, thread, at);
        }
        story.comes(100, 0, 16);
        story.end(400)
    };
    let (sole, shared) = (told(11), told(12));
    assert_eq!((rows_ms(&sole.threads), sole.threads.no_thread.held_ns), (vec![(11, [300, 0, 0])], 0));
    assert_eq!((rows_ms(&shared.threads), shared.threads.no_thread.receiving_program_ns), (vec![], 300 * MS));
    assert_eq!((sole.waits[0].thread, shared.waits[0].thread), (Some(11), None));
}

#[test]
fn the_thread_that_writes_late_is_named_after_those_for_which_data_waited() {
    let mut story = Threaded::new(5, 0);
    let write = |story: &mut Threaded, at: u64, thread: u32, from: u64| {
        let who = (0, Some(thread));
        story.tell(at, who, Way::Forward, What::Reached(Stamp::WriteBegin), (from, from));
        story.state(at, 0, 0);
        story.tell(at, who, Way::Forward, What::Reached(Stamp::Scheduled), (from, from + 48));
        story.tell(at, who, Way::Forward, What::State(on_the_way(0)), (0, 0));
        story.tell(at, who, Way::Forward, What::Reached(Stamp::WriteEnd), (from, from + 48));
        story.tell(at + 2, (0, None), Way::Forward, What::Reached(Stamp::Acknowledged), (from, from + 48));
        story.state(at + 2, 0, 0);
    };
    write(&mut story, 0, 21, 1000);
    write(&mut story, 500, 22, 1048);
    story.comes(510, 0, 0);
    story.reads(513, 0, 23, 0);
    write(&mut story, 520, 21, 1096);
    let traced = story.end(522);
    // The peer's turn ends when its bytes come.
    assert_eq!(rows_ms(&traced.threads), [(23, [3, 0, 0]), (22, [0, 0, 498]), (21, [0, 0, 10])]);
    // While a program has not written nothing waits.
    assert_eq!(traced.waits.len(), 1, "{:?}", traced.waits);
}

#[test]
fn a_held_write_is_told_with_its_place_among_the_bytes_and_its_thread() {
    let mut story = Threaded::new(5, 0);
    let mut tell = |at, what, bytes| story.tell(at, (0, Some(7)), Way::Forward, what, bytes);
    tell(0, What::Reached(Stamp::WriteBegin), (1000, 1000));
    tell(0, What::Reached(Stamp::Scheduled), (1000, 1016));
    tell(0, What::State(on_the_way(0)), (0, 0));
    tell(0, What::Reached(Stamp::WriteEnd), (1000, 1016));
    tell(1, What::Reached(Stamp::WriteBegin), (1016, 1016));
    tell(1, What::State(on_the_way(48)), (0, 0));
    tell(1, What::Reached(Stamp::WriteEnd), (1016, 1064));
    tell(42, What::Reached(Stamp::Acknowledged), (1000, 1016));
    tell(42, What::Reached(Stamp::Scheduled), (1016, 1064));
    tell(42, What::State(quiet()), (0, 0));
    let traced = story.end(50);
    let [wait] = traced.waits.as_slice() else { panic!("{:#?}", traced.waits) };
    assert_eq!((wait.holder.as_str(), wait.begin_ns, wait.held_ns), ("nagle", MS, 41 * MS));
    assert_eq!((wait.bytes, wait.thread, wait.is_outgoing), (Some([16, 64]), Some(7), true));
    assert_eq!((wait.from.as_str(), wait.to.as_str()), ("127.0.0.1:4000", "127.0.0.1:80"));
    // Its messages: the first one left at once and was acknowledged after 42 ms, the second one left after 41.
    let messages = traced.worst.iter().find_map(|direction| direction.messages).unwrap();
    let times = |times: MessageTimes| (times.messages, times.median_ns / MS, times.longest_ns / MS);
    assert_eq!((messages.followed, times(messages.left)), (2, (2, 41, 41)));
    assert_eq!((times(messages.acknowledged), times(messages.read)), ((1, 42, 42), (0, 0, 0)));
}

/// What came for a connection before it was accepted is told late, when others may be over.
#[test]
fn begins_count_from_what_came_first_whenever_that_was_told() {
    let mut story = Threaded::new(5, 1);
    story.comes(1000, 2, 0);
    story.reads(1030, 2, 12, 0);
    story.0.close(FlowId(2), Closed::Ended);
    story.tell(400, (0, None), Way::Backward, What::Awaits, (0, 0));
    story.state(400, 0, 0);
    story.comes(410, 0, 0);
    story.tell(1100, (0, Some(11)), Way::Backward, What::Accepted, (0, 0));
    story.reads(1100, 0, 11, 0);
    let traced = story.end(1200);
    let over = traced.worst.iter().find(|direction| direction.transport == "unix").unwrap();
    let stall = over.breakdown.iter().find(|held| held.holder == "receiving_program").unwrap().longest[0].begin_ns;
    let span = over.picture.as_ref().unwrap().spans[0].begin_ns;
    let wait = traced.waits.iter().find(|wait| wait.transport == "unix").unwrap().begin_ns;
    assert_eq!(traced.start_ns, Some(400 * MS));
    assert_eq!([over.begin_ns, stall, span, wait], [600 * MS; 4]);
}

/// Thirty threads find no room, and half of them end in their call.
#[test]
fn threads_that_write_nothing_hide_no_message() {
    let mut story = Threaded::new(5, 0);
    let mut write = |at, thread, what, bytes| story.tell(at, (0, Some(thread)), Way::Forward, what, bytes);
    for thread in 10..40 {
        write(0, thread, What::Reached(Stamp::WriteBegin), (0, 0));
        if thread % 2 == 0 {
            write(0, thread, What::Call(Call::End { number: 1, result: -11 }), (0, 0));
        }
    }
    write(1, 7, What::Reached(Stamp::WriteBegin), (0, 0));
    write(3, 7, What::Reached(Stamp::Scheduled), (0, 16));
    write(4, 7, What::Reached(Stamp::WriteEnd), (0, 16));
    let messages = story.end(10).worst.iter().find_map(|direction| direction.messages).unwrap();
    assert_eq!((messages.followed, messages.left.longest_ns), (1, 2 * MS));
}

/// Of a message that may have been read while events of the other end were lost nobody knows how long that took.
#[test]
fn a_read_that_may_have_been_lost_is_no_time_of_a_message() {
    let mut story = Threaded::new(5, 0);
    for (at, from) in [(0, 0), (600, 48)] {
        let bytes = (from, from + 48);
        story.tell(at, (0, Some(1)), Way::Forward, What::Reached(Stamp::WriteBegin), (from, from));
        story.tell(at + 1, (0, Some(1)), Way::Forward, What::Reached(Stamp::Scheduled), bytes);
        story.tell(at + 2, (0, Some(1)), Way::Forward, What::Reached(Stamp::WriteEnd), bytes);
        if at == 0 {
            story.tell(at + 5, (1, None), Way::Forward, What::Gap, (0, 0));
            story.tell(at + 500, (1, Some(2)), Way::Backward, What::Reached(Stamp::Read), (0, 8));
        }
        story.tell(at + 510, (1, Some(2)), Way::Backward, What::Reached(Stamp::Read), bytes);
    }
    let messages = story.end(2000).worst.iter().find_map(|direction| direction.messages).unwrap();
    assert_eq!((messages.followed, messages.left.messages, messages.read.messages), (2, 2, 1));
    assert_eq!(messages.read.longest_ns, 510 * MS);
}

/// What went while events were lost waits no more.
#[test]
fn the_bytes_of_a_wait_after_lost_events_are_those_that_waited_then() {
    let mut story = Threaded::new(5, 0);
    for (id, from) in [(0, 0), (1, 5000)] {
        let (write, ends) = (What::Reached(Stamp::WriteEnd), (from, from + 16));
        story.tell(0, (id, Some(7)), Way::Forward, What::Reached(Stamp::WriteBegin), (from, from));
        story.tell(0, (id, Some(7)), Way::Forward, What::Reached(Stamp::Scheduled), ends);
        story.tell(0, (id, Some(7)), Way::Forward, write, ends);
    }
    story.tell(10, (0, None), Way::Forward, What::Gap, (0, 0));
    story.tell(10, (0, None), Way::Forward, What::State(on_the_way(48)), (0, 0));
    story.tell(30, (0, None), Way::Forward, What::Reached(Stamp::Acknowledged), (952, 1000));
    story.tell(50, (0, None), Way::Forward, What::Reached(Stamp::Scheduled), (1000, 1048));
    story.state(50, 0, 0);
    story.tell(50, (1, None), Way::Forward, What::Gap, (0, 0));
    story.state(50, 1, 8);
    story.reads(60, 1, 9, 1000);
    // Nobody tells how far this one has read.
    story.tell(60, (1, None), Way::Forward, What::Gap, (0, 0));
    story.state(60, 1, 8);
    let traced = story.end(65);
    let waits: Vec<_> = traced.waits.iter().map(|wait| (wait.held_ns / MS, wait.bytes)).collect();
    assert_eq!(waits, [(40, Some([1000, 1048])), (15, Some([0, 8]))]);
}

/// A thread that only ends a wait, or its last moment, is not the one that data waited for.
#[test]
fn a_wait_is_of_the_thread_that_had_most_of_it() {
    let mut story = Threaded::new(5, 1);
    story.comes(0, 2, 0);
    story.tell(300, (2, Some(11)), Way::Backward, What::Reached(Stamp::Read), (0, 4));
    story.state(300, 2, 4);
    story.tell(310, (2, Some(12)), Way::Backward, What::Reached(Stamp::Read), (4, 8));
    story.state(310, 2, 0);
    let mut write = |at, thread, what, bytes| story.tell(at, (0, Some(thread)), Way::Forward, what, bytes);
    write(0, 7, What::Reached(Stamp::WriteBegin), (0, 0));
    write(0, 7, What::Reached(Stamp::Scheduled), (0, 16));
    write(0, 7, What::State(on_the_way(48)), (0, 0));
    write(0, 7, What::Reached(Stamp::WriteEnd), (0, 64));
    // Another one writes, and all goes.
    write(40, 8, What::Reached(Stamp::WriteBegin), (64, 64));
    write(40, 8, What::Reached(Stamp::Scheduled), (16, 2000));
    write(40, 8, What::State(on_the_way(0)), (0, 0));
    let traced = story.end(400);
    let waits: Vec<_> = traced.waits.iter().map(|wait| (wait.held_ns / MS, wait.thread, wait.bytes)).collect();
    assert_eq!(waits, [(310, Some(11), Some([0, 8])), (40, Some(7), Some([16, 64]))]);
    assert_eq!(rows_ms(&traced.threads), [(11, [300, 0, 0]), (12, [10, 0, 0])]);
}

/// The other end counts by the same numbers of TCP, which may have run over at one of them.
#[test]
fn a_message_is_followed_until_the_other_end_has_read_it() {
    for ran_over in [0, 1 << 32] {
        let mut story = Threaded::new(5, 0);
        for round in 0..10_u64 {
            let (at, from) = (round * 100, (1 << 32) + round * 48);
            let bytes = (from, from + 48);
            story.tell(at, (0, Some(1)), Way::Forward, What::Reached(Stamp::WriteBegin), (from, from));
            story.tell(at + 1, (0, Some(1)), Way::Forward, What::Reached(Stamp::Scheduled), bytes);
            story.tell(at + 2, (0, None), Way::Forward, What::Reached(Stamp::Acknowledged), bytes);
            story.tell(at + 3, (0, Some(1)), Way::Forward, What::Reached(Stamp::WriteEnd), bytes);
            let bytes = (bytes.0 + ran_over, bytes.1 + ran_over);
            // The ninth of ten takes longer.
            let read = at + if round == 8 { 90 } else { 10 };
            story.tell(read, (1, Some(2)), Way::Backward, What::Reached(Stamp::Read), bytes);
        }
        let traced = story.end(1000);
        let messages = traced.worst.iter().find_map(|direction| direction.messages).unwrap();
        let times =
            |times: MessageTimes| [times.messages, times.median_ns / MS, times.p90_ns / MS, times.longest_ns / MS];
        assert_eq!((messages.followed, times(messages.left)), (10, [10, 1, 1, 1]));
        assert_eq!((times(messages.acknowledged), times(messages.read)), ([10, 2, 2, 2], [10, 10, 10, 90]));
        let line = messages.line();
        assert!(line.starts_with("Messages: of 10 writes, the last byte of each had left the socket after "), "{line}");
        assert!(line.ends_with("was read after 10.0 ms (median), 10.0 ms (p90), 90.0 ms (longest)."), "{line}");
    }
}

proptest! {
    /// Whatever is reported, by whatever threads: the rows are what the breakdowns lay to programs, to the nanosecond,
    /// and no wait is longer than those that are told.
    #[test]
    fn the_rows_are_what_is_laid_to_programs(
        events in prop::collection::vec(
            ((0_u64..20, 0_u32..4, prop::option::of(0_u32..3)), any::<bool>(), any_what(), 0_u64..100),
            1..120,
        ),
        kept in 1_usize..10,
    ) {
        let mut story = Threaded::new(kept, 2);
        let mut whole = Threaded::new(8, 2);
        // Data goes in each direction.
        for told in [&mut story, &mut whole] {
            for id in 0..4 {
                for stamp in [Stamp::Scheduled, Stamp::WriteEnd] {
                    told.tell(0, (id, None), Way::Forward, What::Reached(stamp), (0, 1));
                }
                for stamp in [Stamp::Received, Stamp::Read] {
                    told.tell(0, (id, None), Way::Backward, What::Reached(stamp), (0, 1));
                }
            }
        }
        let mut at = 0;
        for ((pause, id, who), is_forward, what, byte) in events {
            at += pause;
            let way = if is_forward { Way::Forward } else { Way::Backward };
            for told in [&mut story, &mut whole] {
                told.tell(at, (id, who), way, what, (byte, byte + 10));
            }
        }
        let (traced, whole) = (story.end(at + 5), whole.end(at + 5));
        let threads = &traced.threads;
        let rows = || threads.worst.iter().map(|row| &row.held).chain([&threads.of_others, &threads.no_thread]);
        for holder in PROGRAMS {
            let of = |held: &HeldByPrograms| match holder {
                Holder::ReceivingProgram => held.receiving_program_ns,
                Holder::Processor => held.processor_ns,
                _ => held.sending_program_ns,
            };
            let total = traced.totals.iter().find(|held| held.holder == holder.name()).map_or(0, |held| held.held_ns);
            prop_assert_eq!(rows().map(of).sum::<u64>(), total, "{}", holder);
            let breakdowns = whole.worst.iter().flat_map(|direction| &direction.breakdown);
            let laid = breakdowns.filter(|held| held.holder == holder.name());
            prop_assert_eq!(laid.map(|held| held.held_ns).sum::<u64>(), total, "{}", holder);
        }
        prop_assert!(rows().all(|held| held.held_ns == held.data_waited_ns() + held.sending_program_ns));
        prop_assert!(threads.worst.len() <= kept && traced.waits.len() <= kept);
        // All stretches are drawn there.
        prop_assert_eq!((traced.directions, whole.worst.len()), (8, 8));
        let spans = whole.worst.iter().flat_map(|direction| &direction.picture.as_ref().unwrap().spans);
        let mut held: Vec<u64> = spans.filter(|span| is_held(span.holder)).map(|span| span.held_ns).collect();
        held.sort_unstable_by_key(|ns| std::cmp::Reverse(*ns));
        let told: Vec<u64> = traced.waits.iter().map(|wait| wait.held_ns).collect();
        prop_assert_eq!(&told[..], &held[..kept.min(held.len())]);
    }
}
